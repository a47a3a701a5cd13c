"""Timing two ways of doing a thing in turn, so that a machine's drift hits both alike."""

from __future__ import annotations

import resource
import statistics
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

__all__ = ["Pair", "compare", "process", "timed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """The times of two ways, run in turn.

    Attributes:
        name: what was done.
        ours: wall and CPU seconds of each of our runs.
        theirs: the same of the other way's.
        records: to give the times of one, in microseconds; 0 without.
    """

    name: str
    ours: Sequence[tuple[float, float]]
    theirs: Sequence[tuple[float, float]]
    records: int = 0

    def __str__(self) -> str:
        pairs = list(zip(self.ours, self.theirs, strict=True))
        ratios, of_cpu = ([b[n] / a[n] for a, b in pairs] for n in range(2))
        return "\n".join(
            [
                self.name,
                f"  ours    {self._spread(self.ours)}",
                f"  theirs  {self._spread(self.theirs)}",
                f"  theirs / ours, wall, run by run: median {statistics.median(ratios):.2f} "
                f"({min(ratios):.2f} to {max(ratios):.2f}); CPU {statistics.median(of_cpu):.2f}",
                f"  all of them: {' '.join(f'{ratio:.2f}' for ratio in ratios)}",
            ]
        )

    def _spread(self, times: Sequence[tuple[float, float]]) -> str:
        unit, scale = ("µs a record", 1e6 / self.records) if self.records else ("s", 1.0)
        sides = zip(("wall", "CPU"), zip(*times, strict=True), strict=True)
        parts = []
        for name, seconds in sides:
            low, high = min(seconds), max(seconds)
            middle = statistics.median(seconds) * scale
            parts.append(f"{name} {middle:.3f} {unit} ({low * scale:.3f} to {high * scale:.3f})")
        return "   ".join(parts)


def compare(
    name: str, ours: Callable[[], object], theirs: Callable[[], object], runs: int = 5
) -> Pair:
    """Run both ways once to warm up, then in turn; both must come to the same result.

    Raises:
        RuntimeError: they don't.
    """
    results = ours(), theirs()
    if results[0] != results[1]:
        raise RuntimeError(f"{name}: the results differ: {results[0]!r} and {results[1]!r}")
    times: tuple[list[tuple[float, float]], list[tuple[float, float]]] = ([], [])
    for _ in range(runs):
        for which, way in enumerate((ours, theirs)):
            times[which].append(timed(way))
    return Pair(name=name, ours=times[0], theirs=times[1])


def less_start(
    name: str,
    ours: Callable[[str], Callable[[], object]],
    theirs: Callable[[str], Callable[[], object]],
    large: str,
    small: str,
    runs: int = 5,
) -> Pair:
    """Do what `compare` does with a large file, less what the same takes with a small one."""
    whole = compare(name, ours(large), theirs(large), runs)
    start = compare(name, ours(small), theirs(small), runs)
    sides = []
    for side, least in ((whole.ours, start.ours), (whole.theirs, start.theirs)):
        less = [statistics.median(times) for times in zip(*least, strict=True)]
        sides.append([(wall - less[0], cpu - less[1]) for wall, cpu in side])
    return Pair(name=f"{name}, less start-up", ours=sides[0], theirs=sides[1])


def timed(way: Callable[[], object]) -> tuple[float, float]:
    """Return the wall and CPU seconds of a call, with those of the processes that it waited for."""
    wall, cpu = time.perf_counter(), _cpu()
    way()
    return time.perf_counter() - wall, _cpu() - cpu


def _cpu() -> float:
    """Return the CPU seconds of this process and of those that it has waited for."""
    own = resource.getrusage(resource.RUSAGE_SELF)
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


def process(*command: str) -> Callable[[], int]:
    """Return a function that runs a command to its end, and returns its exit code."""

    def run() -> int:
        return subprocess.run(command, capture_output=True, check=False).returncode

    return run
