"""Reading tables: CSV and JSON Lines."""

from __future__ import annotations

import csv
import io
import json
import os
import pickle
import tempfile
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.sources.reading_tables import found, make_images, read, reasons
from tfrtool.errors import SourceError
from tfrtool.sources.tables.table_columns import refused_label
from tfrtool.sources.tables.tables import read_table


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with three files."""
    return make_images(tmp_path)


def test_tensorflow_recorders_table(shared_data: Path) -> None:
    """Its own data.csv gives six images in three splits, though it was moved with its images."""
    source = read_table(shared_data / "tfrecorder_images" / "data.csv")
    assert source.labels == ("cat", "goat")
    assert source.splits == ("train", "validation", "test")
    assert source.rejected == source.ignored == ()
    assert found(source)[0] == (
        "tfrecorder/test_data/images/TEST/cat/cat-800x600-3.jpg",
        "cat",
        "test",
    )
    assert [item.split for item in source.items] == [
        split for split in ("test", "train", "validation") for _ in range(2)
    ]
    for item in source.items:
        data = source.reader.read(item)
        assert data.startswith(b"\xff\xd8\xff")
        assert len(data) == item.bytes


@pytest.mark.parametrize("name", ["table.csv", "table.jsonl"])
def test_rows_that_are_no_items(folder: Path, name: str) -> None:
    """Every row is an item or is listed with its number and the reason."""
    rows = [
        ("a.jpg", "cat"),
        ("missing.jpg", "cat"),
        ("sub", "cat"),
        ("", "cat"),
        ("b.jpg", ""),
        ("gs://bucket/a.jpg", "cat"),
        ("a.jpg/x.jpg", "cat"),
        ("x" * 300, "cat"),
        ("x" * 5000, "cat"),
        ("sub/c.jpg", "two\nlines"),
        ("b\u0007.jpg", "cat"),
    ]
    if name.endswith("csv"):
        out = io.StringIO()
        csv.writer(out).writerows([("path", "label"), *rows])
        text, first = out.getvalue(), 2
    else:
        text = "\n".join(json.dumps({"path": path, "label": label}) for path, label in rows)
        first = 1
    source = read(folder, text, name)
    assert found(source) == [("a.jpg", "cat", None)]
    assert sorted(reasons(source), key=lambda reason: int(reason.split()[1][:-1])) == [
        f"row {number}: {reason}"
        for number, reason in enumerate(
            [
                "no such file",
                "not a regular file",
                "no path",
                "no label",
                "gs:// paths are not supported; download the file first",
                "not a directory",
                "file name too long",
                "path is longer than 4,096 characters",
                "label 'two\\nlines' is blank, spans several lines, or starts or ends with a space",
                "path contains unprintable characters",
            ],
            start=first + 1,
        )
    ]
    assert all(0 < len(entry.key) <= 4096 for entry in source.rejected)


def test_rows_of_another_width(folder: Path) -> None:
    """A path with a comma that isn't quoted is no other path; short rows lack what they lack."""
    text = "path,label,note\na.jpg,cat\nb.jpg\nsub/c, d.jpg,cat,,,,\nb.jpg,dog,x,,\n,,\n"
    source = read(folder, text + "x,y,z,w\n")
    assert found(source) == [("a.jpg", "cat", None), ("b.jpg", "dog", None)]
    assert reasons(source) == [
        "row 3: no label",
        "row 7: 4 cells, but the table has 3 columns",
        "row 4: no such file",
    ]


def test_no_usable_row(folder: Path) -> None:
    """A table without a single item is an error that shows why the first row is none."""
    with pytest.raises(SourceError, match=r"missing\.jpg: row 2: no such file"):
        read(folder, "path,label\nmissing.jpg,cat\n")
    with pytest.raises(SourceError, match="no usable rows"):
        read(folder, "path,label\n")


