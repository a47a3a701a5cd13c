"""Where records are: as `read_shard` has it, whatever the damage, before and after all is read."""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples.strategies import int64
from tests.inspection.table.tables import index_of, make_table
from tests.inspection.test_split_shards import ROWS, shards
from tests.records.strategies import shard_of
from tfrtool.engines import split_shards as parts
from tfrtool.engines.pool import Processes
from tfrtool.examples.example import encode_example
from tfrtool.inspection.table.record_index import RecordIndex
from tfrtool.inspection.table.record_table import RecordTable
from tfrtool.records.framing import FaultKind, Record
from tfrtool.records.reader import read_shard

PACKED: dict[str, Callable[[bytes], bytes]] = {
    "plain": bytes,
    "gzip": lambda data: gzip.compress(data, mtime=0),
    "zlib": zlib.compress,
    "cut gzip": lambda data: gzip.compress(data, mtime=0)[:-20],
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder for one example after the other."""
    return tmp_path_factory.mktemp("shards")


def _rows(paths: list[Path]) -> list[tuple[Path, int, int, Record | None]]:
    """Return the rows that reading gives: shard, number, offset, and the record if it is whole."""
    found: list[tuple[Path, int, int, Record | None]] = []
    for path in paths:
        for item in read_shard(path):
            if isinstance(item, Record):
                found.append((path, item.index, item.offset, item))
            elif item.kind is FaultKind.PAYLOAD_CRC and item.record is not None:
                found.append((path, item.record, item.offset, None))
    return found


@given(st.lists(st.tuples(shards(), st.sampled_from([*PACKED])), min_size=1, max_size=3), st.data())
def test_places_are_those_of_reading(
    folder: Path, made: list[tuple[bytes, str]], data: st.DataObject
) -> None:
    """Each row of the table, of the index, and what is read at its place, is the same record."""
    for old in folder.iterdir():
        old.unlink()
    paths = [folder / f"{n}.tfrecord" for n in range(len(made))]
    for path, (content, packed) in zip(paths, made, strict=True):
        path.write_bytes(PACKED[packed](content))
    expected = _rows(paths)
    scratch = folder.with_name("scratch")
    early = index_of(paths, RecordTable(), folder)
    assert not early.complete or len(early) == len(expected)
    for row in range(len(early)):
        assert early.place(row) == expected[row][:3]
    table = make_table(paths, scratch)
    index = index_of(paths, table, folder)
    assert (index.complete, len(index), table.rows) == (True, len(expected), len(expected))
    told = table.take(["_record", "_offset"], range(len(expected)))
    for row, (path, number, offset, _) in enumerate(expected):
        assert index.place(row) == (path, number, offset)
        assert told[row] == {"_record": number, "_offset": offset}
    wanted = data.draw(st.lists(st.sampled_from(range(len(expected))))) if expected else []
    whole = {row: expected[row][3] for row in wanted if expected[row][3] is not None}
    assert index.read(wanted) == whole


@given(shards(), st.sampled_from([300, 1000]))
def test_parts_are_one_table(folder: Path, data: bytes, size: int) -> None:
    """A large shard that is read in parts has the rows, and the faults, that it has as one."""
    path = folder / "parts.tfrecord"
    path.write_bytes(data)
    one = make_table([path], folder.with_name("one"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parts, "PART_BYTES", size)
        patch.setattr(parts, "_FEWEST", 1)
        patch.setattr(Processes, "__init__", _alone)
        several = make_table([path], folder.with_name("several"), workers=2)
    names = ["_record", "_offset", "_bytes", *one.features]
    assert several.features == one.features
    assert several.take(names, range(one.rows)) == one.take(names, range(one.rows))
    assert several.faults[path].kept == one.faults[path].kept
    assert (several.kinds, several.shard_rows()) == (one.kinds, one.shard_rows())


def _alone(self: object, _workers: int | None = None) -> None:
    vars(self)["_workers"] = 1


def test_rows_stay_together_where_the_table_has_others(tmp_path: Path) -> None:
    """If a shard has fewer rows than were hopped over, later ones don't take their places."""
    paths = [tmp_path / "a.tfrecord", tmp_path / "b.tfrecord"]
    paths[0].write_bytes(shard_of(ROWS[:9]))
    paths[1].write_bytes(shard_of(ROWS[9:12]))
    hopped = index_of(paths, RecordTable(), tmp_path)
    assert len(hopped) == 12
    paths[0].write_bytes(shard_of(ROWS[:4]))
    table = make_table(paths, tmp_path / "scratch")
    index = index_of([paths[0]], table, tmp_path)
    index._offsets = hopped._offsets
    index._shards = paths
    assert [index.place(row).path for row in (3, 4, 6)] == [paths[0], paths[1], paths[1]]
    assert len(index) == 7


def test_a_shard_that_was_changed(tmp_path: Path) -> None:
    """Nothing is read from it any more, not even where there is a record: it may be another one."""
    path, other = tmp_path / "a.tfrecord", tmp_path / "b.tfrecord"
    payloads = [encode_example({"a": int64(n)}) for n in range(5)]
    for file in (path, other):
        file.write_bytes(shard_of(payloads))
    index = RecordIndex([path, other], RecordTable())
    assert sorted(index.read(range(5))) == [0, 1, 2, 3, 4]
    path.write_bytes(shard_of(payloads[::-1]))
    os.utime(path, ns=(1, 1))
    assert index.changed() == [path]
    assert index.read(range(5)) == {}


def test_a_length_that_looks_like_gzip(tmp_path: Path) -> None:
    """The first bytes of a record in the middle say nothing about the shard's compression."""
    path = tmp_path / "a.tfrecord"
    long = bytes(0x00088B1F)
    path.write_bytes(shard_of([b"x", long, b"y"]))
    index = RecordIndex([path], RecordTable())
    assert [len(index.read([row])[row].payload) for row in range(3)] == [1, len(long), 1]
