"""CSV and JSON as tables with exact values, compared with the standard library's readers."""

from __future__ import annotations

import csv
import gzip
import io
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfrtool.errors import SourceError
from tfrtool.sources.formats.text_tables import TextTable

_texts = st.text(st.characters(codec="utf-8", exclude_characters="\0\r"), max_size=4)
_numbers = st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False)
_values = st.recursive(
    st.none() | st.booleans() | _numbers | _texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_texts, inner, max_size=3),
    max_leaves=6,
)
_columns = st.sampled_from(["a", "A", "a b", "ä", ""])


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder that properties write to again and again."""
    return tmp_path_factory.mktemp("tables")


def read(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a file."""
    table = TextTable.scan(path)
    batches = table.batches(table.schema().names)
    return pa.Table.from_batches(batches, table.schema()).to_pylist()  # type: ignore[no-any-return]


def is_same(found: Any, value: Any) -> bool:
    """Return whether a value of a table stands for a JSON value, as such or as JSON text."""
    if isinstance(found, str) and not isinstance(value, str):
        return bool(json.loads(found) == value)
    if isinstance(found, str) and found != value:  # in a column of values of other kinds, too
        return bool(json.loads(found) == value)
    if isinstance(found, list):
        pairs = zip(found, value, strict=True)
        return all(is_same(one, other) for one, other in pairs)
    if isinstance(found, dict):  # keys of other rows are null
        keys = found.keys() | value.keys()
        return all(is_same(found[key], value.get(key)) for key in keys)
    return bool(found == value and isinstance(found, bool) == isinstance(value, bool))


@given(rows=st.lists(st.dictionaries(_columns, _values, min_size=1), min_size=1, max_size=4))
def test_values_of_json_are_kept(folder: Path, rows: list[dict[str, Any]]) -> None:
    """Each value is what Python's json makes of it, or the JSON text of it."""
    path = folder / "a.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    for found, row in zip(read(path), rows, strict=True):
        assert found.keys() >= row.keys()
        assert all(is_same(found[name], row.get(name)) for name in found), (found, row)


_cells = st.sampled_from(["1", "-7", "0.5", "1e3", "007", "0x1F", "", "nan", str(2**53 + 1)])


@given(
    rows=st.lists(st.tuples(_cells | _texts, _cells), min_size=1, max_size=5),
    quoting=st.sampled_from([csv.QUOTE_ALL, csv.QUOTE_MINIMAL]),
    delimiter=st.sampled_from([",", "\t"]),
)
def test_cells_of_csv_are_kept(
    folder: Path, rows: list[tuple[str, str]], quoting: Any, delimiter: str
) -> None:
    """A cell is its text, or a number that Python makes of it; an empty one may be null."""
    path = folder / ("a.tsv" if delimiter == "\t" else "a.csv")
    text = io.StringIO(newline="")
    csv.writer(text, delimiter=delimiter, quoting=quoting).writerows([("a", "b"), *rows])
    path.write_text(text.getvalue(), newline="")
    expected = csv.reader(
        io.StringIO(text.getvalue(), newline=""), delimiter=delimiter, skipinitialspace=True
    )
    next(expected)
    for found, cells in zip(read(path), expected, strict=True):
        for value, cell in zip(found.values(), cells, strict=True):
            if value is None:
                assert cell == ""
            elif isinstance(value, str):
                assert value == cell
            elif isinstance(value, int):
                assert value == int(cell)
            else:
                assert value == float(cell) or value != value


def test_hostile_json(folder: Path) -> None:
    """Depth, width and surrogates are JSON text or an error that names the file."""
    path = folder / "deep.jsonl"
    deep: Any = 1
    for _ in range(200):
        deep = {"a": [deep]}
    wide = {str(number): number for number in range(3000)}
    path.write_text(json.dumps({"deep": deep, "wide": wide, "same": {"a": 1, "A": 2}, "e": {}}))
    (row,) = read(path)
    assert json.loads(row["wide"]) == wide
    assert json.loads(row["same"]) == {"a": 1, "A": 2}
    assert row["e"] == "{}"
    for _ in range(8):
        row = {"deep": row["deep"]["a"][0]}
        deep = deep["a"][0]
    assert json.loads(row["deep"]) == deep
    path.write_text('{"a": "x"}\n{"a": "\\ud800"}\n')
    with pytest.raises(SourceError, match=r"deep\.jsonl"):
        read(path)


def test_a_table_that_unpacks_to_too_much(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A compressed table has the limit of all compressed files."""
    monkeypatch.setattr("tfrtool.sources.formats.unpacked.unpacked_text_limit", lambda _: 100)
    path = folder / "b.csv.gz"
    path.write_bytes(gzip.compress(b"a,b\n" * 100))
    with pytest.raises(SourceError, match=r"b\.csv\.gz: decompresses to more than 100 bytes"):
        read(path)


def test_rows_of_a_compressed_list_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A small file with very many empty objects is refused while it is read."""
    monkeypatch.setattr("tfrtool.storage.limits.FREE_ROWS", 100)
    path = tmp_path / "a.json.gz"
    path.write_bytes(gzip.compress(b"[" + b"{}," * 300 + b'{"a": 1}]'))
    with pytest.raises(SourceError, match="more than 100 rows in a compressed file"):
        TextTable.scan(path)
