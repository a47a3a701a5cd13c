"""Conditions on records: an SQL expression, checked, and asked of batches of rows."""

import re
import secrets
from typing import Any

import pyarrow as pa

from tfrtool.errors import UsageError
from tfrtool.examples.arrow.columns import Columns
from tfrtool.inspection.rows.batches import narrowed, table_schema
from tfrtool.inspection.rows.sandbox import Sandbox, check_select

_DRAWN = re.compile(r"\b(random|(?:gen_random_)?uuid(?:v[47])?|nextval)\s*\(", re.IGNORECASE)
"""Functions that say something else each time: a filter would not be reproducible."""


class Condition:
    """An SQL condition on a record: ``label = 1 AND height > 64``.

    It names features and `PLACES`, and is asked of each row alone: it has no aggregates, and sees
    no other rows. It can be pickled.

    Attributes:
        sql: as it was given.
        columns: those of the features that it names, and no others.
    """

    def __init__(self, sql: str, columns: Columns) -> None:
        """Check a condition on payloads with these columns.

        Raises:
            UsageError: it is not one condition, or names what isn't there, or DuckDB is missing.
        """
        check_condition(sql)
        self.sql, self._all = sql, columns
        held: list[pa.RecordBatch] = []  # and not self, for DuckDB's objects in a cycle leak
        self._held = held
        view = f"v{secrets.token_hex(8)}"
        self._sandbox = Sandbox(table_schema(columns), lambda _: iter(held), view=view)
        source = f'FROM "{view}" AS records'
        # WHERE takes no aggregates and no windows. The line break ends a comment.
        self._sandbox.check(f"SELECT 1 {source} WHERE (\n{sql}\n)")
        self._query = f"SELECT coalesce(CAST((\n{sql}\n) AS BOOLEAN), false) AS keep {source}"
        self.columns = narrowed(columns, self._sandbox.probe(self._query))

    def __reduce__(self) -> tuple[Any, ...]:
        return Condition, (self.sql, self._all)

    def keep(self, table: pa.RecordBatch) -> Any:
        """Return for each row of a table whether the condition holds: an array of bool.

        The table has the columns that are named, at least; see `read_batches`.
        """
        self._held[:] = [table]
        try:
            found = self._sandbox.read(self._query).read_all()
        except Exception as error:
            raise self._sandbox.as_error(error) from error
        finally:
            self._held.clear()
        return found.column("keep").to_numpy()


def check_condition(sql: str) -> None:
    """Check that a text can't be anything else than an expression once it stands in brackets."""
    drawn = _DRAWN.search(sql)
    if drawn is not None:
        raise UsageError(f"a condition has no {drawn[1]}()", hint="--sample draws records")
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
