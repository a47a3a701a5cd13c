"""Random changes of images, held against numpy and tf.image.

What was drawn for an image is found from the result, and the oracle is given the same.
"""

from __future__ import annotations

import colorsys
import functools
import io
import operator
import re
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

import tfrtool
from tests.datasets import image_payload, write_foreign
from tests.more import more
from tfrtool.errors import UsageError
from tfrtool.loading.augment import Augment, augmenter, mixer, parse_augment
from tfrtool.loading.augmentations import (
    AUGMENTATIONS,
    METHOD_STREAM,
    PARTNER_STREAM,
    AugmentSpec,
    Stage,
)
from tfrtool.loading.decoding import original_pixels, rescaler, zero_pixel
from tfrtool.loading.options import Rescale

pytestmark = pytest.mark.tf

NUMBERS = {"crop": 5, "rotate": 30, "zoom": 0.3, "cutout": 6}
"""Numbers of those that have no default and for which 1 would change little."""

EACH = [
    spec.name if spec.default else f"{spec.name}={NUMBERS.get(spec.name, 1)}"
    for spec in AUGMENTATIONS
    if spec.stage is not Stage.MIX
]
"""Every augmentation of single images, as in a list: new ones are tested without a change here."""

EVERYTHING = ",".join(EACH)

PINNED_MEANS = [
    *[53.9475, 61.5824, 70.5136, 67.0067, 62.794, 59.7664, 56.0974, 56.9292],
    *[50.6823, 60.8709, 70.9287, 53.4586, 72.1749, 59.0369, 46.9288, 81.632],
]
PINNED_SHARES = {"mixup=0.5": 0.47016817, "cutmix=1": 0.6803711, "mixup=1,cutmix=1": 0.6803711}
"""Results of the first version that had all of these augmentations."""
PINNED_ZOOMS = [62.7826, 64.0733, 63.738]
"""The means of the first images, of the first version that had zoom."""


def random_images(count: int, height: int = 24, width: int = 20, seed: int = 0) -> Any:
    """Return noise, uint8 [count, height, width, 3]."""
    shape = (count, height, width, 3)
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


@functools.cache
def compiled(text: str) -> Any:
    """Return the function of an augmentation as a graph: image by image, it is slow without."""
    return tf.function(augmenter(parse_augment(text)), autograph=False)


def apply(text: str, images: Any, *seed: int) -> Any:
    """Return images augmented as a text of the command line says, by a seed of two numbers."""
    return compiled(text)(tf.constant(images), tf.constant(seed or (1, 2), tf.int64)).numpy()


def spans(values: Any, low: float, high: float) -> None:
    """Check that values lie between two, and near both, with about half on either side."""
    places = (np.asarray(values) - low) / (high - low)
    assert places.min() > -1e-3
    assert places.max() < 1 + 1e-3
    assert places.min() < 0.15
    assert places.max() > 0.85
    assert abs(np.mean(places < 0.5) - 0.5) < 5 * 0.5 / np.sqrt(len(places))


def test_flips_are_exact_and_even() -> None:
    """Each of the four ways to flip is taken by about a quarter of the images."""
    images = random_images(800, 6, 8)
    results, taken = apply("flip,flip-vertical", images), []
    for i, j in np.ndindex(2, 2):
        flipped = images[:, :: 1 - 2 * i, :: 1 - 2 * j]
        taken.append(np.sum(np.all(results == flipped, axis=(1, 2, 3))))
    assert sum(taken) == 800
    # Five standard deviations of a binomial distribution on either side.
    assert np.all(abs(np.array(taken) - 200) < 62), taken
    for name, axis in (("flip", 2), ("flip-vertical", 1)):  # one alone goes no other way
        result = apply(name, images)
        same, flip = (
            np.all(result == one, axis=(1, 2, 3)) for one in (images, np.flip(images, axis))
        )
        assert np.all(same != flip)
        assert same.any()
        assert flip.any()


