"""The files that make a directory of shards a TFDS dataset (tensorflow-datasets 4.9.10)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tfrtool.errors import DatasetError, os_reason
from tfrtool.records.shard_sets import ShardSet
from tfrtool.storage.json_files import read_json, text_of, whole_number
from tfrtool.storage.limits import MAX_CLASSES, MAX_SHARDS
from tfrtool.storage.opening import read_bounded

DATASET_INFO = "dataset_info.json"
FEATURES = "features.json"
LABELS = "label.labels.txt"

_PACKAGE = "tensorflow_datasets.core.features"


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitInfo:
    """A split, as dataset_info.json describes it.

    Attributes:
        name: its name.
        shard_lengths: how many records each of its shards has, in order.
        bytes: the payloads' size in all, without frames.
    """

    name: str
    shard_lengths: tuple[int, ...]
    bytes: int

    def __post_init__(self) -> None:
        if any(length < 0 for length in self.shard_lengths) or self.bytes < 0:
            raise ValueError(f"split {self.name!r} has a negative size")

    @property
    def records(self) -> int:
        """How many records it has in all."""
        return sum(self.shard_lengths)


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetInfo:
    """A dataset, as dataset_info.json describes it.

    Attributes:
        name: its name.
        version: its version, X.Y.Z.
        splits: its splits.
        image_feature: the feature that is a model's input, by `supervisedKeys`; None if unsaid.
        label_feature: the feature that is its target.
    """

    name: str
    version: str
    splits: tuple[SplitInfo, ...]
    image_feature: str | None = "image"
    label_feature: str | None = "label"

    def shards_of(self, split: SplitInfo, sets: Sequence[ShardSet]) -> ShardSet | None:
        """Return the shards of a split among all that there are; None if it has none.

        Those are preferred whose names have the dataset's, too, as TFDS demands.
        """
        count = len(split.shard_lengths)
        fitting = [one for one in sets if one.split == split.name]
        fitting = [one for one in fitting if not count or (one.count or 1) == count]
        named = [one for one in fitting if one.prefix.startswith(f"{self.name}-")]
        return next(iter(named or fitting), None)

    def to_json(self) -> dict[str, Any]:
        """Return the contents of dataset_info.json.

        64-bit integers are strings, as protobuf's JSON has them. Keys that TFDS doesn't know make
        it fail; hence nothing of our own is in here.
        """
        items = [{"featureKey": self.image_feature}, {"featureKey": self.label_feature}]
        return {
            "fileFormat": "tfrecord",
            "name": self.name,
            "splits": [
                {
                    "filepathTemplate": "{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}",
                    "name": split.name,
                    "numBytes": str(split.bytes),
                    "shardLengths": [str(length) for length in split.shard_lengths],
                }
                for split in self.splits
            ],
            "supervisedKeys": {"tuple": {"items": items}},
            "version": self.version,
        }


def image_features_json(
    class_count: int, encoding: str = "jpeg", size: tuple[int, int] | None = None
) -> dict[str, Any]:
    """Return the contents of features.json for images, their names, and a class label.

    Args:
        class_count: the number of classes.
        encoding: "jpeg" or "png"; or "raw", for uint8 pixels, row by row, of three channels.
        size: height and width of all images, in pixels, if they are raw and alike. Where they
            differ, TFDS can't give raw pixels a shape, and reads them as bytes.
    """
    features: dict[str, Any] = {}
    if encoding == "raw":
        if size is None:
            features["image"] = _tensor("string")
        else:
            features["image"] = _tensor("uint8", (*size, 3), "bytes")
        for side in ("height", "width", "channels"):
            features[f"image/{side}"] = _tensor("int64")
    else:
        features["image"] = {
            "pythonClassName": f"{_PACKAGE}.image_feature.Image",
            "image": {
                "dtype": "uint8",
                "shape": {"dimensions": ["-1", "-1", "3"]},
                "encodingFormat": encoding,
            },
        }
    features["image/filename"] = {
        "pythonClassName": f"{_PACKAGE}.text_feature.Text",
        "text": {},
    }
    features["label"] = {
        "pythonClassName": f"{_PACKAGE}.class_label_feature.ClassLabel",
        "classLabel": {"numClasses": str(class_count)},
    }
    return {
        "pythonClassName": f"{_PACKAGE}.features_dict.FeaturesDict",
        "featuresDict": {"features": features},
    }


def _tensor(dtype: str, shape: tuple[int, ...] = (), encoding: str = "none") -> dict[str, Any]:
    dimensions = {"dimensions": [str(size) for size in shape]} if shape else {}
    return {
        "pythonClassName": f"{_PACKAGE}.tensor_feature.Tensor",
        "tensor": {"shape": dimensions, "dtype": dtype, "encoding": encoding},
    }


def read_dataset_info(directory: Path) -> DatasetInfo | None:
    """Read dataset_info.json in ``directory``; None if there is no such file.

    Raises:
        DatasetError: it can't be read, or is not what TFDS writes.
    """
    path = directory / DATASET_INFO
    try:
        data = read_json(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise DatasetError(f"can't be read: {os_reason(error)}", path=path) from error
    except ValueError as error:
        raise DatasetError(f"no JSON that can be read: {error}", path=path) from error
    try:
        return _dataset_info(data)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        what = f"no {error}" if isinstance(error, KeyError) else error
        raise DatasetError(f"not as TFDS writes it: {what}", path=path) from error


def _dataset_info(data: Mapping[str, Any]) -> DatasetInfo:
    keys: list[str | None] = [None, None]
    items = data.get("supervisedKeys", {}).get("tuple", {}).get("items", [])
    if isinstance(items, Sequence) and len(items) == 2:
        keys = [item.get("featureKey") for item in items]
    splits = _list(data.get("splits", []))
    lengths = [_list(split.get("shardLengths", [])) for split in splits]
    if len({split["name"] for split in splits}) < len(splits):
        raise ValueError("two splits have the same name")
    shards = len(splits) + sum(map(len, lengths))
    if shards > MAX_SHARDS:
        raise ValueError(f"it has {shards:,} shards, and at most {MAX_SHARDS:,} are read")
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
        image_feature=None if keys[0] is None else text_of(keys[0]),
        label_feature=None if keys[1] is None else text_of(keys[1]),
    )


def _list(value: object) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError(f"expected a list, found {type(value).__name__}")
    return value


def read_class_names(directory: Path, label_feature: str) -> tuple[str, ...] | None:
    """Read the class names of a label feature; None if there is no such file.

    Raises:
        DatasetError: the file can't be read, is no UTF-8, or has too many lines.
    """
    path = directory / f"{label_feature.replace('/', '_')}.labels.txt"
    try:
        text = read_bounded(path).decode("utf-8")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise DatasetError(f"can't be read: {os_reason(error)}", path=path) from error
    except UnicodeDecodeError as error:
        raise DatasetError("not UTF-8", path=path, offset=error.start) from error
    count = text.count("\n")
    if count > MAX_CLASSES:
        raise DatasetError(f"has {count:,} lines, and at most {MAX_CLASSES:,} are read", path=path)
    # TFDS ends a name at a line feed alone.
    return tuple(line.strip() for line in text.split("\n") if line.strip())
