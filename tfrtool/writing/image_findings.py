"""Look at all images before a write, where its plan needs what they hold: copies and bad images."""

import hashlib
import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from itertools import groupby
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfrtool.engines.engine import Engine
from tfrtool.engines.pool import map_shards, run_in_order
from tfrtool.errors import printable
from tfrtool.images.decoder import quiet_pillow
from tfrtool.images.recipe import Check
from tfrtool.sources.items import Item, Source
from tfrtool.storage.capped_list import CappedList
from tfrtool.storage.limits import (
    MAX_LISTED,
)
from tfrtool.storage.progress import OnProgress, Progress
from tfrtool.storage.sorted_rows import SortedRows
from tfrtool.writing.image_records import Finding, RecordMaker, batches

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Digests = npt.NDArray[np.uint64]
    Firsts = npt.NDArray[np.uint32]

_NODE_BATCHES = 16
"""Batches of images that a task on a cluster looks at: some seconds."""

_STEP = 2**13

SharedImage = Mapping[str, tuple[str, ...]]
"""The keys of an image's copies, by the splits that they are in."""


class SourceFindings:
    """What looking at the images of a source found, by their positions.

    Attributes:
        digests: 64 bits of the bytes of each image; 0 for those that can't be written.
    """

    def __init__(self, count: int, scratch: Path | None = None) -> None:
        """Start with so many images that nobody has looked at."""
        import numpy as np

        self.digests: Digests = np.zeros(count, np.uint64)
        self._scratch = scratch
        self._notable = SortedRows[tuple[Any, ...]](scratch)  # position and finding
        self._left_out: list[SortedRows[tuple[int, str]]] = []  # positions and problems
        self._added = 0

    def add(self, finding: Finding) -> None:
        """Add what was found of the next image."""
        if finding.problem is not None or finding.conversion is not None:
            self._notable.add((self._added, *finding))
        self.digests[self._added] = finding.digest
        self._added += 1

    def __iter__(self) -> Iterator[Finding]:
        """Yield what was found of each image, in their order."""
        notable, left_out = iter(self._notable), heapq.merge(*self._left_out)
        other, later = next(notable, None), next(left_out, None)
        for start in range(0, len(self.digests), _STEP):
            numbers = self.digests[start : start + _STEP].tolist()
            for position, digest in enumerate(numbers, start):
                finding = Finding(digest)
                if other is not None and other[0] == position:
                    finding, other = Finding(*other[1:]), next(notable, None)
                if later is not None and later[0] == position:
                    finding, later = Finding(0, problem=later[1]), next(left_out, None)
                yield finding

    @property
    def problems(self) -> Iterator[tuple[int, str]]:
        """The positions of images that can't be written, in order, and why."""
        return ((row[0], row[3]) for row in self._notable if row[3] is not None)

    @property
    def any_good(self) -> bool:
        """Whether an image can be written."""
        return bool(self.digests.any())

    @cached_property
    def first_copies(self) -> "Firsts":
        """For each image 1 more than the position of its first copy; 0 for that itself."""
        return first_alike(self.digests)

    def leave_out_copies(self, source: Source, maker: RecordMaker) -> None:
        """Keep one image of each set of copies, and call the others problems.

        The one that stays is in the first of the source's splits that has any (`train` comes
        first), and has the smallest key there.
        """
        rank = {split: number for number, split in enumerate(source.splits)}

        def copies() -> Iterator[tuple[int, str]]:
            for group in self._groups(source, maker):
                first = min(group, key=lambda entry: rank.get(entry[1].split or "", 0))
                for position, item in group:
                    if position != first[0]:
                        other = "" if item.label == first[1].label else ", in another class"
                        yield position, f"exact duplicate of {printable(first[1].key)}{other}"

        self.leave_out(copies())

    def leave_out(self, problems: Iterable[tuple[int, str]]) -> None:
        """Call further images problems, given by their positions."""
        rows = SortedRows(self._scratch, rows=problems)
        for position, _ in rows:
            self.digests[position] = 0
        self._left_out.append(rows)
        vars(self).pop("first_copies", None)

    def shared(self, source: Source, maker: RecordMaker) -> CappedList[SharedImage]:
        """Return the images that the source's own splits share, in the order of their keys."""
        shared = CappedList[SharedImage](MAX_LISTED)
        for group in self._groups(source, maker) if source.splits else ():
            splits = {
                split: tuple(printable(item.key) for _, item in group if item.split == split)
                for split in source.splits
            }
            if len(found := {split: keys for split, keys in splits.items() if keys}) > 1:
                shared.add(found)
        return shared

    def _groups(self, source: Source, maker: RecordMaker) -> Iterator[list[tuple[int, Item]]]:
        """Yield the copies that belong together, with their positions, by the first's key.

        Images are read again, for none must be called a copy that isn't.
        """
        import numpy as np

        firsts = self.first_copies
        if not firsts.any():
            return
        leaders = firsts.copy()
        led = np.unique(firsts)[1:]
        leaders[led - 1] = led
        rows = SortedRows[tuple[int, int, tuple[Any, ...]]](self._scratch, by=2)
        for position, (item, leader) in enumerate(
            zip(source.items, integers(leaders), strict=True)
        ):
            if leader:
                rows.add((leader, position, tuple(item)))
        for _, group in groupby(rows, key=itemgetter(0)):
            same: dict[bytes, list[tuple[int, Item]]] = {}
            for _, position, fields in group:
                item = Item._make(fields)
                data = maker.read_again(item, Finding(int(self.digests[position])))
                same.setdefault(hashlib.sha256(data).digest(), []).append((position, item))
            yield from (copies for copies in same.values() if len(copies) > 1)


