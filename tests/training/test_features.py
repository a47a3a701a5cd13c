"""A frozen base, run once, and the head that learns from what it gave."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.more import more
from tfrtool.errors import DatasetError, UsageError
from tfrtool.loading.options import Rescale
from tfrtool.training.features.extraction import extract_features
from tfrtool.training.features.frozen_base import FrozenBase, check_precision, freeze
from tfrtool.training.run.train_options import Precision
from tfrtool.training.run.trainer import EpochIterator, Trainer

pytestmark = pytest.mark.tf

SIZE = 32
RESCALE = Rescale(scale=1 / 127.5, offset=-1.0)


def _pixels(count: int, seed: int = 0) -> Any:
    """Return images of four colours each, and noise; of noise alone all features are alike."""
    random = np.random.default_rng(seed)
    colours = random.integers(0, 200, (count, 2, 2, 3), np.uint8)
    images = colours.repeat(SIZE // 2, axis=1).repeat(SIZE // 2, axis=2)
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
    expected = _expected(base, _pixels(20))
    assert expected.std(axis=0).mean() > 0.01  # they tell one image from another
    assert np.abs(frozen(_pixels(20)) - expected).max() < 1e-4 * np.abs(expected).max()


@pytest.fixture(scope="module")
def by_eight(odd: Any) -> FrozenBase:
    """Return it frozen, for eight images at a time."""
    return freeze(odd, SIZE, RESCALE, batch_size=8)


@pytest.mark.parametrize("count", [1, 7, 8, 9, 24])
def test_any_number_of_images(odd: Any, by_eight: FrozenBase, count: int) -> None:
    """However many images are given, each has its features, in their order."""
    expected = _expected(odd, _pixels(count))
    found = by_eight(_pixels(count))
    assert found.shape == expected.shape
    assert np.allclose(found, expected, atol=1e-5)


def test_channels_are_rescaled_each_by_its_own(odd: Any) -> None:
    """A scale and an offset for each channel are applied as they are."""
    scale, offset = (0.01, 0.02, 0.03), (-1.0, 0.5, 2.0)
    rescale = Rescale(scale=scale, offset=offset)  # type: ignore[arg-type,unused-ignore]
    expected = _expected(odd, _pixels(4), scale, np.array(offset, np.float32))
    assert np.allclose(freeze(odd, SIZE, rescale)(_pixels(4)), expected, atol=1e-4)


def test_the_graph_has_public_operations_alone(odd: Any) -> None:
    """Whatever TensorFlow makes of it later, the graph is of operations that it documents."""
    frozen: Any = freeze(odd, SIZE, RESCALE)
    names = {operation.type for operation in frozen.graph.graph.get_operations()}
    assert {"Conv2D", "DepthwiseConv2dNative", "BiasAdd"} <= names
    assert not [name for name in names if name.startswith("_")]


def test_later_weights_are_not_seen(odd: Any) -> None:
    """A frozen base stays as it was, whatever becomes of the model."""
    frozen = freeze(odd, SIZE, RESCALE)
    before, weights = frozen(_pixels(4)), odd.get_weights()
    odd.set_weights([2 * weight for weight in weights])
    after = frozen(_pixels(4))
    odd.set_weights(weights)
    assert np.array_equal(before, after)


@pytest.fixture
def bfloat16() -> Precision:
    """Return that precision; skip where the processor doesn't have it."""
    try:
        check_precision(Precision.BFLOAT16)
    except UsageError as error:
        pytest.skip(str(error))
    return Precision.BFLOAT16


@pytest.mark.parametrize(("name", "most"), [("odd", 2**-5), more("mobilenet", 0.4)])
def test_bfloat16_is_near(
    name: str, most: float, bfloat16: Precision, request: pytest.FixtureRequest
) -> None:
    """Features in bfloat16 differ from those in float32, as its 8 bits instead of 24 let expect.

    In MobileNetV2, whose random layers let it grow, it was 0.19 of the features' deviation.
    """
    base = request.getfixturevalue(name)
    expected = _expected(base, _pixels(20))
    features = freeze(base, SIZE, RESCALE, bfloat16)(_pixels(20))
    assert features.dtype == np.float32
    error = np.sqrt(np.mean((features - expected) ** 2)) / expected.std()
    assert 2**-14 < error < most


def test_bfloat16_is_for_the_base_alone(odd: Any, bfloat16: Precision, tf: Any) -> None:
    """Freezing in bfloat16 changes no setting of TensorFlow, nor what other graphs compute."""
    before = tf.config.optimizer.get_experimental_options()
    image = _pixels(1).astype(np.float32)
    kernel = np.ones((3, 3, 3, 8), np.float32) / 7
    convolve = tf.function(lambda: tf.nn.relu(tf.nn.conv2d(image, kernel, 1, "SAME")))
    expected = convolve()
    freeze(odd, SIZE, RESCALE, bfloat16)(_pixels(2))
    assert tf.config.optimizer.get_experimental_options() == before
    again = tf.function(lambda: tf.nn.relu(tf.nn.conv2d(image, kernel, 1, "SAME")))
    assert np.array_equal(again(), expected)


