"""The frozen base, run once: images become features, and the features are kept.

A base that doesn't learn gives an image the same features in every epoch. So it is run once an
image, as a graph for inference, and what learns is trained on what came out.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from tfrtool.errors import DatasetError, UsageError
from tfrtool.loading.pipeline.load_options import Rescale
from tfrtool.training.features.features_graph import fuse_convolutions
from tfrtool.training.features.features_precision import Precision, check_precision

__all__ = ["Features", "FrozenBase", "extract_features", "freeze"]

_BATCH = 16
"""Images that go through a base at a time. MobileNetV2 at 224 pixels took about 5.3 ms of CPU time
an image with 8, 16 and 32; with 16 less memory than with 32, and less padding of the last batch."""

_OFF = frozenset({"0", "false"})
"""How TF_ENABLE_ONEDNN_OPTS asks for TensorFlow without oneDNN."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FrozenBase:
    """A base as a graph for inference, with its weights as constants.

    Attributes:
        graph: the graph, a function from images, uint8 [batch_size, image_size, image_size, 3],
            to features, float32 [batch_size, width].
        batch_size: images that it takes at a time.
        width: numbers in the features of an image.
        precision: of the numbers within.
        fused: whether its convolutions are those of oneDNN, with all that follows them in one.
        source: what the graph was made from. The graph may call functions of it, as Keras' grouped
            convolutions are, and these live as long as it does.
    """

    graph: Callable[[Any], Any]
    batch_size: int
    width: int
    precision: Precision
    fused: bool
    source: Any = None

    def __call__(self, images: Any) -> Any:
        """Return the features of images.

        Args:
            images: uint8 [n, image_size, image_size, 3], a tensor or an array, of any n.

        Returns:
            A float32 array [n, width].
        """
        count = len(images)
        features = np.empty((count, self.width), np.float32)
        for start in range(0, count, self.batch_size):
            batch = tf.convert_to_tensor(images[start : start + self.batch_size])
            rows = len(batch)
            if rows < self.batch_size:
                # oneDNN prepares itself for each shape of its input, which takes longer than this.
                batch = tf.pad(batch, [[0, self.batch_size - rows], [0, 0], [0, 0], [0, 0]])
            features[start : start + rows] = self.graph(batch).numpy()[:rows]
        return features


@dataclass(frozen=True, slots=True, kw_only=True)
class Features:
    """What a frozen base made of the images of a split.

    Attributes:
        values: float32 [images, width].
        labels: int64 [images].
        seconds: wall time that it took.
        waited: how many of those passed in waiting for images.
    """

    values: Any
    labels: Any
    seconds: float
    waited: float

    def __post_init__(self) -> None:
        if len(self.values) != len(self.labels):
            raise ValueError("each row of features has a label")

    def __len__(self) -> int:
        return len(self.labels)


def freeze(
    base: Any,
    image_size: int,
    rescale: Rescale,
    precision: Precision = Precision.FLOAT32,
    batch_size: int = _BATCH,
) -> FrozenBase:
    """Make a graph for inference of a base, and run it once, so that it is ready.

    Where TensorFlow has no oneDNN, the graph is made of public operations, and gives the same
    features but for rounding.

    Args:
        base: a ``keras.Model`` from rescaled images, float32 [n, image_size, image_size, 3], to
            features, float32 [n, width]. Its weights are copied: what they become later is not
            seen.
        image_size: pixels both ways.
        rescale: how pixel values become what the base takes.
        precision: of the numbers in the base; the features are float32 with both.
        batch_size: images that go through at a time.

    Raises:
        UsageError: the processor, or this TensorFlow, can't compute in bfloat16.
    """
    check_precision(precision)
    pixels = tf.TensorSpec([None, image_size, image_size, 3], tf.uint8)
    traced = _traced(base, rescale, pixels)
    dtype = tf.bfloat16 if precision is Precision.BFLOAT16 else tf.float32
    zeros = tf.zeros([batch_size, image_size, image_size, 3], tf.uint8)
    fused = _has_onednn()
    try:
        graph = _fused(traced, dtype, pixels, native=fused)
        graph(zeros)
    except (ValueError, tf.errors.OpError):  # oneDNN's operations or their kernels aren't there
        if not fused:
            raise
        fused = False
    if not fused and precision is Precision.BFLOAT16:
        raise UsageError(
            "this TensorFlow can't run the model in bfloat16",
            expected="one with oneDNN",
            hint="leave --precision out",
        )
    if not fused:
        graph = _fused(traced, dtype, pixels, native=False)
    return FrozenBase(
        graph=graph,
        batch_size=batch_size,
        width=traced.outputs[0].shape[-1],
        precision=precision,
        fused=fused,
        source=traced,
    )


