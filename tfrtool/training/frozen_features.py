"""A frozen base runs once per image; the head is trained on its cached outputs."""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import tensorflow as tf

from tfrtool.errors import DatasetError
from tfrtool.loading.options import ImageSize, Rescale, image_shape
from tfrtool.loading.tensors import Batch, Tensor, TfDataset
from tfrtool.training.folding import fold_convolutions
from tfrtool.training.train_options import Precision

BASE_BATCH = 16
"""Images that go through a base at a time. MobileNetV2 at 224 pixels took about 5.3 ms of CPU time
an image with 8, 16 and 32; with 16 less memory than with 32, and less padding of the last batch."""


def freeze(
    base: Any, image_size: ImageSize, rescale: Rescale, precision: Precision = "float32"
) -> Callable[[Tensor], Any]:
    """Return a function from images, uint8 [n, height, width, 3], to a base's features, float32.

    ``n`` is at most `BASE_BATCH`. The weights are copied into the function's graph, which has run
    once. A base in mixed precision is used as Keras has it, others with folded convolutions.
    """
    shape = image_shape(image_size, base.input_shape[-1])
    pixels = tf.TensorSpec([None, *shape], tf.uint8)
    # As constants of the call, weights need not be traced as variables and replaced in the graph.
    weights = [
        [tf.convert_to_tensor(variable.value) for variable in variables]
        for variables in (base.trainable_variables, base.non_trainable_variables)
    ]

    def features_of(images: Tensor) -> Tensor:
        floats = tf.cast(images, tf.float32)
        if rescale.bgr:
            floats = tf.reverse(floats, [-1])
        rescaled = floats * rescale.scale + rescale.offset
        features, _ = base.stateless_call(*weights, rescaled, training=False)
        return tf.cast(features, tf.float32)

    traced = tf.function(features_of, autograph=False).get_concrete_function(pixels)
    graph = traced
    if precision in ("float32", "bfloat16"):
        dtype = tf.bfloat16 if precision == "bfloat16" else tf.float32
        folded = tf.function(fold_convolutions(traced, dtype), autograph=False)
        graph = folded.get_concrete_function(pixels)
    graph(tf.zeros([BASE_BATCH, *shape], tf.uint8))

    def run(images: Tensor, _source: Any = traced) -> Any:  # Keras' grouped convolutions are in it
        # oneDNN prepares itself for each shape of its input, which takes longer than padding.
        missing = BASE_BATCH - len(images)
        padded = tf.pad(images, [[0, missing], *[[0, 0]] * 3]) if missing else images
        return graph(padded).numpy()[: len(images)]

    return run


def extract_features(
    base: Callable[[Tensor], Any],
    batches: Iterable[Batch],
    count: int,
    on_images: Callable[[int], None] = lambda _: None,
) -> tuple[Any, Any]:
    """Run a base over all images; the order stays.

    Args:
        base: result of `freeze`.
        batches: images, uint8 [n, size, size, 3], and labels; n is at most `BASE_BATCH`.
        count: number of images in all batches.
        on_images: called with the number of images of each batch.

    Returns:
        Features, float32 [count, ...], and labels, int64 [count] or float32 [count, classes].

    Raises:
        DatasetError: there are more images than ``count``, or fewer.
    """
    values = labels = np.empty(0)
    end = 0
    for pixels, numbers in batches:
        features, numbers = base(pixels), np.asarray(numbers)
        if not end:
            values = np.empty((count, *features.shape[1:]), np.float32)
            labels = np.empty((count, *numbers.shape[1:]), numbers.dtype)
        begin, end = end, end + len(numbers)
        if end > count:
            break
        values[begin:end], labels[begin:end] = features, numbers
        on_images(len(numbers))
    if end != count:
        what = "more" if end > count else "fewer"
        raise DatasetError(f"the split has {what} records than counted")
    return values, labels


def feature_batches(
    values: Any,
    labels: Any,
    batch_size: int,
    *,
    seed: int | None = None,
    first_epoch: int = 0,
    first_step: int = 0,
    epochs: int = 1,
) -> TfDataset:
    """Return batches of features and labels, shuffled by the seed and the epoch if there is one.

    Of the first epoch, they begin at a step.
    """
    count = len(labels)
    with tf.device("CPU"):
        features, targets = tf.constant(values), tf.constant(labels)

    def epoch_rows(epoch: Tensor) -> TfDataset:
        rows = tf.range(count)
        if seed is not None:
            rows = tf.random.experimental.stateless_shuffle(rows, tf.stack([seed, epoch]))
        return tf.data.Dataset.from_tensor_slices(rows).batch(batch_size)

    def take(rows: Tensor) -> Batch:
        return tf.gather(features, rows), tf.gather(targets, rows)

    plain = tf.autograph.experimental.do_not_convert
    epoch_numbers = tf.data.Dataset.range(first_epoch, first_epoch + epochs)
    batches = epoch_numbers.flat_map(plain(epoch_rows)).skip(first_step).map(plain(take))
    steps = -(-count // batch_size) * epochs - first_step
    batches = batches.apply(tf.data.experimental.assert_cardinality(steps))
    options = tf.data.Options()
    # With tuning, destroying an iterator that was read to its end waits for up to 60 s; to rewrite
    # the graph, TensorFlow would serialize the features.
    options.autotune.enabled = False
    options.experimental_optimization.apply_default_optimizations = False
    return batches.prefetch(2).with_options(options)
