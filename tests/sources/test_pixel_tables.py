"""Tables of pixels as a source."""

from __future__ import annotations

import gzip
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.sources.trees import open_tree
from tfrtool.errors import SourceError
from tfrtool.sources.folders.name_pattern import LabelFrom
from tfrtool.sources.items import Source
from tfrtool.sources.open_source import open_source
from tfrtool.sources.source_options import SourceOptions

DRAW = np.random.default_rng(0)


def _images(*shape: int) -> Any:
    return DRAW.integers(0, 256, shape, np.uint8)


def _write(path: Path, header: str, rows: Sequence[Sequence[object]]) -> Path:
    lines = [header] if header else []
    lines += [",".join(map(str, row)) for row in rows]
    path.write_text("\n".join(lines) + "\n")
    return path


def _pixels(source: Source) -> list[Any]:
    read = source.reader.read
    return [np.asarray(Image.open(io.BytesIO(read(item)))) for item in source.items]


def _open(path: Path, **options: Any) -> Source:
    return open_source(str(path), LabelFrom.FOLDER, path.parent, options=SourceOptions(**options))


@pytest.mark.parametrize("count", [6, 17, 200])
def test_cells_that_are_not_of_square_images(count: int, tmp_path: Path) -> None:
    """The error has the row and how many pixels it has, however few."""
    rows = [(n, " ".join(map(str, range(count)))) for n in range(2)]
    table = _write(tmp_path / "pixels.csv", "label,pixels", rows)
    with pytest.raises(SourceError, match=rf"row 2: {count} pixels don't make a square image"):
        _open(table)


@pytest.mark.parametrize("header", ["emotion,pixels,Usage", "emotion, Usage, pixels"])
def test_pixels_in_a_cell(header: str, tmp_path: Path) -> None:
    """FER2013's splits come from its usage, the labels from its emotions; pixels are exact."""
    images = _images(3, 48, 48)
    usage = ["Training", "PublicTest", "PrivateTest"]
    rows = [(n, " ".join(map(str, one.ravel())), usage[n]) for n, one in enumerate(images)]
    if header.endswith("pixels"):
        rows = [(label, use, pixels) for label, pixels, use in rows]
    source = open_tree(_write(tmp_path / "fer2013.csv", header, rows))
    assert source.splits == ("train", "validation", "test")
    assert [(item.split, item.label) for item in source.items] == [
        ("train", "0"),
        ("validation", "1"),
        ("test", "2"),
    ]
    assert (np.stack(_pixels(source)) == images).all()
    assert "PublicTest is written as split validation" in source.notices
    assert source.pixels


@pytest.mark.parametrize(
    ("first", "names"),
    [
        ("label,", [f"pixel{n}" for n in range(49)]),
        ("label,", [f"{y}x{x}" for y in range(1, 8) for x in range(1, 8)]),
        ("label,", [f"{n}" for n in range(49)]),
        ("", []),
    ],
)
def test_a_cell_for_each_pixel(first: str, names: list[str], tmp_path: Path) -> None:
    """Columns are found by their numbers; without names, the label is first."""
    images = _images(4, 7, 7)
    rows = [(n % 2, *one.ravel()) for n, one in enumerate(images)]
    source = open_tree(_write(tmp_path / "digits.csv", first + ",".join(names), rows))
    assert [item.label for item in source.items] == ["0", "1", "0", "1"]
    assert [item.key for item in source.items] == [f"digits/{n:08d}.png" for n in range(4)]
    assert (np.stack(_pixels(source)) == images).all()
    headless = any(notice.startswith("no header") for notice in source.notices)
    assert headless == (not names)


def test_color_and_labels_in_the_last_column(tmp_path: Path) -> None:
    """Three values for each pixel of a square are RGB; a compressed table is read, too."""
    images = _images(2, 4, 4, 3)
    header = ",".join([f"pixel{n:04d}" for n in range(48)]) + ",label"
    path = _write(tmp_path / "hmnist.csv", header, [(*one.ravel(), 5) for one in images])
    (tmp_path / "hmnist.csv.gz").write_bytes(gzip.compress(path.read_bytes()))
    for name in ("hmnist.csv", "hmnist.csv.gz"):
        source = open_tree(tmp_path / name)
        assert (np.stack(_pixels(source)) == images).all()
        assert "48 values per row are read as 4 x 4 RGB pixels" in source.notices


def test_a_folder_of_tables(tmp_path: Path) -> None:
    """Splits come from the files' names; tables without pixels or labels are listed."""
    images, header = _images(3, 5, 5), ",".join(f"pixel{n}" for n in range(1, 26))
    for name, part in (("mnist_train", images[:2]), ("mnist_test", images[2:])):
        rows = [(7, *one.ravel()) for one in part]
        _write(tmp_path / f"{name}.csv", f"label,{header}", rows)
    _write(tmp_path / "competition.csv", header, [(*images[0].ravel(),)])
    _write(tmp_path / "submission.csv", "ImageId,Label", [(1, 2)])
    source = open_source(str(tmp_path), LabelFrom.FOLDER, tmp_path)
    assert source.splits == ("train", "test")
    assert {item.key: item.split for item in source.items} == {
        "mnist_test/00000000.png": "test",
        "mnist_train/00000000.png": "train",
        "mnist_train/00000001.png": "train",
    }
    reasons = {entry.key: entry.reason for entry in (*source.ignored, *source.rejected)}
    assert reasons == {
        "competition.csv": "no label column",
        "submission.csv": "not a table of pixels",
    }
    with pytest.raises(SourceError, match="no label column"):
        open_source(str(tmp_path / "competition.csv"), LabelFrom.FOLDER, tmp_path)
    _write(tmp_path / "fer.csv", "emotion,pixels", [(1, " ".join(["9"] * 25))])
    with pytest.raises(SourceError, match="different columns"):
        open_source(str(tmp_path), LabelFrom.FOLDER, tmp_path)


def test_the_label_among_several_columns(tmp_path: Path) -> None:
    """A column that isn't called a label must be named; the others may become features."""
    pixels = " ".join(map(str, _images(16)))
    rows = [(20 + n, n, f"{n}.jpg", pixels) for n in range(2)]
    path = _write(tmp_path / "age_gender.csv", "age,gender,img_name,pixels", rows)
    with pytest.raises(SourceError, match=r"no label column.*--label-column"):
        open_tree(path)
    source = _open(path, label_column="gender", columns=("age",))
    assert [item.label for item in source.items] == ["0", "1"]
    assert [column.name for column in source.features.columns] == ["age"]
    assert "columns not written: 'img_name'" in source.notices


def test_rows_that_are_no_images_are_listed(tmp_path: Path) -> None:
    """A row with the wrong number of pixels, or a wrong one, is listed with its number."""
    good = " ".join(["9"] * 16)
    cells = [good, good[:-2], f"256{good[1:]}", f"0.5{good[1:]}", f"-1{good[1:]}", good]
    path = _write(tmp_path / "x.csv", "emotion,pixels", [(1, cell) for cell in cells])
    source = open_tree(path)
    assert len(source.items) == 2
    assert [entry.reason for entry in source.rejected] == [
        "row 3: 15 pixels, but the rows above have 16",
        "row 4: pixel '256' is not an integer from 0 to 255",
        "row 5: pixel '0.5' is not an integer from 0 to 255",
        "row 6: pixel '-1' is not an integer from 0 to 255",
    ]
    header = "label," + ",".join(f"pixel{n}" for n in range(17))
    with pytest.raises(SourceError, match="17 columns of pixels don't make a square"):
        open_tree(_write(tmp_path / "y.csv", header, [range(18)]))
