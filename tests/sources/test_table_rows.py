"""The forms of tables, and what only looks like one."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path

import pytest

from tests.sources.reading_tables import found, make_images, read, reasons
from tfrtool.errors import SourceError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with three files."""
    return make_images(tmp_path)


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
@pytest.mark.parametrize("bom", [b"", b"\xef\xbb\xbf"], ids=["plain", "bom"])
@pytest.mark.parametrize("end", ["\n", "\r\n"], ids=["lf", "crlf"])
def test_forms_of_csv(folder: Path, delimiter: str, bom: bytes, end: str) -> None:
    """Separators, a BOM and line ends make no difference, nor do other columns and quotes."""
    rows = [
        "Image_URI|caption|LABEL",
        'a.jpg|"one, two; three\tfour"|cat',
        '"b.jpg"|"a ""caption""' + end + 'on two lines"|"dog"',
        "",
        "sub/c.jpg|| cat ",
    ]
    text = end.join(rows).replace("|", delimiter)
    source = read(folder, bom + text.encode())
    assert found(source) == [
        ("a.jpg", "cat", None),
        ("b.jpg", "dog", None),
        ("sub/c.jpg", "cat", None),
    ]
    assert [item.bytes for item in source.items] == [1, 2, 3]
    assert (source.splits, source.rejected) == ((), ())


@pytest.mark.parametrize("path", ["path", "image", "FILENAME", "file_name", " filepath ", "file"])
@pytest.mark.parametrize("label", ["label", "Class", "class_name", "category", "target"])
def test_usual_names_of_columns(folder: Path, path: str, label: str) -> None:
    """Columns are found by the names in common use, in CSV and in JSON Lines."""
    expected = [("a.jpg", "x", None)]
    assert found(read(folder, f"{label},{path}\nx,a.jpg\n")) == expected
    text = json.dumps({path: "a.jpg", label: "x", "other": [1]})
    assert found(read(folder, text, "table.jsonl")) == expected


def test_blanks_behind_separators(folder: Path) -> None:
    """A blank before a quotation mark does not make the marks a part of the label."""
    source = read(folder, 'path, label\na.jpg, "cat"\n"b.jpg", dog\n')
    assert found(source) == [("a.jpg", "cat", None), ("b.jpg", "dog", None)]


def test_long_tables(folder: Path) -> None:
    """A row is bounded, a table isn't."""
    caption = "x" * 100_000
    rows = "".join(f'none.jpg,"{caption}\n",cat\n' for _ in range(30))
    source = read(folder, f"path,caption,label\n{rows}a.jpg,{caption},cat\n")
    assert (found(source), len(source.rejected)) == ([("a.jpg", "cat", None)], 30)


def test_no_known_columns(folder: Path) -> None:
    """The error lists the columns that there are."""
    with pytest.raises(SourceError) as caught:
        read(folder, "photo;kind;\x1b[31m\na.jpg;cat;\n")
    assert "'photo', 'kind', '\\x1b[31m'" in str(caught.value)
    assert caught.value.path == str(folder / "table.csv")
    with pytest.raises(SourceError, match="'photo', 'kind'"):
        read(folder, '{"photo": "a.jpg", "kind": "cat"}', "table.jsonl")
    with pytest.raises(SourceError, match="and 90 more"):
        read(folder, ",".join(f"c{number}" for number in range(100)))
    with pytest.raises(SourceError, match="'label'"):
        read(folder, "path,label,Label\na.jpg,1,2\n")


def test_without_a_header(folder: Path) -> None:
    """Two or three columns need no header if the first row names an image."""
    assert found(read(folder, "a.jpg,cat\nb.jpg,dog\n")) == [
        ("a.jpg", "cat", None),
        ("b.jpg", "dog", None),
    ]
    assert found(read(folder, "a.jpg;cat;TRAIN\n")) == [("a.jpg", "cat", "train")]
    assert found(read(folder, "TEST,a.jpg,cat\n")) == [("a.jpg", "cat", "test")]
    source = read(folder, "missing.jpg,cat\na.jpg,cat\n")
    assert (found(source), reasons(source)) == ([("a.jpg", "cat", None)], ["row 1: no such file"])
    for text in ("a,cat\na.jpg,cat\n", "a.jpg\n", "a.jpg,cat,train,4\n"):
        with pytest.raises(SourceError, match="'path' and 'label'"):
            read(folder, text)


