"""Repair: intact records are saved, losses are reported, and the input stays as it was."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import NoReturn

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.records.strategies import is_subsequence, offsets_of, payload_lists, read, shard_of
from tests.records.test_damage import flip, run_payload_lists
from tfrtool.errors import CorruptShardError, UsageError, WriteError
from tfrtool.records.compression import Compression
from tfrtool.records.framing import FRAME_SIZE
from tfrtool.records.repair import LostRange, RepairReport, repair_shard
from tfrtool.records.writer import ShardWriter
from tfrtool.storage.progress import Progress

PAYLOADS = [b"first", b"second", b"", b"x" * 100, b"last"]


@pytest.fixture(scope="session")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory that properties write to again and again."""
    return tmp_path_factory.mktemp("repair")


def repaired(directory: Path, data: bytes) -> tuple[RepairReport, bytes]:
    """Repair a shard, and return the report and the new shard."""
    shard, out = directory / "damaged", directory / "saved"
    shard.write_bytes(data)
    out.unlink(missing_ok=True)
    report = repair_shard(shard, out)
    assert shard.read_bytes() == data
    assert sorted(path.name for path in directory.iterdir()) == ["damaged", "saved"]
    return report, out.read_bytes()


def damaged_in_some_way(data: st.DataObject, shard: bytes) -> tuple[bytes, int, int]:
    """Return the shard with one flip, cut, insertion or removal, and the bytes it touches."""
    at = data.draw(st.integers(0, len(shard) - 1))
    match data.draw(st.sampled_from(["flip", "cut", "insert", "remove"])):
        case "flip":
            return flip(shard, 8 * at + data.draw(st.integers(0, 7))), at, at + 1
        case "cut":
            return shard[:at], at, len(shard)
        case "insert":
            run = data.draw(st.binary(min_size=1, max_size=60))
            return shard[:at] + run + shard[at:], at, at
        case _:
            end = min(at + data.draw(st.integers(1, 60)), len(shard))
            return shard[:at] + shard[end:], at, end


@given(payloads=run_payload_lists, data=st.data())
def test_no_more_is_lost_than_was_touched(
    scratch: Path, payloads: list[bytes], data: st.DataObject
) -> None:
    """Whatever one flip, cut, insertion or removal does, all other records are saved.

    Records and lost ranges together are the whole stream, without a gap and without an overlap.
    """
    shard, offsets = shard_of(payloads), offsets_of(payloads)
    damaged, start, end = damaged_in_some_way(data, shard)
    untouched = [
        payload
        for payload, first, last in zip(payloads, offsets, offsets[1:], strict=False)
        if last <= start or first >= end
    ]
    try:
        report, saved = repaired(scratch, damaged)
    except CorruptShardError:
        assert not untouched
        return
    reading = read(saved)
    assert reading.faults == []
    assert len(reading.records) == report.records
    assert is_subsequence(untouched, reading.payloads)
    assert is_subsequence(reading.payloads, payloads)
    pieces = [(r.offset, r.offset + FRAME_SIZE + len(r.payload)) for r in read(damaged).records]
    pieces += [(part.offset, part.offset + part.bytes) for part in report.lost]
    pieces.sort()
    assert pieces[0][0] == 0
    assert pieces[-1][1] == len(damaged)
    assert all(a[1] == b[0] for a, b in pairwise(pieces))


@given(payloads=payload_lists, compression=st.sampled_from(list(Compression)))
def test_a_whole_shard_stays_as_it_is(
    scratch: Path, payloads: list[bytes], compression: Compression
) -> None:
    """Nothing is lost of a whole shard, and its copy has the same bytes and compression."""
    shard = shard_of(payloads)
    ways: dict[Compression, tuple[Callable[[bytes], bytes], Callable[[bytes], bytes]]] = {
        Compression.NONE: (bytes, bytes),
        Compression.GZIP: (gzip.compress, gzip.decompress),
        Compression.ZLIB: (zlib.compress, zlib.decompress),
    }
    pack, unpack = ways[compression]
    report, saved = repaired(scratch, pack(shard))
    assert (report.records, report.lost, report.faults) == (len(payloads), (), ())
    assert report.compression is compression
    assert unpack(saved) == shard


