"""The headers of a tar archive, one after the other.

The standard library reads a header of 512 bytes well, but believes what an extended one says: its
length, a negative size, ten thousand digits. Formats are those of POSIX' pax and of GNU tar.
"""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from typing import Protocol

from tfrtool.storage.limits import MAX_ARCHIVE_HEADER_BYTES

_BLOCK = tarfile.BLOCKSIZE

_PAX = (tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE)
_GNU = {tarfile.GNUTYPE_LONGNAME: "path", tarfile.GNUTYPE_LONGLINK: "linkpath"}
_NO_DATA = (
    *(tarfile.LNKTYPE, tarfile.SYMTYPE, tarfile.CHRTYPE),
    *(tarfile.BLKTYPE, tarfile.DIRTYPE, tarfile.FIFOTYPE),
)

_MOST_HEADERS = 8
"""Headers of one member; writers make four at most."""

_SPARSE_NAME = "GNU.sparse.name"


class TarFile(Protocol):
    """A file that is only ever moved forward."""

    def read(self, size: int, /) -> bytes:
        """Read the next bytes."""

    def seek(self, offset: int, /) -> object:
        """Go to an offset."""


class TarDamageError(ValueError):
    """A header makes no sense, or isn't there; its text says why.

    Attributes:
        offset: where that is in the archive; None if it is the last member's data that is cut.
    """

    def __init__(self, what: str, offset: int | None) -> None:
        super().__init__(what)
        self.offset = offset


def read_headers(file: TarFile) -> Iterator[tarfile.TarInfo]:
    """Yield the members of an archive, from its start up to its end mark.

    A member's data may be read while it is the last that was given: it starts at `offset_data`.
    A file with holes has the type `GNUTYPE_SPARSE`. Damage is a TarDamageError.
    """
    shared: dict[str, str] = {}
    offset = 0
    while True:
        own: dict[str, str] = {}
        start = offset
        for number in range(_MOST_HEADERS):
            block = file.read(_BLOCK)
            if number == 0 and len(block) == _BLOCK and not block.strip(b"\0"):
                return
            member = _header(block, offset)
            offset += _BLOCK
            if member.type not in _PAX and member.type not in _GNU:
                break
            data = _extension(file, member.size, offset)
            offset += _padded(member.size)
            if member.type in _GNU:
                own[_GNU[member.type]] = _text(data.partition(b"\0")[0])
            else:
                target = shared if member.type == tarfile.XGLTYPE else own
                target.update(_records(data, offset))
        else:
            raise TarDamageError(f"more than {_MOST_HEADERS} headers for one member", start)
        if member.type == tarfile.GNUTYPE_SPARSE:
            # A map of holes that the header has no room for: each block says if another follows.
            more = block[482:483]
            while more.strip(b"\0"):
                more = file.read(_BLOCK)[504:505]
                offset += _BLOCK
        _complete(member, {**shared, **own}, offset)
        member.offset, member.offset_data = start, offset
        yield member
        if member.type not in _NO_DATA:
            offset += _padded(member.size)
        file.seek(offset)


def _header(block: bytes, offset: int) -> tarfile.TarInfo:
    if len(block) < _BLOCK:
        raise TarDamageError("it ends without its end mark", offset if block else None)
    try:
        member = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
    except (tarfile.TarError, ValueError) as error:
        raise TarDamageError(f"no member starts where one should: {error}", offset) from error
    if member.size < 0:
        raise TarDamageError(f"a member of {member.size:,} bytes", offset)
    return member


def _extension(file: TarFile, size: int, offset: int) -> bytes:
    """Read what an extended header holds."""
    if size > MAX_ARCHIVE_HEADER_BYTES:
        raise TarDamageError(
            f"an extended header of {size:,} bytes, more than {MAX_ARCHIVE_HEADER_BYTES:,}", offset
        )
    data = file.read(_padded(size))
    if len(data) < _padded(size):
        raise TarDamageError("an extended header is cut", offset)
    return data[:size]


def _records(data: bytes, offset: int) -> Iterator[tuple[str, str]]:
    """Yield what counts of a pax header, whose lines are ``LENGTH KEY=VALUE``."""
    while data.strip(b"\0"):
        digits = data[:6].partition(b" ")[0]
        length = int(digits) if digits.isdigit() else 0
        key, equals, value = data[len(digits) + 1 : length - 1].partition(b"=")
        if not equals or data[length - 1 : length] != b"\n":
            raise TarDamageError("an extended header makes no sense", offset)
        data = data[length:]
        name = _text(key)
        if name in ("path", "linkpath", "size", _SPARSE_NAME):
            yield name, _text(value)
        elif name.startswith("GNU.sparse."):
            yield "GNU.sparse", "yes"


def _complete(member: tarfile.TarInfo, said: dict[str, str], offset: int) -> None:
    """Give a member what its extended headers say of it."""
    member.name = said.get(_SPARSE_NAME) or said.get("path") or member.name
    member.linkname = said.get("linkpath") or member.linkname
    if "GNU.sparse" in said and member.isreg():
        member.type = tarfile.GNUTYPE_SPARSE
    if size := said.get("size"):
        if not (size.isascii() and size.isdigit() and len(size) < 20):
            raise TarDamageError(f"a member of {size[:30]} bytes", offset)
        member.size = int(size)


def _padded(size: int) -> int:
    return -(-size // _BLOCK) * _BLOCK


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")
