"""The central directory of a zip archive, member by member.

The standard library keeps half a kilobyte for each member, and doesn't count them. Layouts are
those of PKWARE's APPNOTE.TXT 6.3.10, sections 4.3.12 to 4.3.16 and 4.5.3.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

__all__ = ["UNIX", "ZipDamageError", "ZipMember", "read_directory"]

_END = struct.Struct("<4s4H2LH")
_END_64 = struct.Struct("<4sQ2H2L4Q")
_LOCATOR_64 = struct.Struct("<4sLQL")
_CENTRAL = struct.Struct("<4s6H3L5H2L")

_END_SIGNATURE = b"PK\x05\x06"
_END_64_SIGNATURE = b"PK\x06\x06"
_LOCATOR_64_SIGNATURE = b"PK\x06\x07"
_CENTRAL_SIGNATURE = b"PK\x01\x02"
_LONGEST_COMMENT = 0xFFFF
_IN_EXTRA = 0xFFFFFFFF
"""A size or an offset that stands in the extra field for 64-bit archives."""

_UTF8 = 0x800
_FAT = 0
UNIX = 3
"""Systems that an archive was made on."""


class ZipDamageError(ValueError):
    """The directory makes no sense; its text says where."""


class ZipMember(NamedTuple):
    """What the directory says of a member.

    Attributes:
        name: its name, as its maker meant it.
        flags: general purpose bits.
        method: how it is compressed.
        crc: the CRC-32 of its bytes.
        packed: its size in the archive.
        size: its size.
        offset: where its local header is in the file.
        mode: type and permissions, as on Unix; 0 where it was not made on Unix.
    """

    name: str
    flags: int
    method: int
    crc: int
    packed: int
    size: int
    offset: int
    mode: int


def read_directory(file: BinaryIO) -> Iterator[ZipMember]:
    """Yield the members of an archive, in the order of its central directory.

    Raises:
        ZipDamageError: there is no directory, it is cut, or it doesn't hold what it should.
    """
    start, size, count, before = _find(file)
    file.seek(start)
    found = 0
    while size > 0:
        raw = file.read(_CENTRAL.size)
        if len(raw) < _CENTRAL.size or not raw.startswith(_CENTRAL_SIGNATURE):
            raise ZipDamageError(f"no member {found + 1} in its directory")
        fields = _CENTRAL.unpack(raw)
        lengths = fields[10:13]
        rest = file.read(sum(lengths))
        if len(rest) < sum(lengths):
            raise ZipDamageError(f"member {found + 1} of its directory is cut")
        size -= len(raw) + len(rest)
        found += 1
        yield _member(fields, rest, before)
    # Without the 64-bit records, writers that don't mind count modulo 65536.
    if found != count and (count > 0xFFFF or found & 0xFFFF != count):
        raise ZipDamageError(f"{found:,} members in its directory, which should have {count:,}")


def _find(file: BinaryIO) -> tuple[int, int, int, int]:
    """Return where the directory starts, its size, its members, and what precedes the archive."""
    length = file.seek(0, os.SEEK_END)
    tail_start = max(0, length - _LONGEST_COMMENT - _END.size)
    file.seek(tail_start)
    tail = file.read()
    at = _end_record(tail)
    _, disk, first_disk, _, count, size, offset, _ = _END.unpack_from(tail, at)
    end = tail_start + at
    large = end - _LOCATOR_64.size - _END_64.size
    if large >= 0:
        file.seek(large)
        raw = file.read(_END_64.size + _LOCATOR_64.size)
        located = raw.startswith(_LOCATOR_64_SIGNATURE, _END_64.size)
        if located and raw.startswith(_END_64_SIGNATURE):
            disk, first_disk, _, count, size, offset = _END_64.unpack_from(raw)[4:]
            end = large
    if disk or first_disk:
        raise ZipDamageError("one part of several")
    start = end - size
    if start < offset:
        raise ZipDamageError("its directory starts where it can't")
    return start, size, count, start - offset


def _end_record(tail: bytes) -> int:
    """Return where the end record is in the last bytes of a file."""
    last = -1
    at = len(tail) - _END.size + len(_END_SIGNATURE)
    while (at := tail.rfind(_END_SIGNATURE, 0, max(at, 0))) >= 0:
        surplus = len(tail) - at - _END.size - _END.unpack_from(tail, at)[-1]
        if surplus == 0:
            return at  # others are part of its comment
        if surplus > 0 and last < 0:
            last = at  # there may be something behind the archive
    if last < 0:
        raise ZipDamageError("no directory at its end")
    return last


def _member(fields: tuple[int, ...], rest: bytes, before: int) -> ZipMember:
    _, made, _, flags, method, _, _, crc, packed, size, name_length, extra_length, *_ = fields
    attributes, offset = fields[15:]
    name, extra = rest[:name_length], rest[name_length : name_length + extra_length]
    if _IN_EXTRA in (packed, size, offset):
        large = iter(_large_fields(extra))
        size = next(large, size) if size == _IN_EXTRA else size
        packed = next(large, packed) if packed == _IN_EXTRA else packed
        offset = next(large, offset) if offset == _IN_EXTRA else offset
    system = made >> 8
    return ZipMember(
        name=_decoded(name.partition(b"\0")[0], utf8=bool(flags & _UTF8), system=system),
        flags=flags,
        method=method,
        crc=crc,
        packed=packed,
        size=size,
        offset=before + offset,
        mode=attributes >> 16 if system == UNIX else 0,
    )


def _large_fields(extra: bytes) -> tuple[int, ...]:
    """Return the 64-bit numbers among the extra fields: those that had no room elsewhere."""
    while len(extra) >= 4:
        kind, length = struct.unpack_from("<2H", extra)
        if kind == 1:
            count = len(extra[4 : 4 + min(length, 24)]) // 8
            return struct.unpack_from(f"<{count}Q", extra, 4)
        extra = extra[4 + length :]
    return ()


def _decoded(raw: bytes, *, utf8: bool, system: int) -> str:
    if utf8:
        name = raw.decode("utf-8", "surrogateescape")
    else:
        try:
            # macOS and many libraries write UTF-8 without the flag that says so; text in code
            # page 437 that happens to be UTF-8 makes no sense.
            name = raw.decode("utf-8")
        except UnicodeDecodeError:
            name = raw.decode("cp437")
    # Info-ZIP's rule for archives from Windows programs that ignore the specification.
    return name.replace("\\", "/") if system == _FAT and "/" not in name else name
