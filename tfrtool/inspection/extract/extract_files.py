"""The folder that extract fills: completely or not at all, and never over files of others."""

import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from tfrtool.errors import UsageError, WriteError, os_errors_as, os_reason
from tfrtool.inspection.extract.safe_names import numbered, numbering_key
from tfrtool.storage.atomic_files import (
    delete_leftovers,
    leftovers,
    move_all,
    temporary_folder,
)
from tfrtool.storage.limits import MAX_METADATA_BYTES
from tfrtool.storage.lock import LOCK, locked, signals_wait
from tfrtool.storage.opening import open_regular

STAGING = "extract"
"""The ending of the temporary folder that holds the files until all are complete."""

_NEW, _OLD = "new", "replaced"


class NewFiles:
    """Files in the staging folder, and a line of metadata per record.

    The file system itself decides which names are taken, since names that differ in letter case or
    Unicode form may be the same to it. Memory grows with the number of folders and of repeated
    names, not with the number of files.
    """

    def __init__(self, directory: Path, overwrite: bool, staging: Path, lines: BinaryIO) -> None:
        self._directory, self._overwrite = directory, overwrite
        self._staging, self._root, self._lines = staging, str(staging / _NEW), lines
        self._folders: dict[tuple[str, str], str] = {}
        self._numbers: dict[str, int] = {}

    def add(self, parts: Sequence[str], data: bytes) -> str:
        """Write a file and return its path below the folder, with ``/`` between folders.

        The parts are safe names of folders and, last, of the file. A taken name gets a number:
        ``1_2.jpg``.
        """
        folder = ""
        try:
            for part in parts[:-1]:
                known = self._folders.get((folder, part))
                if known is None:
                    known = self._make(folder, part, os.mkdir) + "/"
                    self._folders[folder, part] = known
                folder = known
            return self._make(folder, parts[-1], partial(_write, data, "xb"))
        except OSError as error:
            raise _write_error(error, self._directory.joinpath(*parts)) from error

    def append(self, file: str, data: bytes) -> None:
        """Write more at the end of a file that was added."""
        with os_errors_as(WriteError, self._directory / file, "can't be written"):
            _write(data, "ab", f"{self._root}/{file}")

    def add_line(self, line: str) -> None:
        """Add a line, in ASCII, to the metadata."""
        with os_errors_as(WriteError, metadata_beside(self._directory), "can't be written"):
            self._lines.write(f"{line}\n".encode("ascii"))

    def publish(self) -> None:
        """Move everything to its final name, in place of an earlier extract.

        The metadata change after the old files and before the new ones, so that they name whatever
        is there, even if the process is killed. An error takes everything back; signals wait.
        """
        directory, lines = self._directory, Path(self._lines.name)
        metadata = metadata_beside(directory)
        with signals_wait():
            try:
                self._lines.flush()
                os.fsync(self._lines.fileno())
                old = check_target(directory, self._overwrite)
                moves = [(directory / name, self._staging / _OLD / name) for name in old]
                moves += [(metadata, lines.with_name(_OLD))] if os.path.lexists(metadata) else []
                moves.append((lines, metadata))
                new = os.listdir(self._root)  # noqa: PTH208
                move_all([*moves, *((Path(self._root, name), directory / name) for name in new)])
            except OSError as error:
                raise _write_error(error, error.filename2 or error.filename or metadata) from error

    def _make(self, folder: str, name: str, make: Callable[[str], object]) -> str:
        """Make something of this name, or of the name with a number, and return its path."""
        path = folder + name
        while True:
            with suppress(FileExistsError):
                make(f"{self._root}/{path}")
                return path
            # One counter for all names that numbers would make the same: each is tried once.
            key = folder + numbering_key(name)
            self._numbers[key] = self._numbers.get(key, 1) + 1
            path = folder + numbered(name, self._numbers[key])


def _write(data: bytes, mode: str, path: str) -> None:
    # "x" never follows a link, and never opens an existing file.
    with open(path, mode, buffering=0) as file:  # noqa: PTH123 - a text, for speed
        while data:
            data = data[file.write(data) :]


