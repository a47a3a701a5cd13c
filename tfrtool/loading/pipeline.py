"""From shards to batches: interleave, map, cache, shuffle, batch, augment, rescale, prefetch."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from tfrtool.engines.pool import cores
from tfrtool.errors import DatasetError, UsageError
from tfrtool.loading.augment import epoch_augmenter, epoch_counter
from tfrtool.loading.dataset import Dataset
from tfrtool.loading.decoding import LARGE_RECORD, decoder, parser
from tfrtool.loading.disk_cache import (
    CacheKey,
    default_cache_directory,
    open_disk_cache,
    write_disk_cache,
)
from tfrtool.loading.image_store import ImageStore
from tfrtool.loading.normalize import rescaler
from tfrtool.loading.options import Cache, Decoding, LoadOptions, Recipe
from tfrtool.loading.order import RowOrder
from tfrtool.loading.published import STAGES_OF, load_published
from tfrtool.loading.python_calls import changed, plain
from tfrtool.loading.reading import own_shards, part_reader
from tfrtool.loading.share import Share, empty_batch
from tfrtool.loading.tensors import Batch, Tensor, TfDataset
from tfrtool.storage.progress import OnProgress, no_progress

_CORES = cores()
_CYCLE = 4
_SHUFFLE = 1024
_SHUFFLED_BYTES = 32 * 2**20
"""Of records in the shuffle buffer: 1,024 photographs of a usual size."""

_FILLED_FROM = 16
"""Shards that are read at a time where all images will be kept: what the first epoch begins with
is from all of them. As many of a store would have to be fetched before it begins."""

_AHEAD = 8
"""Images for each core that are begun before the first of them is done, so that no core has to wait
for the others or for what becomes of a batch."""

_PREFETCH = 2
_MANY = 100_000
"""Shards, of which no split has more."""

_FILES, _IMAGES = 0, 1
"""What a shuffle's seed is for: two shuffles with one seed would move things alike."""


def count_images(dataset: Dataset, options: LoadOptions) -> int:
    """Return how many images an epoch has; it is an error if that is none."""
    records = dataset.split(options.split).records
    images = records if options.holdout is None else options.holdout.count(records)
    if images == 0:
        what = f"split {options.split!r} has too few records to hold out a part"
        raise DatasetError(what, path=dataset.directory, found=records)
    return images


def has_disk_cache(dataset: Dataset, options: LoadOptions, share: Share) -> bool:
    """Tell whether an earlier run has left a whole cache on disk of a share of the images."""
    key = CacheKey.of(dataset, options, share.images(count_images(dataset, options)), share)
    directory = options.cache_directory or default_cache_directory()
    return open_disk_cache(directory, key, pixels=False) is not None


