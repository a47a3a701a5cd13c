"""A dataset on disk: its splits, its shards, and what is known of its features."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice, starmap
from pathlib import Path
from typing import Any

from tfrtool.errors import CorruptShardError, DatasetError, UsageError
from tfrtool.examples.example import DType, Feature, PayloadKind, decode_example
from tfrtool.examples.roles import find_roles
from tfrtool.examples.tfds_metadata import (
    DATASET_INFO,
    DatasetInfo,
    read_class_names,
    read_dataset_info,
)
from tfrtool.loading.dataset.classes import find_classes, read_items
from tfrtool.loading.dataset.corrupt_report import DropReport, OnCorrupt
from tfrtool.loading.dataset.forms import ImageForm, find_image_form, read_described
from tfrtool.loading.pipeline.tensors import TfDataset
from tfrtool.records.compression import Compression
from tfrtool.records.count import count_records, count_shard, first_fault
from tfrtool.records.dataset_folders import DatasetFolders, find_folders
from tfrtool.records.framing import Record
from tfrtool.records.shard_sets import ShardName, ShardSet, find_conflicts, group_shards
from tfrtool.records.shards import Shard
from tfrtool.storage.progress import OnProgress, silent
from tfrtool.storage.publishing import reading
from tfrtool.storage.words import as_member

__all__ = ["Dataset", "Split", "open_dataset", "shard_lengths"]

_UNNAMED = "train"
"""The split of shards whose names say none."""

_OTHERS = "all"
"""The same, where other shards are called "train"."""

_LOOKED_AT = 64
"""Records of a damaged dataset from which its features are told at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """A split's shards.

    Attributes:
        name: its name.
        shards: its files that have records, in order.
        lengths: how many records each of them has, as counted in the files.
        compression: of all of them.
    """

    name: str
    shards: tuple[Path, ...]
    lengths: tuple[int, ...]
    compression: Compression

    def __post_init__(self) -> None:
        if len(self.shards) != len(self.lengths):
            raise ValueError("each shard has a number of records")

    @property
    def records(self) -> int:
        """How many records the shards have in all."""
        return sum(self.lengths)


@dataclass(frozen=True, slots=True, kw_only=True)
class Dataset:
    """A directory of shards that a classifier of images can be trained on.

    Attributes:
        directory: where it is.
        name: its name.
        splits: by name.
        image_feature: the string feature with the images.
        label_feature: the feature with the classes: numbers from 0, or names.
        class_names: by number.
        image_form: what the bytes of an image are.
        label_dtype: INT64 for numbers, STRING for names.
    """

    directory: Path
    name: str
    splits: Mapping[str, Split]
    image_feature: str
    label_feature: str
    class_names: tuple[str, ...]
    image_form: ImageForm
    label_dtype: DType = DType.INT64

    def __post_init__(self) -> None:
        if self.label_dtype not in (DType.INT64, DType.STRING):
            raise ValueError(f"a label is a number or a name, not {self.label_dtype.value}")

    def __fspath__(self) -> str:
        """Return the directory: what takes the path of a dataset takes a dataset, too."""
        return os.fspath(self.directory)

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

    def load(
        self,
        split: str = "train",
        *,
        image_size: int,
        cache: str = "none",
        augment: str | None = None,
        rescale: tuple[float, float] | None = (1 / 255, 0.0),
        holdout: float | None = None,
        held_out: bool = False,
        context: object = None,
        on_progress: OnProgress = silent,
        **options: Any,
    ) -> TfDataset:
        """Build the pipeline from a split's shards to batches.

        Where images are cached on disk, and no earlier run has done so, they are all decoded and
        written before this returns.

        Args:
            split: which split.
            image_size: images are resized to this many pixels, both ways.
            cache: where decoded images are kept: ``none``, ``memory`` or ``disk``.
            augment: changes to images, such as ``flip,rotate=40``, as ``tfrtool train`` takes them;
                drawn anew for each image in each epoch.
            rescale: pixel values, 0 to 255, are multiplied by the first number, and then the second
                is added. None leaves them as uint8.
            holdout: the part of the split that is held out, between 0 and 1; None is none.
            held_out: whether that part is loaded, or the rest.
            context: a ``tf.distribute.InputContext``, as ``distribute_datasets_from_function``
                gives it: this pipeline has its share of the records then, and its replicas' share
                of the batch.
            on_progress: told now and then while a cache on disk is written.
            **options: the other attributes of `LoadOptions`: ``batch_size``, ``seed``, ``epochs``,
                ``training``, ``recipe`` and so on.

        Returns:
            A ``tf.data.Dataset`` of ``epochs`` epochs, with its cardinality known: pairs of images,
            float32 [batch, image_size, image_size, 3] (uint8 without ``rescale``), and labels,
            int64 [batch].

        Raises:
            UsageError: there is no such split, a word is unknown, or the options don't go together.
            DatasetError: the part of it that was asked for is empty.
            WriteError: the cache on disk can't be written.
        """
        from tfrtool.loading.augment.augment_options import parse_augment
        from tfrtool.loading.pipeline.load_options import Cache, Holdout, LoadOptions, Rescale
        from tfrtool.loading.pipeline.pipeline import load

        chosen = LoadOptions(
            split=split,
            image_size=image_size,
            cache=as_member(Cache, cache, "cache"),
            augment=None if augment is None else parse_augment(augment),
            rescale=None if rescale is None else Rescale(scale=rescale[0], offset=rescale[1]),
            holdout=None if holdout is None else Holdout(fraction=holdout, held_out=held_out),
            **options,
        )
        return load(self, chosen, context, on_progress)

    def drop_corrupt(
        self, scratch: str | os.PathLike[str], **options: Any
    ) -> tuple[Dataset, DropReport]:
        """Leave out the records that can't be used; see `tfrtool.loading.dataset.drop_corrupt`."""
        from tfrtool.loading.dataset.drop_corrupt import drop_corrupt

        return drop_corrupt(self, scratch, **options)


