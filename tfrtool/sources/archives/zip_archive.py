"""Reading images from a zip archive in place, several at a time.

The standard library shares one position in the file among its readers, so members are read here.
Layouts are those of PKWARE's APPNOTE.TXT 6.3.10, sections 4.3.7 and 4.4.
"""

from __future__ import annotations

import bz2
import lzma
import os
import stat
import zipfile
import zlib
from dataclasses import dataclass
from itertools import pairwise

from tfrtool.errors import SourceError, os_reason
from tfrtool.sources.archives.archive_reader import Stamp, opened, read_at, stamp_of
from tfrtool.sources.archives.members import Members
from tfrtool.sources.archives.zip_directory import ZipDamageError, ZipMember, read_directory
from tfrtool.sources.folders.listing import Listing, size_problem
from tfrtool.sources.items import DamagedItemError, Item
from tfrtool.storage.limits import MAX_LZMA_MEMORY, MAX_PATH_LENGTH
from tfrtool.storage.opening import open_regular

__all__ = ["ZipReader", "list_zip"]

_ENCRYPTED = 0x1 | 0x40 | 0x2000

_LOCAL_HEADER = 30
_LOCAL_SIGNATURE = b"PK\x03\x04"
_SLACK = 512
"""Bytes for a member's name and extra fields that are read together with its data."""

_METHODS = frozenset(
    {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA}
)
_OTHER_METHODS = {1: "shrink", 6: "implode", 9: "deflate64", 93: "zstd", 95: "xz"}


@dataclass(frozen=True, slots=True)
class ZipReader:
    """Reads the members of a zip archive.

    Attributes:
        archive: the archive's path.
        stamp: its stamp, when it was listed.
    """

    archive: str
    stamp: Stamp

    def read(self, item: Item) -> bytes:
        """Return all bytes of a member, unpacked and checked against its CRC-32.

        Raises:
            OSError: the archive can't be read.
            DamagedItemError: the member is damaged.
        """
        if not isinstance(item.place, int):
            raise TypeError("an item of this reader has a packed place")
        data, crc = _read_member(self.archive, item.place, item.bytes, self.stamp)
        if data is None or len(data) != item.bytes:
            raise DamagedItemError("its data in the archive is damaged", path=self.describe(item))
        if zlib.crc32(data) != crc:
            raise DamagedItemError("its CRC-32 in the archive is wrong", path=self.describe(item))
        return data

    def describe(self, item: Item) -> str:
        """Return the archive's path and the member's."""
        return f"{self.archive}/{item.key}"


def list_zip(path: str) -> Listing:
    """List the files of a zip archive from its central directory.

    Raises:
        SourceError: it can't be read, or is damaged.
    """
    members = Members(last_wins=False)
    extents: list[tuple[int, int]] = []
    try:
        with open_regular(path) as file:
            stamp = stamp_of(file.fileno())
            size = stamp[0]
            for member in read_directory(file):
                problem = _problem(member, size)
                if problem is None:
                    extents.append((member.offset, member.offset + _LOCAL_HEADER + member.packed))
                _add(members, member, path, problem)
    except OSError as error:
        raise SourceError(f"can't be read: {os_reason(error)}", path=path) from error
    except ZipDamageError as error:
        raise SourceError(
            f"the zip archive is cut or damaged ({error})", path=path, hint="fetch it again"
        ) from error
    _check_apart(path, extents)
    entries, ignored = members.finish(path, size)
    return Listing(entries=entries, reader=ZipReader(path, stamp), ignored=ignored)


def _check_apart(path: str, extents: list[tuple[int, int]]) -> None:
    """Raise if members share bytes of the archive."""
    extents.sort()
    for (start, end), (next_start, _) in pairwise(extents):
        if next_start < end:
            raise SourceError(
                f"two members of the zip archive overlap, those at {start:,} and {next_start:,}",
                path=path,
                hint="such an archive is damaged or a bomb",
            )


