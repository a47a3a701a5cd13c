"""Images in zip and tar archives, which `zipfile` and `tarfile` read.

Those of a zip, and a compressed tar, are unpacked to one file. A tar is read in place.
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
from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, BinaryIO, cast

from tfrtool.errors import SourceError, WriteError, os_errors_as, printable
from tfrtool.records.count import reader_at
from tfrtool.sources.folders.listing import Entry, Listing, is_clutter, is_image_name, size_problem
from tfrtool.sources.folders.unread_images import why_unread_by_head
from tfrtool.sources.items import DamagedItemError, Item
from tfrtool.storage.image_brand import BRAND_BYTES
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
"""Bits of a locator that are an offset in a file."""

ZIP_DAMAGE = (
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    ValueError,
    NotImplementedError,
    RuntimeError,
)
"""What `zipfile` raises for a member that it can't read; encrypted ones are a `RuntimeError`."""

DAMAGED = -1
"""The locator of a member that is damaged in its archive."""

_CHUNK = 256 * 1024
_BLOCK = tarfile.BLOCKSIZE
_MEMBER_COST = 4096
"""Bytes that a member counts for: its name is kept, and its header costs time."""

_MOST_HEADER_BYTES = 2 * MAX_ARCHIVE_HEADER_BYTES  # of one member
_LONGEST_PADDING = 1024 * 1024
"""Bytes behind the end mark of a tar that are looked at: tapes want whole blocks."""

_ENCRYPTED, _UTF8 = 0x1 | 0x40 | 0x2000, 0x800

_UNPACKERS: tuple[tuple[bytes, Callable[[BinaryIO], Any]], ...] = (
    (b"\x1f\x8b", lambda file: gzip.GzipFile(fileobj=file, mode="rb")),
    (b"BZh", bz2.BZ2File),
    (b"\xfd7zXZ\x00", lzma.LZMAFile),
)


@lru_cache(maxsize=8)
def _open_object(url: str, _process: int) -> BinaryIO:
    return open_regular(url)


@dataclass(frozen=True, slots=True)
class PartReader:
    """Reads items whose bytes lie in files; a locator is the number of a file and an offset."""

    files: tuple[str | Path, ...]  # a Path was unpacked, and must be visible to all nodes
    stamps: tuple[Stamp | None, ...]  # of the files, where others may change them
    name: str = ""  # of the archive, if it was unpacked

    def read(self, item: Item) -> bytes:
        """Return all bytes of an item; OSError if its file has another stamp, or ends before.

        A local file is opened for each item, an object of a store once per process.
        """
        if item.locator == DAMAGED:
            what = "damaged in the archive, or wrong CRC-32"
            raise DamagedItemError(what, path=self.describe(item))
        number, offset = divmod(item.locator, 1 << OFFSET_BITS)
        path, stamp = str(self.files[number]), self.stamps[number]
        file = _open_object(path, os.getpid()) if is_url(path) else open_regular(path, buffering=0)
        try:
            is_same = stamp is None or stamp_of(file) == stamp
            data = reader_at(file)(item.bytes, offset) if is_same else b""
        finally:
            if not is_url(path):
                file.close()
        if not is_same or len(data) != item.bytes:
            raise OSError(errno.ESTALE, "it was changed after it was listed", path)
        return data

    def describe(self, item: Item) -> str:
        """Return the path of the archive, and the member's."""
        number = max(item.locator, 0) >> OFFSET_BITS
        return f"{self.name or self.files[number]}/{item.key}"


