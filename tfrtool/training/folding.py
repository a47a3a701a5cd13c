"""Rewriting a frozen graph for inference: fewer passes over the images, or half the bits.

In inference mode a BatchNormalization multiplies and adds a constant per channel, which can go into
the filters of the convolution before it. TensorFlow's own optimizer does so for some convolutions
and not for depthwise ones, and it removes an addition of zeros before it looks for a convolution
with an addition and an activation, which could be computed in one pass. So it is done here: a
convolution, all that follows it and the padding before it become one convolution, one BiasAdd and
one activation, which TensorFlow computes in one pass. MobileNetV2 takes 8.4 ms of CPU time an
image instead of 12.8, and 3.7 in bfloat16; oneDNN's private operations take as long.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from tfrtool.loading.tensors import Tensor

_CONVOLUTIONS = ("Conv2D", "DepthwiseConv2dNative")
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

_HALF_TOO = ("Add", "AddV2", "Mul", "Pad", "MaxPool", "ConcatV2", *_ACTIVATIONS)
"""Operations that stay in bfloat16 between convolutions that are."""


class _Folded(NamedTuple):
    """A convolution and the operations that it absorbs; it replaces the last of these ``parts``."""

    source: Any
    filters: Any
    bias: Any
    activation: str | None
    padding: bytes
    parts: list[Any]


def fold_convolutions(function: Any, dtype: Any) -> Callable[[Tensor], Tensor]:
    """Return what ``tf.function`` can trace again, so that convolutions take up what is around.

    The function is concrete, of one tensor to one of float32, and has captured the values of all
    variables, and no variable. The convolutions and what is between them are in ``dtype``.
    """
    operations = [one for one in function.graph.get_operations() if one.type != "Placeholder"]
    output = function.outputs[0].name
    constants = _find_constants(function, operations)
    found = {
        operation.name: _fold(operation, constants, output)
        for operation in operations
        # Others have filters that are computed from an image.
        if operation.type in _CONVOLUTIONS and operation.inputs[1].name in constants
    }
    absorbed = {part.name for folded in found.values() for part in folded.parts}

    def run(images: Tensor) -> Tensor:
        made = {function.inputs[0].name: images}

        def take(tensor: Any, kind: Any) -> Any:
            """Return what stands for a tensor; a float as one of this kind."""
            if tensor.name in constants:
                value = constants[tensor.name]
                make = tf.constant if value.size <= _SMALL else _weight
                return make(value, kind if tensor.dtype == tf.float32 else None)
            new = made[tensor.name]
            return tf.cast(new, kind) if tensor.dtype == tf.float32 else new

        for operation in operations:
            names = [tensor.name for tensor in operation.outputs]
            if operation.name in found:
                folded = found[operation.name]
                inputs = [take(folded.source, dtype), _weight(folded.filters, dtype)]
                (new,) = _write(images.graph, operation, inputs, dtype, folded.padding)
                new = tf.nn.bias_add(new, _weight(folded.bias, dtype))
                if folded.activation is not None:
                    new = getattr(tf.nn, folded.activation.lower())(new)
                made[[operation, *folded.parts][-1].outputs[0].name] = new
            elif operation.name not in absorbed and not constants.keys() >= set(names):
                floats = [one.name for one in operation.inputs if one.dtype == tf.float32]
                kinds = {made[name].dtype for name in floats if name in made}
                half = operation.type in _HALF_TOO and kinds == {tf.bfloat16}
                inputs = [
                    take(one, tf.bfloat16 if half else tf.float32) for one in operation.inputs
                ]
                new = _write(images.graph, operation, inputs, tf.bfloat16 if half else None)
                made |= zip(names, new, strict=True)
        return made[output]

    return run


def _write(graph: Any, old: Any, inputs: list[Any], kind: Any, padding: bytes | None = None) -> Any:
    """Copy an operation, with another dtype if ``kind`` is given; return its outputs."""
    attributes = dict(old.node_def.attr)
    kinds = [kind or tensor.dtype for tensor in old.outputs]
    if kind is not None:
        attributes["T"] = tf.compat.v1.AttrValue(type=kind.as_datatype_enum)
    if padding is not None:
        attributes["padding"] = tf.compat.v1.AttrValue(s=padding)
    return graph.create_op(old.type, inputs, kinds, attrs=attributes, name=old.name).outputs


def _weight(value: Any, kind: Any) -> Any:
    """Return a constant from outside of the graph.

    TensorFlow would copy a large one in it many times at first, and leave out a bias of zeros,
    which it wants for one pass.
    """
    with tf.init_scope():
        return tf.constant(value, kind)


def _find_constants(function: Any, operations: Any) -> dict[str, Any]:
    """Evaluate what depends on constants alone; operations come after what they take."""
    captured = zip(function.inputs[1:], function.captured_inputs, strict=True)
    constants: dict[str, Any] = {one.name: value.numpy() for one, value in captured}
    for operation in operations:
        values = [constants.get(tensor.name) for tensor in operation.inputs]
        known = all(value is not None for value in values)
        if operation.type == "Const":
            value = tf.make_ndarray(operation.get_attr("value"))
        elif operation.type in _EVALUATED and known:
            value = _EVALUATED[operation.type](*values)
        elif (
            # What Keras does with the bias of a convolution before it adds it.
            operation.type in ("Reshape", "Squeeze")
            and values[0] is not None
            and operation.outputs[0].shape.is_fully_defined()
        ):
            value = values[0].reshape(operation.outputs[0].shape.as_list())
        else:
            continue
        constants[operation.outputs[0].name] = value
    return constants


def _fold(convolution: Any, constants: Mapping[str, Any], output: str) -> _Folded:
    """Return what a convolution becomes, which ends with the graph's output at the latest."""
    source, filters = convolution.inputs[0], constants[convolution.inputs[1].name]
    depthwise = convolution.type == "DepthwiseConv2dNative"
    channels = filters.shape[2] * filters.shape[3] if depthwise else filters.shape[3]
    scale, bias = np.ones(channels), np.zeros(channels)
    last, parts, activation = convolution, [], None
    while (user := _only_user(last, output)) is not None:
        if user.type in _ACTIVATIONS:
            activation = user.type
            parts.append(user)
            break
        step = _affine(user, last, constants, channels)
        if step is None:
            break
        scale, bias = scale * step[0], bias * step[0] + step[1]
        parts.append(last := user)
    padding = convolution.get_attr("padding")
    if _pads_as_same(convolution, filters.shape[:2], constants, output):
        padding, source = b"SAME", source.op.inputs[0]
        parts.insert(0, convolution.inputs[0].op)
    scaled = filters.reshape(*filters.shape[:2], -1, channels) * scale
    filters, bias = scaled.reshape(filters.shape).astype(np.float32), bias.astype(np.float32)
    return _Folded(source, filters, bias, activation, padding, parts)


