"""Tables that pandas, polars, DuckDB, datasets and webdataset write, with all types and nulls.

Each is converted to the records in the table below, or refused in one line that names the columns.
"""

from __future__ import annotations

import datetime as dt
import decimal
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pytest

import tfrtool
from tests.convert.formats.test_conversion import payloads_in
from tests.photos import image_bytes

NOON = dt.datetime(2024, 1, 1, 12)
MICROS = int(NOON.replace(tzinfo=dt.UTC).timestamp()) * 10**6
DAY = MICROS - 12 * 3600 * 10**6
PRICE = decimal.Decimal("1.50")
pl: Any = pytest.importorskip("polars")
Writer = Callable[[Path], Any]


def frame(**columns: Any) -> pd.DataFrame:
    """Return a frame of pandas."""
    return pd.DataFrame(columns)


def copied(select: str, form: str = "parquet") -> tuple[str, Writer]:
    """Return what DuckDB writes."""

    def write(path: Path) -> None:
        duckdb.sql(f"COPY ({select}) TO '{path}' (FORMAT {form})")

    return form.replace("json", "jsonl"), write


def dataset(form: str, rows: list[dict[str, Any]], **features: Any) -> tuple[str, Writer]:
    """Return what Hugging Face's datasets write."""

    def write(path: Path) -> None:
        datasets = pytest.importorskip("datasets")
        known = {name: make(datasets) for name, make in features.items()}
        made = datasets.Dataset.from_list(rows, features=datasets.Features(known))
        {"": made.save_to_disk, "parquet": made.to_parquet, "jsonl": made.to_json}[form](path)

    return form, write


def samples(*rows: dict[str, Any]) -> tuple[str, Writer]:
    """Return what webdataset writes."""

    def write(path: Path) -> None:
        with pytest.importorskip("webdataset").TarWriter(str(path)) as writer:
            for number, row in enumerate(rows):
                writer.write({"__key__": f"{number:04d}", **row})

    return "tar", write


OLD = frame(i=[1, None], b=[True, None], s=["a", None], x=[0.5, float("nan")])
NULLABLE = frame(i=pd.array([1, None], "Int64"), b=pd.array([True, None], "boolean"))
POLARS = pl.DataFrame(
    {
        "u8": pl.Series([1, None], dtype=pl.UInt8),
        "f32": pl.Series([0.5, None], dtype=pl.Float32),
        "t": pl.Series(["a", None], dtype=pl.Categorical),
        "e": pl.Series(["x", "y"], dtype=pl.Enum(["x", "y"])),
        "raw": [b"\xff", None],
        "none": pl.Series([None, None], dtype=pl.Null),
    }
)
POLARS_ROWS: list[dict[str, Any]] = [
    {"u8": 1, "f32": 0.5, "t": b"a", "e": b"x", "raw": b"\xff"},
    {"e": b"y"},
]
NESTED = pl.DataFrame(
    {
        "l": [[1, 2], [], None],
        "a": pl.Series([[1, 2], [3, 4], None], dtype=pl.Array(pl.Int16, 2)),
        "m": [[[1.0], [2.0]], [[3.0]], []],
    }
)
TIMES = pl.DataFrame({"w": [NOON], "d": [NOON.date()], "t": [dt.time(0, 0, 1)]}).with_columns(
    p=pl.Series([PRICE], dtype=pl.Decimal(10, 2))
)
TIMES_ROWS = [{"w": MICROS, "d": DAY, "t": 10**6, "p": b"1.50"}]
STRUCTS = "SELECT {'a': 1, 'b': ['x']} s, MAP {'k': 1} m, [MAP {'k': 1}] n, [{'c': 1}] l, 1 AS fine"
BOXES = {"bbox": [[1.0, 2.0, 3.0, 4.0]], "category": [1]}
CORNERS = {"bbox": [1, 2, 3, 4]}

