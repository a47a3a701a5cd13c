"""Columns of a table that become features: what they are, and which rows are left out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest

from tests.sources.reading_tables import make_images, reasons
from tfrtool.errors import SourceError, UsageError
from tfrtool.examples.example import DType
from tfrtool.examples.objects.annotation import ExtraFeatures
from tfrtool.examples.objects.record_features import ColumnKind, LabelKind
from tfrtool.sources.folders.name_pattern import LabelFrom
from tfrtool.sources.items import Source
from tfrtool.sources.open_source import open_source
from tfrtool.sources.source_options import SourceOptions

KEYS = ("a.jpg", "b.jpg", "sub/c.jpg")
NAN = "nan"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with a.jpg, b.jpg and sub/c.jpg."""
    return make_images(tmp_path)


def _open(path: Path, *columns: str, all_columns: bool = False) -> Source:
    options = SourceOptions(columns=columns, all_columns=all_columns)
    return open_source(str(path), LabelFrom.FOLDER, path.parent, options=options)


def _lines(folder: Path, *cells: Any, name: str = "x") -> Path:
    """Write a table of JSON Lines with one column beside the paths; ... leaves a cell out."""
    rows = [{"path": key} for key in KEYS[: len(cells)]]
    for row, cell in zip(rows, cells, strict=True):
        if cell is not ...:
            row[name] = cell
    (folder / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder / "t.jsonl"


def _csv(folder: Path, *cells: str) -> Path:
    rows = "".join(f"{key},{cell}\n" for key, cell in zip(KEYS, cells, strict=False))
    (folder / "t.csv").write_text(f"path,x\n{rows}")
    return folder / "t.csv"


def _values(source: Source, name: str = "x") -> list[tuple[Any, ...]]:
    return [(*ExtraFeatures.unpack(item.extra).values[name],) for item in source.items]


@pytest.mark.parametrize(
    ("cells", "dtype", "values"),
    [
        (("1", "-2", " 3"), DType.INT64, [1, -2, 3]),
        (("1", "2.5", "1e3"), DType.FLOAT32, [1.0, 2.5, 1000.0]),
        (("1", "NaN", "-inf"), DType.FLOAT32, [1.0, float(NAN), -float("inf")]),
        (("1", "two", "0.5"), DType.STRING, [b"1", b"two", b"0.5"]),
        (("007", "1", "2"), DType.STRING, [b"007", b"1", b"2"]),
        (("0", "-0", "+9"), DType.INT64, [0, 0, 9]),
        (("1", str(2**63 - 1), str(-(2**63))), DType.INT64, [1, 2**63 - 1, -(2**63)]),
        (("1", str(2**63), "2"), DType.STRING, [b"1", str(2**63).encode(), b"2"]),
        (("1", "1e39", "2"), DType.STRING, [b"1", b"1e39", b"2"]),
        (("1", "1_000", "2"), DType.STRING, [b"1", b"1_000", b"2"]),
        (("1234567891.0", "2", "3"), DType.INT64, [1234567891, 2, 3]),
        (("16777217", "0.5", "2"), DType.STRING, [b"16777217", b"0.5", b"2"]),
        (("007.5", "1", "2"), DType.STRING, [b"007.5", b"1", b"2"]),
    ],
)
def test_the_type_of_a_csv_column_is_told_from_all_cells(
    folder: Path, cells: tuple[str, ...], dtype: DType, values: list[Any]
) -> None:
    """No number loses a digit of an id, its leading zeros, or becomes infinite."""
    source = _open(_csv(folder, *cells), "x")
    assert source.features.columns == (ColumnKind("x", dtype, is_list=False),)
    assert source.features.label is LabelKind.NONE
    assert repr(_values(source)) == repr([(value,) for value in values])


@pytest.mark.parametrize(
    ("cells", "dtype", "is_list", "values"),
    [
        ((1, 2, 3), DType.INT64, False, [(1,), (2,), (3,)]),
        ((1, "2", 3), DType.STRING, False, [(b"1",), (b"2",), (b"3",)]),
        ((True, False, 2), DType.INT64, False, [(1,), (0,), (2,)]),
        ((True, "no", 1.5), DType.STRING, False, [(b"true",), (b"no",), (b"1.5",)]),
        (("", "ä", "x"), DType.STRING, False, [(b"",), ("ä".encode(),), (b"x",)]),
        (([1, 2], [], [3]), DType.INT64, True, [(1, 2), (), (3,)]),
        (([1, 2.5], 3, None), DType.FLOAT32, True, [(1.0, 2.5), (3.0,), ()]),
        (([1, "a"], ..., 2), DType.STRING, True, [(b"1", b"a"), (), (b"2",)]),
        ((2**64, 1, 2), DType.STRING, False, [(str(2**64).encode(),), (b"1",), (b"2",)]),
        ((float(NAN), 1, 2), DType.FLOAT32, False, [(float(NAN),), (1.0,), (2.0,)]),
    ],
)
def test_cells_of_json(
    folder: Path, cells: tuple[Any, ...], dtype: DType, is_list: bool, values: list[Any]
) -> None:
    """Texts stay texts, truth values are 0 and 1; what is absent somewhere makes lists."""
    source = _open(_lines(folder, *cells), "x")
    assert source.features.columns == (ColumnKind("x", dtype, is_list),)
    assert repr(_values(source)) == repr(values)


def test_parquet_of_any_type(folder: Path) -> None:
    """Integers without sign, decimals, dates, lists and truth values; a struct is left out."""
    import datetime
    import decimal

    columns = {
        "path": [*KEYS],
        "wide": pa.array([1, 2**64 - 1, 2], pa.uint64()),
        "price": [decimal.Decimal("1.25"), decimal.Decimal(2), None],
        "day": [datetime.date(2026, 1, 2)] * 3,
        "tags": [["a"], [], ["b", "c"]],
        "seen": [True, False, True],
        "raw": [b"\xff", b"", b"x"],
        "objects": [{"bbox": [[1, 2, 3, 4]]}] * 3,
        "matrix": [[[1]], [[2]], [[3]]],
    }
    pyarrow.parquet.write_table(pa.table(columns), folder / "t.parquet")
    source = _open(folder / "t.parquet", all_columns=True)
    kinds = {name: (dtype.value, is_list) for name, dtype, is_list in source.features.columns}
    assert kinds == {
        "wide": ("string", False),
        "price": ("float32", True),
        "day": ("string", False),
        "tags": ("string", True),
        "seen": ("int64", False),
        "raw": ("string", False),
    }
    first, second, third = (ExtraFeatures.unpack(item.extra).values for item in source.items)
    assert (first["price"], third["price"]) == ((1.25,), ())
    assert (first["day"], third["tags"]) == ((b"2026-01-02",), (b"b", b"c"))
    assert (first["raw"], second["wide"]) == ((b"\xff",), (str(2**64 - 1).encode(),))
    notice, boxes = source.notices
    assert notice == "columns not written: 'matrix', 'objects'"
    assert "--annotations" in boxes


@pytest.mark.parametrize(
    ("column", "cell", "why"),
    [
        ("x:int64", 1.5, "holds 1.5, which is not a valid int64"),
        ("x:int64", 2**63, f"holds {2**63}, which is not a valid int64"),
        ("x:int64", "a" * 99, "holds 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"),
        ("x:float32", 1e39, "holds 1e+39, which is not a valid float32"),
        ("x:float32", "one", "holds 'one', which is not a valid float32"),
        ("x:float32", [1, [2]], "holds a nested list"),
        ("x", [1, None], "holds a list with null"),
        ("x", {"a": 1}, "holds an object"),
        ("x", "\ud800", "holds text that is not valid UTF-8"),
    ],
)
def test_a_cell_that_does_not_fit_leaves_its_row_out(
    folder: Path, column: str, cell: Any, why: str
) -> None:
    """The row is listed with its number and the reason; the others are written."""
    source = _open(_lines(folder, 1, cell, 2), column)
    assert [item.key for item in source.items] == ["a.jpg", "sub/c.jpg"]
    (reason,) = reasons(source)
    assert reason.startswith(f"row 2: column 'x' {why}")
    assert len(source.items) == 2


def test_given_types(folder: Path) -> None:
    """What a float or a text says exactly fits; a name may have a colon in it."""
    assert _values(_open(_csv(folder, "1.0", "2", "3"), "x:string")) == [
        (b"1.0",),
        (b"2",),
        (b"3",),
    ]
    assert _values(_open(_lines(folder, 3.0, "4", 5), "x:int64")) == [(3,), (4,), (5,)]
    assert _values(_open(_lines(folder, 1, name="x:y"), "x:y:float32"), "x:y") == [(1.0,)]


def test_names_that_can_not_be_features(folder: Path) -> None:
    """Own features' names are refused; one that isn't there is told, with those like it."""
    text = "path,label,image,x\na.jpg,cat,z,1\n"
    (folder / "t.csv").write_text(text)
    with pytest.raises(UsageError, match="column 'image'"):
        _open(folder / "t.csv", "image")
    source = _open(folder / "t.csv", all_columns=True)
    assert [kind.name for kind in source.features.columns] == ["x"]
    assert source.notices == ("columns not written: 'image'",)
    with pytest.raises(UsageError, match=r"no column 'xx'.*'x'"):
        _open(folder / "t.csv", "xx")
    with pytest.raises(UsageError, match="unprintable"):
        _open(_lines(folder, 1, name="a\nb"), "a\nb")
    with pytest.raises(UsageError, match="longer than 1,024"):
        _open(_lines(folder, 1, name="a" * 2000), "a" * 2000)
    (folder / "t.csv").write_text("path,x,x\na.jpg,1,2\n")
    with pytest.raises(SourceError, match="'x'"):
        _open(folder / "t.csv", "x")
    with pytest.raises(UsageError, match="--column requires a table"):
        _open(folder, "x")
    with pytest.raises(UsageError, match="--all-columns requires a table"):
        _open(folder, all_columns=True)


def test_all_columns_with_types_for_some(folder: Path) -> None:
    """A named column has its type, and must fit; another one that doesn't fit is left out."""
    text = "path,x,n,image\na.jpg,1,2,p\nb.jpg,3,4,q\n"
    (folder / "t.csv").write_text(text)
    source = _open(folder / "t.csv", "x:float32", all_columns=True)
    kinds = {kind.name: kind.dtype.value for kind in source.features.columns}
    assert kinds == {"x": "float32", "n": "int64"}
    assert source.notices == ("columns not written: 'image'",)
    with pytest.raises(UsageError, match="column 'image'"):
        _open(folder / "t.csv", "image", all_columns=True)
    (folder / "t.csv").write_text(text.replace("1", "one"))
    source = _open(folder / "t.csv", "x:float32", all_columns=True)
    assert reasons(source) == ["row 2: column 'x' holds 'one', which is not a valid float32"]


def test_columns_are_bounded(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of JSON may name new columns for ever; so many are an error, not all of memory."""
    monkeypatch.setattr("tfrtool.sources.tables.table_values.MAX_COLUMNS", 3)
    rows = [{"path": key, f"{key}{n}": 1} for n in range(2) for key in KEYS]
    (folder / "t.jsonl").write_text("\n".join(map(json.dumps, rows)))
    with pytest.raises(SourceError, match="more than 3 columns"):
        _open(folder / "t.jsonl", all_columns=True)
    assert len(_open(folder / "t.jsonl", "a.jpg0").features.columns) == 1


def test_wide_tables_are_refused_at_their_header(folder: Path) -> None:
    """A table has at most 10,000 columns, whichever of them are written."""
    names = [f"c{n}" for n in range(10_000)]
    rows = [["path", "label", *names], ["a.jpg", "cat", *["1"] * len(names)]]
    (folder / "t.csv").write_text("".join(",".join(row) + "\n" for row in rows))
    cells = {"path": ["a.jpg"], "label": ["cat"]} | {name: [1] for name in names}
    pyarrow.parquet.write_table(pa.table(cells), folder / "t.parquet")
    for name, columns, all_columns in (
        ("t.csv", (), False),
        ("t.csv", (), True),
        ("t.csv", ("c7",), False),
        ("t.parquet", (), False),
    ):
        with pytest.raises(SourceError, match="too many columns: expected at most 10,000"):
            _open(folder / name, *columns, all_columns=all_columns)


def test_columns_between_bars(folder: Path) -> None:
    """A table may be separated by bars, as by commas, semicolons and tabs."""
    (folder / "t.csv").write_text("path|x\na.jpg|1,5\nb.jpg|2\n")
    assert _values(_open(folder / "t.csv", "x")) == [(b"1,5",), (b"2",)]


def test_a_label_as_a_number(folder: Path) -> None:
    """A label column that is asked for is no class; with others it stays one, and rows need it."""
    (folder / "t.csv").write_text("path,label,x\na.jpg,0.5,1\nb.jpg,2,\nsub/c.jpg,,3\n")
    source = _open(folder / "t.csv", "label:float32")
    assert source.features.label is LabelKind.NONE
    assert _values(source, "label") == [(0.5,), (2.0,), ()]
    (folder / "t.csv").write_text("path,label,x\na.jpg,cat,1\nb.jpg,dog,\nsub/c.jpg,,3\n")
    source = _open(folder / "t.csv", "x")
    assert (source.labels, _values(source)) == (("cat", "dog"), [(1,), ()])
    assert reasons(source) == ["row 4: no label"]


def test_values_follow_their_images(folder: Path) -> None:
    """Sorted by path, each image has its own row's values, whichever rows are left out."""
    rows = ["sub/c.jpg,3", "none.jpg,9", "b.jpg,2", "b.jpg,7", "a.jpg,1"]
    (folder / "t.csv").write_text("path,x\n" + "\n".join(rows) + "\n")
    source = _open(folder / "t.csv", "x")
    assert [item.key for item in source.items] == [*KEYS]
    assert _values(source) == [(1,), (2,), (3,)]


@pytest.mark.parametrize("where", ["root", "splits"])
def test_metadata_of_hugging_face(tmp_path: Path, where: str) -> None:
    """A folder without class folders is read through the table in it, or one in each split."""
    for split in ("train", "test"):
        (tmp_path / split).mkdir()
        for number in range(2):
            (tmp_path / split / f"{number}.jpg").write_bytes(b"x")
        rows = [f"{number}.jpg,{split} {number}" for number in range(2)]
        if where == "splits":
            (tmp_path / split / "metadata.csv").write_text("file_name,text\n" + "\n".join(rows))
    if where == "root":
        lines = [
            {"file_name": f"{split}/{number}.jpg", "text": f"{split} {number}"}
            for split in ("train", "test")
            for number in range(2)
        ]
        (tmp_path / "metadata.jsonl").write_text("\n".join(map(json.dumps, lines)))
    source = _open(tmp_path, "text")
    assert [item.key for item in source.items] == [
        "test/0.jpg",
        "test/1.jpg",
        "train/0.jpg",
        "train/1.jpg",
    ]
    assert _values(source, "text") == [(b"test 0",), (b"test 1",), (b"train 0",), (b"train 1",)]
    assert source.splits == (("train", "test") if where == "splits" else ())
    assert "are read from metadata." in source.notices[0]
    with pytest.raises(SourceError, match=r"no label column.*--label-column NAME"):
        open_source(str(tmp_path), LabelFrom.FOLDER, tmp_path)


def test_class_folders_stay_classes_beside_metadata(tmp_path: Path) -> None:
    """Where folders are classes they are written as such, unless columns are asked for."""
    for name in ("cat", "dog"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "1.jpg").write_bytes(b"x")
    (tmp_path / "metadata.csv").write_text("file_name,text\ncat/1.jpg,hello\n")
    plain = open_source(str(tmp_path), LabelFrom.FOLDER, tmp_path)
    assert (plain.labels, plain.notices) == (("cat", "dog"), ())
    assert _values(_open(tmp_path, "text"), "text") == [(b"hello",)]
