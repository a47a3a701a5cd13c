"""Conditions, text and order: what ``tfrtool cat --where`` and plain Python find."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.datasets import image_payload, write_foreign
from tests.examples.strategies import float32, int64, string
from tests.inspection.table.tables import make_selector, make_table, write_rows_of
from tests.records.strategies import shard_of
from tfrtool.errors import UsageError
from tfrtool.examples.example import Feature, encode_example
from tfrtool.inspection.table.record_table import LONGEST, MAX_COLUMNS
from tfrtool.records.framing import frame

Run = Callable[..., tuple[int, str, str]]
SEQUENCE = b"\x0a\x0e\x0a\x0c\x0a\x01n\x12\x07\x1a\x05\x0a\x03\x01\x02\x03\x12\x00"

_rows = st.lists(
    st.fixed_dictionaries(
        {},
        optional={
            "n": st.integers(-3, 3).map(int64),
            "x": st.sampled_from([-1.5, 0.0, 2.5]).map(float32),
            "word": st.sampled_from([b"a", b"Bee", b"sea", "ä".encode(), b"\xff"]).map(string),
            "many": st.lists(st.integers(0, 3), max_size=3).map(lambda some: int64(*some)),
        },
    ),
    min_size=1,
    max_size=30,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder for one example after the other."""
    return tmp_path_factory.mktemp("shards")


def _value(row: dict[str, Feature], name: str) -> Any:
    return row[name].values[0] if name in row and row[name].values else None


@settings(max_examples=12)
@given(_rows, st.sampled_from(["n", "x", "word"]), st.booleans())
def test_order(folder: Path, rows: list[dict[str, Feature]], name: str, down: bool) -> None:
    """Rows are sorted as Python sorts the values; equal ones stay as they are, nulls are last."""
    path = write_rows_of(folder / "a.tfrecord", rows)
    selector = make_selector(make_table([path], folder / "t"))
    values = [_value(row, name) for row in rows]
    if all(value is None for value in values):
        return
    some = [n for n, value in enumerate(values) if value is not None]
    expected = sorted(some, key=lambda n: values[n], reverse=down)
    expected += [n for n, value in enumerate(values) if value is None]
    assert selector.select(sort=name, descending=down).tolist() == expected


@settings(max_examples=12)
@given(_rows, st.sampled_from(["a", "SE", "ä", "'", "%", "zz"]))
def test_text(folder: Path, rows: list[dict[str, Feature]], text: str) -> None:
    """A text is found wherever some text of a record has it, in upper or lower case."""
    path = write_rows_of(folder / "a.tfrecord", rows)
    selector = make_selector(make_table([path], folder / "t"))
    words = [_value(row, "word") or b"" for row in rows]
    found = [
        n for n, word in enumerate(words) if text.lower() in word.decode("utf-8", "ignore").lower()
    ]
    assert selector.select(text=text).tolist() == found


@pytest.mark.parametrize(
    "where",
    ["n > 0", "n IS NULL", "x < 0 OR n = 2", "word = 'sea'", "word LIKE '%e%'",
     "list_contains(many, 2)", "len(many) = 2", "_record > 3 AND _record % 2 = 0", "_offset < 200"],
)  # fmt: skip
def test_conditions_find_what_cat_finds(tmp_path: Path, run: Run, where: str) -> None:
    """The page and the terminal show the same records, of Examples and of others among them."""
    rows: list[dict[str, Feature]] = [
        {"n": int64(n % 5 - 2), "x": float32(n / 4 - 1)}
        | {"word": string([b"sea", b"bee", b"\xff"][n % 3])}
        | {"many": int64(*range(n % 4))}
        for n in range(12)
    ]
    path = write_rows_of(tmp_path / "a.tfrecord", rows)
    table = make_table([path], tmp_path / "t")
    code, out, err = run("cat", path, "--where", where, "--json")
    assert code == 0, err
    numbers = [json.loads(line)["record"] for line in out.splitlines()]
    assert make_selector(table).select(where=where).tolist() == numbers


def test_context_of_sequence_examples(tmp_path: Path) -> None:
    """Features of a SequenceExample's context are columns; frames are not."""
    path = tmp_path / "a.tfrecord"
    path.write_bytes(shard_of([SEQUENCE, encode_example({"n": int64(7)}), b"", b"no Example"]))
    table = make_table([path], tmp_path / "t")
    assert table.take(["n"], range(4)) == {
        0: {"n": [1, 2, 3]}, 1: {"n": [7]}, 2: {"n": None}, 3: {"n": None}
    }  # fmt: skip
    assert make_selector(table).select(where="list_contains(n, 7)").tolist() == [1]


