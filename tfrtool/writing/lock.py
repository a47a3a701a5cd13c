"""One writer of a directory at a time."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tfrtool.errors import UsageError

__all__ = ["LOCK", "locked"]

LOCK = ".tfrtool-lock"
"""The file in a dataset's directory that its writer holds."""


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Hold the lock of a directory; the system lets go of it when the process dies.

    Raises:
        UsageError: another process writes there.
        OSError: the directory can't be written to.
    """
    path = directory / LOCK
    descriptor = _acquire(path, directory)
    try:
        yield
    finally:
        # Taken away while it is held: whoever waits for this file finds that it has no name.
        path.unlink(missing_ok=True)
        os.close(descriptor)


def _acquire(path: Path, directory: Path) -> int:
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            if not _lock(descriptor):
                raise UsageError("another tfrtool write is at work here", path=directory)
            if _is_still_there(path, descriptor):
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)  # its holder took it away meanwhile


def _is_still_there(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
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
