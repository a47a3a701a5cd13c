"""The folder that files are taken out into: nothing half-written, nothing of others overwritten."""

import json
import os
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from io import FileIO
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from tfrtool.errors import UsageError, WriteError, os_errors_as, os_reason
from tfrtool.inspection.extract.safe_names import numbered, numbering_key
from tfrtool.storage.atomic_files import leftovers, move_all, private_folder, temporary_name
from tfrtool.storage.limits import MAX_METADATA_BYTES
from tfrtool.storage.lock import LOCK, locked
from tfrtool.storage.opening import open_regular
from tfrtool.storage.signals import signals_wait

# What the name of the folder ends in that files are in until all of them are whole.
STAGING = "extract"

_NEW, _OLD = "new", "replaced"
"""In that folder, and in the one that the metadata are in: what comes, and what goes."""


class NewFiles:
    """Files that are not in their final place yet, and a line about each record beside them.

    The file system itself says which names are taken, by its own rules: letter case and Unicode
    forms may or may not tell names apart. What is remembered grows with the number of folders and
    of names that were wanted twice, about 200 bytes each, and not with the number of files.
    """

    def __init__(self, directory: Path, overwrite: bool, staging: Path, lines: BinaryIO) -> None:
        """Start with an empty staging folder, whose files are in ``directory`` in the end."""
        self._directory = directory
        self._overwrite = overwrite
        self._staging = staging
        self._lines = lines
        self._root = str(staging / _NEW)
        self._folders: dict[tuple[str, str], str] = {}
        self._numbers: dict[str, int] = {}

    def add(self, parts: Sequence[str], data: bytes) -> str:
        """Write a file, and return its path below the folder, with ``/`` between folders.

        The parts are safe names of folders and, last, of the file. A name that is taken gets a
        number: ``1_2.jpg``.
        """
        folder = ""
        try:
            for part in parts[:-1]:
                known = self._folders.get((folder, part))
                if known is None:
                    # What is there is a file, or a folder that only this system takes for the same.
                    known = self._make(folder, part, os.mkdir) + "/"
                    self._folders[folder, part] = known
                folder = known
            return self._make(folder, parts[-1], partial(_write, data))
        except OSError as error:
            raise _write_error(error, self._directory.joinpath(*parts)) from error

    def append(self, file: str, data: bytes) -> None:
        """Write more at the end of a file that was added."""
        try:
            with open(f"{self._root}/{file}", "ab", buffering=0) as opened:  # noqa: PTH123
                _write_all(opened, data)
        except OSError as error:
            raise _write_error(error, self._directory / file) from error

    def add_line(self, line: str) -> None:
        """Add a line, in ASCII, to the metadata."""
        try:
            self._lines.write(f"{line}\n".encode("ascii"))
        except OSError as error:
            raise _write_error(error, metadata_beside(self._directory)) from error

    def publish(self) -> None:
        """Give everything its final name, in place of what an earlier extract made.

        The metadata change between the old files and the new ones, so that they name whatever is
        there, even if the process is killed. An error takes everything back; signals wait.
        """
        directory, beside = self._directory, metadata_beside(self._directory)
        with signals_wait():
            try:
                self._lines.flush()
                os.fsync(self._lines.fileno())
                old = check_target(directory, self._overwrite)
                new = os.listdir(self._root)  # noqa: PTH208 - errors come out
                moves = [(directory / name, self._staging / _OLD / name) for name in old]
                lines = Path(self._lines.name)
                moves += [(beside, lines.with_name(_OLD))] if os.path.lexists(beside) else []
                moves.append((lines, beside))
                moves += [(Path(self._root, name), directory / name) for name in new]
                move_all(moves)
            except OSError as error:
                raise _write_error(error, error.filename2 or error.filename or beside) from error

    def _make(self, folder: str, name: str, make: Callable[[str], object]) -> str:
        """Make something of a name, or of that name with a number, and return its path."""
        path = folder + name
        while True:
            with suppress(FileExistsError):
                make(f"{self._root}/{path}")
                return path
            # One counter for all names that numbers would make the same: each is tried once.
            key = folder + numbering_key(name)
            self._numbers[key] = self._numbers.get(key, 1) + 1
            path = folder + numbered(name, self._numbers[key])


def _write(data: bytes, path: str) -> None:
    # "x" never follows a link, and never opens what is there.
    with open(path, "xb", buffering=0) as file:  # noqa: PTH123 - a text, for speed
        _write_all(file, data)


