"""Reading images from a zip archive in place, several at a time.

`zipfile` reads the directory. Members are read here: its readers share one position in the file,
and unpack bzip2 and LZMA to any size. Layouts are those of PKWARE's APPNOTE.TXT 6.3.10.
"""

import bz2
import contextlib
import io
import lzma
import os
import stat
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, BinaryIO, cast

from tfrtool.errors import SourceError, os_errors_as, printable
from tfrtool.sources.archives.archive_files import Stamp, open_parts
from tfrtool.sources.archives.members import Member, list_members
from tfrtool.sources.folders.listing import Listing, size_problem
from tfrtool.sources.items import DamagedItemError, Item
from tfrtool.storage.limits import MAX_LZMA_MEMORY, MAX_PATH_LENGTH, MAX_ZIP_DIRECTORY_BYTES
from tfrtool.storage.opening import open_regular, stamp_of
from tfrtool.storage.remote_path import is_url

_FAT, _UNIX = 0, 3
_UTF8 = 0x800
_ENCRYPTED = 0x1 | 0x40 | 0x2000

_LOCAL_HEADER = 30
_SLACK = 512
"""Bytes for a member's name and extra fields that are read together with its data."""

_METHODS = {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA}


@dataclass(frozen=True, slots=True)
class ZipReader:
    """Reads the members of a zip archive."""

    archive: str
    stamp: Stamp  # when it was listed

    def read(self, item: Item) -> bytes:
        """Return all bytes of a member, unpacked and checked against its CRC-32."""
        try:
            return _read_member(self.archive, item.place, item.bytes, self.stamp)
        except ValueError as error:
            raise DamagedItemError(str(error), path=self.describe(item)) from error

    def describe(self, item: Item) -> str:
        """Return the archive's path and the member's."""
        return f"{self.archive}/{item.key}"


class _Archive(io.BufferedReader):
    """An archive whose directory, which `zipfile` reads at once, has a bounded size."""

    def read(self, size: int | None = -1, /) -> bytes:
        """Read the next bytes."""
        if size is not None and size > MAX_ZIP_DIRECTORY_BYTES:
            raise zipfile.BadZipFile(f"its directory has {size:,} bytes")
        return super().read(size)


def open_zip(path: str) -> BinaryIO:
    """Open an archive whose directory `zipfile` may read."""
    file: Any = open_regular(path)
    archive: Any = _Archive(file if is_url(path) else file.detach())
    archive.status = getattr(file, "status", None)  # its stamp is by that
    return cast(BinaryIO, archive)


def list_zip(path: str) -> Listing:
    """List the files of a zip archive; SourceError if it can't be read, or is damaged."""
    with os_errors_as(SourceError, path), open_regular(path) as file:
        stamp = stamp_of(file)
    members = partial(_read_members, path, stamp[0])
    return Listing(list_members(members, path, stamp[0]), ZipReader(path, stamp))


def _read_members(path: str, size: int) -> Iterator[Member]:
    """Yield the members of an archive of so many bytes."""
    extents: list[tuple[int, int]] = []
    try:
        with os_errors_as(SourceError, path), open_zip(path) as file:
            archive = zipfile.ZipFile(file)
            infos = archive.infolist()
            archive.NameToInfo.clear()
            infos.reverse()
            while infos:  # half a kilobyte each: they go as their members come
                info = infos.pop()
                problem = _problem(info, size)
                if problem is None:
                    end = info.header_offset + _LOCAL_HEADER + info.compress_size
                    extents.append((info.header_offset, end))
                if not (name := _name(info)).endswith("/"):
                    yield _member(name, info, path, problem)
    # What it raises for versions that it doesn't know, and for names that are no UTF-8.
    except (zipfile.BadZipFile, NotImplementedError, ValueError, OverflowError) as error:
        what = f"truncated or damaged zip archive: {printable(str(error))}"
        raise SourceError(what, path=path, hint="download or copy it again") from error
    extents.sort()
    for (start, end), (next_start, _) in pairwise(extents):
        if next_start < end:
            raise SourceError(
                f"damaged zip archive, or a zip bomb: the members at offsets {start:,} and "
                f"{next_start:,} overlap",
                path=path,
            )


