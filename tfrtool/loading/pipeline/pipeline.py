"""From shards to batches: interleave, map, cache, shuffle, batch, augment, rescale, prefetch."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import tensorflow as tf

from tfrtool.errors import DatasetError, UsageError
from tfrtool.loading.augment.augment import epoch_augmenter, epoch_counter
from tfrtool.loading.cache.cache_key import CacheKey, default_cache_directory
from tfrtool.loading.cache.disk_cache import holds_disk_cache, open_disk_cache, write_disk_cache
from tfrtool.loading.cache.image_store import ImageStore
from tfrtool.loading.dataset.dataset import Dataset, Split
from tfrtool.loading.pipeline.decode import batch_parser, decoder, features_decoder
from tfrtool.loading.pipeline.load_options import Cache, LoadOptions, Recipe
from tfrtool.loading.pipeline.normalize import rescaler
from tfrtool.loading.pipeline.order import Order
from tfrtool.loading.pipeline.reading import part_reader, plain
from tfrtool.loading.pipeline.recipes import STAGES_OF, load_published
from tfrtool.loading.pipeline.tensors import Batch, Tensor, TfDataset
from tfrtool.storage.progress import OnProgress, silent

__all__ = ["count_images", "has_disk_cache", "load", "load_decoded"]

_CYCLE = 4
_SHUFFLE_UNCACHED = 1024
_SHUFFLED_BYTES = 32 * 2**20
"""Of records that are held to draw the next from: 1,024 photographs of a usual size."""

_PREFETCH = 2
_MANY = 100_000
"""Shards, of which no split has more."""

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
    dataset: Dataset, options: LoadOptions, context: Any = None, on_progress: OnProgress = silent
) -> TfDataset:
    """Build the pipeline of a split; see `Dataset.load`."""
    images = count_images(dataset, options)
    if options.recipe is not Recipe.TFRTOOL:
        if context is not None:
            raise UsageError(f"the recipe {options.recipe.value!r} knows no distribution")
        batches = load_published(dataset, options, images, STAGES_OF[options.recipe])
        return _with_cardinality(batches, -(-images // options.batch_size))
    share = _Share.of(images, options, context)
    batches = _ours(dataset, options, share, on_progress)
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


def _with_cardinality(batches: TfDataset, steps: int) -> TfDataset:
    return batches.apply(tf.data.experimental.assert_cardinality(steps))


def load_decoded(
    dataset: Dataset,
    options: LoadOptions,
    share: _Share | None = None,
    on_files: Callable[[TfDataset], TfDataset] = lambda files: files,
    on_records: Callable[[TfDataset], TfDataset] = lambda records: records,
) -> TfDataset:
    """Build the part of the pipeline before the cache.

    Args:
        dataset: what to read.
        options: how.
        share: which of the records.
        on_files: changes the dataset of the shards' numbers, which count from 0.
        on_records: changes the dataset of serialized records before they are decoded.

    Returns:
        A ``tf.data.Dataset`` of one epoch: pairs of an image, uint8 [size, size, 3], and a label,
        int64 [].
    """
    split = dataset.split(options.split)
    cores = os.cpu_count() or 1
    part = (0, 1) if share is None else (share.index, share.count)
    cycle = min(options.cycle_length or _CYCLE, len(split.shards))
    records = on_files(tf.data.Dataset.range(len(split.shards))).interleave(
        part_reader(dataset, split, options.holdout, part),
        cycle_length=cycle,
        block_length=options.block_length or 1,
        num_parallel_calls=min(cycle, cores),
        deterministic=options.deterministic,
    )
    records = on_records(records)
    decode = decoder(dataset, options.image_size)
    if options.batched_parse is not None:
        parse = batch_parser(dataset)
        records = records.batch(options.batched_parse).map(plain(parse)).unbatch()
        decode = features_decoder(dataset, options.image_size)
    # uint8 between here and the rescaling: a quarter of the memory of float32 in the cache.
    return records.map(
        plain(decode),
        num_parallel_calls=options.parallel_calls or cores,
        deterministic=options.deterministic,
    )


def has_disk_cache(dataset: Dataset, options: LoadOptions) -> bool:
    """Tell whether an earlier run has left a whole cache on disk for these options."""
    share = _Share.of(count_images(dataset, options), options, None)
    return holds_disk_cache(*_disk_cache_key(dataset, options, share))


def _ours(
    dataset: Dataset, options: LoadOptions, share: _Share, on_progress: OnProgress
) -> TfDataset:
    match options.cache:
        case Cache.NONE:
            batches = _streamed(dataset, options, share)
        case Cache.DISK:
            store = _disk_store(dataset, options, share, on_progress)
            batches = _stored(dataset, options, share, store)
        case Cache.MEMORY:
            store = ImageStore(share.images, options.image_size)
            batches = _stored(dataset, options, share, store)
        case Cache.FEATURES:
            raise ValueError("LoadOptions refuses it")
    if options.rescale is not None:
        rescale = rescaler(options.rescale)
        batches = batches.map(plain(lambda images, labels: (rescale(images), labels)))
    prefetch = _PREFETCH if options.prefetch is None else options.prefetch
    if prefetch:
        batches = batches.prefetch(prefetch)
    return batches.with_options(_tf_options(options))


def _stored(dataset: Dataset, options: LoadOptions, share: _Share, store: ImageStore) -> TfDataset:
    """Return batches of images that are all kept in memory, or on disk."""
    order = Order(
        images=share.images,
        batch_size=share.batch_size,
        shuffled=options.training,
        block=options.shuffle_buffer,
        seed=options.seed,
    )
    decoded = load_decoded(
        dataset,
        replace(options, deterministic=True),  # whoever fills it gives each row the same image
        share,
        lambda files: files.filter(plain(lambda _: store.missing())),
    )
    counter = epoch_counter(options)

    def taken(step: Tensor) -> Batch:
        return store.gather(order.rows(step // order.steps, step % order.steps))

    steps = store.steps(decoded, order, options.epochs, counter)
    augment = epoch_augmenter(options)
    if augment is None:
        return steps.map(plain(taken))
    return steps.map(
        plain(lambda step: augment(step // order.steps, step % order.steps, *taken(step))),
        num_parallel_calls=os.cpu_count() or 1,
        deterministic=options.deterministic,
    )


def _disk_store(
    dataset: Dataset, options: LoadOptions, share: _Share, on_progress: OnProgress
) -> ImageStore:
    """Return the images that an earlier run has left on disk, or leave them there now."""
    directory, key = _disk_cache_key(dataset, options, share)
    cache = open_disk_cache(directory, key)
    if cache is None:
        decoded = load_decoded(dataset, replace(options, deterministic=True), share)
        cache = write_disk_cache(directory, key, decoded, on_progress)
    return ImageStore.of(cache)


def _disk_cache_key(dataset: Dataset, options: LoadOptions, share: _Share) -> tuple[Path, CacheKey]:
    directory = options.cache_directory or default_cache_directory()
    return directory, CacheKey.of(dataset, options, share.images, (share.index, share.count))


def _streamed(dataset: Dataset, options: LoadOptions, share: _Share) -> TfDataset:
    """Return batches of images that are decoded anew in every epoch."""
    augment = epoch_augmenter(options)
    size = min(
        options.shuffle_buffer or _records_to_mix(dataset.split(options.split)), share.images
    )

    def one_epoch(epoch: Tensor) -> TfDataset:
        # The seed of this graph alone: what the program set for itself plays no part. TensorFlow
        # takes it modulo 2**31 - 1, and can't add the epoch to one of 0.
        tf.random.set_seed(1 + options.seed % (2**31 - 2))

        def shuffled(items: TfDataset, size: int, purpose: int) -> TfDataset:
            seed = _seed(epoch, purpose)
            return items.shuffle(size, seed=seed, reshuffle_each_iteration=False)

        decoded = load_decoded(
            dataset,
            options,
            share,
            lambda files: shuffled(files, _MANY, _FILES) if options.training else files,
            # Before they are decoded, images are a sixth of the size.
            lambda records: shuffled(records, size, _IMAGES) if options.training else records,
        )
        batches = decoded.batch(share.batch_size)
        if augment is None:
            return batches
        return batches.enumerate().map(
            plain(lambda number, batch: augment(epoch, number, *batch)),
            num_parallel_calls=os.cpu_count() or 1,
            deterministic=options.deterministic,
        )

    counter = epoch_counter(options)
    epochs = tf.data.Dataset.range(options.epochs).map(plain(lambda _: counter.assign_add(1) - 1))
    return epochs.flat_map(plain(one_epoch))


def _records_to_mix(split: Split) -> int:
    """Return how many records are held to draw the next from: 1024, or fewer if they are large."""
    size = sum(path.stat().st_size for path in split.shards) / split.records
    return max(1, min(_SHUFFLE_UNCACHED, int(_SHUFFLED_BYTES / max(size, 1))))


def _seed(epoch: Tensor, purpose: int) -> Tensor:
    return epoch * 2 + purpose


def _tf_options(options: LoadOptions) -> Any:
    chosen = tf.data.Options()
    # Every number above is given, so there is nothing to tune; and while tuning is on, destroying
    # an iterator that was read to its end waits for the tuner's sleep, of up to 60 s.
    chosen.autotune.enabled = False
    # To rewrite the graph, TensorFlow writes it down for each iterator, with all images in memory
    # that it refers to: as much memory again, and time.
    chosen.experimental_optimization.apply_default_optimizations = False
    chosen.deterministic = options.deterministic
    return chosen
