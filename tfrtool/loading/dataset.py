"""A dataset on disk, to load, verify and train on."""

import os
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tfrtool.declare import takes
from tfrtool.inspection.inspect_options import VerifyOptions
from tfrtool.loading.dataset_facts import DatasetFacts
from tfrtool.loading.options import LoadOptions
from tfrtool.loading.tensors import TfDataset
from tfrtool.storage.extras import require_tensorflow
from tfrtool.storage.progress import OnProgress, no_progress

if TYPE_CHECKING:
    from tfrtool.inspection.verify.verify import VerifyReport
    from tfrtool.loading.corrupt import DropReport


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Dataset(DatasetFacts):
    """A directory of shards on which an image classifier can be trained.

    Attributes:
        directory: path of the directory; of a glob pattern or files, that of all shards.
        name: name of the dataset.
        splits: splits by name.
        image_feature: feature that contains the images.
        label_feature: feature that contains the labels.
        image_form: how images are stored.
        label_form: how labels are stored, and the classes.
        shard_cache: cache for remote shards, or None if the shards are local.
        empty_splits: names of splits whose shards have no records.
        unlabeled_splits: names of splits none of whose records has a label.
        pattern: glob pattern of the shards, or their files, or None if a directory was opened.
        objects: features that describe objects in the images, which classifiers ignore.
        decode: the function that decodes records, or its name, if it isn't tfrtool's own.
    """

    @takes(LoadOptions)
    def load(self, options: LoadOptions) -> TfDataset:
        """Build a ``tf.data`` pipeline that reads batches of images and labels from a split.

        Remote shards are downloaded before this returns. With a cache on disk that does not exist
        yet, all images are decoded and cached, too.

        Returns:
            A ``tf.data.Dataset`` of ``epochs`` epochs with known cardinality. Its elements are
            pairs of images, float32 [batch, height, width, channels] (uint8 without ``rescale``),
            and labels, int64 [batch]. With ``one_hot``, or if images can have several classes (see
            ``task``), labels are float32 [batch, classes] of 0 and 1. With ``task="regression"`` of
            `open_dataset`, they are float32 [batch], or [batch, targets] for several numbers.

        Raises:
            UsageError: a split or value is unknown, or options can't be combined.
            DatasetError: the requested part of the split is empty.
            WriteError: the cache on disk can't be written.
        """
        require_tensorflow("tf.data pipelines")
        from tfrtool.loading.pipeline import load

        return load(self, options)

    @takes(VerifyOptions)
    def verify(self, options: VerifyOptions) -> "VerifyReport":
        """Verify every record and the completeness of the dataset; see `tfrtool.verify`."""
        from tfrtool.inspection.verify.verify import verify

        return verify(self.source, **vars(options))

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
        require_tensorflow("tf.data pipelines")
        from tfrtool.loading.corrupt import drop_corrupt

        clean, report = drop_corrupt(self, scratch, splits, on_progress)
        return replace(self, splits=clean, shard_cache=None), report
