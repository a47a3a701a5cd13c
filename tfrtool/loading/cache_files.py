"""Files of a cache: whole or not there, and none left behind by a writer that was killed."""

from __future__ import annotations

import contextlib
import mmap
import os
import sys
import tempfile
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from tfrtool.errors import WriteError, os_reason

__all__ = [
    "HeldFile",
    "new_file",
    "os_errors_as_write_errors",
    "remove_file",
    "remove_leftovers",
    "remove_unless_held",
]

_PREFIX, _SUFFIX = ".tfrtool-", ".unfinished"


class HeldFile:
    """A file that `remove_unless_held` leaves alone, in whatever process, as long as this lives."""

    def __init__(self, path: Path) -> None:
        """Open a file to read, and hold it.

        Raises:
            OSError: it can't be opened, or is being removed.
        """
        self._descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0))
        weakref.finalize(self, os.close, self._descriptor)
        _share(self._descriptor)
        # Between these lines it may have been removed.
        if not os.path.samestat(os.fstat(self._descriptor), path.stat()):
            raise FileNotFoundError(path)

    def read_end(self, size: int) -> tuple[int, bytes]:
        """Return how long the file is, and its last bytes, up to ``size`` of them.

        Raises:
            OSError: it can't be read.
        """
        with os.fdopen(self._descriptor, "rb", closefd=False) as file:
            whole = file.seek(0, os.SEEK_END)
            file.seek(max(whole - size, 0))
            return whole, file.read(size)

    def map(self, size: int) -> mmap.mmap:
        """Map the first ``size`` bytes. What is written to them stays in memory.

        They can be read as long as they are used, whatever becomes of the file's name.

        Raises:
            OSError: it can't be mapped.
        """
        return mmap.mmap(self._descriptor, size, access=mmap.ACCESS_COPY)


@contextmanager
def new_file(path: Path) -> Iterator[IO[bytes]]:
    """Give a file to write, which gets its name when it is whole and safe on disk.

    Until then it has a name of its own, so that several processes may write at a time; the last
    one's file stays. If the body of the ``with`` raises, nothing is left.

    Raises:
        WriteError: it can't be written, or there is no room.
    """
    with os_errors_as_write_errors(path):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor, temporary = _open_temporary(path.parent)
    file = os.fdopen(descriptor, "wb")
    try:
        yield file
        with os_errors_as_write_errors(path):
            file.flush()
            os.fsync(descriptor)
            if _CLOSE_BEFORE_RENAMING:
                file.close()
            # Elsewhere it is held until it has its name, or it might be taken for a leftover.
            temporary.replace(path)
            _sync(path.parent)
    finally:
        with contextlib.suppress(OSError):  # closing tries once more to write what didn't fit
            file.close()
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def remove_leftovers(directory: Path) -> None:
    """Remove files that were never finished, unless their writers are still at work."""
    for path in directory.glob(f"{_PREFIX}*{_SUFFIX}"):
        remove_unless_held(path)


def remove_unless_held(path: Path) -> None:
    """Remove a file if that is possible, unless it is being written or is a `HeldFile`."""
    with contextlib.suppress(OSError):
        _remove_unheld(path)


def remove_file(path: Path) -> None:
    """Remove a file if that is possible."""
    with contextlib.suppress(OSError):
        path.unlink()


@contextmanager
def os_errors_as_write_errors(path: Path) -> Iterator[None]:
    """Turn errors of the system into ours, which name the file.

    Raises:
        WriteError: in place of any OSError.
    """
    try:
        yield
    except OSError as error:
        raise WriteError(f"the cache can't be written: {os_reason(error)}", path=path) from error


def _open_temporary(directory: Path) -> tuple[int, Path]:
    while True:
        descriptor, name = tempfile.mkstemp(prefix=_PREFIX, suffix=_SUFFIX, dir=directory)
        path = Path(name)
        _hold(descriptor)
        # Between these two lines it may have been taken for a leftover.
        if path.exists():
            return descriptor, path
        os.close(descriptor)


if sys.platform == "win32":
    _CLOSE_BEFORE_RENAMING = True

    def _hold(descriptor: int) -> None:
        del descriptor  # the system itself keeps open files from being removed

    _share = _hold

    def _remove_unheld(path: Path) -> None:
        path.unlink()

    def _sync(directory: Path) -> None:
        del directory  # can't be opened

else:
    import fcntl

    _CLOSE_BEFORE_RENAMING = False

    def _hold(descriptor: int) -> None:
        # Where there are no locks, nobody can take it for a leftover either.
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)

    def _share(descriptor: int) -> None:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            raise
        except OSError:
            return  # likewise

    def _remove_unheld(path: Path) -> None:
        descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink()
        finally:
            os.close(descriptor)

    def _sync(directory: Path) -> None:
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
