"""Random SQL conditions, each with a Python function for its result by three-valued logic."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from tests.examples.tables import VALUES, Row
from tfrtool.examples.example import DType

Truth = bool | None
"""The result of a condition; None for NULL."""

PlainRow = dict[str, Any]
"""The values of a record by column: None, a value, or a list of values."""

_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_PATTERNS = ("%", "_", "__", "a%", "%b", "a_", "ü%", "_b", "%'%", "", "A")


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition in SQL, and what it is for a row."""

    sql: str
    holds: Callable[[PlainRow], Truth] = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlColumn:
    """A column of the table ``records``.

    Attributes:
        kind: a key of `VALUES`; None if no record has a value.
        several: whether it is a column of lists.
    """

    name: str
    kind: str | None
    several: bool

    @property
    def sql(self) -> str:
        """Its name in SQL."""
        return quoted(self.name)

    def value(self, row: Row) -> Any:
        """Return its value in a row."""
        feature = row.get(self.name)
        if feature is None or feature.dtype is None:
            return None
        if self.several:
            return [*feature.values]
        return feature.values[0] if feature.values else None


def quoted(name: str) -> str:
    """Return a name as SQL has it."""
    return '"' + name.replace('"', '""') + '"'


def columns_of(rows: Sequence[Row]) -> list[SqlColumn]:
    """Return the columns of records, as documented for ``tfrtool query``."""
    columns = []
    for name in sorted({name for row in rows for name in row}):
        features = [row[name] for row in rows if name in row]
        values = [value for feature in features for value in feature.values]
        dtype = next((feature.dtype for feature in features if feature.dtype), None)
        kind = dtype.value if dtype and values else None
        if dtype is DType.STRING and values:
            is_text = all(value in VALUES["text"][1] for value in values)
            kind = "text" if is_text else "bytes"
        several = any(len(feature.values) > 1 for feature in features)
        columns.append(SqlColumn(name=name, kind=kind, several=several))
    return columns


def literal(value: Any) -> str:
    """Return a value as SQL has it."""
    if value is None:
        return "NULL"
    if isinstance(value, bytes):
        return "'" + value.decode().replace("'", "''") + "'"
    return f"CAST('{value}' AS FLOAT)" if isinstance(value, float) else str(value)


def order_key(value: Any) -> tuple[bool, Any]:
    """Return what a value sorts by: NaN is equal to itself, and larger than all others."""
    is_nan = value != value
    return is_nan, 0 if is_nan else value


def _compared(sign: str, one: Any, other: Any) -> Truth:
    if one is None or other is None:
        return None
    return _COMPARISONS[sign](order_key(one), order_key(other))


def _all(truths: Sequence[Truth]) -> Truth:
    if False in truths:
        return False
    return None if None in truths else True


def _any(truths: Sequence[Truth]) -> Truth:
    return _not(_all([_not(truth) for truth in truths]))


def _not(truth: Truth) -> Truth:
    return None if truth is None else not truth


def _like(text: bytes | None, pattern: str) -> Truth:
    if text is None:
        return None
    wildcards = {"%": ".*", "_": "."}
    expression = "".join(wildcards.get(one) or re.escape(one) for one in pattern)
    return re.fullmatch(expression, text.decode(), re.DOTALL) is not None


def _negated(condition: Condition, keyword: str, draw: st.DrawFn) -> Condition:
    """Draw whether a keyword, such as ``IN``, gets a NOT."""
    if not draw(st.booleans()):
        return condition
    sql = condition.sql.replace(f" {keyword} ", f" NOT {keyword} ", 1)
    return Condition(sql, lambda row: _not(condition.holds(row)))


