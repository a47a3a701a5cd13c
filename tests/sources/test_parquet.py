"""Tables in Parquet."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.sources.reading_tables import found, make_images, reasons
from tests.sources.trees import open_tree
from tfrtool.cli import main
from tfrtool.errors import SourceError
from tfrtool.sources.items import Source


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with three files."""
    return make_images(tmp_path)


def _open(folder: Path, columns: dict[str, Any], **options: Any) -> Source:
    pq.write_table(pa.table(columns), folder / "images.parquet", **options)
    return open_tree(folder / "images.parquet")


@pytest.mark.parametrize("text", [pa.string(), pa.large_string()])
@pytest.mark.parametrize("packed", ["none", "snappy", "zstd"])
def test_rows_are_items(folder: Path, text: Any, packed: str) -> None:
    """Paths, labels and splits are those of the rows; other columns are named."""
    columns = {
        "Image_URI": pa.array(["sub/c.jpg", "./a.jpg", "b.jpg"], text),
        "LABEL": pa.array([" cat ", "dog", "cat"], text).dictionary_encode(),
        "split": ["TRAIN", "test", "train"],
        "note": [{"x": 1}, None, {"x": 2}],
    }
    source = _open(folder, columns, compression=packed, row_group_size=2)
    assert found(source) == [
        ("a.jpg", "dog", "test"),
        ("b.jpg", "cat", "train"),
        ("sub/c.jpg", "cat", "train"),
    ]
    assert source.splits == ("train", "test")
    assert source.notices == ("columns not written: 'note'",)
    assert source.reader.read(source.items[2]) == b"xxx"


@pytest.mark.parametrize("kind", [pa.int8(), pa.uint16(), pa.int64()])
def test_integers_are_numbered_by_value(folder: Path, kind: Any) -> None:
    """Integer labels of any width keep their order; text that looks like one stays text."""
    source = _open(folder, {"path": ["a.jpg", "b.jpg"], "label": pa.array([10, 9], kind)})
    assert source.labels == ("9", "10")
    source = _open(folder, {"path": ["a.jpg", "b.jpg"], "label": ["007", "7"]})
    assert source.labels == ("007", "7")


def test_rows_that_are_no_items(folder: Path) -> None:
    """A row that can't be used is listed with its number, from 1 on, through groups of rows."""
    paths = ["a.jpg", None, "b.jpg", "missing.jpg", "x" * 2_000_000, "sub/c.jpg", None]
    labels = ["cat", "cat", None, "cat", "cat", "dog", None]
    source = _open(folder, {"path": paths, "label": labels}, row_group_size=4)
    assert [item.key for item in source.items] == ["a.jpg", "sub/c.jpg"]
    assert sorted(reasons(source)) == [
        "row 2: no path",
        "row 3: no label",
        "row 4: no such file",
        "row 5: a cell is longer than 1,048,576 bytes",
        "row 7: no path",
    ]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"words": ["none"], "label": ["x"]}, "no path column"),
        ({"path": ["a.jpg"], "label": ["x"], "bbox": [[1]]}, "boxes"),
        ({"path": ["a.jpg"], "label": ["x"], "Label": ["x"]}, "'label'"),
        ({"path": ["a.jpg"], "label": [0.5]}, "'label'.*found double"),
        ({"path": ["a.jpg"], "label": [True]}, "'label'.*found bool"),
        ({"path": ["a.jpg"], "label": [["cat", "dog"]]}, "several labels.* in row 1"),
        ({"path": ["a.jpg"], "label": ["1.5"]}, "fractions"),
        ({"path": ["a.jpg"], "label": ["cat|dog"]}, "several labels.* in row 1"),
        (
            {"image": [{"data": b"x", "path": "a.jpg"}], "label": ["x"]},
            "'image'.*found struct",
        ),
        ({"path": ["../x.jpg"], "label": ["x"]}, "row 1 names a file outside"),
        ({"path": ["none.jpg"], "label": ["x"]}, "no usable rows"),
    ],
)
def test_tables_that_are_refused(folder: Path, columns: dict[str, Any], message: str) -> None:
    """What is no table of labelled images is an error that says what is there."""
    with pytest.raises(SourceError, match=message) as caught:
        _open(folder, columns)
    assert caught.value.path == str(folder / "images.parquet")


@pytest.mark.parametrize("part", [0.02, 0.5, 0.99])
def test_a_cut_table_is_an_error(folder: Path, part: float) -> None:
    """A table that is not whole is not taken for another kind of file."""
    path = folder / "images.parquet"
    pq.write_table(pa.table({"path": ["a.jpg"] * 50, "label": ["x"] * 50}), path)
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * part)])
    with pytest.raises(SourceError, match="truncated or damaged") as caught:
        open_tree(path)
    assert caught.value.path == str(path)


def test_damage_is_told(folder: Path) -> None:
    """Whatever byte is changed, it is a SourceError, or the rows are those that were written."""
    path = folder / "images.parquet"
    pq.write_table(pa.table({"path": ["a.jpg", "b.jpg"], "label": ["x", "y"]}), path)
    data = path.read_bytes()
    for at in range(0, len(data), 3):
        path.write_bytes(data[:at] + bytes([data[at] ^ 0x55]) + data[at + 1 :])
        try:
            source = open_tree(path)
        except SourceError:
            continue
        assert {item.key for item in source.items} <= {"a.jpg", "b.jpg"}


def test_more_rows_than_a_file_can_hold_are_refused(folder: Path) -> None:
    """One path a hundred thousand times in a few bytes is no table of images."""
    rows = pa.array(["a.jpg"] * 200_000).dictionary_encode()
    with pytest.raises(SourceError, match="200,000 rows in"):
        _open(folder, {"path": rows, "label": rows})


def test_the_command_takes_parquet(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`write` tells a Parquet table by its content, whatever its name."""
    table = pa.table({"path": ["a.jpg", "b.jpg"], "label": ["x", "y"]})
    pq.write_table(table, folder / "table.csv")
    assert main(["write", str(folder / "table.csv"), str(folder / "d"), "--dry-run"]) == 1
    assert "no image can be used" in capsys.readouterr().err


def test_other_sources_do_without_pyarrow(folder: Path) -> None:
    """Pyarrow is loaded for a Parquet table, and for nothing else."""
    (folder / "table.csv").write_text("path,label\na.jpg,x\n")
    program = (
        "import sys; from pathlib import Path; from tfrtool.sources.folders.class_layout import *;"
        "from tfrtool.sources.open_source import open_source;"
        "open_source(sys.argv[1], LabelFrom.FOLDER, Path('.'));print('pyarrow' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(folder / "table.csv")],
        capture_output=True,
        check=True,
        text=True,
    )
    assert done.stdout.strip() == "False"
