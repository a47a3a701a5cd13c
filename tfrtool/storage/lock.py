"""One writer of a folder at a time, and signals that wait for what must not be left half-done."""

import errno
import os
import re
import signal
import stat
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

from tfrtool.errors import UsageError

LOCK = ".tfrtool-lock"
"""The file in a folder that its writer holds; it says which process that is."""

_FLAGS = os.O_RDWR | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)

_SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP")


@contextmanager
def signals_wait() -> Iterator[None]:
    """Hold back SIGINT, SIGTERM and SIGHUP while the body runs; they are delivered after it.

    Whoever handles a signal then, Python, the system or the caller, does so as ever. Outside of
    the main thread nothing is done, and nothing need be: Python delivers signals there alone.
    """
    came: set[int] = set()

    def note(number: int, _frame: FrameType | None) -> None:
        came.add(number)

    def restore(number: int, handler: Any) -> None:
        signal.signal(number, handler)
        if number in came:
            signal.raise_signal(number)

    with ExitStack() as after:
        if threading.current_thread() is threading.main_thread():
            for number in (getattr(signal, name) for name in _SIGNALS if hasattr(signal, name)):
                handler = signal.getsignal(number)
                if handler is not None:  # None: not handled by Python
                    after.callback(restore, number, handler)
                    signal.signal(number, note)
        yield


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
