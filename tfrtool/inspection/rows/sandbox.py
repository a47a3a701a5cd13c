"""DuckDB over one table of records: in memory, without files, network, extensions or settings."""

import difflib
import secrets
import weakref
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, cast

from tfrtool.engines.processes import cores
from tfrtool.errors import ShardError, TfrtoolError, UsageError, human_count

if TYPE_CHECKING:
    import pyarrow as pa

MEMORY = 10**9
"""Bytes that DuckDB may hold; nothing is written to a disk instead."""

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


class Sandbox:
    """A database that has nothing but a view of the rows, and can't reach anything else.

    Bytes are BLOBs. Where that does not do, as for LIKE, those columns that must be text are
    VARCHAR, and NULL where they are no UTF-8.

    Attributes:
        asked: the columns that were read by now.
    """

    def __init__(
        self, schema: "pa.Schema", scan: Scan, *, view: str = "records", words: str = ""
    ) -> None:
        """Offer rows under the name ``view``, first the columns that are not called ``_*``.

        ``words`` are what the user wrote, where that is a part of the statements alone.
        """
        self._duckdb = load_duckdb()
        self._schema, self._scan, self._words = schema, scan, words
        self._error: Exception | None = None
        self._probing = False
        self.asked: set[str] = set()
        self._base, self._view = f"t{secrets.token_hex(8)}", view
        config = {
            "enable_external_access": "false",
            "autoload_known_extensions": "false",
            "autoinstall_known_extensions": "false",
            "allow_community_extensions": "false",
            "python_enable_replacements": "false",
            "temp_directory": "",
            "memory_limit": f"{MEMORY}B",
            "threads": str(cores()),
        }
        self._connection = self._duckdb.connect(":memory:", config=config)
        self._connection.register(self._base, _as_dataset(self))
        self._connection.execute("SET lock_configuration = true")
        self._text: frozenset[int] = frozenset()
        self._define()

    def check(self, sql: str) -> None:
        """Check that a statement is one SELECT that can be run, and decide which bytes are text.

        Raises:
            UsageError: it is anything else, or it makes no sense.
        """
        duckdb = self._duckdb
        try:
            statements = duckdb.extract_statements(sql)
        except duckdb.Error as error:
            raise self._as_error(error, sql) from error
        if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
            what = "one SELECT statement, and nothing else"
            names = ", ".join(str(one.type).rpartition(".")[2] for one in statements) or "nothing"
            raise UsageError("not a query", expected=what, found=names)
        failure = self._bind(sql, run=not sql.isascii())
        if failure is not None:
            self._choose_text(sql, failure)

    def read(self, sql: str, rows: int = 2048) -> "pa.RecordBatchReader":
        """Run a checked query, and return its rows as they come, in batches of about ``rows``."""
        relation = self._connection.sql(sql)
        # What DuckDB 1.3 has under the other name.
        read = getattr(relation, "to_arrow_reader", None) or relation.fetch_arrow_reader
        return read(rows)

    def probe(self, sql: str) -> set[str]:
        """Run a query that can be run over one row of NULLs; return the columns that it reads."""
        self.asked.clear()
        failure = self._bind(sql, run=True)
        if failure is not None:
            raise self._as_error(failure, sql) from failure
        return set(self.asked)

    def errors(self, error: Exception, sql: str) -> Exception:
        """Return what ended a query: an error of the scan, or else what DuckDB says."""
        if self._error is not None:
            return self._error
        return self._as_error(error, sql) if isinstance(error, self._duckdb.Error) else error

    def rows(self, columns: Sequence[str] | None, kept: Any) -> "pa.RecordBatchReader":
        """Return the rows that DuckDB asks for: some columns, and where a filter holds."""
        import pyarrow as pa

        numbers = [int(one[1:]) for one in columns or [f"c{n}" for n in range(len(self._schema))]]
        names = [self._schema.names[number] for number in numbers]
        self.asked.update(names)
        schema = pa.schema([pa.field(f"c{n}", self._schema.field(n).type) for n in numbers])

        def batches() -> "Iterator[pa.RecordBatch]":
            if self._probing:
                nulls = [pa.nulls(1, field.type) for field in schema]
                yield pa.RecordBatch.from_arrays(nulls, schema=schema)
                return
            try:
                for batch in self._scan(names):
                    arrays = [batch.column(name) for name in names]
                    table = pa.Table.from_arrays(arrays, schema=schema)
                    yield from (table if kept is None else table.filter(kept)).to_batches()
            except Exception as error:
                self._error = error  # Arrow makes a text of it
                raise

        return pa.RecordBatchReader.from_batches(schema, batches())

    @property
    def dataset_schema(self) -> "pa.Schema":
        """The schema that DuckDB sees; names of features may differ in case alone, or be odd."""
        import pyarrow as pa

        return pa.schema([pa.field(f"c{n}", one.type) for n, one in enumerate(self._schema)])

    def _define(self) -> None:
        taken: set[str] = set()
        parts: list[tuple[bool, str]] = []
        for number, name in enumerate(self._schema.names):
            shown = name
            while shown.casefold() in taken:
                shown += "_"
            taken.add(shown.casefold())
            value = f"try(decode(c{number}))" if number in self._text else f"c{number}"
            quoted = shown.replace('"', '""')
            parts.append((name.startswith("_"), f'{value} AS "{quoted}"'))
        select = ", ".join(part for _, part in sorted(parts, key=lambda one: one[0]))
        self._connection.execute(
            f'CREATE OR REPLACE TEMP VIEW "{self._view}" AS SELECT {select} FROM "{self._base}"'
        )

    def _bind(self, sql: str, *, run: bool) -> Exception | None:
        """Return why a query can't be bound, or does not run over one row of NULLs."""
        self._probing = True
        try:
            bound = self._connection.sql(sql)
            if run:
                bound.limit(1).fetchall()
        except self._duckdb.Error as error:
            return error  # type: ignore[no-any-return]
        finally:
            self._probing = False
        return None

    def _choose_text(self, sql: str, failure: Exception) -> None:
        """Take as text what must be, and nothing else."""
        import pyarrow as pa

        blobs = [n for n, field in enumerate(self._schema) if pa.types.is_binary(field.type)]

        def works(text: frozenset[int]) -> bool:
            self._text = text
            self._define()
            return self._bind(sql, run=not sql.isascii()) is None

        words = set(self._identifiers(sql))
        text = frozenset(n for n in blobs if self._schema.names[n].casefold() in words)
        if not text or not works(text):
            raise self._as_error(failure, sql) from failure
        for number in sorted(text):
            if works(text - {number}):
                text -= {number}
        works(text)

    def _as_error(self, error: Exception, sql: str) -> TfrtoolError:
        first = str(error).strip().partition("\n")[0]
        if isinstance(error, self._duckdb.OutOfMemoryException):
            return ShardError(f"the query needs more memory than {human_count(MEMORY, 'byte')}")
        hint = None
        if isinstance(error, self._duckdb.BinderException):
            known = {name.casefold(): name for name in self._schema.names}
            unknown = (word for word in self._identifiers(sql) if word not in known)
            near = (difflib.get_close_matches(word, known, n=1) for word in unknown)
            hint = next((f"did you mean {known[one[0]]!r}?" for one in near if one), None)
        return UsageError(first, hint=hint)

    def _identifiers(self, sql: str) -> list[str]:
        words = [word.casefold() for word in tokens(self._words or sql)]
        called = {word for word, after in pairwise(words) if after == "("}
        return [word for word in words if word not in called | {self._view, ""}]

    def close(self) -> None:
        """Give back what DuckDB holds."""
        self._connection.close()


