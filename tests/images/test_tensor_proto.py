"""Serialized tensors, read without TensorFlow."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfrtool.images.tensor_proto import Tensor, read_tensor


@pytest.mark.parametrize(
    "dtype", ["uint8", "int8", "int16", "uint16", "int32", "int64", "float16", "float32", "float64"]
)
@pytest.mark.parametrize("shape", [[], [6], [2, 3], [1, 2, 3]])
def test_what_tensorflow_writes_is_read(tf: Any, dtype: str, shape: list[int]) -> None:
    """Shape and values come back as they went in."""
    size = 6 if shape else 1
    values = tf.reshape(tf.cast(tf.range(1, size + 1), dtype), shape)
    tensor = read_tensor(tf.io.serialize_tensor(values).numpy())
    assert tensor is not None
    assert list(tensor.shape) == shape
    assert list(tensor.values) == list(range(1, size + 1))


def test_strings_are_left_alone(tf: Any) -> None:
    """A tensor of strings is none of numbers."""
    assert read_tensor(tf.io.serialize_tensor(tf.constant(["a", "b"])).numpy()) is None


def test_a_shape_must_be_filled(tf: Any) -> None:
    """A message whose content is too short for its shape is not taken."""
    data = tf.io.serialize_tensor(tf.zeros([4, 4], tf.uint8)).numpy()
    assert read_tensor(data) is not None
    assert read_tensor(data.replace(b"\x22\x10" + bytes(16), b"\x22\x0f" + bytes(15))) is None
    with pytest.raises(ValueError, match="don't fill"):
        Tensor(shape=(2, 2), values=b"123")


@given(st.binary(max_size=60), st.booleans())
def test_hostile_bytes_never_raise(noise: bytes, begun: bool) -> None:
    """Any bytes are a tensor or none; what is one fills its shape."""
    tensor = read_tensor((b"\x08\x04\x12\x08" if begun else b"") + noise)
    if tensor is not None:
        assert len(tensor.values) > 0


def test_many_small_fields_cost_no_memory() -> None:
    """A message of a million fields is no tensor, and isn't taken apart to find out."""
    data = b"\x08\x04" * 1_000_000
    tracemalloc.start()
    try:
        assert read_tensor(data) is None
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()
