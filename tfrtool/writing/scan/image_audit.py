"""What is found of images by looking at them, one by one, in any order."""

from __future__ import annotations

import copy
from array import array
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

from tfrtool.errors import WriteError, os_reason
from tfrtool.images.audit import audit_image
from tfrtool.images.recipe import ImageRecipe
from tfrtool.records.crc import crc32c
from tfrtool.sources.items import DamagedItemError, Item, ItemReader


class Verdict(NamedTuple):
    """What was found of an image; a named tuple, for it is made for every one.

    Attributes:
        digest: of its bytes, 64 bits; 0 where they are damaged.
        problem: why it can't be written; None where it can.
        format: what it truly is, by Pillow's name.
        conversion: why its bytes can't be kept; None where they can.
    """

    digest: int
    problem: str | None = None
    format: str | None = None
    conversion: str | None = None


def examine(reader: ItemReader, item: Item, recipe: ImageRecipe) -> tuple[bytes, Verdict]:
    """Read an image and look at it; one that is damaged or no image is a verdict, and no error."""
    try:
        data = read_item(reader, item)
    except DamagedItemError as error:
        return b"", Verdict(0, f"it can't be read: {error.what}")
    found = audit_image(data, recipe)
    return data, Verdict(digest_of(data), found.problem, found.format, found.conversion)


def read_item(reader: ItemReader, item: Item) -> bytes:
    """Return the bytes of an item, as many as were listed.

    What was there and is gone is no bad image, but a WriteError: without it, a whole class may be
    missing.
    """
    try:
        data = reader.read(item)
    except OSError as error:
        raise WriteError(
            f"can't be read: {os_reason(error)}",
            path=reader.describe(item),
            hint="it was there when the source was listed; only what does not decode is left out",
        ) from error
    if len(data) != item.bytes:
        raise WriteError(
            "was changed after the source was listed",
            path=reader.describe(item),
            expected=f"{item.bytes:,} bytes",
            found=f"{len(data):,}",
        )
    return data


def digest_of(data: bytes) -> int:
    """Return 64 bits that tell whether bytes are the same, if nobody wants to deceive."""
    return crc32c(data) | (len(data) & 0xFFFFFFFF) << 32


class Audit:
    """What was found so far of the items of a source, or of a shard, by their positions there.

    Attributes:
        digests: of the bytes of each item, as in `Verdict`.
        unknown: whether an item is yet to be looked at, a byte each.
        notable: the verdicts on those that can't be written, or not as they are.
    """

    def __init__(self, items: int) -> None:
        self.digests = array("Q", bytes(8 * items))
        self.unknown = bytearray(b"\1" * items)
        self.notable: dict[int, Verdict] = {}
        self._deduplicated = False

    def add(self, position: int, verdict: Verdict) -> None:
        """Add what was found of an item."""
        self.unknown[position] = 0
        self.digests[position] = verdict.digest
        if verdict.problem is not None or verdict.conversion is not None:
            self.notable[position] = verdict

    def add_shard(self, positions: Sequence[int], shard: Audit) -> None:
        """Add what was found of a shard's items, which are at ``positions`` here."""
        for position, digest, unknown in zip(positions, shard.digests, shard.unknown, strict=True):
            if not unknown:
                self.unknown[position] = 0
                self.digests[position] = digest
        self.notable |= {positions[place]: verdict for place, verdict in shard.notable.items()}

    def without(self, copies: Mapping[int, str]) -> Audit:
        """Return an audit in which copies, as reasons by position say, can't be written."""
        audit = copy.copy(self)
        audit.__dict__.pop("leaders", None)
        bad = {position: Verdict(0, reason) for position, reason in copies.items()}
        audit.notable, audit._deduplicated = {**self.notable, **bad}, True
        return audit

    @property
    def good(self) -> list[int]:
        """The positions of the items that are written."""
        problems = self.problems
        return [position for position in range(len(self.digests)) if position not in problems]

    @property
    def problems(self) -> dict[int, str]:
        """Why others are not."""
        notable = sorted(self.notable.items())
        return {at: verdict.problem for at, verdict in notable if verdict.problem is not None}

    @property
    def converted(self) -> dict[int, Verdict]:
        """The verdicts on those whose bytes are not kept."""
        notable = sorted(self.notable.items())
        return {at: verdict for at, verdict in notable if verdict.problem is None}

    @cached_property
    def leaders(self) -> Sequence[int]:
        """For each item the position of the first, by key, that it is an exact copy of.

        It is known when all items are.
        """
        if self._deduplicated:
            return range(len(self.digests))
        return _leaders(self.good, self.digests)

    @property
    def copies(self) -> int:
        """How many items are exact copies of an earlier one."""
        return sum(leader != position for position, leader in enumerate(self.leaders))


def _leaders(good: Iterable[int], digests: Sequence[int]) -> array[int]:
    leaders = array("Q", range(len(digests)))
    first = -1
    # Sorting is stable: of the same digest, the first by position comes first.
    for position in sorted(good, key=digests.__getitem__):
        if first >= 0 and digests[first] == digests[position]:
            leaders[position] = first
        else:
            first = position
    return leaders
