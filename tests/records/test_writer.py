"""The writer: its files are those of TFRecordWriter, and hold what was written or raise."""

from __future__ import annotations

import errno
import os
from array import array
from pathlib import Path
from typing import Any, NoReturn

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.records.strategies import offsets_of, payload_lists, read, shard_of
from tfrtool.errors import WriteError
from tfrtool.records.compression import TF_TYPES, Compression
from tfrtool.records.framing import crc32c
from tfrtool.records.tally import Tally
from tfrtool.records.writer import ShardWriter

PAYLOADS = [b"", b"hello", bytes(100), bytes(range(256)) * 9000, b"last"]
compressions = st.sampled_from(list(Compression))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder that properties write to again and again."""
    return tmp_path_factory.mktemp("writer")


def tally_of(payloads: list[bytes]) -> Tally:
    """Return the tally of payloads."""
    tally = Tally()
    tally.add(payloads)
    return tally


@given(payloads=payload_lists, compression=compressions, cut=st.integers(0, 5))
@example(payloads=PAYLOADS, compression=Compression.NONE, cut=2)
@example(payloads=PAYLOADS, compression=Compression.GZIP, cut=2)
@example(payloads=[b"%d" % number for number in range(5000)], compression=Compression.ZLIB, cut=9)
def test_written_is_read(
    folder: Path, payloads: list[bytes], compression: Compression, cut: int
) -> None:
    """Payloads and whole frames are read back in order, and counted."""
    path = folder / "a"
    path.unlink(missing_ok=True)
    with ShardWriter(path, compression) as writer:
        writer.write(payloads[:cut])
        rest = read(shard_of(payloads)).records[cut:]
        keys = array("Q", [one.payload_crc << 32 | len(one.payload) for one in rest])
        writer.write_frames(shard_of(payloads)[offsets_of(payloads)[len(payloads[:cut])] :], keys)
    assert read(path.read_bytes()).payloads == payloads
    assert writer.verify() == writer.tally == tally_of(payloads)
    plain = compression is Compression.NONE
    assert writer.crc32c == (f"{crc32c(path.read_bytes()):08x}" if plain else None)


@pytest.mark.parametrize("compression", Compression)
def test_bytes_are_those_of_tensorflow(tf: Any, tmp_path: Path, compression: Compression) -> None:
    """Own framing, TensorFlow's within the writer, and TFRecordWriter alone: the same file."""
    with ShardWriter(tmp_path / "own", compression) as own:
        own.write(PAYLOADS)
    framing = tf.io.TFRecordWriter
    with ShardWriter(tmp_path / "foreign", compression, framing=framing) as foreign:
        foreign.write(PAYLOADS)
    assert foreign.verify() == own.verify() == foreign.tally == tally_of(PAYLOADS)
    with framing(str(tmp_path / "alone"), TF_TYPES[compression]) as alone:
        for payload in PAYLOADS:
            alone.write(payload)
    one, *others = (path.read_bytes() for path in tmp_path.iterdir())
    assert others == [one, one]


def test_errors_of_tensorflow_name_the_target(tf: Any, tmp_path: Path) -> None:
    """A file that TensorFlow can't create is an error without its own words."""
    target = tmp_path / "shown"
    with pytest.raises(WriteError, match=r"shown: can't be written: no such file") as caught:
        ShardWriter(tmp_path / "none" / "a", framing=tf.io.TFRecordWriter, target=target)
    assert caught.value.path == str(target)


@pytest.mark.parametrize("foreign", [False, True])
def test_an_error_in_the_body_is_raised_as_it_is(tf: Any, tmp_path: Path, foreign: bool) -> None:
    """The writer closes the file, and adds nothing."""

    def payloads() -> NoReturn:
        raise KeyError("mine")

    framing = tf.io.TFRecordWriter if foreign else None
    with pytest.raises(KeyError, match="mine"), ShardWriter(tmp_path / "a", framing=framing) as one:
        one.write(payloads() for _ in range(1))


def test_nothing_is_written_over(tmp_path: Path) -> None:
    """A file or a link that is there stays."""
    (tmp_path / "a").symlink_to(tmp_path / "b")
    with pytest.raises(WriteError, match="exists"):
        ShardWriter(tmp_path / "a")
    assert not (tmp_path / "b").exists()


@pytest.mark.parametrize("size", [100, 3 * 2**20])
@pytest.mark.parametrize("compression", Compression)
def test_a_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compression: Compression, size: int
) -> None:
    """An error of the disk is raised at the end at the latest, whatever thread met it."""

    def full(*_: object) -> NoReturn:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "writev", full)
    with (
        pytest.raises(WriteError, match="a: can't be written: no space left"),
        ShardWriter(tmp_path / "a", compression) as writer,
    ):
        writer.write([os.urandom(size)] * 3)


def test_a_slow_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A system may write less than it is asked to."""
    monkeypatch.setattr(os, "writev", lambda file, pieces: os.write(file, b"".join(pieces)[:7]))
    with ShardWriter(tmp_path / "a") as writer:
        writer.write(PAYLOADS * 2)
    assert read((tmp_path / "a").read_bytes()).payloads == PAYLOADS * 2


def test_a_file_that_was_cut(tmp_path: Path) -> None:
    """What doesn't read back as it was written is an error, at a record or in all."""
    with ShardWriter(tmp_path / "a") as writer:
        writer.write([b"one", b"two"])
    data = (tmp_path / "a").read_bytes()
    (tmp_path / "a").write_bytes(data[:-1])
    with pytest.raises(WriteError, match="verification of the written shard failed") as caught:
        writer.verify()
    assert caught.value.record == 1
    (tmp_path / "a").write_bytes(data[:19])
    with pytest.raises(WriteError, match="expected 2 records of 6 bytes, found 1 records"):
        writer.verify()
