"""The folder that files are taken out into: nothing half-written, nothing overwritten."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TextIO

from tfrtool.errors import UsageError, WriteError, os_reason
from tfrtool.inspection.safe_names import numbered, numbering_key

__all__ = ["STAGING", "FileTree", "Staging", "metadata_beside", "staging_files"]

STAGING = ".tfrtool-incomplete-"
"""How the names start that folders and files have until all of them are whole."""


def metadata_beside(directory: Path) -> Path:
    """Return where the other features of the files in a folder are kept: beside it."""
    named = directory if directory.name not in ("", "..") else directory.resolve()
    return named.parent / f"{named.name}.jsonl"


class FileTree:
    """Files below a folder that nobody else writes to, each under a name of its own.

    The file system itself says which names are taken, by its own rules: letter case and Unicode
    forms may or may not tell names apart. What is remembered grows with the number of folders and
    of names that were wanted twice, about 200 bytes each, and not with the number of files.
    """

    def __init__(self, root: Path, final: Path) -> None:
        """Start with an empty folder.

        Args:
            root: the folder; it exists.
            final: where the files are in the end, for what an error says.
        """
        self._root = str(root)
        self._final = final
        self._folders: dict[tuple[str, str], str] = {}
        self._numbers: dict[str, int] = {}

    def add(self, parts: Sequence[str], data: bytes) -> str:
        """Write a file, and return its path below the folder, with ``/`` between folders.

        A name that is taken gets a number: ``1_2.jpg``.

        Args:
            parts: safe names of folders and, last, of the file.
            data: the file's bytes.

        Raises:
            WriteError: the disk is full, or fails otherwise.
        """
        path = ""
        try:
            folder = ""
            for part in parts[:-1]:
                folder = self._folders.get((folder, part)) or self._make_folder(folder, part)
            path = folder + parts[-1]
            try:
                self._write(path, data)
            except FileExistsError:
                for path in self._free_names(folder, parts[-1]):
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
        path = parent + part
        try:
            os.mkdir(f"{self._root}/{path}")  # noqa: PTH102 - a text, for speed
        except FileExistsError:  # a file, or a folder that only this file system takes for the same
            for path in self._free_names(parent, part):
                with contextlib.suppress(FileExistsError):
                    os.mkdir(f"{self._root}/{path}")  # noqa: PTH102
                    break
        self._folders[parent, part] = f"{path}/"
        return f"{path}/"

    def _free_names(self, folder: str, name: str) -> Iterator[str]:
        # One counter for all names that numbers would make the same: each number is tried once.
        key = folder + numbering_key(name)
        while True:
            number = self._numbers.get(key, 1) + 1
            self._numbers[key] = number
            yield folder + numbered(name, number)


class Staging:
    """Files that are not in their final place yet.

    Attributes:
        tree: where files are added.
        metadata: a text file for a line about each record.
    """

    def __init__(self, directory: Path, files: Path, metadata: TextIO) -> None:
        self._directory = directory
        self._files = files
        self.tree = FileTree(files, directory)
        self.metadata = metadata

    def write_line(self, line: str) -> None:
        """Add a line to the metadata.

        Raises:
            WriteError: the disk is full, or fails otherwise.
        """
        try:
            self.metadata.write(f"{line}\n")
        except OSError as error:
            raise _write_error(error, metadata_beside(self._directory)) from error

    def publish(self) -> None:
        """Give everything its final name, the metadata last.

        An error or Ctrl-C takes back what was published.

        Raises:
            WriteError: something can't be written, or has come there in the meantime.
        """
        beside = metadata_beside(self._directory)
        moved: list[str] = []
        try:
            self.metadata.flush()
            os.fsync(self.metadata.fileno())
            self.metadata.close()
            for name in os.listdir(self._files):  # noqa: PTH208
                _check_free(self._directory / name)
                moved.append(name)
                os.rename(self._files / name, self._directory / name)  # noqa: PTH104
            _check_free(beside)
            os.rename(self.metadata.name, beside)  # noqa: PTH104
        except BaseException as error:
            for name in moved:
                with contextlib.suppress(OSError):
                    os.rename(self._directory / name, self._files / name)  # noqa: PTH104
            if not isinstance(error, OSError):
                raise
            raise _write_error(error, error.filename or self._directory) from error


@contextlib.contextmanager
def staging_files(directory: Path) -> Iterator[Staging]:
    """Give a place to write files and metadata in; take it away at the end, with what is in it.

    Args:
        directory: the files' final place; it is made if it isn't there, and taken away again if
            nothing came of it.

    Raises:
        UsageError: the directory is not empty, or there is metadata already.
        WriteError: the directory can't be made or written to.
    """
    made = _check_target(directory)
    beside = metadata_beside(directory)
    mark = f"{STAGING}{secrets.token_hex(4)}"
    files, lines = directory / mark, beside.parent / f"{mark}.jsonl"
    with contextlib.ExitStack() as cleanup:
        cleanup.callback(_remove, files, lines, made)
        try:
            directory.mkdir(parents=True, exist_ok=True)
            # What lies in here is nobody else's, so that no link can be put in its way.
            files.mkdir(mode=0o700)
            metadata = lines.open("x", encoding="ascii", newline="\n")
        except OSError as error:
            raise _write_error(error, error.filename or directory) from error
        cleanup.callback(_close, metadata)
        yield Staging(directory, files, metadata)


def _check_target(directory: Path) -> list[Path]:
    """Return the directories that have to be made, the innermost first; raise if it is in use."""
    beside = metadata_beside(directory)
    try:
        names = os.listdir(directory)  # noqa: PTH208 - no iterator that an error could hide in
    except FileNotFoundError:
        if directory.is_symlink():
            raise UsageError("is a link that leads nowhere", path=directory) from None
        names = []
    except NotADirectoryError:
        raise UsageError("is a file; files go into a directory", path=directory) from None
    except OSError as error:
        raise _write_error(error, directory) from error
    if names:
        left = all(name.startswith(STAGING) for name in names)
        raise UsageError(
            "an interrupted extract was left here" if left else "is not empty",
            path=directory,
            hint="delete it first" if left else "choose a new directory; nothing is overwritten",
        )
    try:
        beside.lstat()
    except FileNotFoundError:
        return [path for path in (directory, *directory.parents) if not path.exists()]
    except OSError as error:
        raise _write_error(error, beside) from error
    raise UsageError(
        "is there already", path=beside, hint="the other features would go there; move it away"
    )


def _check_free(path: Path) -> None:
    if os.path.lexists(path):
        raise WriteError("has come there in the meantime; nothing is overwritten", path=path)


def _remove(files: Path, lines: Path, made: Sequence[Path]) -> None:
    shutil.rmtree(files, ignore_errors=True)
    with contextlib.suppress(OSError):
        lines.unlink(missing_ok=True)
    for path in made:  # those that hold something stay
        with contextlib.suppress(OSError):
            path.rmdir()


def _close(file: TextIO) -> None:
    # Where its last lines don't fit on the disk, something else has failed before.
    with contextlib.suppress(OSError):
        file.close()


def _write_error(error: OSError, path: str | Path) -> WriteError:
    return WriteError(f"can't be written: {os_reason(error)}", path=path)
