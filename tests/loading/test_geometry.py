"""Flips, crops and rotations, held against numpy.

What was drawn for an image is found out from the result, and the oracle is given the same.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from tests.loading.augmenting import apply, equal, random_images

pytestmark = pytest.mark.tf


@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_flips_are_exact_and_even(dtype: str) -> None:
    """Each of the four ways to flip is taken by about a quarter of the images."""
    images = random_images(800, 6, 8).astype(dtype)
    taken = np.zeros((2, 2), int)
    for image, result in zip(images, apply("flip,flip-vertical", images), strict=True):
        ways = [
            (i, j) for i, j in np.ndindex(2, 2) if equal(result, image[:: 1 - 2 * i, :: 1 - 2 * j])
        ]
        assert len(ways) == 1
        taken[ways[0]] += 1
    # Five standard deviations of a binomial distribution on either side.
    assert np.all(abs(taken - 200) < 62), taken


@pytest.mark.parametrize(("name", "axis"), [("flip", 1), ("flip-vertical", 0)])
def test_one_flip_alone(name: str, axis: int) -> None:
    """Flipping goes the way that it says, and no other."""
    images = random_images(30)
    results = apply(name, images)
    flipped = [equal(b, np.flip(a, axis)) for a, b in zip(images, results, strict=True)]
    kept = [equal(a, b) for a, b in zip(images, results, strict=True)]
    assert all(a != b for a, b in zip(flipped, kept, strict=True))
    assert any(flipped)
    assert any(kept)


@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_crop_is_a_window_of_the_padded_image(dtype: str) -> None:
    """Each of the 25 windows is taken, about equally often; no pixel is changed."""
    images = random_images(1000, 7, 9).astype(dtype)
    padded = np.pad(images, ((0, 0), (2, 2), (2, 2), (0, 0)), "reflect")
    results = apply("crop=2", images)
    # For each window, which images are what it shows.
    shown = np.array(
        [
            np.all(results == padded[:, y : y + 7, x : x + 9], axis=(1, 2, 3))
            for y, x in np.ndindex(5, 5)
        ]
    )
    assert np.all(shown.sum(0) == 1)
    taken = shown.sum(1)
    assert np.all(abs(taken - 40) < 32), taken


def test_crop_by_nearly_the_whole_image() -> None:
    """The largest shift that there is still reads the reflection."""
    images = random_images(60, 4, 5)
    padded = np.pad(images, ((0, 0), (3, 3), (3, 3), (0, 0)), "reflect")
    for image, result in zip(padded, apply("crop=3", images), strict=True):
        assert any(equal(result, image[y : y + 4, x : x + 5]) for y, x in np.ndindex(7, 7))


@pytest.mark.parametrize(("height", "width"), [(1, 1), (3, 40), (2, 90)])
def test_rotation_of_narrow_images(height: int, width: int) -> None:
    """Where one reflection is not enough, there are more: what comes into view is never black."""
    images = random_images(20, height, width) // 2 + 128
    assert apply("rotate=180", images).min() >= 128


def _ramps(count: int, height: int, width: int) -> Any:
    """Return images whose red is the column, whose green is the row, and whose blue is random."""
    images = random_images(count, height, width).astype(np.float32)
    images[..., 0], images[..., 1] = np.arange(width), np.arange(height)[:, None]
    return images


def _source(result: Any, margin: float) -> Any:
    """Return the affine map, [2, 3], from a pixel (x, y, 1) of the result to where it was read.

    It is fitted to red and green, in the circle that a rotation leaves in the image.
    """
    height, width, _ = result.shape
    y, x = np.mgrid[:height, :width]
    radius = min(height, width) / 2 - 1 - margin
    inner = np.hypot(x - (width - 1) / 2, y - (height - 1) / 2) < radius
    places = np.stack([x[inner], y[inner], np.ones(inner.sum())], 1)
    fitted, *_ = np.linalg.lstsq(places, result[inner][:, :2].astype(np.float64), rcond=None)
    return fitted.T


def _bilinear(image: Any, source: Any) -> Any:
    """Read an image, continued by reflection, where an affine map says."""
    height, width, _ = image.shape
    around = 2 * max(height, width)
    padded = np.pad(image, ((around, around), (around, around), (0, 0)), "reflect")
    y, x = np.mgrid[:height, :width]
    column, row = source @ np.stack([x.ravel(), y.ravel(), np.ones(x.size)]) + around
    left, top = np.floor(column).astype(int), np.floor(row).astype(int)
    right, below = (column - left)[:, None], (row - top)[:, None]
    upper = padded[top, left] * (1 - right) + padded[top, left + 1] * right
    lower = padded[top + 1, left] * (1 - right) + padded[top + 1, left + 1] * right
    return (upper * (1 - below) + lower * below).reshape(image.shape)


@pytest.mark.parametrize(
    ("text", "degrees", "crop"),
    [
        ("rotate=40", 40, 0),
        ("rotate=180", 180, 0),
        ("flip,rotate=15", 15, 0),
        ("flip,flip-vertical,crop=4,rotate=7.5", 7.5, 4),
    ],
)
def test_rotation_equals_numpy(text: str, degrees: float, crop: int) -> None:
    """The result is a rotation of the flipped and shifted image, sampled bilinearly everywhere."""
    images = _ramps(24, 31, 40)
    mirrors = set()
    for image, result in zip(images, apply(text, images), strict=True):
        source = _source(result, crop * math.sqrt(2))
        matrix = source[:, :2]
        np.testing.assert_allclose(matrix @ matrix.T, np.eye(2), atol=1e-4)
        # With angles below 90 degrees, the signs on the diagonal tell how it was flipped.
        mirror = np.sign(np.diag(matrix)) if degrees < 90 else np.ones(2)
        mirrors.add(tuple(mirror))
        rotation = mirror[:, None] * matrix
        angle = math.degrees(math.atan2(rotation[1, 0], rotation[0, 0]))
        assert abs(angle) <= degrees + 1e-3
        centre = np.array([(40 - 1) / 2, (31 - 1) / 2])
        shift = matrix @ centre + source[:, 2] - centre
        np.testing.assert_allclose(shift, np.round(shift), atol=1e-3)
        assert np.all(abs(shift) <= crop + 1e-3)
        np.testing.assert_allclose(result, _bilinear(image, source), atol=0.06)
    assert len(mirrors) == 2 ** text.count("flip")


def test_angles_span_their_range_evenly() -> None:
    """Over many images, angles lie from one end to the other, as many left as right."""
    angles = []
    for result in apply("rotate=60", _ramps(600, 12, 12)):
        (cosine, _, _), (sine, _, _) = _source(result, 0)
        angles.append(math.degrees(math.atan2(sine, cosine)))
    parts, _ = np.histogram(angles, bins=6, range=(-60, 60))
    assert parts.sum() == 600
    assert np.all(abs(parts - 100) < 46), parts
