"""Small tables of records for property tests: drawn as plain features, written as shards."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

import tfrtool
from tests.records.strategies import shard_of
from tfrtool.examples.example import DType, Feature

Row = dict[str, Feature]
"""The features of a record by name."""

NAMES = ("a", "größe", "x/y", 'q"t', "日本", "select", "split", "n.m", "b c")

TEXTS = tuple(text.encode() for text in ("", "a", "ab", "a%b", "a'b", "A", "ü", "äb", "日本"))
NUMBERS = (-(2**63), -1, 0, 1, 2, 2**53 + 1, 2**63 - 1)
FLOATS = (math.nan, math.inf, -math.inf, -0.0, 0.0, 0.5, -1.5, 2.25)
VALUES: dict[str, tuple[DType, tuple[Any, ...]]] = {
    "text": (DType.STRING, TEXTS),
    "bytes": (DType.STRING, (b"a", b"ab", b"", b"\xff", b"\x80b")),
    "int64": (DType.INT64, NUMBERS),
    "float32": (DType.FLOAT32, FLOATS),
}
"""Type and values of each kind of column: few values, so that records repeat them."""

UNSET = Feature(dtype=None, values=())


def features_of(kind: str, most: int) -> st.SearchStrategy[Feature]:
    """Return a strategy of features of one kind of column, with up to ``most`` values."""
    dtype, values = VALUES[kind]
    return st.lists(st.sampled_from(values), max_size=most).map(
        lambda found: Feature(dtype=dtype, values=tuple(found))
    )


def _columns(kind: str) -> st.SearchStrategy[st.SearchStrategy[Feature]]:
    """Return a strategy of columns: single values, some without a type, or several values."""
    single = st.just(UNSET) | features_of(kind, 1)
    return st.sampled_from([single, features_of(kind, 3)])


@st.composite
def rows_of_columns(draw: st.DrawFn, least: int = 1) -> list[Row]:
    """Draw records whose features have one type in all records that have them."""
    names = draw(st.lists(st.sampled_from(NAMES), unique=True, min_size=2, max_size=5))
    columns = {name: draw(st.sampled_from(list(VALUES)).flatmap(_columns)) for name in names}
    rows = st.fixed_dictionaries({}, optional=columns)
    return draw(st.lists(rows, min_size=least, max_size=10))


mixed_rows = st.lists(
    st.dictionaries(
        st.sampled_from(NAMES[:4]),
        st.just(UNSET) | st.sampled_from(list(VALUES)).flatmap(lambda kind: features_of(kind, 3)),
    ),
    min_size=4,
    max_size=8,
)
"""Records in which a feature may have another type each time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Location:
    """Where a record is written: its split, shard, and number in the shard."""

    split: str
    shard: str
    record: int


def _cuts(records: int, most: int) -> st.SearchStrategy[set[int]]:
    return st.sets(st.integers(1, records - 1), min_size=1, max_size=most - 1)


@st.composite
def placements(draw: st.DrawFn, records: int, splits: Sequence[str]) -> dict[str, list[int]]:
    """Draw the number of records of each shard, for each split; every shard has at least one."""
    most = min(records, 2 * len(splits))
    ends = draw(_cuts(records, most)) if records > 1 else set()
    sizes = [end - start for start, end in pairwise([0, *sorted(ends), records])]
    split_of = sorted(draw(st.sampled_from(splits)) for _ in sizes)
    return {
        split: [size for size, one in zip(sizes, split_of, strict=True) if one == split]
        for split in dict.fromkeys(split_of)
    }


def write_placed(
    folder: Path, payloads: Sequence[bytes], sizes: dict[str, list[int]]
) -> list[Location]:
    """Write payloads as the shards of a dataset; return where each of them is."""
    folder.mkdir()
    locations: list[Location] = []
    for split, counts in sizes.items():
        for number, count in enumerate(counts):
            name = f"d-{split}.tfrecord-{number:05}-of-{len(counts):05}"
            start = len(locations)
            (folder / name).write_bytes(shard_of([*payloads[start : start + count]]))
            locations += [Location(split=split, shard=name, record=n) for n in range(count)]
    return locations


def read_splits(folder: Path) -> dict[str, list[bytes]]:
    """Return the payloads of each split of a dataset, in order."""
    found: dict[str, list[bytes]] = {}
    for path in sorted(folder.glob("*.tfrecord-*")):
        split = path.name.partition(".")[0].rpartition("-")[2]
        payloads = found.setdefault(split, [])
        if path.stat().st_size:  # a shard without records is empty
            items = tfrtool.read_records(path)
            payloads += [item.payload for item in items if isinstance(item, tfrtool.Record)]
    return found