def _has_onednn() -> bool:
    """Return whether nobody turned oneDNN off; where it was left out, its operations fail."""
    return os.environ.get("TF_ENABLE_ONEDNN_OPTS", "").lower() not in _OFF


def _rescaled(images: Any, rescale: Rescale) -> Any:
    pixels = tf.cast(images, tf.float32)
    if getattr(rescale, "bgr", False):
        pixels = tf.reverse(pixels, [-1])
    return pixels * rescale.scale + rescale.offset


def _traced(base: Any, rescale: Rescale, pixels: Any) -> Any:
    """Return a base as a function of pixels that has captured the values of its weights.

    Given to the base from outside, weights need not be variables; that saves the detour of tracing
    it with variables, and replacing them in the graph.
    """
    weights = [
        [tf.convert_to_tensor(variable.value) for variable in variables]
        for variables in (base.trainable_variables, base.non_trainable_variables)
    ]

    def run(images: Any) -> Any:
        features, _ = base.stateless_call(*weights, _rescaled(images, rescale), training=False)
        return features

    return tf.function(run, autograph=False).get_concrete_function(pixels)


def _fused(traced: Any, dtype: Any, pixels: Any, *, native: bool) -> Any:
    """Return a traced function with its convolutions fused."""
    fused = fuse_convolutions(traced, dtype, native=native)
    source, output = traced.inputs[0].name, traced.outputs[0].name

    def run(images: Any) -> Any:
        # tf.identity makes the function capture a weight, where importing can't.
        weights = {name: tf.identity(value) for name, value in fused.weights.items()}
        (features,) = tf.graph_util.import_graph_def(
            fused.nodes, {source: images, **weights}, [output]
        )
        return features

    return tf.function(run, autograph=False).get_concrete_function(pixels)


def extract_features(
    base: FrozenBase,
    batches: Iterable[tuple[Any, Any]],
    images: int,
    on_step: Callable[[int], None] = lambda _: None,
) -> Features:
    """Run a base over all images of a pipeline.

    Args:
        base: the base.
        batches: pairs of images, uint8 [n, image_size, image_size, 3], and labels, int64 [n]; a
            ``tf.data.Dataset`` that decodes ahead, in threads of its own, as the base works.
            Batches of a multiple of the base's own size are taken best.
        images: how many there are in all.
        on_step: called after each batch with the number of images that are done.

    Returns:
        The features, in the order of the images.

    Raises:
        DatasetError: there are more images than that, or fewer.
    """
    start = time.perf_counter()
    values = np.empty((images, base.width), np.float32)
    labels = np.empty(images, np.int64)
    done, waited = 0, 0.0
    before = start
    for pixels, numbers in batches:
        waited += time.perf_counter() - before
        end = done + len(numbers)
        if end > images:
            raise DatasetError("the split has more records than were counted", expected=images)
        values[done:end] = base(pixels)
        labels[done:end] = numbers
        done = end
        on_step(done)
        before = time.perf_counter()
    if done != images:
        raise DatasetError(
            "the split has fewer records than were counted", expected=images, found=done
        )
    return Features(
        values=values, labels=labels, seconds=time.perf_counter() - start, waited=waited
    )
