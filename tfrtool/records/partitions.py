"""Folders such as ``dt=2024-01-01``: Spark, Hive and DuckDB name them by the values of a column."""

import enum
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date
from typing import NamedTuple
from urllib.parse import unquote_to_bytes

from tfrtool.storage.remote_path import AnyPath

COMPLETE = "_SUCCESS"
"""The file that Spark writes into a folder once all its files are complete."""

_NULL = "__HIVE_DEFAULT_PARTITION__"
"""The value of a folder whose rows have null, or an empty text."""

_SPLIT = "split"
"""The column whose values are splits, too."""

_INTEGER = re.compile(r"0|-?[1-9]\d{0,18}", re.ASCII)
_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_INT64 = range(-(1 << 63), 1 << 63)


class PartitionKind(enum.Enum):
    """The type of the values of a column in the names of folders."""

    TEXT = "text"
    INTEGER = "int64"
    DATE = "date"


class PartitionFolder(NamedTuple):
    """What a folder says of the records in it."""

    name: str
    value: str | None

    @classmethod
    def parse(cls, folder: str) -> "PartitionFolder | None":
        """Return what a folder's name says; None if it isn't ``NAME=VALUE``.

        Percent signs stand for other characters, as in Hive.
        """
        name, equals, value = folder.partition("=")
        if not name or not equals:
            return None
        return cls(_unescaped(name), None if value == _NULL else _unescaped(value))


def partition_folders(path: AnyPath) -> tuple[PartitionFolder, ...]:
    """Return what the folders right above a file say of its records, the outermost one first."""
    found = list[PartitionFolder]()
    folder = path.parent
    while (parsed := PartitionFolder.parse(folder.name)) is not None:
        found.insert(0, parsed)
        folder = folder.parent
    return tuple(found)


def folder_of_partitions(directory: AnyPath, root: AnyPath | None = None) -> AnyPath:
    """Return the folder, ``root`` at most, in which a directory is a value of columns, or itself.

    A folder such as ``split=train`` is returned: it is a split, too.
    """
    while directory != root and (parsed := PartitionFolder.parse(directory.name)) is not None:
        if split_of_partition(parsed) is not None:
            break
        directory = directory.parent
    return directory


def split_of_partition(folder: PartitionFolder | None) -> str | None:
    """Return the split that a folder ``split=NAME`` is; None for any other folder."""
    if folder is None or folder.name.lower() != _SPLIT:
        return None
    return folder.value or None


def is_finished(path: AnyPath) -> bool:
    """Return whether a file is the output of a job that has finished, and so meant to be empty."""
    folder = path.parent
    with suppress(OSError):
        while not (folder / COMPLETE).exists():
            if PartitionFolder.parse(folder.name) is None:
                return False
            folder = folder.parent
        return True
    return False


@dataclass(frozen=True, slots=True)
class PartitionColumn:
    """A column whose values are in the names of folders.

    Attributes:
        name: its name.
        kind: integers and dates if all values are written as such; otherwise text.
        values: those of each shard; null is None.
    """

    name: str
    kind: PartitionKind
    values: Mapping[AnyPath, str | int | date | None]


def partition_columns(shards: Sequence[AnyPath]) -> tuple[PartitionColumn, ...]:
    """Return the columns that the folders of shards have in common, the outermost one first.

    There are none if shards are in folders of different names.
    """
    folders = {shard: partition_folders(shard) for shard in shards}
    names = [tuple(one.name for one in found) for found in folders.values()]
    if len({*names}) != 1:
        return ()
    columns = []
    for level, name in enumerate(names[0]):
        texts = {shard: found[level].value for shard, found in folders.items()}
        kind = _kind(text for text in texts.values() if text is not None)
        values = {shard: _typed(text, kind) for shard, text in texts.items()}
        columns.append(PartitionColumn(name, kind, values))
    return tuple(columns)


def _kind(texts: Iterable[str]) -> PartitionKind:
    """Return the type that all texts are the only spelling of: ``01`` stays a text."""
    values = {*texts}
    if values and all(_INTEGER.fullmatch(text) and int(text) in _INT64 for text in values):
        return PartitionKind.INTEGER
    return PartitionKind.DATE if values and all(map(_is_date, values)) else PartitionKind.TEXT


def _is_date(text: str) -> bool:
    if not _DATE.fullmatch(text):
        return False
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True


def _typed(text: str | None, kind: PartitionKind) -> str | int | date | None:
    if text is None or kind is PartitionKind.TEXT:
        return text
    return int(text) if kind is PartitionKind.INTEGER else date.fromisoformat(text)


def _unescaped(text: str) -> str:
    """Return a text with the characters that percent signs stand for, if they are UTF-8."""
    data = text.encode("utf-8", "surrogateescape")
    decoded = unquote_to_bytes(data)
    try:
        return decoded.decode()
    except UnicodeDecodeError:
        return data.decode("utf-8", "backslashreplace")
