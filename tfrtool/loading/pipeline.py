"""From shards to batches: interleave, map, cache, shuffle, batch, prefetch."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tensorflow as tf

from tfrtool.errors import DatasetError
from tfrtool.examples.example import DType
from tfrtool.examples.schema import FeatureSpec, Schema
from tfrtool.loading.dataset import Dataset, Split, open_dataset
from tfrtool.loading.options import Cache, LoadOptions, Recipe, Rescale
from tfrtool.records.compression import Compression

__all__ = ["count_images", "load"]

_TYPES = {Compression.NONE: "", Compression.GZIP: "GZIP", Compression.ZLIB: "ZLIB"}
_NOTEBOOK_CYCLE, _NOTEBOOK_SHUFFLE = 4, 1024
_CYCLE = 4
_SHUFFLE_UNCACHED = 1024


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


def load(dataset: Dataset | str | os.PathLike[str], options: LoadOptions) -> Any:
    """Build the pipeline of a split.

    Args:
        dataset: a dataset, or the directory of one.
        options: what of it, and how.

    Returns:
        A ``tf.data.Dataset`` of one epoch, with its cardinality known: pairs of images, float32
        [batch, image_size, image_size, 3], and labels, int64 [batch].

    Raises:
        UsageError: the dataset has no such split.
        DatasetError: the directory holds no dataset, or the part of it that was asked for is
            empty.
        CorruptShardError: the framing of a shard is damaged.
    """
    if not isinstance(dataset, Dataset):
        dataset = open_dataset(Path(dataset))
    images = count_images(dataset, options)
    build = {Recipe.TFRTOOL: _ours, Recipe.NOTEBOOK: _notebook, Recipe.NAIVE: _naive}
    batches = build[options.recipe](dataset, dataset.split(options.split), options, images)
    return batches.apply(tf.data.experimental.assert_cardinality(-(-images // options.batch_size)))


def _ours(dataset: Dataset, split: Split, options: LoadOptions, images: int) -> Any:
    cores = os.cpu_count() or 1
    cached = options.cache is Cache.MEMORY
    files = tf.data.Dataset.from_tensor_slices([os.fspath(path) for path in split.shards])
    # The records to hold out are told by their place, so that the shards must keep theirs.
    if options.training and options.holdout is None:
        files = files.shuffle(len(split.shards), seed=options.seed)
    cycle = options.cycle_length or min(_CYCLE, len(split.shards))
    records = files.interleave(
        _reader(split),
        cycle_length=cycle,
        block_length=options.block_length,
        num_parallel_calls=min(cycle, cores),
        deterministic=True,
    )
    records = _held(records, split, options)
    # uint8 between here and the rescaling: a quarter of the memory of float32 in the cache.
    decoded = records.map(
        _decoder(dataset, options, tf.uint8),
        num_parallel_calls=options.parallel_calls or cores,
        deterministic=True,
    )
    if cached:
        decoded = decoded.cache()
    if options.training:
        size = options.shuffle_buffer or (images if cached else _SHUFFLE_UNCACHED)
        decoded = decoded.shuffle(min(size, images), seed=options.seed)
    batches = decoded.batch(options.batch_size)
    batches = batches.map(_rescaler(options.rescale), num_parallel_calls=1, deterministic=True)
    if options.prefetch:
        batches = batches.prefetch(options.prefetch)
    return batches.with_options(_options())


def _options() -> Any:
    options = tf.data.Options()
    # Every number above is given, so there is nothing to tune; and while tuning is on, destroying
    # an iterator that was read to its end waits for the tuner's sleep, of up to 60 s.
    options.autotune.enabled = False
    options.deterministic = True
    return options


def _notebook(dataset: Dataset, split: Split, options: LoadOptions, images: int) -> Any:
    files = tf.data.Dataset.from_tensor_slices([os.fspath(path) for path in split.shards])
    records = files.interleave(_reader(split), cycle_length=_NOTEBOOK_CYCLE, block_length=1)
    records = _held(records, split, options)
    decoded = records.map(
        _float_decoder(dataset, options), num_parallel_calls=os.cpu_count() or 1
    ).cache()
    if options.training:
        decoded = decoded.shuffle(min(_NOTEBOOK_SHUFFLE, images), seed=options.seed)
    return decoded.batch(options.batch_size).prefetch(tf.data.AUTOTUNE)


def _naive(dataset: Dataset, split: Split, options: LoadOptions, images: int) -> Any:
    del images
    records = tf.data.TFRecordDataset(
        [os.fspath(path) for path in split.shards], compression_type=_TYPES[split.compression]
    )
    records = _held(records, split, options)
    return records.map(_float_decoder(dataset, options)).batch(options.batch_size)


def _reader(split: Split) -> Callable[[Any], Any]:
    return lambda path: tf.data.TFRecordDataset(path, compression_type=_TYPES[split.compression])


def _held(records: Any, split: Split, options: LoadOptions) -> Any:
    """Keep the held-out part of the records, or the rest, before anything is decoded."""
    holdout = options.holdout
    if holdout is None:
        return records
    held, total = int(split.records * holdout.fraction), split.records

    def belongs(number: Any, _record: Any) -> Any:
        is_held = (number + 1) * held // total > number * held // total
        return is_held if holdout.held_out else tf.logical_not(is_held)

    return records.enumerate().filter(belongs).map(lambda _number, record: record)


def _decoder(dataset: Dataset, options: LoadOptions, dtype: Any) -> Callable[[Any], Any]:
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
        if dtype == tf.uint8:
            image = tf.cast(tf.round(image), tf.uint8)
        return image, features[dataset.label_feature]

    return decode


def _float_decoder(dataset: Dataset, options: LoadOptions) -> Callable[[Any], Any]:
    decode = _decoder(dataset, options, tf.float32)
    rescale = _rescaler(options.rescale)
    return lambda record: rescale(*decode(record))


def _rescaler(rescale: Rescale) -> Callable[[Any, Any], tuple[Any, Any]]:
    def apply(images: Any, labels: Any) -> tuple[Any, Any]:
        return tf.cast(images, tf.float32) * rescale.scale + rescale.offset, labels

    return apply
