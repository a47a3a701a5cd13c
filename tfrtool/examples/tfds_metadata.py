"""The files that make a directory of shards a TFDS dataset (tensorflow-datasets 4.9.10)."""

import contextlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tfrtool.errors import DatasetError
from tfrtool.records.shard_sets import ShardName, ShardSet
from tfrtool.storage.json_values import (
    read_json,
    read_member,
    reading_metadata,
    text_of,
    whole_number,
)
from tfrtool.storage.limits import MAX_CLASSES, MAX_SHARDS
from tfrtool.storage.opening import read_bounded
from tfrtool.storage.remote_path import AnyPath

DATASET_INFO = "dataset_info.json"
FEATURES = "features.json"
LABELS = "label.labels.txt"
OBJECT_LABELS = "objects-label.labels.txt"
LABEL_MAP = "label_map.pbtxt"
KEYPOINTS = "keypoints.json"
LABEL_SIGNS = "_.-"
"""What stands for a slash of a feature's name in that of its file of classes.

TFDS has a dot there, and a hyphen before the name of a part of a feature.
"""
REPORT = "write_report.json"

Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitInfo:
    """A split, as dataset_info.json describes it."""

    name: str
    shard_lengths: tuple[int, ...]  # records, by shard in order
    bytes: int  # of the payloads, without frames

    @property
    def records(self) -> int:
        """How many records it has in all."""
        return sum(self.shard_lengths)

    def to_json(self) -> dict[str, Any]:
        """Return what dataset_info.json has of it."""
        return {
            "filepathTemplate": "{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}",
            "name": self.name,
            "numBytes": str(self.bytes),
            "shardLengths": [str(length) for length in self.shard_lengths],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetInfo:
    """A dataset, as dataset_info.json describes it."""

    name: str
    version: str  # X.Y.Z
    splits: tuple[SplitInfo, ...]
    image_feature: str | None = "image"  # a model's input, by `supervisedKeys`; None if unsaid
    label_feature: str | None = "label"  # its target

    def shards_of(self, split: SplitInfo, sets: Sequence[ShardSet], directory: AnyPath) -> ShardSet:
        """Return the shards of a split among all that there are; of none, the set that is missing.

        Those are preferred whose names have the dataset's, too, as TFDS demands.
        """
        count = len(split.shard_lengths)
        fitting = [one for one in sets if one.split == split.name]
        fitting = [one for one in fitting if not count or (one.count or 1) == count]
        fitting.sort(key=lambda shard_set: not shard_set.prefix.startswith(f"{self.name}-"))
        absent = ShardSet(
            directory=directory,
            prefix=f"{self.name}-{split.name}.tfrecord-",
            ending=f"-of-{count:05d}",
            digits=5,
            split=split.name,
            count=count,
            shards={},
            duplicates={},
        )
        return fitting[0] if fitting else absent

    def to_json(self) -> dict[str, Any]:
        """Return the contents of dataset_info.json.

        64-bit integers are strings, as protobuf's JSON has them. Keys that TFDS doesn't know make
        it fail; hence nothing of our own is in here.
        """
        items = [{"featureKey": self.image_feature}, {"featureKey": self.label_feature}]
        supervised = {"supervisedKeys": {"tuple": {"items": items}}}
        return {
            "fileFormat": "tfrecord",
            "name": self.name,
            "splits": [split.to_json() for split in self.splits],
            **(supervised if self.image_feature and self.label_feature else {}),
            "version": self.version,
        }


def dimensions(*sizes: int) -> Json:
    """Return a shape as features.json has it."""
    return {"dimensions": [str(size) for size in sizes]} if sizes else {}


def connector(
    kind: str,
    dtype: str | None = None,
    shape: Sequence[int] = (),
    encoding: str = "none",
    **content: Json,
) -> Json:
    """Return the description of a feature in features.json; with a dtype, of a tensor."""
    if dtype is not None:
        tensor = {"shape": dimensions(*shape), "dtype": dtype, "encoding": encoding}
        content = {"tensor": tensor}
    module = "_".join(re.findall("[A-Z][a-z]+", kind)).lower()
    module += "" if kind in ("FeaturesDict", "Scalar") else "_feature"
    module = "bounding_boxes" if kind == "BBoxFeature" else module
    return {"pythonClassName": f"tensorflow_datasets.core.features.{module}.{kind}", **content}


def read_dataset_info(directory: AnyPath) -> DatasetInfo | None:
    """Read dataset_info.json in ``directory``; None if there is no such file.

    It is a `DatasetError` if it can't be read, or is not what TFDS writes.
    """
    path = directory / DATASET_INFO
    with contextlib.suppress(FileNotFoundError), reading_metadata(path, "TFDS"):
        data = read_json(path)
        keys: list[str | None] = [None, None]
        items = data.get("supervisedKeys", {}).get("tuple", {}).get("items", [])
        if isinstance(items, Sequence) and len(items) == 2:
            keys = [item.get("featureKey") for item in items]
        image, label = (None if key is None else text_of(key) for key in keys)
        splits = _list(data.get("splits", []))
        lengths = [_list(split.get("shardLengths", [])) for split in splits]
        if len({split["name"] for split in splits}) < len(splits):
            raise ValueError("two splits have the same name")
        shards = len(splits) + sum(map(len, lengths))
        if shards > MAX_SHARDS:
            raise ValueError(f"it lists {shards:,} shards, more than the {MAX_SHARDS:,} supported")
        return DatasetInfo(
            name=text_of(data["name"]),
            version=text_of(data.get("version", "1.0.0")),
            splits=tuple(
                SplitInfo(
                    name=text_of(split["name"]),
                    shard_lengths=tuple(map(whole_number, some)),
                    bytes=whole_number(split.get("numBytes", 0)),
                )
                for split, some in zip(splits, lengths, strict=True)
            ),
            image_feature=image,
            label_feature=label,
        )
    return None


def info_beside(directory: AnyPath | None) -> DatasetInfo | None:
    """Return the TFDS metadata in a directory; None where there is none that can be read."""
    with contextlib.suppress(DatasetError):
        return None if directory is None else read_dataset_info(directory)
    return None


def _list(value: object) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError(f"expected a list, found {type(value).__name__}")
    return value


def labels_file(feature: str, sign: str = "_") -> str:
    """Return the name of the file that has the names of a feature's classes."""
    return f"{feature.replace('/', sign)}.labels.txt"


def read_class_names(directory: AnyPath, label_feature: str) -> tuple[str, ...] | None:
    """Read the class names of a label feature; None if there is no such file.

    Raises `DatasetError` if it can't be read, isn't UTF-8, or has too many lines.
    """
    for sign in LABEL_SIGNS if "/" in label_feature else "_":
        path = directory / labels_file(label_feature, sign)
        with contextlib.suppress(FileNotFoundError), reading_metadata(path, "TFDS"):
            text = read_bounded(path).decode("utf-8")
            count = text.count("\n")
            if count > MAX_CLASSES:
                raise ValueError(f"it has {count:,} lines, more than the {MAX_CLASSES:,} supported")
            # TFDS ends a name at LF alone.
            return tuple(line.strip() for line in text.split("\n") if line.strip())
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenShard:
    """A shard as it was when it was written: records, size, and digest in hexadecimal."""

    records: int
    bytes: int
    sha256: str


def read_written_shards(directory: AnyPath) -> Mapping[str, WrittenShard]:
    """Read the report of a write: its shards by their names; none if there is no report.

    Raises `DatasetError` if it can't be read.
    """
    path = directory / REPORT
    with contextlib.suppress(FileNotFoundError), reading_metadata(path, "tfrtool"):
        splits = read_member(path, "splits")  # what follows may be as long as the source
        return {
            shard["path"]: WrittenShard(
                records=whole_number(shard["records"]),
                bytes=whole_number(shard["bytes"]),
                sha256=text_of(shard["sha256"]),
            )
            for split in splits.values()
            for shard in split["shards"]
            # It may have been edited: only what is a shard's name, and so no path, is believed.
            if ShardName.parse(text_of(shard["path"])) is not None
            and shard["sha256"] is not None  # copied records have a cheaper checksum
        }
    return {}
