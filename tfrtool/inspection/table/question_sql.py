"""A question about records as SQL for the commands `query` and `filter`."""

import re
from collections.abc import Collection, Iterator
from typing import NamedTuple

import pyarrow as pa

from tfrtool.examples.arrow.value_types import innermost_type
from tfrtool.inspection.rows.batches import LABEL_NAME
from tfrtool.inspection.rows.database import literal
from tfrtool.inspection.table.record_query import (
    IMAGE_COLUMNS,
    PREDICTION_COLUMNS,
    Question,
    RecordQuery,
    query_of,
)
from tfrtool.inspection.table.record_table import RecordTable

_COLUMNS = ("where", "split", "label", "shard", "values", "ranges", "sort", "descending")
"""What a question asks of columns that these commands have, too."""


_PLAIN = re.compile("-?[0-9]{1,20}|true|false")
"""A value that is the same in SQL as it is as text."""


class QuestionSql(NamedTuple):
    """A question in SQL.

    Attributes:
        condition: which records match; "" if all do.
        order: how they are sorted; "" if by shard and record.
    """

    condition: str
    order: str


def question_sql(table: RecordTable, question: Question, label: str | None) -> QuestionSql | None:
    """Return a question in SQL; None if the commands don't know all of what it asks for.

    Args:
        table: the rows.
        question: the question.
        label: the feature with the class of a record, if there is one.

    Raises:
        UsageError: the condition is wrong, or names an unknown column.
    """
    query = query_of(table)
    known = Question(**{name: getattr(question, name) for name in _COLUMNS})
    viewer_only = {*IMAGE_COLUMNS, *PREDICTION_COLUMNS}.difference(query.types)
    if (
        question != known
        or question.sort in viewer_only
        or _is_local(query, question.where, viewer_only)
    ):
        return None
    conditions = []
    if question.label is not None:
        name = LABEL_NAME if question.label in table.class_names else label
        if name not in query.quoted or pa.types.is_list(query.types.get(name, pa.string())):
            return None
        conditions.append(_has_value(query, name, question.label))
    conditions += _conditions(query, question)
    order = ""
    if question.sort:
        way = "DESC" if question.descending else "ASC"
        order = f"{query.quoted[question.sort]} {way} NULLS LAST, _shard, _record"
    return QuestionSql(" AND ".join(conditions), order)


def _is_local(query: RecordQuery, where: str, columns: Collection[str]) -> bool:
    """Return whether a condition may use one of these columns, or has a comment to its end."""
    if not where.strip() or "--" in where:
        return "--" in where
    return query.needs_any(where, columns)


def _conditions(query: RecordQuery, question: Question) -> Iterator[str]:
    """Yield what a question asks of columns, but for the class."""
    if question.where.strip():
        yield f"({question.where.strip()})"
    if question.split is not None:
        yield f"_split = {literal(question.split)}" if question.split else "_split IS NULL"
    if question.shard is not None:
        for (path,) in query.fetch(f"SELECT path FROM shards WHERE shard = {question.shard}"):
            yield f"_shard = {literal(path)}"
    for name, text in question.values:
        yield f"{query.quoted[name]} IS NULL" if text is None else _has_value(query, name, text)
    for one in question.ranges:
        yield query.in_range(one)


def _has_value(query: RecordQuery, name: str, text: str) -> str:
    """Return in SQL that a column has a value, or that its list does."""
    column, kind = query.quoted[name], query.types.get(name, pa.string())
    item = innermost_type(kind)
    is_plain = pa.types.is_integer(item) or pa.types.is_boolean(item)
    value = text if is_plain and _PLAIN.fullmatch(text) else literal(text)
    if value != text and not pa.types.is_string(item):
        column = query.text_of(name)
    return f"list_contains({column}, {value})" if item != kind else f"{column} = {value}"
