"""The process of a command: its standard files, and its signals. It imports little."""

import atexit
import contextlib
import errno
import gc
import io
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, TextIO

from tfrtool.errors import os_reason

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


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


def prepare_standard_files() -> None:
    """Make writing to standard output and error never fail, and never reach another file."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:  # closed; a file that is opened could get its number
            os.open(os.devnull, os.O_RDWR)
            os.set_inheritable(number, True)
    sys.stdout, sys.stderr = _standard_file(1, sys.stdout), _standard_file(2, sys.stderr)


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


def flush_results(code: int) -> int:
    """Flush the results and return the exit code, which is 1 if they were lost."""
    with contextlib.suppress(OSError):  # if stdout is not a StandardFile
        sys.stdout.flush()
    lost = _lost()
    if lost is None or lost.errno == errno.EPIPE or code not in (0, 3):
        return code
    sys.stderr.write(f"tfrtool: error: standard output: {os_reason(lost)}\n")
    return 1


def leave_current_directory() -> None:
    """Remove the current directory from the module search path: ``python -m`` puts it first."""
    with contextlib.suppress(OSError):  # it may have been deleted
        here = Path.cwd()
        if sys.path[:1] == [str(here)] and here != Path(__file__).parents[2]:
            del sys.path[0]


@contextlib.contextmanager
def collection_paused(*, exempt: bool) -> Iterator[None]:
    """Load a large library without Python's garbage collector.

    TensorFlow creates some 250,000 objects while it is loaded, and none of them is garbage. To look
    for garbage again and again takes a sixth of that time, and to look at the exit as much.

    Args:
        exempt: whether all objects so far are never looked at again. Only for a process that ends
            with its command.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if exempt:
            gc.freeze()
        if was_enabled:
            gc.enable()


class Signals:
    """Turns SIGINT, SIGTERM and SIGHUP into KeyboardInterrupt, so that commands clean up.

    Signals that are ignored stay ignored. Each counts once, since timeout(1) and terminals send
    several.

    Attributes:
        number: the first signal that was received, or None.
    """

    def __init__(self) -> None:
        """Handle signals from now on."""
        # What is registered first runs last at the exit.
        atexit.register(self._ignore)
        self.number: int | None = None
        numbers = (getattr(signal, name, None) for name in ("SIGINT", "SIGTERM", "SIGHUP"))
        self._handled = [
            number
            for number in numbers
            # nohup ignores SIGHUP, and shells ignore SIGINT for background jobs.
            if number is not None and signal.getsignal(number) not in (signal.SIG_IGN, None)
        ]
        for number in self._handled:
            signal.signal(number, self._interrupt)

    def _interrupt(self, number: int, _: FrameType | None) -> None:
        signal.signal(number, signal.SIG_IGN)
        self.number = self.number or number
        raise KeyboardInterrupt

    def raise_if_interrupted(self) -> None:
        """Raise KeyboardInterrupt if a signal came, in case a library swallowed the first."""
        if self.number is not None:
            raise KeyboardInterrupt

    def release(self) -> None:
        """Let signals end the process silently, once there is nothing to clean up.

        The exit code stays the documented one: libraries take up to seconds to shut down.
        """
        for number in self._handled:
            signal.signal(number, self._leave)

    def _leave(self, number: int, _: FrameType | None) -> None:
        os._exit(128 + (self.number or number))

    def _ignore(self) -> None:
        for number in self._handled:
            signal.signal(number, signal.SIG_IGN)


def report_interrupt(number: int, error: BaseException | None = None) -> int:
    """Print that a signal ended the command, and return the exit code that shells use for it.

    ``error`` is the `KeyboardInterrupt`, or click's error that it caused. Its notes are printed:
    they say whether anything was written.
    """
    how = "interrupted" if number == signal.SIGINT else f"ended by {signal.Signals(number).name}"
    notes = getattr(error and (error.__cause__ or error), "__notes__", ())
    sys.stderr.write(f"tfrtool: {'; '.join((how, *notes))}\n")
    return 128 + number
