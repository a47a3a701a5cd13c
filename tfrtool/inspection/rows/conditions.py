"""Conditions on records: an SQL expression, checked, and asked of batches of rows."""

import secrets
from typing import Any

import numpy as np
import pyarrow as pa

from tfrtool.errors import UsageError
from tfrtool.examples.arrow.columns import PLACES, Columns
from tfrtool.inspection.rows.batches import narrowed, table_schema
from tfrtool.inspection.rows.sandbox import Sandbox, check_select


class Condition:
    """An SQL condition on a record: ``label = 1 AND height > 64``.

    It names features and `PLACES`, and is asked of each row alone: it has no aggregates, sees no
    other rows, and says the same each time. It can be pickled.

    Attributes:
        columns: those of the features that it names, and no others.
    """

    def __init__(self, sql: str, columns: Columns) -> None:
        """Check a condition on payloads with these columns.

        Raises:
            UsageError: it is not one condition, or names what isn't there, or DuckDB is missing.
        """
        check_condition(sql)
        self._made_of = sql, columns
        held: list[pa.RecordBatch] = []  # and not self, for DuckDB's objects in a cycle leak
        self._held = held
        view = f"v{secrets.token_hex(8)}"
        self._sandbox = Sandbox(table_schema(columns), lambda _: iter(held), view=view)
        # WHERE takes no aggregates and no windows. The line break ends a comment.
        self._query = f'SELECT {PLACES[1]} FROM "{view}" AS records WHERE (\n{sql}\n)'
        drawn = self._sandbox.drawn(self._query)
        if drawn is not None:
            raise UsageError(f"a condition has no {drawn}", hint="--sample draws records")
        self.columns = narrowed(columns, self._sandbox.check(self._query, run=True))

    def __reduce__(self) -> tuple[Any, ...]:
        return Condition, self._made_of

    def keep(self, table: pa.RecordBatch) -> Any:
        """Return for each record of a shard whether the condition holds: an array of bool.

        The table has the columns that are named, at least; see `read_batches`.
        """
        self._held[:] = [table]
        try:
            found = self._sandbox.read(self._query).read_all().column(0).combine_chunks()
        except Exception as error:
            raise self._sandbox.as_error(error) from error
        finally:
            self._held.clear()
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
