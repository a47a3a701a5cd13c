"""What is known of some shards or a dataset: what inspection's verbs return, as it comes in."""

import contextlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, cast

from tfrtool.errors import ShardError, TfrtoolError, UsageError, os_errors_as, printable
from tfrtool.examples.dataset_files import find_files
from tfrtool.examples.feature_text import python_source
from tfrtool.examples.objects.record_features import OBJECTS
from tfrtool.examples.roles import LabelNames
from tfrtool.inspection.dataset.dataset_summary import UNSPLIT, DatasetSummary, inspect_dataset
from tfrtool.inspection.dataset.record_labels import look_for_label
from tfrtool.inspection.pictures.pictures import ImageRoles, image_roles
from tfrtool.inspection.schema.shard_schema import InferredSchema, infer_schema
from tfrtool.inspection.stats.stats import StatsReport, stats
from tfrtool.inspection.table.gallery import Labels, labels_of
from tfrtool.inspection.table.record_index import RecordIndex, find_offsets
from tfrtool.inspection.table.record_table import RecordTable, write_rows
from tfrtool.inspection.table.selection import Selector
from tfrtool.inspection.verify.verify import VerifyReport, verify
from tfrtool.storage.arguments import Paths, as_paths
from tfrtool.storage.progress import OnProgress, Progress, no_progress
from tfrtool.storage.scratch_folder import ScratchFolder

_LOOKED_AT = 8
"""Shards whose first records are looked at for an image."""


class Findings:
    """What is found, step by step; what is not known yet is None. One thread fills it.

    Attributes:
        title: what it is called.
        arguments: the files, patterns and directories that were named.
        paths: the shards, in order.
        split_of: the split of each.
        errors: what went wrong, by the step: one that fails doesn't keep others from being done.
    """

    def __init__(self, shards: Paths, *, images: bool = True) -> None:
        """Find the shards, and read nothing but the first records; see `find_shards` for errors."""
        self._images = images
        found = find_files(shards, lambda name: name or UNSPLIT)
        self.split_of = {path: name for name, one in found.splits.items() for path in one.shards}
        self.paths = tuple(self.split_of)
        if not self.paths:
            raise ShardError("no shards found")
        self.arguments = as_paths(shards)
        is_folder = len(self.arguments) == 1 and self.arguments[0].is_dir()
        self.dataset = found.folders[0] if is_folder else None
        self.size_of = {path: path.stat().st_size for path in self.paths}
        first = self.paths[0].absolute()
        named = first.parent if self.dataset or len(self.paths) > 1 else first
        self.title = printable(found.info.name if found.info else named.name)
        self.version = None if found.info is None else found.info.version
        self.notes = tuple(found.notes)
        self._scratch = ScratchFolder()
        self.table = RecordTable()
        self.index = RecordIndex(self.paths, self.table)
        self.summary: DatasetSummary | None = None
        self.schema: InferredSchema | None = None
        self.statistics: StatsReport | None = None
        self.verdict: VerifyReport | None = None
        self.table_done = False
        self.errors: dict[str, str] = {}
        self.progress: Progress | None = None
        self._roles: dict[Path, ImageRoles] = {}
        self._held: dict[str, tuple[object, Any]] = {}

    def close(self) -> None:
        """Delete what was put aside."""
        self._scratch.cleanup()

    def __enter__(self) -> "Findings":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def search(self, workers: int | None) -> "FindingSteps":
        """Return what there is to be found; what it tells is for `take`."""
        folder = Path(self._scratch.name)
        return FindingSteps(self.paths, self.dataset, folder, self.has_images, workers)

    def fill(self, on_progress: OnProgress = no_progress, *, workers: int | None = None) -> None:
        """Find everything, the quick things first; what fails is in ``errors``."""

        def take(step: str, found: Any) -> None:
            self.take(step, found)
            if isinstance(found, Progress):
                on_progress(found)

        self.search(workers).run(take)

    def take(self, step: str, found: Any) -> None:
        """Take in what a step found, or how far it is, or what went wrong."""
        if isinstance(found, Progress):
            self.progress = found
        elif isinstance(found, str):
            self.errors[step] = found
        elif step == "index":
            self.index.add(*found)
        elif step == "table":
            self.table.add(found)
        else:
            setattr(self, step, found)

    @property
    def stage(self) -> str:
        """What changes when the table has many more rows, and at its end."""
        steps = round(10 * math.log(self.table.rows + 1))
        return "all" if self.table_done else str(steps)

    def _of_stage(self, name: str, made_of: object, make: Callable[[], Any]) -> Any:
        """Return what is made anew only when the table has many more rows."""
        key = self.stage, made_of
        if self._held.get(name, (None,))[0] != key:
            self._held[name] = key, make()
        return self._held[name][1]

    def roles(self, path: Path) -> ImageRoles:
        """Return which features of a shard are its image and its label."""
        if path not in self._roles:
            self._roles[path] = image_roles(path)
        return self._roles[path]

    @cached_property
    def has_images(self) -> bool:
        """Whether some of the first shards have images."""
        return self._images and any(
            self.roles(path).image is not None for path in self.paths[:_LOOKED_AT]
        )

    @property
    def label(self) -> str | None:
        """The feature that is the label."""
        if self.summary is not None:
            return self.summary.label
        found = (self.roles(path).label for path in self.paths[:_LOOKED_AT])
        return next(filter(None, found), None)

    @cached_property
    def label_candidates(self) -> tuple[str, ...]:
        """The features that may be the label, by the first records; for people, never as data."""
        with contextlib.suppress(TfrtoolError):  # the table and the verdict tell
            first = look_for_label(self.paths[:_LOOKED_AT], None)
            return () if first.has_boxes else first.candidates
        return ()

    @property
    def label_column(self) -> str | None:
        """The column of the table with the labels as people call them."""
        return "image.label" if self.label and self.table.has("image.label") else self.label

    @property
    def example_condition(self) -> str:
        """A condition to begin with, which these records can be asked for."""
        names = LabelNames.beside(self.paths[0].parent, self.label).names
        known = next((name for name in names if name), None)
        parts = [
            "_record < 100"
            if known is None
            else f"label_name = '{known.replace(chr(39), chr(39) * 2)}'"
        ]
        return " AND ".join([*parts, *(["width < 200"] if self.has_images else [])])

    def labels(self) -> Labels:
        """Return the label of each row, not of the last ones as long as there come more."""
        column = self.label_column
        return cast(Labels, self._of_stage("labels", column, lambda: labels_of(self.table, column)))

    def captions(self, rows: Sequence[int]) -> dict[int, str]:
        """Return what stands below pictures of rows: their label, else the classes of objects."""
        column = self.label_column or f"{OBJECTS}class/text"
        held = self.table.take([column], rows) if self.table.has(column) else {}
        return {row: _caption(one[column]) for row, one in held.items()}

    def selector(self) -> Selector:
        """Return what asks the rows, not the last ones as long as there come more."""
        label = self.label

        def make() -> Selector:
            names = LabelNames.beside(self.paths[0].parent, label).names
            split_of = {path: name for path, name in self.split_of.items() if name != UNSPLIT}
            table = self.table.as_it_is()
            return Selector(table, split_of=split_of, label=label, class_names=names)

        return cast(Selector, self._of_stage("selector", label, make))

    @property
    def schema_source(self) -> str | None:
        """The schema as Python source, to copy."""
        if self.schema is None:
            return None
        return python_source(self.schema.features, self.schema.records)


