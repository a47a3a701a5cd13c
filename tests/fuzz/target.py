"""What a fuzz target is, and where all of them are."""

from __future__ import annotations

import atexit
import importlib
import random
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

__all__ = ["TARGETS", "Scramble", "Target", "fixture_files", "load_target", "scratch"]

TARGETS = (
    *("framing", "damage", "compression", "examples", "arrow", "images", "names", "viewer"),
    *("parquet", "sql", "messages", "frames"),
)
"""The targets by name; each is a module of this package."""

Scramble = Callable[[bytes], bytes]
"""Changes bytes without knowing what they mean, as libFuzzer does it by itself."""

Mutate = Callable[[bytes, random.Random, Scramble], bytes]

_FIXTURES = Path(__file__).parents[2] / "fixtures"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Something that bytes are thrown at.

    Attributes:
        check: takes any bytes; raises if what must hold doesn't.
        seeds: gives the inputs to begin with.
        mutate: makes an input of another one, knowing its format; None leaves that to libFuzzer.
        max_length: the longest input, in bytes.
        memory: what the process may take, Python and libraries included, in MiB. Reading shards
            takes less than 200 with all that is instrumented.
    """

    check: Callable[[bytes], object]
    seeds: Callable[[], Iterator[bytes]]
    mutate: Mutate | None = None
    max_length: int = 8192
    memory: int = 512

    def __post_init__(self) -> None:
        if self.max_length < 1 or self.memory < 1:
            raise ValueError(f"no limits: {self.max_length} bytes, {self.memory} MiB")


def load_target(name: str) -> Target:
    """Import a target, and with it the code that it is about."""
    target = importlib.import_module(f"tests.fuzz.{name}").TARGET
    if not isinstance(target, Target):
        raise TypeError(f"{name} is no target but {target!r}")
    return target


def fixture_files(folder: str, limit: int) -> Iterator[bytes]:
    """Yield the contents of the fixtures of a folder that are no longer than ``limit`` bytes."""
    for path in sorted((_FIXTURES / folder).rglob("*")):
        if path.is_file() and path.suffix != ".json" and path.stat().st_size <= limit:
            yield path.read_bytes()


@cache
def scratch() -> Path:
    """Return a folder to write to, which goes when the process ends in the usual way."""
    folder = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder
