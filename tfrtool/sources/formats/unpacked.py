"""Files that may be compressed with gzip: tables to read, and files to write."""

import contextlib
import gzip
import io
import math
import shutil
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, cast

from tfrtool.errors import SourceError
from tfrtool.storage.limits import row_limit, unpacked_limit, unpacked_text_limit
from tfrtool.storage.opening import open_regular, size_of_file
from tfrtool.storage.remote_path import AnyPath

_MAGIC = b"\x1f\x8b"
_SUFFIXES = (".gz", ".tgz")
_BUFFER = 256 * 1024


class _Unpacked(io.RawIOBase):
    """The content of a gzip file, which has limits; damage is a `SourceError`."""

    def __init__(
        self, file: BinaryIO, path: AnyPath, *, most_bytes: float, most_lines: float
    ) -> None:
        self._path, self._data = path, gzip.GzipFile(fileobj=file)
        self._most_bytes, self._most_lines = most_bytes, most_lines
        self._lines, self._counted = 0, 0  # lines up to this offset

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        with self._errors():
            count = self._data.readinto(buffer)
        end = self._data.tell()
        if end > self._counted:
            new = min(end - self._counted, count)
            self._lines += bytes(buffer[count - new : count]).count(b"\n")
            self._counted = end
        for most, found, unit in (
            (self._most_bytes, end, "bytes"),
            (self._most_lines, self._lines, "lines"),
        ):
            if found > most:
                what = f"decompresses to more than {most:,} {unit}"
                raise SourceError(what, path=self._path, hint="decompress it if you trust it")
        return count

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        with self._errors():
            return self._data.seek(offset, whence)

    def tell(self) -> int:
        return self._data.tell()

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            what, offset = "truncated or damaged gzip data", self._data.tell()
            raise SourceError(what, path=self._path, offset=offset) from error


@contextlib.contextmanager
def open_unpacked(
    path: AnyPath, *, copied: bool = False, trusted: bool = False
) -> Iterator[BinaryIO]:
    """Open a file for reading, decompressed if it starts as gzip does.

    Args:
        path: the file.
        copied: whether it is an archive, and decompressed to a temporary file: going back in a
            compressed file is slow. Otherwise it is text, and its lines are limited, too.
        trusted: whether this process has just written it, so that there are no limits.
    """
    with open_regular(path) as file:
        is_packed = file.read(len(_MAGIC)) == _MAGIC
        file.seek(0)
        if not is_packed:
            yield file
            return
        most_bytes = most_lines = math.inf
        if not trusted:
            size = size_of_file(file)
            most_bytes = unpacked_limit(size) if copied else unpacked_text_limit(size)
            most_lines = math.inf if copied else row_limit(size)
        unpacked = _Unpacked(file, path, most_bytes=most_bytes, most_lines=most_lines)
        reader = io.BufferedReader(unpacked, _BUFFER)
        if not copied:
            yield cast(BinaryIO, reader)
            return
        with tempfile.TemporaryFile() as copy:
            shutil.copyfileobj(reader, copy, _BUFFER)
            copy.seek(0)
            yield cast(BinaryIO, copy)


def plain_suffix(path: AnyPath) -> str:
    """Return the suffix of a file's name in lower case, without the one of its compression."""
    name = path.name.lower()
    return Path(name.removesuffix(".gz")).suffix


@contextlib.contextmanager
def create_packed(path: Path) -> Iterator[BinaryIO]:
    """Create a file, compressed if its name says so; the same content gives the same bytes."""
    with path.open("xb", buffering=1 << 20) as file:
        if not path.name.lower().endswith(_SUFFIXES):
            yield file
            return
        with gzip.GzipFile("", "wb", 6, file, mtime=0) as packed:
            yield cast(BinaryIO, packed)
