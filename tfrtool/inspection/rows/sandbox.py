"""DuckDB over tables of records: in memory, without files, network, extensions or settings.

It runs in a process of its own, whose memory is limited: see `sql_child`.
"""

import contextlib
import re
import secrets
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from tfrtool.engines.pool import cores
from tfrtool.errors import ShardError, SourceError, UsageError
from tfrtool.examples.arrow.columns import PLACES
from tfrtool.examples.arrow.value_types import texts_of
from tfrtool.inspection.rows.sql_errors import as_sql_error, sql_message
from tfrtool.storage.limits import MAX_DUCKDB_MEMORY

_THREADS = 8
"""Each takes 8 MiB of address space, and one thread alone reads records."""

_CONFIG = {
    "autoload_known_extensions": "false",
    "autoinstall_known_extensions": "false",
    "allow_community_extensions": "false",
    "python_enable_replacements": "false",
    "temp_directory": "",
    "allow_persistent_secrets": "false",
    "secret_directory": "none",  # "" would be one in the home directory, which a query could show
    "memory_limit": f"{MAX_DUCKDB_MEMORY}B",
}

_WRITES = re.compile(r'"type":"(?!SELECT_)([A-Z]+)_QUERY_NODE"')
"""What the syntax tree of a query has if a part of it, such as a WITH, isn't a SELECT."""

_EXPLAIN = re.compile(r"\s*EXPLAIN\s+(?:ANALYZE\s+)?(?!ANALYZE)", re.IGNORECASE)

_TEXT_IN_ARROW = frozenset(
    {"uhugeint", "bignum", "time with time zone", "interval", "bit", "variant", "geometry", "type"}
)
"""Types that Arrow, or Parquet behind it, can't hold."""

_TEXT_IN_PYTHON = frozenset({"date", "time", "time_ns"})
"""Types with values that Python can't hold, and all whose names start with "timestamp"."""

_UNREADABLE = pa.dictionary(pa.int8(), pa.null())
"""Stands for types that DuckDB can't read. Such columns are NULL; using one is an error."""

Scan = Callable[[Collection[str]], Iterator[pa.RecordBatch]]
"""Reads all rows, with the columns of these names; called once for each time they are needed."""


def pack_batch(batch: pa.RecordBatch) -> bytes:
    """Return a batch as bytes for another process; a slice takes no more than its rows."""
    with pa.BufferOutputStream() as out:
        with pa.ipc.new_stream(out, batch.schema) as writer:
            writer.write_batch(batch)
        return out.getvalue().to_pybytes()  # type: ignore[no-any-return]


def unpack_batch(data: bytes) -> pa.RecordBatch:
    """Return the batch that `pack_batch` packed."""
    with pa.ipc.open_stream(data) as reader:
        return reader.read_next_batch()


def connect(folder: Path | None = None) -> Any:
    """Return a database in memory that reaches nothing, or only the files in a folder."""
    import duckdb

    config = {**_CONFIG, "threads": str(min(cores(), _THREADS))}
    connection = duckdb.connect(":memory:", config=config)
    if folder is not None:
        connection.execute("SET allowed_directories = [$1]", (str(folder),))
    # As part of the configuration, it would allow files in the working directory.
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")
    return connection


def check_select(sql: str) -> None:
    """Check that a text is one SELECT statement; otherwise raise a `UsageError`."""
    import duckdb

    try:
        statements = duckdb.extract_statements(sql)
        kinds = [str(one.type).rpartition(".")[2] for one in statements]
        if kinds == ["MULTI"] and "pivot" in sql.casefold():  # which first finds its values
            return
        if kinds == ["SELECT"] and "with" in sql.casefold():
            with contextlib.closing(connect()) as connection:
                ((tree,),) = connection.execute("SELECT json_serialize_sql($1)", (sql,)).fetchall()
            kinds += _WRITES.findall(tree)
    except duckdb.Error as error:
        raise UsageError(f"invalid SQL: {sql_message(error)}") from error
    if kinds == ["SELECT"] and re.match(r"\s*show\b", sql, re.IGNORECASE):
        raise UsageError("SHOW is not supported", hint="use DESCRIBE records to list the columns")
    if kinds == ["EXPLAIN"] and (explained := _EXPLAIN.match(sql)):
        check_select(sql[explained.end() :])
        return
    if kinds != ["SELECT"]:
        found = ", ".join(kinds) or "nothing"
        raise UsageError("invalid query", expected="a single SELECT statement", found=found)


