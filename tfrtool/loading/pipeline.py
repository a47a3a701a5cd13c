"""From shards to batches: interleave, map, cache, shuffle, batch, augment, rescale, prefetch."""

import math
import os
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from tfrtool.engines.pool import cores
from tfrtool.errors import DatasetError, UsageError
from tfrtool.loading.augment import as_augment, augmenter, mixer
from tfrtool.loading.dataset_facts import DatasetFacts, Split
from tfrtool.loading.decoding import check_limits, decoder, parser, rescaler, zero_pixel
from tfrtool.loading.disk_cache import disk_cache
from tfrtool.loading.options import LoadOptions, Rescale
from tfrtool.loading.tensors import Batch, Tensor, TfDataset
from tfrtool.records.compression import TF_TYPES

_CYCLE = 4
_FILLING_CYCLE = 16
"""Shards read at a time while a cache in memory is filled for training: its order is the first
epoch's, which so starts with images of all shards."""

_SHUFFLE = 1024
_SHUFFLED_BYTES = 32 * 2**20
"""Of records in the shuffle buffer: 1,024 photographs of a usual size."""
_SHUFFLED_PIXELS = 128 * 2**20
"""Of images from a cache on disk in the shuffle buffer."""

_AHEAD = 8
"""Images for each core that are begun before the first of them is done, so that no core has to wait
for the others or for what becomes of a batch."""

_PREFETCH = 2
_UNCHANGED = Rescale(scale=1.0, offset=0.0)


def count_images(dataset: DatasetFacts, options: LoadOptions) -> int:
    """Return the number of images in an epoch; `DatasetError` if there are none."""
    records = dataset.split(options.split).records
    images = options.count(records)
    if images == 0:
        what = f"split {options.split!r} has too few records to hold out a part"
        raise DatasetError(what, path=dataset.directory, found=records)
    return images


def load(dataset: DatasetFacts, options: LoadOptions) -> TfDataset:
    """Build the pipeline of a split; see `Dataset.load`."""
    # AutoGraph would compile each function in every process; none has an `if` over tensors.
    build = tf.autograph.experimental.do_not_convert(_build)
    batches: TfDataset = build(dataset, options)
    return batches