def _member(name: str, info: zipfile.ZipInfo, path: str, problem: str | None) -> Member:
    kind = stat.S_IFMT(info.external_attr >> 16) if info.create_system == _UNIX else 0
    if problem is not None:
        return Member(name, problem=problem)
    if kind == stat.S_IFLNK:
        if info.file_size <= MAX_PATH_LENGTH and info.compress_size <= 2 * MAX_PATH_LENGTH:
            with contextlib.suppress(ValueError):
                target = _read_member(path, _place(info), info.file_size)
                return Member(name, target=os.fsdecode(target))
        return Member(name, problem="link can't be read")
    if kind not in (0, stat.S_IFREG):
        return Member(name, problem="not a regular file")
    return Member(name, info.file_size, _place(info))


def _name(info: zipfile.ZipInfo) -> str:
    name = info.orig_filename.partition("\0")[0]
    if not info.flag_bits & _UTF8:
        # macOS and many libraries write UTF-8 without the flag that says so; text in code page
        # 437 that happens to be UTF-8 makes no sense.
        with contextlib.suppress(UnicodeError):
            name = name.encode("cp437").decode("utf-8")
    # Info-ZIP's rule for archives from Windows programs that ignore the specification.
    return name.replace("\\", "/") if info.create_system == _FAT and "/" not in name else name


def _problem(info: zipfile.ZipInfo, size: int) -> str | None:
    """Return why a member can't be read, as far as the directory tells."""
    if info.flag_bits & _ENCRYPTED:
        return "encrypted"
    if info.compress_type not in _METHODS:
        return f"compression method {info.compress_type} is not supported"
    if info.volume:
        return "stored in another part of a multi-part archive"
    if not 0 <= info.header_offset <= size - info.compress_size - _LOCAL_HEADER:
        return "data lies outside the archive"
    if info.compress_type == zipfile.ZIP_STORED and info.file_size != info.compress_size:
        return "contradictory sizes in the archive"
    # Even what doesn't shrink hardly grows; `arrange` looks at the size that is unpacked.
    return size_problem(info.compress_size)


def _place(info: zipfile.ZipInfo) -> int:
    """Pack what is needed to read a member into one integer, a quarter of a tuple's size."""
    packed = info.compress_type << 32 | info.CRC
    return (packed << 64 | info.compress_size) << 64 | info.header_offset


def _read_member(path: str, place: int, size: int, stamp: Stamp | None = None) -> bytes:
    """Return the bytes of a member; a ValueError describes their damage."""
    word = (1 << 64) - 1
    offset, packed_size, rest = place & word, place >> 64 & word, place >> 128
    with open_parts(path, stamp) as read:
        raw = read(_LOCAL_HEADER + _SLACK + packed_size, offset)
        # A local header's extra fields may differ from those in the central directory.
        before = _LOCAL_HEADER + sum(int.from_bytes(raw[at : at + 2], "little") for at in (26, 28))
        data = raw[before : before + packed_size]
        if len(data) < packed_size:
            data = read(packed_size, offset + before)
    intact = raw.startswith(b"PK\x03\x04") and len(data) == packed_size
    unpacked = _unpack(data, rest >> 32, size) if intact else None
    if unpacked is None or len(unpacked) != size:
        raise ValueError("damaged in the archive")
    if zlib.crc32(unpacked) != rest & 0xFFFFFFFF:
        raise ValueError("wrong CRC-32 in the archive")
    return unpacked


def _unpack(data: bytes, method: int, size: int) -> bytes | None:
    """Return unpacked data, with no more memory than for one byte above ``size``; None if bad."""
    if method == zipfile.ZIP_STORED:
        return data
    unpacker: Any
    try:
        if method == zipfile.ZIP_DEFLATED:
            unpacker = zlib.decompressobj(-zlib.MAX_WBITS)
        elif method == zipfile.ZIP_BZIP2:
            unpacker = bz2.BZ2Decompressor()
        else:
            unpacker = lzma.LZMADecompressor(lzma.FORMAT_ALONE, memlimit=MAX_LZMA_MEMORY)
            # Zip has a version and a length before the properties (5.8.8), and no size behind.
            data = data[4:9] + b"\xff" * 8 + data[9:]
        return bytes(unpacker.decompress(data, size + 1))
    except (zlib.error, OSError, lzma.LZMAError, EOFError):
        return None
