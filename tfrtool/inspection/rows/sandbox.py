"""DuckDB over tables of records, which are read as a query needs them.

It runs in a process of its own, whose memory is limited: see `sql_child`.
"""

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from tfrtool.errors import ShardError, SourceError, UsageError
from tfrtool.examples.arrow.columns import PLACES
from tfrtool.examples.arrow.value_types import texts_of
from tfrtool.inspection.rows.database import literal, quoted, unique_names
from tfrtool.inspection.rows.sql_errors import as_sql_error
from tfrtool.inspection.rows.statement import EXPLAIN, Statement

_TEXT_IN_ARROW = frozenset(
    {"uhugeint", "bignum", "time with time zone", "interval", "bit", "variant", "geometry", "type"}
)
"""Types that Arrow, or Parquet behind it, can't hold."""

_TEXT_IN_PYTHON = frozenset({"date", "time", "time_ns"})
"""Types with values that Python can't hold, and all whose names start with "timestamp"."""

_LARGEST_ARRAY = 10_000
"""Values of a tensor; DuckDB reserves memory for 2048 of them, and a larger one stays a list."""

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

    Attributes:
        error: what a scan raised; Arrow makes a text of it.
    """

    def __init__(self, schema: pa.Schema, names: Collection[str], scan: Scan) -> None:
        """Take the schema that DuckDB sees, and the names of the same columns in the scan."""
        self._schema, self._names, self._scan = schema, names, scan
        self.error: Exception | None = None

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        reader = pa.RecordBatchReader.from_batches(self._schema, self._batches())
        return reader.__arrow_c_stream__(requested_schema)

    def _batches(self) -> Iterator[pa.RecordBatch]:
        try:
            for batch in self._scan(self._names):
                arrays = map(batch.column, self._names)
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
    if pa.types.is_null(kind):
        return pa.nulls(len(array))
    try:
        return array.cast(kind)
    except pa.ArrowInvalid as error:  # of durations alone: half floats are never too large
        raise SourceError("SQL can't hold durations finer than microseconds") from error


def readable_type(kind: pa.DataType) -> pa.DataType:
    """Return the type of the same values that DuckDB reads, if there is one; else the type."""
    if pa.types.is_decimal256(kind):
        return pa.string()  # they may have more digits than DuckDB's
    if pa.types.is_float16(kind):
        return pa.float32()
    if pa.types.is_duration(kind) and kind.unit == "ns":
        return pa.duration("us")  # DuckDB would cut digits off without a word
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(readable_type(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(readable_type(kind.value_type))
    if pa.types.is_fixed_size_list(kind):
        inner = readable_type(kind.value_type)
        if _fixed_size(kind) > _LARGEST_ARRAY:
            return pa.list_(inner)
        return pa.list_(inner, kind.list_size)
    return kind


def _fixed_size(kind: pa.DataType) -> int:
    """Return how many values a tensor has, all sizes of which are fixed."""
    size = 1
    while pa.types.is_fixed_size_list(kind):
        size, kind = size * kind.list_size, kind.value_type
    return size


class Sandbox:
    """A database that has only views of rows, and can't reach anything else."""

    def __init__(
        self,
        connection: Any,
        tables: Mapping[str, tuple[pa.Schema, Scan]],
        statement: Statement,
        paths: Sequence[str] = (),
    ) -> None:
        """Offer rows as tables, with the columns that a statement mentions.

        Args:
            connection: an empty database, of `connect`.
            tables: the schema and the rows of each. Columns that are called ``_*`` come last.
            statement: what is asked.
            paths: what would be a column if it were mentioned, such as ``steps/reward``.
        """
        self._paths = paths
        self._connection, self._sql = connection, statement.sql
        self._rows: list[_Rows] = []
        self._unreadable: list[str] = []  # errors of columns
        self._tables = {name: schema for name, (schema, _) in tables.items()}
        for name, (schema, scan) in tables.items():
            self._add(name, schema, scan, statement)

    def _add(self, table: str, schema: pa.Schema, scan: Scan, statement: Statement) -> None:
        """Register rows with the columns that are needed, and define the view of a table."""
        fields = dict(zip(unique_names(schema.names), schema, strict=True))
        shown = [name for name in fields if statement.mentions(table, name)]
        # A table has a column, even if rows are only counted.
        shown = shown or [PLACES[1] if PLACES[1] in fields else next(iter(fields))]
        needed = [name for name in shown if statement.needs(table, name)] or shown[:1]
        kinds = self._readable_types({fields[name].type for name in needed})
        # On the way to DuckDB, Arrow's names end at a NUL character.
        stored = unique_names(name.replace("\0", "\\x00") for name in needed)
        types = [(one, kinds[fields[name].type]) for one, name in zip(stored, needed, strict=True)]
        rows = _Rows(pa.schema(types), [fields[name].name for name in needed], scan)
        self._connection.register(f"rows of {table}", rows)
        self._rows.append(rows)
        values = {name: quoted(one) for name, one in zip(needed, stored, strict=True)}
        for name in shown:
            kind = fields[name].type
            if name not in values:
                values[name] = f"error({literal(f'column {name!r} was not expected')})"
            elif pa.types.is_null(kinds[kind]) and not pa.types.is_null(kind):
                why = f"column {fields[name].name!r} has the type {kind}, which SQL can't read"
                self._unreadable.append(why)
                values[name] = f"error({literal(why)})"
        shown.sort(key=lambda name: fields[name].name.startswith("_"))
        self._connection.execute(
            f"CREATE TEMP VIEW {quoted(table)}({', '.join(map(quoted, shown))}) AS "
            f"SELECT {', '.join(values[name] for name in shown)} FROM {quoted(f'rows of {table}')}"
        )

    def _readable_types(self, kinds: Collection[pa.DataType]) -> dict[pa.DataType, pa.DataType]:
        """Return the types in which DuckDB reads values of others; null if it can't."""
        import duckdb

        found = {kind: readable_type(kind) for kind in kinds}
        for kind, readable in found.items():
            try:
                self._connection.from_arrow(pa.table([pa.nulls(1, readable)], ["c"])).fetchall()
            except (duckdb.NotImplementedException, pa.ArrowException):
                found[kind] = pa.null()
        return found

    def check(self) -> None:
        """Check that the statement makes sense, before any record is read; else `UsageError`."""
        import duckdb

        sql = EXPLAIN.sub("", self._sql, count=1)
        try:
            if str(self._connection.extract_statements(sql)[0].type).endswith("MULTI"):  # PIVOT
                return
            ((_, plan),) = self._connection.execute(f"EXPLAIN (FORMAT JSON) {sql}").fetchall()
        except duckdb.Error as error:
            found = self.as_error(error)
            if isinstance(found, ShardError):
                found = UsageError(found.what, hint=found.hint)
            raise found from error
        # DuckDB before 2.0 has settings that are not locked.
        if re.search(r'"Function": "(EN|DIS)ABLE_', plan):
            raise UsageError("a query can't change settings: they are locked")

    def read(self, *, as_text: bool) -> pa.RecordBatchReader:
        """Run the statement, and return its rows as they come.

        Values that Arrow can't hold are text, or those that Python can't. `UsageError` if two
        columns have one name.
        """
        if EXPLAIN.match(self._sql):
            return self._explain()
        found = self._connection.sql(self._sql)
        names = found.columns
        for name, count in Counter(names).items():
            if count > 1:
                hint = "use AS to rename one of them"
                raise UsageError(f"{count} columns are named {name!r}", hint=hint)
        casts = [_cast_type(kind, as_text) for kind in found.types]
        if any(casts):
            if ";" in self._sql:  # perhaps with a comment behind it, which DuckDB can't cast
                tree = "SELECT json_deserialize_sql(json_serialize_sql($1))"
                ((text,),) = self._connection.execute(tree, (self._sql,)).fetchall()
                found = self._connection.sql(text or self._sql)
            values = (f"CAST(#{n} AS {to})" if to else f"#{n}" for n, to in enumerate(casts, 1))
            items = map(" AS ".join, zip(values, map(quoted, names), strict=True))
            found = found.project(", ".join(items))
        reader = found.to_arrow_reader(2048)
        if reader.schema.names == names:
            return reader
        # On the way from DuckDB, Arrow's names end at a NUL character.
        schema = pa.schema([*map(pa.Field.with_name, reader.schema, names)])
        batches = (pa.RecordBatch.from_arrays(one.columns, schema=schema) for one in reader)
        return pa.RecordBatchReader.from_batches(schema, batches)

    def _explain(self) -> pa.RecordBatchReader:
        """Return the lines of the statement's plan."""
        plans = self._connection.execute(self._sql).fetchall()
        lines = "\n".join(plan for _, plan in plans).splitlines()
        batch = pa.record_batch([pa.array(lines)], ["plan"])
        return pa.RecordBatchReader.from_batches(batch.schema, [batch])

    def as_error(self, error: Exception) -> Exception:
        """Return what ended the query: an error of the scan, or else DuckDB's in our words."""
        failure = next((one.error for one in self._rows if one.error is not None), None)
        if failure is not None or getattr(error, "errno", None):
            return failure or error  # with a number it is the system's, such as a full disk
        for why in self._unreadable:
            if why in str(error):
                return UsageError(why, hint="leave this column out")
        columns = [name for schema in self._tables.values() for name in schema.names]
        columns += self._paths if "/" in self._sql else ()
        return as_sql_error(error, columns, self._sql, [*self._tables])