def _write_all(file: FileIO, data: bytes) -> None:
    while data:
        data = data[file.write(data) :]


@contextmanager
def new_files(directory: Path, *, overwrite: bool = False) -> Iterator[NewFiles]:
    """Give a place to write files and metadata in; take it away at the end, with what is in it.

    What a killed process left of such a place is taken away, too, and so is a folder that was made
    for this if nothing came of it. What an earlier extract made stays until the end.
    """
    beside = metadata_beside(directory)
    with ExitStack() as cleanup:
        with os_errors_as(WriteError, directory, "can't be written"):
            if not os.path.lexists(directory / LOCK):  # else the lock says who is at work
                check_target(directory, overwrite)
            made = [path for path in (directory, *directory.parents) if not path.exists()]
            cleanup.callback(_remove_empty, made)
            directory.mkdir(parents=True, exist_ok=True)
            cleanup.enter_context(locked(directory, "extract"))
            check_target(directory, overwrite)
            for folder in (*leftovers(directory / STAGING), *leftovers(beside)):
                shutil.rmtree(folder, ignore_errors=True)
            staging, aside = temporary_name(directory / STAGING), temporary_name(beside)
            for folder in (staging, aside):
                cleanup.callback(shutil.rmtree, folder, ignore_errors=True)
            for folder in (staging, staging / _NEW, staging / _OLD, aside):
                private_folder(folder)  # so that no link can be put in the way of what is in it
            lines = (aside / _NEW).open("xb")
            cleanup.callback(_close, lines)
        yield NewFiles(directory, overwrite, staging, lines)


def metadata_beside(directory: Path) -> Path:
    """Return where the other features of the files in a folder are kept: beside it."""
    named = directory if directory.name not in ("", "..") else directory.resolve()
    return named.parent / f"{named.name}.jsonl"


def check_target(directory: Path, overwrite: bool) -> list[str]:
    """Return the names in a directory that an extract replaces; `UsageError` if it is in use."""
    beside = metadata_beside(directory)
    try:
        found = os.listdir(directory)  # noqa: PTH208 - no iterator that an error could hide in
    except FileNotFoundError:
        if directory.is_symlink():
            raise UsageError("broken symbolic link", path=directory) from None
        found = []
    except NotADirectoryError:
        raise UsageError("is a file, not a directory", path=directory) from None
    staging = {path.name for path in leftovers(directory / STAGING)}
    names = sorted({*found} - {LOCK} - staging)
    if not overwrite and (names or os.path.lexists(beside)):
        raise UsageError(
            "is not empty" if names else "already exists, and the metadata would be written there",
            path=directory if names else beside,
            hint="choose another directory, or use --overwrite to replace an earlier extract",
        )
    _check_made(directory, names, beside)
    return names


def _check_made(directory: Path, names: Iterable[str], beside: Path) -> None:
    """Raise if anything of these names is not in the metadata, or was changed after they were."""
    files, last = set[str](), 0
    with suppress(FileNotFoundError):
        last = beside.lstat().st_mtime_ns
        try:
            files = set(_listed(beside))
        except ValueError as error:
            what = "was not written by tfrtool extract"
            raise UsageError(what, path=beside, hint="move it away") from error
    folders = {str(parent) for name in files for parent in PurePosixPath(name).parents}
    paths = [directory / name for name in names]
    for path in paths:
        name, status = path.relative_to(directory).as_posix(), path.lstat()
        is_folder = stat.S_ISDIR(status.st_mode)
        what = "was changed after it was extracted"
        if name not in (folders if is_folder else files):
            what = "was not created by tfrtool extract"
        elif is_folder or status.st_mtime_ns <= last:
            paths += path.iterdir() if is_folder else ()
            continue
        hint = "move it away; --overwrite only replaces files of an earlier extract"
        raise UsageError(what, path=path, hint=hint)


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
                    raise ValueError("invalid file names")


def _close(file: BinaryIO) -> None:
    # Where its last lines don't fit on the disk, something else has failed before.
    with suppress(OSError):
        file.close()


def _write_error(error: OSError, path: str | Path) -> WriteError:
    return WriteError(f"can't be written: {os_reason(error)}", path=path)


def _remove_empty(folders: Sequence[Path]) -> None:
    for path in folders:  # those that hold something stay
        with suppress(OSError):
            path.rmdir()
