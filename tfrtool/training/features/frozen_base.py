"""A frozen base as a graph for inference: it is run once an image, and its features are kept."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from tfrtool.errors import UsageError
from tfrtool.loading.options import Rescale
from tfrtool.loading.tensors import Tensor
from tfrtool.training.features.folding import fold_convolutions
from tfrtool.training.run.train_options import Precision

_BATCH = 16
"""Images that go through a base at a time. MobileNetV2 at 224 pixels took about 5.3 ms of CPU time
an image with 8, 16 and 32; with 16 less memory than with 32, and less padding of the last batch."""


_CPUINFO = Path("/proc/cpuinfo")
_BFLOAT16_FLAGS = frozenset({"avx512_bf16", "amx_bf16"})
"""What Linux calls the instructions that multiply bfloat16 numbers on x86. Without them, they are
made into float32 first, and nothing is won."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FrozenBase:
    """A base as a graph for inference of so many images at a time, with its weights as constants.

    The graph may call functions of its ``source``, as Keras' grouped convolutions are, and these
    live as long as that does.
    """

    graph: Callable[[Tensor], Tensor]
    batch_size: int
    width: int
    source: Any = None

    def __call__(self, images: Any) -> Any:
        """Return features, float32 [n, width], of images, uint8 [n, size, size, 3], of any n."""
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


def freeze(
    base: Any,
    image_size: int,
    rescale: Rescale,
    precision: Precision = Precision.FLOAT32,
    batch_size: int = _BATCH,
) -> FrozenBase:
    """Make a graph for inference of a base, and run it once, so that it is ready.

    The base is a ``keras.Model`` from rescaled images to features, float32 [n, width], and its
    weights are copied: what they become later is not seen. Features are float32 in any precision.
    A base of mixed precision is left as Keras has it.
    """
    pixels = tf.TensorSpec([None, image_size, image_size, 3], tf.uint8)
    # Given to the base from outside, weights need not be variables; that saves the detour of
    # tracing it with variables, and replacing them in the graph.
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
    if precision.policy == Precision.FLOAT32.value:
        dtype = tf.bfloat16 if precision is Precision.BFLOAT16 else tf.float32
        folded = tf.function(fold_convolutions(traced, dtype), autograph=False)
        graph = folded.get_concrete_function(pixels)
    graph(tf.zeros([batch_size, image_size, image_size, 3], tf.uint8))
    width = traced.outputs[0].shape[-1]
    return FrozenBase(graph=graph, batch_size=batch_size, width=width, source=traced)


def check_precision(precision: Precision, cpuinfo: Path = _CPUINFO) -> None:
    """Check that the processor can compute with a precision, and ``cpuinfo`` (proc(5)) says so."""
    if precision is not Precision.BFLOAT16:
        return
    try:
        lines = cpuinfo.read_text("utf-8", "replace").splitlines()
    except OSError:
        lines = []
    flags = {flag for line in lines if line.startswith("flags") for flag in line.split()}
    if not flags & _BFLOAT16_FLAGS:
        raise UsageError(
            "--precision bfloat16 requires a processor with bfloat16 instructions",
            expected=" or ".join(sorted(_BFLOAT16_FLAGS)),
            hint="remove --precision",
        )
