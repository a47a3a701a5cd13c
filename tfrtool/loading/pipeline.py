"""From shards to batches: interleave, map, cache, shuffle, batch, augment, rescale, prefetch."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from tfrtool.engines.engine import cores
from tfrtool.errors import DatasetError, UsageError
from tfrtool.loading.augment import as_augment, augmenter, mixer
from tfrtool.loading.dataset_facts import DatasetFacts
from tfrtool.loading.decoding import decoder, parser, reader, rescaler, zero_pixel
from tfrtool.loading.disk_cache import disk_cache
from tfrtool.loading.options import LoadOptions, Rescale
from tfrtool.loading.tensors import Batch, Tensor, TfDataset

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
"""Images per core that are decoded at a time, so that no core waits for another or for a batch."""

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
    build = _build if options.recipe == "tfrtool" else _published
    build = tf.autograph.experimental.do_not_convert(build)
    batches: TfDataset = build(dataset, options, count_images(dataset, options))
    return batches


@dataclass(frozen=True, kw_only=True)
class _Plan:
    """A pipeline with its choices made, and the functions that its steps apply."""

    dataset: DatasetFacts
    options: LoadOptions
    images: int  # in an epoch, of all workers
    steps: int  # in an epoch
    workers: int
    worker: int
    replicas: int  # of this worker
    shards: int
    cycle: int  # shards read at a time
    buffer: int  # records that are shuffled before they are decoded
    threads: int  # this and the next two may be AUTOTUNE
    calls: int  # images decoded at a time
    prefetch: int  # batches
    read: Callable[[Tensor], TfDataset]
    parse: Callable[[Tensor], Any] | None  # parses several records, where `decode` doesn't
    decode: Callable[..., Batch]
    finish: Callable[[Tensor, Batch], Batch]


def _plan(dataset: DatasetFacts, options: LoadOptions, images: int) -> _Plan:
    workers, worker, replicas = (1, 0, 1) if options.context is None else _share(images, options)
    steps = -(-images // options.batch_size)
    if options.first_step >= steps:
        raise UsageError(f"first_step must be from 0 to {steps - 1}, got {options.first_step}")
    batched = options.batched_parse is not None
    if batched and dataset.decode_function is not None:
        raise UsageError("--loader parse can't be used with a decoder of your own")
    split = dataset.local_split(options.split)
    is_filling = options.training and options.cache == "memory"
    cycle = options.cycle_length or (_FILLING_CYCLE if is_filling else _CYCLE)
    window = min(_SHUFFLE, int(_SHUFFLED_BYTES / split.record_bytes)) or 1
    tuned = tf.data.AUTOTUNE if options.autotune else None
    prefetch = (tuned or _PREFETCH) if options.prefetch is None else options.prefetch
    return _Plan(
        dataset=dataset,
        options=options,
        images=images,
        steps=steps,
        workers=workers,
        worker=worker,
        replicas=replicas,
        shards=len(split.shards),
        cycle=min(cycle, len(split.shards)),
        buffer=options.shuffle_buffer or window,
        threads=tuned or cores(),
        calls=options.parallel_calls or tuned or cores() * _AHEAD,
        prefetch=max(prefetch * replicas, tf.data.AUTOTUNE),
        read=reader(dataset, split, options, workers, worker),
        parse=parser(dataset, batched=True) if batched else None,
        decode=decoder(dataset, options, parsed=batched),
        finish=_finisher(dataset, options, options.linear, worker),
    )


def _build(dataset: DatasetFacts, options: LoadOptions, images: int) -> TfDataset:
    plan = _plan(dataset, options, images)
    cache = None if options.cache == "none" else _cached(plan)

    def one_epoch(epoch: Tensor) -> TfDataset:
        examples = _decoded(plan, epoch) if cache is None else _shuffled(plan, cache, epoch)
        return _numbered(plan, examples.batch(options.batch_size // plan.workers), epoch)

    batches = _finished(plan, _each_epoch(options, one_epoch))
    batches = batches.prefetch(plan.prefetch) if plan.prefetch else batches
    chosen = tf.data.Options()
    # By default, every number above is given, so there is nothing to tune; and while tuning is on,
    # destroying an iterator that was read to its end waits for the tuner's sleep, of up to 60 s.
    chosen.autotune.enabled = options.autotune
    # To rewrite the graph for each iterator takes as long as decoding a dozen images.
    chosen.experimental_optimization.apply_default_optimizations = False
    chosen.deterministic = options.deterministic
    batches = batches.with_options(chosen)
    if options.first_step:  # the next iterator, if there is one, has whole epochs
        return batches
    count = plan.steps * options.epochs * plan.replicas
    return batches.apply(tf.data.experimental.assert_cardinality(count))


def _decoded(plan: _Plan, epoch: Tensor) -> TfDataset:
    """Return the images and labels of an epoch as uint8, without a cache."""
    options, cycle, block = plan.options, plan.cycle, plan.options.block_length or 1
    parallel = {"deterministic": options.deterministic or options.cache != "none"}
    shards = tf.data.Dataset.range(plan.shards)
    if options.training:
        shards = shards.shuffle(plan.shards, 2 * epoch, reshuffle_each_iteration=False)
    records = shards.interleave(plan.read, cycle, block, min(cycle, plan.threads), **parallel)
    if options.training:  # before they are decoded, images are a sixth of the size
        records = records.shuffle(plan.buffer, 2 * epoch + 1, reshuffle_each_iteration=False)
    if plan.parse is not None:
        batches = records.batch(options.batched_parse)
        records = batches.map(plan.parse, plan.threads, **parallel).unbatch()
    if options.early_augment is None:
        return records.map(plan.decode, plan.calls, **parallel)

    def decode(number: Tensor, record: Tensor) -> Batch:
        return plan.decode(record, _seed(options, plan.worker, number))

    return records.enumerate(epoch * 2**32).map(decode, plan.calls, **parallel)


def _cached(plan: _Plan) -> TfDataset:
    """Return the images and labels of the first epoch, from a cache in memory or on disk."""
    options, first = plan.options, tf.constant(0, tf.int64)
    # On disk, the order serves runs with any seed.
    seed = 0 if options.cache == "disk" else options.seed
    examples = tf.data.Dataset.range(1).flat_map(_seeded(seed, lambda _: _decoded(plan, first)))
    if options.cache == "memory":
        return examples.cache()
    count = len(range(plan.worker, plan.images, plan.workers))
    return disk_cache(plan.dataset, options, examples, count, (plan.workers, plan.worker))


def _shuffled(plan: _Plan, cache: TfDataset, epoch: Tensor) -> TfDataset:
    """Return the images and labels of a cache in the order of an epoch."""
    options, size = plan.options, plan.options.shuffle_buffer or plan.images
    if not options.training:
        return cache
    if options.cache == "memory":
        # The first epoch fills it, in an order that is shuffled already.
        size = tf.where(tf.equal(epoch, 0), tf.constant(1, tf.int64), size)
    elif options.shuffle_buffer is None:
        size = min(size, max(1, _SHUFFLED_PIXELS // math.prod(options.shape)))
    return cache.shuffle(size, 2 * epoch + 1, reshuffle_each_iteration=False)


def _numbered(plan: _Plan, batches: TfDataset, epoch: Tensor) -> TfDataset:
    """Return the batches of an epoch that this worker is to have, with their numbers."""
    options, number = plan.options, epoch * 2**32
    if plan.workers > 1:  # the last step of some may have no images
        batches = batches.concatenate(_empty_batch(batches).repeat()).take(plan.steps)
    if options.first_step:
        skipped = options.first_step * tf.cast(tf.equal(epoch, options.first_epoch), tf.int64)
        batches, number = batches.skip(skipped), number + skipped
    return batches.enumerate(number)


def _finished(plan: _Plan, numbered: TfDataset) -> TfDataset:
    """Return batches as the model takes them, or the parts of them for each replica."""
    if plan.options.training and plan.options.augment:
        batches = numbered.map(plan.finish, plan.threads, deterministic=plan.options.deterministic)
    else:  # a pass over the pixels: parallel ones would push each other out of the caches
        batches = numbered.map(plan.finish)
    if plan.replicas == 1:
        return batches
    return batches.flat_map(lambda *batch: _parts(batch, plan.replicas))


def _published(dataset: DatasetFacts, options: LoadOptions, images: int) -> TfDataset:
    """Build one epoch of the pipeline that notebooks publish, or of a naive sequential one.

    They decode to float32 and rescale each image. The notebook's reads four shards at a time,
    decodes on all cores, caches in memory, shuffles 1,024 images and prefetches, as many as
    TensorFlow tunes.
    """
    if options.context is not None:
        raise UsageError(f"--recipe {options.recipe} can't be distributed")
    split, naive = dataset.local_split(options.split), options.recipe == "naive"
    decode = decoder(dataset, options, floats=True)
    finish = _finisher(dataset, options, options.linear or _UNCHANGED)
    augments = options.training and options.augment is not None

    def decode_one(record: Tensor) -> Batch:
        return decode(record) if augments else finish(tf.constant(0), decode(record))

    shards, tuned = tf.data.Dataset.range(len(split.shards)), None if naive else tf.data.AUTOTUNE
    records = shards.interleave(reader(dataset, split, options), 1 if naive else _CYCLE, 1, tuned)
    examples = records.map(decode_one, None if naive else cores())
    if not naive:
        examples = examples.cache()
        if options.training:
            examples = examples.shuffle(min(_SHUFFLE, images), options.seed)
    batches = examples.batch(options.batch_size)
    if augments:
        numbered = _each_epoch(options, lambda epoch: batches.enumerate(epoch * 2**32))
        batches = numbered.map(finish)
    elif options.epochs > 1:
        batches = batches.repeat(options.epochs)
    batches = batches if naive else batches.prefetch(tf.data.AUTOTUNE)
    count = -(-images // options.batch_size) * options.epochs
    return batches.apply(tf.data.experimental.assert_cardinality(count))


def _finisher(
    dataset: DatasetFacts, options: LoadOptions, rescale: Rescale | None, worker: int = 0
) -> Callable[[Tensor, Batch], Batch]:
    """Return a function from a batch and its number to what a model takes."""
    augment = as_augment(options.augment) if options.training else None
    zero = zero_pixel(options.linear) if options.linear and augment and augment.needs_mean else None
    change = augmenter(augment, zero) if augment else None
    mix = mixer(augment) if augment and augment.mixes else None
    if mix is not None and not dataset.label_form.is_class_number:
        raise UsageError("--augment mixup and cutmix require one class per image")
    if options.one_hot and dataset.targets:
        raise UsageError("one_hot requires classes, not --task regression")
    one_hot = options.one_hot and dataset.label_form.is_class_number
    scaled, classes = rescaler(rescale) if rescale else None, len(dataset.class_names)

    def finish(number: Tensor, batch: Batch) -> Batch:
        pixels, labels = batch[0], tf.one_hot(batch[1], classes) if one_hot else batch[1]
        if change is not None:
            seed = _seed(options, worker, number)
            pixels = change(pixels, seed)
            if mix is not None:
                pixels, labels = mix(pixels, labels, seed)
        return pixels if scaled is None else scaled(pixels), labels

    return finish


def _seed(options: LoadOptions, worker: int, number: Tensor) -> Tensor:
    """Return the seed of a batch, or of a record, by its number in all epochs."""
    return tf.stack([tf.constant(options.seed + worker * 2**32, tf.int64), number])


def _each_epoch(options: LoadOptions, one_epoch: Callable[[Tensor], TfDataset]) -> TfDataset:
    """Return the batches of all epochs of an iterator: each goes on where the last one ended."""
    with tf.device("CPU:0"):  # where all of tf.data is
        iterators = tf.Variable(0, dtype=tf.int64, trainable=False)
    seeded = _seeded(options.seed, one_epoch)

    def start() -> Tensor:
        # One operation reads and counts: iterators may begin in several threads.
        earlier = tf.raw_ops.ResourceCountUpTo(
            resource=iterators.handle, limit=tf.int64.max, T=tf.int64
        )
        return options.first_epoch + earlier * options.epochs

    iterator = tf.data.Dataset.range(1)
    if options.epochs == 1:  # as `fit` has it: each iterator prepares its functions again
        return iterator.flat_map(lambda _: seeded(start()))
    numbers = iterator.flat_map(lambda _: tf.data.Dataset.range(start(), tf.int64.max))
    return numbers.take(options.epochs).flat_map(seeded)


def _seeded(seed: int, make: Callable[[Tensor], TfDataset]) -> Callable[[Tensor], TfDataset]:
    """Return a function in whose graph a seed applies, whatever the program's own seed is."""

    def seeded(epoch: Tensor) -> TfDataset:
        # TensorFlow takes it modulo 2**31 - 1, and can't add the epoch to one of 0.
        tf.random.set_seed(1 + seed % (2**31 - 2))
        return make(epoch)

    return seeded


