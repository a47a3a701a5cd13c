"""Effects on the file system, counted as Python sees them: what a kill or an error can come before.

A kill leaves files as they are, so a copy of a folder before an effect is what a kill leaves there.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

__all__ = ["before_effects", "die", "logged"]

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
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", sync)
        _acts.append((str(folder), act, counted))
        try:
            yield counted
        finally:
            _acts.pop()


_HOOKED: list[Callable[..., None]] = []


def die(run: Callable[[], object], folder: Path, when: Callable[[], bool]) -> None:
    """Run, and leave what a kill leaves in a folder before the first effect of which it is true."""
    dead = folder.with_name(f"{folder.name}-dead")

    def copy(_number: int) -> None:
        if not dead.exists() and when():
            shutil.copytree(folder, dead, symlinks=True)

    with before_effects(folder, copy):
        run()
    shutil.rmtree(folder)
    dead.rename(folder)


def logged(target: Path) -> int:
    """Return how many files of an unfinished job are noted as finished."""
    log = target / ".tfrtool-incomplete" / "plan.jsonl"
    return log.read_bytes().count(b"\n") - 1 if log.exists() else 0
