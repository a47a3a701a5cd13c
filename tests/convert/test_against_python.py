"""Filter, query, edit and append against a few lines of Python that do the same.

`tests.convert.test_reshard` and `tests.convert.test_diff` have such properties of their commands.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tfrtool
from tests.convert.test_reshard import payloads_of, write_shards
from tfrtool.inspection.rows.query import query
from tfrtool.records.framing import LocatedFault

Row = dict[str, Any]
Truth = bool | None
"""NULL is neither true nor false."""


class Condition(NamedTuple):
    """A condition in SQL, and what it is for a row in Python."""

    sql: str
    of: Callable[[Row], Truth]


_numbers = st.none() | st.integers(-2, 2) | st.sampled_from([2**63 - 1, -(2**63)])
_texts = st.none() | st.sampled_from(["", "a", "B", "it's", "ä", "a%", "NULL"])
_rows = st.lists(st.fixed_dictionaries({"n": _numbers, "t": _texts}), min_size=1, max_size=8)
_COMPARED = {"=": operator.eq, "<>": operator.ne, "<": operator.lt, ">=": operator.ge}


def literal(value: Any) -> str:
    """Return a value in SQL."""
    if value is None:
        return "NULL"
    return str(value) if isinstance(value, int) else "'" + value.replace("'", "''") + "'"


def compared(name: str, sign: str, value: Any) -> Condition:
    """Return the comparison of a feature with a value."""

    def of(row: Row) -> Truth:
        missing = row[name] is None or value is None
        return None if missing else bool(_COMPARED[sign](row[name], value))

    return Condition(f"{name} {sign} {literal(value)}", of)


def listed(name: str, values: list[Any], negated: bool) -> Condition:
    """Return whether a feature has one of some values, or none of them."""

    def of(row: Row) -> Truth:
        found = either(*(compared(name, "=", value).of(row) for value in values))
        return negation(found) if negated else found

    sql = ", ".join(map(literal, values))
    return Condition(f"{name} {'NOT ' if negated else ''}IN ({sql})", of)


def either(*truths: Truth) -> Truth:
    """Return what OR makes of truth values."""
    return True if True in truths else None if None in truths else False


def both(*truths: Truth) -> Truth:
    """Return what AND makes of truth values."""
    return False if False in truths else None if None in truths else True


def negation(truth: Truth) -> Truth:
    """Return what NOT makes of a truth value."""
    return None if truth is None else not truth


def joined(word: str, make: Callable[..., Truth], one: Condition, other: Condition) -> Condition:
    """Return two conditions, joined by AND or OR."""
    return Condition(
        f"({one.sql}) {word} ({other.sql})", lambda row: make(one.of(row), other.of(row))
    )


def _of_feature(name: str, values: st.SearchStrategy[Any]) -> st.SearchStrategy[Condition]:
    some = st.lists(values, min_size=1, max_size=3)
    return st.one_of(
        st.builds(compared, st.just(name), st.sampled_from([*_COMPARED]), values),
        st.builds(listed, st.just(name), some, st.booleans()),
        st.just(Condition(f"{name} IS NULL", lambda row: row[name] is None)),
        st.just(Condition(f"{name} IS NOT DISTINCT FROM NULL", lambda row: row[name] is None)),
    )


_conditions = st.recursive(
    _of_feature("n", _numbers) | _of_feature("t", _texts),
    lambda inner: (
        st.builds(joined, st.just("AND"), st.just(both), inner, inner)
        | st.builds(joined, st.just("OR"), st.just(either), inner, inner)
        | inner.map(lambda one: Condition(f"NOT ({one.sql})", lambda row: negation(one.of(row))))
    ),
    max_leaves=5,
)

_few = settings(max_examples=max(settings().max_examples // 6, 1))


def encoded(row: Row) -> bytes:
    """Return a record without the features that are None."""
    return tfrtool.encode_example({name: v for name, v in row.items() if v is not None} | {"x": 1})


@_few
@given(rows=_rows, conditions=st.lists(_conditions, min_size=8, max_size=8))
def test_query_and_filter_know_three_truth_values(
    rows: list[Row], conditions: list[Condition], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A condition is true, false or NULL for each record, and filter keeps those with true."""
    folder = tmp_path_factory.mktemp("any")
    types = {"n": 0, "t": ""}  # of the features, whatever the other rows have
    source = write_shards(folder / "in", {"train": [[encoded(one) for one in (types, *rows)]]})
    shards = tfrtool.find_shards(source)
    columns = ", ".join(f"({one.sql}) AS c{number}" for number, one in enumerate(conditions))
    sql = f"SELECT {columns} FROM records WHERE _record > 0 ORDER BY _record"
    faults = list[LocatedFault]()
    with query(shards, sql, on_fault=faults.append) as reader:
        found = [tuple(row.values()) for row in reader.read_all().to_pylist()]
    assert not faults
    assert found == [tuple(one.of(row) for one in conditions) for row in rows]
    where = f"_record = 0 OR ({conditions[0].sql})"  # keeping nothing is an error
    report = tfrtool.filter_records(source, folder / "out", where=where)
    kept = [row for row in rows if conditions[0].of(row) is True]
    assert payloads_of(folder / "out", "train") == [encoded(one) for one in (types, *kept)]
    assert report.records_out == 1 + len(kept)


@_few
@given(
    rows=_rows,
    drop=st.sets(st.sampled_from(["n", "t"]), max_size=1),
    rename=st.sampled_from([{}, {"x": "y"}, {"x": "t x"}]),
    added=st.dictionaries(st.sampled_from(["a", "b"]), st.integers(-5, 5) | st.just("it's")),
)
def test_edit_changes_what_python_changes(
    rows: list[Row],
    drop: set[str],
    rename: dict[str, str],
    added: dict[str, Any],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """Features are left out, renamed and added, and no other value changes."""
    folder = tmp_path_factory.mktemp("any")
    payloads = [encoded({"n": 0, "t": ""}), *map(encoded, rows)]
    source = write_shards(folder / "in", {"train": [payloads[:3], payloads[3:]]})
    added = added or {"z": 0}  # without a change there is nothing to do
    tfrtool.edit(source, folder / "out", drop=sorted(drop), rename=rename, add=added)
    expected = [
        {rename.get(name, name): value for name, value in row.items() if name not in drop} | added
        for row in map(decoded, payloads)
    ]
    assert [decoded(payload) for payload in payloads_of(folder / "out", "train")] == expected


def decoded(payload: bytes) -> Row:
    """Return the features of a record, text as such."""
    values = dict(tfrtool.parse_example(payload).items())
    return {
        name: value.decode() if isinstance(value, bytes) else value
        for name, value in values.items()
    }


@_few
@given(old=st.lists(_rows, min_size=1, max_size=3), new=_rows)
def test_append_adds_records_after_the_others(
    old: list[list[Row]], new: list[Row], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The new version has the old records in their order, and then the new ones."""
    folder = tmp_path_factory.mktemp("any")
    shards = [[encoded({"n": 0, "t": ""}), *map(encoded, rows)] for rows in old]
    before = [payload for shard in shards for payload in shard]
    more = [encoded({"n": 0, "t": ""}), *map(encoded, new)]
    dataset = write_shards(folder / "pets", {"train": shards})
    source = write_shards(folder / "more", {"train": [more]})
    report = tfrtool.append(dataset, source, out=folder / "out")
    assert payloads_of(folder / "out", "train") == [*before, *more]
    assert payloads_of(dataset, "train") == before
    assert report.records_out == len(before) + len(more)