def test_paths_and_what_they_are_relative_to(
    folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Absolute paths, URIs, dots and backslashes name the same file, and have the same key."""
    for path in (
        "sub/c.jpg",
        "./sub//c.jpg",
        "sub/../sub/c.jpg",
        str(folder / "sub" / "c.jpg"),
        (folder / "sub" / "c.jpg").as_uri(),
        "sub\\c.jpg",
    ):
        source = read(folder, json.dumps({"path": path, "label": "x"}), "table.jsonl")
        assert found(source) == [("sub/c.jpg", "x", None)], path
        assert source.reader.read(source.items[0]) == b"xxx"
    outside = tmp_path_factory.mktemp("out side") / "é d.jpg"
    outside.write_bytes(b"1234")
    for path in (str(outside), outside.as_uri()):
        line = json.dumps({"path": path, "label": "x"})
        source = read(folder, line, "table.jsonl", root=outside.parent)
        assert found(source) == [(str(outside), "x", None)]
        assert source.reader.read(source.items[0]) == b"1234"
    source = read(folder / "sub", "path,label\n../a.jpg,x\n", root=folder)
    assert found(source) == [("../a.jpg", "x", None)]
    assert source.reader.describe(source.items[0]) == str(folder / "sub" / "../a.jpg")


def test_paths_that_lead_out(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """However a table says it, no file elsewhere is taken; the error names row and file."""
    outside = tmp_path_factory.mktemp("private") / "secret.jpg"
    outside.write_bytes(b"secret")
    (folder / "link.jpg").symlink_to(outside)
    (folder / "linked").symlink_to(outside.parent)
    for path in (
        str(outside),
        outside.as_uri(),
        os.path.relpath(outside, folder),
        f"sub/../../{outside.parent.name}/secret.jpg",
        "link.jpg",
        "linked/secret.jpg",
        f"{folder}/linked/secret.jpg",
        "linked/missing.jpg",
    ):
        line = json.dumps({"path": path, "label": "x"})
        text = f'{{"path": "a.jpg", "label": "y"}}\n{line}\n'
        with pytest.raises(SourceError, match="row 2 names a file outside") as caught:
            read(folder, text, "table.jsonl")
        assert caught.value.path == str(folder / "table.jsonl")
        assert "--root" in str(caught.value.hint)
        assert len(read(folder, text, "table.jsonl", root=outside.parent).items) in (1, 2)
        with pytest.raises(SourceError, match="outside"):
            read(folder, text, "table.jsonl", root=folder / "sub")
    text = f"path,label\na.jpg,x\n{outside.with_name('missing.jpg')},x\n"
    assert reasons(read(folder, text)) == ["row 3: no such file"]


def test_links_to_the_folder_itself_dont_lead_out(folder: Path) -> None:
    """A table may be reached, and name its files, through links to the folder it lies in."""
    alias = folder.with_name("alias")
    alias.symlink_to(folder)
    (folder / "inside.jpg").symlink_to("sub/c.jpg")
    text = f"path,label\n{alias}/a.jpg,x\n{folder}/b.jpg,x\ninside.jpg,x\n"
    for place in (folder, alias):
        assert len(read(place, text).items) == 3


def test_paths_relative_to_the_root(
    folder: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files that are not beside the table are looked for there; the current folder never counts."""
    elsewhere = tmp_path_factory.mktemp("tables")
    monkeypatch.chdir(folder)
    with pytest.raises(SourceError, match="no such file"):
        read(elsewhere, "path,label\nb.jpg,x\n")
    source = read(elsewhere, "path,label\nnone.jpg,x\nb.jpg,x\n", root=Path())
    monkeypatch.chdir(elsewhere)
    assert found(source) == [("b.jpg", "x", None)]
    assert source.reader.read(source.items[0]) == b"xx"
    (elsewhere / "b.jpg").write_bytes(b"beside")
    source = read(elsewhere, "path,label\na.jpg,x\nb.jpg,x\n", root=folder)
    assert [source.reader.read(item) for item in source.items] == [b"x", b"beside"]
    assert pickle.loads(pickle.dumps(source.reader)) == source.reader


def test_rows_that_come_twice(folder: Path) -> None:
    """The same file with the same label counts once; with other labels, not at all."""
    source = read(
        folder, "path,label\na.jpg,cat\n./a.jpg,cat\nb.jpg,cat\nb.jpg,dog\nsub/c.jpg,dog\n"
    )
    assert found(source) == [("a.jpg", "cat", None), ("sub/c.jpg", "dog", None)]
    assert [(entry.key, entry.reason) for entry in source.rejected] == [
        ("a.jpg", "row 3: already listed in row 2"),
        ("b.jpg", "row 4: label conflicts with row 5"),
        ("b.jpg", "row 5: label conflicts with row 4"),
    ]


def test_splits(folder: Path) -> None:
    """Splits are in lower case and in the usual order; a row without one is left out."""
    text = "split,path,label\nTEST,a.jpg,x\n Train ,b.jpg,x\n,sub/c.jpg,x\n"
    source = read(folder, text)
    assert found(source) == [("a.jpg", "x", "test"), ("b.jpg", "x", "train")]
    assert source.splits == ("train", "test")
    assert reasons(source) == ["row 4: no split, although others have one"]
    source = read(folder, "split,path,label\n,a.jpg,x\n,b.jpg,x\n")
    assert (source.splits, len(source.items), source.rejected) == ((), 2, ())
    source = read(folder, "split,path,label\ntrain,a.jpg,x\ntr-ain,b.jpg,x\nall,sub/c.jpg,x\n")
    assert reasons(source) == [
        "row 3: invalid split name 'tr-ain'",
        "row 4: invalid split name 'all'",
    ]
    lines = '{"path":"a.jpg","label":1}\n{"path":"b.jpg","label":1,"split":"dev"}\n'
    source = read(folder, lines, "table.jsonl")
    assert (found(source), source.splits) == ([("b.jpg", "1", "dev")], ("dev",))


def test_order_of_labels(folder: Path) -> None:
    """Integers are numbered by value, whichever way they are written; else labels are sorted."""
    assert read(folder, "path,label\na.jpg,10\nb.jpg,9\nsub/c.jpg,-1\n").labels == ("-1", "9", "10")
    assert read(folder, "path,label\na.jpg,10\nb.jpg,9\nsub/c.jpg,x\n").labels == ("10", "9", "x")
    lines = '{"path":"a.jpg","label":10}\n{"path":"b.jpg","label":"9"}\n'
    assert read(folder, lines, "table.ndjson").labels == ("9", "10")
    digits = "9" * 1024
    assert read(folder, f'{{"path":"a.jpg","label":{digits}}}', "t.jsonl").labels == (digits,)
    with pytest.raises(SourceError, match="longer than 1,024 characters"):
        read(folder, f'{{"path":"a.jpg","label":{"9" * 6000}}}', "t.jsonl")


def test_what_a_table_is(folder: Path) -> None:
    """Without a telling name, the first character tells."""
    assert len(read(folder, '\n {"path": "a.jpg", "label": "x"}', "table.txt").items) == 1
    assert len(read(folder, "path\tlabel\na.jpg\tx\n", "table").items) == 1
    with pytest.raises(SourceError, match="no such file"):
        read_table(folder / "none.csv")
    with pytest.raises(SourceError, match="is a directory"):
        read_table(folder / "sub")


_NAMES = st.text(
    st.characters(exclude_categories=("Cc", "Cs"), exclude_characters="/\\"), min_size=1
)
_PATHS = st.lists(_NAMES.filter(lambda name: name not in (".", "..")), min_size=1, max_size=3)
_LABELS = st.text(st.characters(exclude_categories=("Cc", "Cs", "Zl", "Zp")), min_size=1)
_ROWS = st.dictionaries(
    _PATHS.map("/".join).filter(lambda path: len(path.encode()) < 100),
    _LABELS.map(str.strip).filter(bool),
    min_size=1,
    max_size=8,
)


@given(rows=_ROWS, splits=st.booleans(), delimiter=st.sampled_from(",;\t"))
def test_a_table_gives_back_what_it_was_written_from(
    rows: dict[str, str], splits: bool, delimiter: str
) -> None:
    """Whatever the paths, labels and splits: CSV and JSON Lines give the same items."""
    assume(refused_label(rows.values()) is None)
    expected = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for number, (path, label) in enumerate(rows.items()):
            file = folder / "images" / path
            try:
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(bytes(number))
            except (IsADirectoryError, FileExistsError, NotADirectoryError):
                continue  # a folder and a file of the same name
            split = ("train", "test")[number % 2] if splits else None
            expected.append((f"images/{path}", label, split, number))
        table = [
            {"path": path, "label": label, **({"split": split} if split else {})}
            for path, label, split, _ in expected
        ]
        out = io.StringIO(newline="")
        writer = csv.DictWriter(
            out, ("split", "path", "label"), delimiter=delimiter, quoting=csv.QUOTE_ALL
        )
        writer.writeheader()
        writer.writerows(table)
        lines = "\n".join(json.dumps(row, ensure_ascii=delimiter == ",") for row in table)
        for text, suffix in ((out.getvalue(), "csv"), (lines, "jsonl")):
            source = read(folder, text, f"table.{suffix}")
            assert source.rejected == ()
            assert [
                (item.key, item.label, item.split, item.bytes) for item in source.items
            ] == sorted(expected)
            for item in source.items:
                assert source.reader.read(item) == bytes(item.bytes)


def test_tables_that_moved_with_their_images(folder: Path) -> None:
    """Leading folders that are gone are dropped from all paths, or from none."""
    (folder / "old.csv").write_text("path,label\ndata/old/sub/c.jpg,cat\ndata/old/a.jpg,dog\n")
    (folder / "sub").mkdir(exist_ok=True)
    (folder / "sub" / "c.jpg").write_bytes((folder / "a.jpg").read_bytes())
    source = read_table(folder / "old.csv")
    assert [item.key for item in source.items] == ["data/old/a.jpg", "data/old/sub/c.jpg"]
    data = (folder / "a.jpg").read_bytes()
    assert [source.reader.read(item) for item in source.items] == [data, data]
    (folder / "gone.csv").write_text("path,label\nsub/c.jpg,cat\ngone/a.jpg,dog\n")
    assert [item.key for item in read_table(folder / "gone.csv").items] == ["sub/c.jpg"]
    (folder / "mixed.csv").write_text("path,label\ngone/a.jpg,dog\nsub/c.jpg,cat\n")
    with pytest.raises(SourceError, match="row 3 names a file as it is"):
        read_table(folder / "mixed.csv")
