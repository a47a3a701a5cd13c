"""``tfrtool query``."""

import json
import re
import shlex
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext, suppress
from itertools import chain, islice
from pathlib import PurePath
from typing import Any, BinaryIO

import click

from tfrtool.cli.damage import Damage
from tfrtool.cli.output import Outcome, emit, note
from tfrtool.cli.parameters import (
    ON_ERROR,
    OUTPUT_OR_URL,
    SHARDS,
    WORKERS,
    command,
    shards_of,
)
from tfrtool.cli.process import nobody_reads
from tfrtool.cli.render.page import Page, plain
from tfrtool.errors import UsageError, WriteError, human_count, os_errors_as, printable
from tfrtool.records.compression import named_compression
from tfrtool.storage.locations import as_path

_FORMATS = ("table", "jsonl", "csv", "parquet")
_SHOWN = 1000
"""Rows of a table, which is in memory as a whole."""

_SQL = re.compile(r"\s*\(?\s*(select|with|from|describe|summarize|values)\s", re.IGNORECASE)
"""What a query starts with, and hardly a path."""


@command(
    "tfrtool query data 'SELECT label, count(*) FROM records GROUP BY label'",
    "tfrtool query data 'SELECT _shard, _record FROM records WHERE _bytes > 1e6' --out big.csv",
    options={
        "--format table|jsonl|csv|parquet": "How rows are printed or written.  [default: by the "
        "suffix of FILE; else a table]",
        "--out FILE": "Write the rows to a file.",
        "--overwrite": "Replace an existing FILE.",
        **ON_ERROR,
        **WORKERS,
    },
    kinds={"FILE": OUTPUT_OR_URL},
)
@SHARDS
@click.argument("sql")
def query_command(
    shards: tuple[str, ...],
    sql: str,
    out: str | None,
    overwrite: bool,
    on_error: str,
    as_json: bool,
    **words: Any,
) -> Outcome:
    """Query records with SQL.

    SQL: one SELECT statement of DuckDB over the table records, which has a column for each
    feature, and _shard, _split, _record, _offset and _bytes; label_name where class names are
    known. Only the columns that are named are decoded, and rows are printed as they are found.
    SHARDS: files, quoted globs and directories. Exit code 3 means that damaged records were left
    out.
    """
    from tfrtool.cli.bars import Bars
    from tfrtool.inspection.rows.query import query, write_parquet
    from tfrtool.storage.appearing import new_file

    damage = Damage(on_error)
    if _SQL.match(shards[0]) and not _SQL.match(sql):
        hint = f"tfrtool query {shlex.quote(sql)} {shlex.quote(shards[0])}"
        raise UsageError("SHARDS come before SQL", hint=f"swap the arguments: {hint}")
    form = _chosen(words.pop("format"), out, overwrite, as_json)
    # A file appears when it is whole.
    target: AbstractContextManager[BinaryIO | None] = (
        nullcontext() if out is None else new_file(as_path(out), replace=overwrite)
    )
    with (
        Bars() as bars,
        os_errors_as(WriteError, out or "-", "can't be written"),
        target as file,
        query(
            shards_of(shards),
            sql,
            sources=shards,
            as_text=form != "parquet",
            on_fault=damage,
            on_progress=bars,
            **words,
        ) as reader,
    ):
        if form == "parquet" and file is not None:
            rows = write_parquet(reader, file)
        else:
            rows = _print(reader, form, file)
    if out is not None:
        note(f"wrote {human_count(rows, 'row')} to {printable(out)}")
    return damage.outcome()


def _chosen(form: str | None, out: str | None, overwrite: bool, as_json: bool) -> str:
    if as_json and form not in (None, "jsonl"):
        raise UsageError(f"--json and --format {form} cannot be used together")
    if out is not None and not overwrite and as_path(out).exists():
        raise UsageError("is there already", path=out, hint="--overwrite replaces it")
    if out is not None and named_compression(PurePath(out)):
        raise UsageError("the rows are written uncompressed", path=out, hint="leave off the ending")
    suffix = PurePath(out or "").suffix[1:].lower()
    form = form or (suffix if suffix in _FORMATS else "jsonl" if as_json else "table")
    if form == "parquet" and out is None:
        raise UsageError("--format parquet is for --out FILE")
    return form


def _print(reader: Any, form: str, file: BinaryIO | None) -> int:
    """Print rows, or write them to a file as text; return how many."""
    from tfrtool.cli.render.rows_text import csv_line, rows_json, rows_table

    names, count = reader.schema.names, 0

    def counted() -> Iterator[dict[str, Any]]:
        nonlocal count
        for row in rows_json(reader):
            count += 1
            yield row

    rows = counted()
    lines: Iterable[str | Page]
    if form == "table":
        page = rows_table(islice(rows, _SHOWN), names)
        lines = [page if file is None else plain(page)]
    elif form == "csv":
        lines = map(csv_line, chain([names], (row.values() for row in rows)))
    else:
        lines = map(json.dumps, rows)
    for line in lines:
        if file is not None:
            file.write(f"{line}\n".encode())
        else:
            emit(line)
            if nobody_reads():
                return count
    shown = count
    with suppress(StopIteration):
        next(rows)
        note(f"there are more than these {_SHOWN} rows; --format jsonl prints all")
    return shown
