"""What is known of some shards or a dataset: what inspection's verbs return, as it comes in."""

import tempfile
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

from tfrtool.errors import ShardError, TfrtoolError, printable
from tfrtool.examples.dataset_files import find_files
from tfrtool.examples.feature_text import python_source
from tfrtool.examples.roles import LabelNames
from tfrtool.inspection.dataset.dataset_summary import UNSPLIT, DatasetSummary, inspect_dataset
from tfrtool.inspection.pictures.pictures import ImageRoles, image_roles
from tfrtool.inspection.schema.shard_schema import InferredSchema, infer_schema
from tfrtool.inspection.stats.stats import StatsReport, stats
from tfrtool.inspection.table.gallery import Labels, labels_of
from tfrtool.inspection.table.record_index import RecordIndex
from tfrtool.inspection.table.record_table import RecordTable, TablePiece
from tfrtool.inspection.table.selection import Selector
from tfrtool.inspection.verify.verify import VerifyReport, verify
from tfrtool.storage.locations import Paths, as_paths
from tfrtool.storage.progress import OnProgress, Progress, silent

_LOOKED_AT = 8
"""Shards whose first records are looked at for an image."""


class Findings:
    """What is found, step by step; what is not known yet is None. One thread fills it.

    Attributes:
        title: what it is called.
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
            raise ShardError("no shards")
        given = as_paths(shards)
        self.dataset = found.folders[0] if len(given) == 1 and given[0].is_dir() else None
        self.size_of = {path: path.stat().st_size for path in self.paths}
        self.title = printable(found.info.name if found.info else self.paths[0].parent.name)
        self.version = None if found.info is None else found.info.version
        self.notes = tuple(found.notes)
        self._scratch = tempfile.TemporaryDirectory(prefix="tfrtool-view-")
        self.index = RecordIndex(self.paths)
        self.table = RecordTable(Path(self._scratch.name))
        self.summary: DatasetSummary | None = None
        self.schema: InferredSchema | None = None
        self.statistics: StatsReport | None = None
        self.verdict: VerifyReport | None = None
        self.table_done = False
        self.errors: dict[str, str] = {}
        self._roles: dict[Path, ImageRoles] = {}

    def close(self) -> None:
        """Delete what was put aside."""
        self._scratch.cleanup()

    def __enter__(self) -> "Findings":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def fill(self, on_progress: OnProgress = silent, *, workers: int | None = None) -> None:
        """Do all steps, the quick ones first; what fails is in ``errors``."""

        def on_piece(_: TablePiece) -> None:
            total = len(self.index) if self.index.complete else None
            done = self.table.rows
            on_progress(Progress(what="reading", done=done, total=total, unit="records"))

        def fill_table() -> bool:
            self.table.fill(self.paths, images=self._images, workers=workers, on_piece=on_piece)
            return True

        paths = self.paths
        told: dict[str, Any] = {"workers": workers, "on_progress": on_progress}
        steps: dict[str, Callable[[], Any]] = {
            "index": self.index.fill,
            "table_done": fill_table,
            "summary": lambda: self.dataset and inspect_dataset(self.dataset, **told),
            "schema": lambda: infer_schema(paths, **told),
            "statistics": lambda: stats(paths, **told),
            "verdict": lambda: verify(self.dataset or paths, images=self.has_images, **told),
        }
        for name, step in steps.items():
            try:
                found = step()
            except TfrtoolError as error:
                self.errors[name] = str(error)
                continue
            if name != "index":
                setattr(self, name, found)

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

    @property
    def label_column(self) -> str | None:
        """The column of the table with the labels as people call them."""
        return "image.label" if self.table.has("image.label") else self.label

    def labels(self) -> Labels:
        """Return the label of each row so far."""
        return labels_of(self.table, self.label_column)

    def selector(self) -> Selector:
        """Return what asks the rows that are known so far."""
        names = LabelNames.beside(self.paths[0].parent, self.label)
        return Selector(
            self.table,
            split_of=self.split_of.get,
            label=self.label,
            class_names=bool(names.names),
        )

    @property
    def schema_source(self) -> str | None:
        """The schema as Python source, to copy."""
        if self.schema is None:
            return None
        return python_source(self.schema.features, self.schema.records)
