"""Label maps, read and written; protobuf's own text format is the oracle."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format
from hypothesis import given
from hypothesis import strategies as st

from tfrtool.errors import DatasetError
from tfrtool.examples.objects.label_map import (
    label_map_text,
    object_names,
    parse_label_map,
    read_label_map,
)
from tfrtool.storage.limits import MAX_CLASS_FILE_BYTES

NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)


def _label_map() -> Any:
    """Return the message of the Object Detection API's string_int_label_map.proto."""
    field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="label_map.proto", package="api")
    item, whole = file.message_type.add(name="Item"), file.message_type.add(name="Map")
    text, number = field.TYPE_STRING, field.TYPE_INT32
    for place, (name, kind) in enumerate(
        [("name", text), ("id", number), ("display_name", text), ("instance_count", number)], 1
    ):
        item.field.add(name=name, number=place, type=kind, label=field.LABEL_OPTIONAL)
    again = {"type_name": ".api.Item", "label": field.LABEL_REPEATED}
    item.field.add(name="keypoints", number=5, type=field.TYPE_MESSAGE, **again)
    whole.field.add(name="item", number=1, type=field.TYPE_MESSAGE, **again)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("api.Map"))


LABEL_MAP = _label_map()


@given(st.dictionaries(st.integers(0, 2**31 - 1), NAMES))
def test_what_is_written_is_read_by_protobuf_and_again(names: dict[int, str]) -> None:
    """Whatever characters names have, ours is text of protobuf, and both get the names of it."""
    text = label_map_text(names)
    theirs = text_format.Parse(text, LABEL_MAP())
    assert {item.id: item.name for item in theirs.item} == names
    assert parse_label_map(text) == names


@given(st.dictionaries(st.integers(0, 2**31 - 1), st.tuples(NAMES, NAMES)), st.booleans())
def test_protobufs_own_text_is_read(names: dict[int, tuple[str, str]], as_utf8: bool) -> None:
    """Octal escapes, further fields and messages in items; the name that is displayed counts."""
    message = LABEL_MAP()
    for number, (name, shown) in names.items():
        item = message.item.add(name=name, id=number, display_name=shown, instance_count=7)
        item.keypoints.add(id=1, name="nose")
    for one_line in (False, True):
        text = text_format.MessageToString(message, as_utf8=as_utf8, as_one_line=one_line)
        assert parse_label_map(text) == {number: shown for number, (_, shown) in names.items()}


@pytest.mark.parametrize(
    "text",
    [
        "item { id: 1 name: 'cat' }",
        "# a comment {\nitem: <\n  name: 'c' \"at\"  # item { id: 2 }\n  id: 1;\n>",
        "item: [{ id: 1, name: '\\x63\\141t' display_name: '' }]",
        "\ufeffitem {\r\n  keypoints { id: 2 name: 'nose' }\r\n  id: 1\r\n  name: 'cat'\r\n}\r\n",
    ],
)
def test_ways_to_write_it(text: str, tmp_path: Path) -> None:
    """Comments, either kind of brackets and quotation marks, texts in parts, lists, a BOM."""
    path = tmp_path / "label_map.pbtxt"
    path.write_text(text, "utf-8", newline="")
    assert read_label_map(path) == {1: "cat"}
    theirs = text_format.Parse(text.removeprefix("\ufeff"), LABEL_MAP())
    assert [(item.id, item.name) for item in theirs.item] == [(1, "cat")]


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("cat\ndog\n", "line 2: 'dog': Expected \"{\""),
        ("item {\n  id: 1\n  name: 'cat'\n", 'line 3: Expected "}"'),
        ("item {\n  id: 1\n  name: 'cat\n}", "line 3: .*quote"),
        ("item {\n  id: 1\n  name: '\\377'\n}", "line 4: .*utf-8"),
        ("item {\n  id: 1\n}", "item 1 has no name"),
        ("item { id: 1 name: 'a' }\nitem {\n  name: 'cat'\n}", "item 2 has no id"),
        ("item {\n  name: 'cat'\n  id: -1\n}", "item 1 has no id"),
        ("item {\n  name: 'cat'\n  id: 4294967297\n}", "line 3: .*out of range"),
        ("item { id: 1 name: 'a' }\nitem { id: 1 name: 'a' }", "item 2: duplicate id 1"),
        ("item { id: 1 name: cat }", "line 1: .*Expected string but found: 'cat'"),
        ("item { id 1 }", 'line 1: .*Expected ":"'),
        ("item { id: 1 name: 'a' } }", "line 1: .*got }"),
        ("item {\n" + "a {\n" * 200_000, "nested too deeply"),
        ("item {\n  a: " + "b" * 200_000, "line 2: 200,005 characters"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(text: str, what: str, tmp_path: Path) -> None:
    """A file that is none is an error; protobuf doesn't take it, or it makes no label map."""
    path = tmp_path / "label_map.pbtxt"
    path.write_text(text)
    with pytest.raises(DatasetError, match=what) as caught:
        read_label_map(path)
    assert caught.value.path == str(path)
    assert len(str(caught.value)) < 500


def test_a_file_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither more bytes nor more names are read than a dataset may have."""
    path = tmp_path / "label_map.pbtxt"
    path.write_bytes(b" " * (MAX_CLASS_FILE_BYTES + 1))
    with pytest.raises(DatasetError, match="larger than 16,777,216 bytes"):
        read_label_map(path)
    monkeypatch.setattr("tfrtool.examples.objects.label_map.MAX_CLASSES", 10)
    path.write_text("".join(f"item{{id:{n} name:'c'}}" for n in range(11)))
    with pytest.raises(DatasetError, match="more than 10 items"):
        read_label_map(path)


def test_names_beside_records(tmp_path: Path) -> None:
    """A label map or TFDS' list of names says what numbers mean; a broken one nothing."""
    assert object_names(tmp_path) == {}
    (tmp_path / "objects-label.labels.txt").write_text("cat\ndog\n")
    assert object_names(tmp_path) == {0: "cat", 1: "dog"}
    (tmp_path / "label_map.pbtxt").write_text("item { id: 3 name: 'cat' }")
    assert object_names(tmp_path) == {3: "cat"}
    (tmp_path / "label_map.pbtxt").write_text("item { id: 3")
    assert object_names(tmp_path) == {0: "cat", 1: "dog"}
