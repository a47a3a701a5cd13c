"""DuckDB over one table of records: in memory, without files, network, extensions or settings."""

import difflib
import re
import secrets
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from tfrtool.engines.processes import cores
from tfrtool.errors import ShardError, UsageError, human_count

if TYPE_CHECKING:
    import pyarrow as pa

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

Scan = Callable[[Sequence[str]], "Iterator[pa.RecordBatch]"]
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


def tokens(sql: str) -> list[str]:
    """Return the words of a statement, without quotes around names, and without comments."""
    duckdb = load_duckdb()
    data = sql.encode("utf-8", "replace")  # the offsets count bytes
    found = [*duckdb.tokenize(sql), (len(data), None)]
    words = [
        data[start:end].decode("utf-8", "replace").strip()
        for (start, kind), (end, _) in pairwise(found)
        if kind != duckdb.token_type.comment
    ]
    return [word[1:-1].replace('""', '"') if word[:1] == '"' else word for word in words]


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]


class RowSource:
    """Rows as DuckDB asks for them: the columns that it needs, as often as it needs them.

    The columns are called c0, c1 and so on there: names may be odd, or differ in case alone.

    Attributes:
        error: what a scan raised; Arrow makes a text of it.
        probing: whether there is one row of NULLs instead.
        asked: the names of the columns that were read by now.
    """

    def __init__(self, schema: "pa.Schema", scan: Scan) -> None:
        import pyarrow as pa

        self.names: list[str] = schema.names
        self.schema = pa.schema([(f"c{n}", field.type) for n, field in enumerate(schema)])
        self._scan = scan
        self.error: Exception | None = None
        self.probing = False
        self.asked: set[str] = set()

    def dataset(self, reader: "pa.RecordBatchReader | None" = None) -> Any:
        """Return what DuckDB takes for a dataset of Arrow's, or for a part of one."""
        import pyarrow.dataset

        source = self

        class Rows(pyarrow.dataset.Dataset):  # type: ignore[misc]
            schema = self.schema
            projected_schema = None if reader is None else reader.schema

            def __init__(self) -> None:
                """Take nothing; Arrow's own would forbid it."""

            def scanner(
                self,
                columns: Sequence[str] | None = None,
                filter: Any = None,  # noqa: A002
                **_: Any,
            ) -> Any:
                """Say what of the rows is wanted."""
                return source.dataset(source.rows(columns, filter))

            def to_reader(self) -> "pa.RecordBatchReader | None":
                """Return what is wanted."""
                return reader

        return Rows()

    def rows(self, columns: Sequence[str] | None, kept: Any) -> "pa.RecordBatchReader":
        """Return some columns of the rows for which a filter holds."""
        import pyarrow as pa

        wanted = self.schema.names if columns is None else columns
        # Of a filter nothing else tells the columns; one too many does no harm.
        used = {*wanted, *re.findall(r"\bc\d+\b", str(kept))}
        read = pa.schema([field for field in self.schema if field.name in used])
        schema = pa.schema([self.schema.field(name) for name in wanted])
        names = [self.names[int(name[1:])] for name in read.names]
        self.asked.update(names)

        def batches() -> "Iterator[pa.RecordBatch]":
            if self.probing:
                nulls = [pa.nulls(1, field.type) for field in schema]
                yield pa.RecordBatch.from_arrays(nulls, schema=schema)
                return
            try:
                for batch in self._scan(names):
                    table = pa.Table.from_arrays([batch.column(n) for n in names], schema=read)
                    table = table if kept is None else table.filter(kept)
                    yield from table.select(wanted).to_batches()
            except Exception as error:
                self.error = error
                raise

        return pa.RecordBatchReader.from_batches(schema, batches())


class Sandbox:
    """A database that has nothing but a view of rows, and can't reach anything else.

    Bytes are BLOBs. Where that does not do, as for LIKE, those columns that must be text are
    VARCHAR, and NULL where they are no UTF-8. Of names that differ in case alone, the later ones
    get a ``_``.
    """

    def __init__(self, source: RowSource, *, view: str = "records", words: str = "") -> None:
        """Offer rows under the name ``view``, first the columns that are not called ``_*``.

        ``words`` are what the user wrote, where that is a part of the statements alone.
        """
        self._duckdb = load_duckdb()
        self._source, self._view, self._words = source, view, words
        self._base = f"t{secrets.token_hex(8)}"
        config = {**_CONFIG, "threads": str(cores())}
        self._connection = self._duckdb.connect(":memory:", config=config)
        self._connection.register(self._base, source.dataset())
        self._connection.execute("SET lock_configuration = true")
        self._define(frozenset())

    def check(self, sql: str) -> None:
        """Check that a SELECT makes sense, and decide which bytes are text; or `UsageError`."""
        check_select(sql)
        failure = self._bind(sql)
        if failure is None:
            return
        words = set(self._identifiers(sql))
        blobs = [n for n, field in enumerate(self._source.schema) if str(field.type) == "binary"]
        text = frozenset(n for n in blobs if self._source.names[n].casefold() in words)
        self._define(text)
        if not text or self._bind(sql) is not None:
            raise self.as_error(failure, sql) from failure
        for number in sorted(text):
            self._define(text - {number})
            text -= set() if self._bind(sql) is not None else {number}
        self._define(text)

    def probe(self, sql: str) -> set[str]:
        """Run a query over one row of NULLs; return the names of the columns that it reads."""
        self._source.asked.clear()
        failure = self._bind(sql, run=True)
        if failure is not None:
            raise self.as_error(failure, sql) from failure
        return set(self._source.asked)

    def read(self, sql: str) -> "pa.RecordBatchReader":
        """Run a query that was checked, and return its rows as they come."""
        relation = self._connection.sql(sql)
        # The second is what DuckDB before 1.5 has.
        read = getattr(relation, "to_arrow_reader", None) or relation.fetch_arrow_reader
        return read(2048)

    def as_error(self, error: Exception, sql: str) -> Exception:
        """Return what ended a query: an error of the scan, or else what DuckDB says."""
        if self._source.error is not None or not isinstance(error, self._duckdb.Error | OSError):
            return self._source.error or error
        if isinstance(error, self._duckdb.OutOfMemoryException):
            return ShardError(f"the query needs more memory than {human_count(MEMORY, 'byte')}")
        hint = None
        if isinstance(error, self._duckdb.BinderException):
            known = {name.casefold(): name for name in self._source.names}
            unknown = (word for word in self._identifiers(sql) if word not in known)
            near = (difflib.get_close_matches(word, known, n=1) for word in unknown)
            hint = next((f"did you mean {known[one[0]]!r}?" for one in near if one), None)
        return UsageError(_first_line(error), hint=hint)

    def close(self) -> None:
        """Give back what DuckDB holds."""
        self._connection.close()

    def _define(self, text: frozenset[int]) -> None:
        taken: set[str] = set()
        parts: list[tuple[bool, str]] = []
        for number, name in enumerate(self._source.names):
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
        self._source.probing = True
        try:
            bound = self._connection.sql(sql)
            # A text beyond ASCII makes no BLOB, which is found out only when it is run.
            if run or not sql.isascii():
                bound.limit(1).fetchall()
        except self._duckdb.Error as error:
            return error  # type: ignore[no-any-return]
        finally:
            self._source.probing = False
        return None

    def _identifiers(self, sql: str) -> list[str]:
        words = [word.casefold() for word in tokens(self._words or sql)]
        called = {word for word, after in pairwise(words) if after == "("}
        return [word for word in words if word not in called | {self._view, ""}]
