"""Looking at images: which are bad, which are converted, which are exact copies of others."""

import contextlib
import hashlib
import marshal
from array import array
from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import chain, groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

from tfrtool.engines.pool import run_in_order
from tfrtool.errors import WriteError, os_reason, printable
from tfrtool.images.audit import ImageVerdict, audit_image
from tfrtool.images.decoder import quiet_pillow
from tfrtool.images.recipe import Check, ImageRecipe
from tfrtool.records.crc import crc32c
from tfrtool.sources.items import DamagedItemError, LeftOut, Source
from tfrtool.storage.capped_list import CappedList
from tfrtool.storage.limits import (
    MAX_LISTED,
)
from tfrtool.storage.progress import OnProgress, Progress
from tfrtool.storage.scratch.external_sort import ExternalSort, ScratchFile, column, forgetting
from tfrtool.writing.record_values import misfit

_BATCH = 512 * 1024
"""Bytes of images that are handed to a thread: that costs as much as a small image, and a thread
that is called off ends its batch first."""

_BATCH_ITEMS = 32

_SIZE_BITS = 20
"""Of the size of a verdict: a reason has some hundred bytes, with a key in it some thousand."""

_KNOWN = 4096
"""Verdicts that are known to be in the file already."""

Shared = Mapping[str, tuple[str, ...]]
"""The keys of an image's copies, by the splits that they are in."""


Finding = tuple[int, ImageVerdict | None]
"""What looking at an image has found: 64 bits of its bytes, and its verdict if that is notable."""


class BadImage(Exception):  # noqa: N818 - it never leaves this room
    """An image that was to be read can't be used."""


class Verdicts(MutableMapping[int, ImageVerdict]):
    """Verdicts by the positions of images, any number of them: 8 bytes an image, and their texts.

    Of an image that has one, its number says where the verdict is in a file, how long it is there,
    and in its last bit whether it is a problem. Most verdicts are like one of the last.
    """

    def __init__(self, count: int, folder: Path | None = None) -> None:
        """Start without verdicts on so many images."""
        self.codes = column("Q", count, folder)
        self._texts = ScratchFile(folder)
        self._known: dict[ImageVerdict, int] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return _verdicts, (len(self.codes), dict(self))

    def __setitem__(self, position: int, verdict: ImageVerdict) -> None:
        if (code := self._known.get(verdict)) is None:
            problem = verdict.problem and verdict.problem[: 1 << _SIZE_BITS - 3]
            text = marshal.dumps((verdict.format, problem, verdict.conversion))
            code = (self._texts.append(text) << _SIZE_BITS | len(text)) << 1
            code |= verdict.problem is not None
            if len(self._known) >= _KNOWN:
                self._known.clear()
            self._known[verdict] = code
        self.codes[position] = code

    def __getitem__(self, position: int) -> ImageVerdict:
        if not (code := self.codes[position]):
            raise KeyError(position)
        text = self._texts.read(code >> _SIZE_BITS + 1, code >> 1 & (1 << _SIZE_BITS) - 1)
        format_, problem, conversion = marshal.loads(text)
        return ImageVerdict(format=format_, problem=problem, conversion=conversion)

    def __contains__(self, position: object) -> bool:
        return isinstance(position, int) and self.codes[position] != 0

    def __delitem__(self, position: int) -> None:
        self.codes[position] = 0

    def __iter__(self) -> Iterator[int]:
        return (at for at, code in enumerate(forgetting(self.codes, self.codes)) if code)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def bad(self, position: int) -> bool:
        """Return whether an image can't be written."""
        return bool(self.codes[position] & 1)


def _verdicts(count: int, verdicts: Mapping[int, ImageVerdict]) -> Verdicts:
    made = Verdicts(count)
    made.update(verdicts)
    return made