def check_condition(sql: str) -> None:
    """Check that a text is an expression, whatever brackets it is put into."""
    expected = "an SQL expression, such as: label = 1 AND height > 64"
    if not sql.strip():
        raise UsageError("empty condition", expected=expected)
    # What closes a bracket that it has not opened fails in the other sort of brackets.
    for form in ("SELECT coalesce(\n{}\n, false)", "SELECT [\n{}\n]"):
        try:
            check_select(form.format(sql))
        except UsageError as error:
            fault = str(error).removeprefix("invalid SQL: ")
            line = re.search(r"^LINE (\d+):", str(error.__cause__), re.MULTILINE)
            if line and int(line[1]) > 2 + sql.count("\n"):  # behind the condition
                fault = "unbalanced brackets" if fault.endswith("')'") else "incomplete expression"
            what, found = f"invalid condition: {fault}", repr(sql)[:100]
            raise UsageError(what, expected=expected, found=found) from error


def _cast_type(kind: Any, as_text: bool) -> str | None:
    """Return the type to cast a column to, so that values stay what they are, or None.

    A list of values that become text is a list of texts; other nested values become one text.

    Args:
        kind: a type of DuckDB's.
        as_text: whether rows go to Python, and on as text or JSON; otherwise they stay in Arrow.
    """
    name = kind.id
    if name in _TEXT_IN_ARROW or name in ("union", "tuple"):
        return "VARCHAR"
    if as_text and (name in _TEXT_IN_PYTHON or name.startswith("timestamp")):
        return "VARCHAR"
    if name not in ("list", "array", "struct", "map"):
        return None
    casts = [_cast_type(one, as_text) for _, one in kind.children if hasattr(one, "id")]
    if not any(casts):
        return None
    return f"{casts[0]}[]" if name in ("list", "array") else "VARCHAR"


class _Rows:
    """Rows as DuckDB reads them: from the first one on, as often as it asks.

    The columns have numbers there, such as c0_7: names may be odd, or differ in case alone.

    Attributes:
        error: what a scan raised; Arrow makes a text of it.
    """

    def __init__(
        self, names: Mapping[str, str], kinds: Mapping[str, pa.DataType], scan: Scan
    ) -> None:
        """Take the names of columns and their types, by what they are called in DuckDB."""
        self._schema = pa.schema([(column, kinds[column]) for column in names])
        self._names, self._scan = names, scan
        self.error: Exception | None = None

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        reader = pa.RecordBatchReader.from_batches(self._schema, self._batches())
        return reader.__arrow_c_stream__(requested_schema)

    def _batches(self) -> Iterator[pa.RecordBatch]:
        try:
            for batch in self._scan(self._names.values()):
                arrays = map(batch.column, self._names.values())
                columns = map(_readable, arrays, self._schema.types)
                yield pa.RecordBatch.from_arrays([*columns], schema=self._schema)
        except Exception as error:
            self.error = error
            raise


