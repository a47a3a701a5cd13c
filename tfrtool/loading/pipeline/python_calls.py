"""Functions of Python in TensorFlow's graphs."""

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tfrtool.loading.pipeline.tensors import Tensor

plain = tf.autograph.experimental.do_not_convert
"""Marks a function of tensors as one without ``if`` or ``for`` over them. Else TensorFlow parses
and compiles it anew in every process, which takes as long as decoding some hundred images."""


def python_call(
    method: Callable[..., Tensor], inputs: Sequence[Tensor], dtype: Any, shape: Any
) -> Tensor:
    """Return what a method gives, as a part of a graph, as long as its object lives.

    TensorFlow keeps the functions of graphs for ever, in the outermost graph, and with them would
    keep the object, such as one with all images. The pipeline's own functions keep it alive as long
    as it is needed.
    """
    reference = weakref.WeakMethod(method)

    def call(*args: Tensor) -> Tensor:
        found = reference()
        if found is None:
            raise RuntimeError("the pipeline is gone")
        return found(*args)

    return tf.ensure_shape(tf.numpy_function(call, inputs, dtype), shape)
