"""Listing a directory tree: links followed but never in circles, and nothing opened."""

from __future__ import annotations

import os
import stat
from collections import Counter

from tfrtool.errors import SourceError, os_reason
from tfrtool.sources.folders.folder_reader import FolderReader
from tfrtool.sources.folders.listing import Entry, Listing, is_clutter, is_image_name
from tfrtool.sources.items import LeftOut

__all__ = ["file_entry", "list_directory", "walk"]

_NO_FILE = "neither a file nor a folder"
"""Why a named pipe, a socket or a device is ignored."""

_MOST_VISITS = 100
"""Ways to one folder, through links. Folders that link to each other have endlessly many in
practice (a dozen of them: millions), folders that people make have a few."""

_Identity = tuple[int, int]
_Folder = tuple[str, str, frozenset[_Identity]]
"""A folder's path, what the keys in it start with, and the folders around it."""


def list_directory(root: str) -> Listing:
    """List all files below a directory.

    Raises:
        SourceError: a folder can't be read, or links lead to one again and again.
    """
    entries: list[Entry] = []
    ignored: list[LeftOut] = []
    walk(root, "", entries, ignored)
    return Listing(entries=entries, reader=FolderReader(root), ignored=tuple(ignored))


def walk(root: str, prefix: str, entries: list[Entry], ignored: list[LeftOut]) -> None:
    """Add all files below a directory to a list.

    Depth is bounded by the longest path that the system takes, not by Python's stack.

    Args:
        root: the directory.
        prefix: what keys start with: "" or a path with a slash at its end.
        entries: what is added to.
        ignored: likewise, what is no file.

    Raises:
        SourceError: a folder or file can't be read, or links lead to one again and again.
    """
    visits: Counter[_Identity] = Counter()
    pending: list[_Folder] = [(root, prefix, frozenset())]
    while pending:
        path, start, above = pending.pop()
        try:
            status = os.stat(path)  # noqa: PTH116 - a Path for each folder costs more than the call
            identity = (status.st_dev, status.st_ino)
            if identity in above:
                continue
            visits[identity] += 1
            if visits[identity] > _MOST_VISITS:
                raise SourceError(
                    "links lead to this folder again and again",
                    path=path,
                    hint="remove the links that go around in circles",
                )
            inside = above | {identity}
            with os.scandir(path) as found:
                for entry in found:
                    name = entry.name
                    if is_clutter(name):
                        continue
                    if _is_folder(entry):
                        pending.append((entry.path, f"{start}{name}/", inside))
                    else:
                        _add(entry, start + name, entries, ignored)
        except OSError as error:
            raise SourceError(
                f"can't be read: {os_reason(error)}", path=error.filename or path
            ) from error


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False  # a link in a circle, or to where we may not look


def _add(entry: os.DirEntry[str], key: str, entries: list[Entry], ignored: list[LeftOut]) -> None:
    try:
        if not is_image_name(key) and entry.is_file():
            entries.append(Entry(key))  # its size is of no interest
            return
        status = entry.stat()
    except OSError as error:
        if not entry.is_symlink():
            raise
        entries.append(Entry(key, problem=_problem(error)))
        return
    if stat.S_ISREG(status.st_mode):
        entries.append(Entry(key, status.st_size))
    else:
        ignored.append(LeftOut(key=key, reason=_NO_FILE))


def file_entry(path: str, key: str) -> Entry | LeftOut:
    """Return what is listed for a path that is no folder.

    Raises:
        OSError: it can't be looked at, and is no link.
    """
    try:
        status = os.stat(path)  # noqa: PTH116
    except OSError as error:
        if not os.path.islink(path):  # noqa: PTH114
            raise
        return Entry(key, problem=_problem(error))
    if stat.S_ISREG(status.st_mode):
        return Entry(key, status.st_size)
    return LeftOut(key=key, reason=_NO_FILE)


def _problem(error: OSError) -> str:
    if isinstance(error, FileNotFoundError):
        return "a link to a file that isn't there"
    return f"a link that can't be followed: {os_reason(error)}"
