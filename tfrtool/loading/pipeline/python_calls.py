"""Functions of Python in TensorFlow's graphs."""

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tfrtool.loading.pipeline.tensors import Batch, Tensor, TfDataset

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


def map_and_batch(
    records: TfDataset, function: Callable[[Tensor], Batch], size: int, calls: int
) -> TfDataset:
    """Do what ``map`` and ``batch`` do, and have each call write to its place in the batch.

    TensorFlow joins the two by itself, but not in a ``flat_map``. ``records`` are string []; their
    order is kept, with ``calls`` of them at a time.
    """
    mapped = tf.function(function, autograph=False).get_concrete_function(records.element_spec)
    each = mapped.structured_outputs
    whole = tuple(tf.TensorSpec([None, *one.shape], one.dtype) for one in each)
    batches = tf.raw_ops.MapAndBatchDataset(
        input_dataset=tf.data.experimental.to_variant(records),
        other_arguments=mapped.captured_inputs,
        f=mapped,
        batch_size=tf.constant(size, tf.int64),
        num_parallel_calls=tf.constant(calls, tf.int64),
        drop_remainder=False,
        output_types=[one.dtype for one in whole],
        output_shapes=[one.shape for one in whole],
    )
    return tf.data.experimental.from_variant(batches, whole)
