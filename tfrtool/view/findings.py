"""What is known about shards or a dataset: the results of inspection, as they arrive."""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from tfrtool.errors import ShardError, TfrtoolError, UsageError, human_count, printable
from tfrtool.examples.dataset_files import find_files
from tfrtool.examples.example import PayloadKind
from tfrtool.examples.fields import Struct
from tfrtool.features.feature_columns import FeatureColumns
from tfrtool.features.sources import DeclaredFeatures, declared_features
from tfrtool.inspection.dataset.dataset_summary import DatasetSummary
from tfrtool.inspection.inspect_options import VerifyOptions
from tfrtool.inspection.pictures.array_images import declared_root
from tfrtool.inspection.pictures.pictures import ImageRoles, image_roles
from tfrtool.inspection.profile_dataset import profile_dataset
from tfrtool.inspection.rows.batches import all_features, nested_columns
from tfrtool.inspection.schema.shard_schema import InferredSchema
from tfrtool.inspection.stats.stats import StatsReport
from tfrtool.inspection.table.gallery import Gallery, describe_table
from tfrtool.inspection.table.predictions import ShardNames, read_predictions
from tfrtool.inspection.table.record_table import (
    RecordTable,
    RowRequest,
    TablePiece,
    merge_pieces,
    path_text,
    write_side,
)
from tfrtool.inspection.verify.verify import VerifyReport
from tfrtool.storage.arguments import Paths, as_paths
from tfrtool.storage.progress import OnProgress, Progress, no_progress
from tfrtool.storage.remote_path import AnyPath
from tfrtool.storage.scratch_folder import ScratchFolder
from tfrtool.view.record_names import RecordNames

_LOOKED_AT = 8
"""Shards whose first records are searched for images."""

_MANY = 50
"""Pieces after which the small ones are merged, since each file of a query takes time."""


class Findings:
    """What is known about shards; None until it is known. One thread adds to it.

    Attributes:
        title: name of the dataset, folder or file.
        version: version of the dataset.
        arguments: what the user named.
        notes: how the shards were found.
        paths: the shards, in order.
        names: short name of each shard, all of them different.
        listed_names: what lists of records call each shard, all of them different.
        record_names: the names of records in addresses.
        splits: split of each shard, None for no split.
        dataset: the directory, if one was named.
        table: the records that have been read.
        table_done: whether all of them have.
        declared: the columns of records by features.json, or of nested records; None if each batch
            of records has its own.
        errors: steps that failed, with the reason.
    """

    def __init__(
        self,
        shards: Paths,
        *,
        as_stored: bool = False,
        types: Mapping[str, str] | None = None,
    ) -> None:
        """Find the shards, and read only their first records; see `find_shards` for errors.

        Args:
            shards: the files, or what names them.
            as_stored: whether features are shown as records store them, whatever files say.
            types: types of features by name, which come before those of files. The errors are those
                of `declared_features`.
        """
        self._as_stored, self._types = as_stored, types
        found = find_files(shards)
        split_of = {path: name for name, one in found.splits.items() for path in one.shards}
        if not split_of:
            raise ShardError("no shards found")
        self.paths = tuple(split_of)
        self.splits = tuple(name or None for name in split_of.values())
        self.arguments = as_paths(shards)
        is_folder = len(self.arguments) == 1 and self.arguments[0].is_dir()
        self.dataset = found.folders[0] if is_folder else None
        first = self.paths[0].absolute()
        named = first.parent if len(self.paths) > 1 else first
        if is_folder:  # shards may be in its folders
            named = self.arguments[0].absolute()
        self.title = printable(found.info.name if found.info else named.name)
        self.version = None if found.info is None else found.info.version
        self.notes = tuple(found.notes)
        names = [re.sub(r"\.tfrecords?|-of-[0-9]+", "", path.name)[:100] for path in self.paths]
        if len(set(names)) < len(names):
            names = [f"{number}: {path.name[:100]}" for number, path in enumerate(self.paths)]
        self.names = tuple(map(printable, names))
        counts = Counter(path.name for path in self.paths)
        self.listed_names = tuple(
            path.name if counts[path.name] == 1 else str(path.absolute()) for path in self.paths
        )
        self.record_names = RecordNames(self.listed_names)
        if types and declared_features(self.paths, types).is_sequence:
            raise UsageError("--type requires tf.train.Examples here", path=self.paths[0])
        self._scratch = ScratchFolder()
        places = zip(self.paths, self.splits, strict=True)
        self.table = replace(
            RecordTable.begin(Path(self._scratch.name), places),
            class_names=self.roles(0).label_names.names,
            has_images=self.has_images,
        )
        self.table_done = False
        self.declared: FeatureColumns | None = None
        self.gallery: Gallery | None = None
        self.summary: DatasetSummary | None = None
        self.schema: InferredSchema | None = None
        self.statistics: StatsReport | None = None
        self.verdict: VerifyReport | None = None
        self.errors: dict[str, str] = {}
        self.progress: Progress | None = None

    def __enter__(self) -> "Findings":
        return self

    def __exit__(self, *_: object) -> None:
        """Delete the temporary files."""
        self._scratch.cleanup()

    def add_predictions(self, path: AnyPath) -> None:
        """Read the predictions of a model for these records; for errors see `read_predictions`."""
        found, others = read_predictions(path, ShardNames(self.paths))
        rows = ((*key, *one) for key, one in found.items())
        side = write_side(self.table.folder, "predictions", rows, version=1)
        self.table = replace(self.table, predictions=side, has_predictions=True)
        if others:
            self.notes += (
                f"{path}: {human_count(others, 'line')} without a prediction for these records",
            )

    def steps(self, workers: int | None) -> "FindingSteps":
        """Return the work to do; its results are for `store`."""
        return FindingSteps(
            self.table, self.paths, self.dataset, workers, self._as_stored, self._types
        )

    def fill(self, on_progress: OnProgress = no_progress, *, workers: int | None = None) -> None:
        """Find everything; steps that fail are in ``errors``."""

        def store(step: str, found: Any) -> None:
            self.store(step, found)
            if isinstance(found, Progress):
                on_progress(found)

        self.steps(workers).run(store)

    def store(self, step: str, found: Any) -> None:
        """Take in the result of a step, its progress, or the reason why it failed."""
        if isinstance(found, Progress):
            self.progress = found
        elif isinstance(found, str):
            self.errors[step] = found
        elif isinstance(found, TablePiece):
            self.table = replace(self.table, pieces=(*self.table.pieces, found))
        elif isinstance(found, DeclaredFeatures):
            self.declared, self.notes = found.columns, (*self.notes, *found.notes)
        elif step == "columns":
            self.declared = found
        elif step == "notes":
            self.notes = (*self.notes, *found)
        elif step == "merged":
            self.table = replace(self.table, pieces=found)
        else:
            setattr(self, step, found)
        if isinstance(found, VerifyReport):
            self._store_faults(found)

    def _store_faults(self, verdict: VerifyReport) -> None:
        """Write the faults of records to files, from which the pages count and filter them."""
        number = {path: n for n, path in enumerate(self.paths)}
        kinds: dict[tuple[int, int], dict[str, None]] = {}
        complete = set[AnyPath]()
        for shard in verdict.shards:
            complete |= {shard.path} if len(shard.faults) == shard.n_faults else set()
            for fault in shard.faults:
                if fault.record is not None and shard.path in number:
                    record_kinds = kinds.setdefault((number[shard.path], fault.record), {})
                    record_kinds[fault.kind.value] = None
        faults = [(*position, list(names)) for position, names in kinds.items()]
        shards = [
            (n, path_text(path), split, path in complete)
            for n, (path, split) in enumerate(zip(self.paths, self.splits, strict=True))
        ]
        folder = self.table.folder
        self.table = replace(
            self.table,
            faults=write_side(folder, "faults", faults, version=1),
            shards=write_side(folder, "shards", shards, version=1),
        )

    @cached_property
    def _roles(self) -> dict[int, ImageRoles]:
        return {}

    def roles(self, shard: int) -> ImageRoles:
        """Return which features of a shard are its image and its label."""
        if shard not in self._roles:
            path = self.paths[shard]
            root = None if self._as_stored else declared_root(path, self._types)
            self._roles[shard] = image_roles(path, root=root)
        return self._roles[shard]

    @cached_property
    def has_images(self) -> bool:
        """Whether some of the first shards have images."""
        shards = range(min(len(self.paths), _LOOKED_AT))
        return any(self.roles(shard).image is not None for shard in shards)

    @property
    def root(self) -> Struct | None:
        """The types of the features of Examples, if features.json says them."""
        columns = self.declared
        is_plain = columns is not None and columns.kind is PayloadKind.EXAMPLE
        return columns.root if columns is not None and is_plain else None

    @property
    def label(self) -> str | None:
        """The label feature."""
        return self.roles(0).label if self.summary is None else self.summary.label


