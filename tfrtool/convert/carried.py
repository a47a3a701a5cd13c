"""The metadata of sources, as it goes along with their records."""

import contextlib
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from tfrtool.errors import DatasetError
from tfrtool.examples.tfds_metadata import (
    DATASET_INFO,
    FEATURES,
    KEYPOINTS,
    LABEL_MAP,
    Json,
)
from tfrtool.features.schema_files import SCHEMA, SchemaFields
from tfrtool.features.tfds_tree import tfds_parts
from tfrtool.storage.json_values import read_json, reading_metadata
from tfrtool.storage.opening import read_bounded
from tfrtool.storage.remote_path import AnyPath
from tfrtool.writing.job_report import FinishedFile, dataset_texts, split_infos, split_reports
from tfrtool.writing.run_options import JobSettings

_CLASSES = (".labels.txt", LABEL_MAP, KEYPOINTS)
"""What the files with class names end in."""


class CarriedMetadata:
    """What describes the records of some directories: TFDS' metadata, and what `write` says.

    Attributes:
        labels: the texts of the files with class names, by their names.
        features: the contents of features.json; None where there is none, or they differ.
        info: the contents of dataset_info.json; empty where there is none.
        types: types that features store as others, by the schemas next to the shards.
        warnings: what could not be kept, a sentence each.
    """

    def __init__(self, folders: Sequence[AnyPath], shards: Iterable[AnyPath] = ()) -> None:
        """Read what lies in directories, and next to shards.

        Raises:
            DatasetError: it can't be read; or class names differ, so that the same label would mean
                two things.
        """
        self.labels: dict[str, str] = {}
        self.features: Any = None
        self.info: dict[str, Any] = {}
        self.warnings: list[str] = []
        homes: dict[str, AnyPath] = {}
        for folder in folders:
            for path in sorted(p for p in folder.iterdir() if p.name.endswith(_CLASSES)):
                with reading_metadata(path, "TFDS"):
                    text = read_bounded(path).decode("utf-8")
                if _lines(self.labels.setdefault(path.name, text)) != _lines(text):
                    raise DatasetError(
                        f"its class names differ from the names in {homes[path.name]}, "
                        "so labels would change their meaning",
                        path=path,
                    )
                homes.setdefault(path.name, path)
            features = _object(folder / FEATURES)
            if features and features != self.features:
                if self.features is not None:
                    self.warnings.append(
                        f"{folder / FEATURES} differs from {homes[FEATURES]}: the result has none, "
                        "so TFDS can't read it"
                    )
                self.features, homes[FEATURES] = features, folder
            self.info = self.info or _object(folder / DATASET_INFO)
        if self.warnings:
            self.features = None
        self.types = SchemaFields.read(shards)
        self.warnings += [
            f"{what} for {name!r} in {SCHEMA}, so the result has none"
            for what, names in (
                ("the sources have different types", self.types.conflicts),
                ("some sources have no type", self.types.partial - self.types.conflicts),
            )
            for name in sorted(names)
        ]

    def texts(self, settings: JobSettings, files: Iterable[FinishedFile]) -> dict[str, str]:
        """Return the files that describe a dataset of these shards, by their names, in order."""
        info = {**self.info, "fileFormat": "tfrecord", **settings.identity}
        info["splits"] = [split.to_json() for split in split_infos(split_reports(files))]
        return dataset_texts(self.labels, self.features, info) | self.types.texts()


def inferred_features(names: Collection[str], shards: Sequence[AnyPath]) -> dict[str, Json]:
    """Return how TFDS describes some features of shards."""
    from tfrtool.examples.tfds_features import tfds_features
    from tfrtool.inspection.schema.shard_schema import infer_schema

    found = infer_schema(shards)
    described = tfds_parts(tfds_features(found.features, found.records).content)
    return {
        name: feature
        for name, feature in described.items()
        if not {*names}.isdisjoint([name, f"{name}/ragged_flat_values"])
    }


def _object(path: AnyPath) -> dict[str, Any]:
    """Return what a file of metadata holds; nothing where there is none."""
    with contextlib.suppress(FileNotFoundError), reading_metadata(path, "TFDS"):
        return dict(read_json(path))
    return {}


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]
