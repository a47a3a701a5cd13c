"""The process of a command: its standard files, its signals, and its module search path.

It imports little, so that signals are handled right from the start.
"""

import _thread
import contextlib
import errno
import io
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, TextIO

from tfrtool.errors import os_reason

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_SAME = 2.0
"""Signals within this many seconds count as one: timeout(1) sends two, closing a terminal more."""


class StandardFile(io.FileIO):
    """Standard output or error that never raises: what can't be written is dropped.

    Attributes:
        lost: the error after which everything is dropped, or None.
    """

    lost: OSError | None = None

    def write(self, data: "ReadableBuffer", /) -> int:
        """Write, or drop the data after an error."""
        if self.lost is None:
            try:
                return super().write(data)
            except OSError as error:
                self.lost = error
        return memoryview(data).nbytes


def stdout_closed() -> bool:
    """Return whether the reader of standard output has closed it (``| head``)."""
    lost = _lost()
    return lost is not None and lost.errno == errno.EPIPE


def _lost() -> OSError | None:
    raw = getattr(getattr(sys.stdout, "buffer", None), "raw", None)
    return raw.lost if isinstance(raw, StandardFile) else None


class Signals:
    """Turns SIGINT, SIGTERM and SIGHUP into KeyboardInterrupt, so that commands clean up.

    Signals that are ignored stay ignored.

    Attributes:
        number: the signal that was received, or None.
    """

    def __init__(self) -> None:
        """Handle signals from now on."""
        self.number: int | None = None
        self._last = -_SAME
        self._handled = [
            number
            for name in ("SIGINT", "SIGTERM", "SIGHUP")
            if (number := getattr(signal, name, None)) is not None
            # nohup ignores SIGHUP, and shells ignore SIGINT for background jobs.
            and signal.getsignal(number) not in (signal.SIG_IGN, None)
        ]
        for number in self._handled:
            signal.signal(number, self._interrupt)

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        if frame is not None and _takes_lock(frame):
            _thread.start_new_thread(_raise_later, (number,))
            return
        now = time.monotonic()
        if now - self._last < _SAME:
            return
        self._last, self.number = now, self.number or number
        raise KeyboardInterrupt

    def heed(self) -> None:
        """Raise KeyboardInterrupt if a signal came, in case a library swallowed the first."""
        if self.number is not None:
            raise KeyboardInterrupt

    def release(self) -> None:
        """Let signals end the process silently, once there is nothing to clean up."""
        for number in self._handled:
            signal.signal(number, signal.SIG_DFL)


def _takes_lock(frame: FrameType) -> bool:
    """Return whether a `threading.Condition` is being entered or left.

    An exception there leaves its lock taken, and a thread that waits for it, for example to
    complete a future, waits forever.
    """
    inside = frame.f_code.co_name in ("__enter__", "__exit__")
    return inside and frame.f_globals.get("__name__") == "threading"


def _raise_later(number: int) -> None:
    time.sleep(0.01)
    if os.name == "nt":
        signal.raise_signal(number)
    else:
        os.kill(os.getpid(), number)  # which also wakes up the main thread


@contextlib.contextmanager
def starting_tensorflow() -> Iterator[None]:
    """Hold back the lines about devices that TensorFlow's libraries log when they are loaded.

    TensorFlow 2.21 writes some of them straight to file descriptor 2, before any log level
    applies. They are printed if the block fails.

    Garbage collection is off meanwhile: modules that are being loaded are not garbage.
    """
    import gc
    import tempfile

    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    sys.stderr.flush()
    saved = os.dup(2)
    with tempfile.TemporaryFile() as log:
        os.dup2(log.fileno(), 2)
        lines = b""
        gc.disable()
        try:
            yield
        except Exception:
            log.seek(0)
            lines = log.read()
            raise
        finally:
            gc.enable()
            sys.stderr.flush()
            os.dup2(saved, 2)
            os.close(saved)
            with contextlib.suppress(OSError):  # stderr may be on a full disk
                os.write(2, lines)


def report_interrupt(number: int) -> int:
    """Print that a signal ended the command, and return the exit code that shells use for it."""
    how = "interrupted" if number == signal.SIGINT else f"ended by {signal.Signals(number).name}"
    sys.stderr.write(f"tfrtool: {how}\n")
    return 128 + number


def run_process() -> int:
    """Run the command that the process was started for, and return its exit code."""
    # Python would print a KeyboardInterrupt raised in one of its callbacks; `heed` handles it.
    shown = sys.unraisablehook
    sys.unraisablehook = lambda lost: None if lost.exc_type is KeyboardInterrupt else shown(lost)
    signals = Signals()
    try:
        _open_standard_files()
        _leave_current_directory()
        from tfrtool.cli.app import run

        code = _flushed(run(sys.argv[1:], signals))
    except BaseException:  # before the command began, or after it ended
        if signals.number is None:
            raise
        code = report_interrupt(signals.number)
    signals.release()
    return code


def _open_standard_files() -> None:
    """Open file descriptors 0, 1 and 2 if they are closed, and make writing to them never fail.

    If 2 stayed closed (``2>&-``), a shard opened for writing could get that number, and with it
    the messages of libraries.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free number
            os.set_inheritable(number, True)
    sys.stdout = _standard_file(1, sys.stdout)
    sys.stderr = _standard_file(2, sys.stderr)


def _standard_file(number: int, opened: TextIO | None) -> TextIO:
    if opened is not None and os.name == "nt":
        return opened  # a Windows console is not a file of bytes
    return io.TextIOWrapper(
        io.BufferedWriter(StandardFile(number, "w", closefd=False)),
        encoding=getattr(opened, "encoding", "utf-8"),
        errors=getattr(opened, "errors", "backslashreplace"),
        # PYTHONUNBUFFERED sets write_through.
        line_buffering=any(getattr(opened, a, False) for a in ("line_buffering", "write_through")),
    )


def _leave_current_directory() -> None:
    """Remove the current directory from the module search path, unless this package is in it.

    ``python -m tfrtool`` puts it first, and an empty entry of PYTHONPATH, often a typo, adds it.
    """
    with contextlib.suppress(OSError):  # it may have been deleted
        here, paths = Path.cwd(), os.environ.get("PYTHONPATH")
        if here == Path(__file__).parents[2]:
            return
        if sys.path[:1] == [str(here)]:
            del sys.path[0]
        if paths and "" in paths.split(os.pathsep) and str(here) in sys.path:
            sys.path.remove(str(here))


def _flushed(code: int) -> int:
    """Flush the results and return the exit code, which is 1 if they were lost."""
    with contextlib.suppress(OSError):  # if stdout is not a StandardFile
        sys.stdout.flush()
    lost = _lost()
    if lost is None or lost.errno == errno.EPIPE or code not in (0, 3):
        return code
    sys.stderr.write(f"tfrtool: error: standard output: {os_reason(lost)}\n")
    return 1
