"""The files that a table names, which may be those of another machine."""

import errno
import os
import posixpath
import re
import stat
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from urllib.parse import unquote

from tfrtool.errors import SourceError, os_reason, printable
from tfrtool.sources.folders.listing import Entry, FolderReader, is_image_name, list_directory
from tfrtool.sources.items import UnfitError
from tfrtool.storage.limits import MAX_PATH_LENGTH
from tfrtool.storage.remote_path import AnyPath

_NO_SUCH_FILE = (errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.ELOOP, errno.ENAMETOOLONG)
"""What the system says of a path that may be wrong; anything else means that a disk fails."""

_MOST_DROPPED, _MOST_SEARCHES = 16, 100
"""Leading folders of paths that may have to be dropped, and rows that are tried for that."""

_SUFFIXES = (
    *(".jpg", ".jpeg", ".png", ".JPG", ".JPEG", ".PNG", ".webp", ".tif", ".tiff", ".bmp"),
    *(".gif", ".WEBP", ".TIF", ".TIFF", ".BMP", ".GIF"),
)
"""What is tried for a path without the suffix of an image, in this order."""

_SCHEME = re.compile(r"([a-z][a-z0-9+.-]*)://", re.IGNORECASE)
_DRIVE = re.compile(r"/?([A-Za-z]:/)")
_MOST_LISTED = 100_000
"""Files that are looked at for those that a table names."""


class TableFiles:
    """The files that a table names; links don't lead out of its folder or the root either.

    A table comes with its images, and whoever wrote it may not know whose machine it is read on.
    """

    def __init__(self, table: Path, root: AnyPath | None) -> None:
        """Allow the table's own folder, and another one that the user gave."""
        self._table = table
        folders = (table.parent, *([] if root is None else [root]))
        self._folders = tuple(map(os.path.abspath, folders))
        self._bounds = tuple(map(_real_folder, self._folders))
        self._as_written = False  # a relative path was found without dropping folders
        self._has_suffixes = False  # a file was found by its full name
        self._dropped, self._searches = Counter[bool](), Counter[bool]()  # by is_absolute
        self._outside: dict[str, bool] = {}  # by folder: there are fewer than files

    @property
    def reader(self) -> FolderReader:
        """The reader of the files that were found."""
        return FolderReader(self._folders, moved=any(self._dropped.values()))

    def find(self, name: str, row: int) -> tuple[str, int, int]:
        """Return the key of the file that a row names, its size, and its place."""
        problem, is_absolute = "no such file", _is_absolute(name)
        names = [*spellings(name, suffixes=not self._has_suffixes)]
        for spelled in names:
            for number, folder in enumerate(self._folders):
                # The same file has the same key, however the table is written.
                key = spelled.removeprefix(folder.rstrip("/") + "/")
                size, reason = self._size(folder, key, row)
                if size is not None:
                    self._as_written |= not is_absolute
                    self._has_suffixes |= is_image_name(name)
                    if self._dropped[False] and not is_absolute:
                        what = f"row {row} names a file as it is, and rows before it don't"
                        hint = "leave the leading folders that no longer exist out of the table"
                        raise SourceError(what, path=self._table, hint=hint)
                    return key, size, number
                problem = reason or problem
        for dropped in self._drops(name, is_absolute):  # the table was moved with its images
            for key in names:
                if key.count("/") < dropped:
                    continue
                rest = key.split("/", dropped)[-1]
                for number, folder in enumerate(self._folders):
                    size, _ = self._size(folder, rest, row)
                    if size is not None:
                        self._dropped[is_absolute] = dropped
                        self._has_suffixes |= is_image_name(name)
                        return key, size, number + dropped * len(self._folders)
        raise UnfitError(problem)

    def below_folder(self, key: str, locator: int) -> str:
        """Return the path below the table's folder of a file that was found; "" if it isn't."""
        dropped, number = divmod(locator, len(self._folders))
        if number:
            return ""
        rest = key.split("/", dropped)[-1]
        if posixpath.isabs(rest):  # through a link to the folder
            rest = os.path.realpath(rest).removeprefix(self._bounds[0])
        return rest

    def tried(self, name: str) -> list[str]:
        """Return paths that `find` looks for, the most telling ones first."""
        *_, slashed = spellings(name, suffixes=False)
        folder = self._folders[-1]
        paths = [os.path.join(folder, slashed)]  # noqa: PTH118 - as `find` does
        if not is_image_name(slashed):
            paths.append(paths[0] + _SUFFIXES[0])
        if "/" in slashed.strip("/"):
            paths.append(os.path.join(folder, slashed.rpartition("/")[2]))  # noqa: PTH118
        return paths

    def folder_of(self, names: Sequence[str]) -> str | None:
        """Return the folder that paths of a table start from, by the names of files; None if none.

        It is below the table's folder, or below the folder around that.
        """
        tails: dict[str, list[list[str]]] = {}
        for name in names:
            *_, slashed = spellings(name, suffixes=False)
            parts = slashed.split("/")
            tails.setdefault(_stem(parts[-1]), []).append(parts)
        around = Path(self._folders[0])
        for folder in (around, around.parent):
            roots = Counter[str]()
            entries = list_directory(str(folder)).entries
            for key in (one.key for one in islice(_readable(entries), _MOST_LISTED)):
                parts = key.split("/")
                for tail in tails.get(_stem(parts[-1]), ()) if is_image_name(key) else ():
                    if tail[-1] in (parts[-1], _stem(parts[-1])):
                        equal = _equal_ends(parts[:-1], tail[:-1])
                        roots["/".join(parts[: len(parts) - 1 - equal])] += 1
            if roots:
                return str(folder / roots.most_common(1)[0][0])
        return None

    def _drops(self, name: str, is_absolute: bool) -> Iterable[int]:
        """Return how many leading folders to drop; the first file found decides it for all rows."""
        if self._as_written and not is_absolute:
            return ()
        if known := self._dropped[is_absolute]:
            return (known,)
        self._searches[is_absolute] += 1
        if self._searches[is_absolute] > _MOST_SEARCHES:
            return ()
        *_, slashed = spellings(name, suffixes=False)
        return range(1, min(slashed.count("/"), _MOST_DROPPED) + 1)

    def _size(self, folder: str, key: str, row: int) -> tuple[int | None, str]:
        """Return the size of a file, or None and what is wrong with it, or ""."""
        path = os.path.join(folder, key)  # noqa: PTH118 - a Path is slow
        if posixpath.isabs(key) and not os.path.lexists(path):
            return None, ""  # of another machine
        try:
            status = self._look(path, row)
        except OSError as error:
            if error.errno not in _NO_SUCH_FILE:
                raise SourceError(f"can't be read: {os_reason(error)}", path=path) from error
            return None, "" if error.errno == errno.ENOENT else os_reason(error)
        return (
            (status.st_size, "") if stat.S_ISREG(status.st_mode) else (None, "not a regular file")
        )

    def _look(self, path: str, row: int) -> os.stat_result:
        """Return the status of a file; a SourceError if it is really out of bounds."""
        folder = path[: max(path.rfind("/"), path.rfind(os.sep)) + 1]
        if folder not in self._outside:
            self._outside[folder] = not _real_folder(folder).startswith(self._bounds)
        if not self._outside[folder]:
            status = os.lstat(path)  # a Path costs twice as much
            if not stat.S_ISLNK(status.st_mode):
                return status
            if os.path.realpath(path).startswith(self._bounds):
                return os.stat(path)  # noqa: PTH116
        raise SourceError(
            f"row {row} names a file outside the table's folder",
            path=self._table,
            found=printable(os.path.realpath(path)),
            hint="use --root DIR to allow files below DIR",
        )


