"""Arrays in a zip or tar archive, as they are published: unpacked into a scratch folder."""

import shutil
import tarfile
import zipfile
from collections.abc import Callable, Generator
from contextlib import closing
from pathlib import Path
from typing import IO, NamedTuple

from tfrtool.errors import SourceError, os_errors_as, printable
from tfrtool.sources.archives import ZIP_DAMAGE, damaged_tar, open_zip, read_headers
from tfrtool.sources.folders.listing import is_clutter, is_image_name
from tfrtool.sources.formats.unpacked import open_unpacked
from tfrtool.storage.limits import unpacked_limit
from tfrtool.storage.opening import open_regular, size_of_file

UNPACKED = "unpacked-arrays"
"""Name of the folder in the scratch folder."""

_ZIP = b"PK\x03\x04"
_HINT = "unpack it and pass the folder as SOURCE"
_BLOCK, _CHUNK = tarfile.BLOCKSIZE, 256 * 1024
_HEADERS_SEEN, _BYTES_SEEN = 16, 64 * 2**20
"""Members at the start of a tar, and the bytes of each, that show whether it has arrays."""


class _ArrayFile(NamedTuple):
    name: str  # without folders
    file: IO[bytes]  # at its first byte
    size: int


def unpack_arrays(path: str, scratch: Path, is_array: Callable[[str], bool]) -> Path | None:
    """Unpack the arrays of an archive; None for a file without any, or with images.

    Args:
        path: a file of any kind.
        scratch: a folder that the caller removes.
        is_array: whether a file of this name is an array, or has the names of classes.
    """
    with os_errors_as(SourceError, path), open_regular(path) as file:
        head, packed = file.read(len(_ZIP)), size_of_file(file)
    if head == _ZIP:
        members = _zip_members(path, is_array)
    elif _is_tar_of_arrays(path, is_array):
        members = _tar_members(path, is_array)
    else:
        return None
    folder, most, total = scratch / UNPACKED, unpacked_limit(packed), 0
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    with closing(members), os_errors_as(SourceError, path):
        for member in members:
            total += member.size
            if total > most:
                what = f"unpacks to more than {most:,} bytes"
                raise SourceError(what, path=path, hint=_HINT)
            if (folder / member.name).exists():
                what = f"several files are called {printable(member.name)}"
                raise SourceError(what, path=path, hint=_HINT)
            _copy(member, folder / member.name, path)
    return folder if total else None


def _copy(member: _ArrayFile, target: Path, path: str) -> None:
    left = member.size
    with target.open("xb") as copy:
        try:
            while left and (data := member.file.read(min(_CHUNK, left))):
                copy.write(data)
                left -= len(data)
        except ZIP_DAMAGE as error:
            what = f"damaged archive: {printable(member.name)} can't be read"
            raise SourceError(what, path=path) from error
    if left:
        raise SourceError(f"{printable(member.name)} in it is truncated", path=path)


def _usable_name(key: str) -> str:
    """Return the name of a file; "" for what can't be one, or only belongs to a system."""
    *folders, name = key.split("/")
    is_usable = not any(map(is_clutter, (*folders, name))) and "\\" not in name
    return name if is_usable and name.isprintable() and len(name.encode()) < 256 else ""


def _zip_members(path: str, is_array: Callable[[str], bool]) -> Generator[_ArrayFile, None, None]:
    with open_zip(path) as file:
        try:
            archive = zipfile.ZipFile(file)
            infos = [info for info in archive.infolist() if not info.is_dir()]
        except (*ZIP_DAMAGE, OverflowError):
            return  # the reader of archives says what is wrong
        if any(is_image_name(info.filename) for info in infos):
            return
        for info in infos:
            if (name := _usable_name(info.filename)) and is_array(name):
                try:
                    data = archive.open(info)
                except ZIP_DAMAGE as error:
                    what = f"damaged or encrypted archive: {printable(name)} can't be read"
                    raise SourceError(what, path=path) from error
                with data:
                    yield _ArrayFile(name, data, info.file_size)


def _tar_members(path: str, is_array: Callable[[str], bool]) -> Generator[_ArrayFile, None, None]:
    with open_unpacked(Path(path), copied=True) as file:
        try:
            for header in read_headers(file):
                after = file.tell()
                name = _usable_name(header.name) if header.isreg() else ""
                if name and is_array(name) and not header.issparse():
                    file.seek(header.offset_data)
                    yield _ArrayFile(name, file, header.size)
                    file.seek(after)
        except ValueError as error:
            raise damaged_tar(path, "", error) from error


def _is_tar_of_arrays(path: str, is_array: Callable[[str], bool]) -> bool:
    """Return whether the first files of a tar are arrays and not images."""
    with open_unpacked(Path(path)) as file:
        try:
            for _ in range(_HEADERS_SEEN):
                header = tarfile.TarInfo.frombuf(file.read(_BLOCK), "utf-8", "surrogateescape")
                name = _usable_name(header.name) if header.isreg() else ""
                if is_image_name(name) or not 0 <= header.size <= _BYTES_SEEN:
                    return False
                if name and is_array(name):
                    return True
                file.read(-(-header.size // _BLOCK) * _BLOCK)
        except (tarfile.TarError, ValueError, SourceError):
            return False
    return False
