"""Labels as a user chooses them: from a file, kept as integers, several an image."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.sources.reading_tables import found, make_images, reasons
from tfrtool.errors import SourceError, TfrtoolError, UsageError
from tfrtool.examples.objects.record_features import LabelKind
from tfrtool.sources.folders.name_pattern import LabelFrom
from tfrtool.sources.items import Source
from tfrtool.sources.label_choice import read_class_list
from tfrtool.sources.open_source import open_source
from tfrtool.sources.source_options import SourceOptions


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with a.jpg, b.jpg and sub/c.jpg."""
    return make_images(tmp_path)


def _table(folder: Path, *labels: str, **options: Any) -> Source:
    rows = zip(("a.jpg", "b.jpg", "sub/c.jpg"), labels, strict=False)
    (folder / "t.csv").write_text("path,label\n" + "".join(f"{k},{v}\n" for k, v in rows))
    return _open(folder / "t.csv", **options)


def _open(path: Path, label_from: LabelFrom = LabelFrom.FOLDER, **options: Any) -> Source:
    return open_source(str(path), label_from, path.parent, options=SourceOptions(**options))


def _file(folder: Path, text: str, name: str = "names.txt") -> str:
    (folder / name).write_bytes(text.encode())
    return str(folder / name)


def test_a_file_says_labels_and_their_order(folder: Path) -> None:
    """Other labels are left out and listed; a class without images keeps its number."""
    names = _file(folder, "\ufeffdog\r\nzebra \r\ncat\r\n\r\n")
    source = _table(folder, "cat", "cow", "dog", labels=names)
    assert source.labels == ("dog", "zebra", "cat")
    assert found(source) == [("a.jpg", "cat", None), ("sub/c.jpg", "dog", None)]
    assert reasons(source) == [f"label 'cow' is not in {names}"]
    assert source.features.label is LabelKind.CLASS


def test_a_label_map_says_numbers(folder: Path) -> None:
    """Its order is that of its numbers, which the Object Detection API's layout keeps."""
    text = "item{id:7 name:'cat'} item{id:3 display_name:'dog'} item{id:0 name:'background'}"
    names = _file(folder, text, "label_map.pbtxt")
    plain = _table(folder, "cat", "dog", labels=names)
    assert (plain.labels, plain.features.class_ids) == (("dog", "cat"), ())
    tfod = _table(folder, "cat", "dog", labels=names, layout="tfod")
    assert (tfod.labels, tfod.features.class_ids) == (("dog", "cat"), (3, 7))


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("cat\n\ndog\n", "line 2: name '' is empty"),
        ("cat\ndog\ncat\n", "line 3: name 'cat'"),
        ("cat\nd\x0bog\n", r"line 2: name 'd\\\\x0bog'"),
        ("\n \n", "0 names"),
        ("cat\n" * 100_001, "100,001 names, expected 1 to 100,000"),
        ("item { id: 1 name: 'a' }\nitem { id: 2 name: 'a' }", "name 'a'"),
        ("item { id: 0 name: 'a' }", "id 0 .*'background'"),
        ("item { id: 1\n name 'a' }", 'line 2: .*Expected ":"'),
    ],
)
def test_a_file_that_is_no_list_of_names(folder: Path, text: str, what: str) -> None:
    """It is an error that says where."""
    with pytest.raises(SourceError, match=f"names.txt: not a list of class names: {what}"):
        read_class_list(Path(_file(folder, text)))


def test_a_file_that_is_not_there(folder: Path) -> None:
    """So is one that can't be read, is no text, or has none of the labels."""
    with pytest.raises(SourceError, match=r"none\.txt: can't be read: no such file"):
        _table(folder, "cat", labels=str(folder / "none.txt"))
    (folder / "latin.txt").write_bytes(b"k\xe4t\n")
    with pytest.raises(SourceError, match=r"not a list of class names.*UTF-8"):
        read_class_list(folder / "latin.txt")
    with pytest.raises(SourceError, match=r"a\.jpg: label 'cat' is not in"):
        _table(folder, "cat", labels=_file(folder, "dog\n"))
    (folder / "u.csv").write_text("path,x\na.jpg,1\n")
    with pytest.raises(SourceError, match=r"no label column.*found 'path', 'x'"):
        _open(folder / "u.csv", columns=("x",), labels="keep")


def test_integers_are_kept(folder: Path) -> None:
    """Whatever they are, as long as 64 bits hold them; nothing is said of other numbers."""
    source = _table(folder, "-5", "0100", str(2**63 - 1), labels="keep")
    assert [item.label for item in source.items] == ["-5", "100", str(2**63 - 1)]
    assert source.labels == ("-5", "100", str(2**63 - 1))
    assert (source.features.label, source.notices) == (LabelKind.NUMBER, ())


def test_labels_that_are_no_integers_are_listed(folder: Path) -> None:
    """The images with them are left out; if that is all of them, it is an error."""
    source = _table(folder, "cat", str(2**63), "7", labels="keep")
    assert found(source) == [("sub/c.jpg", "7", None)]
    assert reasons(source) == [
        "label 'cat' is not a 64-bit integer",
        f"label '{2**63}' is not a 64-bit integer",
    ]
    with pytest.raises(SourceError, match=r"'cat' is not a 64-bit integer"):
        _table(folder, "cat", "dog", labels="keep")
    with pytest.raises(SourceError, match=r"fractions.*--column"):
        _table(folder, "1.5", "2", labels="keep")