def tokens(sql: str) -> list[str]:
    """Return the words of a statement, without quotes around names, and without comments."""
    duckdb = load_duckdb()
    # Offsets count the bytes of UTF-8.
    data = sql.encode("utf-8", "replace")
    found = [*duckdb.tokenize(sql), (len(data), None)]
    return [
        _unquoted(data[start:end].decode("utf-8", "replace").strip())
        for (start, kind), (end, _) in pairwise(found)
        if kind != duckdb.token_type.comment
    ]


def _unquoted(word: str) -> str:
    return word[1:-1].replace('""', '"') if word.startswith('"') and word.endswith('"') else word


def _as_dataset(sandbox: Sandbox) -> Any:
    """Return rows as what DuckDB asks for the columns that it needs, as often as it needs them."""
    import pyarrow.dataset

    # DuckDB's own objects don't take part in Python's search for cycles.
    owner = cast(Callable[[], Sandbox], weakref.ref(sandbox))

    class Rows(pyarrow.dataset.Dataset):  # type: ignore[misc]
        """DuckDB calls `scanner` of a dataset, and `to_reader` of what that returns."""

        def __init__(self) -> None:
            """Take nothing; Arrow's own would forbid it."""

        @property
        def schema(self) -> "pa.Schema":
            """The schema of all columns."""
            return owner().dataset_schema

        def scanner(
            self,
            columns: Sequence[str] | None = None,
            filter: Any = None,  # noqa: A002
            **_: Any,
        ) -> "Rows":
            """Say what of the rows is wanted."""
            wanted = Rows()
            wanted.reader = owner().rows(columns, filter)
            return wanted

        @property
        def projected_schema(self) -> "pa.Schema":
            """The schema of what is wanted."""
            return self.reader.schema

        def to_reader(self) -> "pa.RecordBatchReader":
            """Return what is wanted."""
            return self.reader

    return Rows()