@dataclass(frozen=True, slots=True)
class FindingSteps:
    """The steps that find everything, in this process or another one."""

    table: RecordTable
    paths: Sequence[AnyPath]
    dataset: AnyPath | None
    workers: int | None
    as_stored: bool
    types: Mapping[str, str] | None

    def run(self, store: Callable[[str, Any], None]) -> None:
        """Do all steps; ``store`` gets their results, progress and errors."""
        table, new = self.table, 0

        def add(piece: TablePiece) -> None:
            nonlocal table, new
            table = replace(table, pieces=(*table.pieces, piece))
            store("table", piece)
            new += 1
            if new == _MANY:
                table = replace(table, pieces=merge_pieces(table.folder, table.pieces))
                store("merged", table.pieces)
                new = 0

        numbers = {path: number for number, path in enumerate(self.paths)}
        options = VerifyOptions(
            images=table.has_images, workers=self.workers, on_progress=partial(store, "progress")
        )
        try:
            rows = RowRequest(table.folder, numbers, add, self._declared(store))
            found = profile_dataset(self.dataset or self.paths, options, rows)
            store("table_done", True)
            for name in ("summary", "schema", "statistics", "verdict"):
                store(name, found.errors.get(name) or getattr(found, name))
        except TfrtoolError as error:
            store("reading", str(error))
        if table.pieces:
            try:
                store("gallery", describe_table(table))
            except TfrtoolError as error:
                store("gallery", str(error))

    def _declared(self, store: Callable[[str, Any], None]) -> FeatureColumns | None:
        """Return the columns that `query` shows, if they are the same in all records.

        These are what features.json says, unless it is wrong, or those of nested records.
        """
        notes, report = list[str](), partial(store, "progress")
        try:
            if not self.as_stored:
                found = all_features(
                    self.paths, types=self.types, workers=self.workers, on_progress=report
                )
                if found.columns is not None:
                    store("declared", found)
                    return found.columns
            columns = nested_columns(
                self.paths,
                notes.append,
                as_stored=self.as_stored,
                workers=self.workers,
                on_progress=report,
            )
        except TfrtoolError as error:
            store("features", f"shown as stored, because {error}")
            return None
        if columns is not None:
            store("columns", columns)
            store("notes", tuple(notes))
        return columns
