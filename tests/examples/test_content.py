"""What bytes hold."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from tests.examples.strategies import (
    int64,
    string,
    tf_example,
    tf_sequence,
)
from tfrtool.examples.content import decode_text, describe_bytes, is_text, png_form

CONTENTS = [
    (b"", "empty"),
    (b"\xff\xd8\xff\xe0\x00\x10JFIF", "image/jpeg"),
    (b"\x89PNG\r\n\x1a\n....", "image/png"),
    (b"GIF89a...", "image/gif"),
    (b"RIFF\x10\0\0\0WEBPVP8 ", "image/webp"),
    (b"RIFF\x10\0\0\0WAVEfmt ", "audio/wav"),
    (b"RIFF\x10\0\0\0????", "binary"),
    (b"BM" + bytes(12) + b"\x28\0\0\0" + bytes(20), "image/bmp"),
    (b"BMW is a car, and this is long enough", "text"),
    (b"II*\0\x08\0\0\0", "image/tiff"),
    (b"\0\0\0\x20ftypavif\0\0\0\0", "image/avif"),
    (b"\x1f\x8b\x08\0", "application/gzip"),
    (b"\x93NUMPY\x01\0", "application/x-npy"),
    ("Füße, 日本\n\t".encode(), "text"),
    (b"cat.1.jpg", "text"),
    (b"a\0b", "binary"),
    (b"\x1b[31mred", "binary"),
    (b"\xff\xfe", "binary"),
]


@pytest.mark.parametrize(("value", "content"), CONTENTS)
def test_content(value: bytes, content: str) -> None:
    """Content is told from the bytes."""
    assert describe_bytes(value) == content


@given(value=st.binary(max_size=40))
def test_text_is_harmless(value: bytes) -> None:
    """Text is what decodes, and what a terminal takes for text and nothing else."""
    text = decode_text(value)
    if text is not None:
        assert text.encode() == value
        assert all(c.isprintable() or c in "\t\r\n" for c in text)
    if describe_bytes(value) == "text":
        assert text is not None


@given(text=st.text(max_size=12), times=st.integers(1, 50), tail=st.binary(max_size=2))
def test_long_text_is_judged_like_short_text(text: str, times: int, tail: bytes) -> None:
    """The short cut for long values finds what decoding finds."""
    value = text.encode() * times + tail
    assert is_text(value) == (decode_text(value) is not None)


TENSORS: list[Any] = [
    [1.0, 2.0], 3, [b"a", b"bc"], [[]], True, [[1, 2], [3, 4]], b"word", 2.5,
    [1, 1, 1, 1], [7] * 300,
]  # fmt: skip


@pytest.mark.parametrize("value", TENSORS, ids=lambda value: str(value)[:20])
def test_tensors_of_tensorflow(tf: Any, value: Any) -> None:
    """What tf.io.serialize_tensor and tf.make_tensor_proto write is a TensorProto."""
    assert describe_bytes(tf.io.serialize_tensor(tf.constant(value)).numpy()) == "TensorProto"
    proto = tf.make_tensor_proto(value)
    if proto.ByteSize() > 4:
        assert describe_bytes(proto.SerializeToString()) == "TensorProto"


def test_tensors_of_every_dtype(tf: Any) -> None:
    """The same for all dtypes that a tensor of an image or of features has."""
    names = "half bfloat16 float32 float64 int8 int16 int32 int64 uint8 uint16 uint32 uint64 bool"
    for name in [*names.split(), "complex64", "complex128"]:
        tensor = tf.cast(tf.ones([3, 2]), getattr(tf, name))
        assert describe_bytes(tf.io.serialize_tensor(tensor).numpy()) == "TensorProto", name


def test_messages_of_tensorflow(tf: Any) -> None:
    """Serialized Examples, SequenceExamples and lists of Examples are named."""
    example = tf_example(tf, {"a": int64(1), "b": string(b"x")}).SerializeToString()
    assert describe_bytes(example) == "tf.train.Example"
    sequence = tf_sequence(tf, {"a": int64(1)}, {"b": [string(b"x")]}).SerializeToString()
    assert describe_bytes(sequence) == "tf.train.SequenceExample"
    framed = b"\n" + bytes([len(example)]) + example
    context = b"\x12" + bytes([len(example)]) + example
    assert describe_bytes(framed * 2 + context) == "ExampleListWithContext"
    for more in (b"\x1a\x01x", b"\x18\x01"):  # a field that the type doesn't have
        assert describe_bytes(framed + more) == "binary"
        assert describe_bytes(example + more) == "binary"


@given(value=st.binary(max_size=200))
def test_luck_makes_no_message(value: bytes) -> None:
    """Bytes of any sort are not taken for a message, whatever they start with."""
    for start in (b"", b"\n", b"\x08\x01\x12", b"\x12"):
        assert describe_bytes(start + value) not in (
            "tf.train.Example",
            "tf.train.SequenceExample",
            "ExampleListWithContext",
        )


def test_real_files(shared_data: Path) -> None:
    """Pictures of all sorts are told from their bytes, whatever they are called."""
    formats = {".jpg": "jpeg", ".png": "png", ".gif": "gif", ".bmp": "bmp", ".webp": "webp",
               ".tif": "tiff", ".avif": "avif"}  # fmt: skip
    checked = 0
    for path in (shared_data / "images_awkward").glob("pillow__*"):
        if path.suffix in formats:
            content = describe_bytes(path.read_bytes())
            assert content == f"image/{formats[path.suffix]}", path.name
            checked += 1
    assert checked > 50


MODES = {"L": (1, 8), "RGB": (3, 8), "RGBA": (4, 8), "LA": (2, 8), "P": (3, 8), "1": (1, 8),
         "I;16": (1, 16)}  # fmt: skip


@pytest.mark.parametrize("mode", MODES)
def test_png(mode: str) -> None:
    """The channels and bits of a PNG are those of its mode."""
    buffer = io.BytesIO()
    Image.new(mode, (3, 2)).save(buffer, "png")
    assert png_form(buffer.getvalue()) == MODES[mode]