def _readable(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return an array with the type that DuckDB reads."""
    if array.type == kind:
        return array
    if pa.types.is_decimal256(array.type):
        return texts_of(array)
    if kind == _UNREADABLE:
        return pa.nulls(len(array), kind)
    try:
        return array.cast(kind)
    except pa.ArrowInvalid as error:  # of durations alone: half floats are never too large
        raise SourceError("SQL can't hold durations finer than microseconds") from error


def _readable_type(kind: pa.DataType) -> pa.DataType:
    """Return the type of the same values that DuckDB reads, if there is one; else the type."""
    if pa.types.is_decimal256(kind):
        return pa.string()  # they may have more digits than DuckDB's
    if pa.types.is_float16(kind):
        return pa.float32()
    if pa.types.is_duration(kind) and kind.unit == "ns":
        return pa.duration("us")  # DuckDB would cut digits off without a word
    if pa.types.is_list(kind):
        return pa.list_(_readable_type(kind.value_type))
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(_readable_type(kind.value_type), kind.list_size)
    return kind


def _can_be_read(connection: Any, kinds: Iterable[pa.DataType]) -> bool:
    """Return whether DuckDB reads values of all of these types."""
    import duckdb

    columns = [pa.nulls(1, kind) for kind in kinds]
    table = pa.table(columns, [f"c{number}" for number in range(len(columns))])
    try:
        connection.from_arrow(table).fetchall()
    except (duckdb.NotImplementedException, pa.ArrowException):
        return False
    return True


def quoted(name: str) -> str:
    """Return a name as SQL has it, in double quotes."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """Return a text as SQL has it, in single quotes."""
    return "'" + text.replace("'", "''") + "'"


def quoted_names(names: Collection[str]) -> list[str]:
    """Return, quoted, what columns of these names are called in a view."""
    taken: set[str] = set()
    unique = []
    for name in names:
        shown = name or "_"
        while shown.casefold() in taken:
            shown += "_"
        taken.add(shown.casefold())
        unique.append(quoted(shown))
    return unique


class _RowsView:
    """A table of rows that are read as a query asks for them: a view of columns with numbers.

    Attributes:
        name: what the table is called.
        base: what it is called in DuckDB.
        names: the names of the columns, by what they are called in DuckDB.
        types: their types, as text.
        rows: what is read.
    """

    def __init__(self, number: int, name: str, connection: Any, schema: pa.Schema, scan: Scan):
        self.names = {f"c{number}_{n}": column for n, column in enumerate(schema.names)}
        self.name, self._connection, self._schema, self._scan = name, connection, schema, scan
        self.base = f"t{secrets.token_hex(8)}"
        kinds = [_readable_type(kind) for kind in schema.types]
        unreadable = set[pa.DataType]()
        if kinds and not _can_be_read(connection, kinds):
            unreadable = {kind for kind in {*kinds} if not _can_be_read(connection, [kind])}
        self._kinds = {
            column: _UNREADABLE if kind in unreadable else kind
            for column, kind in zip(self.names, kinds, strict=True)
        }
        self.rows = self.read_nulls()
        found = connection.sql(f'FROM "{self.base}"')
        self.types = dict(zip(found.columns, map(str, found.types), strict=True))

    @property
    def readable(self) -> list[str]:
        """The columns that DuckDB can read."""
        return [column for column, kind in self._kinds.items() if kind != _UNREADABLE]

    def read_nulls(self) -> _Rows:
        """Have one row of nulls, with which queries are checked."""
        nulls = [pa.nulls(1, kind) for kind in self._schema.types]
        batch = pa.record_batch(nulls, self._schema.names)
        self.rows = _Rows(self.names, self._kinds, lambda _: iter([batch]))
        self._connection.register(self.base, self.rows)
        return self.rows

    def read(self, used: Collection[str]) -> None:
        """Have all rows, with the columns that a query uses.

        `UsageError` if DuckDB can't read one of them.
        """
        for column in used:
            if self._kinds.get(column) == _UNREADABLE:
                raise UsageError(self._unreadable(column), hint="leave this column out")
        # A table has some column, even if rows are only counted; and DuckDB can't read its own
        # name of the type of a struct in which a name is empty.
        used = {
            column
            for column, name in self.names.items()
            if column in used or name == PLACES[1] or '""' in self.types[column]
        } or {*[*self.names][:1]}
        names = {column: name for column, name in self.names.items() if column in used}
        self.rows = _Rows(names, self._kinds, self._scan)
        self._connection.register(self.base, self.rows)
        self.define(names)

    def _unreadable(self, column: str) -> str:
        name = self.names[column]
        return f"column {name!r} has the type {self._schema.field(name).type}, which SQL can't read"

    def define(self, read: Collection[str]) -> None:
        """Define the view; reading a column that was not expected is an error."""
        parts: list[tuple[bool, str]] = []
        names = zip(self.names.items(), quoted_names(self._schema.names), strict=True)
        for (column, name), shown in names:
            value = column
            if column not in read:
                is_known = self._kinds[column] != _UNREADABLE
                why = f"{column} was not expected" if is_known else self._unreadable(column)
                value = f"CAST(error({literal(why)}) AS {self.types[column]})"
            parts.append((name.startswith("_"), f"{value} AS {shown}"))
        select = ", ".join(part for _, part in sorted(parts, key=lambda part: part[0]))
        self._connection.execute(
            f'CREATE OR REPLACE TEMP VIEW {quoted(self.name)} AS SELECT {select} FROM "{self.base}"'
        )


class Sandbox:
    """A database that has only views of rows, and can't reach anything else.

    Of names that differ in case alone, the later ones get a ``_``.
    """

    def __init__(self, tables: Mapping[str, tuple[pa.Schema, Scan]]) -> None:
        """Offer rows as tables, first the columns that are not called ``_*``.

        ``tables`` has the schema and the rows of each.
        """
        import duckdb

        self._duckdb = duckdb
        self._connection = connect()
        self.table_names = [*tables]
        self._tables = [
            _RowsView(number, name, self._connection, *table)
            for number, (name, table) in enumerate(tables.items())
        ]
        self._names = {k: v for table in self._tables for k, v in table.names.items()}

    def check(self, sql: str) -> None:
        """Check that a SELECT makes sense, and prepare to read it; otherwise `UsageError`.

        `check_select` has seen it.
        """
        for table in self._tables:
            table.read_nulls()
        try:
            used = self._plan(sql)
        except self._duckdb.Error as error:
            found = self.as_error(error, sql)
            if isinstance(found, ShardError):  # before any record is read
                found = UsageError(found.what, hint=found.hint)
            raise found from error
        for table in self._tables:
            table.read(used)

    def read(self, sql: str) -> pa.RecordBatchReader:
        """Run the query that was checked last, and return its rows as they come."""
        try:
            found = self._connection.sql(sql)
            reader = found.to_arrow_reader(2048)
        except self._duckdb.Error:
            if any(table.rows.error is not None for table in self._tables):
                raise
            # Checked with a row of nulls, a condition may need fewer columns than it has.
            for table in self._tables:
                table.read(table.readable)
            found = self._connection.sql(sql)
            reader = found.to_arrow_reader(2048)
        if reader.schema.names == found.columns:
            return reader
        # On the way from DuckDB, Arrow's names end at a NUL character.
        schema = pa.schema([*map(pa.Field.with_name, reader.schema, found.columns)])
        batches = (pa.RecordBatch.from_arrays(one.columns, schema=schema) for one in reader)
        return pa.RecordBatchReader.from_batches(schema, batches)

    def read_exactly(self, sql: str, *, as_text: bool) -> pa.RecordBatchReader:
        """Do what `read` does; values that Arrow can't hold are text, or those that Python can't.

        `UsageError` if two columns have one name.
        """
        if _EXPLAIN.match(sql):
            return self._explain(sql)
        found = self._connection.sql(sql)
        names = found.columns
        for name, count in Counter(names).items():
            if count > 1:
                hint = "use AS to rename one of them"
                raise UsageError(f"{count} columns are named {name!r}", hint=hint)
        casts = [_cast_type(kind, as_text) for kind in found.types]
        if any(casts):
            if ";" in sql:  # which can't stand in brackets
                tree = "SELECT json_deserialize_sql(json_serialize_sql($1))"
                ((text,),) = self._connection.execute(tree, (sql,)).fetchall()
                sql = text or sql
            items = (f"c{n}" if to is None else f"CAST(c{n} AS {to})" for n, to in enumerate(casts))
            chosen = ", ".join(map(" AS ".join, zip(items, map(quoted, names), strict=True)))
            columns = ", ".join(f"c{n}" for n in range(len(names)))
            sql = f"SELECT {chosen} FROM (\n{sql}\n) AS t({columns})"
        return self.read(sql)

    def _explain(self, sql: str) -> pa.RecordBatchReader:
        """Return the lines of a query's plan, with the names that the query has."""
        names = self._names | {table.base: table.name for table in self._tables}
        pattern = re.compile(rf"\b({'|'.join(names)})\b")
        plans = self._connection.execute(sql).fetchall()
        lines = []
        for line in "\n".join(plan for _, plan in plans).splitlines():
            text = pattern.sub(lambda match: names[match[0]], line)
            if line.endswith("│"):  # the border of a box
                text = text[:-1].rstrip().ljust(len(line) - 1) + "│"
            lines.append(text)
        batch = pa.record_batch([pa.array(lines)], ["plan"])
        return pa.RecordBatchReader.from_batches(batch.schema, [batch])

    def as_error(self, error: Exception, sql: str = "") -> Exception:
        """Return what ended a query: an error of the scan, or else DuckDB's in our words."""
        failures = [table.rows.error for table in self._tables if table.rows.error is not None]
        failure = failures[0] if failures else None
        for table in self._tables:
            table.rows.error = None
        if failure is not None or getattr(error, "errno", None):
            return failure or error  # with a number it is the system's, such as a full disk
        return as_sql_error(error, self._names.values(), sql, self.table_names)

    def close(self) -> None:
        """Release what DuckDB holds."""
        self._connection.close()

    def _plan(self, sql: str) -> set[str]:
        """Return the columns that a query needs, or a few more; or raise DuckDB's error."""
        for table in self._tables:
            table.define(table.names)
        sql = _EXPLAIN.sub("", sql, count=1)
        if str(self._duckdb.extract_statements(sql)[0].type).endswith("MULTI"):  # PIVOT
            self._connection.sql(sql)
            return {column for table in self._tables for column in table.readable}
        ((_, plan),) = self._connection.execute(f"EXPLAIN (FORMAT JSON) {sql}").fetchall()
        # DuckDB before 2.0 has settings that are not locked.
        if re.search(r'"Function": "(EN|DIS)ABLE_', plan):
            raise UsageError("a query can't change settings: they are locked")
        # That a text beyond ASCII makes no BLOB is found out only when it is run.
        if not sql.isascii():
            self._connection.sql(sql).limit(1).to_arrow_table()
        return self._names.keys() & re.findall(r"\bc\d+_\d+\b", plan)
