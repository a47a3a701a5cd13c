"""What bytes hold."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfrtool.examples.content import decode_text, describe_bytes

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


@given(text=st.text("abcé日 .-", min_size=1))
def test_printable_text_is_text(text: str) -> None:
    """All printable text is found to be text."""
    assert decode_text(text.encode()) == text
    assert describe_bytes(text.encode()) == "text"
