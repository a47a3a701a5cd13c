"""Fuzzing SQL over features of any name: in queries, and in the questions of the viewer."""

from __future__ import annotations

import contextlib
import itertools
import random
import shutil
from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa

import tfrtool
from tests.examples.strategies import entry, int64, raw_example, string
from tests.fuzz.target import Scramble, Target, scratch
from tfrtool.examples.arrow.decode_batch import decode_batch
from tfrtool.examples.arrow.infer import ColumnsFold
from tfrtool.inspection.rows.database import connect, quoted
from tfrtool.inspection.rows.sandbox import Sandbox, Scan
from tfrtool.inspection.rows.statement import Statement
from tfrtool.inspection.table.record_query import Question, answer, columns_of
from tfrtool.inspection.table.record_table import RecordTable, RowFold, RowRequest
from tfrtool.records.framing import Record, frame

__all__ = ["TARGET"]

_MOST, _SORTED = 12, 3
"""Features of a record, whose names are lines of an input; and columns to sort by."""

_NAMES = (
    b"split\npath\nshard\nrecord", b"_shard\n_record\n_bytes\n_split", b"#shard\n#faults\nv0\nc0",
    b"select\nfrom\nwhere\norder", b"a.b\na\"b\na'b\na b", b"A\na\na_\n_", b"a\0b\na\0c\na",
    b"\xff\n\\xff\n\xc3\xa4", b"context\nfeature_lists\nlabel_name\n_payload", b"true\nNULL\n1\n$1",
    b"records\nrowid\n*\n?", b"--\n/*\n;\n)",
    b"x\nvalue\n{x}\n%s", b"filename\nhive\nmarked\nkinds",
    "\u0130\ni\u0307\n\u1e9e\nss".encode(), b"", b"a" * 300,
)  # fmt: skip


def seeds() -> Iterator[bytes]:
    """Yield names of our own columns, of SQL, and of bytes that are no text."""
    yield from _NAMES


def check(data: bytes) -> None:
    """Each feature is a column with its values, by whatever name; nothing else can happen."""
    keys = [*dict.fromkeys(data.split(b"\n"))][:_MOST]
    payloads = [
        raw_example(
            [entry(key, int64(at) if at % 2 else string(b"%d" % at)) for at, key in enumerate(keys)]
        )
    ] * 2
    fold = ColumnsFold()
    fold.add(payloads)
    batch = decode_batch(payloads, fold.table_columns(exact=False))
    assert batch.num_columns == len(keys)
    _check_query(batch)
    _check_view(payloads, {*batch.schema.names})


def _check_query(batch: pa.RecordBatch) -> None:
    tables: dict[str, tuple[pa.Schema, Scan]] = {
        "records": (batch.schema, lambda names: iter([batch.select([*names])]))
    }
    every = _rows(tables, "SELECT * FROM records")
    assert sorted(int(str(value)) for value in every[0].values()) == [*range(batch.num_columns)]
    for name, value in every[0].items():
        column, text = quoted(name), f"'{value}'"
        where = f"SELECT {column} AS found FROM records WHERE {column} = {text}"
        assert _rows(tables, where) == [{"found": value}] * 2, name


def _rows(tables: dict[str, tuple[pa.Schema, Scan]], sql: str) -> list[dict[str, object]]:
    with contextlib.closing(connect()) as connection:
        sandbox = Sandbox(connection, tables, Statement.parse(connection, sql, tables))
        sandbox.check()
        table: pa.Table = sandbox.read(as_text=True).read_all()
        return table.to_pylist()  # type: ignore[no-any-return]


def _check_view(payloads: list[bytes], names: set[str]) -> None:
    folder = scratch() / "rows"
    folder.mkdir()
    try:
        path = folder / "a.tfrecord"
        path.write_bytes(b"".join(map(frame, payloads)))
        table = RecordTable.begin(folder, [(path, None)])
        rows = RowFold(path, RowRequest(folder, {path: 0}))
        rows.add([item for item in tfrtool.read(path) if isinstance(item, Record)], set())
        rows.finish()
        table = replace(table, pieces=tuple(rows.pieces))
        columns = columns_of(table)
        assert names == {*columns.shown}
        result = answer(table, Question(), 0, 9, columns=columns.shown, facets=True)
        assert result.total == 2
        assert sorted(int(value) for value in result.values[0]) == [*range(len(names))]
        for name in columns.names[:_SORTED]:
            assert answer(table, Question(sort=name), 0, 1).total == 2
        for where in columns.examples:
            assert answer(table, Question(where=where), 0, 1).total >= 0
    finally:
        shutil.rmtree(folder)


def mutate(data: bytes, rng: random.Random, scramble: Scramble) -> bytes:
    """Change a name, or put in one of another input."""
    names = data.split(b"\n")
    at = rng.randrange(len(names))
    others = [*itertools.chain.from_iterable(one.split(b"\n") for one in _NAMES)]
    match rng.randrange(3):
        case 0:
            names[at] = scramble(names[at])
        case 1:
            names.insert(at, rng.choice(others))
        case 2:
            names[at] += rng.choice((b"_", b'"', b"'", b".", b"\0", b" ", rng.choice(others)))
    return b"\n".join(names[:_MOST])


# DuckDB runs in this process here.
TARGET = Target(check=check, seeds=seeds, mutate=mutate, max_length=1024, memory=4096)