def _build(dataset: DatasetFacts, options: LoadOptions) -> TfDataset:
    images, context = count_images(dataset, options), options.context
    if options.recipe != "tfrtool":
        if context is not None:
            raise UsageError(f"--recipe {options.recipe} can't be distributed")
        return _published(dataset, options, images)
    workers, worker, replicas = 1, 0, 1
    if context is not None:
        workers, worker = context.num_input_pipelines, context.input_pipeline_id
        replicas = max(context.num_replicas_in_sync // workers, 1)
        _check_distribution(images, options.batch_size, context)
    steps, batch_size = -(-images // options.batch_size), options.batch_size // workers
    if options.first_step >= steps:
        raise UsageError(f"first_step must be from 0 to {steps - 1}, got {options.first_step}")
    split, cached = dataset.local_split(options.split), options.cache != "none"
    parallel = {"deterministic": options.deterministic or cached}
    read = reader(dataset, split, options, workers, worker)
    filling = options.training and options.cache == "memory"
    cycle = options.cycle_length or (_FILLING_CYCLE if filling else _CYCLE)
    cycle = min(cycle, len(split.shards))
    window = min(_SHUFFLE, int(_SHUFFLED_BYTES / split.record_bytes)) or 1
    at_once = options.batched_parse
    if at_once and dataset.decode_function is not None:
        raise UsageError("--loader parse cannot be used with a decoder of your own")
    parse = parser(dataset, batched=True) if at_once else None
    decode = decoder(
        dataset, options.image_size, options.decode, options.channels, parsed=bool(at_once)
    )
    rescale = rescaler(options.linear) if options.linear else None
    augment = as_augment(options.augment) if options.training else None
    change = _augmenter(options)
    mix = mixer(augment) if augment and augment.mixes else None
    if mix is not None and not dataset.label_form.is_class_number:
        raise UsageError("--augment mixup and cutmix require one class per image")
    target = _target(dataset, options)

    def decoded(epoch: Tensor) -> TfDataset:
        """Return the images and labels of an epoch as uint8, without a cache."""
        shards = tf.data.Dataset.range(len(split.shards))
        if options.training:
            shards = shards.shuffle(len(split.shards), 2 * epoch, reshuffle_each_iteration=False)
        records = shards.interleave(
            read, cycle, options.block_length or 1, min(cycle, cores()), **parallel
        )
        if options.training:  # before they are decoded, images are a sixth of the size
            buffer = options.shuffle_buffer or window
            records = records.shuffle(buffer, 2 * epoch + 1, reshuffle_each_iteration=False)
        if parse is not None:
            records = records.batch(at_once).map(parse, cores(), **parallel).unbatch()
        return records.map(decode, options.parallel_calls or cores() * _AHEAD, **parallel)

    zero = tf.constant(0, tf.int64)
    cache, buffer = None, 1
    if cached:
        # On disk, the order serves runs with any seed.
        seed = 0 if options.cache == "disk" else options.seed
        cache = tf.data.Dataset.range(1).flat_map(_seeded(seed, lambda _: decoded(zero)))
        buffer = options.shuffle_buffer or images
        if options.cache == "disk":
            most = max(1, _SHUFFLED_PIXELS // math.prod(options.shape))
            buffer = options.shuffle_buffer or min(images, most)
            share = len(range(worker, images, workers))
            cache = disk_cache(dataset, options, cache, share, (workers, worker))
        else:
            cache = cache.cache()

    def one_epoch(epoch: Tensor) -> TfDataset:
        examples = decoded(epoch) if cache is None else cache
        if cache is not None and options.training:
            # The first epoch fills a cache in memory, in an order that is shuffled already.
            size = tf.where(filling & tf.equal(epoch, 0), zero + 1, buffer)
            examples = examples.shuffle(size, 2 * epoch + 1, reshuffle_each_iteration=False)
        batches = examples.batch(batch_size)
        if workers > 1:  # the last step of some may have no images
            batches = batches.concatenate(_empty_batch(batches).repeat()).take(steps)
        first = zero
        if options.first_step:
            first = tf.where(tf.equal(epoch, options.first_epoch), zero + options.first_step, zero)
            batches = batches.skip(first)

        def finish(step: Tensor, batch: Batch) -> Batch:
            pixels, labels = batch
            labels = target(labels)
            if change is not None:
                seed = tf.stack([options.seed + worker * 2**32, epoch * 2**32 + step])
                pixels = change(pixels, seed)
                if mix is not None:
                    pixels, labels = mix(pixels, labels, seed)
            return pixels if rescale is None else rescale(pixels), labels

        return batches.enumerate(first).map(finish, cores(), deterministic=options.deterministic)

    batches = _next_epochs(options).flat_map(_seeded(options.seed, one_epoch))
    if replicas > 1:
        batches = batches.flat_map(lambda *batch: _parts(batch, replicas))
    prefetch = _PREFETCH if options.prefetch is None else options.prefetch
    batches = batches.prefetch(prefetch * replicas) if prefetch else batches
    chosen = tf.data.Options()
    # Every number above is given, so there is nothing to tune; and while tuning is on, destroying
    # an iterator that was read to its end waits for the tuner's sleep, of up to 60 s.
    chosen.autotune.enabled = False
    # To rewrite the graph for each iterator takes as long as decoding a dozen images.
    chosen.experimental_optimization.apply_default_optimizations = False
    chosen.deterministic = options.deterministic
    batches = batches.with_options(chosen)
    if options.first_step:  # the next iterator, if there is one, has whole epochs
        return batches
    count = steps * options.epochs * replicas
    return batches.apply(tf.data.experimental.assert_cardinality(count))


def _published(dataset: DatasetFacts, options: LoadOptions, images: int) -> TfDataset:
    """Build one epoch of the pipeline that notebooks publish, or of a naive sequential one.

    They decode to float32 and rescale each image. The notebook's reads four shards at a time,
    decodes on all cores, caches in memory, shuffles 1,024 images and prefetches, as many as
    TensorFlow tunes.
    """
    split, naive = dataset.local_split(options.split), options.recipe == "naive"
    decode = decoder(dataset, options.image_size, channels=options.channels, floats=True)
    rescale, target = rescaler(options.linear or _UNCHANGED), _target(dataset, options)
    change = _augmenter(options)

    def rescaled(pixels: Tensor, labels: Tensor) -> Batch:
        return rescale(pixels), target(labels)

    def decode_one(record: Tensor) -> Batch:
        return decode(record) if change else rescaled(*decode(record))

    shards, tuned = tf.data.Dataset.range(len(split.shards)), None if naive else tf.data.AUTOTUNE
    read = reader(dataset, split, options)
    records = shards.interleave(read, 1 if naive else _CYCLE, 1, tuned)
    examples = records.map(decode_one, None if naive else cores())
    if not naive:
        examples = examples.cache()
        if options.training:
            examples = examples.shuffle(min(_SHUFFLE, images), options.seed)
    batches = examples.batch(options.batch_size)

    if change is not None:

        def augmented(epoch: Tensor) -> TfDataset:
            def finish(step: Tensor, batch: Batch) -> Batch:
                seed = tf.stack([tf.constant(options.seed, tf.int64), epoch * 2**32 + step])
                return rescaled(change(batch[0], seed), batch[1])

            return examples.batch(options.batch_size).enumerate().map(finish)

        batches = _next_epochs(options).flat_map(augmented)
    elif options.epochs > 1:
        batches = batches.repeat(options.epochs)
    batches = batches if naive else batches.prefetch(tf.data.AUTOTUNE)
    count = -(-images // options.batch_size) * options.epochs
    return batches.apply(tf.data.experimental.assert_cardinality(count))


def _augmenter(options: LoadOptions) -> Callable[[Tensor, Tensor], Tensor] | None:
    """Return what changes the images of a batch by a seed, if anything does."""
    augment = as_augment(options.augment) if options.training else None
    if augment is None:
        return None
    rescale = options.linear if augment.needs_mean else None
    return augmenter(augment, None if rescale is None else zero_pixel(rescale))


def _target(dataset: DatasetFacts, options: LoadOptions) -> Callable[[Tensor], Tensor]:
    """Return what becomes of labels: one-hot vectors on request."""
    if options.one_hot and dataset.targets:
        raise UsageError("one_hot requires classes, not --task regression")
    if options.one_hot and dataset.label_form.is_class_number:
        return lambda labels: tf.one_hot(labels, len(dataset.class_names))
    return lambda labels: labels


def _next_epochs(options: LoadOptions) -> TfDataset:
    """Return the numbers of the epochs of an iterator: each goes on where the last one ended."""
    with tf.device("CPU:0"):  # where all of tf.data is
        iterators = tf.Variable(0, dtype=tf.int64, trainable=False)

    def numbers(_: Tensor) -> TfDataset:
        # One operation reads and counts: iterators may begin in several threads.
        earlier = tf.raw_ops.ResourceCountUpTo(
            resource=iterators.handle, limit=tf.int64.max, T=tf.int64
        )
        start = options.first_epoch + earlier * options.epochs
        return tf.data.Dataset.range(start, start + options.epochs)

    return tf.data.Dataset.range(1).flat_map(numbers)


def _seeded(seed: int, make: Callable[[Tensor], TfDataset]) -> Callable[[Tensor], TfDataset]:
    """Return a function in whose graph a seed applies, whatever the program's own seed is."""

    def seeded(epoch: Tensor) -> TfDataset:
        # TensorFlow takes it modulo 2**31 - 1, and can't add the epoch to one of 0.
        tf.random.set_seed(1 + seed % (2**31 - 2))
        return make(epoch)

    return seeded


def reader(
    dataset: DatasetFacts,
    split: Split,
    options: LoadOptions,
    workers: int = 1,
    worker: int = 0,
) -> Callable[[Tensor], TfDataset]:
    """Return a function from the number of a shard to its serialized records.

    Before a shard is first read, its images are checked: TensorFlow's decoders have no limits.
    Whether a record is held out, and which worker it belongs to, depends only on its position among
    all records of the split. Each worker has a range of them.
    """
    paths = tf.constant([os.fsencode(path) for path in split.shards])
    compression = TF_TYPES[split.compression]

    def check(number: int) -> int:
        check_limits(dataset, split.shards[number], split.compression)
        return number

    def records_of(shard: Tensor) -> TfDataset:
        shard = tf.ensure_shape(tf.numpy_function(check, [shard], tf.int64), [])
        return tf.data.TFRecordDataset(paths[shard], compression)

    if options.holdout is None and options.limit is None and workers == 1:
        return records_of
    wanted = np.ones(split.records, np.bool_)
    if options.holdout is not None:
        held_before = np.arange(split.records + 1) * options.count_held(split.records)
        held_before //= split.records
        wanted = (held_before[1:] > held_before[:-1]) == options.held_out
    bounds = np.cumsum((0, *split.lengths))
    if options.limit is not None:
        wanted = _limited(wanted, bounds, options.limit)
    chosen = np.zeros(split.records, np.bool_)
    chosen[np.array_split(np.flatnonzero(wanted), workers)[worker]] = True
    ends, belongs = tf.constant(bounds), tf.constant(chosen)
    counts = tf.constant(np.diff(np.cumsum((0, *chosen))[bounds]))

    def read(shard: Tensor) -> TfDataset:
        records = records_of(shard)
        mine = tf.data.Dataset.from_tensor_slices(belongs[ends[shard] : ends[shard + 1]])
        both = tf.data.Dataset.zip(records, mine).filter(lambda _record, mine: mine)
        if options.limit is not None:  # the rest of a shard is not read
            both = both.take(counts[shard])
        return both.map(lambda record, _mine: record)

    return read


def _limited(wanted: Any, bounds: Any, limit: int) -> Any:
    """Return which records are loaded of those that are wanted: the first ones of each shard.

    Each shard has a share in proportion to its wanted records.
    """
    before = np.cumsum((0, *wanted))
    total = before[-1]
    quotas = np.diff(before[bounds] * min(limit, total) // max(total, 1))
    shards = np.repeat(np.arange(len(quotas)), np.diff(bounds))
    ranks = before[:-1] - before[bounds[shards]]
    return wanted & (ranks < quotas[shards])


def split_records(dataset: DatasetFacts, options: LoadOptions) -> TfDataset:
    """Return the serialized records of a part of a split, shard after shard."""
    split = dataset.local_split(options.split)
    return tf.data.Dataset.range(len(split.shards)).flat_map(reader(dataset, split, options))


def _check_distribution(images: int, batch_size: int, context: Any) -> None:
    count, replicas = context.num_input_pipelines, context.num_replicas_in_sync
    if images < count or batch_size < replicas or batch_size % count:
        multiple = f" that is a multiple of {count}" if count > 1 else ""
        raise UsageError(
            f"{images} images can't be distributed in batches of {batch_size}",
            expected=f"at least {count} images, and a batch size of at least {replicas}{multiple}",
        )


def _parts(batch: Batch, replicas: int) -> TfDataset:
    """Return the part of a batch of each replica, in their order."""
    count = tf.shape(batch[1], tf.int64)[0]

    def part(replica: Tensor) -> Batch:
        first, end = count * replica // replicas, count * (replica + 1) // replicas
        return batch[0][first:end], batch[1][first:end]

    return tf.data.Dataset.range(replicas).map(part)


def _empty_batch(batches: TfDataset) -> TfDataset:
    """Return a dataset of one batch like the others, without images."""
    nothing = tf.nest.map_structure(
        lambda spec: tf.zeros([0, *spec.shape[1:]], spec.dtype), batches.element_spec
    )
    return tf.data.Dataset.from_tensors(nothing)
