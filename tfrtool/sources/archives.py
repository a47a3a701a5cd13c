"""Images in zip and tar archives, which are read in place; a compressed tar is unpacked before.

`zipfile` and `tarfile` read the directories. Members of a zip are read here, because those of
`zipfile` share one position in the file.
"""

import bz2
import contextlib
import errno
import gzip
import io
import lzma
import os
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO, cast

from tfrtool.errors import SourceError, WriteError, os_errors_as, printable
from tfrtool.records.count import reader_at
from tfrtool.sources.folders.listing import Entry, Listing, is_clutter, is_image_name, size_problem
from tfrtool.sources.items import DamagedItemError, Item
from tfrtool.storage.limits import (
    MAX_ARCHIVE_HEADER_BYTES,
    MAX_ZIP_DIRECTORY_BYTES,
    unpacked_limit,
)
from tfrtool.storage.opening import open_regular, size_of_file, stamp_of
from tfrtool.storage.remote_path import is_url

_UNPACK_HINT = "if you trust it, unpack it yourself and pass the folder as SOURCE"
_COPY_HINT = "download or copy it again"

_NOT_REGULAR = "a link or a device, not a regular file (unpack the archive to follow links)"

SPOOL = "unpacked-archive"
"""Name of the file in the scratch folder that holds what is unpacked."""

Stamp = tuple[int, int]
"""Size and time of a file, which show whether it is still the one that was listed."""

OFFSET_BITS = 48
"""Bits of a place that are an offset in a file."""

_CHUNK = 256 * 1024
_BLOCK = tarfile.BLOCKSIZE
_MEMBER_COST = 4096
"""Bytes that a member counts for: its name is kept, and its header costs time."""

_MOST_HEADER_BYTES = 2 * MAX_ARCHIVE_HEADER_BYTES  # of one member
_LONGEST_PADDING = 1024 * 1024
"""Bytes behind the end mark of a tar that are looked at: tapes want whole blocks."""

_ENCRYPTED, _UTF8 = 0x1 | 0x40 | 0x2000, 0x800
_LOCAL_HEADER, _SLACK = 30, 512
"""Bytes of a zip member's header, and for its name and extra fields, which are read with it."""

_UNPACKERS: tuple[tuple[bytes, Callable[[BinaryIO], Any]], ...] = (
    (b"\x1f\x8b", lambda file: gzip.GzipFile(fileobj=file, mode="rb")),
    (b"BZh", bz2.BZ2File),
    (b"\xfd7zXZ\x00", lzma.LZMAFile),
)


@contextmanager
def _open_parts(path: str, stamp: Stamp | None) -> Iterator[Callable[[int, int], bytes]]:
    """Give a function of a size and an offset that reads a part of a file, in bytes.

    A local file is opened for each use, an object of a store once per process. It is an OSError if
    the file has another stamp.
    """
    file = _open_object(path, os.getpid()) if is_url(path) else open_regular(path, buffering=0)
    try:
        if stamp is not None and stamp_of(file) != stamp:
            raise _changed(path)
        yield reader_at(file)
    finally:
        if not is_url(path):
            file.close()


@lru_cache(maxsize=8)
def _open_object(url: str, _process: int) -> BinaryIO:
    return open_regular(url)


def _changed(path: str) -> OSError:
    return OSError(errno.ESTALE, "it was changed after it was listed", path)


def read_part(path: str, size: int, offset: int, stamp: Stamp | None = None) -> bytes:
    """Return ``size`` bytes of a file; OSError if it has another stamp, or ends before."""
    with _open_parts(path, stamp) as read:
        data = read(size, offset)
    if len(data) != size:
        raise _changed(path)
    return data


@dataclass(frozen=True, slots=True)
class PartReader:
    """Reads items whose bytes lie in files; a place is the number of a file and an offset."""

    files: tuple[str | Path, ...]  # a Path was unpacked, and must be visible to all nodes
    stamps: tuple[Stamp | None, ...]  # of the files, where others may change them
    name: str = ""  # of the archive, if it was unpacked

    def read(self, item: Item) -> bytes:
        """Return all bytes of an item."""
        number, offset = divmod(item.locator, 1 << OFFSET_BITS)
        return read_part(str(self.files[number]), item.bytes, offset, self.stamps[number])

    def describe(self, item: Item) -> str:
        """Return the path of the archive, and the member's."""
        return f"{self.name or self.files[item.locator >> OFFSET_BITS]}/{item.key}"


