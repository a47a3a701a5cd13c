"""Colours, cutout, and all augmentations together, held against numpy and tf.image.

What was drawn for an image is found out from the result, and the oracle is given the same.
"""

from __future__ import annotations

import colorsys
import functools
import math
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.loading.augmenting import apply, equal, random_images
from tfrtool.errors import UsageError
from tfrtool.loading.augment import augmenter
from tfrtool.loading.options import parse_augment

pytestmark = pytest.mark.tf

EACH = [
    *["flip", "flip-vertical", "crop=5", "rotate=30", "cutout=6"],
    *["brightness", "contrast", "saturation", "hue"],
]
EVERYTHING = ",".join(EACH)


def test_cutout_is_a_grey_square() -> None:
    """Its centre is anywhere; what is outside of it keeps every pixel."""
    images = random_images(500, 9, 12) // 2
    boxes = {_box(y - 2, x - 2, 4, (9, 12)).tobytes(): (y, x) for y, x in np.ndindex(9, 12)}
    centres = np.zeros((9, 12), int)
    for image, result in zip(images, apply("cutout=4", images), strict=True):
        grey = np.all(result == 128, -1)
        assert equal(result[~grey], image[~grey])
        centres[boxes[grey.tobytes()]] += 1
    assert np.count_nonzero(centres) > 100
    assert np.all(abs(centres.sum(0) - 500 / 12) < 31)
    assert np.all(abs(centres.sum(1) - 500 / 9) < 36)


def _box(top: int, left: int, side: int, shape: tuple[int, ...]) -> Any:
    y, x = np.mgrid[: shape[0], : shape[1]]
    return (y >= top) & (y < top + side) & (x >= left) & (x < left + side)


# Colour


def test_brightness_equals_tf_image() -> None:
    """A number is added, another for each image, up to the amount."""
    images = random_images(200, 8, 8).astype(np.float32)
    images[:, 0, 0] = 128
    deltas = []
    for image, result in zip(images, apply("brightness=0.4", images), strict=True):
        delta = float(result[0, 0, 0]) - 128
        oracle = tf.clip_by_value(tf.image.adjust_brightness(image, delta), 0, 255)
        np.testing.assert_allclose(result, oracle, atol=1e-3)
        deltas.append(delta)
    _spans(deltas, -102, 102)


