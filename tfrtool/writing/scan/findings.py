"""What is found of images by looking at them, one by one, in any order."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tfrtool.errors import WriteError, os_reason
from tfrtool.images.audit import audit_image
from tfrtool.images.recipe import ImageRecipe
from tfrtool.records.crc import crc32c
from tfrtool.records.names import ShardName
from tfrtool.sources.items import DamagedItemError, Item, ItemReader

__all__ = [
    "Audit",
    "BadImage",
    "Conversion",
    "Finding",
    "Findings",
    "ShardFindings",
    "digest_of",
    "examine",
    "read_item",
]


class Finding(NamedTuple):
    """What was found of an image.

    A named tuple, for it is made for every image.

    Attributes:
        digest: of its bytes, 64 bits; 0 where they are damaged.
        problem: why it can't be written; None where it can.
        format: what it truly is, by Pillow's name.
        conversion: why its bytes can't be kept; None where they can.
    """

    digest: int
    problem: str | None
    format: str | None
    conversion: str | None


def examine(reader: ItemReader, item: Item, recipe: ImageRecipe) -> tuple[bytes, Finding]:
    """Read an image and look at it; it doesn't raise, whatever the bytes are.

    Returns:
        Its bytes, none where they are damaged, and what was found.

    Raises:
        WriteError: it is gone, or was changed.
        SourceError: likewise.
    """
    try:
        data = read_item(reader, item)
    except DamagedItemError as error:
        return b"", Finding(0, f"it can't be read: {error.what}", None, None)
    verdict = audit_image(data, recipe)
    return data, Finding(digest_of(data), verdict.problem, verdict.format, verdict.conversion)


def read_item(reader: ItemReader, item: Item) -> bytes:
    """Return the bytes of an item, as many as were listed.

    What was there and is gone is no bad image: without it, a whole class may be missing.

    Raises:
        WriteError: it is gone, can't be read, or has another size.
        SourceError: it was changed after it was listed, or was damaged before.
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


@dataclass(slots=True, kw_only=True)
class ShardFindings:
    """What was found of a shard's items while it was written, from the first on.

    Items are named by their place in the shard.

    Attributes:
        digests: of the bytes of each.
        problems: why some can't be written.
        converted: the true format of those whose bytes were not kept, and why.
    """

    digests: array[int] = field(default_factory=lambda: array("Q"))
    problems: dict[int, str] = field(default_factory=dict)
    converted: dict[int, tuple[str, str]] = field(default_factory=dict)

    def add(self, finding: Finding) -> None:
        """Add what was found of the next item."""
        place = len(self.digests)
        self.digests.append(finding.digest)
        if finding.problem is not None:
            self.problems[place] = finding.problem
        elif finding.conversion is not None:
            self.converted[place] = (finding.format or "", finding.conversion)


class BadImage(Exception):  # noqa: N818 - it never leaves this room
    """One of a shard's items, which nobody had looked at before, can't be written.

    Attributes:
        name: the shard's name.
        findings: what was found of its items up to that one.
    """

    def __init__(self, name: ShardName, findings: ShardFindings) -> None:
        super().__init__(name, findings)
        self.name = name
        self.findings = findings


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
    """

    good: Sequence[int]
    problems: Mapping[int, str]
    converted: Mapping[int, Conversion]
    leaders: Sequence[int]
    digests: Sequence[int]

    @property
    def copies(self) -> int:
        """How many items are exact copies of an earlier one."""
        return sum(leader != position for position, leader in enumerate(self.leaders))


class Findings:
    """What was found of a source's items so far.

    Attributes:
        items: all of them; they are named by their positions.
        unknown: whether an item is yet to be looked at, a byte each.
    """

    def __init__(self, items: Sequence[Item]) -> None:
        self.items = items
        self.unknown = bytearray(b"\1" * len(items))
        self._digests = array("Q", bytes(8 * len(items)))
        self._problems: dict[int, str] = {}
        self._converted: dict[int, Conversion] = {}

    def add(self, position: int, finding: Finding) -> None:
        """Add what was found of an item."""
        self._add(position, finding.digest)
        if finding.problem is not None:
            self._problems[position] = finding.problem
        elif finding.conversion is not None:
            self._convert(position, finding.format or "", finding.conversion)

    def add_shard(self, positions: Sequence[int], findings: ShardFindings) -> None:
        """Add what was found of the items at ``positions``, or of the first of them."""
        for position, digest in zip(positions, findings.digests, strict=False):
            self._add(position, digest)
        for place, problem in findings.problems.items():
            self._problems[positions[place]] = problem
        for place, (format_, reason) in findings.converted.items():
            self._convert(positions[place], format_, reason)

    def audit(self) -> Audit:
        """Return what was found, when all items have been looked at."""
        good = [place for place in range(len(self.items)) if place not in self._problems]
        return Audit(
            good=good,
            problems=dict(sorted(self._problems.items())),
            converted=dict(sorted(self._converted.items())),
            leaders=_leaders(good, self._digests),
            digests=self._digests,
        )

    def _add(self, position: int, digest: int) -> None:
        self.unknown[position] = 0
        self._digests[position] = digest

    def _convert(self, position: int, format_: str, reason: str) -> None:
        key = self.items[position].key
        self._converted[position] = Conversion(key=key, format=format_, reason=reason)


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
