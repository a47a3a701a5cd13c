"""Patterns: ``photos/*/*.jpg``, quoted so that the shell leaves them alone."""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Iterator, Sequence

from tfrtool.errors import SourceError, os_reason
from tfrtool.sources.folders.folder_reader import FolderReader
from tfrtool.sources.folders.listing import Entry, Listing, is_clutter
from tfrtool.sources.folders.walk import file_entry, walk
from tfrtool.sources.items import LeftOut

__all__ = ["is_pattern", "list_matches"]

_ANY_DEPTH = "**"


def is_pattern(path: str) -> bool:
    """Return whether a path has wildcards; a file of that very name may be meant all the same."""
    return any(character in path for character in "*?[")


def list_matches(pattern: str) -> Listing:
    """List the files that a pattern matches, and all files below the folders that it matches.

    ``*``, ``?`` and ``[...]`` stand for parts of a name, ``**`` for any number of folders.
    Keys start below the folder that the pattern names without wildcards; where it matches files
    in that folder itself, with the folder's name, so that it can be their class.

    Raises:
        SourceError: nothing matches, or a folder can't be read.
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
        listing = _list(base, folder, wanted)
    except OSError as error:
        raise SourceError(
            f"can't be read: {os_reason(error)}", path=error.filename or base
        ) from error
    if not listing.entries and not listing.ignored:
        raise SourceError(
            "no file matches", path=pattern, expected="a pattern such as 'photos/*/*.jpg'"
        )
    return listing


def _list(base: str, folder: str, wanted: Sequence[str]) -> Listing:
    entries: list[Entry] = []
    ignored: list[LeftOut] = []
    if _ANY_DEPTH in wanted:
        # Found by the walk, which knows about circles, and sorted out afterwards.
        walk(base, folder, entries, ignored)
        entries = [entry for entry in entries if _fits(entry.key.split("/"), wanted)]
        ignored = [entry for entry in ignored if _fits(entry.key.split("/"), wanted)]
    else:
        for key in _expand(base, folder, wanted):
            path = os.path.join(base, key)  # noqa: PTH118
            if os.path.isdir(path):  # noqa: PTH112
                walk(path, f"{key}/", entries, ignored)
                continue
            entry = file_entry(path, key)
            if isinstance(entry, Entry):
                entries.append(entry)
            else:
                ignored.append(entry)
    return Listing(entries=entries, reader=FolderReader(base), ignored=tuple(ignored))


def _expand(base: str, folder: str, wanted: Sequence[str]) -> Iterator[str]:
    """Yield the keys below ``folder`` that match the parts of a pattern one by one."""
    first, *rest = wanted
    with os.scandir(os.path.join(base, folder)) as found:  # noqa: PTH118
        matches = [
            (entry.name, bool(rest) and entry.is_dir())
            for entry in found
            if not is_clutter(entry.name) and fnmatch.fnmatch(entry.name, first)
        ]
    for name, is_folder in matches:
        if not rest:
            yield folder + name
        elif is_folder:
            yield from _expand(base, f"{folder}{name}/", rest)


def _fits(path: Sequence[str], wanted: Sequence[str]) -> bool:
    """Return whether the parts of a path, or the folders it lies in, match those of a pattern."""
    # The positions in the pattern that may come next, as in a state machine: no backtracking.
    positions = _after_any_depth({0}, wanted)
    for name in path:
        following = set()
        for position in positions:
            # Below a folder that matched, everything does.
            if position == len(wanted) or wanted[position] == _ANY_DEPTH:
                following.add(position)
            elif fnmatch.fnmatch(name, wanted[position]):
                following.add(position + 1)
        positions = _after_any_depth(following, wanted)
    return len(wanted) in positions


def _after_any_depth(positions: set[int], wanted: Sequence[str]) -> set[int]:
    """Add the positions that are reached where ``**`` stands for no folder at all."""
    reached = set(positions)
    for position in range(len(wanted)):
        if position in reached and wanted[position] == _ANY_DEPTH:
            reached.add(position + 1)
    return reached