def test_contrast_equals_tf_image() -> None:
    """Distances from each channel's own mean are multiplied, by another factor for each image."""
    # Far from the ends: a factor of up to 1.5 clips nothing. Channels differ in their means.
    images = (random_images(200, 8, 10) // 4 + np.array([60, 90, 120])).astype(np.float32)
    factors = []
    for image, result in zip(images, apply("contrast", images), strict=True):
        factor = float(np.ptp(result[..., 0]) / np.ptp(image[..., 0]))
        np.testing.assert_allclose(result, tf.image.adjust_contrast(image, factor), atol=2e-3)
        factors.append(factor)
    _spans(factors, 0.5, 1.5)


def test_contrast_is_clipped() -> None:
    """Where more contrast leaves the range, values end at 0 and 255."""
    images = np.where(random_images(40, 8, 8) < 128, 0, 255).astype(np.float32)
    results = apply("contrast=1", images)
    assert results.min() == 0
    assert results.max() == 255


@pytest.mark.parametrize("text", ["saturation", "hue", "saturation=0.9,hue=0.5"])
def test_saturation_and_hue_equal_tf_image(text: str) -> None:
    """Both go through hue, saturation and value; grey, black, white and full colours included."""
    images = random_images(60, 8, 8).astype(np.float32)
    images[:, 0, 0] = 200, 150, 100
    images[:, 1, :6] = np.eye(6, 3, dtype=np.float32) * 255
    images[:, 2, :6] = 255 - images[:, 1, :6]
    images[:, 3, :3] = np.array([[[0]], [[255]], [[77]]]).reshape(1, 3, 1)
    changes = []
    for image, result in zip(images, apply(text, images), strict=True):
        before, after = (
            colorsys.rgb_to_hsv(*(float(x) / 255 for x in pixels[0, 0]))
            for pixels in (image, result)
        )
        turn = (after[0] - before[0] + 0.5) % 1 - 0.5
        factor = after[1] / before[1]
        oracle = tf.image.adjust_saturation(image, factor)
        oracle = tf.image.adjust_hue(oracle, turn)
        np.testing.assert_allclose(result, oracle, atol=0.02)
        changes.append((factor, turn))
    factors, turns = np.array(changes).T
    amount = {"saturation": 0.5, "hue": 0.0}.get(text, 0.9)
    assert np.all(abs(factors - 1) <= amount + 1e-4)
    most = {"saturation": 0.0, "hue": 0.2}.get(text, 0.5)
    assert np.all(abs(turns) <= most + 1e-4)
    if amount:
        _spans(factors, 1 - amount, 1 + amount)
    if most:
        _spans(turns, -most, most)


def _spans(values: Any, low: float, high: float) -> None:
    """Check that values lie between two, and near both, with about half on either side."""
    places = (np.asarray(values) - low) / (high - low)
    assert places.min() > -1e-3
    assert places.max() < 1 + 1e-3
    assert places.min() < 0.15
    assert places.max() > 0.85
    assert abs(np.mean(places < 0.5) - 0.5) < 5 * 0.5 / math.sqrt(len(places))


# All together


def test_operations_follow_each_other_with_draws_of_their_own() -> None:
    """All at once is one after the other: adding one changes nothing about what the others draw."""
    images = (random_images(12) // 4 + 90).astype(np.float32)
    order = ["flip", "flip-vertical", "crop=5", "brightness=0.1", "contrast=0.3", "saturation"]
    order += ["hue", "cutout=6"]
    one_by_one = images
    for name in order:
        one_by_one = apply(name, one_by_one)
    np.testing.assert_allclose(apply(",".join(order), images), one_by_one, atol=0.02)
    # A rotation that is too small to be seen comes between them.
    rotated = apply("rotate=0.00001," + ",".join(order), images)
    np.testing.assert_allclose(rotated, one_by_one, atol=0.1)


def test_draws_do_not_depend_on_each_other() -> None:
    """How strongly one operation changes an image tells nothing about any other one."""
    image = np.full((16, 16, 3), 100, np.float32)
    image[..., 0], image[..., 1] = 110 + 2 * np.arange(16), 110 + 2 * np.arange(16)[:, None]
    images = np.repeat(image[None], 400, axis=0)
    # Each number below rises or falls with what was drawn.
    moved = apply("crop=5", images)
    holes = np.all(apply("cutout=3", images) == 128, -1)
    contrast, saturation = apply("contrast", images), apply("saturation", images)
    drawn = [
        apply("flip", images)[:, 0, 0, 0],
        apply("flip-vertical", images)[:, 0, 0, 1],
        apply("rotate=20", images)[:, 2, 8, 0],
        moved[:, 8, 8, 0],
        moved[:, 8, 8, 1],
        np.argmax(holes.any(1), 1),
        np.argmax(holes.any(2), 1),
        apply("brightness", images)[:, 0, 0, 0],
        np.ptp(contrast[..., 0], axis=(1, 2)),
        np.ptp(saturation[:, 15, 15], axis=1),
        apply("hue=0.05", images)[:, 4, 10, 1],
    ]
    assert all(np.std(numbers) > 0 for numbers in drawn)
    correlation = np.corrcoef(drawn) - np.eye(len(drawn))
    # Five standard deviations of the correlation of 400 independent pairs.
    assert abs(correlation).max() < 0.25, np.round(correlation, 2)


@pytest.mark.parametrize("text", [*EACH, EVERYTHING, "brightness=1,contrast=1"])
def test_uint8_is_float32_rounded(text: str) -> None:
    """Integers are rounded once, at the end, and end at 0 and 255: none wraps around."""
    images = random_images(16)
    images[:, :8] = np.where(images[:, :8] < 128, 0, 255)
    results = apply(text, images)
    assert results.dtype == np.uint8
    floats = apply(text, images.astype(np.float32))
    assert floats.dtype == np.float32
    assert floats.min() >= -1e-3
    assert floats.max() <= 255 + 1e-3
    np.testing.assert_allclose(results, floats, atol=0.5 + 1e-3)


@pytest.mark.parametrize("text", [*EACH, EVERYTHING])
def test_images_and_seeds_differ(text: str) -> None:
    """The same image several times in a batch becomes several; another seed makes others."""
    images = np.repeat(random_images(1), 24, axis=0)
    first = apply(text, images, 7, 0)
    assert len({image.tobytes() for image in first}) > 1
    assert equal(apply(text, images, 7, 0), first)
    assert not equal(apply(text, images, 7, 1), first)
    assert not equal(apply(text, images, 8, 0), first)


def test_same_result_in_any_pipeline() -> None:
    """Threads, and running without a graph, change nothing; images stay with their labels."""
    images = np.repeat(random_images(1), 40, axis=0)
    augment = augmenter(parse_augment(EVERYTHING))
    # Eight equal batches: which one a result belongs to is told by the seed alone.
    data = tf.data.Dataset.from_tensor_slices((images, np.arange(40))).batch(5).enumerate()

    def change(number: Any, batch: tuple[Any, Any]) -> tuple[Any, Any]:
        return augment(batch[0], tf.stack([tf.constant(3, tf.int64), number])), batch[1]

    traced = tf.function(change, autograph=False)  # once, for both
    runs = [list(data.map(traced, num_parallel_calls=calls)) for calls in (1, 8)]
    for number, (one, many) in enumerate(zip(*runs, strict=True)):
        assert equal(one[0], many[0])
        assert equal(one[1], np.arange(5 * number, 5 * number + 5))
        alone = augment(tf.constant(images[:5]), tf.constant([3, number], tf.int64))
        np.testing.assert_allclose(
            alone, one[0], atol=1
        )  # fused in a graph, a half may go either way


@pytest.mark.parametrize(
    ("text", "dtype"),
    [*((text, tf.uint8) for text in (*EACH, EVERYTHING)), (EVERYTHING, tf.float32)],
)
def test_in_a_graph_it_is_the_same_and_shapes_stay_known(text: str, dtype: Any) -> None:
    """With an unknown number of images, height, width and channels are known after it, too."""
    traced = _traced(text, dtype)
    (output,) = traced.outputs
    assert (output.shape.as_list(), output.dtype) == ([None, 24, 20, 3], dtype)
    seed = tf.constant([1, 2], tf.int64)
    assert traced(tf.zeros([0, 24, 20, 3], dtype), seed).shape == (0, 24, 20, 3)
    images = random_images(3, 24, 20).astype(dtype.as_numpy_dtype)
    # Fused in a graph, a half may go either way.
    np.testing.assert_allclose(traced(tf.constant(images), seed), apply(text, images), atol=1)


@functools.cache
def _traced(text: str, dtype: Any) -> Any:
    return tf.function(augmenter(parse_augment(text))).get_concrete_function(
        tf.TensorSpec([None, 24, 20, 3], dtype), tf.TensorSpec([2], tf.int64)
    )


def _operations(text: str) -> list[str]:
    graph = _traced(text, tf.uint8).graph.as_graph_def()
    nodes = [*graph.node, *(node for f in graph.library.function for node in f.node_def)]
    return [node.op for node in nodes]


def test_only_what_is_asked_for_is_in_the_graph() -> None:
    """What is not done takes no time; nothing goes through Python."""
    draws = [_operations(text).count("StatelessRandomUniformV2") for text in EACH]
    assert draws == [1, 1, 2, 1, 2, 1, 1, 1, 1]
    assert "ImageProjectiveTransformV3" not in _operations("flip,flip-vertical,crop=5")
    everything = _operations(EVERYTHING)
    assert everything.count("ImageProjectiveTransformV3") == 1
    assert not [name for name in everything if "PyFunc" in name]


@pytest.mark.parametrize("name", ["crop", "cutout"])
def test_images_must_be_larger(name: str) -> None:
    """Crop and cutout have to be smaller than the images' shorter side."""
    change = tf.function(augmenter(parse_augment(f"{name}=5")), autograph=False)
    seed = tf.TensorSpec([2], tf.int64)
    change.get_concrete_function(tf.TensorSpec([None, 24, 6, 3], tf.uint8), seed)
    with pytest.raises(UsageError, match=f"--augment {name}=5 must be less .*, 5$"):
        change.get_concrete_function(tf.TensorSpec([None, 24, 5, 3], tf.uint8), seed)
