"""Per-channel statistics, held against numpy in float64."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from tfrtool.errors import DatasetError
from tfrtool.loading.normalize import rescaler, standard_rescale
from tfrtool.loading.options import Rescale

pytestmark = pytest.mark.tf


def _dataset(batches: Sequence[Any]) -> Any:
    spec = tf.TensorSpec([None, None, None, 3], tf.uint8)
    images = tf.data.Dataset.from_generator(lambda: iter(batches), output_signature=spec)
    return images.map(lambda batch: (batch, tf.shape(batch)[0]))


def _statistics(images: Any) -> tuple[Any, Any]:
    """Return the mean and the deviation of each channel, as the rescaling has them."""
    rescale = standard_rescale(images)
    return -np.divide(rescale.offset, rescale.scale), 1 / np.array(rescale.scale)


def _random(*shape: int, low: int = 0, seed: int = 0) -> Any:
    return np.random.default_rng(seed).integers(low, 256, shape, dtype=np.uint8)


@settings(max_examples=8)
@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.integers(1, 9), st.integers(1, 9)), min_size=1, max_size=4
    ),
    st.sampled_from([0, 254]),
)
def test_equals_numpy(shapes: list[tuple[int, int, int]], low: int) -> None:
    """Mean and deviation are those of all pixels, whatever the batches are like."""
    batches = [_random(*shape, 3, low=low, seed=i) for i, shape in enumerate(shapes)]
    pixels = np.concatenate([batch.reshape(-1, 3) for batch in batches]).astype(np.float64)
    if not len(pixels):
        with pytest.raises(DatasetError):
            standard_rescale(_dataset(batches))
        return
    mean, std = _statistics(_dataset(batches))
    np.testing.assert_allclose(mean, pixels.mean(0), rtol=1e-14)
    expected = np.where(pixels.std(0), pixels.std(0), 255)
    np.testing.assert_allclose(std, expected, rtol=1e-12, atol=1e-12)


def test_batches_make_no_difference() -> None:
    """The same images give the same statistics, however they are batched."""
    images = _random(20, 8, 6, 3)
    pairs = tf.data.Dataset.from_tensor_slices((images, np.arange(20)))
    expected = standard_rescale(_dataset([images]))
    assert standard_rescale(pairs.batch(7)) == expected
    assert standard_rescale(pairs.batch(3)) == expected


def test_no_drift() -> None:
    """One odd pixel among two million shows to the last digit; float32 sums would lose it."""
    white = np.full((2, 1024, 1024, 3), 255, np.uint8)
    white[0, 0, 0] = 254
    count = 2 * 1024 * 1024
    mean, std = _statistics(_dataset([white]))
    assert mean[1] == pytest.approx(255 - 1 / count, rel=1e-15)
    assert std[1] == pytest.approx(np.sqrt((1 - 1 / count) / count), rel=1e-12)


def test_rescaled_pixels_are_standard() -> None:
    """After the rescaling, each channel has mean 0 and deviation 1."""
    images = _random(8, 16, 16, 3)
    images[..., 1] //= 3
    rescale = rescaler(standard_rescale(_dataset([images])))
    rescaled = np.asarray(rescale(tf.constant(images))).astype(np.float64)
    np.testing.assert_allclose(rescaled.mean((0, 1, 2)), 0, atol=1e-5)
    np.testing.assert_allclose(rescaled.std((0, 1, 2)), 1, rtol=1e-5)


def test_channel_without_variation_becomes_zero() -> None:
    """A deviation of 0 divides nothing: such a channel is 0, and within -1..1 elsewhere."""
    images = _random(2, 4, 4, 3)
    images[..., 2] = 200
    rescale = rescaler(standard_rescale(_dataset([images])))
    np.testing.assert_allclose(rescale(tf.constant(images))[..., 2], 0, atol=1e-6)
    other = np.asarray(rescale(tf.constant(np.zeros((1, 1, 1, 3), np.uint8))))
    assert other[0, 0, 0, 2] == pytest.approx(-200 / 255)


@pytest.mark.parametrize("numbers", [(1 / 255, 0.0), (1 / 127.5, -1.0), (0.017, -2.1), (1.0, 0.0)])
def test_grey_levels_are_the_same_in_any_dtype(numbers: tuple[float, float]) -> None:
    """Images of a cache are uint8, and others whole float32: to the last bit they come to one."""
    levels = np.arange(256, dtype=np.uint8).reshape(1, 16, 16, 1).repeat(3, -1)
    rescale = rescaler(Rescale(scale=numbers[0], offset=numbers[1]))
    found = [rescale(tf.constant(levels.astype(kind))).numpy() for kind in (np.uint8, np.float32)]
    assert found[0].tobytes() == found[1].tobytes()