class Spool:
    """A file in the scratch folder into which the contents of a source are unpacked.

    It replaces what an interrupted write left under its name. A disk that is full is a
    `WriteError`.

    Attributes:
        packed: bytes of the packed source: they limit what may be unpacked.
        path: the file.
        reader: reads items at offsets in it.
    """

    def __init__(self, scratch: Path, where: str, packed: int = 0, hint: str = "") -> None:
        """Open the file for the contents of the source ``where``; the hint is for a full disk."""
        self.path, self.packed, self._where = scratch / SPOOL, packed, where
        self.reader = PartReader((self.path,), (None,), where)
        self._failure = f"can't be unpacked to {self.path}{hint}"
        self._end = 0
        with os_errors_as(WriteError, where, self._failure):
            self.path.unlink(missing_ok=True)
            self._out = self.path.open("xb")

    def __enter__(self) -> "Spool":
        return self

    def __exit__(self, *_: object) -> None:
        with os_errors_as(WriteError, self._where, self._failure):
            self._out.close()

    def add(self, data: bytes) -> int:
        """Append bytes and return their offset; SourceError if the source unpacks to too much."""
        offset, most = self._end, unpacked_limit(self.packed)
        self._end += len(data)
        if self._end > most:
            what = f"unpacks to more than {most:,} bytes"
            raise SourceError(what, path=self._where, hint=_UNPACK_HINT)
        with os_errors_as(WriteError, self._where, self._failure):
            self._out.write(data)
        return offset


def _checked(members: Iterator[Entry], archive: str, size: int) -> Iterator[Entry]:
    """Yield the files of an archive, by keys; of equal ones the last counts.

    It is a SourceError in the end if all images together unpack to too much.
    """
    total, most = 0, unpacked_limit(size)
    for member in members:
        parts = [part for part in member.key.split("/") if part not in ("", ".")]
        if not parts or any(is_clutter(part) for part in parts if part != ".."):
            continue
        if ".." in parts:
            yield Entry(member.key, problem="path leads outside the archive")
        elif is_image_name(parts[-1]):
            total += 0 if size_problem(member.bytes) else member.bytes
            yield member._replace(key="/".join(parts))
        else:
            yield Entry("/".join(parts))
    if total > most:
        what = f"unpacks to {total:,} bytes of images"
        expected = f"at most {most:,} for an archive of {size:,} bytes"
        raise SourceError(what, path=archive, expected=expected, hint=_UNPACK_HINT)


class _Directory(io.BufferedReader):
    """A zip whose directory, which `zipfile` reads at once, has a bounded size."""

    def read(self, size: int | None = -1, /) -> bytes:
        """Read the next bytes."""
        if size is not None and size > MAX_ZIP_DIRECTORY_BYTES:
            raise zipfile.BadZipFile(f"its directory has {size:,} bytes")
        return super().read(size)


def open_zip(path: str) -> BinaryIO:
    """Open an archive whose directory `zipfile` may read."""
    file: Any = open_regular(path)
    archive: Any = _Directory(file if is_url(path) else file.detach())
    archive.status = getattr(file, "status", None)  # its stamp is by that
    return cast(BinaryIO, archive)


def list_zip(path: str) -> Listing:
    """List the files of a zip archive; SourceError if it can't be read, or is damaged."""
    with os_errors_as(SourceError, path), open_regular(path) as file:
        stamp = stamp_of(file)
    return Listing(_checked(_zip_members(path, stamp[0]), path, stamp[0]), ZipReader(path, stamp))


def _zip_members(path: str, size: int) -> Iterator[Entry]:
    extents: list[tuple[int, int]] = []
    try:
        with os_errors_as(SourceError, path), open_zip(path) as file:
            archive = zipfile.ZipFile(file)
            infos = archive.infolist()
            archive.NameToInfo.clear()
            infos.reverse()
            while infos:  # half a kilobyte each: they go as their members come
                info = infos.pop()
                name = _zip_name(info)
                problem = _zip_problem(info, size)
                if problem is None:
                    end = info.header_offset + _LOCAL_HEADER + info.compress_size
                    extents.append((info.header_offset, end))
                # One integer takes a quarter of a tuple's size.
                packed = (info.compress_type << 32 | info.CRC) << 64 | info.compress_size
                if not name.endswith("/"):
                    yield Entry(name, info.file_size, packed << 64 | info.header_offset, problem)
    # What it raises for versions that it doesn't know, and for names that are not UTF-8.
    except (zipfile.BadZipFile, NotImplementedError, ValueError, OverflowError) as error:
        what = f"truncated or damaged zip archive: {printable(str(error))}"
        raise SourceError(what, path=path, hint=_COPY_HINT) from error
    extents.sort()
    for (start, end), (next_start, _) in pairwise(extents):
        if next_start < end:
            raise SourceError(
                f"damaged zip archive, or a zip bomb: the members at offsets {start:,} and "
                f"{next_start:,} overlap",
                path=path,
            )


