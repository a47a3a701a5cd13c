"""The published pipelines, to the letter, to measure ours against."""

from __future__ import annotations

import os

import tensorflow as tf

from tfrtool.examples.example import DType
from tfrtool.loading.augment.augment import epoch_augmenter, epoch_counter
from tfrtool.loading.dataset.dataset import Dataset
from tfrtool.loading.dataset.forms import ImageEncoding
from tfrtool.loading.pipeline.decode import float_decoder, parser
from tfrtool.loading.pipeline.load_options import LoadOptions, Recipe, Rescale
from tfrtool.loading.pipeline.normalize import rescaler
from tfrtool.loading.pipeline.reading import part_reader
from tfrtool.loading.pipeline.tensors import Batch, Decode, Tensor, TfDataset

__all__ = ["NOTEBOOK", "STAGES_OF", "load_published"]

_CYCLE, _SHUFFLE = 4, 1024


NOTEBOOK = frozenset({"interleave", "parallel map", "cache", "prefetch"})
"""What the published pipeline does beyond reading, decoding and batching: interleave with cycle 4
and block 1, map on all cores, float32 cache in memory, shuffle 1024, prefetch. The naive one has
none of it: one shard after the other, one record after the other, again in every epoch."""

STAGES_OF: dict[Recipe, frozenset[str]] = {Recipe.NAIVE: frozenset(), Recipe.NOTEBOOK: NOTEBOOK}


def load_published(
    dataset: Dataset, options: LoadOptions, images: int, stages: frozenset[str]
) -> TfDataset:
    """Build the published pipeline, or a part of it.

    Args:
        dataset: where the records are.
        options: of these, what the published pipeline has: split, image size, rescaling, batch
            size, seed and what is held out; and for the naive one, how images are augmented.
        images: how many an epoch has.
        stages: what it does of all that it could.

    Returns:
        A ``tf.data.Dataset`` of one epoch, of batches of float32 [n, size, size, 3] and labels.
    """
    split = dataset.split(options.split)
    files = tf.data.Dataset.range(len(split.shards))
    read = part_reader(dataset, split, options.holdout)
    if "interleave" in stages:
        records = files.interleave(read, cycle_length=_CYCLE, block_length=1)
    else:
        records = files.flat_map(read)
    augment = epoch_augmenter(options)
    rescale = rescaler(options.rescale or Rescale(scale=1.0, offset=0.0))
    decode = _float_decoder(dataset, options)

    def rescaled(images: Tensor, labels: Tensor) -> Batch:
        return rescale(images), labels

    def decoded_one(record: Tensor) -> Batch:
        return decode(record) if augment else rescaled(*decode(record))

    calls = (os.cpu_count() or 1) if "parallel map" in stages else None
    decoded = records.map(decoded_one, num_parallel_calls=calls)
    if "cache" in stages:
        decoded = decoded.cache()
        # Drawing from what is not cached would decode no more, but the naive recipe doesn't.
        if options.training:
            decoded = decoded.shuffle(min(_SHUFFLE, images), seed=options.seed)
    batches = decoded.batch(options.batch_size)
    if augment is not None:
        counter = epoch_counter(options)

        def augmented(epoch: Tensor) -> TfDataset:
            changed = batches.enumerate().map(lambda number, pair: augment(epoch, number, *pair))
            return changed.map(rescaled)

        epochs = tf.data.Dataset.range(1).map(lambda _: counter.assign_add(1) - 1)
        return epochs.flat_map(augmented)
    return batches.prefetch(tf.data.AUTOTUNE) if "prefetch" in stages else batches


def _float_decoder(dataset: Dataset, options: LoadOptions) -> Decode:
    """Decode as the published code does, all in float32; the rest is not published."""
    size = (options.image_size, options.image_size)
    encoded = dataset.image_form.encoding is ImageEncoding.ENCODED
    if not encoded or dataset.label_dtype is not DType.INT64:
        return float_decoder(dataset, options.image_size)
    parse = parser(dataset)

    def published(record: Tensor) -> Batch:
        features = parse(record)
        image = tf.io.decode_jpeg(features[dataset.image_feature], channels=3)
        return tf.image.resize(image, size), features[dataset.label_feature]

    return published