def open_dataset(path: str | os.PathLike[str], on_corrupt: str | OnCorrupt = "stop") -> Dataset:
    """Find out what is in a directory of shards.

    TFDS metadata is believed where it is, and held against the files: a shard that is missing, or
    has other records than it should, is an error. Where there is none, splits are told from the
    names of the files, features and the form of images from the first record, and classes from
    all records. Every header of every shard is looked at, for a damaged length can end
    TensorFlow's whole process.

    Args:
        path: where the shards are, or versions of the dataset, or folders of splits.
        on_corrupt: ``stop``; or ``skip``, with which damaged and missing shards are no error. What
            comes back is not fit to be read by TensorFlow before its `Dataset.drop_corrupt`.

    Raises:
        DatasetError: the directory holds no dataset, or not the one that its metadata describes,
            or one that no classifier of images can be trained on; or one that is being replaced.
        CorruptShardError: the framing of a shard is damaged.
    """
    chosen = as_member(OnCorrupt, on_corrupt, "on_corrupt")
    root = find_folders(path).root
    with reading(root, DATASET_INFO):
        return _open(find_folders(root), chosen)


def _open(found: DatasetFolders, on_corrupt: OnCorrupt) -> Dataset:
    directory = found.root
    info = read_dataset_info(directory)
    splits = {
        name: split
        for name, lengths in shard_lengths(found, info, on_corrupt).items()
        if (split := _split(name, lengths, on_corrupt)) is not None
    }
    if not splits:
        raise DatasetError("has no records", path=directory)
    features, image, label = _features(directory, info, splits, on_corrupt)
    described = read_described(directory, image, label)
    dtype = features[label].dtype or DType.INT64
    names: Sequence[str] | None = read_class_names(directory, label)
    if names is None and described.classes and dtype is DType.INT64:
        names = [str(number) for number in range(described.classes)]
    if not names:
        shards = [path for split in splits.values() for path in split.shards]
        names = find_classes(shards, label, dtype, on_corrupt)
    return Dataset(
        directory=directory,
        name=directory.name if info is None else info.name,
        splits=splits,
        image_feature=image,
        label_feature=label,
        class_names=tuple(names),
        image_form=find_image_form(features, image, described, directory),
        label_dtype=dtype,
    )


def shard_lengths(
    found: DatasetFolders, info: DatasetInfo | None, on_corrupt: OnCorrupt = OnCorrupt.STOP
) -> dict[str, dict[Path, int | None]]:
    """Return the shards that there should be, by split, and how many records each should have.

    Args:
        found: those that there are.
        info: what dataset_info.json says; without it, the names of the files tell, and lengths
            are None.
        on_corrupt: with SKIP, shards that are not there are among them.

    Raises:
        DatasetError: a shard is missing, or it is not clear which shards belong together.
    """
    sets = group_shards(found.shards)
    if info is not None:
        splits = _lengths_by_metadata(found.root, info, sets)
    elif sets:
        splits = _lengths_by_name(found.root, sets)
    else:
        raise found.nothing()
    if on_corrupt is OnCorrupt.STOP:
        for lengths in splits.values():
            for path, length in lengths.items():
                if not path.is_file():
                    said = "its name among the others" if length is None else f"{length} records"
                    raise DatasetError("a shard is missing", path=path, expected=said)
    return splits