TAKEN: dict[str, tuple[tuple[str, Writer], list[dict[str, Any]]]] = {
    "pandas-gaps": (("parquet", OLD.to_parquet), [{"i": 1, "b": 1, "s": b"a", "x": 0.5}, {}]),
    "pandas-gaps-csv": (
        ("csv", lambda path: OLD.to_csv(path, index=False)),
        [{"i": 1, "b": b"True", "s": b"a", "x": 0.5}, {}],
    ),
    "pandas-gaps-jsonl": (
        ("jsonl", lambda path: OLD.to_json(path, orient="records", lines=True)),
        [{"i": 1, "b": 1, "s": b"a", "x": 0.5}, {}],
    ),
    "pandas-gaps-json": (
        ("json", lambda path: OLD.to_json(path, orient="records")),
        [{"i": 1, "b": 1, "s": b"a", "x": 0.5}, {}],
    ),
    "pandas-gaps-feather": (
        ("feather", OLD.to_feather), [{"i": 1, "b": 1, "s": b"a", "x": 0.5}, {}]
    ),
    "pandas-nullable": (("parquet", NULLABLE.to_parquet), [{"i": 1, "b": 1}, {}]),
    "pandas-category": (
        ("parquet", frame(c=pd.Categorical(["b", None, "a"])).to_parquet),
        [{"c": b"b"}, {}, {"c": b"a"}],
    ),
    "pandas-index": (
        ("parquet", pd.DataFrame({"n": [5]}, index=pd.Index(["k"], name="key")).to_parquet),
        [{"n": 5, "key": b"k"}],
    ),
    "pandas-index-csv": (("csv", frame(n=[5]).to_csv), [{"index": 0, "n": 5}]),
    "pandas-times": (
        (
            "parquet",
            frame(w=pd.Series([NOON, None]), d=pd.to_timedelta([1, None], "s")).to_parquet,
        ),
        [{"w": MICROS, "d": 10**6}, {}],
    ),
    "pandas-zone": (
        ("parquet", frame(w=pd.to_datetime([NOON]).tz_localize("Asia/Tokyo")).to_parquet),
        [{"w": MICROS - 9 * 3600 * 10**6}],
    ),
    "pandas-arrays": (
        ("parquet", frame(v=[np.arange(2), np.arange(3)], k=[np.ones(2, "f4")] * 2).to_parquet),
        [{"v": [0, 1], "k": [1.0, 1.0]}, {"v": [0, 1, 2], "k": [1.0, 1.0]}],
    ),
    "pandas-matrices": (
        ("parquet", frame(m=[[[1, 2], [3, 4]], [[5, 6]]]).to_parquet),
        [{"m": [1, 2, 3, 4]}, {"m": [5, 6]}],
    ),
    "pandas-dicts": (
        ("parquet", frame(a=[{"x": 1}, None], b=[{"y": [2]}, {"y": []}], c=[1, 2]).to_parquet),
        [{"a/x": 1, "b/y": 2, "c": 1}, {"b/y": [], "c": 2}],
    ),
    "pandas-ragged": (
        ("parquet", frame(a=[[[1], [1, 2]]], c=[1]).to_parquet),
        [{"a/ragged_flat_values": [1, 1, 2], "a/ragged_row_lengths_0": [1, 2], "c": 1}],
    ),
    "pandas-decimals": (
        ("parquet", frame(p=[PRICE, None]).to_parquet), [{"p": b"1.50"}, {}]
    ),
    "pandas-bytes": (("parquet", frame(b=[b"\xff", None]).to_parquet), [{"b": b"\xff"}, {}]),
    "pandas-objects": (
        ("csv", lambda path: frame(o=[1, "x", None]).to_csv(path, index=False)),
        [{"o": b"1"}, {"o": b"x"}, {}],
    ),
    "pandas-small": (
        ("parquet", frame(a=np.array([1], "i1"), b=np.array([2.5], "f2")).to_parquet),
        [{"a": 1, "b": 2.5}],
    ),
    "pandas-empty": (("parquet", frame(a=[1], n=[None]).to_parquet), [{"a": 1}]),
    "polars": (("parquet", POLARS.write_parquet), POLARS_ROWS),
    "polars-ipc": (("arrow", lambda path: POLARS.write_ipc(path, compression="zstd")), POLARS_ROWS),
    "polars-ndjson": (
        ("jsonl", POLARS.drop("raw").write_ndjson),
        [{"u8": 1, "f32": 0.5, "t": b"a", "e": b"x"}, {"e": b"y"}],
    ),
    "polars-csv": (
        ("csv", POLARS.drop("raw").write_csv),
        [{"u8": 1, "f32": 0.5, "t": b"a", "e": b"x"}, {"e": b"y"}],
    ),
    "polars-lists": (
        ("parquet", NESTED.write_parquet),
        [{"l": [1, 2], "a": [1, 2], "m": [1, 2]}, {"l": [], "a": [3, 4], "m": 3}, {"m": []}],
    ),
    "polars-structs": (
        ("parquet", pl.DataFrame({"s": [{"x": 1}], "d": [[{"y": 1}, {"y": 2}]]}).write_parquet),
        [{"s/x": 1, "d/y": [1, 2]}],
    ),
    "polars-times": (("parquet", TIMES.write_parquet), TIMES_ROWS),
    "polars-times-ipc": (("arrow", TIMES.write_ipc), TIMES_ROWS),
    "duckdb-types": (
        copied("SELECT 1::HUGEINT h, 2::UTINYINT u, 'x'::BLOB b, true f, NULL::INT n, 'e' t"),
        [{"h": 1, "u": 2, "b": b"x", "f": 1, "t": b"e"}],
    ),
    "duckdb-times": (
        copied(
            f"SELECT TIMESTAMP '{NOON}' w, TIMESTAMPTZ '{NOON}+00' z, DATE '2024-01-01' d, 1.50 p"
        ),
        [{"w": MICROS, "z": MICROS, "d": DAY, "p": b"1.50"}],
    ),
    "duckdb-lists": (
        copied("SELECT [1, 2] l, [[1], [2]] m, ['a']::VARCHAR[1] a"),
        [{"l": [1, 2], "m": [1, 2], "a": b"a"}],
    ),
    "duckdb-unsigned": (
        copied("SELECT 18446744073709551615::UBIGINT a, 9223372036854775808::UBIGINT b"),
        [{"a": -1, "b": -(2**63)}],
    ),
    "duckdb-json-nested": (
        copied(STRUCTS, "json"),
        [{"s/a": 1, "s/b": b"x", "m/k": 1, "n/k": 1, "l/c": 1, "fine": 1}],
    ),
    "duckdb-csv": (
        copied("SELECT 1 i, NULL n, 'a,b' t, 0.5 x, DATE '2024-01-01' d", "csv"),
        [{"i": 1, "t": b"a,b", "x": 0.5, "d": b"2024-01-01"}],
    ),
    "duckdb-json": (
        copied("SELECT 1 i, NULL n, [1, 2] l, true b", "json"), [{"i": 1, "l": [1, 2], "b": 1}]
    ),
    "datasets": (
        dataset(
            "parquet",
            [{"label": 1, "t": "a", "x": 0.5}, {"label": 0, "t": None, "x": None}],
            label=lambda d: d.ClassLabel(names=["no", "yes"]),
            t=lambda d: d.Value("string"),
            x=lambda d: d.Value("float32"),
        ),
        [{"label": 1, "t": b"a", "x": 0.5}, {"label": 0}],
    ),
    "datasets-disk": (
        dataset("", [{"n": 1}, {"n": None}], n=lambda d: d.Value("int32")),
        [{"n": 1}, {}],
    ),
    "datasets-arrays": (
        dataset("parquet", [{"m": [[1, 2], [3, 4]]}], m=lambda d: d.Array2D((2, 2), "int64")),
        [{"m": [1, 2, 3, 4]}],
    ),
    "datasets-objects": (
        dataset(
            "parquet",
            [{"o": BOXES, "p": [CORNERS]}],
            o=lambda d: {"bbox": [[d.Value("float32")]], "category": [d.Value("int64")]},
            p=lambda d: [{"bbox": [d.Value("int64")]}],
        ),
        [{"o/bbox": [1, 2, 3, 4], "o/category": 1, "p/bbox": [1, 2, 3, 4]}],
    ),
    "datasets-jsonl": (dataset("jsonl", [{"n": 1}], n=lambda d: d.Value("int64")), [{"n": 1}]),
    "webdataset": (
        samples({"txt": "one", "cls": 1, "json": {"n": 1}}, {"txt": "two", "cls": 0, "json": {}}),
        [
            {"__key__": b"0000", "text": b"one", "label": 1, "n": 1},
            {"__key__": b"0001", "text": b"two", "label": 0},
        ],
    ),
    "webdataset-images": (
        samples({"jpg": image_bytes(), "cls": 1}),
        [{"image": image_bytes(), "image/filename": b"0000.jpg", "label": 1}],
    ),
}  # fmt: skip

