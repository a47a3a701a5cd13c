"""Effects on the file system, counted as Python sees them: what a kill or an error can come before.

A kill leaves files as they are, so a copy of a folder before an effect is what a kill leaves there.

``python -m tests.process.effects FOLDER N SIGNAL WORD...`` runs ``tfrtool WORD...``, which sends
itself a signal before effect N below the folder: always at the same moment, on a busy machine, too.
"""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

__all__ = ["before_effects", "die", "logged", "signal_at"]

_CHANGES = {"os.rename", "os.link", "os.remove", "os.rmdir", "os.mkdir", "os.truncate"}
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC

_acts: list[tuple[str, Callable[[int], None], list[int]]] = []
"""What to do, below which folder, and how many effects there were; hooks can't be taken away."""


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    if not _acts:
        return
    if event == "open":
        flags = arguments[2] if len(arguments) > 2 and isinstance(arguments[2], int) else 0
        if not flags & _WRITES:
            return
    elif event not in _CHANGES:
        return
    names = [
        os.fsdecode(one) for one in arguments[:2] if isinstance(one, str | bytes | os.PathLike)
    ]
    # Names without a folder come with an open one: a tree is being removed.
    if any(name.startswith(_acts[-1][0]) or not os.path.isabs(name) for name in names):  # noqa: PTH117
        _count()


def _count() -> None:
    folder, act, counted = _acts.pop()  # what is done about an effect is none
    try:
        act(counted[0])
    finally:
        counted[0] += 1
        _acts.append((folder, act, counted))


@contextmanager
def before_effects(folder: Path, act: Callable[[int], None]) -> Iterator[list[int]]:
    """Call something before each effect below a folder, with its number from 0; it may raise.

    Files that are opened to be written count, as do renames, links, folders that are made, what is
    deleted, and waiting for the disk, which is not done. The list has the number of effects.
    """
    counted = [0]

    def sync(_descriptor: int) -> None:
        if _acts:
            _count()

    if _hook not in _HOOKED:
        sys.addaudithook(_hook)
        _HOOKED.append(_hook)
    fsync, os.fsync = os.fsync, sync  # type: ignore[assignment]
    _acts.append((str(folder), act, counted))
    try:
        yield counted
    finally:
        _acts.pop()
        os.fsync = fsync


_HOOKED: list[Callable[..., None]] = []


def die(run: Callable[[], object], folder: Path, when: Callable[[], bool]) -> None:
    """Run, and leave the folder as a kill does before the first effect for which ``when`` holds."""
    dead = folder.with_name(f"{folder.name}-dead")

    def copy(_number: int) -> None:
        if not dead.exists() and when():
            shutil.copytree(folder, dead, symlinks=True)

    with before_effects(folder, copy):
        run()
    shutil.rmtree(folder)
    dead.rename(folder)


def signal_at(folder: Path, number: int, effect: int) -> None:
    """Have this process send itself a signal before an effect below a folder."""

    def send(at: int) -> None:
        if at == effect:
            os.kill(os.getpid(), number)

    acting = before_effects(folder, send)
    acting.__enter__()
    atexit.register(acting.__exit__, None, None, None)  # until then it is referenced


def logged(target: Path) -> int:
    """Return how many files of an unfinished job are noted as finished."""
    return len([*(target / ".tfrtool-incomplete").glob("*.done.json")])


def main() -> int:
    """Be the command."""
    from tfrtool.cli import main as command

    folder, effect, number, *sys.argv[1:] = sys.argv[1:]
    signal_at(Path(folder), signal.Signals[number], int(effect))
    return command()


if __name__ == "__main__":
    sys.exit(main())
