"""``tfrtool query``."""

import re
import shlex
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, BinaryIO, Literal

import click

from tfrtool.cli.damage import Damage
from tfrtool.cli.layout import render
from tfrtool.cli.output import Bars, Outcome, binary_output, emit, note
from tfrtool.cli.parameters import (
    SHARDS,
    SKIP_OR_STOP,
    command,
    resolve_shards,
    standard_input,
)
from tfrtool.cli.process import stdout_closed
from tfrtool.declare import option
from tfrtool.engines.engine import workers_option
from tfrtool.errors import (
    TfrtoolError,
    UsageError,
    WriteError,
    human_count,
    os_errors_as,
    printable,
)
from tfrtool.inspection.inspect_options import StoredOptions
from tfrtool.inspection.shard_options import ProtoOptions
from tfrtool.page import Page
from tfrtool.records.compression import named_compression
from tfrtool.sources.formats.csv_options import CsvOptions
from tfrtool.storage.arguments import as_path
from tfrtool.storage.scratch_folder import ScratchFolder

if TYPE_CHECKING:
    from tfrtool.examples.arrow.messages import MessageColumns
    from tfrtool.inspection.rows.query import Rows

_FORMATS = ("table", "jsonl", "csv", "parquet", "arrow")
_HEAD = 4096
"""Bytes of standard input that show its format."""

_SHOWN = 1000
"""Maximum number of rows in a table, which is laid out in memory."""

_SQL = re.compile(r"\s*\(?\s*(select|with|from|describe|summarize|values)\s", re.IGNORECASE)
"""The start of a query, which is unlikely for a path."""


def _parse_tables(texts: Iterable[str]) -> dict[str, str]:
    """Return the file of each table that was given as NAME=FILE."""
    found: dict[str, str] = {}
    for text in texts:
        name, equals, path = text.partition("=")
        if not equals or not path:
            raise UsageError(f"invalid --with {text[:100]!r}", expected="NAME=FILE")
        if name in found:
            raise UsageError(f"--with has two tables named {name!r}")
        found[name] = path
    return found


@dataclass(frozen=True, kw_only=True)
class _QueryOptions(ProtoOptions, StoredOptions):
    tables: Mapping[str, str] | None = option(
        None,
        "Also query FILE as the table NAME: CSV, JSON Lines, Parquet, Arrow, or other shards; - "
        "for standard input. Repeatable.",
        metavar="NAME=FILE",
        cli="--with",
        repeat=True,
        parse=_parse_tables,
    )
    format: Literal["table", "jsonl", "csv", "parquet", "arrow"] | None = option(
        None, "Output format.  [default: suffix of FILE, or table]"
    )
    out: str | None = option(
        None, "Write the rows to this file instead of stdout.", metavar="FILE", path="output"
    )
    overwrite: bool = option(False, "Replace an existing FILE.")
    on_error: Literal["skip", "stop"] = option("skip", SKIP_OR_STOP)
    workers: int | None = workers_option()


@command(
    "tfrtool query data 'SELECT label, count(*) FROM records GROUP BY 1'",
    "tfrtool query data 'SELECT _record FROM records WHERE _bytes > 1e6' --out big.csv",
    "tfrtool query data 'SELECT * FROM records JOIN meta USING (id)' --with meta=meta.csv",
    options=(_QueryOptions, CsvOptions),
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
    proto: str | None,
    **words: Any,
) -> Outcome:
    """Query records with SQL.

    SHARDS are files, quoted globs and directories. SQL is one SELECT statement for DuckDB on the
    table records. Its columns are the features, plus _shard, _split, _record, _offset, _bytes and,
    if class names are known, label_name.

    Exit code 3 means that damaged records were skipped.
    """
    from tfrtool.inspection.rows.query import query, query_rows, write_arrow, write_parquet

    damage = Damage(on_error)
    if _SQL.match(shards[0]) and not _SQL.match(sql):
        hint = f"tfrtool query {shlex.quote(sql)} {shlex.quote(shards[0])}"
        raise UsageError("SHARDS come before SQL", hint=f"swap the arguments: {hint}")
    form = _chosen(words.pop("format"), out, overwrite, as_json)
    style = CsvOptions.take(words, form)
    is_arrow = form in ("parquet", "arrow")
    if form == "arrow" and out is None:
        binary_output()
    paths, columns = resolve_shards(shards), None if proto is None else _columns(proto)
    with (
        _file_for_stdin(words.pop("tables")) as tables,
        Bars() as bars,
        os_errors_as(WriteError, out or "-", "can't be written"),
        _target(out, overwrite) as file,
        (query if is_arrow else query_rows)(
            paths,
            sql,
            sources=shards,
            tables=tables,
            as_text=not is_arrow,
            on_fault=damage,
            on_progress=bars,
            on_note=note,
            proto=columns,
            **words,
        ) as answer,
    ):
        if form == "parquet" and file is not None:
            rows = write_parquet(answer, file)
        elif form == "arrow":
            rows = write_arrow(answer, binary_output() if file is None else file)
        else:
            rows = _print(answer, form, file, style)
    if out is not None:
        note(f"wrote {human_count(rows, 'row')} to {printable(out)}")
    return damage.outcome()


