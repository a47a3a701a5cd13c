"""How a file appears: whole under its name, or not at all; the only home of renames."""

import contextlib
import errno
import os
import re
import secrets
import shutil
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import BinaryIO

from tfrtool.errors import UsageError
from tfrtool.storage.lock import LOCK, locked, signals_wait, try_lock
from tfrtool.storage.opening import open_descriptor
from tfrtool.storage.remote_path import AnyPath, RemotePath
from tfrtool.storage.scratch_folder import ScratchFolder

TEMPORARY = ".tfrtool-"
"""What the name of a file or folder that is being made starts with."""

_ENDING = 50
"""Characters of a file's name in its temporary one: that has 255 bytes at most, a character 4."""

_SINGLE_PUT = 64 * 1024 * 1024
"""Bytes: what is larger is sent in parts, which no store does only if nothing is there."""

_BUFFER = 256 * 1024
"""Bytes: shards are written in small pieces."""


def temporary_name(path: Path) -> Path:
    """Return a random name in the same folder, with the same ending."""
    return path.with_name(f"{TEMPORARY}{secrets.token_hex(8)}.{path.name[-_ENDING:]}")


def leftovers(path: Path) -> list[Path]:
    """Return the temporary files and folders of ``path``, of killed processes and of live ones."""
    if len(path.name) > _ENDING:
        return []  # another name may have the same ending
    pattern = re.compile(re.escape(TEMPORARY) + r"[0-9a-f]{16}\." + re.escape(path.name))
    user = os.geteuid() if hasattr(os, "geteuid") else 0
    try:
        names = os.listdir(path.parent)  # noqa: PTH208 - errors come out here
    except FileNotFoundError:
        return []
    found = []
    for one in (path.with_name(name) for name in names if pattern.fullmatch(name)):
        with contextlib.suppress(FileNotFoundError):  # who made it may have ended
            if one.lstat().st_uid == user and not one.is_symlink():
                found.append(one)
    return found


def delete_leftovers(path: AnyPath) -> None:
    """Delete what killed processes of this user left of making a local ``path``.

    Two things prove that a file or folder is a leftover: its name, and a lock that nobody holds. A
    folder without a lock file is left alone unless it is empty.
    """
    if isinstance(path, RemotePath):
        return
    candidates: list[Path] = []
    with contextlib.suppress(OSError):
        candidates = leftovers(path)
    for found in candidates:
        with contextlib.suppress(UsageError, OSError):  # of a live process, or can't be deleted
            if stat.S_ISREG(found.lstat().st_mode):
                _delete_unlocked(found)
            else:
                if os.path.lexists(found / LOCK):
                    with locked(found, "delete"):
                        _delete_content(found)
                found.rmdir()  # without a lock, only if it is empty


def _delete_unlocked(path: Path) -> None:
    descriptor = open_descriptor(path, follow=False)
    try:
        if try_lock(descriptor):
            path.unlink()
    finally:
        os.close(descriptor)


def _delete_content(folder: Path) -> None:
    """Delete all but the lock of a folder, which is last: until then it proves whose this is."""
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path, ignore_errors=True)
            elif entry.name != LOCK:
                with contextlib.suppress(OSError):
                    Path(entry.path).unlink()


@contextmanager
def temporary_folder(path: Path) -> Iterator[Path]:
    """Make a new private folder to make ``path`` in, next to it, and delete it at the end.

    It is locked meanwhile, and has a lock file: see `delete_leftovers`.
    """
    with contextlib.ExitStack() as stack:
        while True:
            folder = temporary_name(path)
            folder.mkdir(mode=0o700)
            stack.callback(_delete_empty, folder)
            with contextlib.suppress(FileNotFoundError):  # deleted as a leftover already
                stack.enter_context(locked(folder))
                break
        stack.callback(_delete_content, folder)
        yield folder


def _delete_empty(folder: Path) -> None:
    with contextlib.suppress(OSError):
        folder.rmdir()


def new_file(path: AnyPath, *, replace: bool = True) -> AbstractContextManager[BinaryIO]:
    """Give a file to write, which is moved to ``path`` when it is complete and on the disk.

    Until then it has a random name in the same folder, created exclusively, so that no link can
    be followed. If the body raises, nothing is left, and an existing file stays as it is. A link
    at ``path`` is replaced, not followed. `FileExistsError` if there is a file, unless ``replace``.

    For an object of a store, the file is a local one until then.
    """
    return _new_object(path, replace) if isinstance(path, RemotePath) else _NewFile(path, replace)


@contextmanager
def _new_object(path: RemotePath, replace: bool) -> Iterator[BinaryIO]:
    with ScratchFolder() as folder:
        local = Path(folder, "object")
        with local.open("w+b", buffering=_BUFFER) as file:
            yield file
        _send(local, path, replace)