def _add(members: Members, member: ZipMember, path: str, problem: str | None) -> None:
    name = member.name
    if name.endswith("/"):
        return
    kind = stat.S_IFMT(member.mode)
    if problem is not None:
        members.add_problem(name, problem)
    elif kind == stat.S_IFLNK:
        target, crc = None, 0
        if member.size <= MAX_PATH_LENGTH and member.packed <= 2 * MAX_PATH_LENGTH:
            target, crc = _read_member(path, _place(member), member.size)
        if target is None or zlib.crc32(target) != crc:
            members.add_problem(name, "a link that can't be read")
        else:
            members.add_link(name, os.fsdecode(target), from_root=False)
    elif kind in (0, stat.S_IFREG):
        members.add(name, member.size, _place(member))
    else:
        members.ignore(name, "neither a file nor a folder")


def _problem(member: ZipMember, size: int) -> str | None:
    """Return why a member can't be read, as far as the directory tells."""
    if member.flags & _ENCRYPTED:
        return "it is encrypted in the archive"
    if member.method not in _METHODS:
        method = _OTHER_METHODS.get(member.method, f"method {member.method}")
        return f"its compression in the archive ({method}) is not supported"
    if member.offset > size - member.packed - _LOCAL_HEADER:
        return "its data would lie outside of the archive"
    if member.method == zipfile.ZIP_STORED and member.size != member.packed:
        return "its sizes contradict each other"
    # Even what doesn't shrink hardly grows; `arrange` looks at the size that is unpacked.
    return size_problem(member.packed)


def _place(member: ZipMember) -> int:
    """Pack what is needed to read a member into one integer, a quarter of a tuple's size."""
    packed = member.method << 32 | member.crc
    return (packed << 64 | member.packed) << 64 | member.offset


def _read_member(
    path: str, place: int, size: int, stamp: Stamp | None = None
) -> tuple[bytes | None, int]:
    """Return a member's bytes, None where they are damaged, and the CRC-32 they should have."""
    word = (1 << 64) - 1
    offset, packed_size, rest = place & word, place >> 64 & word, place >> 128
    method, crc = rest >> 32, rest & 0xFFFFFFFF
    with opened(path, stamp) as descriptor:
        raw = read_at(descriptor, offset, _LOCAL_HEADER + _SLACK + packed_size)
        if raw[:4] != _LOCAL_SIGNATURE:
            return None, crc
        # A local header's extra fields may differ from those in the central directory.
        before = _LOCAL_HEADER + sum(int.from_bytes(raw[at : at + 2], "little") for at in (26, 28))
        data = raw[before : before + packed_size]
        if len(data) < packed_size:
            data = read_at(descriptor, offset + before, packed_size)
    return (_unpack(data, method, size) if len(data) == packed_size else None), crc


def _unpack(data: bytes, method: int, size: int) -> bytes | None:
    """Return unpacked data, with no more memory than for one byte above ``size``; None if bad."""
    if method == zipfile.ZIP_STORED:
        return data
    unpacker: zlib._Decompress | bz2.BZ2Decompressor | lzma.LZMADecompressor
    try:
        if method == zipfile.ZIP_DEFLATED:
            unpacker = zlib.decompressobj(-zlib.MAX_WBITS)
        elif method == zipfile.ZIP_BZIP2:
            unpacker = bz2.BZ2Decompressor()
        else:
            unpacker = lzma.LZMADecompressor(lzma.FORMAT_ALONE, memlimit=MAX_LZMA_MEMORY)
            # Zip has a version and a length before the properties (5.8.8), and no size behind.
            data = data[4:9] + b"\xff" * 8 + data[9:]
        unpacked = unpacker.decompress(data, size + 1)
        while not unpacker.eof and len(unpacked) <= size:
            more = unpacker.decompress(b"", size + 1 - len(unpacked))
            if not more:
                break
            unpacked += more
    except (zlib.error, OSError, lzma.LZMAError, EOFError):
        return None
    return unpacked
