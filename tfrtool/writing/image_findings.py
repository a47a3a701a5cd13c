"""Check all images before a write, where its plan needs their content: copies and bad images."""

import sys
from array import array
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property, partial
from itertools import groupby
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import TYPE_CHECKING

from tfrtool.engines.engine import Engine
from tfrtool.engines.pool import map_shards, run_in_order
from tfrtool.errors import SourceError, printable
from tfrtool.images.decoder import quiet_pillow
from tfrtool.images.recipe import Check
from tfrtool.sources.items import Item, Source
from tfrtool.storage.capped_list import CappedList
from tfrtool.storage.limits import MAX_LISTED
from tfrtool.storage.progress import OnProgress, Progress
from tfrtool.storage.sorted_rows import SortedRows
from tfrtool.writing.image_task import (
    Finding,
    ImageAccount,
    ImageShard,
    RecordMaker,
    ShardResult,
    batches,
)

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Digests = npt.NDArray[np.uint64]
    Firsts = npt.NDArray[np.uint32]

_FEW = 2**17
"""Images whose copies are counted without NumPy, which takes a tenth of a second to load."""

_NODE_BATCHES = 16
"""Batches of images that a task on a cluster checks: some seconds."""

SharedImage = Mapping[str, tuple[str, ...]]
"""The keys of an image's copies, by the splits that they are in."""


class SourceFindings:
    """The results of checking the images of a source, by their positions.

    Attributes:
        digests: 64 bits of the bytes of each image; 0 for those that can't be written.
    """

    def __init__(self, count: int, scratch: Path | None = None) -> None:
        self.digests = array("Q", bytes(8 * count))
        self._scratch = scratch
        self._notable: dict[int, Finding] = {}

    def add(self, position: int, finding: Finding) -> None:
        """Add the result for an image."""
        if finding[2:] != (None, None, None):
            texts = (text and sys.intern(text) for text in finding[1:])
            self._notable[position] = Finding(finding.digest, *texts)
        self.digests[position] = finding.digest

    def __getitem__(self, position: int) -> Finding:
        return self._notable.get(position) or Finding(self.digests[position])

    @property
    def problems(self) -> Iterator[tuple[int, str]]:
        """The positions of images that can't be written, in order, and why."""
        found = sorted(self._notable.items())
        return ((at, one.problem) for at, one in found if one.problem is not None)

    @cached_property
    def first_copies(self) -> "Firsts":
        """For each image 1 + the position of its first copy; 0 for that itself."""
        import numpy as np

        return first_alike(np.frombuffer(self.digests, np.uint64))

    @property
    def duplicates(self) -> int:
        """The number of images that have an earlier copy."""
        if len(self.digests) > _FEW:
            return int((self.first_copies != 0).sum())
        usable = [*filter(None, self.digests)]
        return len(usable) - len({*usable})

    def skip_copies(self, source: Source) -> None:
        """Keep one image of each set of copies, and call the others problems.

        The one that stays is in the first of the source's splits that has any (`train` comes
        first), and has the smallest key there.
        """
        rank = {split: number for number, split in enumerate(source.splits)}
        for group in self._groups(source):
            first = min(group, key=lambda entry: rank.get(entry[1].split or "", 0))
            for position, item in group:
                if position != first[0]:
                    other = "" if item.label == first[1].label else ", in another class"
                    problem = f"exact duplicate of {printable(first[1].key)}{other}"
                    self.add(position, Finding(0, problem=problem))
        vars(self).pop("first_copies", None)

    def shared(self, source: Source) -> CappedList[SharedImage]:
        """Return the images that the source's own splits share, in the order of their keys."""
        shared = CappedList[SharedImage](MAX_LISTED)
        for group in self._groups(source) if source.splits else ():
            splits = {
                split: tuple(printable(item.key) for _, item in group if item.split == split)
                for split in source.splits
            }
            if len(found := {split: keys for split, keys in splits.items() if keys}) > 1:
                shared.add(found)
        return shared

    def require_usable(self, source: Source, path: str) -> None:
        """Raise a `SourceError` if no image can be used."""
        if not any(self.digests):
            position, problem = next(self.problems)
            what = f"{printable(source.items[position].key)}: {problem}"
            raise SourceError(f"no image can be used ({what})", path=path)

    def skipped(self, source: Source, maker: RecordMaker) -> ImageAccount:
        """Return the account of all images that can't be written."""
        account, bad = ImageAccount(), dict(self.problems)
        for position, item in enumerate(source.items) if bad else ():
            if position in bad:
                account.add(item, self[position], maker)
        return account

    def _groups(self, source: Source) -> Iterator[list[tuple[int, Item]]]:
        """Yield the copies that belong together, with their positions, by the first's key.

        They have the same digest and the same size. By the digest alone, two of 100 million
        different images would be taken for copies in 3 of 10,000 datasets.
        """
        import numpy as np

        leaders = self.first_copies.copy()
        if not leaders.any():
            return
        first_numbers = np.unique(leaders)[1:]
        leaders[first_numbers - 1] = first_numbers
        rows = SortedRows[tuple[int, int, int, tuple[object, ...]]](self._scratch, by=3)
        for position, (item, leader) in enumerate(zip(source.items, leaders, strict=True)):
            if leader:
                rows.add((int(leader), item.bytes, position, tuple(item)))
        for _, group in groupby(rows, key=itemgetter(0, 1)):
            copies = [(position, Item._make(fields)) for *_, position, fields in group]
            if len(copies) > 1:
                yield copies


