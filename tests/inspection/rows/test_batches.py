"""Shards as record batches: bounded, complete, with places, and without what does not fit."""

from __future__ import annotations

import gzip
import weakref
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tfrtool
from tests.records.strategies import shard_of
from tfrtool.examples.arrow.columns import PLACES, Columns
from tfrtool.examples.arrow.infer import ColumnsFold
from tfrtool.inspection.rows.batches import (
    CachedRecords,
    RowColumns,
    decode_records,
    fold_columns,
    infer_columns,
    read_batches,
)
from tfrtool.records.frames import in_batches
from tfrtool.records.framing import Fault, FaultKind, LocatedFault, Record
from tfrtool.storage.remote_path import AnyPath

ROWS = [tfrtool.encode_example({"n": n, "name": "x" * n}) for n in range(50)]


def records_of(payloads: list[bytes]) -> list[Record]:
    """Return payloads as records."""
    return [Record(n, 100 * n, payload, 0) for n, payload in enumerate(payloads)]


@given(st.lists(st.binary(max_size=30)), st.integers(1, 60), st.integers(1, 5), st.integers(1, 4))
def test_batches_are_bounded(payloads: list[bytes], size: int, count: int, step: int) -> None:
    """No batch has too many bytes or records, but for one long record; none is lost."""
    fault = Fault(kind=FaultKind.EMPTY, offset=0, record=None, message="")
    told: list[Fault] = []
    records = records_of(payloads)
    pieces = [records[at : at + step] for at in range(0, len(records), step)]
    batches = list(in_batches([fault, *pieces, fault], told.append, size, count))
    assert [one for batch in batches for one in batch] == records
    assert told == [fault, fault]
    for batch in batches:
        assert 1 <= len(batch) <= count
        assert len(batch) == 1 or sum(len(one.payload) for one in batch) <= size
    # Nor are there more batches than needed.
    for batch, following in pairwise(batches):
        together = sum(len(one.payload) for one in batch) + len(following[0].payload)
        assert len(batch) == count or together > size


@given(st.lists(st.booleans(), min_size=1, max_size=40))
def test_what_does_not_fit_is_skipped(fits: list[bool]) -> None:
    """Each record that the columns can't hold is one fault; all others come, in order."""
    other = tfrtool.encode_example({"n": b"text"})
    payloads = [ROWS[n % 50] if fit else other for n, fit in enumerate(fits)]
    fold = ColumnsFold()
    fold.add(ROWS)
    columns = fold.columns()
    faults: list[Fault] = []
    batches = list(decode_records(Path("a"), records_of(payloads), columns, faults.append))
    assert [one.record for one in faults] == [n for n, fit in enumerate(fits) if not fit]
    assert {one.kind for one in faults} <= {FaultKind.PARSE}
    assert all("n" in one.message for one in faults)
    found = [n for batch in batches for n in batch.table.column("n").to_pylist()]
    assert found == [n % 50 for n, fit in enumerate(fits) if fit]