def test_lost_bytes_are_reported(tmp_path: Path) -> None:
    """A damaged record and stray bytes are two ranges, where they are and as long as they are."""
    offsets = offsets_of(PAYLOADS)
    damaged = flip(shard_of(PAYLOADS), 8 * (offsets[1] + 13)) + b"stray"
    report, saved = repaired(tmp_path, damaged)
    assert report.lost == (
        LostRange(offset=offsets[1], bytes=FRAME_SIZE + len(b"second")),
        LostRange(offset=offsets[-1], bytes=5),
    )
    assert [fault.offset for fault in report.faults] == [offsets[1], offsets[-1]]
    assert saved == shard_of([PAYLOADS[0], *PAYLOADS[2:]])


def test_a_cut_gzip_shard(tmp_path: Path) -> None:
    """What comes out of a gzip file before its cut is saved, and the rest is reported as lost."""
    payloads = [bytes([number]) * 3000 for number in range(50)]
    report, saved = repaired(tmp_path, gzip.compress(shard_of(payloads), 0)[:100_000])
    assert 30 < report.records < 40
    assert gzip.decompress(saved) == shard_of(payloads[: report.records])
    assert report.lost[0].offset == offsets_of(payloads)[report.records]


def test_records_inside_a_payload_are_not_saved(tmp_path: Path) -> None:
    """A TFRecord inside a damaged record does not come out as records."""
    payloads = [b"first", shard_of([b"inner", b"other"]), b"last"]
    report, saved = repaired(tmp_path, flip(shard_of(payloads), 8 * 21))
    assert saved == shard_of([b"first", b"last"])
    assert report.lost == (LostRange(offset=21, bytes=FRAME_SIZE + len(payloads[1])),)


@pytest.mark.parametrize("data", [b"", b"<html>no shard</html>", shard_of([b"one"])[:-1]])
def test_nothing_to_save(tmp_path: Path, data: bytes) -> None:
    """Where there is no whole record, nothing is written, and the error says why."""
    (tmp_path / "damaged").write_bytes(data)
    with pytest.raises(CorruptShardError, match="no intact records") as caught:
        repair_shard(tmp_path / "damaged", tmp_path / "saved")
    assert caught.value.offset == 0
    assert [path.name for path in tmp_path.iterdir()] == ["damaged"]


@pytest.mark.parametrize("out", ["damaged", "other", "link"])
def test_nothing_is_written_over(tmp_path: Path, out: str) -> None:
    """A file, the shard itself and a dangling link are refused as targets, and stay."""
    (tmp_path / "damaged").write_bytes(shard_of(PAYLOADS))
    (tmp_path / "other").write_bytes(b"mine")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    with pytest.raises(UsageError):
        repair_shard(tmp_path / "damaged", tmp_path / out)
    assert (tmp_path / "damaged").read_bytes() == shard_of(PAYLOADS)
    assert (tmp_path / "other").read_bytes() == b"mine"
    assert not (tmp_path / "nowhere").exists()


def test_what_was_written_is_read_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Should the new file not hold what was written to it, it never gets its name."""
    (tmp_path / "damaged").write_bytes(shard_of(PAYLOADS))
    monkeypatch.setattr(ShardWriter, "_put", lambda *_: None)
    with pytest.raises(WriteError, match="verification of the written shard failed"):
        repair_shard(tmp_path / "damaged", tmp_path / "saved")
    assert [path.name for path in tmp_path.iterdir()] == ["damaged"]


def test_an_interrupt_leaves_nothing(tmp_path: Path) -> None:
    """Ctrl-C in the middle takes the unfinished file away."""

    def interrupt(_progress: Progress) -> NoReturn:
        raise KeyboardInterrupt

    (tmp_path / "damaged").write_bytes(shard_of(PAYLOADS))
    with pytest.raises(KeyboardInterrupt):
        repair_shard(tmp_path / "damaged", tmp_path / "saved", on_progress=interrupt)
    assert [path.name for path in tmp_path.iterdir()] == ["damaged"]
