"""Reading images from a tar archive, in place where it isn't compressed.

A compressed archive has no random access: it is unpacked into one file. An archive's end is only
believed where its mark of zeros is.

`tarfile` reads a header of 512 bytes well, but believes what an extended one says: its length, a
negative size, ten thousand digits. Those are read here, as POSIX' pax and GNU tar have them.
"""

import bz2
import contextlib
import gzip
import lzma
import tarfile
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from tfrtool.errors import SourceError, os_errors_as, printable
from tfrtool.sources.archives.archive_files import UNPACK_HINT, PartReader, Spool
from tfrtool.sources.archives.members import Member, list_members
from tfrtool.sources.folders.listing import Listing
from tfrtool.storage.limits import MAX_ARCHIVE_HEADER_BYTES, unpacked_limit
from tfrtool.storage.opening import open_regular, size_of_file, stamp_of

_BLOCK = tarfile.BLOCKSIZE
_CHUNK = 256 * 1024
_MEMBER_COST = 4096
"""Bytes that a member counts for: its name is kept, and its header costs time."""

_LONGEST_PADDING = 1024 * 1024
"""Bytes behind the end mark that are looked at: tapes want whole blocks."""

_MOST_HEADERS = 8
"""Headers of one member; writers make four at most."""

_PAX = (tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE)
_PAX_KEYS = ("path", "linkpath", "size", "GNU.sparse.name")
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


def _contents(file: BinaryIO) -> Any:
    """Return a file that gives what is in another one: that one itself if it isn't compressed."""
    head = file.read(8)
    file.seek(0)
    unpackers = (unpacker(file) for magic, unpacker in _UNPACKERS if head.startswith(magic))
    return next(unpackers, file)


