"""Differences of random records compared with queues of Python."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Hashable, Iterable, Sequence
from typing import Any

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


@given(data=st.data())
def test_records_are_paired_in_order(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Same, moved and changed records are pairs; features of changed ones are compared."""
    pool = data.draw(mixed_rows)
    folder = tmp_path_factory.mktemp("diff")
    sides = [data.draw(st.lists(st.sampled_from(pool), min_size=1, max_size=8)) for _ in "ab"]
    payloads = [[encode_example(row) for row in rows] for rows in sides]
    locations = [
        write_placed(folder / side, some, data.draw(placements(len(some), ("test", "train"))))
        for side, some in zip("ab", payloads, strict=True)
    ]
    features = {
        name for row in (*sides[0], *sides[1]) for name, feature in row.items() if feature.values
    }
    key = data.draw(st.sampled_from([None, *sorted(features)]))
    by_position = key is None and data.draw(st.booleans())
    in_split = [
        [(one, at.split) for one, at in zip(*side, strict=True)]
        for side in zip(payloads, locations, strict=True)
    ]
    _, rest = _paired(in_split, (range(len(sides[0])), range(len(sides[1]))))
    moved, rest = _paired(payloads, rest)
    changed: _Pairs = []
    if key is not None:
        keys = [
            [_key(row, payload, key) for row, payload in zip(*side, strict=True)]
            for side in zip(sides, payloads, strict=True)
        ]
        changed, rest = _paired(keys, rest)
    elif by_position:
        changed, rest = _paired([*map(_positions, locations)], rest)
    report = tfrtool.diff(
        folder / "a", folder / "b", key=key, by_position=by_position, limit=100, workers=1
    )
    assert (report.only_a, report.only_b) == (len(rest[0]), len(rest[1]))
    assert (report.moved, report.changed) == (len(moved), len(changed))
    found = {
        kind: [[(one.shard.name, one.record) for one in entry.values()] for entry in entries]
        for kind, entries in report.examples.items()
    }
    at: Any = [[(one.shard, one.record) for one in side] for side in locations]
    pairs = {"changed": changed, "moved": moved}
    assert found == {
        "only_a": [[at[0][number]] for number in rest[0]],
        "only_b": [[at[1][number]] for number in rest[1]],
    } | {kind: [[at[0][a], at[1][b]] for a, b in some] for kind, some in pairs.items()}
    different = Counter[str]()
    for a, b in changed:
        one, other = sides[0][a], sides[1][b]
        different.update(n for n in {*one, *other} if repr(one.get(n)) != repr(other.get(n)))
    assert report.features == different
