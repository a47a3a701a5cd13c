"""Rewriting a frozen graph for inference: fewer passes over the images, or half the bits.

In inference mode a BatchNormalization multiplies and adds a constant per channel, which can go into
the filters of the convolution before it. TensorFlow's own optimizer does so for some convolutions
and not for depthwise ones, and it removes an addition of zeros before it looks for a convolution
with an addition and an activation, which could be computed in one pass. So it is done here: a
convolution with all that follows it, and with the padding before it, becomes one operation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

__all__ = ["FusedGraph", "fuse_convolutions"]

CONVOLUTIONS = {
    "Conv2D": "_MklNativeFusedConv2D",
    "DepthwiseConv2dNative": "_MklNativeFusedDepthwiseConv2dNative",
}
"""The operations to replace, and those of oneDNN in TensorFlow that also add and activate.

TensorFlow's own optimizer makes the same, where it finds the pattern. They are not part of its
Python interface: whoever runs a graph with them must be ready to do without."""

_RESHAPED = ("Reshape", "Squeeze")
"""What Keras does with the bias of a convolution before it adds it."""

_ACTIVATIONS = ("Relu", "Relu6")

_EVALUATED: Mapping[str, Callable[..., Any]] = {
    "Identity": lambda value: value,
    "Add": np.add,
    "AddV2": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "RealDiv": np.divide,
    "Sqrt": np.sqrt,
    "Rsqrt": lambda value: (1 / np.sqrt(value)).astype(value.dtype),
}
"""What layers do with their weights alone."""

_SMALL = 128
"""Numbers that a constant may have in the graph itself."""

_HALF_TOO = frozenset({"Add", "AddV2", "Mul", "Pad", "MaxPool", "ConcatV2", *_ACTIVATIONS})
"""Operations that stay in bfloat16 between convolutions that are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fusion:
    """A convolution and what becomes part of it.

    Attributes:
        convolution: the operation itself.
        source: the tensor that it takes.
        filters: as they are with all scales multiplied in.
        bias: what is added to each channel.
        activation: "Relu", "Relu6" or nothing.
        padding: "SAME", "VALID" or "EXPLICIT".
        explicit: the pixels to add before and after each dimension, for "EXPLICIT".
        last: the operation whose output this computes.
    """

    convolution: Any
    source: Any
    filters: Any
    bias: Any
    activation: str | None
    padding: bytes
    explicit: tuple[int, ...]
    last: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class FusedGraph:
    """A graph, and the weights that it takes beside its input.

    Attributes:
        nodes: a ``GraphDef`` whose input and output have the names and dtypes that they had.
        weights: tensors by the names of the placeholders for them. Were they constants in the
            graph, TensorFlow would copy them many times before the first run.
    """

    nodes: Any
    weights: Mapping[str, Any]


def fuse_convolutions(function: Any, dtype: Any, *, native: bool) -> FusedGraph:
    """Rewrite the graph of a function, so that each convolution becomes one with all around it.

    Args:
        function: a ``ConcreteFunction`` of one tensor to one tensor, in float32, which captured
            the values of all variables, and no variable.
        dtype: ``tf.float32``, or ``tf.bfloat16`` for the convolutions and what is between them.
        native: whether a convolution becomes a single operation of oneDNN, or three of
            TensorFlow's public ones.
    """
    return _Rewriter(function, dtype, native).rewrite()


