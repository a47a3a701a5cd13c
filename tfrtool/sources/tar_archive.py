"""Reading images from a tar archive, in place where it isn't compressed.

A compressed archive has no random access: what is wanted of it is unpacked into one file, in one
pass. The standard library reads the headers, but takes a damaged one for the archive's end; here
the end is only believed where its mark of zeros is.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import tarfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, BinaryIO, TypeVar

from tfrtool.errors import SourceError, WriteError, os_reason, printable
from tfrtool.sources.archive_reader import PartReader
from tfrtool.sources.listing import Listing, is_image_name
from tfrtool.sources.members import Members

__all__ = ["SPOOL", "list_tar", "peek", "starts_tar"]

_T = TypeVar("_T")

SPOOL = "unpacked-images"
"""The file that holds the images of a compressed archive, one behind the other."""

_BLOCK = tarfile.BLOCKSIZE
_CHUNK = 256 * 1024
_LONGEST_HEADER = 1 << 20
"""The most bytes that an extended header may have: names have a few hundred."""

_OPENERS: tuple[tuple[bytes, Callable[[BinaryIO], Any]], ...] = (
    (b"\x1f\x8b", lambda file: gzip.GzipFile(fileobj=file, mode="rb")),
    (b"BZh", bz2.BZ2File),
    (b"\xfd7zXZ\x00", lzma.LZMAFile),
)
_DAMAGE = (tarfile.TarError, zlib.error, lzma.LZMAError, EOFError, ValueError, OverflowError)


class _Cut(Exception):  # noqa: N818 - it never leaves this module
    """The archive ends, or stops making sense, before its end mark."""


class _Headers(io.RawIOBase):
    """A file as tarfile is to see it: it moves forward only, and reads no giant header."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.last = b""

    def read(self, size: int = -1) -> bytes:
        """Read a header, or the one byte that shows that a member isn't cut."""
        if not 0 <= size <= _LONGEST_HEADER:
            raise _Cut("an extended header is impossibly large")
        self.last = self._file.read(size)
        return self.last

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Go to an offset."""
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        """Return the offset."""
        return self._file.tell()


class _Spool:
    """A file that the images of a compressed archive are copied to."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = self._do(lambda: path.open("wb", buffering=0))
        self._end = 0

    def __enter__(self) -> _Spool:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def copy(self, file: IO[bytes], size: int) -> int:
        """Copy the next bytes of a file, and return where they are."""
        start = self._end
        while self._end < start + size:
            data = memoryview(file.read(min(start + size - self._end, _CHUNK)))
            if not data:
                raise _Cut("the data of a member is cut")
            while data:
                written = self._do(self._file.write, data)
                self._end += written
                data = data[written:]
        return start

    def _do(self, action: Callable[..., _T], *arguments: object) -> _T:
        try:
            return action(*arguments)
        except OSError as error:
            raise WriteError(
                f"can't be written: {os_reason(error)}",
                path=self.path,
                hint="a compressed archive is unpacked there; an uncompressed one needs no room",
            ) from error


def peek(path: str, size: int) -> bytes:
    """Return the first bytes of a file, of what is in it if it is compressed.

    Raises:
        OSError: it can't be read.
    """
    with open(path, "rb") as file:  # noqa: PTH123
        opener = _opener(file)
        if opener is None:
            return file.read(size)
        try:
            with opener(file) as unpacked:
                return unpacked.read(size)
        except _DAMAGE:
            return b""
        except OSError as error:
            if error.errno is not None:
                raise
            return b""


def _opener(file: BinaryIO) -> Callable[[BinaryIO], IO[bytes]] | None:
    """Return what unpacks a file; None if it isn't compressed."""
    head = file.read(8)
    file.seek(0)
    return next((opener for magic, opener in _OPENERS if head.startswith(magic)), None)


def starts_tar(head: bytes) -> bool:
    """Return whether a file that starts with these 512 bytes is a tar archive."""
    try:
        tarfile.TarInfo.frombuf(head[:_BLOCK], "utf-8", "surrogateescape")
    except (tarfile.TarError, ValueError):
        return False
    return True


def list_tar(path: str, scratch: Path) -> Listing:
    """List the files of a tar archive, and unpack its images if it is compressed.

    Args:
        path: the archive.
        scratch: a folder for what is unpacked; it must stay as long as items are read.

    Raises:
        SourceError: the archive can't be read, is cut, or is damaged.
        WriteError: what is unpacked can't be written.
    """
    try:
        with open(path, "rb") as file:  # noqa: PTH123
            opener = _opener(file)
            if opener is None:
                members, data = _scan(file, path, None), path
            else:
                with opener(file) as unpacked, _Spool(scratch / SPOOL) as spool:
                    members, data = _scan(unpacked, path, spool), os.fspath(spool.path)
    except OSError as error:
        raise SourceError(f"can't be read: {os_reason(error)}", path=path) from error
    entries, ignored = members.finish()
    return Listing(entries=entries, reader=PartReader(path, data), ignored=ignored)


def _scan(file: IO[bytes], path: str, spool: _Spool | None) -> Members:
    """List an archive to its end mark, and copy its images if there is a file to copy them to."""
    members = Members(last_wins=True)
    headers = _Headers(file)
    offset, last = 0, ""
    try:
        with tarfile.open(
            fileobj=headers, mode="r:", encoding="utf-8", errors="surrogateescape"
        ) as archive:
            while (member := archive.next()) is not None:
                archive.members.clear()  # type: ignore[attr-defined]  # it would keep them all
                offset, last = member.offset, f" in or after {printable(member.name)}"
                _add(members, member, file, spool)
        if len(headers.last) < _BLOCK or headers.last.strip(b"\0"):
            offset, last = archive.offset, last.replace(" in or after", " after", 1)
            raise _Cut("no member starts where one should")
        _read_rest(file, path)
    except (*_DAMAGE, _Cut, RecursionError, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise SourceError(
            f"the tar archive is cut or damaged{last} ({str(error) or type(error).__name__})",
            path=path,
            offset=offset,
            hint="fetch it again",
        ) from error
    return members


def _read_rest(file: IO[bytes], path: str) -> None:
    """Read what follows the end mark: nothing, in the end, but the compression's checksum."""
    while rest := file.read(_CHUNK):
        padding = len(rest) - len(rest.lstrip(b"\0"))
        start = padding - padding % _BLOCK
        if starts_tar(rest[start : start + _BLOCK]):
            raise SourceError(
                "several tar archives stand in it one behind the other",
                path=path,
                hint="unpack it with tar --ignore-zeros, and write from the folder",
            )


def _add(members: Members, member: tarfile.TarInfo, file: IO[bytes], spool: _Spool | None) -> None:
    name = member.name
    if member.isdir():
        return
    if member.islnk() or member.issym():
        members.add_link(name, member.linkname, from_root=member.islnk())
    elif member.issparse():
        members.add_problem(name, "it is stored with holes (a sparse file)")
    elif not member.isreg():
        members.ignore(name, "neither a file nor a folder")
    elif spool is None:
        members.add(name, member.size, member.offset_data)
    elif not is_image_name(name):
        members.add(name, member.size, None)
    elif members.wants(name):
        file.seek(member.offset_data)
        members.add(name, member.size, spool.copy(file, member.size))
