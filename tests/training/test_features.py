"""A frozen base, run once, and the head that learns from what it gave."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.more import more
from tests.training.runs import small_options
from tfrtool import train
from tfrtool.errors import DatasetError
from tfrtool.loading.options import Rescale
from tfrtool.training.frozen_features import (
    extract_features,
    feature_batches,
    freeze,
)
from tfrtool.training.models import build_classifier

pytestmark = pytest.mark.tf

SIZE = 32
RESCALE = Rescale(scale=1 / 127.5, offset=-1.0)


def _pixels(count: int, seed: int = 0) -> Any:
    """Return images of four colors each, and noise; of noise alone all features are alike."""
    random = np.random.default_rng(seed)
    colors = random.integers(0, 200, (count, 2, 2, 3), np.uint8)
    images = colors.repeat(SIZE // 2, axis=1).repeat(SIZE // 2, axis=2)
    return images + random.integers(0, 56, images.shape, np.uint8)


def _expected(base: Any, pixels: Any, scale: Any = RESCALE.scale, offset: Any = -1.0) -> Any:
    """Return what Keras makes of pixels."""
    return np.asarray(
        base(pixels.astype(np.float32) * np.asarray(scale, np.float32) + offset, training=False)
    )


def _fit_statistics(keras: Any, base: Any) -> Any:
    """Give each BatchNormalization statistics and weights of its own, so that none does nothing.

    With those of a new layer a deep base gives features of about 1e-11, whatever the image.
    """
    layers = [layer for layer in base.layers if isinstance(layer, keras.layers.BatchNormalization)]
    for layer in layers:
        layer.momentum = 0.0  # no rest of the variance of 1 that it began with
    base(_pixels(64).astype(np.float32) / 127.5 - 1, training=True)
    noise = np.random.default_rng(1)
    for layer in layers:
        gamma, beta, *statistics = layer.get_weights()
        moved = [value + noise.normal(0, 0.1, value.shape) for value in (gamma, beta)]
        layer.set_weights([*moved, *statistics])
    base.trainable = False
    return base


@pytest.fixture(scope="module")
def keras() -> Any:
    """Return the keras module."""
    import keras

    return keras


@pytest.fixture(scope="module")
def mobilenet(keras: Any) -> Any:
    """Return a MobileNetV2 whose features differ from image to image."""
    keras.utils.set_random_seed(0)
    base = keras.applications.MobileNetV2(
        input_shape=(SIZE, SIZE, 3), include_top=False, weights=None, pooling="avg", alpha=0.35
    )
    return _fit_statistics(keras, base)


@pytest.fixture(scope="module")
def odd(keras: Any) -> Any:
    """Return a base with what MobileNetV2 doesn't have around its convolutions."""
    layers = keras.layers
    keras.utils.set_random_seed(0)
    inputs = keras.Input((SIZE, SIZE, 3))
    before = layers.BatchNormalization()(inputs)  # no convolution before it
    x = layers.ZeroPadding2D(((3, 1), (0, 4)))(before)  # no "SAME" is like this
    x = layers.Conv2D(8, 5, strides=2, bias_initializer="normal", activation="relu")(x)
    x = layers.BatchNormalization()(x)  # after the activation
    x = layers.Conv2D(8, 3, padding="same", dilation_rate=2)(x)
    both = layers.Conv2D(8, 3, padding="same", use_bias=False)(x)
    y = layers.ReLU(6)(layers.BatchNormalization()(both))
    y = layers.Add()([y, layers.BatchNormalization()(both)])  # its own output is needed twice
    y = layers.ZeroPadding2D(((1, 0), (1, 0)))(y)  # "SAME" is (0, 1) here
    y = layers.Conv2D(8, 3, strides=2, bias_initializer="normal")(y)
    y = layers.BatchNormalization()(y)  # of a sum
    y = layers.ZeroPadding2D(1)(y)
    y = layers.DepthwiseConv2D(3, strides=2, depth_multiplier=2, use_bias=False)(y)
    y = layers.LeakyReLU()(layers.BatchNormalization()(y))
    z = layers.Conv2D(16, 1, groups=4)(y)
    z = layers.Concatenate()([layers.BatchNormalization()(z), y])
    z = layers.MaxPooling2D(2)(z)
    z = z * layers.Activation("sigmoid")(layers.Conv2D(32, 1)(z))
    z = layers.Conv2D(12, 1, use_bias=False)(z) - 0.25
    z = 0.5 - z  # the convolution is what is subtracted
    z = layers.Dropout(0.5)(layers.GlobalAveragePooling2D()(z))  # does nothing in inference
    outputs = layers.Dense(20)(z)
    return _fit_statistics(keras, keras.Model(inputs, outputs))


@pytest.fixture(params=[more("mobilenet"), "odd"])
def base(request: pytest.FixtureRequest) -> Any:
    """Return each of the bases in turn."""
    return request.getfixturevalue(request.param)


def test_features_are_those_of_keras(base: Any) -> None:
    """A frozen base gives what Keras' own gives, but for the rounding of float32.

    It rounds at other places, and random layers with fitted statistics let that grow: the largest
    error seen in MobileNetV2 is 3e-5 of the largest feature.
    """
    frozen = freeze(base, SIZE, RESCALE)
    gc.collect()  # what it calls must live as long as it does
    expected = _expected(base, _pixels(16))
    assert expected.std(axis=0).mean() > 0.01  # they tell one image from another
    assert np.abs(frozen(_pixels(16)) - expected).max() < 1e-4 * np.abs(expected).max()