def test_crop_is_a_window_of_the_padded_image() -> None:
    """Each of the 25 windows is taken, about equally often; no pixel is changed."""
    images = random_images(1000, 7, 9)
    padded = np.pad(images, ((0, 0), (2, 2), (2, 2), (0, 0)), "reflect")
    results = apply("crop=2", images)
    shown = np.array(
        [
            np.all(results == padded[:, y : y + 7, x : x + 9], axis=(1, 2, 3))
            for y, x in np.ndindex(5, 5)
        ]
    )
    assert np.all(shown.sum(0) == 1)
    assert np.all(abs(shown.sum(1) - 40) < 32)
    narrow = random_images(60, 4, 5)  # the largest shift still reads the reflection
    padded = np.pad(narrow, ((0, 0), (3, 3), (3, 3), (0, 0)), "reflect")
    for image, result in zip(padded, apply("crop=3", narrow), strict=True):
        assert any(np.array_equal(result, image[y : y + 4, x : x + 5]) for y, x in np.ndindex(7, 7))


def test_rotation_reads_where_a_rotation_would() -> None:
    """The columns and rows that a pixel was read from lie on a rotation about the center."""
    ramps = np.zeros((300, 31, 41, 3), np.float32)
    ramps[..., 0], ramps[..., 1] = np.arange(41), np.arange(31)[:, None]
    y, x = np.mgrid[:31, :41] - np.array([15, 20])[:, None, None]
    angles = []
    for result in apply("rotate=40", ramps):
        columns, rows = result[..., 0] - 20, result[..., 1] - 15
        angle = np.arctan2(rows[15, 26], columns[15, 26])
        inside = np.hypot(x, y) < 14  # nothing of these is read beyond an edge
        for read, expected in (
            (columns, np.cos(angle) * x - np.sin(angle) * y),
            (rows, np.sin(angle) * x + np.cos(angle) * y),
        ):
            np.testing.assert_allclose(read[inside], expected[inside], atol=1e-3)
        angles.append(np.degrees(angle))
    spans(angles, -40, 40)
    for height, width in ((1, 1), (3, 40)):  # what comes into view is never black
        assert apply("rotate=180", random_images(20, height, width) // 2 + 128).min() >= 128


@pytest.mark.parametrize(
    ("text", "interpolation", "fill"),
    [("", "bilinear", "reflect"), (":nearest:black", "nearest", "constant"),
     (":black", "bilinear", "constant"), (":reflect:nearest", "nearest", "reflect"),
     (":edge", "bilinear", "nearest")],
)  # fmt: skip
def test_rotation_equals_that_of_keras(text: str, interpolation: str, fill: str) -> None:
    """Interpolation and fill are those of Keras' layer with the same angle."""
    ramps = np.zeros((4, 21, 31, 3), np.float32)
    ramps[..., 0], ramps[..., 1] = np.arange(31), np.arange(21)[:, None]
    images = random_images(4, 21, 31).astype(np.float32)
    results = apply(f"rotate=40{text}", images)
    for image, result, ramp in zip(images, results, apply("rotate=40", ramps), strict=True):
        angle = np.arctan2(ramp[10, 20, 1] - 10, ramp[10, 20, 0] - 15)
        turn = float(angle) / (2 * np.pi)
        layer = keras.layers.RandomRotation(
            (turn, turn), fill_mode=fill, interpolation=interpolation
        )
        oracle = layer(image[None], training=True).numpy()[0]
        close = np.isclose(result, oracle, atol=0.5).all(-1)
        assert close.mean() > 0.98  # angles differ by rounding, which may change the nearest pixel
    assert (results == 0).all(-1).any() == (fill == "constant")


@pytest.mark.parametrize(
    ("text", "interpolation", "fill"),
    [("", "bilinear", "reflect"), more(":nearest:edge", "nearest", "nearest")],
)
def test_zoom_equals_that_of_keras(text: str, interpolation: str, fill: str) -> None:
    """Width and height have factors of their own; pixels are those of Keras' layer with these."""
    ramps = np.zeros((200, 21, 31, 3), np.float32)
    ramps[..., 0], ramps[..., 1] = np.arange(31), np.arange(21)[:, None]
    images = random_images(200, 21, 31).astype(np.float32)
    read = apply("zoom=0.3", ramps)
    across = (read[:, 10, 20, 0] - read[:, 10, 10, 0]) / 10
    down = (read[:, 15, 15, 1] - read[:, 5, 15, 1]) / 10
    spans(across, 0.7, 1.3)
    spans(down, 0.7, 1.3)
    assert abs(np.corrcoef(across, down)[0, 1]) < 0.4
    results = apply(f"zoom=0.3{text}", images)
    for number in range(4):
        factors = [(float(one[number]) - 1,) * 2 for one in (down, across)]
        layer = keras.layers.RandomZoom(*factors, fill_mode=fill, interpolation=interpolation)
        oracle = layer(images[number][None], training=True).numpy()[0]
        close = np.isclose(results[number], oracle, atol=0.5).all(-1)
        assert close.mean() > 0.98


def test_cutout_inside_is_never_cut_off() -> None:
    """Each position that is wholly in the image is taken, about equally often."""
    images = random_images(600, 6, 8) // 2
    covered = np.all(apply("cutout=4:inside", images) == 128, -1)
    assert np.array_equal(apply("cutout=4:inside", images)[~covered], images[~covered])
    assert (covered.sum((1, 2)) == 16).all()
    places = np.zeros((3, 5), int)
    for mask in covered:
        places[np.argmax(mask.any(1)), np.argmax(mask.any(0))] += 1
    assert np.all(abs(places - 40) < 31)
    black = apply("cutout=4:inside:zero", images + 1)
    assert np.array_equal(np.all(black == 0, -1), covered)


def test_cutout_with_what_becomes_zero() -> None:
    """The mean of the dataset, which is no whole number, is 0 once pixels are normalized."""
    images, rescale = (
        random_images(20, 9, 12),
        Rescale(scale=(0.02, 0.03, 0.05), offset=(-2.4, -3.1, -4)),
    )
    mean = zero_pixel(rescale)
    np.testing.assert_allclose(mean, (120, 3.1 / 0.03, 80))
    augment = parse_augment("cutout=4:dataset-mean:inside")
    seed = tf.constant([1, 2], tf.int64)
    results = rescaler(rescale)(augmenter(augment, mean)(tf.constant(images), seed)).numpy()
    covered = np.all(apply("cutout=4:zero:inside", images + (images == 0)) == 0, -1)
    assert (covered.sum((1, 2)) == 16).all()
    np.testing.assert_allclose(results[covered], 0, atol=1e-6)
    expected = rescaler(rescale)(tf.constant(images)).numpy()
    assert np.array_equal(results[~covered], expected[~covered])
    assert np.array_equal(original_pixels(expected, rescale), images)
    with pytest.raises(UsageError, match="requires rescaled pixels"):
        augmenter(augment)


def test_cutout_is_a_gray_square() -> None:
    """Its center is anywhere; what is outside of it keeps every pixel."""
    images = random_images(500, 9, 12) // 2
    y, x = np.mgrid[:9, :12]
    boxes = {
        ((y >= i - 2) & (y < i + 2) & (x >= j - 2) & (x < j + 2)).tobytes(): (i, j)
        for i, j in np.ndindex(9, 12)
    }
    centers = np.zeros((9, 12), int)
    for image, result in zip(images, apply("cutout=4", images), strict=True):
        gray = np.all(result == 128, -1)
        assert np.array_equal(result[~gray], image[~gray])
        centers[boxes[gray.tobytes()]] += 1
    assert np.all(abs(centers.sum(0) - 500 / 12) < 31)
    assert np.all(abs(centers.sum(1) - 500 / 9) < 36)


def test_brightness_and_contrast_equal_tf_image() -> None:
    """Each image has a number of its own, up to the amount."""
    # Far from the ends: a factor of up to 1.5 clips nothing. Channels differ in their means.
    images = (random_images(200, 8, 10) // 4 + np.array([60, 90, 120])).astype(np.float32)
    deltas, factors = [], []
    for image, bright, sharp in zip(
        images, apply("brightness=0.2", images), apply("contrast", images), strict=True
    ):
        deltas.append(float(bright[0, 0, 0] - image[0, 0, 0]))
        np.testing.assert_allclose(bright, np.clip(image + deltas[-1], 0, 255), atol=1e-3)
        factors.append(float(np.ptp(sharp[..., 0]) / np.ptp(image[..., 0])))
        np.testing.assert_allclose(sharp, tf.image.adjust_contrast(image, factors[-1]), atol=2e-3)
    spans(deltas, -51, 51)
    spans(factors, 0.5, 1.5)


def test_ranges_and_fills() -> None:
    """A range need not be symmetric; the square is black, or the mean color of its image."""
    images = (random_images(200, 8, 10) // 4 + np.array([60, 90, 120])).astype(np.float32)
    added = apply("brightness=-0.1:0.3", images)[:, 0, 0, 0] - images[:, 0, 0, 0]
    spans(added, -25.5, 76.5)
    after = np.ptp(apply("contrast=0.75:1.5", images)[..., 0], (1, 2))
    before = np.ptp(images[..., 0], (1, 2))
    spans(after / before, 0.75, 1.5)
    means = images.mean((1, 2))
    for fill, colors in (("zero", 0 * means), ("mean", means)):
        covered = apply(f"cutout=3:{fill}", images)
        for before, after, color in zip(images, covered, colors, strict=True):
            inside = np.any(before != after, -1)
            assert 4 <= inside.sum() <= 9
            np.testing.assert_allclose(after[inside], np.tile(color, (inside.sum(), 1)), atol=1e-3)


@pytest.mark.parametrize("text", ["saturation", "hue", "saturation=0.9,hue=0.5"])
def test_saturation_and_hue_equal_tf_image(text: str) -> None:
    """Both go through hue, saturation and value; gray, black, white and full colors included."""
    images = random_images(60, 8, 8).astype(np.float32)
    images[:, 0, 0] = 200, 150, 100
    images[:, 1, :6] = np.eye(6, 3, dtype=np.float32) * 255
    images[:, 2, :6] = 255 - images[:, 1, :6]
    images[:, 3, :3] = np.array([[[0]], [[255]], [[77]]]).reshape(1, 3, 1)
    factors, turns = [], []
    for image, result in zip(images, apply(text, images), strict=True):
        before, after = (
            colorsys.rgb_to_hsv(*(float(x) / 255 for x in pixels[0, 0]))
            for pixels in (image, result)
        )
        turns.append((after[0] - before[0] + 0.5) % 1 - 0.5)
        factors.append(after[1] / before[1])
        oracle = tf.image.adjust_saturation(image, factors[-1])
        np.testing.assert_allclose(result, tf.image.adjust_hue(oracle, turns[-1]), atol=0.05)
    amount = {"saturation": 0.5, "hue": 0.0}.get(text, 0.9)
    most = {"saturation": 0.0, "hue": 0.2}.get(text, 0.5)
    for values, middle, reach in ((factors, 1, amount), (turns, 0, most)):
        if reach:
            spans(values, middle - reach, middle + reach)
        else:
            np.testing.assert_allclose(values, middle, atol=1e-3)


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return a dataset of eight images of noise, larger than they are loaded, and their pixels."""
    pixels = random_images(8, 40, 48)
    payloads = []
    for number, image in enumerate(pixels):
        buffer = io.BytesIO()
        Image.fromarray(image).save(buffer, "png")
        payloads.append(image_payload(number, data=buffer.getvalue()))
    return tfrtool.dataset(write_foreign(tmp_path_factory.mktemp("d"), [payloads])), pixels


@pytest.mark.parametrize(
    ("name", "oracle"),
    [("contrast", tf.image.adjust_contrast), ("saturation", tf.image.adjust_saturation)],
)
def test_ranges_before_resizing_equal_tf_image(photos: Any, name: str, oracle: Any) -> None:
    """As ``tf.image.random_contrast(image, lower, upper)`` at the stored size, then a resize."""
    dataset, pixels = photos
    options: dict[str, Any] = {"image_size": 16, "rescale": None, "training": True, "seed": 5}
    augment = f"{name}=1.999:2:before-resize"
    ((images, labels),) = dataset.load(**options, augment=augment)
    ((later, _),) = dataset.load(**options, augment=f"{name}=1.999:2")
    for image, label, after in zip(images.numpy(), labels.numpy(), later.numpy(), strict=True):
        changed = tf.clip_by_value(oracle(pixels[label].astype(np.float32), 1.9995), 0, 255)
        expected = tf.image.resize(changed, (16, 16)).numpy()
        np.testing.assert_allclose(image, expected, atol=0.6)
        assert np.abs(after - expected).max() > 5  # clipping comes after the resize


def test_numbers_before_resizing_are_of_each_image_and_epoch(photos: Any) -> None:
    """Images and epochs differ, and a seed decides them, also where records are parsed at once."""
    dataset, _ = photos
    options: dict[str, Any] = {"image_size": 48, "rescale": None, "epochs": 2, "batch_size": 4}
    options["augment"] = "brightness=-0.2:0.2:before-resize,flip"
    batches = list(dataset.load(**options))
    means = np.concatenate([images.numpy().mean((1, 2, 3)) for images, _ in batches])
    assert len({*means}) == 16
    assert np.ptp(means) > 10
    parsed = dataset.load(**options, batched_parse=3)
    for (images, _), (others, _) in zip(batches, parsed, strict=True):
        assert np.array_equal(images, others)
    later = list(dataset.load(**options, first_epoch=1))
    assert np.array_equal(later[0][0], batches[2][0])
    for changes in ({"cache": "memory"}, {"decode": "fast"}, {"recipe": "naive"}):
        with pytest.raises(UsageError, match="before-resize requires --recipe tfrtool, --decode"):
            dataset.load(**options | changes)


@pytest.mark.more
def test_draws_do_not_depend_on_each_other() -> None:
    """How strongly one operation changes an image says nothing about any other one."""
    image = np.full((16, 16, 3), 100, np.float32)
    image[..., 0], image[..., 1] = 110 + 2 * np.arange(16), 110 + 2 * np.arange(16)[:, None]
    images = np.repeat(image[None], 400, axis=0)
    moved = apply("crop=5", images)
    holes = np.all(apply("cutout=3", images) == 128, -1)
    contrast, saturation = apply("contrast", images), apply("saturation", images)
    drawn = [  # each rises or falls with what was drawn
        apply("flip", images)[:, 0, 0, 0],
        apply("flip-vertical", images)[:, 0, 0, 1],
        apply("rotate=20", images)[:, 2, 8, 0],
        apply("zoom=0.5", images)[:, 8, 12, 0],
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


@pytest.mark.parametrize("text", [*map(more, EACH), EVERYTHING, "brightness=1,contrast=1"])
def test_results_are_in_range_and_decided_by_the_seed(text: str) -> None:
    """Integers are floats that are rounded once; the same seed gives the same result."""
    images = random_images(16)
    images[:, :8] = np.where(images[:, :8] < 128, 0, 255)
    images[8:] = images[:8]
    results, floats = apply(text, images), apply(text, images.astype(np.float32))
    assert (results.dtype, floats.dtype) == (np.uint8, np.float32)
    assert floats.min() >= -1e-3
    assert floats.max() <= 255 + 1e-3
    np.testing.assert_allclose(results, floats, atol=0.5 + 1e-3)
    assert not np.array_equal(results[:8], results[8:])  # images differ in what is drawn
    assert np.array_equal(apply(text, images), results)
    assert not np.array_equal(apply(text, images, 1, 3), results)
    assert not np.array_equal(apply(text, images, 2, 2), results)


def test_a_seed_gives_the_images_of_earlier_versions() -> None:
    """Resumed and repeated runs draw the same: each augmentation keeps its random streams.

    Each image is multiplied by a ramp, so that its mean depends on where the pixels are.
    """
    text = "flip,flip-vertical,crop=5,rotate=30,brightness,contrast,saturation,hue,cutout=6"
    images = random_images(16).astype(np.float32)
    ramp = np.arange(images[0].size).reshape(images[0].shape) / images[0].size
    means = (apply(text, images) * ramp).mean((1, 2, 3))
    np.testing.assert_allclose(means, PINNED_MEANS, rtol=1e-4)
    zoomed = (apply("zoom=0.3", images[:3]) * ramp).mean((1, 2, 3))
    np.testing.assert_allclose(zoomed, PINNED_ZOOMS, rtol=1e-4)


def test_in_a_graph_it_is_the_same_and_shapes_stay_known() -> None:
    """With an unknown number of images, height, width and channels are known after it, too."""
    traced = compiled(EVERYTHING).get_concrete_function(
        tf.TensorSpec([None, 24, 20, 3], tf.uint8), tf.TensorSpec([2], tf.int64)
    )
    (output,) = traced.outputs
    assert (output.shape.as_list(), output.dtype) == ([None, 24, 20, 3], tf.uint8)
    seed = tf.constant([1, 2], tf.int64)
    assert traced(tf.zeros([0, 24, 20, 3], tf.uint8), seed).shape == (0, 24, 20, 3)
    images = random_images(3)
    # Fused in a graph, a half may be rounded either way.
    np.testing.assert_allclose(traced(tf.constant(images), seed), apply(EVERYTHING, images), atol=1)


@pytest.mark.parametrize("name", ["crop", "cutout"])
def test_images_must_be_larger(name: str) -> None:
    """Crop and cutout have to be smaller than the images' shorter side."""
    apply(f"{name}=5", random_images(2, 24, 6))
    with pytest.raises(UsageError, match=f"--augment {name}=5 must be less .*, 5$"):
        apply(f"{name}=5", random_images(2, 24, 5))


# The list of augmentations, as it is given on the command line


def values_of(spec: AugmentSpec) -> st.SearchStrategy[Any]:
    """Return the values that a declaration allows."""
    if spec.kind is bool:
        return st.just(True)
    if spec.kind is int:
        numbers: st.SearchStrategy[Any] = st.integers(1, int(spec.most))
    else:
        numbers = st.floats(0, spec.most, exclude_min=True, allow_subnormal=False)
    if spec.widest:
        edges = st.floats(*spec.widest, allow_subnormal=False)
        numbers |= st.tuples(edges, edges).filter(lambda pair: pair[0] < pair[1])
    default = tuple(group[0] for group in spec.words)
    words = st.tuples(*map(st.sampled_from, spec.words)).filter(lambda words: words != default)
    if spec.words:
        parts = numbers.map(lambda value: value if isinstance(value, tuple) else (value,))
        numbers |= st.builds(operator.add, parts, words)
    return numbers


ALL_VALUES = st.fixed_dictionaries(
    {}, optional={spec.name: values_of(spec) for spec in AUGMENTATIONS}
).filter(bool)


@given(ALL_VALUES)
def test_text_is_the_inverse(values: dict[str, Any]) -> None:
    """What str() writes, parse_augment reads back, for every name and in any order."""
    names = [spec.name for spec in AUGMENTATIONS if spec.name in values]
    augment = Augment(tuple((name, values[name]) for name in names))
    assert parse_augment(str(augment)) == augment
    assert parse_augment(",".join(reversed(str(augment).split(",")))) == augment


def test_names_and_default_amounts() -> None:
    """Each name sets its own value, in any order and with spaces; colors need no number."""
    values = {
        "flip": True,
        "crop": 4,
        "rotate": 40.0,
        "hue": 0.2,
        "cutout": (6, "zero", "anywhere"),
    }
    augment = parse_augment("hue , cutout=6:zero, rotate=40,crop=4, flip")
    assert dict(augment.changes) == values
    assert str(augment) == "flip,crop=4,rotate=40,hue,cutout=6:zero"
    augment = parse_augment("brightness,contrast,saturation,hue,cutout=6:gray")
    amounts = {"brightness": 0.125, "contrast": 0.5, "saturation": 0.5, "hue": 0.2, "cutout": 6}
    assert dict(augment.changes) == amounts


def test_random_streams_are_independent() -> None:
    """No two augmentations of an image share a stream; a batch is mixed by one method only."""
    streams = [
        stream for spec in AUGMENTATIONS if spec.stage is not Stage.MIX for stream in spec.streams
    ]
    mixing = {
        stream for spec in AUGMENTATIONS if spec.stage is Stage.MIX for stream in spec.streams
    }
    streams += [*mixing, METHOD_STREAM, PARTNER_STREAM]
    assert len(streams) == len(set(streams)), sorted(streams)


@pytest.mark.parametrize("spec", AUGMENTATIONS, ids=lambda spec: spec.name)
def test_errors_have_the_notation(spec: AugmentSpec) -> None:
    """A number out of range is an error that has the notation and the range of the declaration."""
    notation = re.escape(spec.notation)
    expected = notation if spec.kind is bool else f"{notation}, .*up to {spec.most:,g}"
    for number in ("", "0", "-1", f"{spec.most + 1:g}", "nan"):
        with pytest.raises(UsageError, match=f"'{spec.name}={number}': expected {expected}"):
            parse_augment(f"flip,{spec.name}={number}" if spec.name != "flip" else f"flip={number}")
    expected = "LOW:HIGH from" if spec.widest else notation
    with pytest.raises(UsageError, match=f"invalid --augment .*expected {expected}"):
        parse_augment(f"{spec.name}=1:x")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        *[(text, "--augment") for text in ("", ",", "flip,", "Flip", "flip;hue", "=3", "hue=")],
        *[(text, "twice") for text in ("flip,flip", "hue,hue=0.1", "rotate=3,rotate=3")],
        *[(text, "--augment") for text in ("flip=1", "flip-vertical=yes", "crop")],
        *[(f"rotate={number}", "above 0 and up to 180") for number in ("180.1", "x")],
        *[(f"crop={number}", "whole number") for number in ("2.5", "1e3", "9" * 11)],
        *[(f"contrast={text}", "LOW:HIGH from 0 to 10") for text in ("2:1", "-1:1", "x:2", "1:")],
        ("cutout=3:blue", r"cutout=PIXELS\[:gray\|zero\|mean\|dataset-mean\]\[:anywhere\|inside\]"),
        *[(f"rotate=5:{text}", "expected rotate=DEGREES") for text in ("gray", "black:black", "")],
        ("flop", r"'flop'.*flip, flip-vertical, .*rotate=DEGREES.*hue\[=AMOUNT\|LOW:HIGH\["),
    ],
)
def test_nonsense_is_refused(text: str, problem: str) -> None:
    """What is unknown, repeated, missing or out of range is an error with the choices."""
    with pytest.raises(UsageError, match=problem):
        parse_augment(text)


@pytest.mark.parametrize("text", ["mixup=0.5", "cutmix=1", "mixup=1,cutmix=1"])
def test_mixing_conserves_labels_and_pixels(text: str) -> None:
    """The weights of labels add up to 1, and are the shares of the images in the pixels."""
    count, height, width = 64, 20, 24
    colors = np.random.default_rng(0).permutation(256)[: 3 * count].reshape(count, 3)
    images = np.broadcast_to(colors[:, None, None], (count, height, width, 3)).astype(np.uint8)
    mix = tf.function(mixer(parse_augment(text)), autograph=False)
    batches, cut = [], []
    for step in (1, 1, *range(2, 10)):
        seed = tf.constant([0, step], tf.int64)
        results, labels = mix(tf.constant(images), tf.eye(count), seed)
        mixed, weights = results.numpy().astype(float), labels.numpy()
        np.testing.assert_allclose(weights.sum(1), 1, rtol=1e-6)
        assert (weights > 0).sum(1).max() == 2
        if "cutmix" not in text or (mixed == mixed[:, :1, :1]).all():  # all pixels of an image
            np.testing.assert_allclose(mixed, (weights @ colors)[:, None, None] + 0 * mixed, atol=1)
        else:
            np.testing.assert_allclose(mixed.mean((1, 2)), weights @ colors, atol=0.01)
            unchanged = (mixed == images).all(-1).mean((1, 2))
            np.testing.assert_allclose(unchanged, weights.diagonal(), atol=1e-6)
        cut.append((mixed != mixed[:, :1, :1]).any())
        if step == 1:
            share = weights.diagonal().mean()
            assert share == pytest.approx(PINNED_SHARES[text], rel=1e-4)  # as in earlier versions
        batches.append((mixed, weights))
    assert all(map(np.array_equal, batches[0], batches[1]))
    assert not np.array_equal(batches[1][1], batches[2][1])
    assert {*cut} == {"cutmix" in text, "mixup" not in text}
    if text == "mixup=0.5":  # the variance of Beta(a, a) is 1 / (8 a + 4)
        shares = np.concatenate([weights.diagonal() for _, weights in batches[1:]])
        assert shares[shares < 1].mean() == pytest.approx(0.5, abs=0.06)
        assert np.var(shares[shares < 1]) == pytest.approx(1 / 8, rel=0.15)