JSON_LINES = [
    ('{"path": true, "label": 1}', "path is not a string"),
    ('{"path": "b.jpg", "label": 1, "split": []}', "split is not a string"),
    ('{"path": "b.jpg", "label": 1.5}', "label is not a string or an integer"),
    ('{"path": "b.jpg", "label": true}', "label is not a string or an integer"),
    ('{"path": "b.jpg", "label": NaN}', "label is not a string or an integer"),
    ('{"path": "b.jpg", "label": {"x": 1}}', "label is not a string or an integer"),
    ('{"path": "b.jpg", "label": null}', "no label"),
    ('{"path": "b.jpg", "label": "\\ud800"}', "label '\\ud800' is not valid UTF-8"),
    ('{"path": "b.jpg\\u0000", "label": "x"}', "path contains unprintable characters"),
    ('{"path": "\\ud800", "label": "x"}', "path contains unprintable characters"),
    ('{"path": "file:///b%07.jpg", "label": "x"}', "path contains unprintable characters"),
    ('{"path": "file:///b%ff.jpg", "label": "x"}', "path contains unprintable characters"),
    (
        '{"path": "file://host/b.jpg", "label": "x"}',
        "not the URI of a local file, such as file:///data/cat.jpg",
    ),
    ('["b.jpg", "x"]', "not a JSON object"),
    ('{"path": "b.jpg", "label": "x", "n": 1e400}', "the number 1e400 is too large"),
    ("b.jpg,x", "not valid JSON (column 1)"),
    ("[" * 100_000, "nested too deeply"),
    ('{"a":' * 100_000, "nested too deeply"),
    ('{"path": "b.jpg", "label": "x"', "not valid JSON (column 31)"),
]


@pytest.mark.parametrize(("line", "reason"), JSON_LINES, ids=range(len(JSON_LINES)))
def test_hostile_json_lines(folder: Path, line: str, reason: str) -> None:
    """A line that can't be used is left out with its reason, and costs no other line."""
    text = f'{{"path": "a.jpg", "label": "x"}}\n\n{line}\n{{"path": "sub/c.jpg", "label": "x"}}'
    source = read(folder, text.encode("utf-8", "surrogateescape"), "table.jsonl")
    assert found(source) == [("a.jpg", "x", None), ("sub/c.jpg", "x", None)]
    assert reasons(source) == [f"row 3: {reason}"]


def test_a_list_of_json_objects(folder: Path) -> None:
    """Its elements are rows, and counted as such."""
    rows = '[{"path": "a.jpg", "label": "x"},\n\n{"path": "none.jpg", "label": "x"}]'
    source = read(folder, rows, "table.json")
    assert found(source) == [("a.jpg", "x", None)]
    assert reasons(source) == ["row 2: no such file"]


@pytest.mark.parametrize("text", ['{\n"path": "a.jpg",\n"label": 1}', "", "\n\n"])
def test_json_that_is_no_json_lines(folder: Path, text: str) -> None:
    """A JSON document is refused, and the error says what is expected."""
    with pytest.raises(SourceError, match="JSON Lines"):
        read(folder, text, "table.json")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"x" * 2_000_000, "line 3 is longer than 1,048,576 bytes"),
        (b"caf\xe9", "line 3 is not valid UTF-8"),
    ],
)
def test_what_is_no_text_is_no_json_lines(folder: Path, line: bytes, message: str) -> None:
    """As with CSV, a file with such a line is refused as a whole."""
    with pytest.raises(SourceError, match=message):
        read(folder, b'{"path": "a.jpg", "label": "x"}\n\n' + line, "table.jsonl")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "empty file"),
        (b"\n\n", "empty file"),
        (b"path,label\na.jpg,x\0\n", "line 2 contains a NUL"),
        (b"path,label\nb.jpg,x\na.jpg,caf\xe9\n", "line 3 is not valid UTF-8"),
        ("path,label\na.jpg,x\n".encode("utf-16"), "line 1 is not valid UTF-8"),
        (b'path,label\na.jpg,"x\nb.jpg,y\n', "quotation mark"),
        (b'path,label\na.jpg,"x"y\n', "line 2: invalid CSV"),
        (b"path,label\na.jpg," + b"x" * 2_000_000, "line 2 is longer than 1,048,576 bytes"),
        (b'path,label\na.jpg,"' + b"x\n" * 100_000, "line [0-9]+: invalid CSV.*quotation"),
        (
            b'path,label\na.jpg,"' + b'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx","x\n' * 30_000,
            "row is longer than 1,048,576.*quotation",
        ),
        (b"x" * 2_000_000, "line 1 is longer than 1,048,576 bytes"),
        (b"path,label\ra.jpg,x\r", "line 1: invalid CSV"),
        (b"\xff\xd8\xff\xe0" + bytes(1000), "not valid UTF-8"),
    ],
    ids=range(13),
)
def test_hostile_csv(folder: Path, data: bytes, message: str) -> None:
    """What is no table in UTF-8 is refused as a whole, at a bounded cost."""
    tracemalloc.start()
    try:
        with pytest.raises(SourceError, match=message) as caught:
            read(folder, data)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(str(caught.value)) < 1000
    assert peak < 30_000_000
