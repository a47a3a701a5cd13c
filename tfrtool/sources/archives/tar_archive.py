"""Reading images from a tar archive, in place where it isn't compressed.

A compressed archive has no random access: what is wanted of it is unpacked into one file, in one
pass. An archive's end is only believed where its mark of zeros is.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import shutil
import tarfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, BinaryIO

from tfrtool.errors import SourceError, WriteError, os_errors_as, os_reason, printable
from tfrtool.sources.archives.members import UNPACK_HINT, Members, PartReader, stamp_of
from tfrtool.sources.archives.tar_headers import TarDamageError, TarFile, read_headers
from tfrtool.sources.folders.listing import Listing, is_image_name, size_problem
from tfrtool.storage.limits import MAX_DEFLATE_RATIO, unpacked_limit
from tfrtool.storage.opening import open_regular

SPOOL = "unpacked-images"
"""The file that holds the images of a compressed archive, one behind the other."""

_BLOCK = tarfile.BLOCKSIZE
_CHUNK = 256 * 1024
_MEMBER_COST = 4096
"""Bytes that a member counts for besides its own: its name is kept, and its header costs time."""

_LONGEST_PADDING = 16 * 1024 * 1024
"""Bytes behind the end mark that are looked at: tapes want whole megabytes."""

_OPENERS: tuple[tuple[bytes, Callable[[BinaryIO], Any]], ...] = (
    (b"\x1f\x8b", lambda file: gzip.GzipFile(fileobj=file, mode="rb")),
    (b"BZh", bz2.BZ2File),
    (b"\xfd7zXZ\x00", lzma.LZMAFile),
)
_DAMAGE = (tarfile.TarError, zlib.error, lzma.LZMAError, EOFError, ValueError, OverflowError)


class _TooMuchError(Exception):
    """An archive unpacks to more than it may; says to how much."""


class _Unpacked:
    """What is in a compressed archive: read forward only, and no more than it may unpack to."""

    def __init__(self, file: IO[bytes], packed: int) -> None:
        self._file = file
        self._position = 0
        self._most = unpacked_limit(packed, MAX_DEFLATE_RATIO)

    def read(self, size: int) -> bytes:
        """Read the next bytes."""
        data = self._file.read(size)
        self._position += len(data)
        if self._position > self._most:
            raise _TooMuchError(f"more than {self._most:,} bytes")
        return data

    def seek(self, offset: int) -> None:
        """Go forward to an offset."""
        while self._position < offset and self.read(min(offset - self._position, _CHUNK)):
            pass


class _Spool:
    """A file that the images of a compressed archive are copied to."""

    def __init__(self, path: Path, archive: str, packed: int) -> None:
        """Make the file; what an interrupted write left under its name goes."""
        self.path = path
        self._archive = archive
        self._most = unpacked_limit(packed)
        self._kept = 0
        self._end = 0
        with self._writing(archive):
            path.unlink(missing_ok=True)
            self.file = path.open("xb", buffering=0)

    def copy(self, file: TarFile, name: str, size: int) -> int:
        """Copy a member, whose bytes are the next of a file, and return where they are."""
        member, start = f"{self._archive}/{name}", self._end
        self.keep(size)
        with self._writing(member):
            if (free := shutil.disk_usage(self.path.parent).free) < size:
                raise OSError(f"{size:,} bytes are needed, and {free:,} are free")
        while self._end < start + size:
            data = memoryview(file.read(min(start + size - self._end, _CHUNK)))
            if not data:
                raise TarDamageError("the data of a member is cut", None)
            with self._writing(member):
                while data:
                    written = self.file.write(data)
                    self._end += written
                    data = data[written:]
        return start

    def keep(self, size: int) -> None:
        """Count bytes that an archive costs."""
        self._kept += size
        if self._kept > self._most:
            raise _TooMuchError(
                f"images of {self._kept:,} bytes, names included, more than {self._most:,}"
            )

    @contextmanager
    def _writing(self, member: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise WriteError(
                f"can't be unpacked to {self.path}: {os_reason(error)}",
                path=member,
                hint="an uncompressed archive needs no room for that",
            ) from error


def peek(path: str, size: int) -> bytes:
    """Return the first bytes of a file, of what is in it if it is compressed."""
    with open_regular(path) as file:
        opener = _opener(file)
        if opener is None:
            return file.read(size)
        try:
            with opener(file) as unpacked:
                return bytes(unpacked.read(size))
        except (*_DAMAGE, OSError) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise
            return b""


def _opener(file: BinaryIO) -> Callable[[BinaryIO], Any] | None:
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

    What is unpacked lands in the folder ``scratch``, which must stay as long as items are read.

    Raises:
        SourceError: the archive can't be read, is cut, damaged, or a bomb.
        WriteError: what is unpacked can't be written.
    """
    with os_errors_as(SourceError, path), open_regular(path) as file:
        opener = _opener(file)
        stamp = stamp_of(file.fileno())
        if opener is None:
            reader = PartReader(path, path, stamp)
            members = _scan(file, path, None)
        else:
            spool = _Spool(scratch / SPOOL, path, stamp[0])
            with opener(file) as raw, spool.file:
                members = _scan(_Unpacked(raw, stamp[0]), path, spool)
            reader = PartReader(path, os.fspath(spool.path))
    return members.listing(path, stamp[0], reader)


def _scan(file: TarFile, path: str, spool: _Spool | None) -> Members:
    """List an archive to its end mark, and copy its images if there is a file to copy them to."""
    members = Members(last_wins=True)
    offset, last = 0, ""
    try:
        for member in read_headers(file):
            offset, last = member.offset, f" in or after {printable(member.name)}"
            if spool is not None:
                spool.keep(_MEMBER_COST)
            _add(members, member, file, spool)
        _read_rest(file, path, None if spool else _LONGEST_PADDING)
    except _TooMuchError as error:
        raise SourceError(f"unpacks to {error}{last}", path=path, hint=UNPACK_HINT) from error
    except (*_DAMAGE, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        if isinstance(error, TarDamageError) and error.offset is not None:
            offset, last = error.offset, last.replace(" in or after", " after", 1)
        raise SourceError(
            f"the tar archive is cut or damaged{last} ({str(error) or type(error).__name__})",
            path=path,
            offset=offset,
            hint="fetch it again",
        ) from error
    return members


def _read_rest(file: TarFile, path: str, most: int | None) -> None:
    """Read what follows the end mark: nothing, in the end, but the compression's checksum."""
    size = 0
    while (most is None or size < most) and (rest := file.read(_CHUNK)):
        size += len(rest)
        padding = len(rest) - len(rest.lstrip(b"\0"))
        start = padding - padding % _BLOCK
        if starts_tar(rest[start : start + _BLOCK]):
            raise SourceError(
                "several tar archives stand in it one behind the other",
                path=path,
                hint="unpack it with tar --ignore-zeros, and write from the folder",
            )


def _add(members: Members, member: tarfile.TarInfo, file: TarFile, spool: _Spool | None) -> None:
    name = member.name
    if member.isdir():
        return
    if member.islnk() or member.issym():
        members.add_link(name, member.linkname, from_root=member.islnk())
    elif member.type == tarfile.GNUTYPE_SPARSE:
        members.add_problem(name, "it is stored with holes (a sparse file)")
    elif not member.isreg():
        members.ignore(name, "neither a file nor a folder")
    elif spool is None:
        members.add(name, member.size, member.offset_data)
    elif not is_image_name(name) or size_problem(member.size):
        members.add(name, member.size, None)
    elif members.wants(name):
        members.add(name, member.size, spool.copy(file, name, member.size))
