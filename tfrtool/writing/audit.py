"""Looking at every image before anything is written: which are bad, which are copies."""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from tfrtool.errors import SourceError, os_reason
from tfrtool.images.audit import audit_image, quiet_pillow
from tfrtool.images.recipe import Check, ImageRecipe
from tfrtool.records.crc import crc32c
from tfrtool.sources.items import Item, ItemReader, Source
from tfrtool.writing.pool import Tally, run_in_threads

__all__ = ["Audit", "Conversion", "Finding", "audit_source"]

_A_MOMENT = 0.005
"""Seconds that mean nothing: another process may have had the core."""

_CHUNK = 32
"""Images that a worker looks at between two visits to the queue."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversion:
    """An image whose bytes are not kept.

    Attributes:
        key: its path below the source.
        format: what it truly is, by Pillow's name.
        reason: why it is encoded anew.
    """

    key: str
    format: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """What was found of all items of a source.

    Items are named by their positions in it.

    Attributes:
        good: those that are written.
        problems: why others are not.
        converted: those whose bytes are not kept, and why.
        leaders: for each item the position of the first, by key, that it is an exact copy of: its
            own where it is the first.
        digests: of the bytes of every item that could be read, 64 bits each.
        waits: whether looking meant waiting for the bytes, rather than computing.
    """

    good: Sequence[int]
    problems: Mapping[int, str]
    converted: Mapping[int, Conversion]
    leaders: Sequence[int]
    digests: Sequence[int]
    waits: bool = True

    @property
    def copies(self) -> int:
        """How many items are exact copies of an earlier one."""
        return sum(leader != position for position, leader in enumerate(self.leaders))


Finding = tuple[int, str | None, str | None, str | None]
"""A digest of an image's bytes, its problem, and the format and reason of a conversion."""


def audit_source(
    source: Source,
    recipe: ImageRecipe,
    workers: int,
    on_progress: Callable[[int, int], None] = lambda _done, _bytes: None,
) -> Audit:
    """Look at every image of a source, on several cores.

    Pillow lets go of the interpreter while it decodes, and so does reading.

    Args:
        source: the items and their reader.
        recipe: what makes an image bad, and how it is to be encoded.
        workers: how many threads.
        on_progress: called now and then with the images and bytes so far.
    """
    tally = Tally(on_progress)
    items, reader = source.items, source.reader

    def audit(start: int) -> list[Finding]:
        findings = []
        for item in items[start : start + _CHUNK]:
            findings.append(_finding(reader, item, recipe))
            tally.count(item.bytes)
        return findings

    digests = array("Q", bytes(8 * len(items)))
    problems: dict[int, str] = {}
    converted: dict[int, Conversion] = {}
    with quiet_pillow():
        decodes = recipe.always or recipe.check is Check.DECODE
        first, waits = _timed(audit, 0)
        rest = run_in_threads(
            audit,
            range(_CHUNK, len(items), _CHUNK),
            workers if decodes or waits else 1,  # the interpreter does one thing at a time
            tally,
        )
        for start, findings in chain([(0, first)], rest):
            for position, (digest, problem, format_, reason) in enumerate(findings, start):
                digests[position] = digest
                if problem is not None:
                    problems[position] = problem
                elif reason is not None:
                    converted[position] = Conversion(
                        key=items[position].key, format=format_ or "", reason=reason
                    )
    good = [position for position in range(len(items)) if position not in problems]
    return Audit(
        good=good,
        problems=dict(sorted(problems.items())),
        converted=dict(sorted(converted.items())),
        leaders=_leaders(good, digests),
        digests=digests,
        waits=waits,
    )


def _timed(audit: Callable[[int], list[Finding]], start: int) -> tuple[list[Finding], bool]:
    """Look at the first images, and tell whether most of the time went by in waiting."""
    wall, cpu = time.perf_counter(), time.thread_time()
    findings = audit(start)
    return findings, time.perf_counter() - wall > 2 * (time.thread_time() - cpu) + _A_MOMENT


def _finding(reader: ItemReader, item: Item, recipe: ImageRecipe) -> Finding:
    try:
        data = reader.read(item)
    except OSError as error:
        return 0, f"it can't be read: {os_reason(error)}", None, None
    except SourceError as error:
        return 0, f"it can't be read: {error.what}", None, None
    verdict = audit_image(data, recipe)
    # Two different images of one digest would only share a split.
    digest = crc32c(data) | (len(data) & 0xFFFFFFFF) << 32
    return digest, verdict.problem, verdict.format, verdict.conversion


def _leaders(good: Sequence[int], digests: Sequence[int]) -> array[int]:
    """Return for each item the first good one with the same digest."""
    leaders = array("Q", range(len(digests)))
    first = -1
    # Sorting is stable: of the same digest, the first by position comes first.
    for position in sorted(good, key=digests.__getitem__):
        if first >= 0 and digests[first] == digests[position]:
            leaders[position] = first
        else:
            first = position
    return leaders
