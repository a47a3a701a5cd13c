"""From shards to batches: interleave, map, cache, shuffle, batch, augment, rescale, prefetch."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tensorflow as tf

from tfrtool.errors import DatasetError, UsageError
from tfrtool.examples.example import DType
from tfrtool.examples.schema import FeatureSpec, Schema
from tfrtool.loading.dataset import Dataset, open_dataset
from tfrtool.loading.options import Cache, LoadOptions, Recipe
from tfrtool.loading.reading import hold_out, shard_paths, shard_reader
from tfrtool.loading.recipes import STAGES_OF, load_published
from tfrtool.loading.rescale import rescaler

__all__ = ["count_images", "load", "load_decoded"]

_CYCLE = 4
_SHUFFLE_UNCACHED = 1024
_PREFETCH = 2
_FILES, _IMAGES = 0, 1
"""What a shuffle's seed is for: two shuffles with one seed would move things alike."""


def count_images(dataset: Dataset, options: LoadOptions) -> int:
    """Return how many images an epoch has.

    Raises:
        UsageError: the dataset has no such split.
        DatasetError: the part of the split that was asked for is empty.
    """
    records = dataset.split(options.split).records
    images = records if options.holdout is None else options.holdout.count(records)
    if images == 0:
        raise DatasetError(
            f"split {options.split!r} has too few records"
            + ("" if options.holdout is None else " to hold some out"),
            path=dataset.directory,
            found=records,
        )
    return images


