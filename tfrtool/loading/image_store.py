"""All images of a split in memory, in one piece: filled on the way, and read at random."""

import contextlib
import mmap
import os
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from tfrtool.engines.pool import cores
from tfrtool.loading.augment import epoch_augmenter, epoch_counter
from tfrtool.loading.disk_cache import DiskCache
from tfrtool.loading.options import LoadOptions
from tfrtool.loading.order import RowOrder
from tfrtool.loading.python_calls import changed, plain, python_call
from tfrtool.loading.tensors import Batch, Tensor, TfDataset

_TOUCH = 23
"""MADV_POPULATE_WRITE, by Linux' mman-common.h: pages are made at once and not one by one, when
each is written to for the first time. That takes two thirds of the time. Since Linux 5.14."""


class ImageStore:
    """Decoded images and their labels, each in a row of one tensor, or of a file.

    tf.data's own cache keeps a tensor for each image, and a batch is copied together from these.
    From one tensor it is gathered in a single operation, in less time; the order of an epoch can
    be any, for no buffer limits it; and the memory is that of the pixels and no more.

    The first iterator that comes fills the store on its way: what it gives in the first of all
    epochs is not gathered from rows. TensorFlow is given the memory itself, and so sees what is
    written to it later. Another iterator that comes meanwhile stores the same images in the same
    rows.
    """

    def __init__(self, images: int, image_size: int, classes: int | None = None) -> None:
        """Make room for some images; with ``classes``, labels are that many float32 each."""
        shape = images, image_size, image_size, 3
        self._images, pixels, self._pages = _memory(shape, np.uint8)
        self._touched = 0  # bytes of that, from the start
        dtype, width = (np.int64, ()) if classes is None else (np.float32, (classes,))
        self._labels, labels, _ = _memory((images, *width), dtype)
        self._tensors = pixels, labels
        self._count = images
        self._full = False
        self._order: RowOrder
        self._options: LoadOptions
        self._gone: dict[int, int] = {}  # steps that were given as they came, by epoch
        self._cache: DiskCache | None = None

    @classmethod
    def of(cls, cache: DiskCache) -> "ImageStore":
        """Return a full store of what a file holds."""
        store = cls(0, cache.image_size)
        store._tensors = store._tensors[0], tf.constant(cache.labels)
        store._count, store._full, store._cache = len(cache.labels), True, cache
        return store

    def missing(self) -> Tensor:
        """Return how many shards an iterator that begins is to ``take``: int64 [], in a graph.

        That is all of them (-1) as long as there are rows to be filled, and then none.
        """
        return python_call(self._missing, (), tf.int64, [])

    def _missing(self) -> Tensor:
        return np.int64(0 if self._full else -1)

    def batches(
        self,
        decoded: Callable[[], TfDataset],
        order: RowOrder,
        options: LoadOptions,
        pipeline: int = 0,
        finish: Callable[[Tensor, Tensor], Batch] = lambda images, labels: (images, labels),
    ) -> TfDataset:
        """Return the batches of all epochs, augmented.

        They are of images, uint8 [n, size, size, 3], or float32 after some augmentations, and
        labels, int64 [n] or float32 [n, classes], and then what ``finish`` makes of them. It is
        ``decoded`` that gives a dataset of batches of the order's size, uint8 [n, size, size, 3],
        and labels: in every iteration the same in the same order, or nothing where nothing is
        missing. The first epoch, by number, has them as they come; later ones wait for all. The
        number of this pipeline, where there are several, is ``pipeline``. A store has one.
        """
        self._order, self._options = order, options
        epochs, counter = options.epochs, epoch_counter(options)
        augment = epoch_augmenter(options, pipeline)

        def made(epoch: Tensor, number: Tensor, *pair: Tensor) -> Batch:
            return finish(*(pair if augment is None else augment(epoch, number, *pair)))

        def from_rows(step: Tensor) -> Batch:
            epoch, number = step // order.steps, step % order.steps
            rows, (images, labels) = order.rows(epoch, number), self._tensors
            if self._cache is None:
                taken = tf.gather(images, rows)
            else:
                taken = python_call(self._cache.read, (rows,), tf.uint8, [None, *images.shape[1:]])
            return made(epoch, number, taken, tf.gather(labels, rows))

        def one_iterator(epoch: Tensor) -> TfDataset:
            def stored(number: Tensor, batch: Batch) -> Tensor:
                return python_call(self._store, (epoch, number, *batch), tf.bool, [])

            def left(_: Tensor) -> TfDataset:
                return tf.data.Dataset.range(
                    *tf.unstack(python_call(self._left, (epoch,), tf.int64, [2]))
                )

            def given(number: Tensor, pair: Batch) -> Batch:
                return made(epoch, number, *pair)

            streamed = changed(decoded().enumerate(), "Filter", stored)
            rest = changed(tf.data.Dataset.range(1), "FlatMap", left)
            if augment is None:
                streamed = changed(streamed, "Map", given, cores(), options.deterministic)
                return streamed.concatenate(changed(rest, "Map", from_rows))
            # These are long, so that it pays to have TensorFlow rewrite their graphs.
            calls = {"num_parallel_calls": cores(), "deterministic": options.deterministic}
            rest = rest.map(plain(from_rows), **calls)
            return streamed.map(plain(given), **calls).concatenate(rest)

        once = tf.data.Dataset.range(1)
        return changed(once, "FlatMap", lambda _: one_iterator(counter.assign_add(epochs) - epochs))

    def _store(self, epoch: Tensor, number: Tensor, images: Tensor, labels: Tensor) -> Tensor:
        """Store a batch, and return whether it is one of an epoch's, and goes on from here."""
        start = int(number) * self._order.batch_size
        end = start + len(labels)
        if end > self._count:
            raise ValueError(f"more images than the {self._count} that were counted")
        # Another iterator has filled it midway.
        if self._full:
            return np.bool_(False)
        self._touch(end)
        self._images[start:end] = images
        self._labels[start:end] = labels
        if end == self._count:  # another iterator's batch may be the last, and this one before it
            self._full = True
        if epoch or number < self._options.first_step:
            return np.bool_(False)
        self._gone[int(epoch)] = int(number) + 1
        return np.bool_(True)

    def _left(self, epoch: Tensor) -> Tensor:
        """Return the steps that remain, the first and their end, when all images have come."""
        if not self._full:
            raise ValueError(f"fewer images than the {self._count} that were counted")
        order, options = self._order, self._options
        # Of a first epoch that is begun midway, the steps before are left out.
        first = options.first_step if epoch == options.first_epoch else 0
        first = self._gone.pop(int(epoch), first)
        return epoch * order.steps + np.array([first, options.epochs * order.steps], np.int64)

    def _touch(self, end: int) -> None:
        """Have the pages of all rows before ``end``, where the system can make many at a time."""
        pages, begin = self._pages, self._touched
        size = len(pages)
        upto = min(-(-end * self._images[0].nbytes // mmap.PAGESIZE) * mmap.PAGESIZE, size)
        if hasattr(pages, "madvise") and upto > begin:
            with contextlib.suppress(OSError):  # an older system, where each is made when written
                pages.madvise(_TOUCH, begin, upto - begin)
        self._touched = max(upto, begin)


def _memory(shape: tuple[int, ...], dtype: type) -> tuple[Tensor, Tensor, mmap.mmap]:
    """Return memory that is not touched yet, as an array, as a tensor of the same, and its pages.

    It comes in pages from the system, which belong to no other process: those that may be shared
    take a fifth longer. NumPy's own memory of this size would be asked for in huge pages. Where a
    virtual machine has not had them from its host yet, they take four times as long as small ones.
    """
    count = int(np.prod(shape))
    size = max(count * np.dtype(dtype).itemsize, 1)
    private = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if os.name == "posix" else {}
    pages = mmap.mmap(-1, size, **private)
    array: Tensor = np.frombuffer(pages, dtype, count).reshape(shape)
    with tf.device("CPU:0"):
        return array, tf.experimental.dlpack.from_dlpack(array.__dlpack__()), pages