class _NewFile:
    """A local file that is being made.

    It is a class, not a generator: an interrupt may come at any function's end, also between a
    generator's ``yield`` and the body of ``with``, where nothing would delete the file.
    """

    def __init__(self, path: Path, replace: bool) -> None:
        self._path, self._replace = path, replace
        self._temporary = temporary_name(path)
        self._file: BinaryIO | None = None

    def __enter__(self) -> BinaryIO:
        try:
            while self._file is None:
                file = self._temporary.open("xb", buffering=_BUFFER)
                is_ours = True
                with contextlib.suppress(OSError):  # without locks, no leftover is deleted either
                    is_locked = os.name == "nt" or try_lock(file.fileno())
                    is_ours = is_locked and os.path.lexists(self._temporary)
                if is_ours:
                    self._file = file
                else:
                    file.close()  # a process that deletes leftovers was faster
                    self._temporary = temporary_name(self._path)
        except BaseException as error:
            # Opening failed without a file only with an OSError: the random name is ours.
            self._clean_up(delete=not isinstance(error, FileExistsError))
            raise
        return self._file

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None and self._file is not None:
                self._file.flush()
                os.fsync(self._file.fileno())
                if os.name == "nt":
                    self._file.close()
                move(self._temporary, self._path, replace=self._replace)  # still locked
        finally:
            self._clean_up(delete=True)

    def _clean_up(self, *, delete: bool) -> None:
        with signals_wait():
            with contextlib.suppress(OSError):  # closing writes once more what didn't fit
                if self._file is not None:
                    self._file.close()
            with contextlib.suppress(OSError):
                if delete:
                    self._temporary.unlink(missing_ok=True)


@contextmanager
def new_files_by_name(paths: Sequence[AnyPath], *, replace: bool = True) -> Iterator[Path]:
    """Give a private folder to write files of these names in, which are moved out at the end.

    It is for what takes no open file, as `new_file` gives one; no link can be followed.

    The paths are in the same folder or store. `FileExistsError` if one of them exists, unless
    ``replace``. No local file appears then; in a store, those before it do.
    """
    if isinstance(paths[0], RemotePath):
        with ScratchFolder() as scratch:
            yield Path(scratch)
            for path in paths:
                if isinstance(path, RemotePath):
                    _send(Path(scratch, path.name), path, replace)
        return
    local_paths = [path for path in paths if isinstance(path, Path)]
    with temporary_folder(local_paths[0]) as folder:
        yield folder
        moves = [(folder / path.name, path) for path in local_paths]
        for source, _ in moves:
            sync_file(source)
        if not replace:
            move_all(moves)
            return
        for source, target in moves:
            move(source, target)


def _send(local: Path, path: RemotePath, replace: bool) -> None:
    """Upload a file; with ``replace``, replace an existing object."""
    store = path.store
    if replace:
        store.upload(path.key, local)
    elif local.stat().st_size <= _SINGLE_PUT:
        store.put(path.key, local.read_bytes(), only_new=True)
    elif path.exists():
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
    else:
        store.upload(path.key, local)


def move(source: Path, target: Path, *, replace: bool = True) -> None:
    """Give a file, or with ``replace`` also a folder, another name, in one step.

    `FileExistsError` if that is taken, and may not be replaced.
    """
    if replace:
        os.replace(source, target)  # noqa: PTH105
        return
    try:
        os.link(source, target)  # unlike a rename, it fails if the name is taken
    except FileExistsError:
        raise
    except OSError:  # a file system without links
        if os.path.lexists(target):
            raise FileExistsError(
                errno.EEXIST, os.strerror(errno.EEXIST), os.fspath(target)
            ) from None
        os.rename(source, target)  # noqa: PTH104
        return
    source.unlink(missing_ok=True)


def move_all(moves: Iterable[tuple[Path, Path]]) -> None:
    """Give files and folders other, free names, one after the other; an error undoes all."""
    done: list[tuple[Path, Path]] = []
    try:
        for source, target in moves:
            done.append((source, target))
            move(source, target, replace=False)
    except BaseException:
        for source, target in reversed(done):
            if not os.path.lexists(source):
                with contextlib.suppress(OSError):
                    move(target, source)
        raise


def private_folder(path: Path) -> None:
    """Make a folder that only this user can look into, or check that it is one; else `OSError`."""
    try:
        path.mkdir(mode=0o700)
    except FileExistsError:
        status, problem = path.lstat(), None
        if stat.S_ISLNK(status.st_mode):
            problem = "it is a link"
        elif not stat.S_ISDIR(status.st_mode):
            problem = "it is not a folder"
        elif hasattr(os, "geteuid") and status.st_uid != os.geteuid():
            problem = "it belongs to another user"
        elif os.name != "nt" and status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            problem = "other users can write to it"
        if problem is not None:
            what = f"{problem}, but a private folder is required"
            raise PermissionError(errno.EPERM, what, str(path)) from None


def sync_file(path: Path) -> None:
    """Bring the content of a file to the disk."""
    descriptor = open_descriptor(path, follow=False)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_folder(folder: Path) -> None:
    """Bring the names in a folder to the disk."""
    if os.name == "nt":
        return  # there, a folder can't be opened
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EBADF, errno.EINVAL):  # a file system that can't do that
            raise
    finally:
        os.close(descriptor)


def linked(source: AnyPath, target: Path) -> bool:
    """Give a regular file a further, free name; False where the system can't do that.

    tfrtool never writes to a file that has its final name, so both keep their content.
    """
    try:
        os.link(os.path.realpath(source), target)
    except FileExistsError:
        raise
    except OSError:  # another file system, or one without links, or a file of another user
        return False
    return True
