"""Signals that wait for what must not be left half-done."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any

_NAMES = ("SIGINT", "SIGTERM", "SIGHUP")


@contextlib.contextmanager
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

    with contextlib.ExitStack() as after:
        if threading.current_thread() is threading.main_thread():
            for number in (getattr(signal, name) for name in _NAMES if hasattr(signal, name)):
                handler = signal.getsignal(number)
                if handler is not None:  # None: not handled by Python
                    after.callback(restore, number, handler)
                    signal.signal(number, note)
        yield
