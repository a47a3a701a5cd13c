"""A dataset on disk: its splits, its shards, and what is known of its features."""

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfrtool.errors import UsageError, printable, some_of
from tfrtool.loading.forms import ImageForm
from tfrtool.loading.labels import LabelForm, Task
from tfrtool.loading.tensors import TfDataset
from tfrtool.records.compression import Compression
from tfrtool.storage.arguments import make_options
from tfrtool.storage.json_values import Shown
from tfrtool.storage.progress import OnProgress, no_progress
from tfrtool.storage.remote.shard_cache import ShardCache

if TYPE_CHECKING:
    from tfrtool.inspection.verify.verify import VerifyReport
    from tfrtool.loading.corrupt import DropReport


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

    def record_bytes(self, shards: Collection[int]) -> float:
        """Return the mean size of a record on disk, including framing, in bytes.

        Args:
            shards: positions of the shards to include, counted from 0.
        """
        records = sum(self.lengths[number] for number in shards)
        return sum(self.shards[number].stat().st_size for number in shards) / records


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
    """

    directory: Path
    name: str
    splits: Mapping[str, Split]
    image_feature: str
    label_feature: str
    image_form: ImageForm
    label_form: LabelForm = field(default_factory=LabelForm)
    shard_cache: ShardCache | None = None
    empty_splits: tuple[str, ...] = ()
    objects: tuple[str, ...] = ()

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
    def notes(self) -> tuple[str, ...]:
        """How unusual images and labels were interpreted, one clause each."""
        unused = some_of([printable(name) for name in self.objects], 3)
        left = (f"features of objects are ignored: {unused}",) if self.objects else ()
        return *self.image_form.notes, *self.label_form.notes, *left

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

    def fetch(self, shard: Path) -> Path:
        """Return a local copy of a shard.

        Args:
            shard: path of the shard. A local shard is used as it is; a remote one is fetched, if
                it is not in the cache.
        """
        return shard if self.shard_cache is None else self.shard_cache.fetch(shard)

    def fetch_ahead(self, shards: Sequence[Path]) -> None:
        """Begin to fetch remote shards in the background.

        Raises:
            WriteError: the disk has no room for all of them.
        """
        if self.shard_cache is not None:
            self.shard_cache.fetch_ahead(shards)

    def split(self, name: str) -> Split:
        """Return a split by name; raise `UsageError` if it does not exist or has no records."""
        if name in self.empty_splits:
            raise UsageError(
                f"split {name!r} has no records",
                path=self.directory,
                expected=" or ".join(self.splits),
            )
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
        augment: str | None = None,
        rescale: tuple[float, float] | None = (1 / 255, 0.0),
        holdout: float | None = None,
        held_out: bool = False,
        context: object = None,
        on_progress: OnProgress = no_progress,
        **options: Any,
    ) -> TfDataset:
        """Build a ``tf.data`` pipeline that reads batches of images and labels from a split.

        With a cache on disk that does not exist yet, all images are decoded and cached before this
        returns.

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
                - ``cycle_length``: number of shards read at a time; 4 by default, or all if there
                  are fewer.
                - ``block_length`` (1): number of consecutive records taken from a shard.
                - ``parallel_calls``: number of images decoded in parallel; 8 per core by default.
                - ``batched_parse``: number of records parsed as one batch; by default each is
                  parsed separately.
                - ``shuffle_buffer``: number of images in the shuffle buffer. By default all of them
                  if they are cached, otherwise 1024, or as many as fit in 32 MiB of records. While
                  a cache in memory is filled, the buffer has this default size too and reads 16
                  shards at a time.
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
