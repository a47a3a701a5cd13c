"""The process of a command: its standard files, its signals, and where it finds modules.

It imports little, so that signals are heeded at once.
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
"""Seconds in which signals count as one: timeout(1) sends two, a terminal that closes several."""


class StandardFile(io.FileIO):
    """Standard output or error, to which writing never fails: what can't be written is lost.

    Attributes:
        lost: why it can't be written to any more; None as long as it can.
    """

    lost: OSError | None = None

    def write(self, data: "ReadableBuffer", /) -> int:
        """Write, or only pretend to."""
        if self.lost is None:
            try:
                return super().write(data)
            except OSError as error:
                self.lost = error
        return memoryview(data).nbytes


def nobody_reads() -> bool:
    """Return whether who read standard output has gone (``| head``)."""
    lost = _lost()
    return lost is not None and lost.errno == errno.EPIPE


def _lost() -> OSError | None:
    raw = getattr(getattr(sys.stdout, "buffer", None), "raw", None)
    return raw.lost if isinstance(raw, StandardFile) else None


class Signals:
    """SIGINT, SIGTERM and SIGHUP as KeyboardInterrupt, which cleans up; ignored ones stay so.

    Attributes:
        number: the signal that came; None if there was none.
    """

    def __init__(self) -> None:
        """Wait for signals from now on."""
        self.number: int | None = None
        self._last = -_SAME
        self._handled = [
            number
            for name in ("SIGINT", "SIGTERM", "SIGHUP")
            if (number := getattr(signal, name, None)) is not None
            # nohup has SIGHUP ignored, a shell's job in the background SIGINT.
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
        """Raise KeyboardInterrupt if a signal came: a library may have lost the first one."""
        if self.number is not None:
            raise KeyboardInterrupt

    def release(self) -> None:
        """Let signals end the process without a word, now that there is nothing to clean up."""
        for number in self._handled:
            signal.signal(number, signal.SIG_DFL)


def _takes_lock(frame: FrameType) -> bool:
    """Return whether a `threading.Condition` is being entered or left.

    An exception there leaves its lock taken, and who waits for it, as a thread that ends a future
    does, waits for ever.
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
    """Hold back the lines about devices that TensorFlow's libraries write when they are loaded.

    TensorFlow 2.21 writes some before any log level counts, straight to file descriptor 2. They
    are given out if the block fails.

    What its modules hold is no garbage, and is not searched for any while they come.
    """
    import gc
    import tempfile

    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    sys.stderr.flush()
    saved = os.dup(2)
    with tempfile.TemporaryFile() as held:
        os.dup2(held.fileno(), 2)
        said = b""
        gc.disable()
        try:
            yield
        except Exception:
            held.seek(0)
            said = held.read()
            raise
        finally:
            gc.enable()
            sys.stderr.flush()
            os.dup2(saved, 2)
            os.close(saved)
            with contextlib.suppress(OSError):  # stderr may be on a full disk
                os.write(2, said)


def report_interrupt(number: int) -> int:
    """Say that a signal ended the command, and return the exit code that shells give it."""
    how = "interrupted" if number == signal.SIGINT else f"ended by {signal.Signals(number).name}"
    sys.stderr.write(f"tfrtool: {how}\n")
    return 128 + number


def run_process() -> int:
    """Run the command that the process was started for, and return its exit code."""
    # One that comes while Python runs a callback of its own would be printed; `heed` knows of it.
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
    """See to it that 0, 1 and 2 are open, and that nothing fails for what can't be shown.

    Were they closed, as by ``2>&-``, a shard that is opened to be written might get the number 2,
    and what a library has to say.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # it gets the lowest number that is free
            os.set_inheritable(number, True)
    sys.stdout = _standard_file(1, sys.stdout)
    sys.stderr = _standard_file(2, sys.stderr)


def _standard_file(number: int, opened: TextIO | None) -> TextIO:
    if opened is not None and os.name == "nt":
        return opened  # a console there is no file of bytes
    return io.TextIOWrapper(
        io.BufferedWriter(StandardFile(number, "w", closefd=False)),
        encoding=getattr(opened, "encoding", "utf-8"),
        errors=getattr(opened, "errors", "backslashreplace"),
        # PYTHONUNBUFFERED asks for writing through.
        line_buffering=any(getattr(opened, a, False) for a in ("line_buffering", "write_through")),
    )


def _leave_current_directory() -> None:
    """Find no more modules in the current directory, unless this package itself lies there.

    ``python -m tfrtool`` puts it first, and an empty entry of PYTHONPATH, often a slip, adds it.
    """
    with contextlib.suppress(OSError):  # it may be gone
        here, paths = Path.cwd(), os.environ.get("PYTHONPATH")
        if here == Path(__file__).parents[2]:
            return
        if sys.path[:1] == [str(here)]:
            del sys.path[0]
        if paths and "" in paths.split(os.pathsep) and str(here) in sys.path:
            sys.path.remove(str(here))


def _flushed(code: int) -> int:
    """Bring the results out, and return the exit code: that of a failure if they are lost."""
    with contextlib.suppress(OSError):  # elsewhere than in a StandardFile
        sys.stdout.flush()
    lost = _lost()
    if lost is None or lost.errno == errno.EPIPE or code not in (0, 3):
        return code
    sys.stderr.write(f"tfrtool: error: standard output: {os_reason(lost)}\n")
    return 1