def load(
    dataset: Dataset | str | os.PathLike[str],
    options: LoadOptions,
    context: Any = None,
) -> Any:
    """Build the pipeline of a split.

    Args:
        dataset: a dataset, or the directory of one.
        options: what of it, and how.
        context: a ``tf.distribute.InputContext``, as ``distribute_datasets_from_function`` gives
            it: this pipeline has its share of the records then, and its replicas' share of the
            batch.

    Returns:
        A ``tf.data.Dataset`` of ``options.epochs`` epochs, with its cardinality known: pairs of
        images, float32 [batch, image_size, image_size, 3] (uint8 without rescaling), and labels,
        int64 [batch].

    Raises:
        UsageError: the dataset has no such split, or the options don't go together.
        DatasetError: the directory holds no dataset, or the part of it that was asked for is
            empty.
        CorruptShardError: the framing of a shard is damaged.
    """
    if not isinstance(dataset, Dataset):
        dataset = open_dataset(Path(dataset))
    images = count_images(dataset, options)
    if options.recipe is not Recipe.TFRTOOL:
        if context is not None:
            raise UsageError(f"the recipe {options.recipe.value!r} knows no distribution")
        batches = load_published(dataset, options, images, STAGES_OF[options.recipe])
        return _with_cardinality(batches, -(-images // options.batch_size))
    share = _Share.of(images, options, context)
    batches = _ours(dataset, options, share)
    steps = -(-share.images // share.batch_size)
    return _with_cardinality(batches, steps * options.epochs)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Share:
    """What one of several pipelines has of an epoch: every so many records.

    Attributes:
        index: its number.
        count: how many pipelines there are.
        images: how many images it has.
        batch_size: of its batches.
    """

    index: int
    count: int
    images: int
    batch_size: int

    @classmethod
    def of(cls, images: int, options: LoadOptions, context: Any) -> _Share:
        if context is None:
            return cls(index=0, count=1, images=images, batch_size=options.batch_size)
        index, count = context.input_pipeline_id, context.num_input_pipelines
        if images < count:
            raise DatasetError(
                "has too few records to share out", expected=f"at least {count}", found=images
            )
        replicas = context.num_replicas_in_sync
        if options.batch_size % replicas:
            raise UsageError(
                "the batch size can't be shared out evenly",
                expected=f"a multiple of {replicas}",
                found=options.batch_size,
            )
        return cls(
            index=index,
            count=count,
            images=len(range(index, images, count)),
            batch_size=options.batch_size // replicas,
        )


def _with_cardinality(batches: Any, steps: int) -> Any:
    return batches.apply(tf.data.experimental.assert_cardinality(steps))


def load_decoded(
    dataset: Dataset, options: LoadOptions, share: _Share | None = None, epoch: Any = None
) -> Any:
    """Build the part of the pipeline before the cache.

    Args:
        dataset: what to read.
        options: how.
        share: which of the records.
        epoch: an int64 tensor, the epoch whose order the shards are read in; None for that of
            their numbers.

    Returns:
        A ``tf.data.Dataset`` of one epoch: pairs of an image, uint8 [size, size, 3], and a label,
        int64 [].
    """
    split = dataset.split(options.split)
    cores = os.cpu_count() or 1
    files = tf.data.Dataset.from_tensor_slices(shard_paths(split))
    if epoch is not None:
        files = files.shuffle(
            len(split.shards), seed=_seed(epoch, _FILES), reshuffle_each_iteration=False
        )
    cycle = min(options.cycle_length or _CYCLE, len(split.shards))
    records = files.interleave(
        shard_reader(split),
        cycle_length=cycle,
        block_length=options.block_length or 1,
        num_parallel_calls=min(cycle, cores),
        deterministic=options.deterministic,
    )
    records = hold_out(records, split.records, options.holdout)
    if share is not None and share.count > 1:
        records = records.shard(share.count, share.index)
    # uint8 between here and the rescaling: a quarter of the memory of float32 in the cache.
    return records.map(
        _decoder(dataset, options),
        num_parallel_calls=options.parallel_calls or cores,
        deterministic=options.deterministic,
    )


def _ours(dataset: Dataset, options: LoadOptions, share: _Share) -> Any:
    cached = (
        load_decoded(dataset, options, share).cache() if options.cache is Cache.MEMORY else None
    )
    # What is held out or shared out is told by its place, and what is cached is read but once: in
    # both cases the shards must keep their places.
    mixed = options.training and cached is None and options.holdout is None and share.count == 1
    size = options.shuffle_buffer or (_SHUFFLE_UNCACHED if cached is None else share.images)

    def one_epoch(epoch: Any) -> Any:
        # The seed of this graph alone: what the program set for itself plays no part. TensorFlow
        # takes it modulo 2**31 - 1, and can't add the epoch to one of 0.
        tf.random.set_seed(1 + options.seed % (2**31 - 2))
        decoded = cached
        if decoded is None:
            decoded = load_decoded(dataset, options, share, epoch if mixed else None)
        if options.training:
            decoded = decoded.shuffle(
                min(size, share.images), seed=_seed(epoch, _IMAGES), reshuffle_each_iteration=False
            )
        batches = decoded.batch(share.batch_size)
        if options.augment is not None and options.training:
            batches = _augmented(batches, options, epoch)
        return batches

    batches = _epochs(options).flat_map(one_epoch)
    if options.rescale is not None:
        rescale = rescaler(options.rescale)
        batches = batches.map(lambda images, labels: (rescale(images), labels))
    prefetch = _PREFETCH if options.prefetch is None else options.prefetch
    if prefetch:
        batches = batches.prefetch(prefetch)
    return batches.with_options(_tf_options(options))


def _epochs(options: LoadOptions) -> Any:
    """Return a dataset of the numbers of epochs, int64 [], which goes on where it was left.

    Whoever makes a new iterator for each epoch, as Keras' ``fit`` does, gets what one iterator
    over all of them gives.
    """
    counter = tf.Variable(options.first_epoch, dtype=tf.int64, trainable=False)
    return tf.data.Dataset.range(options.epochs).map(lambda _: counter.assign_add(1) - 1)


def _seed(epoch: Any, purpose: int) -> Any:
    return epoch * 2 + purpose


def _augmented(batches: Any, options: LoadOptions, epoch: Any) -> Any:
    """Change images, each batch by a seed that depends on the epoch and the batch's number."""
    from tfrtool.loading.augment import augmenter

    change = augmenter(options.augment)

    def apply(number: Any, batch: Any) -> Any:
        images, labels = batch
        seed = tf.stack([tf.constant(options.seed, tf.int64), (epoch << 32) + number])
        return change(images, seed), labels

    return batches.enumerate().map(
        apply, num_parallel_calls=os.cpu_count() or 1, deterministic=options.deterministic
    )


def _tf_options(options: LoadOptions) -> Any:
    chosen = tf.data.Options()
    # Every number above is given, so there is nothing to tune; and while tuning is on, destroying
    # an iterator that was read to its end waits for the tuner's sleep, of up to 60 s.
    chosen.autotune.enabled = False
    chosen.deterministic = options.deterministic
    return chosen


def _decoder(dataset: Dataset, options: LoadOptions) -> Callable[[Any], Any]:
    description = Schema(
        (
            FeatureSpec(name=dataset.image_feature, dtype=DType.STRING),
            FeatureSpec(name=dataset.label_feature, dtype=DType.INT64),
        )
    ).to_feature_description(tf)
    size = (options.image_size, options.image_size)

    def decode(record: Any) -> tuple[Any, Any]:
        features = tf.io.parse_single_example(record, description)
        image = tf.io.decode_image(
            features[dataset.image_feature], channels=3, expand_animations=False
        )
        image.set_shape([None, None, 3])
        image = tf.image.resize(image, size)
        return tf.cast(tf.round(image), tf.uint8), features[dataset.label_feature]

    return decode
