"""Where the records of shards are, found as far and as fast as they can be hopped through."""

import math
from array import array
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from tfrtool.errors import ShardError, os_errors_as
from tfrtool.records.compression import Compression, detect_compression
from tfrtool.records.count import hop
from tfrtool.records.framing import Fault, FaultKind, Record
from tfrtool.records.reader import read_records
from tfrtool.records.stream import open_shard
from tfrtool.storage.opening import size_of_file

Stamp = tuple[int, int]


class RecordPlace(NamedTuple):
    """Where a record is: its shard, its number there, its header's offset in bytes."""

    path: Path
    record: int
    offset: int


@dataclass(slots=True)
class _ShardIndex:
    path: Path
    stamp: Stamp
    offsets: "array[int]" = field(default_factory=lambda: array("Q", (0,)))
    numbers: "array[int] | None" = None  # of records, where damage makes them differ from places
    plain: bool = True  # whether a record can be read at its offset
    records: int | None = None  # None until all are found

    @property
    def known(self) -> int:
        if self.records is not None:
            return self.records
        return 0 if self.numbers is not None else len(self.offsets) - 1


class RecordIndex:
    """The places of all records, in order; 8 bytes each, 16 in a damaged or compressed shard.

    One thread fills it while others ask.

    Attributes:
        complete: whether all records are in.
    """

    def __init__(self, shards: Sequence[Path]) -> None:
        """Begin with nothing; `ShardError` if a shard is not there."""
        self.complete = False
        self._shards = [_ShardIndex(path, stamp_of(path)) for path in shards]
        self._ends = array("Q")  # of the shards that are done, how many records up to there
        self._place_of = {path: number for number, path in enumerate(shards)}

    def fill(self) -> None:
        """Find all records; a shard that can't be read has none."""
        for shard in self._shards:
            try:
                self._fill(shard)
            except ShardError:
                shard.records = 0
            self._ends.append((self._ends[-1] if self._ends else 0) + (shard.records or 0))
        self.complete = True

    def _fill(self, shard: _ShardIndex) -> None:
        with open_shard(shard.path) as file:
            shard.plain = detect_compression(file) is Compression.NONE
            if shard.plain:
                size = size_of_file(file)
                _, end = hop(file, size, shard.offsets)
                if end == size:
                    shard.records = len(shard.offsets) - 1
                    return
            offsets, shard.numbers = array("Q"), array("Q")
            file.seek(0)
            for item in read_records(file):
                if is_row(item):
                    offsets.append(item.offset)
                    number = item.index if isinstance(item, Record) else item.record
                    shard.numbers.append(number or 0)
            shard.offsets, shard.records = offsets, len(offsets)

    def __len__(self) -> int:
        """Return how many records are found so far."""
        done = len(self._ends)
        total = self._ends[-1] if done else 0
        return total + (self._shards[done].known if done < len(self._shards) else 0)

    def place(self, row: int) -> RecordPlace:
        """Return where a record is, by its number among all; `IndexError` if it is not found."""
        if not 0 <= row < len(self):
            raise IndexError(f"record {row} of {len(self)}")
        at = bisect_right(self._ends, row)
        shard, record = self._shards[at], row - (self._ends[at - 1] if at else 0)
        number = record if shard.numbers is None else shard.numbers[record]
        return RecordPlace(shard.path, number, shard.offsets[record])

    def read(self, rows: Sequence[int], most: float = math.inf) -> dict[int, Record]:
        """Read some records; those that are damaged, or not there any more, are missing.

        So are those after the first that have ``most`` bytes together. Of a compressed shard,
        everything before them is read, too.
        """
        found: dict[int, Record] = {}
        wanted: dict[Path, dict[int, int]] = {}
        for row in rows:
            path, _, offset = self.place(row)
            wanted.setdefault(path, {})[offset] = row
        for path, by_offset in wanted.items():
            with os_errors_as(ShardError, path), open_shard(path) as file:
                plain = self._shards[self._place_of[path]].plain
                for offset in sorted(by_offset) if plain else [0]:
                    file.seek(offset)
                    for item in read_records(file, offset=offset):
                        row = by_offset.get(item.offset, -1)
                        if row >= 0 and isinstance(item, Record):
                            found[row] = item._replace(index=self.place(row).record)
                            most -= len(item.payload)
                        if most <= 0:
                            return found
                        if plain or item.offset >= max(by_offset):
                            break
        return found

    def changed(self) -> list[Path]:
        """Return the shards that are not any more what they were."""
        return [one.path for one in self._shards if _stamp_or_none(one.path) != one.stamp]


def stamp_of(path: Path) -> Stamp:
    """Return the size of a shard in bytes, and when it was changed in nanoseconds."""
    with os_errors_as(ShardError, path, "can't be read"):
        status = path.stat()
    return status.st_size, status.st_mtime_ns


def _stamp_or_none(path: Path) -> Stamp | None:
    try:
        return stamp_of(path)
    except ShardError:
        return None


def is_row(item: Record | Fault) -> bool:
    """Return whether what was read has a row: a record, or one whose payload alone is damaged."""
    return not isinstance(item, Fault) or (
        item.kind is FaultKind.PAYLOAD_CRC and item.record is not None
    )
