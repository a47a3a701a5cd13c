"""Reading images from a tar archive, in place where it isn't compressed.

A compressed archive has no random access: what is wanted of it is unpacked into one file, in one
pass. An archive's end is only believed where its mark of zeros is.

`tarfile` reads a header of 512 bytes well, but believes what an extended one says: its length, a
negative size, ten thousand digits. Those are read here, as POSIX' pax and GNU tar have them.
"""

from __future__ import annotations

import bz2
import contextlib
import gzip
import lzma
import os
import tarfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from tfrtool.errors import SourceError, WriteError, os_errors_as, printable
from tfrtool.sources.archives.members import UNPACK_HINT, Members, PartReader, stamp_of
from tfrtool.sources.folders.listing import Listing, is_image_name, size_problem
from tfrtool.storage.limits import MAX_ARCHIVE_HEADER_BYTES, MAX_DEFLATE_RATIO, unpacked_limit
from tfrtool.storage.opening import open_regular

SPOOL = "unpacked-images"
"""The file that holds the images of a compressed archive, one behind the other."""

_BLOCK = tarfile.BLOCKSIZE
_CHUNK = 256 * 1024
_MEMBER_COST = 4096
"""Bytes that a member counts for besides its own: its name is kept, and its header costs time."""

_LONGEST_PADDING = 16 * 1024 * 1024
"""Bytes behind the end mark that are looked at: tapes want whole megabytes."""

_MOST_HEADERS = 8
"""Headers of one member; writers make four at most."""

_PAX = (tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE)
_GNU = {tarfile.GNUTYPE_LONGNAME: "path", tarfile.GNUTYPE_LONGLINK: "linkpath"}
_NO_DATA = (
    *(tarfile.LNKTYPE, tarfile.SYMTYPE, tarfile.CHRTYPE),
    *(tarfile.BLKTYPE, tarfile.DIRTYPE, tarfile.FIFOTYPE),
)

_UNPACKERS: tuple[tuple[bytes, Callable[[BinaryIO], Any]], ...] = (
    (b"\x1f\x8b", lambda file: gzip.GzipFile(fileobj=file, mode="rb")),
    (b"BZh", bz2.BZ2File),
    (b"\xfd7zXZ\x00", lzma.LZMAFile),
)

_COUNTING = ("path", "linkpath", "size", "GNU.sparse.name")


class _TooMuchError(Exception):
    """An archive unpacks to more than it may; says to how much."""


class TarStream:
    """A tar archive from its start on, unpacked, and no more of it than it may unpack to."""

    def __init__(self, file: BinaryIO) -> None:
        """Tell from a file's first bytes whether it is compressed."""
        head = file.read(8)
        file.seek(0)
        unpacker = next((found for magic, found in _UNPACKERS if head.startswith(magic)), None)
        self._file = file if unpacker is None else unpacker(file)
        self.packed = unpacker is not None
        self._size = os.fstat(file.fileno()).st_size
        self._most = unpacked_limit(self._size, MAX_DEFLATE_RATIO)
        self.position = 0
        self.member = 0  # where the last header starts

    def read(self, size: int) -> bytes:
        """Read the next bytes; a ValueError says how the compression is damaged."""
        try:
            data: bytes = self._file.read(size)
        except (zlib.error, lzma.LZMAError, EOFError, OSError) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise
            raise ValueError(str(error) or type(error).__name__) from error
        self.position += len(data)
        if self.packed and self.position > self._most:
            raise _TooMuchError(f"more than {self._most:,} bytes")
        return data

    def skip_to(self, offset: int) -> None:
        """Go forward to where the data of a member ends."""
        if not self.packed and offset <= self._size:
            self.position = self._file.seek(offset)
        while self.position < offset:
            if not self.packed or not self.read(min(offset - self.position, _CHUNK)):
                raise ValueError("the data of a member is cut")