class _Rewriter:
    """One rewriting, which remembers what is constant and what has been written."""

    def __init__(self, function: Any, dtype: Any, native: bool) -> None:
        self._graph = function.graph
        self._output = function.outputs[0]
        self._dtype = dtype
        self._native = native
        self._constants: dict[str, Any] = {
            placeholder.name: value.numpy()
            for placeholder, value in zip(
                function.inputs[1:], function.captured_inputs, strict=True
            )
        }
        self._nodes = tf.compat.v1.GraphDef()
        self._weights: dict[str, Any] = {}
        self._written: set[str] = set()
        self._half: set[str] = set()

    def rewrite(self) -> FusedGraph:
        graph = self._graph
        operations = graph.get_operations()
        self._find_constants(operations)
        fusions: dict[str, _Fusion] = {}
        absorbed: set[str] = set()
        for operation in operations:
            if operation.type in CONVOLUTIONS:
                fusion, parts = self._fusion(operation)
                if fusion is not None:
                    fusions[operation.name] = fusion
                    absorbed |= parts
        old = graph.as_graph_def()
        self._nodes.versions.CopyFrom(old.versions)
        self._nodes.library.CopyFrom(old.library)
        for operation in operations:
            if operation.name in fusions:
                self._write_fusion(fusions[operation.name])
            elif self._is_copied(operation) and operation.name not in absorbed:
                self._copy(operation)
        return FusedGraph(nodes=self._nodes, weights=self._weights)

    def _is_copied(self, operation: Any) -> bool:
        # Constants are written where they are used: most were used up.
        return bool(operation.outputs) and operation.outputs[0].name not in self._constants

    def _find_constants(self, operations: Any) -> None:
        """Evaluate what depends on constants alone; operations come after what they take."""
        for operation in operations:
            if operation.type == "Const":
                value = tf.make_ndarray(operation.get_attr("value"))
            elif operation.type in _EVALUATED and operation.outputs[0].name != self._output.name:
                values = [self._constants.get(tensor.name) for tensor in operation.inputs]
                if any(value is None for value in values):
                    continue
                value = _EVALUATED[operation.type](*values)
            elif (
                operation.type in _RESHAPED
                and operation.inputs[0].name in self._constants
                and operation.outputs[0].shape.is_fully_defined()
            ):
                value = self._constants[operation.inputs[0].name]
                value = value.reshape(operation.outputs[0].shape.as_list())
            else:
                continue
            self._constants[operation.outputs[0].name] = value

    def _fusion(self, convolution: Any) -> tuple[_Fusion | None, set[str]]:
        """Return what a convolution becomes, and the names of the operations that are part of it.

        Convolutions with filters that are no constants or with channels first are left as they are.
        """
        source, filters = convolution.inputs[0], self._constants.get(convolution.inputs[1].name)
        depthwise = convolution.type == "DepthwiseConv2dNative"
        if (
            filters is None
            or filters.dtype != np.float32
            or convolution.get_attr("data_format") != b"NHWC"
            or source.shape.rank != 4
        ):
            return None, set()
        channels = filters.shape[2] * filters.shape[3] if depthwise else filters.shape[3]
        scale, bias = np.ones(channels), np.zeros(channels)
        last, parts = convolution, set()
        while (step := self._affine(last, channels)) is not None:
            last, kind, value = step
            scale, bias = (scale * value, bias * value) if kind == "Mul" else (scale, bias + value)
            parts.add(last.name)
        activation = self._only_user(last)
        if activation is not None and activation.type in _ACTIVATIONS:
            last = activation
            parts.add(last.name)
        else:
            activation = None
        padding, explicit, pad = self._padding(convolution, filters.shape[:2])
        if pad is not None:
            source = pad.inputs[0]
            parts.add(pad.name)
        scaled = filters.reshape(*filters.shape[:2], -1, channels) * scale
        return _Fusion(
            convolution=convolution,
            source=source,
            filters=scaled.reshape(filters.shape).astype(np.float32),
            bias=bias.astype(np.float32),
            activation=None if activation is None else activation.type,
            padding=padding,
            explicit=explicit,
            last=last,
        ), parts - {convolution.name}

    def _only_user(self, operation: Any) -> Any:
        """Return the one operation that takes what this gives; None where there are others."""
        tensor = operation.outputs[0]
        users = tensor.consumers()
        return users[0] if len(users) == 1 and tensor.name != self._output.name else None

    def _affine(self, operation: Any, channels: int) -> tuple[Any, str, Any] | None:
        """Return what multiplies an operation's output by a constant per channel, or adds one."""
        user = self._only_user(operation)
        if user is None or user.type not in ("Mul", "Add", "AddV2", "BiasAdd", "Sub"):
            return None
        first, second = user.inputs[:2]
        swapped = first.name != operation.outputs[0].name
        other = self._constants.get((first if swapped else second).name)
        if other is None or (swapped and user.type == "Sub"):
            return None
        # A constant of another shape could be one per column, or per image.
        if other.size != 1 and (*other.shape[-1:], other.size) != (channels, channels):
            return None
        value = np.broadcast_to(other.reshape(-1).astype(np.float64), channels)
        return (
            user,
            ("Mul" if user.type == "Mul" else "Add"),
            -value if user.type == "Sub" else value,
        )

    def _padding(
        self, convolution: Any, kernel: tuple[int, int]
    ) -> tuple[bytes, tuple[int, ...], Any]:
        """Return a convolution's padding, and the operation before it that this makes needless."""
        padding = convolution.get_attr("padding")
        explicit = tuple(convolution.get_attr("explicit_paddings"))
        pad = convolution.inputs[0].op
        if padding != b"VALID" or pad.type != "Pad" or self._only_user(pad) is None:
            return padding, explicit, None
        amounts = self._constants.get(pad.inputs[1].name)
        if amounts is None or amounts[[0, 3]].any():
            return padding, explicit, None
        wanted = amounts[1:3].tolist()
        sizes = pad.inputs[0].shape[1:3].as_list()
        same = [
            _same(*dimension)
            for dimension in zip(
                sizes,
                kernel,
                convolution.get_attr("strides")[1:3],
                convolution.get_attr("dilations")[1:3],
                strict=True,
            )
        ]
        if wanted == same:
            return b"SAME", (), pad
        if convolution.type == "DepthwiseConv2dNative":  # that of oneDNN can't be told how much
            return padding, explicit, None
        return b"EXPLICIT", tuple(amounts.reshape(-1).tolist()), pad

    def _write_fusion(self, fusion: _Fusion) -> None:
        """Write a convolution; its output has the name of the last operation it stands for."""
        name = fusion.last.name
        source = self._input(fusion.source, self._dtype)
        filters = self._write_weight(f"{name}/filters", fusion.filters, self._dtype)
        bias = self._write_weight(f"{name}/bias", fusion.bias, self._dtype)
        steps = ["BiasAdd"] + ([] if fusion.activation is None else [fusion.activation])
        kind = fusion.convolution.type
        if self._native:
            node = self._write(name, CONVOLUTIONS[kind], source, filters, bias)
            node.attr["num_args"].i = 1
            node.attr["is_filter_const"].b = True
            node.attr["fused_ops"].list.s.extend(step.encode() for step in steps)
            node.attr["_kernel"].s = b"MklNameChangeOp"
            if kind == "Conv2D":
                node.attr["TArgs"].list.type.append(self._dtype.as_datatype_enum)
        else:
            node = self._write(f"{name}/convolution", kind, source, filters)
            self._write(name if len(steps) == 1 else f"{name}/sum", "BiasAdd", node.name, bias)
            for step in steps[1:]:
                self._write(name, step, f"{name}/sum")
        for attribute in ("strides", "dilations", "data_format"):
            node.attr[attribute].CopyFrom(fusion.convolution.node_def.attr[attribute])
        node.attr["padding"].s = fusion.padding
        if fusion.explicit:
            node.attr["explicit_paddings"].list.i.extend(fusion.explicit)
        if self._dtype == tf.bfloat16:
            self._half.add(fusion.last.outputs[0].name)

    def _write(self, name: str, kind: str, *inputs: str) -> Any:
        node = self._nodes.node.add(name=name, op=kind)
        node.input.extend(inputs)
        node.attr["T"].type = self._dtype.as_datatype_enum
        return node

    def _copy(self, operation: Any) -> None:
        """Write an operation as it was, or in bfloat16 where all that it takes is in it."""
        node = tf.compat.v1.NodeDef()
        node.CopyFrom(operation.node_def)
        floats = [tensor for tensor in operation.inputs if tensor.dtype == tf.float32]
        half = operation.type in _HALF_TOO and any(tensor.name in self._half for tensor in floats)
        half = half and all(
            tensor.name in self._half or tensor.name in self._constants for tensor in floats
        )
        dtype = tf.bfloat16 if half else tf.float32
        node.input[:] = [self._input(tensor, dtype) for tensor in operation.inputs]
        if half:
            node.attr["T"].type = dtype.as_datatype_enum
            self._half.add(operation.outputs[0].name)
        self._nodes.node.append(node)

    def _input(self, tensor: Any, dtype: Any) -> str:
        """Return the name under which a tensor can be taken; write it as a float of ``dtype``."""
        name: str = tensor.name
        if name in self._constants:
            value = self._constants[name]
            dtype = dtype if tensor.dtype == tf.float32 else tensor.dtype
            name = f"{tensor.op.name}/{dtype.name}"
            if value.size > _SMALL and tensor.dtype == tf.float32:
                return self._write_weight(name, value, dtype)
            return self._write_constant(name, value, dtype)
        if tensor.dtype != tf.float32 or (name in self._half) == (dtype == tf.bfloat16):
            return name
        cast = f"{tensor.op.name}/output_{tensor.value_index}/{dtype.name}"
        if cast not in self._written:
            self._written.add(cast)
            node = self._nodes.node.add(name=cast, op="Cast")
            node.input.append(name)
            source = tf.float32 if dtype == tf.bfloat16 else tf.bfloat16
            node.attr["SrcT"].type = source.as_datatype_enum
            node.attr["DstT"].type = dtype.as_datatype_enum
        return cast

    def _write_weight(self, name: str, value: Any, dtype: Any) -> str:
        if name not in self._weights:
            self._weights[name] = tf.constant(value, dtype)
            node = self._nodes.node.add(name=name, op="Placeholder")
            node.attr["dtype"].type = dtype.as_datatype_enum
            node.attr["shape"].shape.CopyFrom(tf.TensorShape(value.shape).as_proto())
        return name

    def _write_constant(self, name: str, value: Any, dtype: Any) -> str:
        if name not in self._written:
            self._written.add(name)
            node = self._nodes.node.add(name=name, op="Const")
            node.attr["dtype"].type = dtype.as_datatype_enum
            node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(value, dtype=dtype))
        return name


def _same(size: int | None, kernel: int, stride: int, dilation: int) -> list[int] | None:
    """Return the pixels that "SAME" adds before and after a dimension of ``size`` pixels.

    The formula is that of TensorFlow's documentation of ``tf.nn.convolution``.
    """
    if size is None:
        return None
    added = max((-(-size // stride) - 1) * stride + (kernel - 1) * dilation + 1 - size, 0)
    return [added // 2, added - added // 2]
