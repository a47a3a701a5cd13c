"""Looking at every image before anything is written: which are bad, which are copies."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import chain
from typing import TypeVar

from tfrtool.engines.threads import Tally, run_in_order
from tfrtool.images.decoder import quiet_pillow
from tfrtool.images.recipe import Check, ImageRecipe
from tfrtool.sources.items import Source
from tfrtool.writing.scan.findings import Audit, Finding, Findings, examine

__all__ = ["audit_source", "mostly_waits"]

Result = TypeVar("Result")

_A_MOMENT = 0.005
"""Seconds that mean nothing: another process may have had the core."""

_A_FEW = 4
"""Times that a thread may wait for something without it meaning much."""

_CHUNK = 32
"""Images that a worker looks at between two visits to the queue."""


def audit_source(
    source: Source,
    recipe: ImageRecipe,
    workers: int,
    on_progress: Callable[[int, int], None] = lambda _done, _bytes: None,
    findings: Findings | None = None,
) -> Audit:
    """Look at every image of a source, on several cores.

    Pillow lets go of the interpreter while it decodes, and so does reading.

    Args:
        source: the items and their reader.
        recipe: what makes an image bad, and how it is to be encoded.
        workers: how many threads.
        on_progress: called now and then with the images and bytes so far.
        findings: of items that have been looked at already, and are not again.
    """
    tally = Tally(on_progress)
    items, reader = source.items, source.reader
    findings = Findings(items) if findings is None else findings

    def audit(start: int) -> list[tuple[int, Finding]]:
        found = []
        for position in range(start, min(start + _CHUNK, len(items))):
            if findings.unknown[position]:
                found.append((position, examine(reader, items[position], recipe)[1]))
            tally.count(1, items[position].bytes)
        return found

    with quiet_pillow():
        decodes = recipe.always or recipe.check is Check.DECODE
        first, waits = mostly_waits(lambda: audit(0))
        rest = run_in_order(
            audit,
            range(_CHUNK, len(items), _CHUNK),
            workers if decodes or waits else 1,  # the interpreter does one thing at a time
            tally,
        )
        for position, finding in chain(first, chain.from_iterable(rest)):
            findings.add(position, finding)
    tally.finish()
    return findings.audit()


def mostly_waits(work: Callable[[], Result]) -> tuple[Result, bool]:
    """Do something, and tell whether most of the time went by in waiting, and not computing.

    On a busy machine a thread that computes loses its core to others, and looks as if it waited;
    where the system counts how often it gave up the core by itself, that is told apart.
    """
    wall, cpu, gave_up = time.perf_counter(), time.thread_time(), _times_given_up()
    result = work()
    waited = time.perf_counter() - wall > 2 * (time.thread_time() - cpu) + _A_MOMENT
    return result, waited and (gave_up is None or (_times_given_up() or 0) - gave_up > _A_FEW)


def _times_given_up() -> int | None:
    """Return how often this thread has waited for something; None where nobody counts that."""
    try:
        import resource
    except ImportError:
        return None
    this = getattr(resource, "RUSAGE_THREAD", None)
    return None if this is None else resource.getrusage(this).ru_nvcsw