class Spool:
    """A file in the scratch folder into which the contents of a source are unpacked.

    It replaces what an interrupted write left under its name. A disk that is full is a
    `WriteError`.

    Attributes:
        packed: bytes of the packed source: they limit what may be unpacked.
        path: the file.
        reader: reads items at offsets in it.
        size: bytes in it.
    """

    def __init__(self, scratch: Path, where: str, packed: int = 0, hint: str = "") -> None:
        """Open the file for the contents of the source ``where``; the hint is for a full disk."""
        self.path, self.packed, self._where = scratch / SPOOL, packed, where
        self.reader = PartReader((self.path,), (None,), where)
        self._failure = f"can't be unpacked to {self.path}{hint}"
        self.size = 0
        with os_errors_as(WriteError, where, self._failure):
            self.path.unlink(missing_ok=True)
            self._out = self.path.open("xb")

    def __enter__(self) -> "Spool":
        return self

    def __exit__(self, *_: object) -> None:
        with os_errors_as(WriteError, self._where, self._failure):
            self._out.close()

    def add(self, data: bytes, member: str = "") -> int:
        """Append bytes and return their offset; SourceError if the source unpacks to too much.

        The name of the ``member`` they belong to is for the error.
        """
        offset, most = self.size, unpacked_limit(self.packed)
        self.size += len(data)
        if self.size > most:
            at = f", counted up to {printable(member)}" if member else ""
            what = f"unpacks to more than {most:,} bytes{at}"
            raise SourceError(what, path=self._where, hint=_UNPACK_HINT)
        with os_errors_as(WriteError, self._where, self._failure):
            self._out.write(data)
        return offset


def _entry(name: str, size: int, problem: str | None) -> Entry | None:
    """Return the entry of a member without its locator; None for clutter and for a folder."""
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if not parts or name.endswith("/") or any(is_clutter(one) for one in parts if one != ".."):
        return None
    if ".." in parts:
        return Entry(name, problem="path leads outside the archive")
    key = "/".join(parts)
    return Entry(key, size, 0, problem) if is_image_name(key) else Entry(key)


def _with_images(entries: Iterator[Entry], archive: str) -> Iterator[Entry]:
    """Yield the files of an archive; SourceError in the end if it has images but none is usable."""
    unusable, usable = None, False
    for entry in entries:
        if entry.problem is None:
            usable = usable or is_image_name(entry.key)
        else:
            unusable = unusable or entry
        yield entry
    if unusable is not None and not usable:
        found = f"{printable(unusable.key)}: {unusable.problem}"
        what = "no image in this archive can be read"
        raise SourceError(what, path=archive, found=found, hint=_UNPACK_HINT)


class _Directory(io.BufferedReader):
    """A zip whose directory, which `zipfile` reads at once, has a bounded size."""

    def read(self, size: int | None = -1, /) -> bytes:
        """Read the next bytes."""
        if size is not None and size > MAX_ZIP_DIRECTORY_BYTES:
            raise zipfile.BadZipFile(f"its directory has {size:,} bytes")
        return super().read(size)


def open_zip(path: str) -> BinaryIO:
    """Open an archive whose directory `zipfile` may read."""
    return _Directory(cast(Any, open_regular(path, buffering=0)))


def list_zip(path: str, scratch: Path) -> Listing:
    """List the files of a zip archive, and unpack its images to a file in the folder ``scratch``.

    The folder must stay as long as items are read.

    Raises:
        SourceError: the archive can't be read, is damaged or a bomb.
        WriteError: it can't be unpacked.
    """
    with os_errors_as(SourceError, path), open_regular(path) as file:
        stamp = stamp_of(file)
    spool = Spool(scratch, path, stamp[0], " (a folder or an uncompressed tar is read in place)")
    return Listing(_with_images(_zip_members(path, stamp, spool), path), spool.reader)


