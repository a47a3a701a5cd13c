"""The shards of a dataset by split, and how their images and labels are stored."""

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain, starmap
from typing import Any

from tfrtool.errors import DatasetError, UsageError, printable, some_of
from tfrtool.examples.dataset_files import SplitFiles, find_files
from tfrtool.loading.labels import LabelForm, Task
from tfrtool.loading.split_ranges import Range, join_ranges, parse_parts
from tfrtool.loading.user_function import find_function
from tfrtool.records.compression import Compression
from tfrtool.records.count import as_error, count_shard
from tfrtool.records.shard_sets import find_conflicts
from tfrtool.storage.json_values import Shown
from tfrtool.storage.remote.shard_cache import ShardCache
from tfrtool.storage.remote_path import AnyPath

DECODES = "a function of a serialized record that returns an image and a label"


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """Shards of a split, or of parts of splits.

    Attributes:
        name: name of the split, or of the parts, such as "train[:80%]".
        shards: paths of the shards that have records, in order.
        lengths: number of records in each shard, as counted in the files.
        compression: compression of all shards.
        ranges: positions of its records among those of all shards; () for all of them.
    """

    name: str
    shards: tuple[AnyPath, ...]
    lengths: tuple[int, ...]
    compression: Compression
    ranges: tuple[Range, ...] = ()

    @property
    def records(self) -> int:
        """Total number of records."""
        return sum(end - first for first, end in self.ranges) or sum(self.lengths)

    @property
    def record_bytes(self) -> float:
        """Mean size of a record on disk, including framing, in bytes."""
        return sum(shard.stat().st_size for shard in self.shards) / sum(self.lengths)

    def positions(self) -> Iterator[int]:
        """Yield the position of each record among those of all shards."""
        return chain.from_iterable(starmap(range, self.ranges or [(0, self.records)]))


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageForm:
    """How images are stored: as files, or as uint8 pixels, row by row, channels last."""

    size: tuple[int | str, ...] = ()  # of pixels: height, width, or the int64 features with them
    channels: int = 3

    @property
    def size_features(self) -> tuple[str, ...]:
        """The int64 features that contain a record's height and width."""
        return tuple(side for side in self.size if isinstance(side, str))


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class DatasetFacts(Shown):
    """What is known of a dataset; the public `Dataset` adds what can be done with it."""

    directory: AnyPath
    name: str
    splits: Mapping[str, Split]
    image_feature: str = ""
    label_feature: str = ""
    image_form: ImageForm = ImageForm()
    label_form: LabelForm = field(default_factory=LabelForm)
    shard_cache: ShardCache | None = None
    empty_splits: tuple[str, ...] = ()
    unlabeled_splits: tuple[str, ...] = ()
    pattern: AnyPath | tuple[AnyPath, ...] | None = None
    objects: tuple[str, ...] = ()
    decode: str | Callable[[Any], Any] | None = None

    def __fspath__(self) -> str:
        """Return what was opened, so that a dataset can be used in place of its path."""
        if isinstance(self.source, tuple):
            raise TypeError("a dataset of several files has no single path")
        return os.fspath(self.source)

    @property
    def source(self) -> AnyPath | tuple[AnyPath, ...]:
        """Return the directory, or the glob pattern or the files of the shards."""
        return self.directory if self.pattern is None else self.pattern

    @property
    def class_names(self) -> tuple[str, ...]:
        """Names of the classes, by class number."""
        return self.label_form.names

    @property
    def task(self) -> Task:
        """Whether an image has exactly one class, or any number of them, or numbers."""
        return self.label_form.task

    @property
    def label_forms(self) -> dict[str, LabelForm]:
        """How labels are stored, by feature."""
        return dict(self.label_form.parts) or {self.label_feature: self.label_form}

    @property
    def targets(self) -> tuple[str, ...]:
        """Names of the numbers to predict, in their order; none for classes."""
        if self.task is not Task.REGRESSION:
            return ()
        forms = self.label_forms.items()
        return tuple(name for key, form in forms for name in form.target_names(key or "value"))

    @property
    def label_bytes(self) -> int:
        """Size of a label in memory, in bytes."""
        if self.label_form.is_class_number:
            return 8
        return 4 * len(self.targets or self.class_names)

    @property
    def decode_function(self) -> Callable[[Any], Any] | None:
        """The function that decodes records, if it isn't tfrtool's own."""
        if isinstance(self.decode, str):
            return find_function(self.decode, "--decode-function", DECODES)
        return self.decode

    @property
    def notes(self) -> tuple[str, ...]:
        """How unusual images and labels were interpreted, one clause each."""
        notes = self.label_form.notes
        if self.decode is not None:
            notes = (f"records are decoded by {getattr(self.decode, '__name__', self.decode)}",)
        for name in self.unlabeled_splits:
            notes = (*notes, f"split {printable(name)!r} has no labels")
        unused = some_of([printable(name) for name in self.objects], 3)
        return (*notes, f"features of objects are ignored: {unused}") if self.objects else notes

    def to_json(self) -> dict[str, Any]:
        """Return what a notebook shows."""
        return {
            "name": printable(self.name),
            "splits": {
                printable(one.name): {"records": one.records, "shards": len(one.shards)}
                for one in self.splits.values()
            },
            "images": self.image_feature and printable(self.image_feature),
            "labels": self.label_feature and printable(self.label_feature),
            "classes": list(map(printable, self.class_names[:50])),
            "task": self.task.value,
        }

    def split_names(self, name: str) -> tuple[str, ...]:
        """Return the splits of which a name such as "f0,f1" or "train[:80%]" means records."""
        if name in self.splits:
            return (name,)
        parts = parse_parts(name, {*self.splits, *self.empty_splits})
        return tuple(dict.fromkeys(part.name for part in parts))

    def split(self, name: str) -> Split:
        """Return a split by name, or parts of splits such as "f0,f1" or "train[:80%]" as one.

        It is a `UsageError` if one does not exist or has no records.
        """
        if name in self.splits:
            return self.splits[name]
        ranges = {split: parts for split, parts in self._ranges(name).items() if parts}
        if not ranges:
            raise UsageError(f"{name!r} has no records", path=self.directory)
        splits = [self.splits[split] for split in ranges]
        kinds = {split.compression.value for split in splits}
        if len(kinds) > 1:
            what = f"splits {name!r} have different compressions"
            raise UsageError(what, found=", ".join(sorted(kinds)))
        wanted, start = list[Range](), 0
        for split, parts in zip(splits, ranges.values(), strict=True):
            wanted += [(start + first, start + end) for first, end in parts]
            start += split.records
        if len(splits) == 1 and wanted == [(0, start)]:
            return splits[0]
        joined = join_ranges(wanted) or ()
        return Split(
            name=name,
            shards=tuple(shard for split in splits for shard in split.shards),
            lengths=tuple(length for split in splits for length in split.lengths),
            compression=splits[0].compression,
            ranges=() if joined == ((0, start),) else joined,
        )

    def shared_split(self, name: str, other: str) -> str | None:
        """Return a split of which two names mean the same records, or None."""
        ranges, others = self._ranges(name), self._ranges(other)
        for split in ranges.keys() & others.keys():
            if join_ranges([*ranges[split], *others[split]]) is None:
                return split
        return None

    def _ranges(self, name: str) -> dict[str, tuple[Range, ...]]:
        """Return the positions of the records that a name means, by split."""
        found = dict[str, list[Range]]()
        for part in parse_parts(name, {*self.splits, *self.empty_splits}):
            if part.name not in self.splits:
                is_empty = part.name in self.empty_splits
                what = f"split {part.name!r} has no records" if is_empty else None
                raise UsageError(
                    what or f"no split {part.name!r}",
                    path=self.directory,
                    expected=" or ".join(self.splits),
                )
            found.setdefault(part.name, []).append(part.positions(self.splits[part.name].records))
        ranges = {split: join_ranges(parts) for split, parts in found.items()}
        if None in ranges.values():
            raise UsageError(f"{name!r} names records of a split twice", path=self.directory)
        return {split: parts or () for split, parts in ranges.items()}

    def local_split(self, name: str) -> Split:
        """Return a split whose shards are local files; remote shards are downloaded and checked.

        Raises:
            CorruptShardError: the framing of a remote shard is damaged, or its content differs from
                what was written.
            DatasetError: a remote shard has another number of records than the metadata says.
            WriteError: the disk has no room for all shards.
        """
        split, cache = self.split(name), self.shard_cache
        if cache is None:
            return split
        cache.fetch_ahead(split.shards)
        files = []
        for shard, length in zip(split.shards, split.lengths, strict=True):
            file = cache.fetch(shard)
            counted = count_shard(file)
            if counted.faults:
                raise as_error(shard, counted.faults[0], in_dataset=True)
            expected = f"{length} records, compression {split.compression.value}"
            found = f"{counted.records} records, compression {counted.compression.value}"
            if found != expected:
                what = "the shard does not match the metadata"
                raise DatasetError(what, path=shard, expected=expected, found=found)
            files.append(file)
        return replace(split, shards=tuple(files))


_UNNAMED, _OTHERS = "train", "all"
"""The split of shards whose names have none; the second if other shards are called "train"."""


def split_files(source: AnyPath | tuple[AnyPath, ...]) -> dict[str, SplitFiles]:
    """Return the files of each split of a directory, a glob pattern or a list of shards.

    It is a `DatasetError` if it isn't clear which belong together.
    """
    files = find_files(source)
    if files.info is None and not isinstance(source, tuple):  # listed files belong together
        for conflicting in find_conflicts(files.sets):
            raise DatasetError(
                "the names of the shards disagree on how many there are",
                path=source,
                found=" and ".join(one.name for one in conflicting),
            )
        for path in files.aside:
            raise DatasetError("another shard has the same split and number", path=path)
    unnamed = _OTHERS if _UNNAMED in files.splits else _UNNAMED
    return {name or unnamed: split for name, split in files.splits.items()}