def check_all(
    source: Source,
    maker: RecordMaker,
    workers: int | Engine,
    on_progress: OnProgress,
    scratch: Path | None = None,
) -> SourceFindings:
    """Check all images of a source, in threads or on a cluster."""
    total, findings = len(source.items), SourceFindings(len(source.items), scratch)
    check, done = partial(_check, maker), 0
    results: Iterator[list[Finding]]
    with quiet_pillow():
        if isinstance(workers, Engine):
            parts = batches(source.items, attrgetter("bytes"), _NODE_BATCHES)
            results = map_shards(check, parts, workers)
        else:
            decodes = maker.recipe.always or maker.recipe.check is Check.DECODE
            jobs = batches(source.items, attrgetter("bytes"))
            results = run_in_order(check, jobs, workers, computes=not decodes)
        for found in results:
            for position, finding in enumerate(found, done):
                findings.add(position, finding)
            done += len(found)
            on_progress(Progress(what="checking", done=done, total=total, unit="images"))
    return findings


def findings_of(
    shards: Iterable[ImageShard], results: Iterable[ShardResult], count: int, scratch: Path
) -> SourceFindings:
    """Return the results for images that were checked while their shards were written.

    Args:
        shards: the shards.
        results: what was written of each.
        count: number of images in the source.
        scratch: a folder for what is too much for memory.
    """
    findings = SourceFindings(count, scratch)
    for shard, result in zip(shards, results, strict=True):
        digests = memoryview(result.images.digests).cast("Q")
        for image, digest in zip(shard.images, digests, strict=True):
            findings.digests[image.position] = digest
    return findings


def _check(maker: RecordMaker, items: list[Item]) -> list[Finding]:
    return [maker.check(item)[1] for item in items]


def first_alike(values: "Digests") -> "Firsts":
    """For each position 1 + that of the first with the same value; 0 for that itself.

    A value of 0 is like no other.
    """
    import numpy as np

    order = values.argsort(kind="stable")
    ordered = values[order]
    alike = (ordered[1:] == ordered[:-1]) & (ordered[1:] != 0)
    later = np.flatnonzero(alike) + 1  # places in the order that have the value before them
    begins = np.diff(later, prepend=-1) > 1
    firsts = np.zeros(len(values), np.uint32)
    if len(later):
        starts = order[later[begins] - 1]
        firsts[order[later]] = starts[np.cumsum(begins) - 1] + 1
    return firsts