def _share(images: int, options: LoadOptions) -> tuple[int, int, int]:
    """Return the number of workers, which of them this is, and how many replicas it has."""
    context, batch_size = options.context, options.batch_size
    count, replicas = context.num_input_pipelines, context.num_replicas_in_sync
    if images < count or batch_size < replicas or batch_size % count:
        multiple = f" that is a multiple of {count}" if count > 1 else ""
        raise UsageError(
            f"{images} images can't be distributed in batches of {batch_size}",
            expected=f"at least {count} images, and a batch size of at least {replicas}{multiple}",
        )
    return count, context.input_pipeline_id, max(replicas // count, 1)


def _parts(batch: Batch, replicas: int) -> TfDataset:
    """Return the part of a batch of each replica, in their order."""
    count = tf.shape(batch[1], tf.int64)[0]

    def part(replica: Tensor) -> Batch:
        first, end = count * replica // replicas, count * (replica + 1) // replicas
        return batch[0][first:end], batch[1][first:end]

    return tf.data.Dataset.range(replicas).map(part)


def _empty_batch(batches: TfDataset) -> TfDataset:
    """Return a dataset of one batch like the others, without images."""
    nothing = [tf.zeros([0, *spec.shape[1:]], spec.dtype) for spec in batches.element_spec]
    return tf.data.Dataset.from_tensors(tuple(nothing))
