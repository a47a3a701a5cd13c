"""What lies in the place that files are taken out to: nothing, or what an earlier extract made."""

from __future__ import annotations

import json
import math
import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath

from tfrtool.errors import UsageError
from tfrtool.storage.appearing import leftovers
from tfrtool.storage.limits import MAX_METADATA_BYTES
from tfrtool.storage.lock import LOCK
from tfrtool.storage.opening import open_regular

STAGING = "extract"
"""What the name of the folder ends in that files are in until all of them are whole."""


def metadata_beside(directory: Path) -> Path:
    """Return where the other features of the files in a folder are kept: beside it."""
    named = directory if directory.name not in ("", "..") else directory.resolve()
    return named.parent / f"{named.name}.jsonl"


def check_target(directory: Path, overwrite: bool, unfinished: Path | None = None) -> list[str]:
    """Return the names in a directory that an extract replaces; raise if it is in use.

    What an earlier extract made is known by its metadata; ``unfinished`` ones are being written.

    Raises:
        UsageError: there is something else; or something, and nothing is to be replaced.
        OSError: it can't be looked into.
    """
    beside = metadata_beside(directory)
    try:
        found = os.listdir(directory)  # noqa: PTH208 - no iterator that an error could hide in
    except FileNotFoundError:
        if directory.is_symlink():
            raise UsageError("is a link that leads nowhere", path=directory) from None
        found = []
    except NotADirectoryError:
        raise UsageError("is a file; files go into a directory", path=directory) from None
    staging = {path.name for path in leftovers(directory / STAGING)}
    names = sorted({*found} - {LOCK} - staging)
    there = [beside] if os.path.lexists(beside) else []
    if not names and not there:
        return names
    hint = "--overwrite replaces what an earlier extract made"
    try:
        lists = [*there, *(path for path in leftovers(beside) if path != unfinished)]
        _check_made(directory, names, lists)
    except UsageError:
        if overwrite:
            raise
        hint = "choose another directory; --overwrite replaces only what an extract made"
    if overwrite:
        return names
    what = "an extract was interrupted here" if staging else "is not empty"
    if not names:
        what = "is there already, and the other features go there"
    raise UsageError(what, path=directory if names else beside, hint=hint)


def _check_made(directory: Path, names: Iterable[str], lists: Iterable[Path]) -> None:
    """Raise if anything of these names was made by none of these lists, or was changed later."""
    hint = "move it away; --overwrite replaces what an earlier extract made, and nothing else"
    files: dict[str, float] = {}
    for path in lists:
        # Of an extract that was killed, files may be younger than the list is, and lines be cut.
        finished = path == metadata_beside(directory)
        last = path.lstat().st_mtime_ns if finished else math.inf
        try:
            files |= dict.fromkeys(_listed(path), last)
        except ValueError as error:
            if finished:
                what = "is not what an extract writes"
                raise UsageError(what, path=path, hint="move it away") from error
    folders = {str(parent) for name in files for parent in PurePosixPath(name).parents}
    for path in _below(directory, names):
        name, status = path.relative_to(directory).as_posix(), path.lstat()
        is_folder = stat.S_ISDIR(status.st_mode)
        if name not in (folders if is_folder else files):
            raise UsageError("was made by no extract that is known here", path=path, hint=hint)
        if not is_folder and status.st_mtime_ns > files[name]:
            raise UsageError("was changed after it was extracted", path=path, hint=hint)


def _below(directory: Path, names: Iterable[str]) -> Iterator[Path]:
    """Yield what has these names, and all that is in folders among them; links aren't followed."""
    for name in names:
        path = directory / name
        yield path
        if path.is_dir() and not path.is_symlink():
            yield from _below(path, os.listdir(path))  # noqa: PTH208 - errors come out


def _listed(path: Path) -> Iterator[str]:
    """Yield the files that metadata name; a ValueError says that no extract wrote them."""
    with open_regular(path, follow=False) as lines:
        while line := lines.readline(MAX_METADATA_BYTES):
            try:
                entry = json.loads(line)
                file = entry["file"]
                entry["shard"], entry["record"]
            except (TypeError, KeyError, RecursionError) as error:
                raise ValueError(str(error)) from error
            for name in file if isinstance(file, list) else [file]:
                if isinstance(name, str):
                    yield name
                elif name is not None:
                    raise ValueError("no names of files")
