"""Looking at images: which are bad, which are converted, which are exact copies of others."""

import contextlib
import hashlib
from array import array
from collections.abc import Iterable, Iterator, Mapping, MutableSequence, Sequence
from dataclasses import replace
from functools import cached_property

from tfrtool.engines.threads import run_in_order
from tfrtool.errors import WriteError, os_reason, printable
from tfrtool.images.audit import ImageVerdict, audit_image
from tfrtool.images.decoder import quiet_pillow
from tfrtool.images.recipe import Check, ImageRecipe
from tfrtool.records.crc import crc32c
from tfrtool.sources.items import DamagedItemError, Source
from tfrtool.storage.progress import OnProgress, Progress

_BATCH = 512 * 1024
"""Bytes of images that are handed to a thread: that costs as much as a small image, and a thread
that is called off ends its batch first."""

_BATCH_ITEMS = 32

Shared = Mapping[str, tuple[str, ...]]
"""The keys of an image's copies, by the splits that they are in."""


Finding = tuple[int, ImageVerdict | None]
"""What looking at an image has found: 64 bits of its bytes, and its verdict if that is notable."""


class BadImage(Exception):  # noqa: N818 - it never leaves this room
    """An image that was to be read can't be used."""


class Audit:
    """What is known of the images of a source; several threads may look at them at once.

    Attributes:
        digests: 64 bits of the bytes of each item.
        unknown: whether an item is yet to be looked at, a byte each.
        numbers: those of the classes, by their names.
        notable: the verdicts on those that can't be written, or not as they are, by position.
    """

    def __init__(self, source: Source, recipe: ImageRecipe) -> None:
        self.source = source
        self.recipe = recipe
        self.numbers = {label: number for number, label in enumerate(source.labels)}
        self.digests: MutableSequence[int] = array("Q", bytes(8 * len(source.items)))
        self.unknown: MutableSequence[int] = bytearray(b"\1" * len(source.items))
        self.notable: dict[int, ImageVerdict] = {}

    def part(self, positions: Sequence[int]) -> "Audit":
        """Return an audit of some of the images alone, for another process: it can be pickled.

        The image at ``positions[n]`` has position n there. Labels keep their numbers. There, too,
        `look_at_all` looks at what is yet unknown; what `findings` then returns is for `adopt`.
        """
        items = tuple(self.source.items[position] for position in positions)
        part = Audit(replace(self.source, items=items, rejected=(), ignored=()), self.recipe)
        for at, position in enumerate(positions):
            part.digests[at], part.unknown[at] = self.digests[position], self.unknown[position]
            if (verdict := self.notable.get(position)) is not None:
                part.notable[at] = verdict
        return part

    def findings(self) -> list[Finding | None]:
        """Return what was found of each image, in order; None for those yet unknown."""
        return [
            None if unknown else (digest, self.notable.get(at))
            for at, (digest, unknown) in enumerate(zip(self.digests, self.unknown, strict=True))
        ]

    def adopt(self, positions: Sequence[int], findings: Iterable[Finding | None]) -> None:
        """Take over what a part, of the images at these positions, has found."""
        for position, finding in zip(positions, findings, strict=True):
            if finding is None:
                continue
            self.digests[position], verdict = finding
            if verdict is not None:
                self.notable[position] = verdict
            self.unknown[position] = 0

    def read(self, position: int) -> bytes:
        """Read an image, and look at it if nobody has; one that can't be used is a `BadImage`.

        What was there and is gone is no bad image, but a `WriteError`: without it, a whole class
        may be missing. So is what is not any more what was listed, or looked at.
        """
        verdict = self.notable.get(position)
        if verdict is not None and verdict.problem is not None:
            raise BadImage
        item, reader, unknown = self.source.items[position], self.source.reader, self.unknown
        try:
            data = reader.read(item)
        except OSError as error:
            raise WriteError(
                f"can't be read: {os_reason(error)}",
                path=reader.describe(item),
                hint="it was there when the source was listed; only what does not decode is left "
                "out",
            ) from error
        except DamagedItemError as error:
            if not unknown[position]:
                raise
            verdict = ImageVerdict(problem=f"it can't be read: {error.what}")
        else:
            if len(data) != item.bytes:
                raise WriteError(
                    "was changed after the source was listed",
                    path=reader.describe(item),
                    expected=f"{item.bytes:,} bytes",
                    found=f"{len(data):,}",
                )
            digest = digest_of(data)
            if not unknown[position]:
                if digest != self.digests[position]:
                    where = reader.describe(item)
                    raise WriteError("was changed after it was checked", path=where)
                return data
            verdict, self.digests[position] = audit_image(data, self.recipe), digest
        if verdict.problem is not None or verdict.conversion is not None:
            self.notable[position] = verdict
        unknown[position] = 0
        if verdict.problem is not None:
            raise BadImage
        return data

    def look_at_all(self, workers: int, on_progress: OnProgress) -> None:
        """Look at all images that nobody has looked at yet.

        Pillow lets go of the interpreter while it decodes, and so does reading.
        """
        items = self.source.items

        def look(positions: range) -> range:
            for position in positions:
                if self.unknown[position]:
                    with contextlib.suppress(BadImage):
                        self.read(position)
            return positions

        jobs = batches(item.bytes for item in items)
        decodes = self.recipe.always or self.recipe.check is Check.DECODE
        with quiet_pillow():
            for done in run_in_order(look, jobs, workers, computes=not decodes):
                on_progress(
                    Progress(what="checking", done=done.stop, total=len(items), unit="images")
                )

    @property
    def problems(self) -> dict[int, str]:
        """Why images are not written, by position."""
        notable = sorted(self.notable.items())
        return {at: verdict.problem for at, verdict in notable if verdict.problem is not None}

    @property
    def converted(self) -> dict[int, ImageVerdict]:
        """The verdicts on images whose bytes are not kept, by position."""
        notable = sorted(self.notable.items())
        return {at: verdict for at, verdict in notable if verdict.problem is None}

    @property
    def good(self) -> list[int]:
        """The positions of the images that are written."""
        problems = self.problems
        return [position for position in range(len(self.digests)) if position not in problems]

    @cached_property
    def leaders(self) -> "array[int]":
        """For each image the position of the first that it is an exact copy of, once all are known.

        Digests of 64 bits suffice to keep copies in one split.
        """
        leaders, first = array("Q", range(len(self.digests))), -1
        # Sorting is stable: of the same digest, the first by position, and so by key, comes first.
        for position in sorted(self.good, key=self.digests.__getitem__):
            if first >= 0 and self.digests[first] == self.digests[position]:
                leaders[position] = first
            else:
                first = position
        return leaders

    def leave_out_copies(self) -> None:
        """Keep one image of each set of copies, and call the others problems.

        The one that stays is in the first of the source's splits that has any (`train` comes
        first), and has the smallest key there.
        """
        items = self.source.items
        rank = {split: number for number, split in enumerate(self.source.splits)}
        for group in list(self._copies()):
            kept = min(group, key=lambda position: rank.get(items[position].split or "", 0))
            for position in group:
                if position != kept:
                    same = items[position].label == items[kept].label
                    other = "" if same else ", of another class"
                    reason = f"an exact copy of {printable(items[kept].key)}{other}"
                    self.notable[position] = ImageVerdict(problem=reason)
        del self.leaders

    def shared(self) -> tuple[Shared, ...]:
        """Return the images that the source's own splits share, in the order of their keys."""
        shared = []
        for group in self._copies() if self.source.splits else ():
            items = [self.source.items[position] for position in group]
            splits = {
                split: tuple(printable(item.key) for item in items if item.split == split)
                for split in self.source.splits
            }
            shared.append({split: keys for split, keys in splits.items() if keys})
        return tuple(splits for splits in shared if len(splits) > 1)

    def _copies(self) -> Iterator[list[int]]:
        """Yield the sorted positions of copies that belong together.

        Images are read again, for none must be called a copy that isn't.
        """
        alike: dict[int, list[int]] = {}
        for position, leader in enumerate(self.leaders):
            if position != leader:
                alike.setdefault(leader, [leader]).append(position)
        for _, group in sorted(alike.items()):
            same: dict[bytes, list[int]] = {}
            for position in group:
                data = self.read(position)
                same.setdefault(hashlib.sha256(data).digest(), []).append(position)
            yield from (positions for positions in same.values() if len(positions) > 1)


def digest_of(data: bytes) -> int:
    """Return 64 bits that tell whether bytes are the same, if nobody wants to deceive."""
    return crc32c(data) | (len(data) & 0xFFFFFFFF) << 32


def batches(sizes: Iterable[int]) -> Iterator[range]:
    """Yield the places of images of these sizes, in bytes, some at a time: a thread's next task."""
    start = end = size = 0
    for end, more in enumerate(sizes, 1):
        size += more
        if size >= _BATCH or end - start == _BATCH_ITEMS:
            yield range(start, end)
            start, size = end, 0
    if start < end:
        yield range(start, end)
