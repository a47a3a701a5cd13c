"""Looking at every image before anything is written: which are bad, which are copies."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from tfrtool.engines.threads import Tally, run_in_order
from tfrtool.images.decoder import quiet_pillow
from tfrtool.images.recipe import Check, ImageRecipe
from tfrtool.sources.items import Source
from tfrtool.storage.progress import OnProgress, Progress
from tfrtool.writing.scan.image_audit import Audit, Verdict, examine

Result = TypeVar("Result")

_A_MOMENT = 0.005
"""Seconds that mean nothing: another process may have had the core."""

_A_FEW = 4
"""Times that a thread may wait for something without it meaning much."""

_CHUNK = 32
"""Images that a worker looks at between two visits to the queue."""


def audit_source(
    source: Source, recipe: ImageRecipe, workers: int, on_progress: OnProgress, audit: Audit
) -> None:
    """Look at every image of a source that an audit has not, on several cores.

    Pillow lets go of the interpreter while it decodes, and so does reading.
    """
    items, reader = source.items, source.reader
    tally = Tally(
        lambda done: on_progress(
            Progress(what="checking", done=done, total=len(items), unit="images")
        )
    )

    def look(start: int) -> list[tuple[int, Verdict]]:
        found = []
        for position in range(start, min(start + _CHUNK, len(items))):
            if audit.unknown[position]:
                found.append((position, examine(reader, items[position], recipe)[1]))
            tally.count(1)
        return found

    with quiet_pillow():
        first, waits = mostly_waits(lambda: look(0))
        if not (waits or recipe.always or recipe.check is Check.DECODE):
            workers = 1  # the interpreter does one thing at a time
        rest = run_in_order(look, range(_CHUNK, len(items), _CHUNK), workers, tally)
        for found in (first, *rest):
            for position, verdict in found:
                audit.add(position, verdict)
    tally.finish()


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
