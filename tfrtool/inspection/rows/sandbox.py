"""DuckDB over one table of records: in memory, without files, network, extensions or settings.

It runs in a process of its own, whose memory is limited: see `SqlChild`.
"""

import contextlib
import os
import re
import secrets
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from tfrtool.engines.pool import cores
from tfrtool.errors import ShardError, UsageError, human_bytes, suggestion
from tfrtool.examples.arrow.columns import PLACES
from tfrtool.storage.child import Child, ChildDied
from tfrtool.storage.limits import MAX_DUCKDB_MEMORY, MAX_SQL_MEMORY

_THREADS = 8
"""Each takes 8 MiB of address space, and one thread alone reads records."""

_ENVIRONMENT = {
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "MALLOC_ARENA_MAX": "2",
    "OPENBLAS_NUM_THREADS": "1",
}
"""Keeps libraries from reserving address space that they don't use, some GiB of it."""

_HIDDEN = re.compile("_[0-9a-f]{16}")
"""Columns that no condition names."""

_MESSAGE = 300
"""Characters of DuckDB's message, which may quote a value of any length."""

_END = 1000
"""Characters from each end of a message that are looked at for what it means."""

_CONFIG = {
    "autoload_known_extensions": "false",
    "autoinstall_known_extensions": "false",
    "allow_community_extensions": "false",
    "python_enable_replacements": "false",
    "temp_directory": "",
    "allow_persistent_secrets": "false",
    "secret_directory": "none",  # "" would be one in the home directory, which a query could show
    "memory_limit": f"{MAX_DUCKDB_MEMORY}B",
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


_TEXT_IN_ARROW = frozenset(
    {"uhugeint", "bignum", "time with time zone", "interval", "bit", "variant", "geometry", "type"}
)
"""Types that Arrow, or Parquet behind it, can't hold."""

_TEXT_IN_PYTHON = frozenset({"date", "time", "time_ns"})
"""Types of which Python can't hold all values; so are all whose names start with "timestamp"."""


class SqlChild(Child):
    """A process with limited memory to run SQL in; it can be killed at any time.

    A `Sandbox` can't bound all that a query takes by itself: not what one value grows to, and not
    how long it takes.
    """

    def __init__(self) -> None:
        """Start the process."""
        with Path(os.devnull).open("wb") as nowhere:  # what the C++ runtime says as it dies
            environment = os.environ | _ENVIRONMENT
            super().__init__(nowhere, environment, memory=MAX_SQL_MEMORY)

    def __enter__(self) -> "SqlChild":
        return self

    def receive(self) -> object:
        """Do what `Child.receive` does; `ShardError` where the memory was not enough."""
        try:
            return super().receive()
        except (ChildDied, MemoryError) as error:
            raise _too_much_memory() from error


def _too_much_memory() -> ShardError:
    return ShardError(f"the query needs more than {human_bytes(MAX_SQL_MEMORY)} of memory")


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


def _connect() -> Any:
    import duckdb

    config = {**_CONFIG, "threads": str(min(cores(), _THREADS))}
    connection = duckdb.connect(":memory:", config=config)
    # As part of the configuration, it would allow files in the working directory.
    connection.execute("SET enable_external_access = false")
    return connection


def check_select(sql: str) -> None:
    """Check that a text is one SELECT statement; else it is a `UsageError`."""
    import duckdb

    try:
        statements = duckdb.extract_statements(sql)
        kinds = [str(one.type).rpartition(".")[2] for one in statements]
        if kinds == ["SELECT"] and "with" in sql.casefold():
            with contextlib.closing(_connect()) as connection:
                (tree,) = connection.execute("SELECT json_serialize_sql($1)", (sql,)).fetchone()
            kinds += _WRITES.findall(tree)
    except duckdb.Error as error:
        raise UsageError(f"invalid SQL: {_message(error)}") from error
    if kinds != ["SELECT"]:
        found = ", ".join(kinds) or "nothing"
        raise UsageError("invalid query", expected="a single SELECT statement", found=found)


_WRONG_QUERY = ("Parser", "Syntax", "Binder", "Catalog", "Permission", "NotImplemented")
"""DuckDB's errors that are not about a value in a record."""

_WRITES = re.compile(r'"type":"(?!SELECT_)([A-Z]+)_QUERY_NODE"')
"""What a query's syntax tree has where something in it, such as a WITH, is another statement."""


_PLAIN: Sequence[tuple[str, str]] = (
    (r'syntax error at or near "(.*)"', "syntax error near '{0}'"),
    (r'.*column "(.+)" was not found because the FROM.*', "no column '{0}'; add FROM records"),
    (r'.*[Cc]olumn "(.+)"(?: in \w+ list)? not found.*', "no column '{0}'"),
    (r'.*does not have a column named "(.+)".*', "no column '{0}'"),
    (r"(?:\w+ )*Function with name (.+) does not exist!?", "no function '{0}'"),
    (r"Table with name \"?(.+?)\"? does not exist.*", "no table '{0}'; use FROM records"),
    (r'Referenced table "(.+)" not found!?', "no table '{0}'; use FROM records"),
    (
        r"(?:No function matches the given .*types '|Could not choose .*call \")"
        r"(.+?)(\(.*\))['\"]\. .*",
        "invalid argument types for '{0}': {1}; use CAST to convert them",
    ),
    (
        r"Unimplemented type for cast \(BLOB -> (.*?)\).*",
        "bytes can't be converted to {0}; use decode() to make text of them first",
    ),
    (r"Unimplemented type for cast \((.*) -> BLOB\)", "bytes can't be compared with {0}"),
    (r"Unimplemented type for cast \((.*) -> (.*)\)", "{0} can't be converted to {1}"),
    (r"Could not convert string '(.*)' to (\w+).*", "'{0}' can't be converted to {1}"),
    (r"Type \w+ with value (.*) can't be cast .* type (\w+)", "{0} is out of range for {1}"),
    (r"Overflow in (\w+) of (\w+) (.*)", "overflow in {2}, the result doesn't fit into {1}"),
    (
        r'column "(.+)" must appear in the GROUP BY clause or .*',
        "column '{0}' must be in GROUP BY or in an aggregate, such as any_value",
    ),
    (r"WHERE clause cannot contain (.+?)!?", "{0} can't be used in WHERE"),
    (r"Window functions are not supported here", "a window function can't be used here"),
    (r"ORDER term out of range - .* between 1 and (\d+)", "ORDER BY accepts columns 1 to {0}"),
    (r"More than one row returned by a subquery .*", "a subquery returned more than one row"),
    (r"Set operations can only apply .*", "both sides of a UNION need the same number of columns"),
    (r'Ambiguous reference to column name "(.+)" \(use: (.*)\)', "ambiguous column '{0}'; use {1}"),
    (
        r"((?:missing [\])]|unexpected \)|trailing \\|no argument for repetition|(?:invalid|bad) "
        r"(?:escape sequence|character class|repetition|perl operator|named capture)).*: .*)",
        "invalid regular expression: {0}",
    ),
    (
        r"Division by zero in expression (.*?)\. Use TRY.*",
        "division by zero in {0}; use TRY() to get NULL instead",
    ),
    (r"Values were not provided for .*", "parameters such as ? and $1 can't be used"),
    (r"Failure in decode: .*", "bytes are not UTF-8 text; use try(decode()) to get NULL instead"),
    (r'Cannot access file "(.*)" - .*', "can't read '{0}': queries read only the records"),
)
"""What DuckDB says, and the same in plain words."""

_TYPES = {
    "INTEGER_LITERAL": "INTEGER",
    "STRING_LITERAL": "VARCHAR",
    r"'~~\(": "'LIKE(",
    r"'!~~\(": "'NOT LIKE(",
    r"(?<= )(U?)INT128\b": r"\1HUGEINT",
    r"(?<= )(U?)INT64\b": r"\1BIGINT",
    r"(?<= )(U?)INT32\b": r"\1INTEGER",
    r"(?<= )(U?)INT16\b": r"\1SMALLINT",
    r"(?<= )(U?)INT8\b": r"\1TINYINT",
}
"""DuckDB's own names of types and operators, and those of SQL."""


def _ends(text: str) -> str:
    """Return the beginning and the end of a text, which may quote a value of a record.

    Such a value can have any length, and the expressions take quadratic time.
    """
    return text if len(text) <= 2 * _END else f"{text[:_END]}...{text[-_END:]}"


def _message(error: Exception) -> str:
    text = re.sub(r"^(\w+ )+Error: ", "", _ends(str(error).strip().partition("\n")[0]))
    for theirs, ours in _TYPES.items():
        text = re.sub(theirs, ours, text)
    text = text.rstrip("!. ")
    for theirs, ours in _PLAIN:
        if found := re.fullmatch(theirs, text, re.DOTALL):
            text = ours.format(*found.groups())
            break
    if text[1:2].islower():
        text = text[0].lower() + text[1:]
    return text if len(text) <= _MESSAGE else f"{text[:_MESSAGE]}..."


def _cast_type(kind: Any, as_text: bool) -> str | None:
    """Return the type to cast to, so that values stay what they are; None where that is no other.

    Args:
        kind: a type of DuckDB's.
        as_text: whether rows go to Python, and on as text or JSON; else they stay in Arrow.
    """
    name = kind.id
    if name in _TEXT_IN_ARROW:
        return "VARCHAR"
    if as_text and (name in _TEXT_IN_PYTHON or name.startswith("timestamp")):
        return "VARCHAR"
    if name not in ("list", "array", "struct", "tuple", "map", "union"):
        return None
    parts = [(part, one) for part, one in kind.children if hasattr(one, "id")]
    casts = [_cast_type(one, as_text) for _, one in parts]
    if name == "union":  # Python can't say which member it is
        plain = all(
            re.fullmatch("u?(big|small|tiny)?int(eger)?|varchar|null", one.id) for _, one in parts
        )
        return None if as_text and plain else "VARCHAR"
    if not any(casts):
        return None
    types = [cast or str(one) for cast, (_, one) in zip(casts, parts, strict=True)]
    if name == "map":
        return f"MAP({', '.join(types)})"
    if name == "tuple":
        return f"TUPLE({', '.join(types)})"
    if name == "struct":
        names = ['"' + part.replace('"', '""') + '"' for part, _ in parts]
        return f"STRUCT({', '.join(map(' '.join, zip(names, types, strict=True)))})"
    return f"{types[0]}[]"


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
        self._base, self._nulls = (f"t{secrets.token_hex(8)}" for _ in range(2))
        self._connection = _connect()
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

    def check(self, sql: str, *, run: bool = False) -> set[str]:
        """Check that a SELECT makes sense, and prepare to read it; or `UsageError`.

        `check_select` has seen it. It may also be ``run`` over one row of NULLs: that a text is no
        number is found out only then.

        Returns:
            The names of the columns that are read for it.
        """
        text, used = set[str](), set[str]()
        try:
            used = self._plan(sql, text, run)
        except self._duckdb.Error as error:
            said = sql.replace('""', '"').casefold()
            blobs = [column for column, kind in self._types.items() if kind == "BLOB"]
            text = {column for column in blobs if self._names[column].casefold() in said}
            failed = True
            for column in ("", *sorted(text)):
                with contextlib.suppress(self._duckdb.Error):
                    used = self._plan(sql, text - {column}, run)
                    text, failed = text - {column}, False
            if failed:
                raise self._wrong_query(error, sql) from error
        # A table has some column, even where the rows are only counted; and DuckDB can't read
        # its own word for the type of a struct in which a name is empty.
        used |= {c for c, n in self._names.items() if n == PLACES[1] or '""' in self._types[c]}
        used = used or set([*self._names][:1])
        names = {column: self._names[column] for column in self._names if column in used}
        self._rows = _Rows(names, self._schema, self._scan)
        self._connection.register(self._base, self._rows)
        self._define(self._base, text, names)
        return set(names.values())

    def read(self, sql: str) -> pa.RecordBatchReader:
        """Run the query that was checked last, and return its rows as they come."""
        return self._connection.sql(sql).to_arrow_reader(2048)

    def read_exactly(self, sql: str, *, as_text: bool) -> pa.RecordBatchReader:
        """Do what `read` does; values that Arrow can't hold are text, or those that Python can't.

        `UsageError` if two columns have one name.
        """
        found = self._connection.sql(sql)
        names, types = found.columns, found.types
        for name, count in Counter(names).items():
            if count > 1:
                hint = "use AS to rename one of them"
                raise UsageError(f"{count} columns are named {name!r}", hint=hint)
        casts = [_cast_type(kind, as_text) for kind in types]
        if any(casts):
            if ";" in sql:  # which can't stand in brackets
                ((text,),) = self.rows("SELECT json_deserialize_sql(json_serialize_sql($1))", sql)
                sql = text or sql
            items = [f"c{n}" if to is None else f"CAST(c{n} AS {to})" for n, to in enumerate(casts)]
            quoted = ('"' + name.replace('"', '""') + '"' for name in names)
            chosen = ", ".join(map(" AS ".join, zip(items, quoted, strict=True)))
            columns = ", ".join(f"c{n}" for n in range(len(names)))
            sql = f"SELECT {chosen} FROM (\n{sql}\n) AS t({columns})"
        return self.read(sql)

    def _wrong_query(self, error: Exception, sql: str) -> Exception:
        """Return what is wrong with a query, before any record is read."""
        found = self.as_error(error, sql)
        return UsageError(found.what, hint=found.hint) if type(found) is ShardError else found

    def as_error(self, error: Exception, sql: str = "") -> Exception:
        """Return what ended a query: an error of the scan, or else what DuckDB says of a value."""
        failure = None
        if self._rows:  # which is in the traceback: DuckDB's objects in a cycle leak
            failure, self._rows.error = self._rows.error, None
        of_query = isinstance(error, self._duckdb.Error | OSError)
        if failure is not None or not of_query or getattr(error, "errno", None):
            return failure or error  # with a number it is the system's, such as a full disk
        if isinstance(error, self._duckdb.OutOfMemoryException):
            return _too_much_memory()
        wrong = tuple(getattr(self._duckdb, f"{name}Exception") for name in _WRONG_QUERY)
        # No value can be cast from one of these types to the other.
        is_wrong = isinstance(error, wrong) or "Unimplemented type for cast" in str(error)
        kind, what = UsageError if is_wrong else ShardError, _message(error)
        if what.startswith("no table") and self._view != "records":  # of conditions
            what = "a condition can't contain a subquery"
        return kind(what, hint=self._hint(what, _ends(str(error)), sql))

    def _hint(self, what: str, error: str, sql: str) -> str | None:
        """Return what may be meant by an unknown name."""
        if near := re.search(r'Function with .*\n+Did you mean "([^"]+)"', error):
            return f"did you mean {near[1]!r}?"
        unknown = re.fullmatch(r"no column '(.*)'", what)
        if unknown is None or "Values list" in error:  # of a subquery
            return None
        own = [one for one in self._names.values() if not _HIDDEN.fullmatch(one)]
        candidates = re.findall(r'(?<=[:,] )"([^"\n]+)"', error.partition("\nCandidate ")[2])
        names = [*sorted(own, key=lambda one: one[:1] == "_"), *candidates]
        typed = dict.fromkeys(one if one.isidentifier() else f'"{one}"' for one in names)
        hint = suggestion(unknown[1], typed, "columns")
        if f'"{unknown[1]}"' in sql and hint and hint.startswith("columns"):
            return f"use single quotes for a string: '{unknown[1]}'"
        return hint

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
            raise UsageError("a query can't change settings: they are locked")
        # That a text beyond ASCII makes no BLOB is found out only when it is run, too.
        if run or not sql.isascii():
            self._connection.sql(sql).limit(1).to_arrow_table()
        return self._names.keys() & re.findall(r"\bc\d+\b", plan)
