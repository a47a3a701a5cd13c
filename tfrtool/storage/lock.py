"""One writer of a folder at a time."""

from __future__ import annotations

import errno
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
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
    descriptor = _acquire(path, folder)
    try:
        os.ftruncate(descriptor, 0)
        os.write(descriptor, f"{work} {os.getpid()}\n".encode())
        yield
    finally:
        with signals_wait():
            try:
                # Taken away while it is held: who waits for this file finds that it has no name.
                path.unlink(missing_ok=True)
            finally:
                os.close(descriptor)


def _acquire(path: Path, folder: Path) -> int:
    while True:
        descriptor = _open(path)
        try:
            if not _lock(descriptor):
                raise UsageError(f"another tfrtool {_holder(descriptor)} here", path=folder)
            if _is_still_there(path, descriptor):
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)  # its holder took it away meanwhile


def _open(path: Path) -> int:
    """Open a lock, or make one; nothing but a plain file of this user is taken for a lock."""
    descriptor = os.open(path, _FLAGS | os.O_CREAT, 0o600)
    status = os.fstat(descriptor)
    ours = not hasattr(os, "geteuid") or status.st_uid == os.geteuid()
    if stat.S_ISREG(status.st_mode) and status.st_nlink <= 1 and ours:
        return descriptor
    os.close(descriptor)
    raise OSError(errno.EPERM, "is not a lock that this user's tfrtool made", os.fspath(path))


def _holder(descriptor: int) -> str:
    """Return what the lock's holder wrote into it: "write is at work (process 17)"."""
    work, _, process = os.read(descriptor, 64).decode("ascii", "replace").partition(" ")
    if work.isalpha() and process.strip().isdecimal():
        return f"{work} is at work (process {process.strip()})"
    return "is at work"


def _is_still_there(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.lstat())
    except FileNotFoundError:
        return False


if sys.platform == "win32":
    import msvcrt

    def _lock(descriptor: int) -> bool:
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

else:
    import fcntl

    def _lock(descriptor: int) -> bool:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True
