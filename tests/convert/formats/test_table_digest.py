"""A digest of a table is the same however it is cut, and another for any other value."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfrtool.convert.formats.table_digest import TableDigest

ITEM = pa.struct([("x", pa.float32()), ("words", pa.list_(pa.string()))])
TYPES: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "number": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "small": (pa.uint8(), st.integers(0, 255)),
    "flag": (pa.bool_(), st.booleans()),
    "bytes": (pa.binary(), st.binary(max_size=5)),
    "text": (pa.large_string(), st.text(max_size=3)),
    "fixed": (pa.binary(3), st.binary(min_size=3, max_size=3)),
    "floats": (pa.list_(pa.float32()), st.lists(st.none() | st.floats(width=32), max_size=3)),
    "pair": (pa.list_(pa.int8(), 2), st.lists(st.integers(0, 9), min_size=2, max_size=2)),
    "map": (
        pa.map_(pa.string(), pa.int8()),
        st.dictionaries(st.text(max_size=1), st.integers(0, 9)).map(lambda found: [*found.items()]),
    ),
    "view": (pa.string_view(), st.text(max_size=2)),
    "day": (pa.date32(), st.dates()),
    "money": (pa.decimal128(9, 2), st.decimals(0, 999, places=2)),
    "nothing": (pa.null(), st.none()),
    "words": (pa.dictionary(pa.int8(), pa.string()), st.sampled_from(["a", "b", ""])),
    "items": (
        pa.large_list(ITEM),
        st.lists(
            st.none()
            | st.fixed_dictionaries(
                {"x": st.floats(width=32), "words": st.lists(st.none() | st.text(max_size=2))}
            ),
            max_size=3,
        ),
    ),
}
rows = st.lists(
    st.fixed_dictionaries({name: st.none() | values for name, (_, values) in TYPES.items()}),
    min_size=1,
    max_size=8,
)
SCHEMA = pa.schema([(name, kind) for name, (kind, _) in TYPES.items()])


def digest(batches: list[pa.RecordBatch]) -> TableDigest:
    """Return the digest of some batches."""
    found = TableDigest()
    for batch in batches:
        found.add(batch)
    return found


@given(rows=rows, data=st.data())
def test_cuts_make_no_difference(rows: list[dict[str, Any]], data: st.DataObject) -> None:
    """Rows in one batch, cut out of a larger one, or one by one."""
    whole = pa.RecordBatch.from_pylist(rows, SCHEMA)
    around = pa.RecordBatch.from_pylist([rows[-1], *rows, rows[0]], SCHEMA)
    at = data.draw(st.integers(0, len(rows)))
    expected = digest([whole])
    assert digest([whole.slice(0, at), whole.slice(at)]) == expected
    assert digest([around.slice(1, len(rows))]) == expected
    assert digest([around.slice(number, 1) for number in range(1, len(rows) + 1)]) == expected


@given(rows=rows, data=st.data())
def test_another_value_makes_another_digest(
    rows: list[dict[str, Any]], data: st.DataObject
) -> None:
    """Of any column, also where a value becomes null; and one row more or less."""
    whole = pa.RecordBatch.from_pylist(rows, SCHEMA)
    name = data.draw(st.sampled_from([*TYPES]))
    number = data.draw(st.integers(0, len(rows) - 1))
    value = data.draw(st.none() | TYPES[name][1])
    changed = [*rows]
    changed[number] = {**rows[number], name: value}
    other = pa.RecordBatch.from_pylist(changed, SCHEMA)
    same = repr(other.to_pylist()) == repr(whole.to_pylist())
    assert (digest([other]) == digest([whole])) == same
    assert digest([whole.slice(1)]) != digest([whole])


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ([["a"], ["bc"]], [["ab"], ["c"]]),
        ([[b"ab".decode()], []], [[], ["ab"]]),
        ([["a", "b"]], [["a"], ["b"]]),
        ([None, []], [[], None]),
        ([[None], ["a"]], [["a"], [None]]),
    ],
)
def test_lengths_and_nulls_count(first: list[Any], second: list[Any]) -> None:
    """The same values one after the other, in other rows."""
    kind = pa.list_(pa.string())
    tables = (pa.record_batch([pa.array(rows, kind)], ["a"]) for rows in (first, second))
    one, other = (digest([table]) for table in tables)
    assert one != other


def test_types_count() -> None:
    """Zeros of another type are other values."""
    one, other = (
        digest([pa.record_batch([pa.array([0, 0], kind)], ["a"])])
        for kind in (pa.int8(), pa.uint8())
    )
    assert one != other
