"""Listing folders and patterns: links followed but never in circles, and nothing opened."""

from __future__ import annotations

import fnmatch
import os
import stat
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from tfrtool.errors import SourceError, os_reason
from tfrtool.sources.folders.folder_reader import FolderReader
from tfrtool.sources.folders.listing import Entry, Listing, is_clutter, is_image_name
from tfrtool.sources.items import LeftOut

_MOST_VISITS = 100
"""Ways to one folder, through links. Folders that link to each other have endlessly many in
practice (a dozen of them: millions), folders that people make have a few."""

_ANY_DEPTH = "**"


def list_directory(root: str) -> Listing:
    """List all files below a directory; a folder that can't be read is a SourceError."""
    return Listing(entries=list(_walk(root, "")), reader=FolderReader(root))


def _walk(root: str, prefix: str) -> Iterator[Entry | LeftOut]:
    """Yield all files below a directory, with keys that start with a prefix.

    Depth is bounded by the longest path that the system takes, not by Python's stack.
    """
    visits: Counter[tuple[int, int]] = Counter()
    # A folder's path, what the keys in it start with, and the folders around it.
    pending: list[tuple[str, str, frozenset[tuple[int, int]]]] = [(root, prefix, frozenset())]
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
            with os.scandir(path) as found:
                for entry in found:
                    key = start + entry.name
                    if is_clutter(entry.name):
                        continue
                    if _is(entry.is_dir):
                        pending.append((entry.path, f"{key}/", above | {identity}))
                    elif not is_image_name(key) and _is(entry.is_file):
                        yield Entry(key)  # its size is of no interest
                    else:
                        yield _entry(key, entry.stat, entry.is_symlink)
        except OSError as error:
            raise _unreadable(error, path) from error


def _unreadable(error: OSError, path: str) -> SourceError:
    return SourceError(f"can't be read: {os_reason(error)}", path=error.filename or path)


def _is(test: Callable[[], bool]) -> bool:
    try:
        return test()
    except OSError:
        return False  # a link in a circle, or to where we may not look


def file_entry(path: str, key: str) -> Entry | LeftOut:
    """Return what is listed for a path that is no folder; links may lead nowhere."""
    return _entry(key, partial(os.stat, path), partial(os.path.islink, path))


def _entry(
    key: str, status: Callable[[], os.stat_result], is_link: Callable[[], bool]
) -> Entry | LeftOut:
    try:
        found = status()
    except OSError as error:
        if not is_link():
            raise
        if isinstance(error, FileNotFoundError):
            return Entry(key, problem="a link to a file that isn't there")
        return Entry(key, problem=f"a link that can't be followed: {os_reason(error)}")
    if stat.S_ISREG(found.st_mode):
        return Entry(key, found.st_size)
    return LeftOut(key=key, reason="neither a file nor a folder")


def is_pattern(path: str) -> bool:
    """Return whether a path has wildcards; a file of that very name may be meant all the same."""
    return any(character in path for character in "*?[")


def list_matches(pattern: str) -> Listing:
    """List the files that a pattern matches, and all files below the folders that it matches.

    ``*``, ``?`` and ``[...]`` stand for parts of a name, ``**`` for any number of folders.
    Keys start below the folder that the pattern names without wildcards; where it matches files
    in that folder itself, with the folder's name, so that it can be their class.
    """
    parts = pattern.replace(os.sep, "/").split("/")
    fixed = next(number for number, part in enumerate(parts) if is_pattern(part))
    base = os.path.abspath("/".join(parts[:fixed]) + "/" if fixed else ".")  # noqa: PTH100
    wanted = [part for part in parts[fixed:] if part]
    folder = ""
    if len(wanted) == 1 and _ANY_DEPTH not in wanted:
        base, name = os.path.split(base)
        folder = f"{name}/" if name else ""
    try:
        if _ANY_DEPTH in wanted:
            # Found by the walk, which knows about circles, and sorted out afterwards.
            walked = _walk(base, folder)
            entries = [entry for entry in walked if _fits(entry.key.split("/"), wanted)]
        else:
            entries = list(_expand(base, folder, wanted))
    except OSError as error:
        raise _unreadable(error, base) from error
    if not entries:
        raise SourceError(
            "no file matches", path=pattern, expected="a pattern such as 'photos/*/*.jpg'"
        )
    return Listing(entries=entries, reader=FolderReader(base))


def _expand(base: str, folder: str, wanted: Sequence[str]) -> Iterator[Entry | LeftOut]:
    """Yield what matches the parts of a pattern one by one below ``folder``, and what is in it."""
    first, *rest = wanted
    with os.scandir(os.path.join(base, folder)) as found:  # noqa: PTH118
        matches = [
            entry
            for entry in found
            if not is_clutter(entry.name) and fnmatch.fnmatch(entry.name, first)
        ]
    for entry in matches:
        key = folder + entry.name
        if not _is(entry.is_dir):
            if not rest:
                yield _entry(key, entry.stat, entry.is_symlink)
        elif rest:
            yield from _expand(base, f"{key}/", rest)
        else:
            yield from _walk(entry.path, f"{key}/")


def _fits(path: Sequence[str], wanted: Sequence[str]) -> bool:
    """Return whether the parts of a path, or the folders it lies in, match those of a pattern."""
    # The positions in the pattern that may come next, as in a state machine: no backtracking.
    positions = {0}
    for name in (*path, None):
        for position in range(len(wanted)):
            if position in positions and wanted[position] == _ANY_DEPTH:
                positions.add(position + 1)  # it stands for no folder at all
        if name is None or len(wanted) in positions:
            break  # below a folder that matched, everything does
        positions = {
            position + (wanted[position] != _ANY_DEPTH)
            for position in positions
            if wanted[position] == _ANY_DEPTH or fnmatch.fnmatch(name, wanted[position])
        }
    return len(wanted) in positions