def _target(out: str | None, overwrite: bool) -> AbstractContextManager[BinaryIO | None]:
    """Give the file to write to, which appears when it is complete; None for standard output."""
    from tfrtool.storage.atomic_files import delete_leftovers, new_file

    if out is None:
        return nullcontext()
    delete_leftovers(as_path(out))
    return new_file(as_path(out), replace=overwrite)


def _columns(proto: str) -> "MessageColumns":
    from tfrtool.examples.arrow.messages import MessageColumns  # imports Arrow

    return MessageColumns.read(proto)


@contextmanager
def _file_for_stdin(tables: Mapping[str, str] | None) -> Iterator[Mapping[str, str] | None]:
    """Give a temporary file in place of standard input; errors name it ``-``."""
    name = next((name for name, path in (tables or {}).items() if path == "-"), None)
    if name is None:
        yield tables
        return
    stream = standard_input()
    with ScratchFolder() as scratch:
        head = stream.read(_HEAD)
        is_json = head.lstrip()[:1] in (b"{", b"[")
        suffix = "jsonl" if is_json else "parquet" if head.startswith(b"PAR1") else "csv"
        path = Path(scratch, f"stdin.{suffix}")
        with path.open("xb") as file:
            file.write(head)
            shutil.copyfileobj(stream, file)
        try:
            yield {**(tables or {}), name: str(path)}
        except TfrtoolError as error:
            if str(error.path).startswith(scratch):
                error.path = "-"
            raise


def _chosen(form: str | None, out: str | None, overwrite: bool, as_json: bool) -> str:
    if as_json and form not in (None, "jsonl"):
        raise UsageError(f"--json and --format {form} can't be used together")
    if out is not None and not overwrite and as_path(out).exists():
        raise UsageError("already exists", path=out, hint="use --overwrite to replace it")
    if out is not None and named_compression(PurePath(out)):
        what = "rows can't be written compressed"
        raise UsageError(what, path=out, hint=f"remove {PurePath(out).suffix}")
    suffix = PurePath(out or "").suffix[1:].lower()
    form = form or (suffix if suffix in _FORMATS else "jsonl" if as_json else "table")
    if form == "parquet" and out is None:
        raise UsageError("--format parquet requires --out FILE")
    return form


def _print(answer: "Rows", form: str, file: BinaryIO | None, style: CsvOptions) -> int:
    """Print rows, or write them to a file as text; return how many."""
    from tfrtool.cli.rows_text import folded, rows_table
    from tfrtool.inspection.rows.row_lines import csv_lines, json_lines, row_json

    names, count = answer.names, 0

    def counted() -> Iterator[dict[str, Any]]:
        nonlocal count
        for row in answer.rows:
            count += 1
            values = map(folded, row) if form == "table" else row
            yield row_json(dict(zip(names, values, strict=True)))

    rows = counted()
    lines: Iterable[str | Page]
    if form == "table":
        page = rows_table(islice(rows, _SHOWN), names)
        lines = [page if file is None else render(page, terminal=False)]
    elif form == "csv":
        lines = csv_lines(rows, names, style)
    else:
        lines = json_lines(rows)
    for line in lines:
        if file is not None:
            file.write(f"{line}\n".encode())
        else:
            emit(line)
            if stdout_closed():
                return count
    shown = count
    with suppress(StopIteration):
        next(rows)
        note(f"only the first {_SHOWN:,} rows are shown; use --format jsonl to print all")
    return shown
