"""Functions of Python in TensorFlow's graphs."""

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tfrtool.loading.tensors import Tensor, TfDataset

plain = tf.autograph.experimental.do_not_convert
"""Marks a function of tensors as one without ``if`` or ``for`` over them. Else TensorFlow parses
and compiles it anew in every process, which takes as long as decoding some hundred images."""

_READ_AT_A_TIME = 2**18
"""Bytes, as TFRecordDataset does it."""

_ONE_DEVICE = {"experimental_ints_on_device": True}

_PARALLEL: dict[str, tuple[str, dict[str, int]]] = {
    "Map": ("ParallelMapDatasetV2", {}),
    "Interleave": (
        "ParallelInterleaveDatasetV4",
        dict.fromkeys(("buffer_output_elements", "prefetch_input_elements"), tf.data.AUTOTUNE),
    ),
}


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
            raise RuntimeError("the pipeline was deleted")
        return found(*args)

    return tf.ensure_shape(tf.numpy_function(call, inputs, dtype), shape)


def records_of(path: Tensor, compression: str) -> TfDataset:
    """Return the records of a file, string []: TFRecordDataset has a function for a list."""
    read = tf.raw_ops.TFRecordDataset(
        filenames=path, compression_type=compression, buffer_size=_READ_AT_A_TIME
    )
    return tf.data.experimental.from_variant(read, tf.TensorSpec([], tf.string))


def _on_one_device(function: Callable[..., Any]) -> Any:
    """Return a tf.function that TensorFlow keeps on one device, if this release of it can."""
    try:
        return tf.function(function, autograph=False, experimental_attributes=_ONE_DEVICE)
    except (TypeError, ValueError):  # experimental: another release may have no such attribute
        return tf.function(function, autograph=False)


def changed(
    dataset: TfDataset,
    kind: str,
    function: Callable[..., Any],
    calls: int = 0,
    deterministic: bool = True,
    **options: Any,
) -> TfDataset:
    """Do what a method of a dataset does with a function of its elements, and sooner.

    The ``kind`` is that of an operation of ``tf.raw_ops``, to which ``options`` are given: Filter,
    FlatMap, Interleave or Map. The function has no ``if`` or ``for`` over tensors, and is kept on
    one device as a whole. Graphs that may be spread are rewritten and placed in every iterator,
    each of which takes as long as decoding a dozen images.
    """
    name = f"{kind}Dataset"
    if calls:
        name, more = _PARALLEL[kind]
        options |= {
            "num_parallel_calls": calls,
            "deterministic": str(deterministic).lower(),
            **more,
        }
    if kind == "Map":
        options["preserve_cardinality"] = True
    spec = dataset.element_spec
    given = [spec]

    def variant(*args: Tensor) -> Tensor:
        result = function(*args)
        if not isinstance(result, tf.data.Dataset):
            return result
        given.append(result.element_spec)
        return tf.data.experimental.to_variant(result)

    traced = _on_one_device(variant).get_concrete_function(
        *(spec if isinstance(spec, tuple) else (spec,))
    )
    whole = given[-1]
    if kind == "Map":
        outputs = traced.structured_outputs
        whole = tf.nest.map_structure(lambda one: tf.TensorSpec(one.shape, one.dtype), outputs)
    made = tf.data.experimental.from_variant(
        getattr(tf.raw_ops, name)(
            input_dataset=tf.data.experimental.to_variant(dataset),
            other_arguments=traced.captured_inputs,
            output_types=[one.dtype for one in tf.nest.flatten(whole)],
            output_shapes=[one.shape for one in tf.nest.flatten(whole)],
            **{"predicate" if kind == "Filter" else "f": traced},
            **options,
        ),
        whole,
    )
    made.needs = dataset, function, traced  # else what a graph calls in Python would be gone
    return made