def _lengths_by_metadata(
    root: Path, info: DatasetInfo, sets: Sequence[ShardSet]
) -> dict[str, dict[Path, int | None]]:
    found: dict[str, dict[Path, int | None]] = {}
    for split in info.splits:
        count = len(split.shard_lengths)
        one = info.shards_of(split, sets)
        there = {} if one is None else one.shards
        for index, length in enumerate(split.shard_lengths):
            name = ShardName(dataset=info.name, split=split.name, index=index, count=count)
            path = there.get(index, root / str(name))
            found.setdefault(split.name, {})[path] = length
    if not found:
        raise DatasetError("describes no shards", path=root / DATASET_INFO)
    return found


def _lengths_by_name(root: Path, sets: Sequence[ShardSet]) -> dict[str, dict[Path, int | None]]:
    for conflicting in find_conflicts(sets):
        names = " and ".join(one.name for one in conflicting)
        raise DatasetError(
            "the names of the shards claim different numbers of them", path=root, found=names
        )
    named = {one.split_below(root) for one in sets}
    found: dict[str, dict[Path, int | None]] = {}
    for one in sets:
        aside = [*one.extra, *(path for paths in one.duplicates.values() for path in paths)]
        if aside:
            raise DatasetError("another shard has the same place", path=aside[0])
        split = one.split_below(root) or (_OTHERS if _UNNAMED in named else _UNNAMED)
        paths = [*one.paths, *(one.directory / name for name in one.missing)]
        found.setdefault(split, {}).update(dict.fromkeys(paths))
    return found


def _split(name: str, lengths: Mapping[Path, int | None], on_corrupt: OnCorrupt) -> Split | None:
    """Count the records of a split; None if it has none."""
    records: dict[Path, int] = {}
    for path, expected in lengths.items():
        if on_corrupt is OnCorrupt.SKIP:
            found = count_shard(path).records if path.is_file() else 0
        else:
            try:
                found = count_records(path)
            except CorruptShardError as error:
                # Bytes too many or too few show in the header after them; CRCs tell where they are.
                raise first_fault(path, in_dataset=True) or error from error
            if expected is not None and found != expected:
                raise DatasetError(
                    f"the shard does not agree with {DATASET_INFO}",
                    path=path,
                    expected=f"{expected} records",
                    found=found,
                )
        if found:
            records[path] = found
    if not records:
        return None
    kinds = {Shard.at(path).compression for path in records}
    if len(kinds) > 1:
        raise DatasetError(
            f"the shards of split {name!r} are compressed in different ways",
            path=next(iter(records)).parent,
            found=", ".join(sorted(kind.value for kind in kinds)),
        )
    return Split(
        name=name,
        shards=tuple(records),
        lengths=tuple(records.values()),
        compression=kinds.pop(),
    )


def _features(
    directory: Path, info: DatasetInfo | None, splits: Mapping[str, Split], on_corrupt: OnCorrupt
) -> tuple[Mapping[str, Feature], str, str]:
    """Return a record's features, and which of them are the image and the label."""
    problem: Exception | None = None
    shards = [(path, split.compression) for split in splits.values() for path in split.shards]
    items = chain.from_iterable(starmap(read_items, shards))
    records = (item for item in items if isinstance(item, Record))
    for record in islice(records, 1 if on_corrupt is OnCorrupt.STOP else _LOOKED_AT):
        try:
            features = decode_example(record.payload, PayloadKind.EXAMPLE).features
            return features, *_roles(directory, info, features)
        except (ValueError, DatasetError) as error:
            problem = error
    if isinstance(problem, DatasetError):
        raise problem
    raise DatasetError(f"the first record can't be parsed: {problem}", path=directory)


def _roles(
    directory: Path, info: DatasetInfo | None, features: Mapping[str, Feature]
) -> tuple[str, str]:
    roles = find_roles(features, info)
    if roles.image is None or roles.label is None:
        raise DatasetError(
            f"it is not clear which feature is the {'image' if roles.image is None else 'label'}",
            path=directory,
            found=", ".join(features) or "no features",
            hint=f"tfrtool inspect shard {shlex.quote(str(directory))} shows what the records hold",
        )
    return roles.image, roles.label
