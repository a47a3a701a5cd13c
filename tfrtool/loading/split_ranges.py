"""Parts of splits in the notation of TFDS, such as ``train[:80%]+test[10:20]``."""

import re
from collections.abc import Collection
from dataclasses import dataclass

from tfrtool.errors import UsageError, human_count

Range = tuple[int, int]
"""Positions of records in a split: the first, and the end, which is not included."""

_SLICE = re.compile(r"(?P<name>.+)\[(?P<bounds>[^\[\]]*)\]")
_BOUND = re.compile(r"(?P<number>-?\d{1,18})?(?P<percent>%?)")
_PERCENT = re.compile(r"(?P<number>-?\d{1,3}(\.\d{1,9})?)?(?P<percent>%?)")


@dataclass(frozen=True, slots=True)
class SplitPart:
    """A split, or a slice of it.

    Attributes:
        name: name of the split.
        text: the part as it was given.
        first: number of the first record or percent of the records, negative from the end.
        end: the same of the first record after the part.
        is_percent: whether both are percent.
    """

    name: str
    text: str
    first: float | None = None
    end: float | None = None
    is_percent: bool = False

    def positions(self, records: int) -> Range:
        """Return which records of the split it has, rounded as TFDS does; there may be none."""
        first = self._position(self.first, 0, records)
        return first, max(first, self._position(self.end, records, records))

    def _position(self, bound: float | None, default: int, records: int) -> int:
        if bound is None:
            return default
        position = round(bound * records / 100) if self.is_percent else int(bound)
        if abs(position) > records:
            raise UsageError(
                f"{self.text!r} is out of range: the split has {human_count(records, 'record')}"
            )
        return position if position >= 0 else records + position


def parse_parts(text: str, names: Collection[str]) -> tuple[SplitPart, ...]:
    """Return the parts of splits that are joined by commas or plus signs.

    ``names`` are those of the existing splits: a split may have any name.
    """
    parts = list[SplitPart]()
    for piece in [text] if text in names else re.split(r"\s*,\s*", text.strip()):
        words = [piece] if piece in names else re.split(r"\s*\+\s*", piece)
        parts += [SplitPart(word, word) if word in names else _parse_part(word) for word in words]
    return tuple(parts)


def _parse_part(text: str) -> SplitPart:
    found = _SLICE.fullmatch(text)
    if found is None:
        return SplitPart(text, text)
    first, colon, end = found["bounds"].partition(":")
    is_percent = "%" in found["bounds"]
    pattern = _PERCENT if is_percent else _BOUND
    bounds = [pattern.fullmatch(bound.strip()) for bound in (first, end)]
    if not colon or not all(bounds) or not any(bound["number"] for bound in bounds if bound):
        expected = "NAME[FROM:TO], where FROM and TO are records or percent, such as train[:80%]"
        raise UsageError(f"invalid split {text[:100]!r}", expected=expected)
    numbers = [bound and bound["number"] for bound in bounds]
    first_number, end_number = (None if number is None else float(number) for number in numbers)
    return SplitPart(found["name"], text, first_number, end_number, is_percent)


def join_ranges(ranges: Collection[Range]) -> tuple[Range, ...] | None:
    """Return ranges in order, with neighbors as one, without empty ones; None if two overlap."""
    joined = list[Range]()
    for first, end in sorted(one for one in ranges if one[0] < one[1]):
        if joined and first < joined[-1][1]:
            return None
        if joined and first == joined[-1][1]:
            joined[-1] = joined[-1][0], end
        else:
            joined.append((first, end))
    return tuple(joined)
