"""Arrow files of other software: IPC files (also Feather), and streams.

They are read in the process of `parquet_reader`, because pyarrow crashes on some damaged files.
"""

import base64
import contextlib
import re
import struct
from collections.abc import Iterator
from itertools import islice
from typing import Any, BinaryIO

import pyarrow as pa

from tfrtool.errors import SourceError, some_of
from tfrtool.sources.formats.arrow_magic import FEATHER_1, FILE, STREAM
from tfrtool.storage.opening import open_regular
from tfrtool.storage.remote_path import AnyPath

_SCHEMA = re.compile(rb"ARROW:schema\x18[\x80-\xff]{0,4}[\x00-\x7f](/{4}[0-9A-Za-z+/]+)")
"""Arrow's schema in base64, as the footer of a Parquet file has it after its size."""

_LONGEST_SCHEMA, _MOST_FIELDS, _INTEGER, _SHOWN = 16 * 1024 * 1024, 1_000_000, 2, 20
_MAGIC_BYTES, _PREFIX_BYTES = 4, 8


@contextlib.contextmanager
def open_arrow(path: str | AnyPath) -> Iterator["ArrowFile"]:
    """Open an Arrow file or stream; a ValueError for version 1 of Feather."""
    with open_regular(path) as file, naming_columns(file):
        yield ArrowFile(file)


@contextlib.contextmanager
def naming_columns(file: BinaryIO) -> Iterator[None]:
    """Report types that Arrow's library can't read, with the columns where they are known."""
    try:
        yield
    except pa.ArrowNotImplementedError as error:
        names = [*map(repr, _wide_integers(file))]
        what = f"unsupported type of column{'s' * (len(names) > 1)} {some_of(names, _SHOWN)}"
        raise SourceError(
            what if names else "unsupported type of a column",
            found="integers with more than 64 bits" if names else str(error)[:200],
        ) from error


def _wide_integers(file: BinaryIO) -> list[str]:
    """Return the columns with integers of more than 64 bits, by Arrow's schema of the file.

    Arrow's library reads no such schema, and doesn't say which columns these are. The schema is a
    flatbuffer (Schema.fbs): in the footer of an Arrow file, and a Message elsewhere.
    """
    file.seek(0)
    head, end = file.read(len(FILE)), file.seek(0, 2)
    is_file, is_stream = head == FILE, head.startswith(STREAM)
    tail = len(FILE) if is_file else _MAGIC_BYTES
    file.seek(max(end - tail - 4, 0))
    size = int.from_bytes(file.read(4), "little")
    start = _PREFIX_BYTES if is_stream else max(end - tail - 4 - min(size, _LONGEST_SCHEMA), 0)
    file.seek(start)
    message = file.read(_LONGEST_SCHEMA)
    if not (is_file or is_stream):
        found = _SCHEMA.search(message)
        text = found[1] if found else b""
        message = base64.b64decode(text[: len(text) // 4 * 4])[_PREFIX_BYTES:]

    def read(form: str, position: int) -> int:
        return int(struct.unpack_from(form, message, position)[0])

    def follow(position: int) -> int:
        return position + read("<I", position)

    def place_of(table: int, index: int) -> int:
        vtable, slot = table - read("<i", table), 4 + 2 * index
        offset = read("<H", vtable + slot) if slot < read("<H", vtable) else 0
        if not offset:
            raise LookupError(index)
        return table + offset

    def tables(table: int, index: int) -> list[int]:
        vector = follow(place_of(table, index))
        numbers = zip(range(1, read("<I", vector) + 1), left, strict=False)
        return [follow(vector + 4 * number) for number, _ in numbers]

    def is_wide(field: int) -> bool:
        fields = [field]
        while fields:
            current = fields.pop()
            with contextlib.suppress(LookupError):
                is_integer = read("<B", place_of(current, 2)) == _INTEGER
                if is_integer and read("<i", place_of(follow(place_of(current, 3)), 0)) > 64:
                    return True
            with contextlib.suppress(LookupError):
                fields += tables(current, 5)
        return False

    names, left = list[str](), iter(range(_MOST_FIELDS))
    with contextlib.suppress(struct.error, LookupError):
        for field in tables(follow(place_of(follow(0), 1 if is_file else 2)), 1):
            name = follow(place_of(field, 0))
            if is_wide(field):
                names.append(message[name + 4 :][: read("<I", name)].decode(errors="replace"))
    return names


class ArrowFile:
    """The record batches of a file or stream."""

    def __init__(self, file: BinaryIO) -> None:
        """Read the schema."""
        head = file.read(len(FILE))
        file.seek(0)
        if head.startswith(FEATHER_1):
            raise ValueError("Feather version 1 is not supported; save it as version 2")
        self._file = head.startswith(FILE)
        self._reader: Any = (pa.ipc.open_file if self._file else pa.ipc.open_stream)(file)
        self.schema: pa.Schema = self._reader.schema

    def batches(self, first: int = 0) -> Iterator[Any]:
        """Yield the record batches from a number on."""
        if self._file:
            return map(self._reader.get_batch, range(first, self._reader.num_record_batches))
        return islice(self._reader, first, None)


def leaf_paths(name: str, array: Any) -> Iterator[tuple[str, Any]]:
    """Yield a column, or the fields of a struct, with the paths that Parquet has for them."""
    if not pa.types.is_struct(array.type):
        yield name, array
        return
    for field, child in zip(array.type, array.flatten(), strict=True):
        yield from leaf_paths(f"{name}.{field.name}", child)
