"""SQL conditions on records, evaluated for each batch of rows by itself."""

import pickle
import secrets
from collections.abc import Collection
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from tfrtool.errors import UsageError
from tfrtool.examples.arrow.columns import PLACES, Columns
from tfrtool.inspection.rows.batches import Batch, RowColumns
from tfrtool.inspection.rows.sandbox import (
    Sandbox,
    SqlChild,
    check_condition,
    pack_batch,
    unpack_batch,
)

_VARIABLE = """
SELECT function_name || '()' FROM duckdb_functions()
WHERE (stability = 'VOLATILE' OR function_name = 'query')
  AND contains(lower(json_serialize_sql($1)), '"function_name":"' || function_name || '"')
UNION ALL SELECT 'SAMPLE' WHERE contains(json_serialize_sql($1), '"sample":{')
"""
"""What in a SELECT gives another result each time; query() may hide it in a text."""


class Condition:
    """An SQL condition on a record: ``label = 1 AND height > 64``.

    It names columns of features and those of `RowColumns`, sees one row at a time, and gives the
    same result each time. A child process evaluates it, which ends with this context manager. It
    can be pickled: another process that unpickles it starts a child of its own, once.

    Attributes:
        columns: the columns of features that it needs.
    """

    def __init__(
        self, sql: str, columns: Columns, own: RowColumns, child: SqlChild | None = None
    ) -> None:
        """Check a condition on payloads with these columns; a ``child`` stays its caller's.

        Raises:
            UsageError: it is not one condition, or names unknown columns.
        """
        self._child = child
        self._question = pickle.dumps((sql, own.schema(columns)))
        try:
            self._fields = self._call(_check, self._question)
        except BaseException:
            if child is None:
                self.__exit__()
            raise
        self._own = own.with_splits() if PLACES[4] in self._fields else own
        self.columns = own.narrowed(columns, self._fields)

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickled, (pickle.dumps({**self.__dict__, "_child": None}),)

    def __enter__(self) -> "Condition":
        return self

    def __exit__(self, *error: object) -> None:
        """End the child."""
        if self._child is not None:
            self._child.__exit__()
            self._child = None

    def _call(self, function: Any, *arguments: Any) -> Any:
        self._child = self._child or SqlChild()
        return self._child.call(function, *arguments)

    def keep(self, batch: Batch) -> Any:
        """Return for each record of a batch whether the condition holds: an array of bool."""
        table = self._own.add_to(batch, self._fields).select([*self._fields])
        bits = self._call(_matches, self._question, pack_batch(table))
        return np.unpackbits(np.frombuffer(bits, np.uint8), count=len(batch.records)).astype(bool)


@lru_cache(maxsize=1)
def _unpickled(state: bytes) -> Condition:
    """Return the one condition of this process, so that its child is started once."""
    condition = Condition.__new__(Condition)
    condition.__dict__.update(pickle.loads(state))
    return condition


class _Matcher:
    """A condition in the process that evaluates it."""

    def __init__(self, sql: str, schema: pa.Schema) -> None:
        batches: list[pa.RecordBatch] = []  # and not self: DuckDB's objects in a cycle leak
        view = f"v{secrets.token_hex(8)}"
        # WHERE takes no aggregates and no windows. The line break ends a comment.
        self._query = f'SELECT {PLACES[1]} FROM "{view}" AS records WHERE (\n{sql}\n)'
        self._batches, self._sandbox = batches, Sandbox(schema, lambda _: iter(batches), view=view)
        found = self._sandbox.connection.execute(_VARIABLE, (self._query,)).fetchall()
        if found:
            what, hint = f"a condition can't use {found[0][0]}", "use --sample for a random sample"
            raise UsageError(what, hint=hint)
        try:
            self.fields = self._sandbox.check(self._query, run=True) | {PLACES[1]}
        except UsageError as error:
            if error.what.startswith("no table"):
                raise UsageError("a condition can't contain a subquery") from error
            raise

    def match(self, table: pa.RecordBatch) -> bytes:
        """Return a bit for each row."""
        self._batches[:] = [table]
        try:
            found = self._sandbox.read(self._query).read_all().combine_chunks().column(0)
        except Exception as error:
            raise self._sandbox.as_error(error) from error
        records = np.from_dlpack(table.column(PLACES[1]))
        return np.packbits(np.isin(records, np.from_dlpack(found.combine_chunks()))).tobytes()


@lru_cache(maxsize=1)
def _matcher(question: bytes) -> _Matcher:
    return _Matcher(*pickle.loads(question))


def _check(question: bytes) -> Collection[str]:
    sql, _ = pickle.loads(question)
    check_condition(sql)
    return _matcher(question).fields


def _matches(question: bytes, table: bytes) -> bytes:
    return _matcher(question).match(unpack_batch(table))
