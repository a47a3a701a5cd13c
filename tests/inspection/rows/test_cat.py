"""Some records of shards: by number, sample and condition, and read no farther than needed."""

from __future__ import annotations

import gzip
import io
import os
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import tfrtool
from tests.records.strategies import payload_lists, read, shard_of
from tfrtool.errors import UsageError
from tfrtool.inspection.rows.cat import END, cat, parse_ranges
from tfrtool.records.framing import LocatedFault, Record, frame, header
from tfrtool.records.stream import Stream

ROWS = [tfrtool.encode_example({"n": n, "name": f"käse {n}"}) for n in range(40)]


def numbers(
    *shards: Path | Stream, faults: list[LocatedFault] | None = None, **how: object
) -> list[int]:
    """Return the indices of the records that come out."""
    found = [] if faults is None else faults
    return [record.index for _, record in cat(shards, on_fault=found.append, **how)]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "ranges"),
    [
        ("5", ((5, 6),)),
        ("10:20", ((10, 20),)),
        ("7,0,9", ((0, 1), (7, 8), (9, 10))),
        ("3:,5:7,1:3", ((1, END),)),
        (":4,2:6,9:9", ((0, 6),)),
    ],
)
def test_ranges(text: str, ranges: object) -> None:
    """Ranges are put in order and joined."""
    assert parse_ranges(text) == ranges


@pytest.mark.parametrize("text", ["", "x", "-1", "1-3", "1:2:3", ",", "٣", ":", "1" * 30])
def test_what_is_no_range(text: str) -> None:
    """What names no records is a usage error; a colon alone is all of them."""
    if text == ":":
        assert parse_ranges(text) == ((0, END),)
        return
    with pytest.raises(UsageError, match="10:20"):
        parse_ranges(text)


@given(
    payload_lists,
    st.lists(st.tuples(st.integers(0, 8), st.integers(0, 4)), min_size=1, max_size=3),
    st.none() | st.integers(0, 10_000),
    st.sampled_from(["file", "gzip", "stream"]),
)
@example([b"a"] * 6, [(1, 1), (4, 1)], 18, "file")
@example([b"a"] * 6, [(2, 1), (3, 1)], 17 * 2 + 13, "file")
def test_the_records_are_those_of_the_reader(
    tmp_path_factory: pytest.TempPathFactory,
    payloads: list[bytes],
    wanted: list[tuple[int, int]],
    flip: int | None,
    form: str,
) -> None:
    """Hopping, a compressed file and a stream give what reading from the start gives."""
    data = bytearray(shard_of(payloads))
    if flip is not None:
        data[flip % len(data)] ^= 1
    indices = {n for start, count in wanted for n in range(start, start + count)}
    text = ",".join(f"{start}:{start + count}" for start, count in wanted)
    expected = [one for one in read(bytes(data)).records if one.index in indices]
    path = tmp_path_factory.mktemp("cat") / "a"
    path.write_bytes(gzip.compress(data, 1) if form == "gzip" else data)
    source = Stream(io.BytesIO(data)) if form == "stream" else path
    faults: list[LocatedFault] = []
    found = [record for _, record in cat([source], records=text, on_fault=faults.append)]
    assert found == expected
    assert flip is not None or {one.fault.kind.value for one in faults} <= {"empty"}


def test_no_farther_than_needed(tmp_path: Path) -> None:
    """Records behind holes of gigabytes come at once: what is in between is not read."""
    path = tmp_path / "huge"
    long = 2**30
    with path.open("wb") as file:
        for _ in range(3):
            file.write(frame(ROWS[0]) + header(long))
            file.seek(long + 4, os.SEEK_CUR)
        file.write(frame(ROWS[1]))
    faults: list[LocatedFault] = []
    (first, last) = cat([path], records="0,6", on_fault=faults.append)
    assert first == (path, Record(0, 0, ROWS[0], first[1].payload_crc))
    assert last[1].payload == ROWS[1]
    assert last[1].offset == path.stat().st_size - len(frame(ROWS[1]))
    assert numbers(path, limit=1) == [0]
    assert faults == []


def test_a_sample(tmp_path: Path) -> None:
    """A sample is drawn from all shards without replacement, and the seed decides it."""
    paths = [tmp_path / name for name in "abc"]
    for path in paths:
        path.write_bytes(shard_of(ROWS))
    paths[1].write_bytes(gzip.compress(shard_of(ROWS)))
    drawn = [list(cat(paths, sample=30, seed=seed, on_fault=print)) for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]
    assert len({(path, record.index) for path, record in drawn[0]}) == 30
    assert len({path for path, _ in drawn[0]}) == 3
    assert len(numbers(*paths, sample=1000)) == 120
    with pytest.raises(UsageError, match="can't be used together"):
        numbers(*paths, sample=1, records="1")
    with pytest.raises(UsageError, match="two passes"):
        numbers(Stream(io.BytesIO(shard_of(ROWS))), sample=1)


def test_a_condition_on_some_records(tmp_path: Path) -> None:
    """A condition is evaluated for the records that were chosen."""
    path = tmp_path / "a"
    data = shard_of([*ROWS, b"noise"])
    path.write_bytes(data)
    where = "n % 2 = 1 AND name LIKE '%3%'"
    faults: list[LocatedFault] = []
    assert numbers(path, where=where, faults=faults) == [3, 13, 23, 31, 33, 35, 37, 39]
    assert [one.fault.record for one in faults] == [40]
    assert numbers(path, where=where, records="5:30") == [13, 23]
    assert numbers(path, where=where, limit=2) == [3, 13]
    with pytest.raises(UsageError, match="two passes"):
        numbers(Stream(io.BytesIO(data)), where="name = 'käse 7'")
