"""The folder that files are taken out into: nothing half-written, nothing overwritten."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from tfrtool.errors import WriteError, os_reason
from tfrtool.inspection.extract.extract_earlier import STAGING, check_target, metadata_beside
from tfrtool.inspection.extract.safe_names import numbered, numbering_key
from tfrtool.storage.appearing import leftovers, move_all, private_folder, temporary_name
from tfrtool.storage.lock import LOCK, locked
from tfrtool.storage.signals import signals_wait

_NEW, _OLD = "new", "replaced"
"""In the folder that files are in until all of them are whole: what comes, and what goes."""


class FileTree:
    """Files below a folder that nobody else writes to, each under a name of its own.

    The file system itself says which names are taken, by its own rules: letter case and Unicode
    forms may or may not tell names apart. What is remembered grows with the number of folders and
    of names that were wanted twice, about 200 bytes each, and not with the number of files.
    """

    def __init__(self, root: Path, final: Path) -> None:
        """Start with an empty folder, whose files are in ``final`` in the end: errors say that."""
        self._root = str(root)
        self._final = final
        self._folders: dict[tuple[str, str], str] = {}
        self._numbers: dict[str, int] = {}

    def add(self, parts: Sequence[str], data: bytes) -> str:
        """Write a file, and return its path below the folder, with ``/`` between folders.

        The parts are safe names of folders and, last, of the file. A name that is taken gets a
        number: ``1_2.jpg``.
        """
        path = ""
        try:
            folder = ""
            for part in parts[:-1]:
                folder = self._folders.get((folder, part)) or self._make_folder(folder, part)
            for path in self._names(folder, parts[-1]):
                with contextlib.suppress(FileExistsError):
                    self._write(path, data)
                    break
        except OSError as error:
            raise _write_error(error, self._final / (path or "/".join(parts))) from error
        return path

    def _write(self, path: str, data: bytes) -> None:
        # "x" never follows a link, and never opens what is there.
        with open(f"{self._root}/{path}", "xb", buffering=0) as file:  # noqa: PTH123 - speed
            written = file.write(data)
            while written < len(data):
                written += file.write(memoryview(data)[written:])

    def _make_folder(self, parent: str, part: str) -> str:
        """Make a folder, and return its path with a ``/`` at its end."""
        # What is there is a file, or a folder that only this file system takes for the same.
        for path in self._names(parent, part):
            with contextlib.suppress(FileExistsError):
                os.mkdir(f"{self._root}/{path}")  # noqa: PTH102 - a text, for speed
                break
        self._folders[parent, part] = f"{path}/"
        return f"{path}/"

    def _names(self, folder: str, name: str) -> Iterator[str]:
        """Yield a name, and then that name with numbers."""
        yield folder + name
        # One counter for all names that numbers would make the same: each number is tried once.
        key = folder + numbering_key(name)
        while True:
            number = self._numbers.get(key, 1) + 1
            self._numbers[key] = number
            yield folder + numbered(name, number)


class NewFiles(FileTree):
    """Files that are not in their final place yet, and a line about each record beside them."""

    def __init__(self, directory: Path, overwrite: bool, folder: Path, metadata: BinaryIO) -> None:
        super().__init__(folder / _NEW, directory)
        self._overwrite = overwrite
        self._folder = folder
        self.metadata = metadata

    def write_line(self, line: str) -> None:
        """Add a line, in ASCII, to the metadata."""
        try:
            self.metadata.write(f"{line}\n".encode("ascii"))
        except OSError as error:
            raise _write_error(error, metadata_beside(self._final)) from error

    def publish(self) -> None:
        """Give everything its final name, in place of what an earlier extract made.

        The metadata go first and come last: where they are, all files that they name are. An
        error takes everything back; signals wait.
        """
        directory, folder, beside = self._final, self._folder, metadata_beside(self._final)
        with signals_wait():
            try:
                self.metadata.flush()
                os.fsync(self.metadata.fileno())
                lines = Path(self.metadata.name)
                moves = [(beside, temporary_name(beside))] if os.path.lexists(beside) else []
                old = check_target(directory, self._overwrite, lines)
                moves += [(directory / name, folder / _OLD / name) for name in old]
                new = os.listdir(folder / _NEW)  # noqa: PTH208 - errors come out
                moves += [(folder / _NEW / name, directory / name) for name in new]
                move_all([*moves, (lines, beside)])
            except OSError as error:
                raise _write_error(error, error.filename2 or error.filename or beside) from error
            for path in leftovers(beside):  # of this extract, and of those that were killed
                _remove(path)


@contextlib.contextmanager
def new_files(directory: Path, *, overwrite: bool = False) -> Iterator[NewFiles]:
    """Give a place to write files and metadata in; take it away at the end, with what is in it.

    What a killed process left of such a place is taken away, too, and so is a folder that was made
    for this if nothing came of it. What an earlier extract made stays until the end.

    Raises:
        UsageError: there are other files or metadata already, or another process is at work.
        WriteError: the directory can't be made or written to.
    """
    beside = metadata_beside(directory)
    with contextlib.ExitStack() as cleanup:
        try:
            if not os.path.lexists(directory / LOCK):  # else the lock says who is at work
                check_target(directory, overwrite)
            made = [path for path in (directory, *directory.parents) if not path.exists()]
            cleanup.callback(_remove_empty, made)
            directory.mkdir(parents=True, exist_ok=True)
            cleanup.enter_context(locked(directory, "extract"))
            old = check_target(directory, overwrite)
            for path in (*leftovers(directory / STAGING), *([] if old else leftovers(beside))):
                _remove(path)
            folder = temporary_name(directory / STAGING)
            cleanup.callback(_remove, folder)
            for part in (folder, folder / _NEW, folder / _OLD):
                private_folder(part)  # so that no link can be put in the way of what is in it
            lines = temporary_name(beside)
            cleanup.callback(_remove, lines)
            metadata = lines.open("xb")
            cleanup.callback(_close, metadata)
        except OSError as error:
            raise _write_error(error, error.filename or directory) from error
        yield NewFiles(directory, overwrite, folder, metadata)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    with contextlib.suppress(OSError):
        path.unlink(missing_ok=True)


def _remove_empty(folders: Sequence[Path]) -> None:
    for path in folders:  # those that hold something stay
        with contextlib.suppress(OSError):
            path.rmdir()


def _close(file: BinaryIO) -> None:
    # Where its last lines don't fit on the disk, something else has failed before.
    with contextlib.suppress(OSError):
        file.close()


def _write_error(error: OSError, path: str | Path) -> WriteError:
    return WriteError(f"can't be written: {os_reason(error)}", path=path)
