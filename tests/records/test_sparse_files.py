"""Sparse files: holes are skipped, and are one fault with their place and length."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.inspecting import CAT, DOG, Capture
from tests.records.strategies import read
from tfrtool.cli import main
from tfrtool.records.framing import Fault, frame
from tfrtool.records.reader import read_shard

MIB = 1024 * 1024
LARGE = 1024**4
"""Of a file: what would take a quarter of an hour to read."""

RECORDS = b"".join(map(frame, [CAT, DOG] * 30))


def sparse(path: Path, size: int, head: bytes = b"", tail: bytes = b"") -> Path:
    """Write a file with a hole between two parts; skip where the file system makes none."""
    with path.open("wb") as file:
        file.write(head)
        file.truncate(size)
        file.seek(size - len(tail))
        file.write(tail)
    if path.stat().st_blocks * 512 > MIB:
        pytest.skip("this file system has no holes")
    return path


@pytest.mark.parametrize(
    ("head", "tail", "kind", "start"),
    [
        (RECORDS, b"", "trailing-bytes", 4096),
        (RECORDS, RECORDS, "length-crc", 4096),
        (b"", RECORDS, "length-crc", 0),
        (b"", b"", "not-tfrecord", 0),
        (RECORDS + b"junk" * 5000, b"junk" * 5000 + RECORDS, "length-crc", 24576),
    ],
    ids=["end", "middle", "start", "all", "junk"],
)
def test_a_hole_is_one_fault(
    tmp_path: Path, capsys: Capture, head: bytes, tail: bytes, kind: str, start: int
) -> None:
    """Every command that reads whole shards names it, and reads what stands before and behind."""
    path = sparse(tmp_path / "a.tfrecord", LARGE, head, tail)
    records = 60 * ((RECORDS in head) + (RECORDS in tail))
    for command in ("count", "verify", "inspect shard"):
        assert main([*command.split(), "--json", str(path)]) == 3
        out, err = capsys.readouterr()
        found = json.loads(out.splitlines()[0])
        assert found["records"] == records, command
        text = err if command == "count" else found["faults"][0]["message"]
        assert kind in (err if command == "count" else found["faults"][0]["kind"])
        where = f"from offset {start} on" if start else "from here on"
        end = (LARGE - len(tail)) // 4096 * 4096
        assert f"{end - start} bytes {where} are a hole" in text, command
        assert command == "count" or found["fault_count"] == 1


@pytest.mark.parametrize("hole", [0, 2, 5])
@pytest.mark.parametrize("tail", [b"", RECORDS, b"x" * 9 + RECORDS, b"\0" * 7 + RECORDS])
@pytest.mark.parametrize("head", [b"", RECORDS, RECORDS[:-9]])
def test_the_same_as_with_zeros(tmp_path: Path, head: bytes, tail: bytes, hole: int) -> None:
    """A file in which the zeros are there says the same, but for the name of the hole."""
    size = len(head) + hole * MIB + len(tail)
    path = sparse(tmp_path / "a.tfrecord", size, head, tail)
    full = read(head + bytes(hole * MIB) + tail)
    items = [*read_shard(path)]
    assert [one for one in items if not isinstance(one, Fault)] == full.records
    places = [(one.kind, one.offset, one.record) for one in items if isinstance(one, Fault)]
    assert places == [(one.kind, one.offset, one.record) for one in full.faults]


def test_a_payload_of_zeros_is_no_hole(tmp_path: Path) -> None:
    """A whole record that is stored as a hole is read as any other."""
    record = frame(bytes(8 * MIB))
    path = tmp_path / "a.tfrecord"
    with path.open("wb") as file:
        file.write(record[:12])
        file.seek(len(record) - 4)
        file.write(record[-4:])
        file.write(RECORDS)
    if path.stat().st_blocks * 512 > 4 * MIB:
        pytest.skip("this file system has no holes")
    items = [*read_shard(path)]
    assert len(items) == 61
    assert not any(isinstance(one, Fault) for one in items)
