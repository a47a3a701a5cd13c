"""Conditions on records: an SQL expression, checked, and asked of batches of rows."""

import secrets
from typing import TYPE_CHECKING, Any

from tfrtool.errors import UsageError
from tfrtool.examples.arrow.columns import Columns
from tfrtool.inspection.rows.batches import narrowed, table_schema
from tfrtool.inspection.rows.sandbox import RowSource, Sandbox, check_select, tokens

if TYPE_CHECKING:
    import pyarrow as pa

_DRAWN = frozenset({"random", "uuid", "uuidv4", "uuidv7", "gen_random_uuid", "nextval"})
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
        self.sql, self._all = sql, columns
        check_condition(sql)
        held: list[pa.RecordBatch] = []
        self._held = held
        view = f"v{secrets.token_hex(8)}"
        source_rows = RowSource(table_schema(columns), lambda _: iter(held))
        self._sandbox = Sandbox(source_rows, view=view, words=sql)
        source = f'FROM "{view}" AS records'
        # WHERE takes no aggregates and no windows. The line break ends a comment.
        self._sandbox.check(f"SELECT 1 {source} WHERE (\n{sql}\n)")
        self._query = f"SELECT coalesce(CAST((\n{sql}\n) AS BOOLEAN), false) AS keep {source}"
        self.columns = narrowed(columns, self._sandbox.probe(self._query))

    def __reduce__(self) -> tuple[Any, ...]:
        return Condition, (self.sql, self._all)

    def keep(self, table: "pa.RecordBatch") -> Any:
        """Return for each row of a table whether the condition holds: an array of bool.

        The table has the columns that are named, at least; see `read_batches`.
        """
        self._held[:] = [table]
        try:
            found = self._sandbox.read(self._query).read_all()
        except Exception as error:
            raise self._sandbox.as_error(error, self.sql) from error
        finally:
            self._held.clear()
        return found.column("keep").to_numpy()


def check_condition(sql: str) -> None:
    """Check that a text can't be anything else than an expression once it stands in brackets."""
    depth = 0
    words = [word for word in tokens(sql) if word]
    for number, word in enumerate(words):
        if word.casefold() in _DRAWN and "".join(words[number + 1 : number + 2])[:1] == "(":
            raise UsageError(f"a condition has no {word}()", hint="--sample draws records")
        # What follows a bracket may be a comment, which older tokenizers take no notice of.
        depth = -1 if word[0] == ";" else depth + (word[0] == "(") - (word[0] == ")")
        if depth < 0:
            break
    if depth or not words:
        what = "one SQL expression, such as: label = 1 AND height > 64"
        raise UsageError("not a condition", expected=what, found=repr(sql)[:100])
    check_select(f"SELECT (\n{sql}\n)")
