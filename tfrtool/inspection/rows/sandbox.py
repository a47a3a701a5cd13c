"""DuckDB over one table of records: in memory, without files, network, extensions or settings."""

import re
import secrets
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.dataset

from tfrtool.engines.processes import cores
from tfrtool.errors import ShardError, UsageError, human_count

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
}

Scan = Callable[[Sequence[str]], Iterator[pa.RecordBatch]]
"""Reads all rows, with the columns of these names; called once for each time they are needed."""


def load_duckdb() -> Any:
    """Import DuckDB; `UsageError` where it is not installed."""
    try:
        import duckdb
    except ImportError as error:
        hint = 'pip install "tfrtool[sql]"'
        raise UsageError("SQL needs DuckDB, which is not installed", hint=hint) from error
    return duckdb


def check_select(sql: str) -> None:
    """Check that a text is one SELECT statement; else it is a `UsageError`."""
    duckdb = load_duckdb()
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


class _Rows(pyarrow.dataset.Dataset):  # type: ignore[misc]
    """Rows as DuckDB asks for them: the columns that it needs, as often as it needs them.

    The columns are called c0, c1 and so on there: names may be odd, or differ in case alone.

    Attributes:
        error: what a scan raised; Arrow makes a text of it.
        probing: whether there is one row of NULLs instead.
        asked: the names of the columns that were read by now.
    """

    schema: Any = None

    def __init__(self, schema: pa.Schema, scan: Scan) -> None:
        self.names: list[str] = schema.names
        self.schema = pa.schema([(f"c{n}", kind) for n, kind in enumerate(schema.types)])
        self._scan = scan
        self.error: Exception | None = None
        self.probing = False
        self.asked: set[str] = set()

    def scanner(
        self,
        columns: Sequence[str] | None = None,
        filter: Any = None,  # noqa: A002 - DuckDB's word
        **_: Any,
    ) -> Any:
        """Return some columns of the rows for which a filter holds, as a scanner of Arrow does."""
        wanted = self.schema.names if columns is None else columns
        schema = pa.schema([self.schema.field(name) for name in wanted])
        reader = pa.RecordBatchReader.from_batches(schema, self._batches(schema, filter))
        return SimpleNamespace(projected_schema=schema, to_reader=lambda: reader)

    def _batches(self, schema: pa.Schema, kept: Any) -> Iterator[pa.RecordBatch]:
        # Of a filter nothing else tells the columns; one too many does no harm.
        used = {*schema.names, *re.findall(r"\bc\d+\b", str(kept))}
        read = pa.schema([field for field in self.schema if field.name in used])
        names = [self.names[int(name[1:])] for name in read.names]
        self.asked.update(names)
        if self.probing:
            nulls = [pa.nulls(1, kind) for kind in schema.types]
            yield pa.RecordBatch.from_arrays(nulls, schema=schema)
            return
        try:
            for batch in self._scan(names):
                table = pa.Table.from_arrays([batch.column(name) for name in names], schema=read)
                table = table if kept is None else table.filter(kept)
                yield from table.select(schema.names).to_batches()
        except Exception as error:
            self.error = error
            raise


class Sandbox:
    """A database that has nothing but a view of rows, and can't reach anything else.

    Bytes are BLOBs. Where that does not do, as for LIKE, those columns that must be text are
    VARCHAR, and NULL where they are no UTF-8. Of names that differ in case alone, the later ones
    get a ``_``.
    """

    def __init__(self, schema: pa.Schema, scan: Scan, *, view: str = "records") -> None:
        """Offer rows under the name ``view``, first the columns that are not called ``_*``."""
        self._duckdb = load_duckdb()
        self._rows, self._view = _Rows(schema, scan), view
        self._base = f"t{secrets.token_hex(8)}"
        config = {**_CONFIG, "threads": str(cores())}
        self._connection = self._duckdb.connect(":memory:", config=config)
        self._connection.register(self._base, self._rows)
        self._connection.execute("SET lock_configuration = true")
        self._define(set())

    def check(self, sql: str) -> None:
        """Check that a SELECT makes sense, and decide which bytes are text; or `UsageError`."""
        check_select(sql)
        failure = self._bind(sql)
        if failure is None:
            return
        said = sql.replace('""', '"').casefold()
        named = enumerate(zip(self._rows.names, self._rows.schema.types, strict=True))
        text = {n for n, (name, kind) in named if kind == pa.binary() and name.casefold() in said}
        self._define(text)
        if not text or self._bind(sql) is not None:
            raise self.as_error(failure) from failure
        for number in sorted(text):
            self._define(text - {number})
            if self._bind(sql) is None:
                text.remove(number)
        self._define(text)

    def probe(self, sql: str) -> set[str]:
        """Run a query over one row of NULLs; return the names of the columns that it reads."""
        self._rows.asked.clear()
        failure = self._bind(sql, run=True)
        if failure is not None:
            raise self.as_error(failure) from failure
        return set(self._rows.asked)

    def read(self, sql: str) -> pa.RecordBatchReader:
        """Run a query that was checked, and return its rows as they come."""
        relation = self._connection.sql(sql)
        # The second is what DuckDB before 1.5 has.
        read = getattr(relation, "to_arrow_reader", None) or relation.fetch_arrow_reader
        return read(2048)

    def as_error(self, error: Exception) -> Exception:
        """Return what ended a query: an error of the scan, or else what DuckDB says."""
        if self._rows.error is not None or not isinstance(error, self._duckdb.Error | OSError):
            return self._rows.error or error
        if isinstance(error, self._duckdb.OutOfMemoryException):
            return ShardError(f"the query needs more memory than {human_count(MEMORY, 'byte')}")
        near = re.search(r'Candidate bindings: "([^"]+)"', str(error))
        return UsageError(_first_line(error), hint=near and f"did you mean {near[1]!r}?")

    def close(self) -> None:
        """Give back what DuckDB holds."""
        self._connection.close()

    def _define(self, text: set[int]) -> None:
        taken: set[str] = set()
        parts: list[tuple[bool, str]] = []
        for number, name in enumerate(self._rows.names):
            shown = name or "_"
            while shown.casefold() in taken:
                shown += "_"
            taken.add(shown.casefold())
            value = f"try(decode(c{number}))" if number in text else f"c{number}"
            quoted = shown.replace('"', '""')
            parts.append((name.startswith("_"), f'{value} AS "{quoted}"'))
        select = ", ".join(part for _, part in sorted(parts, key=lambda one: one[0]))
        self._connection.execute(
            f'CREATE OR REPLACE TEMP VIEW "{self._view}" AS SELECT {select} FROM "{self._base}"'
        )

    def _bind(self, sql: str, *, run: bool = False) -> Exception | None:
        """Return why a query can't be bound, or does not run over one row of NULLs."""
        self._rows.probing = True
        try:
            bound = self._connection.sql(sql)
            # A text beyond ASCII makes no BLOB, which is found out only when it is run.
            if run or not sql.isascii():
                bound.limit(1).fetchall()
        except self._duckdb.Error as error:
            return error  # type: ignore[no-any-return]
        finally:
            self._rows.probing = False
        return None
