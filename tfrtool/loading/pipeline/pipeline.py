"""From shards to batches: interleave, map, cache, shuffle, batch, augment, rescale, prefetch."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from tfrtool.engines.processes import cores
from tfrtool.errors import DatasetError, UsageError
from tfrtool.loading.augment.augment import epoch_augmenter, epoch_counter
from tfrtool.loading.cache.disk_cache import (
    CacheKey,
    default_cache_directory,
    open_disk_cache,
    write_disk_cache,
)
from tfrtool.loading.cache.image_store import ImageStore
from tfrtool.loading.dataset.dataset import Dataset
from tfrtool.loading.pipeline.decode import decoder, parser
from tfrtool.loading.pipeline.load_options import Cache, LoadOptions, Recipe, Rescale
from tfrtool.loading.pipeline.normalize import rescaler
from tfrtool.loading.pipeline.order import RowOrder
from tfrtool.loading.pipeline.python_calls import plain
from tfrtool.loading.pipeline.reading import copies_of, own_shards, part_reader
from tfrtool.loading.pipeline.remote_shards import RemoteShards
from tfrtool.loading.pipeline.share import Share, empty_batch
from tfrtool.loading.pipeline.tensors import Batch, Tensor, TfDataset
from tfrtool.storage.progress import OnProgress, silent

_CORES = cores()
_CYCLE = 4
_SHUFFLE = 1024
_SHUFFLED_BYTES = 32 * 2**20
"""Of records in the shuffle buffer: 1,024 photographs of a usual size."""

_PREFETCH = 2
_MANY = 100_000
"""Shards, of which no split has more."""

_FILES, _IMAGES = 0, 1
"""What a shuffle's seed is for: two shuffles with one seed would move things alike."""

STAGES_OF: dict[Recipe, frozenset[str]] = {
    Recipe.NAIVE: frozenset(),
    Recipe.NOTEBOOK: frozenset({"interleave", "parallel map", "cache", "prefetch"}),
}
"""What the published pipelines do beyond reading, decoding and batching: interleave with cycle 4
and block 1, map on all cores, float32 cache in memory, shuffle 1024, prefetch. The naive one has
none of it: one shard after the other, one record after the other, again in every epoch."""


def count_images(dataset: Dataset, options: LoadOptions) -> int:
    """Return how many images an epoch has; it is an error if that is none."""
    records = dataset.split(options.split).records
    images = records if options.holdout is None else options.holdout.count(records)
    if images == 0:
        what = f"split {options.split!r} has too few records to hold some out"
        raise DatasetError(what, path=dataset.directory, found=records)
    return images


def has_disk_cache(dataset: Dataset, options: LoadOptions, share: Share) -> bool:
    """Tell whether an earlier run has left a whole cache on disk of a share of the images."""
    key = CacheKey.of(dataset, options, share.images(count_images(dataset, options)), share)
    directory = options.cache_directory or default_cache_directory()
    return open_disk_cache(directory, key, pixels=False) is not None


