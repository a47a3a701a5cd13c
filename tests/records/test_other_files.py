"""Names for what is met in place of a TFRecord file."""

from __future__ import annotations

import io
import tarfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.records.strategies import read
from tfrtool.records.compression import describe_content
from tfrtool.records.framing import FaultKind

LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n"


def tar_of_nothing() -> bytes:
    """Return a tar archive with an empty file in it."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        tar.addfile(tarfile.TarInfo("a"))
    return buffer.getvalue()


DECOYS = [
    (LFS, "git lfs pull"),
    (b"<!DOCTYPE html>\n<html><body>404</body></html>", "HTML"),
    (b"\n  <HTML>", "HTML"),
    (b'{"splits": []}', "JSON"),
    (b"image,label\ncat.jpg,0\n", "plain text"),
    ("Füße\n".encode() * 20, "plain text"),
    (b"\xff\xd8\xff\xe0\x00\x10JFIF", "JPEG"),
    (b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR", "PNG"),
    (b"PK\x03\x04\x14\x00\x00\x00\x08\x00", "zip"),
    (b"PAR1\x15\x04\x15\x10", "Parquet"),
    (tar_of_nothing(), "tar"),
    (bytes(64), "zero"),
    (bytes(range(255, 200, -1)), "binary data"),
]


@pytest.mark.parametrize(("content", "word"), DECOYS, ids=[word for _, word in DECOYS])
def test_decoy(content: bytes, word: str) -> None:
    """A file that is no TFRecord is one fault, which says what it is instead."""
    assert word in describe_content(content)
    (fault,) = read(content).faults
    assert (fault.kind, fault.offset, fault.record) == (FaultKind.NOT_TFRECORD, 0, None)
    assert word in fault.message


@given(head=st.binary(max_size=300))
def test_every_content_has_a_name(head: bytes) -> None:
    """Whatever the bytes, they have a name of one line, which doesn't quote them."""
    name = describe_content(head)
    assert name
    assert name.isprintable()
