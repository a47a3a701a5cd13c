"""Files that other software wrote are read as TensorFlow reads them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.conftest import SHARED_DATA
from tfrtool.inspection.summary.shard_summary import inspect_shard

KINDS = {
    "Example": "example",
    "SequenceExample": "sequence_example",
    "Event": "event",
    "text": "unknown",
    "other-proto/bytes": "unknown",
    "ExampleListWithContext (parses as SequenceExample!)": "unknown",
    "": "empty",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A row of the manifest.

    Attributes:
        path: below the folder of TFRecord files.
        bytes: the file's size.
        compression: none, gzip or zlib.
        records: as TensorFlow counts them.
        payload: as inspection names it.
        error: whether TensorFlow reports an error.
    """

    path: str
    bytes: int
    compression: str
    records: int
    payload: str
    error: bool


def entries() -> list[Entry]:
    """Read section A of the manifest; nothing where there is none."""
    manifest = SHARED_DATA / "MANIFEST.md"
    if not manifest.is_file():
        return []
    section = manifest.read_text("utf-8").partition("\n## A.")[2].partition("\n## ")[0]
    found, folder = [], ""
    for line in section.splitlines():
        if line.startswith("### "):
            folder = line[4:].strip()
        elif re.match(r"\| [^|]+ \| \d+ \|", line):
            name, size, compression, records, payload, _, error = (
                cell.strip() for cell in line.strip().strip("|").split("|")
            )
            found.append(
                Entry(
                    path=f"{folder}/{name}",
                    bytes=int(size),
                    compression=compression.lower(),
                    records=int(records),
                    payload=KINDS[re.sub(r":\d+$", "", payload)],
                    error=bool(error),
                )
            )
    return found


ENTRIES = entries()


def test_manifest_is_read(shared_data: Path) -> None:
    """The manifest lists all files that are there, each once."""
    sources = {"SOURCE.txt", "LICENSE", "LICENSE.txt", "README.md"}
    files = {
        path.relative_to(shared_data / "tfrecord").as_posix()
        for path in (shared_data / "tfrecord").rglob("*")
        if path.is_file() and path.name not in sources
    }
    listed = [entry.path for entry in ENTRIES]
    assert sorted(listed) == sorted(set(listed))
    assert len(listed) > 50
    assert set(listed) <= files


@pytest.mark.parametrize("entry", [pytest.param(entry, id=entry.path) for entry in ENTRIES])
def test_file(shared_data: Path, entry: Entry) -> None:
    """Compression, count, kind and faults are those of the manifest."""
    summary = inspect_shard(shared_data / "tfrecord" / entry.path)
    assert summary.shard.bytes == entry.bytes
    assert summary.shard.compression.value == entry.compression
    assert summary.records == entry.records
    assert summary.payload.value == entry.payload
    faults = [fault.kind.value for fault in summary.faults]
    if entry.error:
        assert faults == ["not-tfrecord"]
    elif entry.bytes == 0:
        assert faults == ["empty"]
    else:
        assert faults == []