def is_tar(path: str) -> bool:
    """Return whether a file, or what is in it if it is compressed, is a tar archive."""
    with open_regular(path) as file, contextlib.suppress(ValueError):
        return _starts_tar(TarStream(file).read(_BLOCK))
    return False


def _starts_tar(block: bytes) -> bool:
    with contextlib.suppress(ValueError):
        return bool(_header(block))
    return False


def _header(block: bytes) -> tarfile.TarInfo:
    if len(block) < _BLOCK:
        raise ValueError("it ends without its end mark")
    try:
        member = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
    except (tarfile.TarError, ValueError) as error:
        raise ValueError(f"no member starts where one should: {error}") from error
    if not 0 <= member.size < 1 << 62:
        raise ValueError(f"a member of {member.size:,} bytes")
    return member


def read_headers(stream: TarStream) -> Iterator[tarfile.TarInfo]:
    """Yield the members of an archive up to its end mark; damage is a ValueError.

    The stream stands at a member's data, which may be read. A file with holes has the type
    `GNUTYPE_SPARSE`.
    """
    shared: dict[str, str] = {}
    while True:
        stream.member, own = stream.position, dict[str, str]()
        block = stream.read(_BLOCK)
        if block == bytes(_BLOCK):
            return
        member = _header(block)
        for _ in range(_MOST_HEADERS):
            if name := _GNU.get(member.type):
                own[name] = _text(_extension(stream, member.size).partition(b"\0")[0])
            elif member.type in _PAX:
                records = _records(_extension(stream, member.size))
                (shared if member.type == tarfile.XGLTYPE else own).update(records)
            else:
                break
            block = stream.read(_BLOCK)
            member = _header(block)
        else:
            raise ValueError(f"more than {_MOST_HEADERS} headers for one member")
        if member.type == tarfile.GNUTYPE_SPARSE:
            # A map of holes that the header has no room for: each block says if another follows.
            more = block[482:483]
            while more.strip(b"\0"):
                more = stream.read(_BLOCK)[504:505]
        _complete(member, {**shared, **own})
        member.offset_data = stream.position
        yield member
        if member.type not in _NO_DATA:
            stream.skip_to(member.offset_data + _padded(member.size))


def _extension(stream: TarStream, size: int) -> bytes:
    """Read what an extended header holds."""
    if size > MAX_ARCHIVE_HEADER_BYTES:
        raise ValueError(f"an extended header of {size:,} bytes, not {MAX_ARCHIVE_HEADER_BYTES:,}")
    return stream.read(_padded(size))[:size]


def _records(data: bytes) -> Iterator[tuple[str, str]]:
    """Yield what counts of a pax header, whose lines are ``LENGTH KEY=VALUE``."""
    while data.strip(b"\0"):
        digits = data[:6].partition(b" ")[0]
        length = int(digits) if digits.isdigit() else 0
        key, equals, value = data[len(digits) + 1 : length - 1].partition(b"=")
        if not equals or data[length - 1 : length] != b"\n":
            raise ValueError("an extended header makes no sense")
        data = data[length:]
        name = _text(key)
        if name in _COUNTING:
            yield name, _text(value)


def _complete(member: tarfile.TarInfo, said: dict[str, str]) -> None:
    """Give a member what its extended headers say of it."""
    member.name = said.get("GNU.sparse.name") or said.get("path") or member.name
    member.linkname = said.get("linkpath") or member.linkname
    if "GNU.sparse.name" in said and member.isreg():
        member.type = tarfile.GNUTYPE_SPARSE
    if size := said.get("size"):
        if not (size.isascii() and size.isdigit() and len(size) < 19):
            raise ValueError(f"a member of {size[:30]} bytes")
        member.size = int(size)


