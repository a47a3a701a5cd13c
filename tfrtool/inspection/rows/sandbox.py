"""DuckDB over one table of records: in memory, without files, network, extensions or settings."""

import contextlib
import re
import secrets
from collections.abc import Callable, Collection, Iterator
from typing import Any

import pyarrow as pa

from tfrtool.engines.processes import cores
from tfrtool.errors import ShardError, UsageError, human_count
from tfrtool.examples.arrow.columns import PLACES

MEMORY = 10**9
"""Bytes that DuckDB may hold; nothing is written to a disk instead."""

_CONFIG = {
    "enable_external_access": "false",
    "autoload_known_extensions": "false",
    "autoinstall_known_extensions": "false",
    "allow_community_extensions": "false",
    "python_enable_replacements": "false",
    "temp_directory": "",
    "memory_limit": f"{MEMORY}B",
    # The plan is made over one row of NULLs, of which it shall not be concluded that all are.
    "disabled_optimizers": "statistics_propagation",
}

Scan = Callable[[Collection[str]], Iterator[pa.RecordBatch]]
"""Reads all rows, with the columns of these names; called once for each time they are needed."""

_DRAWN = """
SELECT function_name || '()' FROM duckdb_functions()
WHERE (stability = 'VOLATILE' OR function_name = 'query')
  AND contains(lower(json_serialize_sql($1)), '"function_name":"' || function_name || '"')
UNION ALL SELECT 'SAMPLE' WHERE contains(json_serialize_sql($1), '"sample":{')
"""
"""What of a SELECT says something else each time; query() may hide it in a text."""


def check_select(sql: str) -> None:
    """Check that a text is one SELECT statement; else it is a `UsageError`."""
    import duckdb

    try:
        statements = duckdb.extract_statements(sql)
    except duckdb.Error as error:
        raise UsageError(_first_line(error)) from error
    if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
        what = "one SELECT statement, and nothing else"
        names = ", ".join(str(one.type).rpartition(".")[2] for one in statements) or "nothing"
        raise UsageError("not a query", expected=what, found=names)


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]


class _Rows:
    """Rows as DuckDB reads them: from the first one on, as often as it asks.

    The columns are called c0, c1 and so on there: names may be odd, or differ in case alone.

    Attributes:
        error: what a scan raised; Arrow makes a text of it.
    """

    def __init__(self, names: dict[str, str], schema: pa.Schema, scan: Scan) -> None:
        fields = [schema.field(name).with_name(column) for column, name in names.items()]
        self._names, self._schema, self._scan = names, pa.schema(fields), scan
        self.error: Exception | None = None

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        reader = pa.RecordBatchReader.from_batches(self._schema, self._batches())
        return reader.__arrow_c_stream__(requested_schema)

    def _batches(self) -> Iterator[pa.RecordBatch]:
        try:
            for batch in self._scan(self._names.values()):
                columns = [batch.column(name) for name in self._names.values()]
                yield pa.RecordBatch.from_arrays(columns, schema=self._schema)
        except Exception as error:
            self.error = error
            raise


def quoted_names(names: Collection[str]) -> list[str]:
    """Return, quoted, what columns of these names are called in a view."""
    taken: set[str] = set()
    quoted = []
    for name in names:
        shown = name or "_"
        while shown.casefold() in taken:
            shown += "_"
        taken.add(shown.casefold())
        quoted.append('"' + shown.replace('"', '""') + '"')
    return quoted


