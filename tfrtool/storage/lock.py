"""One writer of a folder at a time."""

import errno
import os
import re
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tfrtool.errors import UsageError
from tfrtool.storage.signals import signals_wait

LOCK = ".tfrtool-lock"
"""The file in a folder that its writer holds; it says which process that is."""

_FLAGS = os.O_RDWR | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)


@contextmanager
def locked(folder: Path, work: str = "write") -> Iterator[None]:
    """Hold the lock of a folder; the system lets go of it when the process dies.

    The message that others get, a `UsageError`, names the ``work``. `OSError` if the folder can't
    be written to, or what has the lock's name is not a lock of ours.
    """
    path = folder / LOCK
    while not _is_named(path, descriptor := _acquire(path, folder)):
        os.close(descriptor)  # its holder took it away meanwhile
    try:
        os.ftruncate(descriptor, 0)
        os.write(descriptor, f"{work} {os.getpid()}\n".encode())
        yield
    finally:
        with signals_wait():
            try:
                # Deleted while it is held: a process that waits for it finds that it has no name.
                with suppress(OSError):
                    path.unlink()
            finally:
                os.close(descriptor)


def _acquire(path: Path, folder: Path) -> int:
    """Open a lock, or make one, and hold it; only a plain file of this user is taken for one."""
    descriptor = os.open(path, _FLAGS | os.O_CREAT, 0o600)
    try:
        status = os.fstat(descriptor)
        is_own_file = not hasattr(os, "geteuid") or status.st_uid == os.geteuid()
        if not (stat.S_ISREG(status.st_mode) and status.st_nlink <= 1 and is_own_file):
            what = "it is not a lock file of this user"
            raise OSError(errno.EPERM, what, os.fspath(path))
        is_free = try_lock(descriptor)
        content = os.read(descriptor, 64).decode("ascii", "replace")
        os.lseek(descriptor, 0, os.SEEK_SET)
        owner = re.fullmatch(r"([a-z]+) (\d+)\n", content)
        if not is_free:
            holder = f"tfrtool {owner[1]} (process {owner[2]})" if owner else "tfrtool"
            raise UsageError(f"in use by another {holder}", path=folder)
        if content and owner is None:  # a file of the user's that happens to have this name
            what = "it is not a lock file that tfrtool wrote"
            raise OSError(errno.EPERM, what, os.fspath(path))
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def try_lock(descriptor: int) -> bool:
    """Lock an open file until it is closed, or its process dies; return whether that worked."""
    try:
        if sys.platform == "win32":
            import msvcrt

            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    return True


def _is_named(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.lstat())
    except FileNotFoundError:
        return False