def _zip_name(info: zipfile.ZipInfo) -> str:
    name = info.orig_filename.partition("\0")[0]
    if not info.flag_bits & _UTF8:
        # macOS and many libraries write UTF-8 without the flag that says so; text in code page
        # 437 that happens to be UTF-8 makes no sense.
        with contextlib.suppress(UnicodeError):
            name = name.encode("cp437").decode("utf-8")
    # Info-ZIP's rule for archives from Windows programs that ignore the specification.
    return name.replace("\\", "/") if info.create_system == 0 and "/" not in name else name


def _zip_problem(info: zipfile.ZipInfo, size: int) -> str | None:
    """Return why a member can't be read, as far as the directory shows."""
    kind = stat.S_IFMT(info.external_attr >> 16) if info.create_system == 3 else 0
    if kind not in (0, stat.S_IFREG):
        return _NOT_REGULAR
    if info.flag_bits & _ENCRYPTED:
        return "encrypted"
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        return f"compression method {info.compress_type} is not supported (deflate and none are)"
    if info.volume:
        return "stored in another part of a multi-part archive"
    if not 0 <= info.header_offset <= size - info.compress_size - _LOCAL_HEADER:
        return "data lies outside the archive"
    if info.compress_type == zipfile.ZIP_STORED and info.file_size != info.compress_size:
        return "contradictory sizes in the archive"
    # Even what doesn't shrink hardly grows; the size that is unpacked is looked at, too.
    return size_problem(info.compress_size)


@dataclass(frozen=True, slots=True)
class ZipReader:
    """Reads the members of a zip archive."""

    archive: str
    stamp: Stamp  # when it was listed

    def read(self, item: Item) -> bytes:
        """Return all bytes of a member, unpacked and checked against its CRC-32.

        Damage takes no more memory than one byte above the size in the directory.
        """
        word = (1 << 64) - 1
        offset, packed, rest = item.locator & word, item.locator >> 64 & word, item.locator >> 128
        with _open_parts(self.archive, self.stamp) as read:
            raw = read(_LOCAL_HEADER + _SLACK + packed, offset)
            # A local header's extra fields may differ from those in the central directory.
            lengths = (int.from_bytes(raw[at : at + 2], "little") for at in (26, 28))
            before = _LOCAL_HEADER + sum(lengths)
            data = raw[before : before + packed]
            if len(data) < packed:
                data = read(packed, offset + before)
        is_intact = raw.startswith(b"PK\x03\x04") and len(data) == packed
        if is_intact and rest >> 32 == zipfile.ZIP_DEFLATED:
            with contextlib.suppress(zlib.error):
                data = zlib.decompressobj(-zlib.MAX_WBITS).decompress(data, item.bytes + 1)
        if not is_intact or len(data) != item.bytes or zlib.crc32(data) != rest & 0xFFFFFFFF:
            what = "damaged in the archive, or wrong CRC-32"
            raise DamagedItemError(what, path=self.describe(item))
        return data

    def describe(self, item: Item) -> str:
        """Return the archive's path and the member's."""
        return f"{self.archive}/{item.key}"


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
        raise ValueError("the compressed data is damaged or ends early") from error


def is_tar(path: str) -> bool:
    """Return whether a file, or what is in it if it is compressed, is a tar archive."""
    with open_regular(path) as file, contextlib.suppress(ValueError):
        return starts_tar(_read(_contents(file), _BLOCK))
    return False


def starts_tar(head: bytes) -> bool:
    """Return whether the first bytes of a file, at least a block, are a tar archive's."""
    with contextlib.suppress(tarfile.TarError, ValueError):
        return bool(tarfile.TarInfo.frombuf(head[: tarfile.BLOCKSIZE], "utf-8", "surrogateescape"))
    return False