def _caption(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(dict.fromkeys(map(_caption, value)))
    text = value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else value
    return "" if value is None else printable(str(text)[:200])


@dataclass(frozen=True, slots=True)
class FindingSteps:
    """The steps that find everything, in this process or in another one."""

    paths: Sequence[Path]
    dataset: Path | None
    folder: Path
    images: bool
    workers: int | None

    def run(self, tell: Callable[[str, Any], None]) -> None:
        """Do all steps; a step and what it finds is told, or a `Progress`, or why it failed."""
        on_progress = partial(tell, "progress")
        told: dict[str, Any] = {"workers": self.workers, "on_progress": on_progress}
        steps: dict[str, Callable[[], Any]] = {
            "index": lambda: self._find_offsets(tell),
            "table_done": lambda: self._write_rows(tell, on_progress),
            "summary": lambda: self.dataset and inspect_dataset(self.dataset, **told),
            "schema": lambda: infer_schema(self.paths, **told),
            "statistics": lambda: stats(self.paths, **told),
            "verdict": lambda: verify(self.dataset or self.paths, images=self.images, **told),
        }
        for name, step in steps.items():
            try:
                found = step()
            except TfrtoolError as error:
                found = str(error)
            if found is not None:
                tell(name, found)

    def _find_offsets(self, tell: Callable[[str, Any], None]) -> None:
        for number, path in enumerate(self.paths):
            with contextlib.suppress(ShardError):  # its rows tell
                offsets = find_offsets(path)
                file = self.folder / f"offsets-{number}"
                with os_errors_as(UsageError, file, "can't store the record index"):
                    file.write_bytes(offsets)
                tell("index", (path, file))

    def _write_rows(self, tell: Callable[[str, Any], None], on_progress: OnProgress) -> bool:
        words: dict[str, Any] = {"workers": self.workers, "on_progress": on_progress}
        for found in write_rows(self.paths, self.folder, images=self.images, **words):
            tell("table", found)
        return True
