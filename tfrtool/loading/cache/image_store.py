"""All images of a split in memory, in one piece: filled on the way, and read at random."""

import mmap

import numpy as np
import tensorflow as tf

from tfrtool.engines.processes import cores
from tfrtool.loading.augment.augment import epoch_augmenter, epoch_counter
from tfrtool.loading.cache.disk_cache import DiskCache
from tfrtool.loading.pipeline.load_options import LoadOptions
from tfrtool.loading.pipeline.order import RowOrder
from tfrtool.loading.pipeline.python_calls import plain, python_call
from tfrtool.loading.pipeline.tensors import Batch, Tensor, TfDataset

_CHUNK = 32
"""Images that are stored at a time: each time costs a call of Python."""

_END = -1


class ImageStore:
    """Decoded images and their labels, each in a row of one tensor, or of a file.

    tf.data's own cache keeps a tensor for each image, and a batch is copied together from these.
    From one tensor it is gathered in a single operation, in less time; the order of an epoch can
    be any, for no buffer limits it; and the memory is that of the pixels and no more.

    The first iterator that comes fills the store on its way, and asks for rows once they are
    there. TensorFlow is given the memory itself, and so sees what is written to it later. Another
    iterator that comes meanwhile stores the same images in the same rows.
    """

    def __init__(self, images: int, image_size: int, classes: int | None = None) -> None:
        """Make room for some images; with ``classes``, labels are that many float32 each."""
        self._images, pixels = _memory((images, image_size, image_size, 3), np.uint8)
        dtype, width = (np.int64, ()) if classes is None else (np.float32, (classes,))
        self._labels, labels = _memory((images, *width), dtype)
        self._tensors = pixels, labels
        self._count = images
        self._full = False
        self._cache: DiskCache | None = None

    @classmethod
    def of(cls, cache: DiskCache) -> "ImageStore":
        """Return a full store of what a file holds."""
        store = cls(0, cache.image_size)
        store._tensors = store._tensors[0], tf.constant(cache.labels)
        store._count, store._full, store._cache = len(cache.labels), True, cache
        return store

    def missing(self) -> Tensor:
        """Return whether there are rows to be filled yet, bool [], as a part of a graph."""
        return python_call(self._is_missing, (), tf.bool, [])

    def _is_missing(self) -> Tensor:
        return np.bool_(not self._full)

    def batches(
        self, decoded: TfDataset, order: RowOrder, options: LoadOptions, pipeline: int = 0
    ) -> TfDataset:
        """Return the batches of all epochs, augmented, each as soon as its rows are there.

        They are of images, uint8 [n, size, size, 3], or float32 after some augmentations, and
        labels, int64 [n] or float32 [n, classes]. ``decoded`` gives pairs of an image, uint8
        [size, size, 3], and a label: in every iteration the same in the same order, or nothing
        where nothing is missing. ``pipeline`` is the number of this one, where there are several.
        """
        epochs, counter = options.epochs, epoch_counter(options)
        augment = epoch_augmenter(options, pipeline)
        store = plain(
            lambda number, chunk: python_call(self._store, (number, *chunk), tf.int64, [])
        )
        chunks = decoded.batch(_CHUNK).enumerate().map(store)
        rows = chunks.concatenate(tf.data.Dataset.from_tensors(np.int64(_END)))

        def ready(
            state: tuple[Tensor, Tensor], stored: Tensor
        ) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
            """Return the steps that the last chunk was needed for; at the end all that remain."""
            epoch, done = state
            epoch = tf.cond(epoch < 0, lambda: counter.assign_add(epochs) - epochs, lambda: epoch)
            upto = tf.cond(
                stored < 0,
                lambda: tf.constant(epochs * order.steps, tf.int64),
                lambda: order.ready(epoch, stored),
            )
            start = epoch * order.steps
            return (epoch, upto), (start + done, start + upto)

        state = (np.int64(-1), np.int64(0))
        checked = rows.map(plain(lambda stored: python_call(self._check, (stored,), tf.int64, [])))
        steps = checked.scan(state, plain(ready)).flat_map(plain(tf.data.Dataset.range))

        def batch(step: Tensor) -> Batch:
            epoch, number = step // order.steps, step % order.steps
            rows, (images, labels) = order.rows(epoch, number), self._tensors
            if self._cache is None:
                taken = tf.gather(images, rows)
            else:
                taken = python_call(self._cache.read, (rows,), tf.uint8, [None, *images.shape[1:]])
            pair = taken, tf.gather(labels, rows)
            return pair if augment is None else augment(epoch, number, *pair)

        calls = {"num_parallel_calls": cores(), "deterministic": options.deterministic}
        return steps.map(plain(batch), **({} if augment is None else calls))

    def _store(self, number: Tensor, images: Tensor, labels: Tensor) -> Tensor:
        """Store a chunk, and return how many rows there are."""
        start = int(number) * _CHUNK
        end = start + len(labels)
        if end > self._count:
            raise ValueError(f"there are more than the {self._count} images that were counted")
        # When another iterator has filled it midway, this one misses shards, and counts wrongly.
        if not self._full:
            self._images[start:end] = images
            self._labels[start:end] = labels
            self._full = end == self._count
        return np.int64(end)

    def _check(self, stored: Tensor) -> Tensor:
        """Return what was stored, when the end comes no earlier than it should."""
        if stored == _END and not self._full:
            raise ValueError(f"there are fewer than the {self._count} images that were counted")
        return stored


def _memory(shape: tuple[int, ...], dtype: type) -> tuple[Tensor, Tensor]:
    """Return memory that is not touched yet, as an array and as a tensor of the same.

    It comes in pages from the system. NumPy's own memory of this size would be asked for in huge
    pages, which the system takes longer to find than it takes to decode the images.
    """
    count = int(np.prod(shape))
    pages = mmap.mmap(-1, max(count * np.dtype(dtype).itemsize, 1))
    array: Tensor = np.frombuffer(pages, dtype, count).reshape(shape)
    with tf.device("CPU:0"):
        return array, tf.experimental.dlpack.from_dlpack(array.__dlpack__())
