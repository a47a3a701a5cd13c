"""A dataset on disk: its splits, its shards, and what is known of its features."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tfrtool.errors import DatasetError, ShardError, UsageError
from tfrtool.examples.content import describe_bytes
from tfrtool.examples.example import DType, PayloadKind, decode_example
from tfrtool.examples.tfds_metadata import (
    DATASET_INFO,
    DatasetInfo,
    read_class_names,
    read_dataset_info,
)
from tfrtool.records.compression import Compression
from tfrtool.records.count import count_records
from tfrtool.records.framing import Record
from tfrtool.records.names import ShardName
from tfrtool.records.reader import ReadOptions, read_records
from tfrtool.records.shards import Shard, find_shards

__all__ = ["Dataset", "Split", "open_dataset"]

_IMAGE_FEATURES = ("image", "image/encoded", "image_raw")
_LABEL_FEATURES = ("label", "image/class/label")


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """A split's shards.

    Attributes:
        name: its name.
        shards: its files, in order.
        records: how many records they have in all, as counted in the files.
        compression: of all of them.
    """

    name: str
    shards: tuple[Path, ...]
    records: int
    compression: Compression


@dataclass(frozen=True, slots=True, kw_only=True)
class Dataset:
    """A directory of shards that a classifier of images can be trained on.

    Attributes:
        directory: where it is.
        name: its name.
        splits: by name.
        image_feature: the string feature with the encoded images.
        label_feature: the int64 feature with the class numbers, from 0.
        class_names: by number.
    """

    directory: Path
    name: str
    splits: Mapping[str, Split]
    image_feature: str
    label_feature: str
    class_names: tuple[str, ...]

    def split(self, name: str) -> Split:
        """Return a split by its name.

        Raises:
            UsageError: there is none of that name.
        """
        if name not in self.splits:
            raise UsageError(
                f"no split {name!r}", path=self.directory, expected=" or ".join(self.splits)
            )
        return self.splits[name]


def open_dataset(directory: Path) -> Dataset:
    """Find out what is in a directory of shards.

    TFDS metadata is believed where it is, and held against the files: a shard that is missing, or
    has other records than it should, is an error. Where there is none, splits are told from the
    names of the files, and features from the first record. Every header of every shard is looked
    at, for a damaged length can end TensorFlow's whole process.

    Raises:
        DatasetError: the directory holds no dataset, or not the one that its metadata describes.
        CorruptShardError: the framing of a shard is damaged.
    """
    if not directory.is_dir():
        missing = not directory.exists()
        raise DatasetError(
            "no such directory" if missing else "not a directory",
            path=directory,
            expected="a directory with shards, as tfrtool write makes it",
        )
    info = read_dataset_info(directory)
    if info is None:
        splits = _splits_by_name(directory)
        info = DatasetInfo(
            name=directory.name, version="0.0.0", splits=(), image_feature=None, label_feature=None
        )
    else:
        splits = _splits_by_metadata(directory, info)
    image, label = _features(directory, info, splits)
    names = read_class_names(directory, label)
    dataset = Dataset(
        directory=directory,
        name=info.name,
        splits=splits,
        image_feature=image,
        label_feature=label,
        class_names=names or (),
    )
    if names is None:
        dataset = replace(dataset, class_names=_numbered_classes(dataset))
    return dataset


def _splits_by_metadata(directory: Path, info: DatasetInfo) -> dict[str, Split]:
    splits = {}
    for split in info.splits:
        shards = []
        for index, expected in enumerate(split.shard_lengths):
            name = ShardName(
                dataset=info.name, split=split.name, index=index, count=len(split.shard_lengths)
            )
            path = directory / str(name)
            if not path.is_file():
                raise DatasetError(
                    "a shard is missing", path=path, expected=f"{expected} records in it"
                )
            found = count_records(path)
            if found != expected:
                raise DatasetError(
                    f"the shard does not agree with {DATASET_INFO}",
                    path=path,
                    expected=f"{expected} records",
                    found=found,
                )
            shards.append(path)
        if shards:
            splits[split.name] = _split(split.name, shards, split.records)
    if not splits:
        raise DatasetError("describes no shards", path=directory / DATASET_INFO)
    return splits


def _splits_by_name(directory: Path) -> dict[str, Split]:
    try:
        paths = find_shards([str(directory)])
    except ShardError as error:
        raise DatasetError(error.what, path=directory) from error
    by_split: dict[str, list[Path]] = {}
    for path in paths:
        name = ShardName.parse(path.name)
        by_split.setdefault("train" if name is None else name.split, []).append(path)
    return {
        name: _split(name, shards, sum(count_records(path) for path in shards))
        for name, shards in by_split.items()
    }


def _split(name: str, shards: Sequence[Path], records: int) -> Split:
    kinds = {Shard.at(path).compression for path in shards if path.stat().st_size}
    if len(kinds) > 1:
        found = ", ".join(sorted(kind.value for kind in kinds))
        raise DatasetError(
            f"the shards of split {name!r} are compressed in different ways",
            path=shards[0].parent,
            found=found,
        )
    compression = kinds.pop() if kinds else Compression.NONE
    return Split(name=name, shards=tuple(shards), records=records, compression=compression)


def _features(directory: Path, info: DatasetInfo, splits: Mapping[str, Split]) -> tuple[str, str]:
    """Return the names of the image and the label feature, as they are in the first record."""
    record = _first_record(splits)
    if record is None:
        raise DatasetError("has no records", path=directory)
    try:
        features = decode_example(record.payload, PayloadKind.EXAMPLE).features
    except ValueError as error:
        raise DatasetError(f"the first record can't be parsed: {error}", path=directory) from error
    images = [
        name
        for name, feature in features.items()
        if feature.dtype is DType.STRING
        and len(feature.values) == 1
        and isinstance(value := feature.values[0], bytes)
        and describe_bytes(value).startswith("image/")
    ]
    labels = [
        name
        for name, feature in features.items()
        if feature.dtype is DType.INT64 and len(feature.values) == 1
    ]
    return (
        _choose(directory, "encoded image", info.image_feature, _IMAGE_FEATURES, images),
        _choose(directory, "int64 label", info.label_feature, _LABEL_FEATURES, labels),
    )


def _choose(
    directory: Path, what: str, said: str | None, usual: Sequence[str], candidates: Sequence[str]
) -> str:
    for name in (said, *usual):
        if name in candidates:
            return str(name)
    if len(candidates) == 1:
        return candidates[0]
    raise DatasetError(
        f"it is not clear which feature is the {what}",
        path=directory,
        found=", ".join(candidates) or "none",
    )


def _first_record(splits: Mapping[str, Split]) -> Record | None:
    for split in splits.values():
        for path in split.shards:
            with path.open("rb") as file:
                for item in read_records(file, ReadOptions(compression=split.compression)):
                    if isinstance(item, Record):
                        return item
    return None


def _numbered_classes(dataset: Dataset) -> tuple[str, ...]:
    """Return a name for each class number that occurs, and for those below it."""
    highest = 0
    for split in dataset.splits.values():
        for path in split.shards:
            with path.open("rb") as file:
                for item in read_records(file):
                    if isinstance(item, Record):
                        highest = max(highest, _label(dataset, path, item))
    return tuple(str(number) for number in range(highest + 1))


def _label(dataset: Dataset, path: Path, record: Record) -> int:
    try:
        feature = decode_example(record.payload).features.get(dataset.label_feature)
    except ValueError:
        feature = None
    value = feature.values[0] if feature is not None and len(feature.values) == 1 else None
    if not isinstance(value, int) or not 0 <= value < 100_000:
        raise DatasetError(
            f"the feature {dataset.label_feature!r} is no class number",
            path=path,
            record=record.index,
            offset=record.offset,
            found=value,
        )
    return value
