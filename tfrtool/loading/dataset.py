"""A dataset on disk, to load, verify and train on."""

import os
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tfrtool.loading.dataset_facts import DatasetFacts
from tfrtool.loading.tensors import TfDataset
from tfrtool.storage.arguments import make_options
from tfrtool.storage.progress import OnProgress, no_progress

if TYPE_CHECKING:
    from tfrtool.inspection.verify.verify import VerifyReport
    from tfrtool.loading.corrupt import DropReport


@dataclass(frozen=True, slots=True, kw_only=True)
class Dataset(DatasetFacts):
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

        clean, report = drop_corrupt(self, scratch, splits, on_progress)
        return replace(self, splits=clean, shard_cache=None), report
