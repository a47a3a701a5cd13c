"""A dataset on disk: its splits, its shards, and what is known of its features."""

import os
from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfrtool.errors import UsageError, printable, some_of
from tfrtool.loading.dataset.forms import ImageForm
from tfrtool.loading.dataset.label_form import LabelForm, Task
from tfrtool.loading.pipeline.tensors import TfDataset
from tfrtool.records.compression import Compression
from tfrtool.storage.plain import Shown
from tfrtool.storage.progress import OnProgress, silent
from tfrtool.storage.remote.shard_cache import ShardCache
from tfrtool.storage.words import make_options

if TYPE_CHECKING:
    from tfrtool.inspection.verify.verify import VerifyReport
    from tfrtool.loading.dataset.drop_corrupt import DropReport


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

    @property
    def records(self) -> int:
        """How many records the shards have in all."""
        return sum(self.lengths)

    def record_bytes(self, shards: Collection[int]) -> float:
        """Return how long a record of some shards is, in the mean: framed, and as compressed."""
        records = sum(self.lengths[number] for number in shards)
        return sum(self.shards[number].stat().st_size for number in shards) / records


@dataclass(frozen=True, slots=True, kw_only=True)
class Dataset(Shown):
    """A directory of shards that a classifier of images can be trained on.

    Attributes:
        directory: where it is.
        name: its name.
        splits: by name.
        image_feature: the feature with the images.
        label_feature: the feature with the classes.
        image_form: what the bytes or the numbers of an image are.
        label_form: what the values of a label are, and which classes there are.
        shard_cache: where shards are fetched to before they are read; None for local ones.
        empty_splits: names of splits that have shards, and no record in them.
        objects: features of the objects in images, which no classifier uses.
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
        """Return the directory: what takes the path of a dataset takes a dataset, too."""
        return os.fspath(self.directory)

    @property
    def class_names(self) -> tuple[str, ...]:
        """The names of the classes, by number, from 0."""
        return self.label_form.names

    @property
    def task(self) -> Task:
        """Whether an image is of one class, or of any number of them."""
        return self.label_form.task

    @property
    def label_width(self) -> int | None:
        """How many numbers a label is in a batch, one for each class; None for the class alone."""
        return len(self.class_names) if self.task is Task.MULTI else None

    @property
    def label_bytes(self) -> int:
        """How long a label is in memory."""
        return 8 if self.label_width is None else 4 * self.label_width

    @property
    def notes(self) -> tuple[str, ...]:
        """What was made of unusual images and labels, a clause each, for people."""
        unused = some_of([printable(name) for name in self.objects], 3)
        left = (f"objects are not used: {unused}",) if self.objects else ()
        return *self.image_form.notes, *self.label_form.notes, *left

    def _page(self) -> tuple[str, dict[str, Any]]:
        facts = {"images": self.image_feature, "labels": self.label_feature}
        facts |= {"classes": ", ".join(self.class_names[:50]), "task": self.task.value}
        splits = [
            {"name": one.name, "records": one.records, "shards": len(one.shards)}
            for one in self.splits.values()
        ]
        return "dataset", {"heading": self.name, "splits": splits, "facts": facts}

    def local(self, shard: Path) -> AbstractContextManager[Path]:
        """Give the file to read for a shard, which stays where it is for the time of a ``with``."""
        return nullcontext(shard) if self.shard_cache is None else self.shard_cache.local(shard)

    def split(self, name: str) -> Split:
        """Return a split by its name; `UsageError` if there is none of that name, or no record."""
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
        on_progress: OnProgress = silent,
        **options: Any,
    ) -> TfDataset:
        """Build the pipeline from a split's shards to batches.

        Where images are cached on disk, and no earlier run has done so, they are all decoded and
        written before this returns.

        Args:
            split: which split.
            image_size: images are resized to this many pixels, both ways.
            augment: changes to images, such as ``flip,rotate=40``, as ``tfrtool train`` takes them;
                drawn anew for each image in each epoch. Not for the recipe ``notebook``.
            rescale: pixel values, 0 to 255, are multiplied by the first number, and then the second
                is added. None leaves them as uint8.
            holdout: the part of the split that is held out, between 0 and 1; None is none. Which
                records they are is decided by the shards and this number alone.
            held_out: whether that part is loaded, or the rest.
            context: a ``tf.distribute.InputContext``, as ``distribute_datasets_from_function``
                gives it: this pipeline has its share of the records then, and its replicas' share
                of the batch.
            on_progress: told now and then while a cache on disk is written.
            **options: with their defaults:
                cache ("none"): where decoded images are kept: "memory", "disk" or "none". Of the
                other recipes, "notebook" keeps float32 in memory and "naive" nothing in any case.
                cache_directory: where a cache on disk is; the user's own cache directory.
                recipe ("tfrtool"): which pipeline; "notebook" and "naive" are the published ones.
                batch_size (32): images in a batch; the last of an epoch may have fewer.
                training (True): whether the order changes from epoch to epoch. Without, it is
                always the same, and images are not augmented.
                seed (0): decides that order, and what is drawn.
                epochs (1): how many one iterator goes through; each ends with a batch of its own.
                first_epoch (0): the number of the first of them. Order and draws depend on the
                seed and on the epoch's number alone.
                first_step (0): of the first of them, the number of the first step; those before are
                left out, and what comes is what comes after them anyway. As a later iterator may
                have whole epochs, the cardinality is not known then.
                decode ("exact"): "fast" decodes a JPEG at a half, a quarter or an eighth of its
                size, where that is still at least what is asked for both ways.
                deterministic (True): whether the same seed gives the same order. Without, images
                come as soon as they are ready.
                cycle_length: shards read at a time; 4, or all if there are fewer.
                block_length (1): records taken from a shard in a row.
                parallel_calls: images begun before the first of them is done; 8 for each core.
                batched_parse: records parsed at a time, as one batch; they are parsed one by one.
                shuffle_buffer: images in the shuffle buffer; all of them where they are cached,
                and elsewhere 1024, or as many as 32 MiB of records hold. So many are drawn from
                also while a cache in memory is filled, from 16 shards at a time.
                prefetch (2): batches made ahead.

        Returns:
            A ``tf.data.Dataset`` of ``epochs`` epochs, with its cardinality known: pairs of images,
            float32 [batch, image_size, image_size, 3] (uint8 without ``rescale``), and labels,
            int64 [batch]; where an image may be of several classes (``task``), float32 [batch,
            classes] of 0 and 1.

        Raises:
            UsageError: there is no such split or option, a word is unknown, or the options don't
                go together.
            DatasetError: the part of it that was asked for is empty.
            WriteError: the cache on disk can't be written.
        """
        from tfrtool.loading.augment.augment_options import parse_augment
        from tfrtool.loading.pipeline.load_options import Holdout, LoadOptions, Rescale
        from tfrtool.loading.pipeline.pipeline import load

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
        """Check every record, and that all shards are there: `tfrtool.verify` of the directory."""
        from tfrtool.inspection.verify.verify import verify

        return verify(self, **options)

    def drop_corrupt(
        self,
        scratch: str | os.PathLike[str],
        *,
        splits: Collection[str] | None = None,
        on_progress: OnProgress = silent,
    ) -> "tuple[Dataset, DropReport]":
        """Leave out the records that can't be trained on, and no others.

        Each shard is read, CRCs and records are checked, and images are decoded, by all cores;
        shards with damage are written again, without it, to another directory. Nothing in the
        dataset's own is changed.

        Args:
            scratch: an empty directory for the new shards; the caller's, to be deleted after
                training.
            splits: those that are wanted; None for all.
            on_progress: told after each shard.

        Returns:
            The dataset, with the splits that were asked for, and what is not in it.

        Raises:
            UsageError: there is no such split.
            DatasetError: the directory holds no dataset, or a split has no record that can be used.
            ShardError: a file can't be read.
            WriteError: a shard can't be written.
        """
        from tfrtool.loading.dataset.drop_corrupt import drop_corrupt

        return drop_corrupt(self, scratch, splits, on_progress)