class Sandbox:
    """A database that has nothing but a view of records, and can't reach anything else.

    Bytes are BLOBs. Where that does not do, as for LIKE, those columns that must be text are
    VARCHAR, and NULL where they are no UTF-8. Of names that differ in case alone, the later ones
    get a ``_``.
    """

    def __init__(self, schema: pa.Schema, scan: Scan, *, view: str = "records") -> None:
        """Offer rows under the name ``view``, first the columns that are not called ``_*``."""
        import duckdb

        self._duckdb = duckdb
        self._schema, self._scan, self._view = schema, scan, view
        self._names = {f"c{n}": name for n, name in enumerate(schema.names)}
        self._quoted = quoted_names(schema.names)
        self._rows: _Rows | None = None
        self.text: set[str] = set()
        self._base, self._nulls = (f"t{secrets.token_hex(8)}" for _ in range(2))
        config = {**_CONFIG, "threads": str(cores())}
        self._connection = self._duckdb.connect(":memory:", config=config)
        row = [pa.nulls(1, kind) for kind in schema.types]
        nulls = _Rows(self._names, schema, lambda _: iter([pa.record_batch(row, schema=schema)]))
        self._connection.register(self._base, nulls)
        self._connection.execute(f'CREATE TABLE "{self._nulls}" AS FROM "{self._base}"')
        described = self._connection.execute(f'DESCRIBE "{self._nulls}"').fetchall()
        self._types = {column: kind for column, kind, *_ in described}
        self._connection.execute("SET lock_configuration = true")

    def drawn(self, sql: str) -> str | None:
        """Return what in a SELECT may be different each time, if anything is."""
        found = self.rows(_DRAWN, sql)
        return str(found[0][0]) if found else None

    def rows(self, sql: str, *parameters: str) -> list[tuple[Any, ...]]:
        """Return what a statement of ours gives."""
        return self._connection.execute(sql, parameters).fetchall()  # type: ignore[no-any-return]

    def types(self, sql: str) -> list[tuple[str, str]]:
        """Return the names and types that a SELECT gives, over what was checked last."""
        try:
            found = self._connection.sql(sql)
        except self._duckdb.Error as error:
            raise self.as_error(error) from error
        return [*zip(found.columns, map(str, found.types), strict=True)]

    def check(
        self, sql: str, *, run: bool = False, text: Collection[str] | None = None
    ) -> set[str]:
        """Check that a SELECT makes sense, and prepare to read it; or `UsageError`.

        `check_select` has seen it. It may also be ``run`` over one row of NULLs: that a text is no
        number is found out only then. ``text`` is what another sandbox has found to be text.

        Returns:
            The names of the columns that are read for it.
        """
        given, text, used = text is not None, set(text or ()), set[str]()
        try:
            used = self._plan(sql, text, run)
        except self._duckdb.Error as error:
            if given:
                raise self.as_error(error) from error
            said = sql.replace('""', '"').casefold()
            blobs = [column for column, kind in self._types.items() if kind == "BLOB"]
            text = {column for column in blobs if self._names[column].casefold() in said}
            failed = True
            for column in ("", *sorted(text)):
                with contextlib.suppress(self._duckdb.Error):
                    used = self._plan(sql, text - {column}, run)
                    text, failed = text - {column}, False
            if failed:
                raise self.as_error(error) from error
        # A table has some column, even where the rows are only counted; and DuckDB can't read
        # its own word for the type of a struct in which a name is empty.
        used |= {c for c, n in self._names.items() if n == PLACES[1] or '""' in self._types[c]}
        used = used or set([*self._names][:1])
        names = {column: self._names[column] for column in self._names if column in used}
        self._rows = _Rows(names, self._schema, self._scan)
        self._connection.register(self._base, self._rows)
        self._define(self._base, text, names)
        self.text = text
        return set(names.values())

    def read(self, sql: str) -> pa.RecordBatchReader:
        """Run the query that was checked last, and return its rows as they come."""
        return self._connection.sql(sql).to_arrow_reader(2048)

    def as_error(self, error: Exception) -> Exception:
        """Return what ended a query: an error of the scan, or else what DuckDB says."""
        failure = None
        if self._rows:  # which is in the traceback: DuckDB's objects in a cycle leak
            failure, self._rows.error = self._rows.error, None
        of_query = isinstance(error, self._duckdb.Error | OSError)
        if failure is not None or not of_query or getattr(error, "errno", None):
            return failure or error  # with a number it is the system's, such as a full disk
        if isinstance(error, self._duckdb.OutOfMemoryException):
            return ShardError(f"the query needs more memory than {human_count(MEMORY, 'byte')}")
        near = re.search(r'Candidate bindings: "([^"]+)"', str(error))
        return UsageError(_first_line(error), hint=near and f"did you mean {near[1]!r}?")

    def interrupt(self) -> None:
        """End a query that another thread waits for."""
        self._connection.interrupt()

    def close(self) -> None:
        """Give back what DuckDB holds."""
        self._connection.close()

    def _define(self, table: str, text: set[str], held: Collection[str]) -> None:
        """Make the view, of a table that has some of the columns: others are not asked for."""
        parts: list[tuple[bool, str]] = []
        for (column, name), quoted in zip(self._names.items(), self._quoted, strict=True):
            value = f"try(decode({column}))" if column in text else column
            if column not in held:
                kind = "VARCHAR" if column in text else self._types[column]
                value = f"CAST(error('{column} was not expected') AS {kind})"
            parts.append((name.startswith("_"), f"{value} AS {quoted}"))
        select = ", ".join(part for _, part in sorted(parts, key=lambda one: one[0]))
        self._connection.execute(
            f'CREATE OR REPLACE TEMP VIEW "{self._view}" AS SELECT {select} FROM "{table}"'
        )

    def _plan(self, sql: str, text: set[str], run: bool) -> set[str]:
        """Return the columns that a query needs, or a few more; or DuckDB's error."""
        self._define(self._nulls, text, self._names)
        ((_, plan),) = self._connection.execute(f"EXPLAIN (FORMAT JSON) {sql}").fetchall()
        # DuckDB before 2.0 has settings that are not locked.
        if re.search(r'"Function": "(EN|DIS)ABLE_', plan):
            raise UsageError("a query changes no settings: they are locked")
        # That a text beyond ASCII makes no BLOB is found out only when it is run, too.
        if run or not sql.isascii():
            self._connection.sql(sql).limit(1).to_arrow_table()
        return self._names.keys() & re.findall(r"\bc\d+\b", plan)
