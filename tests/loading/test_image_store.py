"""The store of decoded images in memory."""

from __future__ import annotations

import gc
import os
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tfrtool.loading.image_store import ImageStore
from tfrtool.loading.options import LoadOptions
from tfrtool.loading.order import RowOrder

pytestmark = pytest.mark.tf

SIZE = 8


class _Decoded:
    """Images that count how often they are made; the shade of each is its number."""

    def __init__(self, tf: Any, images: int, claimed: int | None = None) -> None:
        self.made = 0
        self.store = ImageStore(images if claimed is None else claimed, SIZE)
        files = tf.data.Dataset.range(1).flat_map(
            lambda _: tf.data.Dataset.range(1).take(self.store.missing())
        )
        self.dataset = files.flat_map(lambda _: tf.data.Dataset.range(images)).map(
            lambda number: (
                tf.ensure_shape(
                    tf.numpy_function(self._image, (number,), tf.uint8), (SIZE, SIZE, 3)
                ),
                number * 10,
            )
        )

    def _image(self, number: Any) -> Any:
        self.made += 1
        return np.full((SIZE, SIZE, 3), number, np.uint8)

    def batches(self, order: RowOrder, epochs: int = 1) -> Any:
        """Return a dataset of the batches of all epochs."""
        options = LoadOptions(image_size=SIZE, epochs=epochs)
        return self.store.batches(lambda: self.dataset.batch(order.batch_size), order, options)


def _order(images: int) -> RowOrder:
    return RowOrder(images=images, batch_size=7, shuffled=True, block=None, seed=1)


def _numbers(batches: Any) -> list[int]:
    numbers = []
    for images, labels in batches:
        shades = images.numpy()[:, 0, 0, 0]
        assert (images.numpy() == shades[:, None, None, None]).all()
        assert (labels.numpy() == shades.astype(int) * 10).all()
        numbers += shades.tolist()
    return numbers


def test_images_are_decoded_once(tf: Any) -> None:
    """Whole epochs come out, in one iterator and in later ones, of images made only once."""
    decoded = _Decoded(tf, 100)
    batches = decoded.batches(_order(100), epochs=2)
    first = _numbers(batches)
    assert sorted(first[:100]) == sorted(first[100:]) == list(range(100))
    assert sorted(_numbers(batches)) == sorted(first)
    assert decoded.made == 100


def test_an_iterator_that_was_left_early_does_no_harm(tf: Any) -> None:
    """What an abandoned iterator had stored is stored anew."""
    decoded = _Decoded(tf, 100)
    batches = decoded.batches(_order(100))
    next(iter(batches))
    assert sorted(_numbers(batches)) == list(range(100))


@pytest.mark.parametrize(("images", "claimed"), [(100, 90), (90, 100), (0, 5)])
def test_another_number_of_images_is_an_error(tf: Any, images: int, claimed: int) -> None:
    """Where more or fewer images come than were counted, no batch is made of empty memory."""
    decoded = _Decoded(tf, images, claimed)
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"than the .* that were counted"):
        _numbers(decoded.batches(_order(claimed)))


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs Linux's /proc")
def test_memory_is_taken_as_it_fills() -> None:
    """A store that nobody fills takes no memory to speak of: a plan for much costs nothing."""
    before = _resident()
    store = ImageStore(20_000, 224)
    assert _resident() - before < 50 * 2**20
    del store


def test_memory_is_given_back(tf: Any) -> None:
    """When nobody uses a pipeline any more, its images are gone, though TensorFlow saw them."""
    kept, array = _used_store(tf)
    gc.collect()
    assert (kept(), array()) == (None, None)


def _used_store(tf: Any) -> tuple[Any, Any]:
    """Return weak references to a store, and to its memory, that a pipeline has used."""
    images, labels = np.zeros((50, SIZE, SIZE, 3), np.uint8), np.arange(50)
    store, order = ImageStore(50, SIZE), _order(50)
    decoded = tf.data.Dataset.from_tensor_slices((images, labels)).batch(order.batch_size)
    batches = store.batches(lambda: decoded, order, LoadOptions(image_size=SIZE))
    assert sum(len(labels) for _, labels in batches) == 50
    return weakref.ref(store), weakref.ref(store._images.base)


def _resident() -> int:
    with open("/proc/self/statm") as file:  # noqa: PTH123
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
