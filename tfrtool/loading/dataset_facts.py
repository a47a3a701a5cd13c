"""The shards of a dataset by split, and how their images and labels are stored."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tfrtool.errors import DatasetError, UsageError, printable, some_of
from tfrtool.examples.dataset_files import SplitFiles, find_files
from tfrtool.loading.labels import LabelForm, Task
from tfrtool.loading.user_function import find_function
from tfrtool.records.compression import Compression
from tfrtool.records.count import as_error, count_shard
from tfrtool.records.shard_sets import find_conflicts
from tfrtool.records.shards import Shard
from tfrtool.storage.json_values import Shown
from tfrtool.storage.remote.shard_cache import ShardCache
from tfrtool.storage.remote_path import AnyPath

DECODES = "a function of a serialized record that returns an image and a label"


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """Shards of a split.

    Attributes:
        name: name of the split.
        shards: paths of the shards that have records, in order.
        lengths: number of records in each shard, as counted in the files.
        compression: compression of all shards.
    """

    name: str
    shards: tuple[AnyPath, ...]
    lengths: tuple[int, ...]
    compression: Compression

    @property
    def records(self) -> int:
        """Total number of records."""
        return sum(self.lengths)

    @property
    def record_bytes(self) -> float:
        """Mean size of a record on disk, including framing, in bytes."""
        return sum(shard.stat().st_size for shard in self.shards) / self.records


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageForm:
    """How images are stored: as files, or as uint8 pixels, row by row, channels last."""

    size: tuple[int | str, ...] = ()  # of pixels: height, width, or the int64 features with them
    channels: int = 3

    @property
    def size_features(self) -> tuple[str, ...]:
        """The int64 features that contain a record's height and width."""
        return tuple(side for side in self.size if isinstance(side, str))


@dataclass(frozen=True, slots=True, kw_only=True)
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
        """Return the splits that a name stands for: one, or several that are joined by commas."""
        if name in self.splits or "," not in name:
            return (name,)
        names = tuple(part.strip() for part in name.split(","))
        if len({*names}) < len(names):
            raise UsageError(f"{name!r} names a split twice", path=self.directory)
        return names

    def split(self, name: str) -> Split:
        """Return a split by name, or several such as "f0,f1" as one.

        It is a `UsageError` if one does not exist or has no records.
        """
        names = self.split_names(name)
        if len(names) > 1:
            return _joined(name, [self.split(part) for part in names])
        if name in self.splits:
            return self.splits[name]
        problem = f"split {name!r} has no records" if name in self.empty_splits else None
        raise UsageError(
            problem or f"no split {name!r}", path=self.directory, expected=" or ".join(self.splits)
        )

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
            count, faults, _ = count_shard(file)
            if faults:
                raise as_error(shard, faults[0], in_dataset=True)
            expected = f"{length} records, compression {split.compression.value}"
            found = f"{count} records, compression {Shard.at(file).compression.value}"
            if found != expected:
                what = "the shard does not match the metadata"
                raise DatasetError(what, path=shard, expected=expected, found=found)
            files.append(file)
        return replace(split, shards=tuple(files))


def _joined(name: str, splits: Sequence[Split]) -> Split:
    """Return splits as one, in their order."""
    kinds = {split.compression.value for split in splits}
    if len(kinds) > 1:
        what = f"splits {name!r} have different compressions"
        raise UsageError(what, found=", ".join(sorted(kinds)))
    return Split(
        name=name,
        shards=tuple(shard for split in splits for shard in split.shards),
        lengths=tuple(length for split in splits for length in split.lengths),
        compression=splits[0].compression,
    )


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