def test_shards_and_their_places(tmp_path: Path) -> None:
    """Shards come one after the other, compressed ones too, with the places of their records."""
    data = bytearray(shard_of([*ROWS, b"noise"]))
    (tmp_path / "a").write_bytes(data)
    (tmp_path / "b").write_bytes(gzip.compress(data))
    data[20] ^= 1
    (tmp_path / "c").write_bytes(data)
    (tmp_path / "d").write_bytes(b"")
    paths = sorted(tmp_path.iterdir())
    columns = infer_columns(paths)
    assert columns.names == ("n", "name")
    faults: list[LocatedFault] = []
    batches = list(
        read_batches(paths, columns, exact=True, batch_records=20, on_fault=faults.append)
    )
    own = RowColumns(sources=paths).with_splits()
    tables = [own.add_to(batch.table, batch.path, batch.places(), PLACES) for batch in batches]
    wanted = {*PLACES, *columns.names, "_payload"}
    assert all(set(table.schema.names) == wanted for table in tables)
    schema = own.schema(columns)
    assert tables[0].select(schema.names).schema.equals(schema)
    rows = [row for table in tables for row in table.to_pylist()]
    expected = [
        {
            "_shard": str(path),
            "_record": one.index,
            "_offset": one.offset,
            "_bytes": len(one.payload),
            "_split": None,
            "n": one.index,
            "name": "x" * one.index,
            "_payload": one.payload,
        }
        for path in paths
        for one in tfrtool.read(path)
        if isinstance(one, Record) and one.index < 50
    ]
    assert rows == expected
    assert len(rows) == 149
    told = [(one.path.name, one.fault.kind.value, one.fault.record) for one in faults]
    assert told == [
        ("a", "parse", 50),
        ("b", "parse", 50),
        ("c", "payload-crc", 0),
        ("c", "parse", 50),
        ("d", "empty", None),
    ]


def test_cached_records_take_the_memory_of_a_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records cached for a query come in batches, of which at most two are in memory."""
    monkeypatch.setattr(Columns, "batch_records", 20)
    path = tmp_path / "a"
    path.write_bytes(shard_of(ROWS))
    cached: dict[AnyPath, CachedRecords] = {}
    columns = fold_columns([path], cached=cached).columns()
    tables: list[weakref.ref[object]] = []
    rows: list[int] = []
    faults: list[LocatedFault] = []
    for table, places in cached[path].tables(path, columns, faults.append):
        assert table.column("n").to_pylist() == places[0].tolist()
        tables.append(weakref.ref(table))
        rows.append(table.num_rows)
        assert [one() for one in tables[:-2]] == [None] * len(tables[:-2])
    assert rows == [20, 20, 10]
    assert faults == []


def test_cached_records_that_do_not_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cached records give the rows, places and faults that the shard gives."""
    monkeypatch.setattr(Columns, "batch_records", 20)
    path, other = tmp_path / "a", tfrtool.encode_example({"n": b"text", "long": "x" * 2000})
    path.write_bytes(shard_of([*ROWS[:23], other, *ROWS[23:], other]))
    cached: dict[AnyPath, CachedRecords] = {}
    fold_columns([path], cached=cached)
    fold = ColumnsFold()
    fold.add(ROWS)
    columns = fold.columns()
    expected_faults: list[LocatedFault] = []
    faults: list[LocatedFault] = []
    batches = list(read_batches([path], columns, on_fault=expected_faults.append))
    found = list(cached[path].tables(path, columns, faults.append))
    assert [one.fault.record for one in faults] == [23, 51]
    assert faults == expected_faults
    rows = [row for table, _ in found for row in table.to_pylist()]
    assert rows == [row for batch in batches for row in batch.table.to_pylist()]
    places = np.concatenate([places for _, places in found], axis=1)
    expected = np.concatenate([batch.places() for batch in batches], axis=1)
    np.testing.assert_array_equal(places, expected)


def test_inferring_in_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Several processes come to the same columns, whatever is in the last record."""
    monkeypatch.setattr("tfrtool.inspection.rows.batches._MIN_SECONDS_PER_PROCESS", 1e-9)
    late = tfrtool.encode_example({"n": [1, 2], "more": 0.5, "name": b"\0"})
    for name, payloads in (("a", ROWS), ("b", [*ROWS, late])):
        (tmp_path / name).write_bytes(shard_of(payloads))
    paths = sorted(tmp_path.iterdir())
    done: list[int] = []
    columns = infer_columns(paths, workers=2, on_progress=lambda one: done.append(one.done))
    assert columns == infer_columns(paths, workers=1)
    types = [str(field.type).partition("<")[0] for field in columns.to_arrow()]
    assert types == ["float", "list", "binary"]
    assert done == sorted(done)
    assert (done[0], done[-1]) == (0, sum(path.stat().st_size for path in paths))