def look_at_all(
    source: Source,
    maker: RecordMaker,
    workers: int | Engine,
    on_progress: OnProgress,
    scratch: Path | None = None,
) -> SourceFindings:
    """Look at all images of a source, in threads or on a cluster.

    Pillow lets go of the interpreter while it decodes, and so does reading.
    """
    total, findings = len(source.items), SourceFindings(len(source.items), scratch)
    look, done = partial(_look, maker), 0
    results: Iterator[list[Finding]]
    with quiet_pillow():
        if isinstance(workers, Engine):
            parts = batches(source.items, attrgetter("bytes"), _NODE_BATCHES)
            results = map_shards(look, parts, workers)
        else:
            decodes = maker.recipe.always or maker.recipe.check is Check.DECODE
            jobs = batches(source.items, attrgetter("bytes"))
            results = run_in_order(look, jobs, workers, computes=not decodes)
        for found in results:
            for finding in found:
                findings.add(finding)
            done += len(found)
            on_progress(Progress(what="checking", done=done, total=total, unit="images"))
    return findings


def _look(maker: RecordMaker, items: Sequence[Item]) -> list[Finding]:
    return [maker.look(item)[1] for item in items]


def first_alike(values: "Digests") -> "Firsts":
    """For each position 1 more than that of the first with the same value; 0 for that itself.

    A value of 0 is like no other.
    """
    import numpy as np

    order = values.argsort(kind="stable")
    ordered = values[order]
    alike = (ordered[1:] == ordered[:-1]) & (ordered[1:] != 0)
    del ordered
    later = np.flatnonzero(alike) + 1  # places in the order that have the value before them
    begins = np.diff(later, prepend=-1) > 1
    firsts = np.zeros(len(values), np.uint32)
    if len(later):
        starts = order[later[begins] - 1]
        firsts[order[later]] = starts[np.cumsum(begins) - 1] + 1
    return firsts


def integers(values: "Firsts | Digests") -> Iterator[int]:
    """Yield the numbers of an array as Python's, a few at a time."""
    for start in range(0, len(values), _STEP):
        yield from values[start : start + _STEP].tolist()
