"""A dataset on disk: its splits, its shards, and how its images and labels are stored."""

import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfrtool.errors import DatasetError, UsageError, printable, some_of
from tfrtool.examples.dataset_files import SplitFiles, find_files
from tfrtool.loading.labels import LabelForm, Task
from tfrtool.loading.tensors import TfDataset
from tfrtool.loading.user_function import find_function
from tfrtool.records.compression import Compression
from tfrtool.records.count import as_error, count_shard
from tfrtool.records.shard_sets import find_conflicts
from tfrtool.records.shards import Shard
from tfrtool.storage.arguments import make_options
from tfrtool.storage.json_values import Shown
from tfrtool.storage.progress import OnProgress, no_progress
from tfrtool.storage.remote.shard_cache import ShardCache

if TYPE_CHECKING:
    from tfrtool.inspection.verify.verify import VerifyReport
    from tfrtool.loading.corrupt import DropReport

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
    shards: tuple[Path, ...]
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
class Dataset(Shown):
    """A directory of shards on which an image classifier can be trained.

    Attributes:
        directory: path of the directory.
        name: name of the dataset.
        splits: splits by name.
        image_feature: feature that contains the images.
        label_feature: feature that contains the labels.
        image_form: how images are stored.
        label_form: how labels are stored, and the classes.
        shard_cache: cache for remote shards, or None if the shards are local.
        empty_splits: names of splits whose shards have no records.
        objects: features that describe objects in the images, which classifiers ignore.
        decode: the function that decodes records, or its name, if it isn't tfrtool's own.
    """

    directory: Path
    name: str
    splits: Mapping[str, Split]
    image_feature: str = ""
    label_feature: str = ""
    image_form: ImageForm = ImageForm()
    label_form: LabelForm = field(default_factory=LabelForm)
    shard_cache: ShardCache | None = None
    empty_splits: tuple[str, ...] = ()
    objects: tuple[str, ...] = ()
    decode: str | Callable[[Any], Any] | None = None

    def __fspath__(self) -> str:
        """Return the directory, so that a dataset can be used in place of its path."""
        return os.fspath(self.directory)

    @property
    def class_names(self) -> tuple[str, ...]:
        """Names of the classes, by class number."""
        return self.label_form.names

    @property
    def task(self) -> Task:
        """Whether an image has exactly one class, or any number of them."""
        return self.label_form.task

    @property
    def label_width(self) -> int | None:
        """Length of a multi-label vector, or None if a label is a class number."""
        return len(self.class_names) if self.task is Task.MULTI else None

    @property
    def label_bytes(self) -> int:
        """Size of a label in memory, in bytes."""
        return 8 if self.label_width is None else 4 * self.label_width

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

    def split(self, name: str) -> Split:
        """Return a split by name; raise `UsageError` if it does not exist or has no records."""
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

    def load(
        self,
        split: str = "train",
        *,
        image_size: int,
        augment: str | None = None,
        rescale: tuple[float, float] | None = (1 / 255, 0.0),
        holdout: float | None = None,
        held_out: bool = False,
        context: object = None,
        on_progress: OnProgress = no_progress,
        **options: Any,
    ) -> TfDataset:
        """Build a ``tf.data`` pipeline that reads batches of images and labels from a split.

        Remote shards are downloaded before this returns. With a cache on disk that does not exist
        yet, all images are decoded and cached, too.

        Args:
            split: name of the split.
            image_size: width and height to which images are resized, in pixels.
            augment: random changes to images, such as ``flip,rotate=40``, with the syntax of
                ``tfrtool train``. They differ for each image and epoch. Not available for the
                recipe "notebook".
            rescale: (scale, offset) applied to the pixel values 0 to 255:
                ``value * scale + offset``. None returns them unchanged, as uint8.
            holdout: fraction of the split to hold out, between 0 and 1, or None. The held-out
                records depend only on the shards and this number.
            held_out: whether to load the held-out part instead of the rest.
            context: the ``tf.distribute.InputContext`` passed by
                ``distribute_datasets_from_function``. The pipeline then reads its worker's share of
                the records, in batches of its replicas' share.
            on_progress: called regularly while a cache on disk is written.
            **options: any of the following, with defaults in parentheses.

                - ``cache`` ("none"): where to keep decoded images: "memory", "disk" or "none". The
                  recipe "notebook" always caches float32 in memory, "naive" never caches.
                - ``cache_directory``: directory of the cache on disk; the user's cache directory by
                  default.
                - ``recipe`` ("tfrtool"): which pipeline to build. "notebook" and "naive" are
                  published pipelines, for comparison.
                - ``batch_size`` (32): images per batch. The last batch of an epoch may have fewer.
                - ``training`` (True): whether the order changes from epoch to epoch. Otherwise the
                  order is fixed and images are not augmented.
                - ``seed`` (0): random seed for the order and for augmentation.
                - ``epochs`` (1): number of epochs per iterator. A batch never spans two epochs.
                - ``first_epoch`` (0): number of the first epoch. Order and augmentation depend only
                  on the seed and this number.
                - ``first_step`` (0): number of batches to skip in the first epoch, to continue
                  where an earlier iterator stopped. The cardinality is then unknown, since later
                  iterators may have full epochs.
                - ``decode`` ("exact"): "fast" decodes a JPEG at a half, a quarter or an eighth of
                  its size if the result is still at least ``image_size`` wide and high.
                - ``deterministic`` (True): whether the same seed gives the same order. Otherwise
                  images are returned as soon as they are ready.
                - ``cycle_length``: number of shards read at a time; 4 by default, and 16 while a
                  cache in memory is filled for training.
                - ``block_length`` (1): number of consecutive records taken from a shard.
                - ``parallel_calls``: number of images decoded in parallel; 8 per core by default.
                - ``shuffle_buffer``: number of images in the shuffle buffer. By default all of them
                  if they are cached in memory, otherwise 1024, or as many as fit in 32 MiB of
                  records, or in 128 MiB of images that are cached on disk.
                - ``prefetch`` (2): number of batches prepared in advance.

        Returns:
            A ``tf.data.Dataset`` of ``epochs`` epochs with known cardinality. Its elements are
            pairs of images, float32 [batch, image_size, image_size, 3] (uint8 without ``rescale``),
            and labels, int64 [batch]. If images can have several classes (see ``task``), labels are
            float32 [batch, classes] of 0 and 1.

        Raises:
            UsageError: a split, option or value is unknown, or options can't be combined.
            DatasetError: the requested part of the split is empty.
            WriteError: the cache on disk can't be written.
        """
        from tfrtool.loading.options import Holdout, LoadOptions, Rescale, parse_augment
        from tfrtool.loading.pipeline import load

        chosen = make_options(
            LoadOptions,
            split=split,
            image_size=image_size,
            augment=None if augment is None else parse_augment(augment),
            rescale=None if rescale is None else Rescale(scale=rescale[0], offset=rescale[1]),
            holdout=None if holdout is None else Holdout(fraction=holdout, held_out=held_out),
            **options,
        )
        return load(self, chosen, context, on_progress)

    def verify(self, **options: Any) -> "VerifyReport":
        """Verify every record and the completeness of the dataset; see `tfrtool.verify`.

        Args:
            **options: options of `tfrtool.verify`.
        """
        from tfrtool.inspection.verify.verify import verify

        return verify(self, **options)

    def drop_corrupt(
        self,
        scratch: str | os.PathLike[str],
        *,
        splits: Collection[str] | None = None,
        on_progress: OnProgress = no_progress,
    ) -> "tuple[Dataset, DropReport]":
        """Return a copy of the dataset without the records that can't be trained on.

        Every shard is read, CRCs and records are checked and images are decoded, on all cores.
        Damaged shards are rewritten without the damaged records to another directory. The dataset's
        own files are not modified.

        Args:
            scratch: empty directory for the rewritten shards, which the caller deletes after
                training.
            splits: splits to include. None includes all of them.
            on_progress: called after each shard.

        Returns:
            The dataset with the requested splits, and a report of what was skipped.

        Raises:
            UsageError: a split does not exist.
            DatasetError: the directory does not contain a dataset, or a split has no usable record.
            ShardError: a file can't be read.
            WriteError: a shard can't be written.
        """
        from tfrtool.loading.corrupt import drop_corrupt

        return drop_corrupt(self, scratch, splits, on_progress)


_UNNAMED, _OTHERS = "train", "all"
"""The split of shards whose names have none; the second if other shards are called "train"."""


def split_files(directory: Path) -> dict[str, SplitFiles]:
    """Return the files of each split; `DatasetError` if it isn't clear which belong together."""
    files = find_files(directory)
    if files.info is None:
        for conflicting in find_conflicts(files.sets):
            raise DatasetError(
                "the names of the shards disagree on how many there are",
                path=directory,
                found=" and ".join(one.name for one in conflicting),
            )
        for path in files.aside:
            raise DatasetError("another shard has the same split and number", path=path)
    unnamed = _OTHERS if _UNNAMED in files.splits else _UNNAMED
    return {name or unnamed: split for name, split in files.splits.items()}