@contextmanager
def new_files(directory: Path, *, overwrite: bool = False) -> Iterator[NewFiles]:
    """Provide a staging folder for files and metadata, and delete it at the end.

    What a killed process left of one is deleted, too. A directory that was created for this is
    removed if it stays empty.
    """
    metadata = metadata_beside(directory)
    with ExitStack() as cleanup:
        with os_errors_as(WriteError, directory, "can't be written"):
            if not os.path.lexists(directory / LOCK):  # otherwise the lock names its owner
                check_target(directory, overwrite)
            created = [path for path in (directory, *directory.parents) if not path.exists()]
            cleanup.callback(_remove_empty, created)
            directory.mkdir(parents=True, exist_ok=True)
            cleanup.enter_context(locked(directory, "extract"))
            check_target(directory, overwrite)
            folders = []
            for path in (directory / STAGING, metadata):
                delete_leftovers(path)
                folders.append(cleanup.enter_context(temporary_folder(path)))
            staging, aside = folders
            for name in (_NEW, _OLD):
                (staging / name).mkdir(mode=0o700)
            lines = (aside / _NEW).open("xb")
            cleanup.callback(_close, lines)
        yield NewFiles(directory, overwrite, staging, lines)


def metadata_beside(directory: Path) -> Path:
    """Return the path of the metadata of a folder, which is next to it."""
    named = directory if directory.name not in ("", "..") else directory.resolve()
    return named.parent / f"{named.name}.jsonl"


def check_target(directory: Path, overwrite: bool) -> list[str]:
    """Return the names in a directory that an extract replaces; `UsageError` if it is in use."""
    metadata = metadata_beside(directory)
    if directory.is_symlink() and not directory.exists():
        raise UsageError("broken symbolic link", path=directory)
    try:
        found = os.listdir(directory)  # noqa: PTH208
    except FileNotFoundError:
        found = []
    except NotADirectoryError:
        raise UsageError("is a file, not a directory", path=directory) from None
    staging = {path.name for path in leftovers(directory / STAGING)}
    names = sorted({*found} - {LOCK} - staging)
    if not overwrite and (names or os.path.lexists(metadata)):
        raise UsageError(
            "is not empty" if names else "already exists, and the metadata would be written there",
            path=directory if names else metadata,
            hint="choose another directory, or use --overwrite to replace an earlier extract",
        )
    known = _extracted_paths(metadata)
    paths = [directory / name for name in names]
    for path in paths:
        is_folder = path.is_dir() and not path.is_symlink()
        what = "was not created by tfrtool extract"
        if path.relative_to(directory).as_posix() in known:
            if is_folder:
                paths += path.iterdir()
                continue
            if path.lstat().st_mtime_ns <= metadata.lstat().st_mtime_ns:
                continue
            what = "was changed after it was extracted"
        hint = "move it away; --overwrite only replaces files of an earlier extract"
        raise UsageError(what, path=path, hint=hint)
    return names


def _extracted_paths(metadata: Path) -> set[str]:
    """Return the files that an extract's metadata list, and their folders."""
    files: set[str] = set()
    if not os.path.lexists(metadata):
        return files
    try:
        with open_regular(metadata, follow=False) as lines:
            while line := lines.readline(MAX_METADATA_BYTES):
                entry = json.loads(line)
                file = entry["file"], entry["shard"], entry["record"]
                listed = file[0] if isinstance(file[0], list) else [file[0]]
                files.update(str(name) for name in listed if name is not None)
    except (TypeError, KeyError, ValueError, RecursionError) as error:
        what = "was not written by tfrtool extract"
        raise UsageError(what, path=metadata, hint="move it away") from error
    return files | {str(parent) for name in files for parent in PurePosixPath(name).parents}


def _close(file: BinaryIO) -> None:
    with suppress(OSError):  # if its last lines don't fit on the disk, an error came before
        file.close()


def _write_error(error: OSError, path: str | Path) -> WriteError:
    return WriteError(f"can't be written: {os_reason(error)}", path=path)


def _remove_empty(folders: Sequence[Path]) -> None:
    for path in folders:
        with suppress(OSError):
            path.rmdir()