def load(
    dataset: Dataset, options: LoadOptions, context: Any = None, on_progress: OnProgress = silent
) -> TfDataset:
    """Build the pipeline of a split; see `Dataset.load`."""
    images, batch_size = count_images(dataset, options), options.batch_size
    steps = -(-images // batch_size)
    if options.recipe is not Recipe.TFRTOOL:
        if context is not None:
            raise UsageError(f"the recipe {options.recipe.value!r} knows no distribution")
        batches = load_published(dataset, options, images, STAGES_OF[options.recipe])
        return batches.apply(tf.data.experimental.assert_cardinality(steps))
    share = Share.of(context, images, batch_size)
    order = RowOrder(
        images=share.images(images),
        batch_size=batch_size // share.count,
        shuffled=options.training,
        block=options.shuffle_buffer,
        seed=options.seed,
        least_steps=steps,
    )
    split = dataset.split(options.split)
    copies = copies_of(dataset, split, options.cycle_length or _CYCLE)
    loader = _Loader(dataset, options, share, order, copies)
    batches = loader.streamed() if options.cache is Cache.NONE else loader.stored(on_progress)
    if options.rescale is not None:
        rescale = rescaler(options.rescale)
        batches = batches.map(plain(lambda images, labels: (rescale(images), labels)))
    prefetch = _PREFETCH if options.prefetch is None else options.prefetch
    batches = share.for_replicas(batches)
    if prefetch:
        batches = batches.prefetch(prefetch * share.replicas)
    chosen = tf.data.Options()
    # Every number above is given, so there is nothing to tune; and while tuning is on, destroying
    # an iterator that was read to its end waits for the tuner's sleep, of up to 60 s.
    chosen.autotune.enabled = False
    # To rewrite the graph, TensorFlow writes it down for each iterator, with all images in memory
    # that it refers to: as much memory again, and time.
    chosen.experimental_optimization.apply_default_optimizations = False
    chosen.deterministic = options.deterministic
    if copies is not None:  # threads that wait for shards don't keep others from decoding
        chosen.threading.private_threadpool_size = _CORES + copies.waiting
    count = steps * share.replicas * options.epochs
    return batches.with_options(chosen).apply(tf.data.experimental.assert_cardinality(count))


def _numbers(shards: Sequence[int]) -> TfDataset:
    """Return a dataset of the numbers of shards, int64 []."""
    return tf.data.Dataset.from_tensor_slices(np.array(shards, np.int64))


@dataclass(frozen=True, slots=True)
class _Loader:
    """Our pipeline, of all records of a part of a split, or of one of several shares of them."""

    dataset: Dataset
    options: LoadOptions
    share: Share
    order: RowOrder
    copies: RemoteShards | None  # of shards in a store

    def _decoded(
        self,
        on_files: Callable[[TfDataset], TfDataset] = lambda files: files,
        on_records: Callable[[TfDataset], TfDataset] = lambda records: records,
        following: TfDataset | None = None,
    ) -> TfDataset:
        """Build the part of the pipeline before the cache.

        What it gives is one epoch: pairs of an image, uint8 [size, size, 3], and a label, int64 [];
        in an order of its own wherever it comes from a cache. ``on_files`` changes the dataset of
        the shards' numbers, and ``on_records`` that of records before they are decoded. The
        ``following`` numbers are those of the next epoch.
        """
        options, split = self.options, self.dataset.split(self.options.split)
        shards, copies = own_shards(split, options.holdout, self.share), self.copies
        cycle = min(options.cycle_length or _CYCLE, len(shards))
        deterministic = options.deterministic or options.cache is not Cache.NONE
        parallel = {"num_parallel_calls": min(cycle, _CORES), "deterministic": deterministic}
        numbers = on_files(_numbers(shards))
        if copies is not None:
            numbers = copies.ahead(numbers, following)
            parallel = parallel if copies.parallel else {}
        records = numbers.interleave(
            part_reader(self.dataset, split, options.holdout, self.share, copies),
            cycle_length=cycle,
            block_length=options.block_length or 1,
            **parallel,
        )
        records = on_records(records)
        parsed = options.batched_parse is not None
        if parsed:
            parse = plain(parser(self.dataset, batched=True))
            records = records.batch(options.batched_parse).map(parse).unbatch()
        decode = decoder(self.dataset, options.image_size, parsed=parsed)
        # uint8 between here and the rescaling: a quarter of the memory of float32 in the cache.
        return records.map(
            plain(decode),
            num_parallel_calls=options.parallel_calls or _CORES,
            deterministic=deterministic,
        )

    def stored(self, on_progress: OnProgress) -> TfDataset:
        """Return batches of images that are all kept in memory, or on disk."""
        options, order = self.options, self.order
        store = ImageStore(order.images, options.image_size, self.dataset.label_width)
        if options.cache is Cache.DISK:
            directory = options.cache_directory or default_cache_directory()
            key = CacheKey.of(self.dataset, options, order.images, self.share)
            cache = open_disk_cache(directory, key)
            if cache is None:
                cache = write_disk_cache(directory, key, self._decoded(), on_progress)
            store = ImageStore.of(cache)
        missing = plain(lambda _: store.missing())
        decoded = self._decoded(lambda files: files.filter(missing))
        return store.batches(decoded, order, options, self.share.number)

    def streamed(self) -> TfDataset:
        """Return batches of images that are decoded anew in every epoch."""
        options, augment = self.options, epoch_augmenter(self.options, self.share.number)
        counter, split = epoch_counter(options), self.dataset.split(options.split)
        own = own_shards(split, options.holdout, self.share)
        records = sum(split.lengths[number] for number in own)
        record_bytes = sum(split.shards[number].stat().st_size for number in own) / records
        usual = max(1, min(_SHUFFLE, int(_SHUFFLED_BYTES / max(record_bytes, 1))))
        size = min(options.shuffle_buffer or usual, self.order.images)

        def one_epoch(epoch: Tensor) -> TfDataset:
            # The seed of this graph alone: what the program set for itself plays no part.
            # TensorFlow takes it modulo 2**31 - 1, and can't add the epoch to one of 0.
            tf.random.set_seed(1 + options.seed % (2**31 - 2))

            def shuffled(items: TfDataset, size: int, seed: Tensor) -> TfDataset:
                if not options.training:
                    return items
                return items.shuffle(size, seed=seed, reshuffle_each_iteration=False)

            def files(numbers: TfDataset, epoch: Tensor = epoch) -> TfDataset:
                return shuffled(numbers, _MANY, epoch * 2 + _FILES)

            following = None
            if self.copies is not None:
                goes_on = plain(lambda _: epoch + 1 < options.first_epoch + options.epochs)
                numbers = _numbers(own).filter(goes_on)
                following = files(numbers, epoch + 1)
            batches = self._decoded(
                files,
                # Before they are decoded, images are a sixth of the size.
                lambda records: shuffled(records, size, epoch * 2 + _IMAGES),
                following,
            ).batch(self.order.batch_size)
            if self.order.steps > -(-self.order.images // self.order.batch_size):
                batches = batches.concatenate(empty_batch(batches))
            if augment is None:
                return batches
            return batches.enumerate().map(
                plain(lambda number, batch: augment(epoch, number, *batch)),
                num_parallel_calls=_CORES,
                deterministic=options.deterministic,
            )

        next_epoch = plain(lambda _: counter.assign_add(1) - 1)
        return tf.data.Dataset.range(options.epochs).map(next_epoch).flat_map(plain(one_epoch))


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
    copies = copies_of(dataset, split, _CYCLE if "interleave" in stages else 1)
    read = part_reader(dataset, split, options.holdout, copies=copies)
    if "interleave" in stages:
        records = files.interleave(read, cycle_length=_CYCLE, block_length=1)
    else:
        records = files.flat_map(read)
    augment = epoch_augmenter(options)
    rescale = rescaler(options.rescale or Rescale(scale=1.0, offset=0.0))
    decode = decoder(dataset, options.image_size, floats=True)

    def rescaled(images: Tensor, labels: Tensor) -> Batch:
        return rescale(images), labels

    def decoded_one(record: Tensor) -> Batch:
        return decode(record) if augment else rescaled(*decode(record))

    calls = _CORES if "parallel map" in stages else None
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