def test_several_labels_in_a_cell(folder: Path) -> None:
    """They are told apart by what the user says, once each; an image may have none."""
    source = _table(folder, "cat; dog;cat;", "", ";fur", multi_label=";")
    names = [source.features.names(item.label) for item in source.items]
    assert (names, source.labels) == ([["cat", "dog"], (), ["fur"]], ("cat", "dog", "fur"))
    assert source.features.label is LabelKind.CLASSES
    listed = _table(folder, "\"['a;b', 'c']\"", '"[""d""]"', "[broken", multi_label=";")
    names = [listed.features.names(item.label) for item in listed.items]
    assert names == [["a;b", "c"], ["d"], ["[broken"]]
    assert reasons(_table(folder, "a", "[1.5]", multi_label=";")) == [
        "row 3: labels are not a list of names"
    ]


def test_lists_of_labels_in_json(folder: Path) -> None:
    """A list of JSON is one whatever separates labels in texts; names may have commas."""
    rows = ['{"path":"a.jpg","label":["x, y",3]}', '{"path":"b.jpg","label":[]}']
    (folder / "t.jsonl").write_text("\n".join(rows))
    source = _open(folder / "t.jsonl", multi_label=",")
    names = [source.features.names(item.label) for item in source.items]
    assert (names, source.labels) == ([["x, y", "3"], ()], ("3", "x, y"))
    with pytest.raises(SourceError, match=r"several labels.*--multi-label"):
        _open(folder / "t.jsonl")


def test_lists_of_labels_in_parquet(folder: Path) -> None:
    """A column of lists is one of labels."""
    import pyarrow as pa
    import pyarrow.parquet

    table = pa.table({"path": ["a.jpg", "b.jpg"], "label": [["cat", "dog"], []]})
    pyarrow.parquet.write_table(table, folder / "t.parquet")
    source = _open(folder / "t.parquet", multi_label=";")
    names = [source.features.names(item.label) for item in source.items]
    assert names == [["cat", "dog"], ()]


def test_the_refusal_names_the_separator(folder: Path) -> None:
    """A table with several labels in a cell is refused with the option that writes it."""
    with pytest.raises(SourceError) as caught:
        _table(folder, "cat|dog", "dog")
    assert "--multi-label '|'" in str(caught.value.hint)
    assert _table(folder, "cat|dog", "dog", multi_label="|").labels == ("cat", "dog")


def test_several_labels_in_names_of_folders_and_files(tmp_path: Path) -> None:
    """What separates labels in a table does so in names."""
    for name in ("cat+dog/1.jpg", "dog/2.jpg"):
        (tmp_path / "f" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "f" / name).write_bytes(b"x")
    (tmp_path / "n").mkdir()
    for name in ("cat+dog.1.jpg", "dog.2.jpg"):
        (tmp_path / "n" / name).write_bytes(b"x")
    for source in (
        _open(tmp_path / "f", multi_label="+"),
        _open(tmp_path / "n", LabelFrom.FILENAME, multi_label="+"),
    ):
        names = [source.features.names(item.label) for item in source.items]
        assert (names, source.labels) == ([["cat", "dog"], ["dog"]], ("cat", "dog"))
    names_file = _file(tmp_path, "dog\n")
    source = _open(tmp_path / "f", multi_label="+", labels=names_file)
    assert reasons(source) == [f"label 'cat' is not in {names_file}"]


def test_labels_that_are_too_many(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers of which each image has another are a column, which is named."""
    monkeypatch.setattr("tfrtool.sources.label_choice.MAX_CLASSES", 1)
    with pytest.raises(
        SourceError, match="too many different labels: expected at most 1"
    ) as caught:
        _table(folder, "1", "2", labels="keep")
    assert "--column NAME:int64" in str(caught.value.hint)


@pytest.mark.parametrize(
    "options",
    [
        {"multi_label": ";", "labels": "keep"},
        {"multi_label": ""},
        {"columns": ("",)},
        {"masks": "png"},
    ],
)
def test_options_that_exclude_each_other(folder: Path, options: dict[str, Any]) -> None:
    """Several integers an image can't be kept, nothing separates nothing, nothing has a mask."""
    with pytest.raises(TfrtoolError) as caught:
        _table(folder, "1", **options)
    assert isinstance(caught.value, UsageError)


_MAP = """
item { id: 1 name: '/m/01yrx' display_name: ' Cat ' }
item { id: 2 name: '/m/0bt9lr' display_name: 'Dog' }
item { id: 3 name: 'Cow' }
item { id: 4 name: 'none' display_name: 'Hen' }
item { id: 5 name: 'none' display_name: 'Pig' }
"""


def test_both_names_of_a_label_map_are_known(folder: Path) -> None:
    """A class has the name that is displayed; its other name means it, unless several have that."""
    source = _table(folder, "/m/0bt9lr", "Cat", "none", labels=_file(folder, _MAP))
    assert found(source) == [("a.jpg", "Dog", None), ("b.jpg", "Cat", None)]
    assert source.labels == ("Cat", "Dog", "Cow", "Hen", "Pig")
    assert "label 'none' is not in" in reasons(source)[0]
    source = _table(folder, "/m/0bt9lr;Dog", "Cow", labels=_file(folder, _MAP), multi_label=";")
    assert [item.label for item in source.items] == ["Dog", "Cow"]


def test_a_name_of_two_classes_is_refused(folder: Path) -> None:
    """What one class is called by its name, and another one as displayed, means neither."""
    text = "item { id: 1 name: 'b' display_name: 'a' } item { id: 2 name: 'x' display_name: 'b' }"
    with pytest.raises(SourceError, match="name 'b'"):
        read_class_list(Path(_file(folder, text)))
