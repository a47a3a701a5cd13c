"""Queries of random records compared with Python: truth values, order, groups and aggregates."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples.tables import placements, rows_of_columns, write_placed
from tests.inspection.rows.conditions import (
    ALWAYS,
    PlainRow,
    SqlColumn,
    columns_of,
    conditions,
    order_key,
    quoted,
)
from tfrtool.cli import main
from tfrtool.examples.example import encode_example

_FEWER = settings(max_examples=settings().max_examples // 2)
"""Each example starts a process, and checks many conditions or groups."""


def _json(value: Any) -> Any:
    """Return a value as ``tfrtool query`` prints it."""
    if isinstance(value, list):
        return [_json(one) for one in value]
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            import base64

            return {"base64": base64.b64encode(value).decode()}
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


def _sorted(
    rows: Sequence[PlainRow], column: SqlColumn, *, descending: bool, nulls_first: bool
) -> list[PlainRow]:
    """Sort rows by a column; equal ones stay in order."""
    known = [row for row in rows if row[column.name] is not None]
    unknown = [row for row in rows if row[column.name] is None]
    known.sort(key=lambda row: order_key(row[column.name]), reverse=descending)
    return unknown + known if nulls_first else known + unknown


@st.composite
def _tables(draw: st.DrawFn) -> tuple[list[SqlColumn], list[PlainRow], list[bytes]]:
    """Draw records; return their columns, values and payloads."""
    rows = draw(rows_of_columns(least=5))
    columns = columns_of(rows)
    plain = [{column.name: column.value(row) for column in columns} for row in rows]
    return columns, plain, [encode_example(row) for row in rows]


def _answer(folder: Path, sql: str) -> list[dict[str, Any]]:
    out = folder / "out.jsonl"
    words = ["query", str(folder / "in"), sql, "--out", str(out), "--overwrite", "--workers", "1"]
    assert main(words) == 0
    return [json.loads(line) for line in out.read_text().splitlines()]


@_FEWER
@given(data=st.data())
def test_values_truth_and_order(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """SELECT prints values and truth values, WHERE keeps true rows, and ORDER BY sorts them."""
    columns, rows, payloads = data.draw(_tables())
    truths = data.draw(st.lists(conditions(columns), min_size=5, max_size=8))
    where = data.draw(st.just(ALWAYS) | conditions(columns))
    folder = tmp_path_factory.mktemp("query")
    locations = write_placed(
        folder / "in", payloads, data.draw(placements(len(rows), ("test", "train")))
    )
    values = [f"{column.sql} AS v{number}" for number, column in enumerate(columns)]
    tests = [f"{truth.sql} AS c{number}" for number, truth in enumerate(truths)]
    expected = [row for row in rows if where.holds(row) is True]
    order = ["_shard", "_record"]
    sortable = [column for column in columns if not column.several]
    if sortable:
        column = data.draw(st.sampled_from(sortable))
        descending, nulls_first = data.draw(st.tuples(st.booleans(), st.booleans()))
        expected = _sorted(expected, column, descending=descending, nulls_first=nulls_first)
        direction = "DESC" if descending else "ASC"
        order.insert(0, f"{column.sql} {direction} NULLS {'FIRST' if nulls_first else 'LAST'}")
    limit = data.draw(st.sampled_from([99, 0, 3]))
    sql = f"SELECT {', '.join([*values, *tests])} FROM records WHERE {where.sql}"
    found = _answer(folder, f"{sql} ORDER BY {', '.join(order)} LIMIT {limit}")
    assert len(locations) == len(rows)
    assert found == [
        {f"v{number}": _json(row[column.name]) for number, column in enumerate(columns)}
        | {f"c{number}": truth.holds(row) for number, truth in enumerate(truths)}
        for row in expected[:limit]
    ]


def _aggregates(values: Sequence[Any]) -> dict[str, Any]:
    """Return the aggregates of a column in a group of rows."""
    known = [value for value in values if value is not None]
    ordered = sorted(known, key=order_key)
    numbers = [value for value in known if not isinstance(value, bytes)]
    return {
        "n": len(values),
        "known": len(known),
        "different": len({order_key(value) for value in known}),
        "least": _json(ordered[0]) if ordered else None,
        "most": _json(ordered[-1]) if ordered else None,
        "total": _json(sum(numbers)) if numbers else None,
    }


@_FEWER
@given(data=st.data())
def test_groups_and_aggregates(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """GROUP BY has a group for each value, NULL and NaN included, with the right aggregates."""
    columns, rows, payloads = data.draw(
        _tables().filter(lambda table: any(not column.several for column in table[0]))
    )
    single = [column for column in columns if not column.several]
    key, column = data.draw(st.tuples(st.sampled_from(single), st.sampled_from(single)))
    where = data.draw(st.just(ALWAYS) | conditions(columns))
    folder = tmp_path_factory.mktemp("group")
    write_placed(folder / "in", payloads, data.draw(placements(len(rows), ("test", "train"))))
    total = f"sum({column.sql})" if column.kind in ("int64", "float32") else "NULL"
    found = _answer(
        folder,
        f"SELECT {key.sql} AS {quoted('key')}, count(*) AS n, count({column.sql}) AS known, "
        f"count(DISTINCT {column.sql}) AS different, min({column.sql}) AS least, "
        f"max({column.sql}) AS most, {total} AS total "
        f"FROM records WHERE {where.sql} GROUP BY 1 ORDER BY 1 NULLS FIRST",
    )
    groups: dict[Any, list[PlainRow]] = {}
    for row in _sorted(rows, key, descending=False, nulls_first=True):
        if where.holds(row) is True:
            groups.setdefault(order_key(row[key.name]), []).append(row)
    assert found == [
        {"key": _json(group[0][key.name]), **_aggregates([row[column.name] for row in group])}
        for group in groups.values()
    ]
