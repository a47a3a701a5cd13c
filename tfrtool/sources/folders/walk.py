"""Listing folders and patterns: links followed but never in circles, and nothing opened."""

from __future__ import annotations

import fnmatch
import os
import re
import stat
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from tfrtool.errors import SourceError, os_reason
from tfrtool.sources.folders.listing import (
    Entry,
    FolderReader,
    Listing,
    is_clutter,
    is_image_name,
)
from tfrtool.sources.items import LeftOut

_MOST_VISITS = 100
"""Ways to one folder, through links. Folders that link to each other have endlessly many in
practice (a dozen of them: millions), folders that people make have a few."""

_ANY_DEPTH = "**"

_Pattern = Sequence[re.Pattern[str] | None]
"""The parts of a pattern; None for any number of folders."""


def list_directory(root: str) -> Listing:
    """List all files below a directory; a folder that can't be read is a SourceError."""
    return Listing(entries=list(_walk(root, "", ())), reader=FolderReader(root))


def _walk(root: str, prefix: str, pattern: _Pattern) -> Iterator[Entry | LeftOut]:
    """Yield all files below a directory that match a pattern, or that lie in a folder which does.

    Keys start with the prefix. Depth is bounded by the longest path that the system takes, not by
    Python's stack.
    """
    visits: Counter[tuple[int, int]] = Counter()
    # A folder's path, what the keys in it start with, the places that it has come to in the
    # pattern, and the folders around it.
    pending: list[tuple[str, str, set[int], frozenset[tuple[int, int]]]] = [
        (root, prefix, _with_none({0}, pattern), frozenset())
    ]
    while pending:
        path, start, places, above = pending.pop()
        whole = len(pattern) in places
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
                    below = places if whole else _after(places, entry.name, pattern)
                    if not below:
                        continue
                    if _is(entry.is_dir):
                        pending.append((entry.path, f"{key}/", below, above | {identity}))
                    elif whole or len(pattern) in below:
                        image = is_image_name(key) or not _is(entry.is_file)
                        # The size of other files is of no interest.
                        yield file_entry(entry.path, key) if image else Entry(key)
        except OSError as error:
            reason = f"can't be read: {os_reason(error)}"
            raise SourceError(reason, path=error.filename or path) from error


def _is(test: Callable[[], bool]) -> bool:
    try:
        return test()
    except OSError:
        return False  # a link in a circle, or to where we may not look


def _after(places: set[int], name: str, pattern: _Pattern) -> set[int]:
    """Return the places in a pattern that a name leads to from others."""
    found = set()
    for place in places:
        if (part := pattern[place]) is None:
            found.add(place)
        elif part.match(name):
            found.add(place + 1)
    return _with_none(found, pattern) if None in pattern else found


def _with_none(places: set[int], pattern: _Pattern) -> set[int]:
    """Add the places that are reached without a name, for ``**`` may stand for no folder at all."""
    for place, part in enumerate(pattern):
        if part is None and place in places:
            places.add(place + 1)
    return places


def file_entry(path: str, key: str) -> Entry | LeftOut:
    """Return what is listed for a path that is no folder; links may lead nowhere."""
    try:
        found = os.stat(path)  # noqa: PTH116
    except OSError as error:
        if not os.path.islink(path):  # noqa: PTH114
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
    wanted = [
        None if part == _ANY_DEPTH else re.compile(fnmatch.translate(part))
        for part in parts[fixed:]
        if part
    ]
    folder, root = "", base
    if len(wanted) == 1 and None not in wanted:
        base, name = os.path.split(base)
        folder = f"{name}/" if name else ""
    entries = list(_walk(root, folder, wanted))
    if not entries:
        raise SourceError(
            "no file matches", path=pattern, expected="a pattern such as 'photos/*/*.jpg'"
        )
    return Listing(entries=entries, reader=FolderReader(base))