class _Headers:
    """A file for `tarfile`, which believes the sizes in headers: reads are bounded."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self.seek, self.tell = file, file.seek, file.tell
        self.left = 0

    def read(self, size: int) -> bytes:
        self.left -= size
        if size < 0 or self.left < 0:
            what = f"extended headers of a member exceed {_MOST_HEADER_BYTES:,} bytes"
            raise tarfile.ReadError(what)
        return self._file.read(size)


def read_headers(file: BinaryIO) -> Iterator[tarfile.TarInfo]:
    """Yield the members of an archive up to its end mark; damage is a ValueError."""
    size, headers = size_of_file(file), _Headers(file)
    archive, offset = None, file.tell()
    try:
        while True:
            headers.left = _MOST_HEADER_BYTES
            if archive is None:
                archive = tarfile.TarFile(
                    fileobj=cast(Any, headers), encoding="utf-8", errors="surrogateescape"
                )
            member = archive.next()
            archive.members.clear()  # type: ignore[attr-defined]
            if member is None:
                break
            offset = archive.offset
            if member.size < 0 or offset <= member.offset:
                raise ValueError(f"a member claims {member.size:,} bytes")
            if member.isreg() and offset > size:
                raise ValueError("the data of a member is truncated")
            yield member
    except (tarfile.TarError, OverflowError) as error:
        raise ValueError(f"a member has an invalid header: {error}") from error
    file.seek(offset)
    if (block := file.read(_BLOCK)) != bytes(_BLOCK):
        is_cut = len(block) < _BLOCK
        what = "it ends without an end-of-archive marker" if is_cut else "an invalid header"
        raise ValueError(what)


def list_tar(path: str, scratch: Path) -> Listing:
    """List the files of a tar archive, which is unpacked first if it is compressed.

    The unpacked file is in the folder ``scratch``, which must stay as long as items are read.

    Raises:
        SourceError: the archive is cut, damaged or a bomb.
        WriteError: it can't be unpacked.
    """
    with os_errors_as(SourceError, path), open_regular(path) as file:
        stamp = stamp_of(file)
        contents, reader = _contents(file), PartReader((path,), (stamp,))
        if contents is not file:
            with Spool(
                scratch, path, stamp[0], " (an uncompressed archive is read in place)"
            ) as spool:
                try:
                    while data := _read(contents, _CHUNK):
                        spool.add(data)
                except ValueError as error:
                    raise damaged_tar(path, "", error) from error
                reader = spool.reader
    members = _tar_members(path, str(reader.files[0]), stamp[0])
    return Listing(_checked(members, path, stamp[0]), reader)


def damaged_tar(path: str, where: str, error: Exception, offset: int | None = None) -> SourceError:
    """Return the error for an archive that is damaged."""
    what = f"truncated or damaged tar archive{where}: {error}"
    return SourceError(what, path=path, offset=offset, hint=_COPY_HINT)


def _tar_members(path: str, data: str, packed: int) -> Iterator[Entry]:
    """Yield the members of an archive, which had ``packed`` bytes before it was unpacked."""
    most, last, offset = unpacked_limit(packed) // _MEMBER_COST, "", 0
    with os_errors_as(SourceError, path), open_regular(data) as file:
        try:
            for count, header in enumerate(read_headers(file)):
                last, offset = f" in or after {printable(header.name)}", header.offset
                if count == most:
                    what = f"more than {most:,} members in {packed:,} bytes"
                    raise SourceError(what, path=path, hint=_UNPACK_HINT)
                problem = None
                if header.issparse():
                    problem = "stored as a sparse file"
                elif not header.isreg():
                    problem = _NOT_REGULAR
                if not header.isdir():
                    yield Entry(header.name, header.size, header.offset_data, problem)
        except ValueError as error:
            raise damaged_tar(path, last, error, offset) from error
        rest = file.read(_LONGEST_PADDING)
    padding = len(rest) - len(rest.lstrip(b"\0"))
    start = padding - padding % _BLOCK
    if starts_tar(rest[start : start + _BLOCK]):
        raise SourceError(
            "several tar archives are concatenated in this file",
            path=path,
            hint="unpack it with tar --ignore-zeros and pass the folder as SOURCE",
        )
