"""Rewriting a frozen graph for inference: fewer passes over the images, or half the bits.

In inference mode a BatchNormalization multiplies and adds a constant per channel, which can go into
the filters of the convolution before it. TensorFlow's own optimizer does so for some convolutions
and not for depthwise ones, and it removes an addition of zeros before it looks for a convolution
with an addition and an activation, which could be computed in one pass. So it is done here: a
convolution, all that follows it and the padding before it become one convolution, one BiasAdd and
one activation, which TensorFlow computes in one pass. MobileNetV2 takes 8.4 ms of CPU time an
image instead of 12.8, and 3.7 in bfloat16; oneDNN's private operations take as long.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

_CONVOLUTIONS = ("Conv2D", "DepthwiseConv2dNative")

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
class FoldedGraph:
    """A ``GraphDef`` with its old input and output, and the weights of its placeholders by name.

    Were they constants in the graph, TensorFlow would copy them many times before the first run.
    """

    nodes: Any
    weights: Mapping[str, Any]


def fold_convolutions(function: Any, dtype: Any) -> FoldedGraph:
    """Rewrite the graph of a function, so that each convolution takes up what is around it.

    The function is concrete, of one float32 tensor to one, and has captured the values of all
    variables, and no variable. In bfloat16 are the convolutions and what is between them.
    """
    return _Rewriter(function, dtype).rewrite()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Folded:
    """A convolution and what becomes part of it: ``last`` is the operation that it stands for."""

    convolution: Any
    source: Any
    filters: Any
    bias: Any
    activation: str | None
    padding: bytes
    last: Any


class _Rewriter:
    """One rewriting, which remembers what is constant and what has been written."""

    def __init__(self, function: Any, dtype: Any) -> None:
        self._graph = function.graph
        self._output = function.outputs[0]
        self._dtype = dtype
        inputs = zip(function.inputs[1:], function.captured_inputs, strict=True)
        self._constants: dict[str, Any] = {one.name: value.numpy() for one, value in inputs}
        self._nodes = tf.compat.v1.GraphDef()
        self._weights: dict[str, Any] = {}
        self._written: set[str] = set()
        self._half: set[str] = set()

    def rewrite(self) -> FoldedGraph:
        operations = self._graph.get_operations()
        self._find_constants(operations)
        found: dict[str, _Folded] = {}
        absorbed: set[str] = set()
        for operation in operations:
            if operation.type in _CONVOLUTIONS:
                folded, parts = self._fold(operation)
                if folded is not None:
                    found[operation.name] = folded
                    absorbed |= parts
        old = self._graph.as_graph_def()
        self._nodes.versions.CopyFrom(old.versions)
        self._nodes.library.CopyFrom(old.library)
        for operation in operations:
            # Constants are written where they are used: most were used up.
            constant = not operation.outputs or operation.outputs[0].name in self._constants
            if operation.name in found:
                self._write_folded(found[operation.name])
            elif not constant and operation.name not in absorbed:
                self._copy(operation)
        return FoldedGraph(nodes=self._nodes, weights=self._weights)

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

    def _fold(self, convolution: Any) -> tuple[_Folded | None, set[str]]:
        """Return what a convolution becomes, and the names of the operations that are part of it.

        Convolutions with filters that are no constants or with channels first are left as they are.
        """
        source, filters = convolution.inputs[0], self._constants.get(convolution.inputs[1].name)
        if (
            filters is None
            or filters.dtype != np.float32
            or convolution.get_attr("data_format") != b"NHWC"
            or source.shape.rank != 4
        ):
            return None, set()
        depthwise = convolution.type == "DepthwiseConv2dNative"
        channels = filters.shape[2] * filters.shape[3] if depthwise else filters.shape[3]
        scale, bias = np.ones(channels), np.zeros(channels)
        last, parts, activation = convolution, set(), None
        while (step := self._affine(last, channels)) is not None:
            last, factor, term = step
            scale, bias = scale * factor, bias * factor + term
            parts.add(last.name)
        following = self._only_user(last)
        if following is not None and following.type in _ACTIVATIONS:
            last, activation = following, following.type
            parts.add(last.name)
        padding = convolution.get_attr("padding")
        if self._pads_as_same(convolution, filters.shape[:2]):
            padding, source = b"SAME", source.op.inputs[0]
            parts.add(convolution.inputs[0].op.name)
        scaled = filters.reshape(*filters.shape[:2], -1, channels) * scale
        return _Folded(
            convolution=convolution,
            source=source,
            filters=scaled.reshape(filters.shape).astype(np.float32),
            bias=bias.astype(np.float32),
            activation=activation,
            padding=padding,
            last=last,
        ), parts

    def _only_user(self, operation: Any) -> Any:
        """Return the one operation that takes what this gives; None where there are others."""
        tensor = operation.outputs[0]
        users = tensor.consumers()
        return users[0] if len(users) == 1 and tensor.name != self._output.name else None

    def _affine(self, operation: Any, channels: int) -> tuple[Any, Any, Any] | None:
        """Return what multiplies an output by a constant per channel or adds one; factor, term."""
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
        if user.type == "Mul":
            return user, value, 0.0
        return user, 1.0, -value if user.type == "Sub" else value

    def _pads_as_same(self, convolution: Any, kernel: tuple[int, int]) -> bool:
        """Return whether a convolution follows a padding by zeros that "SAME" would do, too."""
        pad = convolution.inputs[0].op
        if convolution.get_attr("padding") != b"VALID" or pad.type != "Pad":
            return False
        amounts = self._constants.get(pad.inputs[1].name)
        if amounts is None or amounts[[0, 3]].any() or self._only_user(pad) is None:
            return False
        sizes = pad.inputs[0].shape[1:3].as_list()
        strides, dilations = (convolution.get_attr(name)[1:3] for name in ("strides", "dilations"))
        same = map(_same, sizes, kernel, strides, dilations)
        return bool(amounts[1:3].tolist() == list(same))

    def _write_folded(self, folded: _Folded) -> None:
        """Write a convolution; its output has the name of the last operation it stands for."""
        name, kind = folded.last.name, folded.convolution.type
        source = self._input(folded.source, self._dtype)
        filters = self._write_weight(f"{name}/filters", folded.filters, self._dtype)
        bias = self._write_weight(f"{name}/bias", folded.bias, self._dtype)
        node = self._write(f"{name}/convolution", kind, source, filters)
        for attribute in ("strides", "dilations", "data_format"):
            node.attr[attribute].CopyFrom(folded.convolution.node_def.attr[attribute])
        node.attr["padding"].s = folded.padding
        if folded.padding == b"EXPLICIT":
            amounts = folded.convolution.node_def.attr["explicit_paddings"]
            node.attr["explicit_paddings"].CopyFrom(amounts)
        if folded.activation is None:
            self._write(name, "BiasAdd", node.name, bias)
        else:
            total = self._write(f"{name}/sum", "BiasAdd", node.name, bias)
            self._write(name, folded.activation, total.name)
        if self._dtype == tf.bfloat16:
            self._half.add(folded.last.outputs[0].name)

    def _write(self, name: str, kind: str, *inputs: str) -> Any:
        node = self._nodes.node.add(name=name, op=kind)
        node.input.extend(inputs)
        node.attr["T"].type = self._dtype.as_datatype_enum
        return node

    def _copy(self, operation: Any) -> None:
        """Write an operation as it was, or in bfloat16 where all that it takes is in it."""
        node = tf.compat.v1.NodeDef()
        node.CopyFrom(operation.node_def)
        floats = {tensor.name for tensor in operation.inputs if tensor.dtype == tf.float32}
        half = operation.type in _HALF_TOO and bool(floats & self._half)
        half = half and floats <= self._half | self._constants.keys()
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
            if self._is_new(name):
                node = self._nodes.node.add(name=name, op="Const")
                node.attr["dtype"].type = dtype.as_datatype_enum
                node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(value, dtype=dtype))
            return name
        if tensor.dtype != tf.float32 or (name in self._half) == (dtype == tf.bfloat16):
            return name
        cast = f"{tensor.op.name}/output_{tensor.value_index}/{dtype.name}"
        if self._is_new(cast):
            node = self._nodes.node.add(name=cast, op="Cast")
            node.input.append(name)
            source = tf.float32 if dtype == tf.bfloat16 else tf.bfloat16
            node.attr["SrcT"].type = source.as_datatype_enum
            node.attr["DstT"].type = dtype.as_datatype_enum
        return cast

    def _write_weight(self, name: str, value: Any, dtype: Any) -> str:
        if self._is_new(name):
            self._weights[name] = tf.constant(value, dtype)
            node = self._nodes.node.add(name=name, op="Placeholder")
            node.attr["dtype"].type = dtype.as_datatype_enum
            node.attr["shape"].shape.CopyFrom(tf.TensorShape(value.shape).as_proto())
        return name

    def _is_new(self, name: str) -> bool:
        new = name not in self._written
        self._written.add(name)
        return new


def _same(size: int | None, kernel: int, stride: int, dilation: int) -> list[int] | None:
    """Return the pixels that "SAME" adds to a dimension (documentation of tf.nn.convolution)."""
    if size is None:
        return None
    added = max((-(-size // stride) - 1) * stride + (kernel - 1) * dilation + 1 - size, 0)
    return [added // 2, added - added // 2]