def load(
    dataset: Dataset,
    options: LoadOptions,
    context: Any = None,
    on_progress: OnProgress = no_progress,
) -> TfDataset:
    """Build the pipeline of a split; see `Dataset.load`."""
    images, batch_size = count_images(dataset, options), options.batch_size
    steps = -(-images // batch_size)
    if options.recipe is not Recipe.TFRTOOL:
        if context is not None:
            raise UsageError(f"--recipe {options.recipe.value} can't be distributed")
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
        growing=options.cache is Cache.MEMORY,
    )
    if options.first_step >= order.steps:
        raise UsageError(
            f"first_step must be from 0 to {order.steps - 1}, got {options.first_step}"
        )
    loader = _Loader(dataset, options, share, order)
    batches = loader.streamed() if options.cache is Cache.NONE else loader.stored(on_progress)
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
    if dataset.shard_cache is not None:  # threads that wait for shards don't decode
        chosen.threading.private_threadpool_size = _CORES + (options.cycle_length or _CYCLE)
    batches = batches.with_options(chosen)
    if options.first_step:  # the next iterator, if there is one, has whole epochs
        return batches
    count = steps * share.replicas * options.epochs
    return batches.apply(tf.data.experimental.assert_cardinality(count))


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

    def _decoded(
        self,
        on_files: Callable[[TfDataset], TfDataset] = lambda files: files,
        on_records: Callable[[TfDataset], TfDataset] = lambda records: records,
        cycle: int = _CYCLE,
        batch_size: int | None = None,
    ) -> TfDataset:
        """Build the part of the pipeline before the cache.

        What it gives is one epoch: pairs of an image, uint8 [size, size, 3], and a label, int64 [];
        with ``batch_size``, batches of them; in an order of its own wherever it comes from a cache.
        ``on_files`` changes the dataset of the shards' numbers, and ``on_records`` that of records
        before they are decoded. ``cycle`` shards are read at a time.
        """
        options, split = self.options, self.dataset.split(self.options.split)
        shards = own_shards(split, options.holdout, self.share)
        cycle = min(options.cycle_length or cycle, len(shards))
        deterministic = options.deterministic or options.cache is not Cache.NONE
        self.dataset.fetch_ahead([split.shards[number] for number in shards])
        numbers = on_files(_numbers(shards))
        read = part_reader(self.dataset, split, options.holdout, self.share)
        ways: dict[str, Any] = {"cycle_length": cycle, "block_length": options.block_length or 1}
        records = changed(numbers, "Interleave", read, min(cycle, _CORES), deterministic, **ways)
        records = on_records(records)
        parsed = options.batched_parse is not None
        if parsed:
            parse = plain(parser(self.dataset, batched=True))
            records = records.batch(options.batched_parse).map(parse).unbatch()
        fast = options.decode is Decoding.FAST
        large = split.record_bytes(shards) > LARGE_RECORD
        size = options.image_size
        decode = decoder(self.dataset, size, large=large, fast=fast, parsed=parsed)
        calls = options.parallel_calls or _CORES * _AHEAD
        if parsed:  # of lists, `changed` knows nothing
            decoded = records.map(plain(decode), calls, deterministic)
        else:
            # One thread for each image, which goes from one operation to the next, takes 3 % off
            # the CPU time of small ones. Where operations choose between others, it waits for ever.
            one: dict[str, Any] = {"use_inter_op_parallelism": fast}
            decoded = changed(records, "Map", decode, calls, deterministic, **one)
        return decoded if batch_size is None else decoded.batch(batch_size)

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

        def filling() -> TfDataset:
            self._set_seed()
            return self._decoded(
                lambda files: self._shuffled(files, _MANY, _FILES).take(store.missing()),
                lambda records: self._shuffled(records, self._window(), _IMAGES),
                cycle=_FILLED_FROM if options.training else _CYCLE,
                batch_size=order.batch_size,
            )

        return store.batches(filling, order, options, self.share.number, self._finish)

    def _finish(self, images: Tensor, labels: Tensor) -> Batch:
        rescale = self.options.rescale
        return images if rescale is None else rescaler(rescale)(images), labels

    def _window(self) -> int:
        """Return the size of the shuffle buffer, in records."""
        split = self.dataset.split(self.options.split)
        each = split.record_bytes(own_shards(split, self.options.holdout, self.share))
        usual = max(1, min(_SHUFFLE, int(_SHUFFLED_BYTES / max(each, 1))))
        return min(self.options.shuffle_buffer or usual, self.order.images)

    def _set_seed(self) -> None:
        """Set the seed of this graph alone: what the program set for itself plays no part."""
        # TensorFlow takes it modulo 2**31 - 1, and can't add the epoch to one of 0.
        tf.random.set_seed(1 + self.options.seed % (2**31 - 2))

    def _shuffled(self, items: TfDataset, size: int, seed: Tensor) -> TfDataset:
        if not self.options.training:
            return items
        return items.shuffle(size, seed=seed, reshuffle_each_iteration=False)

    def streamed(self) -> TfDataset:
        """Return batches of images that are decoded anew in every epoch."""
        options, augment = self.options, epoch_augmenter(self.options, self.share.number)
        counter, window = epoch_counter(options), self._window()

        def one_epoch(epoch: Tensor) -> TfDataset:
            self._set_seed()
            skipped = options.first_step * tf.cast(tf.equal(epoch, options.first_epoch), tf.int64)

            def files(numbers: TfDataset, epoch: Tensor = epoch) -> TfDataset:
                return self._shuffled(numbers, _MANY, epoch * 2 + _FILES)

            def images(records: TfDataset) -> TfDataset:
                # Before they are decoded, images are a sixth of the size.
                mixed = self._shuffled(records, window, epoch * 2 + _IMAGES)
                return mixed.skip(skipped * self.order.batch_size) if options.first_step else mixed

            size = self.order.batch_size
            batches = self._decoded(files, images, batch_size=size)
            if self.order.steps > -(-self.order.images // self.order.batch_size):
                batches = batches.concatenate(empty_batch(batches))
            if augment is None:
                return changed(batches, "Map", self._finish, _CORES, options.deterministic)
            return batches.enumerate(skipped).map(
                plain(lambda number, batch: self._finish(*augment(epoch, number, *batch))),
                num_parallel_calls=_CORES,
                deterministic=options.deterministic,
            )

        epochs = tf.data.Dataset.range(options.epochs)
        return changed(epochs, "FlatMap", lambda _: one_epoch(counter.assign_add(1) - 1))