def spellings(name: str, *, suffixes: bool = True) -> Iterator[str]:
    """Yield the paths that a path of a table may stand for, the likeliest first.

    Backslashes may be those of Windows, and a name may lack the suffix of an image.
    """
    names = [name]
    if "\\" in name and os.sep == "/":  # the table was made on Windows
        names.append(posixpath.normpath(name.replace("\\", "/")))
    yield from names
    if suffixes and not is_image_name(name):
        for one in names:
            yield from (one + suffix for suffix in _SUFFIXES)


def plain_path(path: str) -> str:
    """Return a path of a table in its simplest form; that of a local file may be a URI."""
    if not path:
        raise UnfitError("no path")
    if len(path) > MAX_PATH_LENGTH:
        raise UnfitError(f"path is longer than {MAX_PATH_LENGTH:,} characters")
    if match := _SCHEME.match(path):
        if (scheme := match[1].lower()) != "file":
            raise UnfitError(f"{scheme}:// paths are not supported; download the file first")
        host, slash, below = path[match.end() :].partition("/")
        if host not in ("", "localhost") or not slash:
            raise UnfitError("not the URI of a local file, such as file:///data/cat.jpg")
        path = "/" + unquote(below, errors="surrogateescape")
        path = path[_DRIVE.match(path) is not None :]
    if not path.isprintable() and any(unicodedata.category(c) in ("Cc", "Cs") for c in path):
        raise UnfitError("path contains unprintable characters")
    path = posixpath.normpath(path)
    return "/" + path.lstrip("/") if path.startswith("//") else path


def _is_absolute(name: str) -> bool:
    slashed = name.replace("\\", "/")
    return slashed.startswith("/") or _DRIVE.match(slashed) is not None


def _stem(name: str) -> str:
    return name.rpartition(".")[0] if is_image_name(name) else name


def _equal_ends(parts: Sequence[str], other: Sequence[str]) -> int:
    """Return how many parts at the end of two paths are equal."""
    count = 0
    while count < min(len(parts), len(other)) and parts[-1 - count] == other[-1 - count]:
        count += 1
    return count


def _readable(entries: Iterable[Entry]) -> Iterator[Entry]:
    """Yield entries up to the first folder that can't be read."""
    with suppress(SourceError):
        yield from entries


def _real_folder(folder: str) -> str:
    return os.path.join(os.path.realpath(folder), "")  # noqa: PTH118 - with a slash at its end
