"""SQL conditions on records, asked of each batch of rows by itself."""

import pickle
import re
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
    check_select,
    pack_batch,
    unpack_batch,
)


class Condition:
    """An SQL condition on a record: ``label = 1 AND height > 64``.

    It names columns of features and those of `RowColumns`, and is evaluated for each row alone: it
    has no aggregates, sees no other rows, and gives the same result each time. A process of its
    own evaluates it, which ends with this context manager. It can be pickled: another process
    that unpickles it starts its own, once.

    Attributes:
        columns: those of the features that it needs, and no others.
    """

    def __init__(
        self, sql: str, columns: Columns, own: RowColumns, child: SqlChild | None = None
    ) -> None:
        """Check a condition on payloads with these columns; a ``child`` stays its caller's.

        Raises:
            UsageError: it is not one condition, or names what isn't there.
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
        state = {**self.__dict__, "_child": None}
        return _unpickled, (pickle.dumps(state),)

    def __enter__(self) -> "Condition":
        return self

    def __exit__(self, *error: object) -> None:
        """End the process."""
        if self._child is not None:
            self._child.__exit__()
            self._child = None

    def _call(self, function: Any, *arguments: Any) -> Any:
        if self._child is None:
            self._child = SqlChild()
        return self._child.call(function, *arguments)

    def keep(self, batch: Batch) -> Any:
        """Return for each record of a batch whether the condition holds: an array of bool.

        The batch has the columns that are named, at least.
        """
        table = self._own.add_to(batch, self._fields).select([*self._fields])
        held = self._call(_matches, self._question, pack_batch(table))
        return np.unpackbits(np.frombuffer(held, np.uint8), count=len(batch.records)).astype(bool)


@lru_cache(maxsize=1)
def _unpickled(state: bytes) -> Condition:
    """Return the one condition of this process, so that its own process is started once."""
    condition = Condition.__new__(Condition)
    condition.__dict__.update(pickle.loads(state))
    return condition


class _Matcher:
    """A condition in the process that evaluates it."""

    def __init__(self, sql: str, schema: pa.Schema) -> None:
        held: list[pa.RecordBatch] = []  # and not self, for DuckDB's objects in a cycle leak
        view = f"v{secrets.token_hex(8)}"
        # WHERE takes no aggregates and no windows. The line break ends a comment.
        self._query = f'SELECT {PLACES[1]} FROM "{view}" AS records WHERE (\n{sql}\n)'
        self._held, self._sandbox = held, Sandbox(schema, lambda _: iter(held), view=view)
        if (drawn := self._sandbox.drawn(self._query)) is not None:
            raise UsageError(
                f"a condition can't use {drawn}", hint="use --sample for a random sample"
            )
        self.fields = self._sandbox.check(self._query, run=True) | {PLACES[1]}

    def match(self, table: pa.RecordBatch) -> bytes:
        """Return a bit for each row."""
        self._held[:] = [table]
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


def check_condition(sql: str) -> None:
    """Check that a text can't be anything else than an expression once it stands in brackets."""
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
            if line and int(line[1]) > 2 + sql.count("\n"):  # what is ours, behind the condition
                is_bracket = fault.endswith("')'")
                fault = "unbalanced brackets" if is_bracket else "incomplete expression"
            raise UsageError(
                f"invalid condition: {fault}", expected=expected, found=repr(sql)[:100]
            ) from error
