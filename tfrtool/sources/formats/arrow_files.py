"""Arrow files of other software: IPC files (also Feather), and streams.

They are read in the process of `parquet_reader`, because pyarrow crashes on some damaged files.
"""

import contextlib
from collections.abc import Iterator
from itertools import islice
from typing import Any, BinaryIO

import pyarrow as pa

from tfrtool.sources.formats.arrow_magic import FEATHER_1, FILE
from tfrtool.storage.opening import open_regular
from tfrtool.storage.remote_path import AnyPath


@contextlib.contextmanager
def open_arrow(path: str | AnyPath) -> Iterator["ArrowFile"]:
    """Open an Arrow file or stream; a ValueError for version 1 of Feather."""
    with open_regular(path) as file:
        yield ArrowFile(file)


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


def null_paths(name: str, array: Any) -> Iterator[str]:
    """Yield the path of a column with nulls, or those of its fields, as Parquet names them."""
    if pa.types.is_struct(array.type):
        for number in range(array.type.num_fields):
            yield from null_paths(f"{name}.{array.type[number].name}", array.flatten()[number])
    elif array.null_count:
        yield name
