"""Differences of random records compared with queues of Python."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tfrtool
from tests.examples.tables import Location, Row, mixed_rows, placements, write_placed
from tfrtool.examples.example import encode_example

_Pairs = list[tuple[int, int]]


def _paired(
    keys: Sequence[Sequence[Hashable]], rest: tuple[Iterable[int], Iterable[int]]
) -> tuple[_Pairs, tuple[list[int], list[int]]]:
    """Pair records of both sides that have the same key, in order; return the others, too."""
    waiting: dict[Hashable, deque[int]] = defaultdict(deque)
    for number in rest[1]:
        waiting[keys[1][number]].append(number)
    pairs, only_a = [], []
    for number in rest[0]:
        same = waiting[keys[0][number]]
        if same:
            pairs.append((number, same.popleft()))
        else:
            only_a.append(number)
    return pairs, (only_a, sorted(number for left in waiting.values() for number in left))


def _key(row: Row, payload: bytes, name: str) -> Hashable:
    """Return what identifies a record: the values of a feature, or its payload without it."""
    feature = row.get(name)
    return repr(feature) if feature is not None and feature.values else payload


def _positions(locations: Sequence[Location]) -> list[Hashable]:
    """Return the split of each record, and its number there."""
    before = Counter[str]()
    positions: list[Hashable] = []
    for location in locations:
        positions.append((location.split, before[location.split]))
        before[location.split] += 1
    return positions


@dataclass(frozen=True, slots=True, kw_only=True)
class _Side:
    """Records of SOURCE or TARGET."""

    rows: list[Row]
    payloads: list[bytes]
    locations: list[Location]

    def keys(self, mode: str) -> list[Hashable]:
        """Return what changed records are paired by: their position, or a feature."""
        if mode == "position":
            return _positions(self.locations)
        return [_key(*pair, mode) for pair in zip(self.rows, self.payloads, strict=True)]


def _check_diff(folder: Path, a: _Side, b: _Side, mode: str | None) -> None:
    """Compare a diff with queues; a mode is ``position``, a feature, or None."""
    by_position = mode == "position"
    key = None if by_position else mode
    report = tfrtool.diff(
        folder / "a", folder / "b", key=key, by_position=by_position, limit=100, workers=1
    )
    in_split = [
        [(payload, at.split) for payload, at in zip(side.payloads, side.locations, strict=True)]
        for side in (a, b)
    ]
    _, rest = _paired(in_split, (range(len(a.rows)), range(len(b.rows))))
    moved, rest = _paired([a.payloads, b.payloads], rest)
    changed: _Pairs = []
    if mode is not None:
        changed, rest = _paired([a.keys(mode), b.keys(mode)], rest)
    assert (report.only_a, report.only_b) == (len(rest[0]), len(rest[1]))
    assert (report.moved, report.changed) == (len(moved), len(changed))
    found = {
        kind: [[(place.shard.name, place.record) for place in entry.values()] for entry in entries]
        for kind, entries in report.examples.items()
    }
    at_a, at_b = ([(one.shard, one.record) for one in side.locations] for side in (a, b))
    assert found == {
        "only_a": [[at_a[number]] for number in rest[0]],
        "only_b": [[at_b[number]] for number in rest[1]],
        "changed": [[at_a[one], at_b[other]] for one, other in changed],
        "moved": [[at_a[one], at_b[other]] for one, other in moved],
    }
    different = Counter[str]()
    for number, other in changed:
        row, new = a.rows[number], b.rows[other]
        different.update(n for n in {*row, *new} if repr(row.get(n)) != repr(new.get(n)))
    assert report.features == different


@given(data=st.data())
def test_records_are_paired_in_order(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Same, moved and changed records are pairs; features of changed ones are compared."""
    pool = data.draw(mixed_rows)
    folder = tmp_path_factory.mktemp("diff")
    sides = []
    for name in "ab":
        rows = data.draw(st.lists(st.sampled_from(pool), min_size=4, max_size=10))
        payloads = [encode_example(row) for row in rows]
        sizes = data.draw(placements(len(rows), ("test", "train")))
        locations = write_placed(folder / name, payloads, sizes)
        sides.append(_Side(rows=rows, payloads=payloads, locations=locations))
    rows = [row for side in sides for row in side.rows]
    features = sorted({name for row in rows for name, feature in row.items() if feature.values})
    for mode in (None, "position", *features[:2]):
        _check_diff(folder, sides[0], sides[1], mode)
