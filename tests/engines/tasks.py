"""What tests have nodes do; the processes there import this module."""

from __future__ import annotations

import os
import time
from pathlib import Path

from tfrtool.errors import CorruptShardError

__all__ = ["begin_and_wait", "die", "name_of", "refuse"]


def begin_and_wait(task: tuple[Path, int]) -> tuple[int, int]:
    """Note that a task was begun, take a moment, and return its number and a large result."""
    folder, number = task
    (folder / f"{number}-{os.getpid()}").touch()
    time.sleep(0.3)
    return number, len(os.urandom(300_000))


def die(_: tuple[int, tuple[Path, int]]) -> None:
    """End the process, as memory that is used up does."""
    os._exit(1)


def refuse(task: Path) -> None:
    """Raise an error with all of its facts."""
    raise CorruptShardError("is damaged", path=task, record=3, offset=40, hint="cut it")


def name_of(task: Path) -> str:
    """Return the name of a file."""
    return task.name
