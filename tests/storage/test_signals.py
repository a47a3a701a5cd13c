"""Signals wait, and none is lost."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from types import FrameType

import pytest

from tfrtool.storage.lock import signals_wait

pytestmark = pytest.mark.skipif(os.name != "posix", reason="needs POSIX signals")

NUMBERS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]


@pytest.fixture
def came() -> Iterator[list[int]]:
    """Handle all of the signals, and return those that came."""
    numbers: list[int] = []

    def note(number: int, _frame: FrameType | None) -> None:
        numbers.append(number)

    before = {number: signal.signal(number, note) for number in NUMBERS}
    yield numbers
    for number, handler in before.items():
        signal.signal(number, handler)


def test_each_signal_is_delivered_afterwards(came: list[int]) -> None:
    """However often it came, its handler is called once, and not before the body has ended."""
    with signals_wait():
        for number in [*NUMBERS, *NUMBERS]:
            os.kill(os.getpid(), number)
        assert not came
    assert sorted(came) == sorted(NUMBERS)
    os.kill(os.getpid(), signal.SIGINT)
    assert len(came) == 4


def interrupted(done: list[str], error: Exception | None = None) -> None:
    """Get Ctrl-C in the body, and perhaps fail."""
    with signals_wait():
        os.kill(os.getpid(), signal.SIGINT)
        done.append("all")
        if error is not None:
            raise error


def test_ctrl_c_is_raised_afterwards() -> None:
    """Python's own handler raises KeyboardInterrupt, also after an error in the body."""
    done: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        interrupted(done)
    with pytest.raises(KeyboardInterrupt) as caught:
        interrupted(done, RuntimeError())
    assert done == ["all", "all"]
    assert isinstance(caught.value.__context__, RuntimeError)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
