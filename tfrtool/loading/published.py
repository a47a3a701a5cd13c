"""The pipelines that tutorials publish, to compare ours with and to train as they do."""

import os
from functools import partial

import tensorflow as tf

from tfrtool.engines.pool import cores
from tfrtool.loading.augment import epoch_augmenter, epoch_counter
from tfrtool.loading.dataset import Dataset
from tfrtool.loading.decoding import decoder
from tfrtool.loading.normalize import rescaler
from tfrtool.loading.options import LoadOptions, Recipe, Rescale
from tfrtool.loading.reading import part_reader
from tfrtool.loading.tensors import Batch, Tensor, TfDataset
from tfrtool.records.compression import TF_TYPES

_CYCLE = 4
_SHUFFLE = 1024
_AS_IT_IS = Rescale(scale=1.0, offset=0.0)

STAGES_OF: dict[Recipe, frozenset[str]] = {
    Recipe.NAIVE: frozenset(),
    Recipe.NOTEBOOK: frozenset({"interleave", "parallel map", "cache", "prefetch"}),
}
"""What the published pipelines do beyond reading, decoding and batching: parallel interleave with
cycle 4 and block 1, map on all cores, float32 cache in memory, shuffle 1024, prefetch. The naive
one has none of it: one shard after the other, one record after the other, again in every epoch."""


def load_published(
    dataset: Dataset, options: LoadOptions, images: int, stages: frozenset[str]
) -> TfDataset:
    """Build one epoch of the published pipeline, or of a part of it: what ``stages`` has of it.

    Its batches are of float32 [n, size, size, 3]. Of the options it has split, image size,
    rescaling, batch size, seed and what is held out; and without any stages how images are
    augmented.
    """
    split = dataset.split(options.split)
    files = tf.data.Dataset.range(len(split.shards))
    dataset.fetch_ahead(split.shards)
    read = part_reader(dataset, split, options.holdout)
    if "interleave" in stages:
        tuned = tf.data.AUTOTUNE
        records = files.interleave(
            read, cycle_length=_CYCLE, block_length=1, num_parallel_calls=tuned
        )
    else:
        records = files.flat_map(read)
    augment = epoch_augmenter(options)
    rescale = rescaler(options.rescale or _AS_IT_IS)
    decode = decoder(dataset, options.image_size, floats=True)

    def rescaled(images: Tensor, labels: Tensor) -> Batch:
        return rescale(images), labels

    def decoded_one(record: Tensor) -> Batch:
        return decode(record) if augment else rescaled(*decode(record))

    calls = cores() if "parallel map" in stages else None
    decoded = records.map(decoded_one, num_parallel_calls=calls)
    if "cache" in stages:
        decoded = decoded.cache()
        # Drawing from what is not cached would decode no more, but the naive recipe doesn't.
        if options.training:
            decoded = decoded.shuffle(min(_SHUFFLE, images), seed=options.seed)
    batches = decoded.batch(options.batch_size)
    if augment is None:
        return batches.prefetch(tf.data.AUTOTUNE) if "prefetch" in stages else batches
    counter = epoch_counter(options)

    def augmented(epoch: Tensor) -> TfDataset:
        changed = batches.enumerate().map(lambda number, pair: augment(epoch, number, *pair))
        return changed.map(rescaled)

    return tf.data.Dataset.range(1).map(lambda _: counter.assign_add(1) - 1).flat_map(augmented)


def load_uncached(dataset: Dataset, options: LoadOptions) -> TfDataset:
    """Build one epoch of what tutorials publish for images that fit into no cache.

    Files in any order, interleave, a parallel map that decodes, rescales and then resizes, batch
    and prefetch; as many at a time as TensorFlow finds best. Of the options it has split, image
    size, rescaling, batch size and seed. The shards are files of this machine.
    """
    split, tuned = dataset.split(options.split), {"num_parallel_calls": tf.data.AUTOTUNE}
    files = tf.data.Dataset.from_tensor_slices([os.fspath(path) for path in split.shards])
    read = partial(tf.data.TFRecordDataset, compression_type=TF_TYPES[split.compression])
    records = files.shuffle(len(split.shards), options.seed).interleave(
        read, cycle_length=_CYCLE, **tuned
    )
    rescale = rescaler(options.rescale or _AS_IT_IS)
    decoded = records.map(decoder(dataset, options.image_size, floats=True, first=rescale), **tuned)
    return decoded.batch(options.batch_size).prefetch(tf.data.AUTOTUNE)