class Audit:
    """What is known of the images of a source; several threads may look at them at once.

    Attributes:
        digests: 64 bits of the bytes of each item.
        unknown: whether an item is yet to be looked at, a byte each.
        numbers: those of the classes, by their names.
        notable: the verdicts on those that can't be written, or not as they are, by position.
        scratch: a folder for what is too much for memory; None is the system's.
    """

    def __init__(self, source: Source, recipe: ImageRecipe, scratch: Path | None = None) -> None:
        self.source = source
        self.recipe = recipe
        self.scratch = scratch
        self.numbers = {label: number for number, label in enumerate(source.labels)}
        count = len(source.items)
        self.digests: memoryview | array[int] = column("Q", count, scratch)
        self.unknown: memoryview | bytearray = column("B", count, scratch)
        for start in range(0, count, _BATCH):
            some = range(count)[start : start + _BATCH]
            self.unknown[some.start : some.stop] = b"\1" * len(some)
        self.notable = Verdicts(count, scratch)

    def part(self, positions: Sequence[int]) -> "Audit":
        """Return an audit of some of the images alone, for another process: it can be pickled.

        The image at ``positions[n]`` has position n there. Labels keep their numbers. There, too,
        `look_at_all` looks at what is yet unknown; what `findings` then returns is for `adopt`.
        """
        items = tuple(self.source.items[position] for position in positions)
        beside = self.source.beside and tuple(map(self.source.beside.__getitem__, positions))
        source = replace(self.source, items=items, beside=beside, rejected=(), ignored=())
        part = Audit(replace(source, annotations=None, groups=()), self.recipe)
        part.digests = array("Q", map(self.digests.__getitem__, positions))
        part.unknown = bytearray(map(self.unknown.__getitem__, positions))
        for at, position in enumerate(positions):
            if position in self.notable:
                part.notable[at] = self.notable[position]
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
        if self.notable.bad(position):
            raise BadImage
        item, reader, unknown = self.source.items[position], self.source.reader, self.unknown
        try:
            data = reader.read(item)
        except OSError as error:
            raise WriteError(
                f"can't be read: {os_reason(error)}",
                path=reader.describe(item),
                hint="run again when it is readable; only images that can't be decoded are skipped",
            ) from error
        except DamagedItemError as error:
            if not unknown[position]:
                raise
            verdict = ImageVerdict(problem=f"can't be read: {error.what}")
        else:
            if len(data) != item.bytes:
                raise WriteError(
                    "changed after the source was listed",
                    path=reader.describe(item),
                    expected=f"{item.bytes:,} bytes",
                    found=f"{len(data):,}",
                )
            digest = digest_of(data)
            if not unknown[position]:
                if digest != self.digests[position]:
                    where = reader.describe(item)
                    raise WriteError("changed after it was checked", path=where)
                return data
            verdict, self.digests[position] = audit_image(data, self.recipe), digest
            if verdict.problem is None and self.source.features.has_objects:
                verdict = replace(verdict, problem=misfit(self.source, position, data))
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

    def problems(self) -> Iterator[tuple[int, str]]:
        """Yield the positions of images that are not written, in order, and why they are not."""
        bad = ((at, self.notable[at].problem) for at in self.notable if self.notable.bad(at))
        return ((at, problem) for at, problem in bad if problem is not None)

    def skipped(self) -> Iterator[LeftOut]:
        """Yield the images that are not written, in the order of their keys."""
        return (LeftOut(key=self.source.items[at].key, reason=why) for at, why in self.problems())

    def converted(self) -> Iterator[tuple[int, ImageVerdict]]:
        """Yield the positions of images whose bytes are not kept, in order, with the verdicts."""
        return ((at, self.notable[at]) for at in self.notable if not self.notable.bad(at))

    def good(self) -> Iterator[int]:
        """Yield the positions of the images that are written, in order."""
        return (at for at, code in enumerate(self.notable.codes) if not code & 1)

    @cached_property
    def leaders(self) -> "memoryview":
        """For each image that is an exact copy one more than the position of the first; else 0.

        It is for when all are known. Digests of 64 bits suffice to keep copies in one split.
        """
        good = forgetting(self.good(), self.digests, self.notable.codes)
        alike = ExternalSort(self.scratch, ((self.digests[at], at) for at in good))
        leaders, first, last = column("Q", len(self.digests), self.scratch), 0, -1
        for digest, position in forgetting(alike, leaders):
            if digest == last:
                leaders[position] = first + 1
            else:
                first, last = position, digest
        return leaders

    def leave_out_copies(self) -> None:
        """Keep one image of each set of copies, and call the others problems.

        The one that stays is in the first of the source's splits that has any (`train` comes
        first), and has the smallest key there.
        """
        items = self.source.items
        rank = {split: number for number, split in enumerate(self.source.splits)}
        for group in self._copies():
            kept = min(group, key=lambda position: rank.get(items[position].split or "", 0))
            for position in group:
                if position != kept:
                    same = items[position].label == items[kept].label
                    other = "" if same else ", in another class"
                    reason = f"exact duplicate of {printable(items[kept].key)}{other}"
                    self.notable[position] = ImageVerdict(problem=reason)
        del self.leaders

    def shared(self) -> CappedList[Shared]:
        """Return the images that the source's own splits share, in the order of their keys."""
        shared = CappedList[Shared](MAX_LISTED)
        for group in self._copies() if self.source.splits else ():
            items = [self.source.items[position] for position in group]
            splits = {
                split: tuple(printable(item.key) for item in items if item.split == split)
                for split in self.source.splits
            }
            if len(found := {split: keys for split, keys in splits.items() if keys}) > 1:
                shared.add(found)
        return shared

    def _copies(self) -> "Iterator[array[int]]":
        """Yield the sorted positions of copies that belong together.

        Images are read again, for none must be called a copy that isn't.
        """
        leaders = enumerate(forgetting(self.leaders, self.leaders))
        copies = ExternalSort(self.scratch, ((first - 1, at) for at, first in leaders if first))
        for leader, group in groupby(copies, key=itemgetter(0)):
            same: dict[bytes, array[int]] = {}
            for position in chain((leader,), (position for _, position in group)):
                digest = hashlib.sha256(self.read(position)).digest()
                same.setdefault(digest, array("Q")).append(position)
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
