"""The TF Object Detection API's label map: names of classes by their numbers, as protobuf text."""

import contextlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import islice
from typing import Any

from tfrtool.errors import DatasetError, printable
from tfrtool.examples.objects.annotation import Skeleton
from tfrtool.examples.tfds_metadata import KEYPOINTS, LABEL_MAP, read_class_names
from tfrtool.records.shard_sets import split_named
from tfrtool.storage.json_values import read_json, reading_metadata
from tfrtool.storage.limits import (
    MAX_CLASS_FILE_BYTES,
    MAX_CLASSES,
)
from tfrtool.storage.opening import read_bounded
from tfrtool.storage.remote_path import AnyPath

_SPACES = re.compile(r"\s*")
_ITEM = re.compile(r"item\s{0,9}:?\s{0,9}[{<[]")
_LONGEST_LINE = 64 * 1024
"""Characters; the parser takes a time that grows with the square of a line's length."""

_MOST_ENTRIES = 10_000
"""Files of a folder that may be its label map."""

_SHOWN = 100
"""Characters of what protobuf says of an error: its end, for it may start with a whole line."""


def label_map_text(names: Mapping[int, str]) -> str:
    """Return the contents of a ``label_map.pbtxt``: names by numbers above 0."""
    items = names.items()
    # Protobuf text has the same escapes as JSON.
    quoted = ((number, json.dumps(name, ensure_ascii=False)) for number, name in items)
    return "\n".join(f"item {{\n  id: {n}\n  name: {name}\n}}\n" for n, name in quoted)


def is_label_map(text: str) -> bool:
    """Return whether a text begins as a label map does."""
    at = 0
    while True:
        match = _SPACES.match(text, at)
        at = match.end() if match else at
        if not text.startswith("#", at):
            return _ITEM.match(text, at) is not None
        at = text.find("\n", at) + 1 or len(text)


def read_label_map(path: str | os.PathLike[str]) -> dict[int, str]:
    """Read a label map: names by their numbers, which are 0 or more, in the order of the file.

    Where an item has a ``display_name``, that is its name, as the Object Detection API has it.

    Raises:
        DatasetError: it can't be read, or is none; the message has the line.
        FileNotFoundError: it isn't there.
    """
    with reading_metadata(path, "the TF Object Detection API"):
        return parse_label_map(read_bounded(path, MAX_CLASS_FILE_BYTES).decode("utf-8-sig"))


def find_label_map(directory: AnyPath) -> AnyPath:
    """Return the label map in a folder, or else in one of its folders of splits.

    It is ``label_map.pbtxt``, or the only file whose name ends so, as Roboflow's
    ``cells_label_map.pbtxt``. Without any, return where it would be.
    """
    usual, folders = directory / LABEL_MAP, [directory]
    with contextlib.suppress(OSError):
        if usual.is_file():
            return usual
        folders += sorted(
            one for one in _entries(directory) if split_named(one.name) and one.is_dir()
        )
    for folder in folders:
        with contextlib.suppress(OSError):
            maps = [one for one in _entries(folder) if one.name.lower().endswith(LABEL_MAP)]
            if len(maps) > 1:
                maps = [one for one in maps if one.name in (LABEL_MAP, f"tf_{LABEL_MAP}")]
            if len(maps) == 1 and maps[0].is_file():
                return maps[0]
    return usual


def _entries(folder: AnyPath) -> Iterator[AnyPath]:
    return islice(folder.iterdir(), _MOST_ENTRIES)


def object_names(directory: AnyPath) -> dict[int, str]:
    """Return the class names of objects by number, from files next to the records.

    Files that are not there, or that can't be read, name none.
    """
    with contextlib.suppress(DatasetError, FileNotFoundError):
        return read_label_map(find_label_map(directory))
    with contextlib.suppress(DatasetError):
        return dict(enumerate(read_class_names(directory, "objects-label") or ()))
    return {}


def object_skeletons(directory: AnyPath) -> dict[str, Skeleton]:
    """Return the key points of objects' classes, from a file next to the records.

    A file that is not there, or that can't be read, names none.
    """
    found: Any = None
    with contextlib.suppress(OSError, ValueError):
        found = read_json(directory / KEYPOINTS)
    entries = islice(found.items(), MAX_CLASSES) if isinstance(found, dict) else ()
    parsed = ((name, Skeleton.parse(one)) for name, one in entries if isinstance(one, dict))
    return {name: skeleton for name, skeleton in parsed if skeleton is not None}


def parse_label_map(text: str) -> dict[int, str]:
    """Return the names in the text of a label map; `ValueError` with the place if it is none."""
    return {number: names[0] for number, names in parse_label_items(text).items()}


def parse_label_items(text: str) -> dict[int, tuple[str, str]]:
    """Like `parse_label_map`, with the name that is displayed and ``name`` for each number."""
    from google.protobuf import text_format

    for number, line in enumerate(text.split("\n"), start=1):
        if len(line) > _LONGEST_LINE:
            raise ValueError(f"line {number}: {len(line):,} characters (limit {_LONGEST_LINE:,})")
    try:
        found = text_format.Parse(text, _label_map()(), allow_unknown_field=True)
    except text_format.ParseError as error:
        reason = printable(str(error).partition(" : ")[2][-_SHOWN:]).rstrip(".")
        raise ValueError(f"line {error.GetLine() or 1}: {reason}") from None
    except RecursionError:
        raise ValueError("nested too deeply") from None
    names: dict[int, tuple[str, str]] = {}
    for position, item in enumerate(found.item, start=1):
        name = item.display_name or item.name
        if not item.HasField("id") or item.id < 0:
            raise ValueError(f"item {position} has no id, or a negative one")
        if not name:
            raise ValueError(f"item {position} has no name")
        if item.id in names:
            raise ValueError(f"item {position}: duplicate id {item.id}")
        names[item.id] = name, item.name
        if position > MAX_CLASSES:
            raise ValueError(f"more than {MAX_CLASSES:,} items")
    return names


@cache
def _label_map() -> Any:
    """Return the message class of the Object Detection API's label maps."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="label_map.proto", package="label_map")
    item, label_map = file.message_type.add(name="Item"), file.message_type.add(name="LabelMap")
    kinds = {"name": field.TYPE_STRING, "id": field.TYPE_INT32, "display_name": field.TYPE_STRING}
    for number, (name, kind) in enumerate(kinds.items(), start=1):
        item.field.add(name=name, number=number, type=kind, label=field.LABEL_OPTIONAL)
    items = label_map.field.add(name="item", number=1, label=field.LABEL_REPEATED)
    items.type, items.type_name = field.TYPE_MESSAGE, ".label_map.Item"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("label_map.LabelMap"))