def test_channels_are_rescaled_each_by_its_own(odd: Any) -> None:
    """A scale and an offset for each channel are applied as they are."""
    scale, offset = (0.01, 0.02, 0.03), (-1.0, 0.5, 2.0)
    rescale = Rescale(scale=scale, offset=offset)  # type: ignore[arg-type,unused-ignore]
    expected = _expected(odd, _pixels(4), scale, np.array(offset, np.float32))
    assert np.allclose(freeze(odd, SIZE, rescale)(_pixels(4)), expected, atol=1e-4)


def test_later_weights_are_not_seen(odd: Any) -> None:
    """A frozen base stays as it was, whatever becomes of the model."""
    frozen = freeze(odd, SIZE, RESCALE)
    before, weights = frozen(_pixels(4)), odd.get_weights()
    odd.set_weights([2 * weight for weight in weights])
    after = frozen(_pixels(4))
    odd.set_weights(weights)
    assert np.array_equal(before, after)


@pytest.mark.parametrize(("name", "most"), [("odd", 2**-5), more("mobilenet", 0.4)])
def test_bfloat16_is_near(name: str, most: float, request: pytest.FixtureRequest) -> None:
    """Features in bfloat16 differ from those in float32, as its 8 bits instead of 24 let expect.

    In MobileNetV2, whose random layers let it grow, it was 0.19 of the features' deviation.
    """
    base = request.getfixturevalue(name)
    expected = _expected(base, _pixels(16))
    features = freeze(base, SIZE, RESCALE, "bfloat16")(_pixels(16))
    assert features.dtype == np.float32
    error = np.sqrt(np.mean((features - expected) ** 2)) / expected.std()
    assert 2**-14 < error < most


def _batches(tf: Any, count: int, size: int = 10) -> Any:
    """Return a pipeline of images whose labels are their numbers."""
    return tf.data.Dataset.from_tensor_slices((_pixels(count), np.arange(count))).batch(size)


def _sums(images: Any) -> Any:
    """Stand for a base that adds up the pixels of an image."""
    return images.numpy().astype(np.float32).sum(axis=(1, 2))


def test_features_are_in_the_order_of_images(tf: Any) -> None:
    """Each image's features stay with its label, and every batch is reported."""
    reported: list[int] = []
    values, labels = extract_features(_sums, _batches(tf, 23), 23, reported.append)
    assert reported == [10, 10, 3]
    assert np.array_equal(labels, np.arange(23))
    assert labels.dtype == np.int64
    assert np.array_equal(values, _pixels(23).astype(np.float32).sum(axis=(1, 2)))


@pytest.mark.parametrize("counted", [22, 24, 5])
def test_miscounted_images_are_an_error(tf: Any, counted: int) -> None:
    """More images than were counted, or fewer, are no features."""
    with pytest.raises(DatasetError):
        extract_features(_sums, _batches(tf, 23), counted)


def test_each_epoch_has_an_order_of_its_own() -> None:
    """It depends on the seed and the epoch's number alone, and has every image once."""
    values, labels = np.arange(46.0).reshape(23, 2), np.arange(23)

    def epochs(first: int, count: int, seed: int | None = 1) -> list[list[int]]:
        order = {"first_epoch": first, "epochs": count}
        batches = feature_batches(values, labels, 5, seed=seed, **order)
        assert len(batches) == 5 * count
        rows: list[int] = []
        for features, numbers in batches:
            assert np.array_equal(features, values[numbers])
            rows += numbers.numpy().tolist()
        return [rows[start : start + 23] for start in range(0, 23 * count, 23)]

    first, second, third = epochs(0, 3)
    assert [sorted(one) for one in (first, second, third)] == [list(range(23))] * 3
    assert first != second != third
    assert epochs(1, 2) == [second, third]
    assert epochs(0, 1, seed=2) != [first]
    assert epochs(0, 1, seed=None) == [list(range(23))]


def _frozen(size: int, classes: int) -> Any:
    """Return a model whose first layers are frozen."""
    import keras

    inputs = keras.Input((size, size, 3))
    x = keras.layers.Conv2D(4, 3, name="first", trainable=False)(inputs)
    x = keras.layers.GlobalAveragePooling2D()(x)
    x = keras.layers.Dropout(0.1)(x)
    return keras.Model(inputs, keras.layers.Dense(classes, activation="softmax")(x))


@pytest.mark.more
def test_a_users_frozen_layers_run_once(few: Path) -> None:
    """An own model's outputs before the first random or trained layer are cached."""
    options = small_options(few, model=_frozen, trainable="all")
    report = train(**options)
    assert report.plan.cache == "features"
    whole = train(**options | {"cache": "memory"})
    assert report.epochs[0].val_loss == pytest.approx(whole.epochs[0].val_loss, abs=0.02)


@pytest.mark.parametrize("kind", ["skip", "random", "trained"])
def test_what_cannot_be_split_is_trained_whole(keras: Any, kind: str) -> None:
    """Random or trained layers, and layers that need the images, too."""
    layers = keras.layers

    inputs = keras.Input((8, 8, 3))
    x = layers.GaussianNoise(0.1)(inputs) if kind == "random" else inputs
    x = layers.Conv2D(3, 3, padding="same", trainable=kind == "trained")(x)
    x = layers.Add()([x, inputs]) if kind == "skip" else x
    outputs = layers.Dense(2, activation="softmax")(layers.Flatten()(x))
    model = keras.Model(inputs, outputs)
    built = build_classifier("a:b", 8, 2, own=model)
    if kind == "skip":  # it is split after the addition
        assert built.base is not None
    else:
        assert built.base is None