def _read(contents: Any, size: int) -> bytes:
    """Read the next bytes; a ValueError says how their compression is damaged."""
    try:
        return bytes(contents.read(size))
    except (zlib.error, lzma.LZMAError, EOFError, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise ValueError(
            "the compressed data ends early"
            if isinstance(error, EOFError)
            else "the compressed data is damaged"
        ) from error


def is_tar(path: str) -> bool:
    """Return whether a file, or what is in it if it is compressed, is a tar archive."""
    with open_regular(path) as file, contextlib.suppress(ValueError):
        return starts_tar(_read(_contents(file), _BLOCK))
    return False


def starts_tar(block: bytes) -> bool:
    """Return whether the first block of a file is a tar archive's."""
    with contextlib.suppress(ValueError):
        return bool(_header(block))
    return False


def _header(block: bytes) -> tarfile.TarInfo:
    if len(block) < _BLOCK:
        raise ValueError("it ends without an end-of-archive marker")
    try:
        member = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
    except (tarfile.TarError, ValueError) as error:
        raise ValueError(f"a member has an invalid header: {error}") from error
    if not 0 <= member.size < 1 << 62:
        raise ValueError(f"a member claims {member.size:,} bytes")
    return member


def read_headers(file: BinaryIO) -> Iterator[tarfile.TarInfo]:
    """Yield the members of an archive up to its end mark; damage is a ValueError.

    A file with holes has the type `GNUTYPE_SPARSE`.
    """
    size = size_of_file(file)
    shared: dict[str, str] = {}
    while True:
        start, own = file.tell(), dict[str, str]()
        block = file.read(_BLOCK)
        if block == bytes(_BLOCK):
            return
        member = _header(block)
        for _ in range(_MOST_HEADERS):
            if name := _GNU.get(member.type):
                own[name] = _text(_extension(file, member.size).partition(b"\0")[0])
            elif member.type in _PAX:
                records = _records(_extension(file, member.size))
                (shared if member.type == tarfile.XGLTYPE else own).update(records)
            else:
                break
            block = file.read(_BLOCK)
            member = _header(block)
        else:
            raise ValueError(f"more than {_MOST_HEADERS} headers for one member")
        if member.type == tarfile.GNUTYPE_SPARSE:
            # A map of holes that the header has no room for: each block says if another follows.
            more = block[482:483]
            while more.strip(b"\0"):
                more = file.read(_BLOCK)[504:505]
        _complete(member, {**shared, **own})
        member.offset, member.offset_data = start, file.tell()
        yield member
        if member.type not in _NO_DATA:
            end = member.offset_data + _padded(member.size)
            if end > size:
                raise ValueError("the data of a member is truncated")
            file.seek(end)


def _extension(file: BinaryIO, size: int) -> bytes:
    """Read what an extended header holds."""
    if size > MAX_ARCHIVE_HEADER_BYTES:
        raise ValueError(f"extended header of {size:,} bytes (limit {MAX_ARCHIVE_HEADER_BYTES:,})")
    return file.read(_padded(size))[:size]


def _records(data: bytes) -> Iterator[tuple[str, str]]:
    """Yield names and sizes from a pax header, whose lines are ``LENGTH KEY=VALUE``."""
    while data.strip(b"\0"):
        digits = data[:6].partition(b" ")[0]
        length = int(digits) if digits.isdigit() else 0
        key, equals, value = data[len(digits) + 1 : length - 1].partition(b"=")
        if not equals or data[length - 1 : length] != b"\n":
            raise ValueError("an extended header is invalid")
        data = data[length:]
        name = _text(key)
        if name in _PAX_KEYS:
            yield name, _text(value)


def _complete(member: tarfile.TarInfo, extended: dict[str, str]) -> None:
    """Set the fields of a member that its extended headers replace."""
    member.name = extended.get("GNU.sparse.name") or extended.get("path") or member.name
    member.linkname = extended.get("linkpath") or member.linkname
    if "GNU.sparse.name" in extended and member.isreg():
        member.type = tarfile.GNUTYPE_SPARSE
    if size := extended.get("size"):
        if not (size.isascii() and size.isdigit() and len(size) < 19):
            raise ValueError(f"a member claims {size[:30]} bytes")
        member.size = int(size)


def _padded(size: int) -> int:
    return -(-size // _BLOCK) * _BLOCK


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")


def list_tar(path: str, scratch: Path) -> Listing:
    """List the files of a tar archive, which is unpacked first if it is compressed.

    The unpacked file is in the folder ``scratch``, which must stay as long as items are read.

    Raises:
        SourceError: the archive is cut, damaged or a bomb.
        WriteError: it can't be unpacked.
    """
    with os_errors_as(SourceError, path), open_regular(path) as file:
        stamp = stamp_of(file)
        contents = _contents(file)
        if contents is file:
            reader = PartReader(path, path, stamp)
        else:
            reader = _unpack(contents, path, stamp[0], scratch)
    members = partial(_read_members, reader, stamp[0])
    return Listing(list_members(members, path, stamp[0]), reader)


def _unpack(contents: Any, path: str, packed: int, scratch: Path) -> PartReader:
    hint = " (an uncompressed archive is read in place)"
    with Spool(scratch, path, packed, hint) as spool:
        try:
            while data := _read(contents, _CHUNK):
                spool.add(data)
        except ValueError as error:
            raise _damaged(path, "", error) from error
    return spool.reader


def _read_members(reader: PartReader, packed: int) -> Iterator[Member]:
    """Yield the members of an archive that had so many bytes before it was unpacked."""
    path, most = reader.archive, unpacked_limit(packed) // _MEMBER_COST
    last, offset = "", 0
    with os_errors_as(SourceError, path), open_regular(reader.data) as file:
        try:
            for count, header in enumerate(read_headers(file)):
                last, offset = f" in or after {printable(header.name)}", header.offset
                if count == most:
                    what = f"more than {most:,} members in {packed:,} bytes"
                    raise SourceError(what, path=path, hint=UNPACK_HINT)
                if not header.isdir():
                    yield _member(header)
        except ValueError as error:
            raise _damaged(path, last, error, offset) from error
        rest = file.read(_LONGEST_PADDING)
    padding = len(rest) - len(rest.lstrip(b"\0"))
    start = padding - padding % _BLOCK
    if starts_tar(rest[start : start + _BLOCK]):
        raise SourceError(
            "several tar archives are concatenated in this file",
            path=path,
            hint="unpack it with tar --ignore-zeros and pass the folder as SOURCE",
        )


def _damaged(path: str, where: str, error: Exception, offset: int | None = None) -> SourceError:
    what = f"truncated or damaged tar archive{where}: {error}"
    return SourceError(what, path=path, offset=offset, hint="download or copy it again")


def _member(header: tarfile.TarInfo) -> Member:
    if header.islnk() or header.issym():
        return Member(header.name, target=header.linkname, from_root=header.islnk())
    if header.type == tarfile.GNUTYPE_SPARSE:
        return Member(header.name, problem="stored as a sparse file")
    if not header.isreg():
        return Member(header.name, problem="not a regular file")
    return Member(header.name, header.size, header.offset_data)