def _padded(size: int) -> int:
    return -(-size // _BLOCK) * _BLOCK


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")


class _Spool:
    """A file that the images of a compressed archive are copied to."""

    def __init__(self, path: Path, archive: str, packed: int) -> None:
        """Make the file; what an interrupted write left under its name goes."""
        self._archive = archive
        self._failure = f"can't be unpacked to {path} (without compression it is read in place)"
        self._room = self._most = unpacked_limit(packed)
        self._end = 0
        with os_errors_as(WriteError, archive, self._failure):
            path.unlink(missing_ok=True)
            self.file = path.open("xb", buffering=0)

    def copy(self, stream: TarStream, name: str, size: int) -> int:
        """Copy a member, whose bytes are the next of a stream, and return where they are."""
        start = self._end
        self.count(size)
        while self._end < start + size:
            data = memoryview(stream.read(min(start + size - self._end, _CHUNK)))
            if not data:
                raise ValueError("the data of a member is cut")
            with os_errors_as(WriteError, f"{self._archive}/{name}", self._failure):
                while data:
                    written = self.file.write(data)
                    self._end += written
                    data = data[written:]
        return start

    def count(self, size: int) -> None:
        """Count bytes that an archive costs."""
        self._room -= size
        if self._room < 0:
            raise _TooMuchError(
                f"images of {self._most - self._room:,} bytes, names included, more than "
                f"{self._most:,}"
            )


def list_tar(path: str, scratch: Path) -> Listing:
    """List the files of a tar archive, and unpack its images if it is compressed.

    What is unpacked lands in the folder ``scratch``, which must stay as long as items are read. An
    archive that is cut, damaged or a bomb is a SourceError; what can't be unpacked a WriteError.
    """
    with os_errors_as(SourceError, path), open_regular(path) as file:
        stamp = stamp_of(file.fileno())
        stream = TarStream(file)
        if not stream.packed:
            reader, members = PartReader(path, path, stamp), _scan(stream, path, None)
        else:
            spool = _Spool(scratch / SPOOL, path, stamp[0])
            with spool.file:
                members = _scan(stream, path, spool)
            reader = PartReader(path, os.fspath(scratch / SPOOL))
    return members.listing(path, stamp[0], reader)


def _scan(stream: TarStream, path: str, spool: _Spool | None) -> Members:
    """List an archive to its end mark, and copy its images if there is a file to copy them to."""
    members = Members()
    last = ""
    try:
        for member in read_headers(stream):
            last = f" in or after {printable(member.name)}"
            if spool is not None:
                spool.count(_MEMBER_COST)
            _add(members, member, stream, spool)
        _read_rest(stream, path)
    except _TooMuchError as error:
        raise SourceError(f"unpacks to {error}{last}", path=path, hint=UNPACK_HINT) from error
    except ValueError as error:
        raise SourceError(
            f"the tar archive is cut or damaged{last} ({error})",
            path=path,
            offset=stream.member,
            hint="fetch it again",
        ) from error
    return members


def _add(
    members: Members, member: tarfile.TarInfo, stream: TarStream, spool: _Spool | None
) -> None:
    name = member.name
    if member.isdir():
        return
    if member.islnk() or member.issym():
        members.add_link(name, member.linkname, from_root=member.islnk())
    elif member.type == tarfile.GNUTYPE_SPARSE:
        members.add_problem(name, "it is stored with holes (a sparse file)")
    elif not member.isreg():
        members.add_problem(name, "neither a file nor a folder")
    elif spool is None:
        members.add(name, member.size, member.offset_data)
    elif not is_image_name(name) or size_problem(member.size):
        members.add(name, member.size, None)
    elif members.wants(name):
        members.add(name, member.size, spool.copy(stream, name, member.size))


def _read_rest(stream: TarStream, path: str) -> None:
    """Read what follows the end mark: nothing, in the end, but the compression's checksum."""
    end = stream.position + _LONGEST_PADDING
    while (stream.packed or stream.position < end) and (rest := stream.read(_CHUNK)):
        padding = len(rest) - len(rest.lstrip(b"\0"))
        start = padding - padding % _BLOCK
        if _starts_tar(rest[start : start + _BLOCK]):
            raise SourceError(
                "several tar archives stand in it one behind the other",
                path=path,
                hint="unpack it with tar --ignore-zeros, and write from the folder",
            )