@st.composite
def _of_column(draw: st.DrawFn, column: SqlColumn, others: Sequence[SqlColumn]) -> Condition:
    """Draw a condition on a column with single values."""
    name = column.name
    if column.kind is None:
        return draw(_null_tests(column))
    values = [*VALUES[column.kind][1], None]
    if column.kind == "bytes":
        values = [b"a", b"ab", b"", None]  # a BLOB is compared with ASCII texts only
    value, more = draw(st.sampled_from(values)), draw(st.lists(st.sampled_from(values), max_size=2))
    match draw(st.sampled_from(["compare", "column", "in", "between", "distinct", "null", "like"])):
        case "compare":
            sign = draw(st.sampled_from([*_COMPARISONS]))
            sql = f"{column.sql} {sign} {literal(value)}"
            return Condition(sql, lambda row: _compared(sign, row[name], value))
        case "column":
            sign = draw(st.sampled_from([*_COMPARISONS]))
            other = draw(st.sampled_from([one for one in others if one.kind == column.kind]))
            sql = f"{column.sql} {sign} {other.sql}"
            return Condition(sql, lambda row: _compared(sign, row[name], row[other.name]))
        case "in":
            sql = f"{column.sql} IN ({', '.join(map(literal, [value, *more]))})"
            condition = Condition(
                sql, lambda row: _any([_compared("=", row[name], one) for one in (value, *more)])
            )
            return _negated(condition, "IN", draw)
        case "between":
            end = more[0] if more else value
            condition = Condition(
                f"{column.sql} BETWEEN {literal(value)} AND {literal(end)}",
                lambda row: _all(
                    [_compared(">=", row[name], value), _compared("<=", row[name], end)]
                ),
            )
            return _negated(condition, "BETWEEN", draw)
        case "distinct":
            sql = f"{column.sql} IS DISTINCT FROM {literal(value)}"
            return Condition(
                sql,
                lambda row: (
                    (row[name] is None) is not (value is None)
                    or _compared("<>", row[name], value) is True
                ),
            )
        case "like" if column.kind == "text":
            pattern = draw(st.sampled_from(_PATTERNS))
            sql = f"{column.sql} LIKE {literal(pattern.encode())}"
            return _negated(Condition(sql, lambda row: _like(row[name], pattern)), "LIKE", draw)
        case _:
            return draw(_null_tests(column))


@st.composite
def _of_lists(draw: st.DrawFn, column: SqlColumn) -> Condition:
    """Draw a condition on a column of lists."""
    name = column.name
    kinds = ["length", "null", "contains"]
    match draw(st.sampled_from(kinds[:2] if column.kind == "bytes" else kinds)):
        case "length":
            sign, size = draw(st.sampled_from([*_COMPARISONS])), draw(st.integers(0, 3))
            return Condition(
                f"len({column.sql}) {sign} {size}",
                lambda row: _compared(sign, None if row[name] is None else len(row[name]), size),
            )
        case "contains":
            value = draw(st.sampled_from(VALUES[column.kind or ""][1]))
            return Condition(
                f"list_contains({column.sql}, {literal(value)})",
                lambda row: (
                    None
                    if row[name] is None
                    else any(_compared("=", one, value) for one in row[name])
                ),
            )
        case _:
            return draw(_null_tests(column))


@st.composite
def _null_tests(draw: st.DrawFn, column: SqlColumn) -> Condition:
    if draw(st.booleans()):
        return Condition(f"{column.sql} IS NULL", lambda row: row[column.name] is None)
    return Condition(f"{column.sql} IS NOT NULL", lambda row: row[column.name] is not None)


ALWAYS = Condition("TRUE", lambda _: True)

_CONSTANTS = st.sampled_from(
    [
        ALWAYS,
        Condition("FALSE", lambda _: False),
        Condition("CAST(NULL AS BOOLEAN)", lambda _: None),
    ]
)


@st.composite
def _joined(draw: st.DrawFn, inner: st.SearchStrategy[Condition]) -> Condition:
    parts = draw(st.lists(inner, min_size=1, max_size=3))
    first = parts[0]
    match draw(st.sampled_from(["AND", "OR", "NOT", "UNKNOWN"])):
        case "NOT":
            return Condition(f"NOT ({first.sql})", lambda row: _not(first.holds(row)))
        case "UNKNOWN":
            return Condition(f"({first.sql}) IS NULL", lambda row: first.holds(row) is None)
        case word:
            sql = f" {word} ".join(f"({part.sql})" for part in parts)
            join = _all if word == "AND" else _any
            return Condition(sql, lambda row: join([part.holds(row) for part in parts]))


def conditions(columns: Sequence[SqlColumn]) -> st.SearchStrategy[Condition]:
    """Return a strategy of conditions on these columns."""
    single = [column for column in columns if not column.several]
    leaves = [
        _of_lists(column) if column.several else _of_column(column, single) for column in columns
    ]
    leaf = st.one_of(*leaves) if leaves else _CONSTANTS
    return st.recursive(leaf | _CONSTANTS if len(leaves) == 1 else leaf, _joined, max_leaves=5)