@pytest.mark.parametrize(
    ("text", "has"),
    [
        ("flags\t\t: fpu avx512f avx512_bf16 sse2\n", True),
        ("processor : 0\nflags : fpu amx_tile amx_bf16\n", True),
        ("flags : fpu avx2 avx512f\n", False),
        ("bugs : avx512_bf16\n", False),
        (None, False),
    ],
)
def test_processor_must_have_bfloat16(tmp_path: Path, text: str | None, has: bool) -> None:
    """Only where the processor says that it has it is bfloat16 taken; float32 always is."""
    cpuinfo = tmp_path / "cpuinfo"
    if text is not None:
        cpuinfo.write_text(text)
    check_precision(Precision.FLOAT32, cpuinfo)
    if has:
        check_precision(Precision.BFLOAT16, cpuinfo)
    else:
        with pytest.raises(UsageError):
            check_precision(Precision.BFLOAT16, cpuinfo)


def _batches(tf: Any, count: int, size: int = 10) -> Any:
    """Return a pipeline of images whose labels are their numbers."""
    return tf.data.Dataset.from_tensor_slices((_pixels(count), np.arange(count))).batch(size)


def _sums() -> FrozenBase:
    """Return a base that adds up what is in an image."""
    import tensorflow as tf

    return FrozenBase(
        graph=lambda images: tf.reduce_sum(tf.cast(images, tf.float32), axis=[1, 2]),
        batch_size=4,
        width=3,
    )


def _extract(base: FrozenBase, batches: Any, images: int, size: int, on_images: Any = None) -> Any:
    import keras

    steps = -(-images // size)
    iterator = EpochIterator(batches, images, steps, at_once=False)
    callbacks = keras.callbacks.CallbackList([])
    values, labels = extract_features(base, iterator, callbacks, on_images or (lambda _: None))
    return values, labels, iterator.waited


def test_features_are_in_the_order_of_images(tf: Any) -> None:
    """Each image's features stand beside its label, and every batch is told of."""
    told: list[int] = []
    values, labels, _ = _extract(_sums(), _batches(tf, 23), 23, 10, told.append)
    assert told == [10, 10, 3]
    assert np.array_equal(labels, np.arange(23))
    assert labels.dtype == np.int64
    assert np.array_equal(values, _pixels(23).astype(np.float32).sum(axis=(1, 2)))


@pytest.mark.parametrize("counted", [22, 24, 30, 5])
def test_miscounted_images_are_an_error(tf: Any, counted: int) -> None:
    """More images than were counted, or fewer, are no features."""
    with pytest.raises(DatasetError):
        _extract(_sums(), _batches(tf, 23), counted, 10)


def test_waiting_for_images_is_measured() -> None:
    """Time in which no images are there is told from time in which the base works."""

    def slow() -> Iterator[tuple[Any, Any]]:
        for _ in range(4):
            time.sleep(0.05)
            yield _pixels(1), np.zeros(1, np.int64)

    *_, waited = _extract(_sums(), slow(), 4, 1, lambda _: time.sleep(0.05))
    assert 0.2 <= waited < 0.35


def test_head_learns_as_in_the_whole_model(keras: Any, odd: Any, tf: Any) -> None:
    """After the same batches, a head on features has the weights that `fit`'s steps give it.

    Features differ by the rounding of float32. Adam divides a gradient
    by its own size, so that its relative error reaches the weights; that is largest where the
    gradient is near zero. Each of the 10 steps moves a weight by up to 0.01, and all of them
    together leave it within a tenth of that.
    """
    labels = np.random.default_rng(2).choice(3, 40, p=(0.7, 0.2, 0.1))
    order = [np.random.default_rng(epoch).permutation(40) for epoch in range(2)]
    rows = [epoch[start : start + 8] for epoch in order for start in range(0, 40, 8)]
    inputs = keras.Input((SIZE, SIZE, 3))
    head = keras.layers.Dense(3, activation="softmax")
    base = keras.Model(odd.input, odd.layers[-3].output)  # without its Dropout
    whole = keras.Model(inputs, head(base(inputs, training=False)))
    first = head.get_weights()
    whole.compile(keras.optimizers.Adam(0.01), keras.losses.SparseCategoricalCrossentropy())
    pixels = _pixels(40)
    losses = []
    for batch in rows:
        whole.reset_metrics()  # releases of Keras differ in whether they run on
        images = pixels[batch].astype(np.float32) / 127.5 - 1
        losses.append(float(whole.train_on_batch(images, labels[batch])))
    expected = head.get_weights()
    head.set_weights(first)

    frozen = freeze(base, SIZE, RESCALE)
    pipeline = tf.data.Dataset.from_tensor_slices((pixels, labels)).batch(32)
    values, numbers, _ = _extract(frozen, pipeline, 40, 32)
    trainer = Trainer(whole, keras.optimizers.Adam(0.01), head)
    scores = [float(trainer.train(values[batch], numbers[batch])[0]) for batch in rows]
    assert len(scores) == len(rows)
    for name, before, wanted, found in zip(
        ("kernel", "bias"), first, expected, head.get_weights(), strict=True
    ):
        assert np.abs(wanted - before).max() > 0.01, name
        assert np.abs(found - wanted).max() < 1e-3, name
    assert scores == pytest.approx(losses, abs=1e-3)
    # The head is a layer of the whole model, which has learnt with it.
    probabilities = whole(pixels[:5].astype(np.float32) / 127.5 - 1, training=False)
    assert np.allclose(head(values[:5]), probabilities, atol=1e-3)