REFUSED: dict[str, tuple[tuple[str, Writer], str]] = {
    "pandas-nanoseconds": (
        ("parquet", frame(w=pd.to_datetime([1], unit="ns")).to_parquet),
        r"'w', row 0: .*--cast w:string",
    ),
    "pandas-wide": (
        ("csv", lambda path: frame(a=[0.5, 2.0**24 + 1], b=[0.1, 2.0**25 + 1]).to_csv(path)),
        r"'a'.*'b'.*--cast a:TYPE --cast b:TYPE",
    ),
    "polars-nulls-in-lists": (
        ("parquet", pl.DataFrame({"l": [[1, None]], "m": [[None, "x"]]}).write_parquet),
        "'l', row 0.*'m', row 0",
    ),
    "duckdb-maps": (copied(STRUCTS), "unsupported types of columns 'm', 'n'"),
}  # fmt: skip


def written(source: tuple[str, Writer], folder: Path) -> Path:
    """Write a table, and return its path."""
    form, write = source
    path = folder / (f"t.{form}" if form else "saved")
    write(path)
    return path


@pytest.mark.parametrize("name", TAKEN)
def test_tables_become_records(name: str, tmp_path: Path) -> None:
    """Every value is a feature, every null is missing; and so it is after another round."""
    source, expected = TAKEN[name]
    tfrtool.convert(written(source, tmp_path), tmp_path / "new")
    records = payloads_in(tmp_path / "new")
    assert [*map(plain, records)] == expected
    tfrtool.convert(tmp_path / "new", tmp_path / "back.parquet")
    tfrtool.convert(tmp_path / "back.parquet", tmp_path / "again")
    assert payloads_in(tmp_path / "again") == records


@pytest.mark.parametrize("name", REFUSED)
def test_tables_are_refused(name: str, tmp_path: Path) -> None:
    """The error is one line that names all columns, and nothing is written."""
    source, words = REFUSED[name]
    path = written(source, tmp_path)
    with pytest.raises(tfrtool.TfrtoolError) as caught:
        tfrtool.convert(path, tmp_path / "new")
    error = str(caught.value)
    assert re.search(words, error), error
    assert "\n" not in error
    assert not (tmp_path / "new").exists()


def plain(payload: bytes) -> dict[str, Any]:
    """Return the features of a record; lists of one value as that value."""
    values: dict[str, Any] = {}
    for name, value in tfrtool.parse_example(payload).items():
        held = value.tolist() if isinstance(value, np.ndarray) else value
        values[name] = [*held] if isinstance(held, list | tuple) else held
    return values