def _only_user(operation: Any, output: str) -> Any:
    """Return the one operation that takes what this gives; None where there are others."""
    tensor = operation.outputs[0]
    users = tensor.consumers()
    return users[0] if len(users) == 1 and tensor.name != output else None


def _affine(user: Any, before: Any, constants: Mapping[str, Any], channels: int) -> Any:
    """Return what an operation multiplies each channel by, and what it adds; None for others."""
    if user.type not in ("Mul", "Add", "AddV2", "BiasAdd", "Sub"):
        return None
    first, second = user.inputs[:2]
    swapped = first.name != before.outputs[0].name
    other = constants.get((first if swapped else second).name)
    if other is None or (swapped and user.type == "Sub"):
        return None
    # A constant of another shape could be one per column, or per image.
    if other.size != 1 and (*other.shape[-1:], other.size) != (channels, channels):
        return None
    value = np.broadcast_to(other.reshape(-1).astype(np.float64), channels)
    if user.type == "Mul":
        return value, 0.0
    return 1.0, -value if user.type == "Sub" else value


def _pads_as_same(
    convolution: Any, kernel: tuple[int, int], constants: Mapping[str, Any], output: str
) -> bool:
    """Return whether a convolution follows a padding by zeros that "SAME" would do, too."""
    pad = convolution.inputs[0].op
    if convolution.get_attr("padding") != b"VALID" or pad.type != "Pad":
        return False
    amounts = constants.get(pad.inputs[1].name)
    if amounts is None or amounts[[0, 3]].any() or _only_user(pad, output) is None:
        return False
    sizes = pad.inputs[0].shape[1:3].as_list()
    strides, dilations = (convolution.get_attr(name)[1:3] for name in ("strides", "dilations"))
    same = map(_same, sizes, kernel, strides, dilations)
    return bool(amounts[1:3].tolist() == list(same))


def _same(size: int, kernel: int, stride: int, dilation: int) -> list[int]:
    """Return the pixels that "SAME" adds to a dimension (documentation of tf.nn.convolution)."""
    added = max((-(-size // stride) - 1) * stride + (kernel - 1) * dilation + 1 - size, 0)
    return [added // 2, added - added // 2]
