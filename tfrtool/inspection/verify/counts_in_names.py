"""Numbers of records in the names of files, such as ``01-192x192-6.tfrec``, compared with these."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from tfrtool.errors import human_count
from tfrtool.inspection.profile import ShardProfile
from tfrtool.storage.remote_path import AnyPath

_COUNTED = re.compile(
    r"(?P<head>.*\d.*[-_])(?P<count>\d{1,12})(?P<ending>(?:\.[A-Za-z]\w*)+)", re.ASCII | re.DOTALL
)
"""A name that ends in a count, behind other numbers, and in an ending such as ``.tfrec``."""

_OF = re.compile(r"\d[-_]of[-_]\d", re.ASCII)


class NamedCount(NamedTuple):
    """The number of records that the name of a shard gives, and those that were found."""

    profile: ShardProfile
    expected: int

    @property
    def fits(self) -> bool:
        """Whether the shard has that many records, or had them before it was damaged."""
        profile = self.profile
        return self.expected in (profile.records, profile.records + profile.lost)

    @property
    def message(self) -> str:
        """What differs."""
        return (
            f"its name gives {human_count(self.expected, 'record')}, found {self.profile.records:,}"
        )


class CountFindings(NamedTuple):
    """Shards that have other numbers of records than their names give.

    They are certain where most files of their set have the numbers that their names give, and these
    are not all the same: such a number may be the most records of a file.
    """

    certain: Sequence[NamedCount]
    notes: Sequence[str]


def check_named_counts(profiles: Mapping[AnyPath, ShardProfile]) -> CountFindings:
    """Compare shards of one folder with the counts in their names.

    A number is taken for a count only in sets of files whose names differ in another number, too.
    Nothing is reported if fewer than half of a set have the numbers in their names.
    """
    certain, notes = list[NamedCount](), list[str]()
    for counts in _sets(profiles):
        different = [one for one in counts if not one.fits]
        fitting = len(counts) - len(different)
        if fitting > len(different) and len({one.expected for one in counts}) > 1:
            certain += different
        elif fitting >= len(different):
            notes += (f"{one.profile.path.name}: {one.message}" for one in different)
    return CountFindings(certain, notes)


def _sets(profiles: Mapping[AnyPath, ShardProfile]) -> Iterator[list[NamedCount]]:
    """Yield the shards whose names are alike but for their numbers, the last of which is a count.

    Those that could not be read are left out.
    """
    sets: dict[str, list[tuple[NamedCount, tuple[int, ...]]]] = {}
    for path, profile in profiles.items():
        found = _COUNTED.fullmatch(path.name)
        if found is not None and profile.error is None and not _OF.search(path.name):
            numbers = tuple(map(int, re.findall(r"\d+", found["head"])))
            kind = re.sub(r"\d+", "0", path.name)
            sets.setdefault(kind, []).append((NamedCount(profile, int(found["count"])), numbers))
    for members in sets.values():
        if len(members) > 1 and _has_index([(one.expected, numbers) for one, numbers in members]):
            yield [one for one, _ in members]


def _has_index(members: Sequence[tuple[int, tuple[int, ...]]]) -> bool:
    """Return whether a number before the counts is different in each name, and not the count."""
    for position in range(len(members[0][1])):
        column = [numbers[position] for _, numbers in members]
        steps = {count - index for (count, _), index in zip(members, column, strict=True)}
        if len({*column}) == len(members) and not steps <= {-1, 0, 1}:
            return True
    return False