def _zip_members(path: str, stamp: Stamp, spool: Spool) -> Iterator[Entry]:
    try:
        with spool, os_errors_as(SourceError, path), open_zip(path) as file:
            archive = zipfile.ZipFile(file)
            infos = archive.infolist()
            archive.NameToInfo.clear()
            folders = _folders_of_images(infos)
            infos.reverse()
            while infos:  # half a kilobyte each: they go as their members come
                info = infos.pop()
                name = _separated(_zip_name(info), folders)
                entry = _entry(name, info.file_size, _zip_problem(info))
                if entry is None:
                    continue
                if entry.problem is None and is_image_name(entry.key):
                    entry = entry._replace(locator=_unpack(archive, info, spool))
                elif entry.problem is None and _zip_problem(info) is None:
                    problem = why_unread_by_head(entry.key, partial(_head_of, archive, info))
                    entry = entry._replace(problem=problem)
                yield entry
            with open_regular(path) as again:
                if stamp_of(again) != stamp:
                    raise SourceError("it was changed while it was read", path=path)
    # What it raises for versions that it doesn't know, and for names that are not UTF-8.
    except (zipfile.BadZipFile, NotImplementedError, ValueError, OverflowError) as error:
        what = f"truncated or damaged zip archive: {printable(str(error))}"
        raise SourceError(what, path=path, hint=_COPY_HINT) from error


def _head_of(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> bytes:
    """Return the first bytes of a member; none if it is damaged."""
    try:
        with archive.open(info) as member:
            return member.read(BRAND_BYTES)
    except ZIP_DAMAGE:
        return b""


def _unpack(archive: zipfile.ZipFile, info: zipfile.ZipInfo, spool: Spool) -> int:
    """Append a member to the spool; return its offset there, or `DAMAGED`."""
    start = spool.size
    try:
        with archive.open(info) as member:
            while data := member.read(_CHUNK):  # never more than the directory says
                spool.add(data, info.filename)
    except ZIP_DAMAGE:
        return DAMAGED
    return start if spool.size - start == info.file_size else DAMAGED


def _folders_of_images(infos: Iterable[zipfile.ZipInfo]) -> frozenset[str]:
    """Return the folders of images without a backslash in their path, if any has one."""
    if not any("\\" in info.orig_filename for info in infos):
        return frozenset()
    names = (name for name in map(_zip_name, infos) if "\\" not in name and is_image_name(name))
    return frozenset(name.rpartition("/")[0] for name in names if "/" in name)


def _separated(name: str, folders: Container[str]) -> str:
    """Return a name with slashes between folders, as Windows programs that write others meant it.

    A backslash next to images without one is a character of the name.
    """
    if "\\" in name and name.rpartition("/")[0] not in folders:
        name = name.replace("\\", "/")
    return name[3:] if name[1:3] == ":/" else name


def _zip_name(info: zipfile.ZipInfo) -> str:
    name = info.orig_filename.partition("\0")[0]
    if not info.flag_bits & _UTF8:
        # macOS and many libraries write UTF-8 without the flag that says so; text in code page
        # 437 that happens to be UTF-8 makes no sense.
        with contextlib.suppress(UnicodeError):
            name = name.encode("cp437").decode("utf-8")
    return name


def _zip_problem(info: zipfile.ZipInfo) -> str | None:
    """Return why a member can't be read, as far as the directory shows."""
    kind = stat.S_IFMT(info.external_attr >> 16) if info.create_system == 3 else 0
    if kind not in (0, stat.S_IFREG):
        return _NOT_REGULAR
    if info.flag_bits & _ENCRYPTED:
        return "encrypted"
    # `zipfile` doesn't bound the memory that others take.
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        return f"compression method {info.compress_type} is not supported (deflate and none are)"
    if info.volume:
        return "stored in another part of a multi-part archive"
    return size_problem(info.file_size)


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
    return Listing(_with_images(members, path), reader)


def _read_at(file: BinaryIO, offset: int, size: int) -> bytes:
    """Return the first bytes of what lies at an offset; the position stays."""
    position = file.seek(0, os.SEEK_CUR)
    file.seek(offset)
    head = file.read(min(size, BRAND_BYTES))
    file.seek(position)
    return head


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
                entry = None if header.isdir() else _entry(header.name, header.size, problem)
                if entry is None:
                    continue
                if problem is None and entry.problem is None and not is_image_name(entry.key):
                    read_head = partial(_read_at, file, header.offset_data, header.size)
                    entry = entry._replace(problem=why_unread_by_head(entry.key, read_head))
                yield entry._replace(locator=header.offset_data)
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
