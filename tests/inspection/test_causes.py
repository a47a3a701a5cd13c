"""The likely cause of a fault: told where the bytes tell it, and only there."""

from __future__ import annotations

import gzip
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import MakeShard
from tests.datasets import flip_bit
from tests.inspection.profiled import verify_shard
from tfrtool.examples.example import DType, Feature, encode_example
from tfrtool.records.framing import frame

FIXTURES = Path(__file__).parents[2] / "fixtures" / "damaged"


def cause_of(path: Path) -> str | None:
    """Return the cause of a shard's first fault; it has one."""
    return verify_shard(path).faults[0].cause


def noise(count: int, size: int = 5000) -> list[bytes]:
    """Return Examples of bytes at random, the same ones always."""
    generator = random.Random(0)
    return [
        encode_example({"x": Feature(dtype=DType.STRING, values=(generator.randbytes(size),))})
        for _ in range(count)
    ]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("empty.tfrecord", "no records"),
        ("nothing.tfrecord.gz", "no records"),
        ("cut-in-payload.tfrecord", "tfrtool repair to recover its 6 intact records"),
        ("cut-in-first.tfrecord", "again, or write it again"),
        ("zeros.tfrecord", "reserved"),
        ("stray-bytes.tfrecord", "appended"),
        ("cut.tfrecord.gz", "never closed"),
        ("no-trailer.tfrecord.gz", "never closed"),
        ("bad-block.tfrecord.gz", "corrupted"),
        ("bad-crc.tfrecord.gz", "corrupted"),
        ("payload-bit.tfrecord", "bit 0 of the byte at offset 459"),
        ("payload-crc-bit.tfrecord", "bit 0 of the byte at offset 531"),
        ("length-bit.tfrecord", "bit 0 of the byte at offset 379"),
        ("length-crc-bit.tfrecord", "bit 0 of the byte at offset 387"),
        ("inserted-bytes.tfrecord", "changed on disk"),
        ("payload-bit.tfrecord.gz", "changed on disk"),
        ("huge-length.tfrecord", "may crash"),
        ("no-example.tfrecord", "checksum is valid"),
    ],
)
def test_fixture(name: str, words: str) -> None:
    """Each sort of damage has its cause and what to do about it."""
    cause = cause_of(FIXTURES / name)
    assert cause is not None
    assert words in cause


@pytest.mark.parametrize(
    "name", ["json.tfrecord", "text.tfrecord.gz", "git-lfs.tfrecord", "web-page.tfrecord"]
)
def test_no_guesses(name: str) -> None:
    """Where nothing tells how it came about, or the message does, nothing more is said."""
    assert cause_of(FIXTURES / name) is None


def test_carriage_returns_put_in(make_shard: MakeShard) -> None:
    """A transfer in text mode to Windows is told, in the middle of a file and at its start."""
    path = make_shard([b"\xff", *noise(5)])
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    assert "treated as text" in str(cause_of(path))
    path = make_shard(noise(5))  # its first length, 5,014 bytes, has a line feed
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    assert "treated as text" in str(cause_of(path))


def test_carriage_returns_taken_out(make_shard: MakeShard) -> None:
    """A transfer in text mode from Windows is told once a file is long enough to be sure."""
    for count, sure in ((340, True), (10, False)):
        path = make_shard(noise(count))
        data = path.read_bytes()
        assert b"\r\n" in data
        path.write_bytes(data.replace(b"\r\n", b"\n"))
        assert ("treated as text" in str(cause_of(path))) == sure


@given(st.data())
def test_single_bit(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """Any single flipped bit of a record that is followed by another is told with its place."""
    path = tmp_path_factory.mktemp("bit") / "a.tfrecord"
    records = list(map(frame, noise(2, size=data.draw(st.integers(0, 60)))))
    path.write_bytes(b"".join(records))
    offset = data.draw(st.integers(0, len(records[0]) - 1))
    bit = data.draw(st.integers(0, 7))
    flip_bit(path, offset, bit)
    assert f"(bit {bit} of the byte at offset {offset:,})" in str(cause_of(path))


def test_two_bits_are_not_one(make_shard: MakeShard) -> None:
    """Where more is wrong, no bit is named."""
    path = make_shard(noise(3))
    flip_bit(path, 20, 0)
    flip_bit(path, 2000, 5)
    assert "the byte at offset" not in str(cause_of(path))


def test_thousands_of_faults_are_not_all_looked_at(make_shard: MakeShard) -> None:
    """The first faults of a shard tell; the others cost no search."""
    path = make_shard(noise(100, size=50))
    data = bytearray(path.read_bytes())
    size = len(data) // 100
    data[30::size] = bytes(value ^ 1 for value in data[30::size])
    path.write_bytes(data)
    causes = [fault.cause for fault in verify_shard(path).faults]
    assert len(causes) == 100
    single = ["the byte at offset" in str(cause) for cause in causes]
    assert single == [True] * 20 + [False] * 80


def test_shards_put_together_with_cat(make_shard: MakeShard) -> None:
    """A compressed shard behind a plain one is told."""
    plain = b"".join(map(frame, noise(3)))
    path = make_shard([])
    path.write_bytes(plain + gzip.compress(plain))
    assert "gzip shard was appended to an uncompressed one" in str(cause_of(path))


def test_text_is_no_shard_in_text_mode(make_shard: MakeShard) -> None:
    """A page with the line ends of Windows is text, and was not made so on its way."""
    path = make_shard([])
    path.write_bytes(b"<html>\r\n" + b"an error\r\n" * 9)
    assert cause_of(path) is None


@pytest.mark.parametrize(
    ("head", "words"),
    [
        (b"PK\x03\x04" + bytes(30), "unpack"),
        (b"\x83\xafp\xd1\r\x88J?" + bytes(56), "ArrayRecord"),
        (bytes(5000), "only zero bytes"),
        (b"version https://git-lfs.github.com/spec/v1", "git lfs pull"),
        (b"<!DOCTYPE html>", "an error page"),
    ],
)
def test_other_formats(make_shard: MakeShard, head: bytes, words: str) -> None:
    """What takes the place of a TFRecord file is named."""
    path = make_shard([])
    path.write_bytes(head)
    assert words in verify_shard(path).faults[0].message
