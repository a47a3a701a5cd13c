"""SQL that is asked of each batch of rows by itself: queries, and conditions on a record."""

import secrets
from collections.abc import Collection
from typing import Any

import numpy as np
import pyarrow as pa

from tfrtool.errors import UsageError
from tfrtool.examples.arrow.columns import PLACES, Columns
from tfrtool.inspection.rows.batches import narrowed, table_schema
from tfrtool.inspection.rows.sandbox import Sandbox, check_select


class BatchQuery:
    """A SELECT over the rows of one batch, each batch by itself. It can be pickled.

    Attributes:
        columns: those of the features that it needs, and no others.
    """

    def __init__(
        self,
        sql: str,
        columns: Columns,
        *,
        view: str = "records",
        condition: bool = False,
        text: Collection[str] | None = None,
    ) -> None:
        """Check a query, or one that is a condition and so says the same each time."""
        self._made_of: tuple[Any, ...] = sql, columns, frozenset(text or ())
        held: list[pa.RecordBatch] = []  # and not self, for DuckDB's objects in a cycle leak
        self._held, self._query = held, sql
        self._sandbox = Sandbox(table_schema(columns), lambda _: iter(held), view=view)
        if condition and (drawn := self._sandbox.drawn(sql)) is not None:
            raise UsageError(f"a condition has no {drawn}", hint="--sample draws records")
        self.columns = narrowed(columns, self._sandbox.check(sql, run=condition, text=text))

    def __reduce__(self) -> tuple[Any, ...]:
        return _batch_query, self._made_of

    @property
    def schema(self) -> pa.Schema:
        """The schema of what it gives."""
        return self._sandbox.read(self._query).schema

    def ask(self, table: pa.RecordBatch) -> pa.Table:
        """Return what it gives for a batch, which has the columns that it needs, at least."""
        self._held[:] = [table]
        try:
            return self._sandbox.read(self._query).read_all().combine_chunks()
        except Exception as error:
            raise self._sandbox.as_error(error) from error
        finally:
            self._held.clear()


def _batch_query(sql: str, columns: Columns, text: frozenset[str]) -> BatchQuery:
    return BatchQuery(sql, columns, text=text)


class Condition(BatchQuery):
    """An SQL condition on a record: ``label = 1 AND height > 64``.

    It names features and `PLACES`, and is asked of each row alone: it has no aggregates, sees no
    other rows, and says the same each time.
    """

    def __init__(self, sql: str, columns: Columns) -> None:
        """Check a condition on payloads with these columns.

        Raises:
            UsageError: it is not one condition, or names what isn't there, or DuckDB is missing.
        """
        check_condition(sql)
        view = f"v{secrets.token_hex(8)}"
        # WHERE takes no aggregates and no windows. The line break ends a comment.
        query = f'SELECT {PLACES[1]} FROM "{view}" AS records WHERE (\n{sql}\n)'
        super().__init__(query, columns, view=view, condition=True)
        self._made_of = sql, columns

    def __reduce__(self) -> tuple[Any, ...]:
        return Condition, self._made_of

    def keep(self, table: pa.RecordBatch) -> Any:
        """Return for each record of a shard whether the condition holds: an array of bool.

        The table has the columns that are named, at least; see `read_batches`.
        """
        found = self.ask(table).column(0).combine_chunks()
        # Arrow's own way to arrays waits for pandas.
        return np.isin(np.from_dlpack(table.column(PLACES[1])), np.from_dlpack(found))


def check_condition(sql: str) -> None:
    """Check that a text can't be anything else than an expression once it stands in brackets."""
    # What closes a bracket that it has not opened fails in the other sort of brackets.
    for form in ("SELECT coalesce(\n{}\n, false)", "SELECT [\n{}\n]"):
        try:
            check_select(form.format(sql))
        except UsageError as error:
            if error.hint is not None:  # DuckDB is missing
                raise
            what = "one SQL expression, such as: label = 1 AND height > 64"
            raise UsageError(
                f"not a condition: {error}", expected=what, found=repr(sql)[:100]
            ) from error