def test_odd_names(tmp_path: Path) -> None:
    """Names that are empty, quotes, SQL, or differ in case alone are columns like others."""
    names = ["a", "A", '"', "'", "", "x; DROP TABLE records", "_row", "split", "é", "_split"]
    rows = [{name: int64(10 * n + k) for k, name in enumerate(names)} for n in range(3)]
    path = write_rows_of(tmp_path / "a.tfrecord", rows)
    selector = make_selector(make_table([path], tmp_path / "t"))
    for name in set(names) - {"_split"}:
        assert selector.select(sort=name, descending=True).tolist() == [2, 1, 0]
    for word in ("1 = 1; SELECT 1", "n = (SELECT max(n) FROM records)", "nothing = 1", "("):
        with pytest.raises(UsageError):
            selector.select(where=word)
    with pytest.raises(UsageError):
        selector.select(sort="b")


def test_a_feature_of_two_types(tmp_path: Path) -> None:
    """What is an integer here and a float there has no column; other features have theirs."""
    paths = [
        write_rows_of(tmp_path / "a.tfrecord", [{"n": int64(1), "b": int64(1)}]),
        write_rows_of(tmp_path / "b.tfrecord", [{"n": float32(1.5), "b": int64(2)}]),
        write_rows_of(tmp_path / "c.tfrecord", [{"n": int64(1)}, {"n": float32(1.5)}]),
    ]
    table = make_table(paths, tmp_path / "t")
    assert (table.features, table.rows) == (["b"], 4)
    assert make_selector(table).select(where="b = 2").tolist() == [1]


def test_many_features_and_long_values(tmp_path: Path) -> None:
    """Of 10,000 features some hundred have a column; values that are long are null."""
    wide = {f"f{n:05d}": int64(n) for n in range(10_000)}
    rows: list[dict[str, Feature]] = [wide, {"f00001": int64(-1)}]
    path = write_rows_of(tmp_path / "a.tfrecord", rows)
    table = make_table([path], tmp_path / "t")
    assert (len(table.features), table.rows) == (MAX_COLUMNS, 2)
    assert make_selector(table).select(sort="f00001").tolist() == [1, 0]
    texts = [{"t": string(b"x" * (LONGEST + n))} for n in (0, 1)]
    table = make_table([write_rows_of(tmp_path / "b.tfrecord", texts)], tmp_path / "t")
    held = [table.take(["t"], [row])[row]["t"] for row in (0, 1)]
    assert held == [b"x" * LONGEST, None]


def test_labels_have_their_names(tmp_path: Path) -> None:
    """The label is what is stored, and ``label_name`` the class name, as ``tfrtool cat`` has it."""
    folder = write_foreign(tmp_path / "two", [[image_payload(n) for n in (1, 0, 2)]])
    folder.joinpath("label.labels.txt").write_text("dog\nant\ncat\n")
    (path,) = folder.glob("*.tfrecord")
    with path.open("ab") as file:
        file.write(frame(b"no Example"))
    table = make_table([path], tmp_path / "t", images=True)
    selector = make_selector(table, label="label", names="dog ant cat")
    assert selector.select(equal={"label": "dog"}).tolist() == [1]
    assert selector.select(equal={"split": None, "label": "cat"}).tolist() == [2]
    assert selector.select(where="label = 2 AND width > 0").tolist() == [2]
    assert selector.select(where="label_name = 'ant'").tolist() == [0]
    assert selector.select(where="label_name IS NULL").tolist() == [3]
    assert selector.select(sort="label_name").tolist() == [0, 2, 1, 3]
    assert selector.select(sort="label").tolist() == [1, 0, 2, 3]
    assert selector.select(sort="width").tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    "where", ['label_name IS NULL OR "image/class/label" = 1', "COLUMNS(*) IS NOT NULL"]
)
def test_names_that_share_a_column(tmp_path: Path, where: str) -> None:
    """A column that two names are made of is read once."""
    rows = [{"image/class/label": int64(n)} for n in range(3)]
    table = make_table([write_rows_of(tmp_path / "a.tfrecord", rows)], tmp_path / "t")
    selector = make_selector(table, label="image/class/label", names="a b")
    found = [1, 2] if where.startswith("label") else []
    assert selector.select(where=where, sort="image/class/label").tolist() == found
    equal = {"label": "2"}
    assert selector.select(equal=equal, sort="image/class/label").tolist() == [2]
