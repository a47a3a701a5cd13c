"""Where the records of shards are: by a hop through their headers, or by their rows in a table."""

import math
from array import array
from bisect import bisect_right
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tfrtool.errors import ShardError, os_errors_as
from tfrtool.inspection.table.record_table import PLACES, RecordTable
from tfrtool.records.compression import Compression, detect_compression
from tfrtool.records.count import hop, indexed
from tfrtool.records.framing import Record
from tfrtool.records.reader import read_records
from tfrtool.records.stream import open_shard
from tfrtool.storage.opening import size_of_file
from tfrtool.storage.remote_path import RemotePath

_FIRST, _FAR_FIRST = 100, 24
"""Records of the first shard that are found at once, and of one in a store, which sends for it as
much as they take."""


class RecordPlace(NamedTuple):
    """Where a record is: its shard, its number there, its header's offset in bytes."""

    path: Path
    record: int
    offset: int


def find_offsets(path: Path, most: int | None = None) -> "array[int]":
    """Return where the records of a shard start, and where the last one ends.

    Args:
        path: the shard.
        most: stop after so many; None goes on to the end.

    Raises:
        ShardError: it can't be read, or hopping doesn't get there: it is compressed, damaged, or in
            a store, which would take a request for each.
    """
    with os_errors_as(ShardError, path), open_shard(path) as file:
        if detect_compression(file) is not Compression.NONE:
            raise ShardError("is compressed", path=path)
        size, offsets = size_of_file(file), array("Q", (0,))
        if isinstance(path, RemotePath) and most is None:
            offsets = array("Q", indexed(file, path, size) or (0,))
        elif hop(file, size, offsets, most=most)[0] == most:
            return offsets
    if offsets[-1] != size and most is None:
        raise ShardError("can't be indexed from its headers", path=path)
    return offsets


class RecordIndex:
    """The places of all records, in order, as far as they are known.

    Those of a shard are its offsets, once they are found. Others have the places of their rows in
    the table; so has one whose rows are others than the offsets said. One thread adds while others
    ask.
    """

    def __init__(self, shards: Sequence[Path], table: RecordTable) -> None:
        """Find the first records; `ShardError` if a shard is not there."""
        self._shards, self._table = shards, table
        self._stamps = {path: _stamp(path) for path in shards}
        self._offsets: dict[Path, Any] = {}
        self._extent: tuple[Any, list[int], bool] = None, [], False
        try:
            most = _FAR_FIRST if isinstance(shards[0], RemotePath) else _FIRST
            self._first: Sequence[int] = find_offsets(shards[0], most)
        except ShardError:
            self._first = [0]

    def add(self, path: Path, offsets: Path) -> None:
        """Take in what `find_offsets` returned of a shard, from a file."""
        self._offsets[path] = np.memmap(offsets, np.uint64, "r")

    @property
    def complete(self) -> bool:
        """Whether all records are in."""
        return self._known()[1]

    def __len__(self) -> int:
        """Return how many records are found so far."""
        return self._known()[0][-1]

    def _known(self) -> tuple[list[int], bool]:
        """Return where the rows of each shard end, up to the first that is not all known."""
        table = self._table
        key = len(self._offsets), table.rows, len(table.faults)
        if self._extent[0] != key:
            rows, ends, complete = table.shard_rows(), [0], True
            for path in self._shards:
                count, complete = rows.get(path, 0), path in table.faults
                if not complete and path in self._offsets:
                    count, complete = len(self._offsets[path]) - 1, True
                elif not complete and path == self._shards[0]:
                    count = max(count, len(self._first) - 1)
                ends.append(ends[-1] + count)
                if not complete:
                    break
            self._extent = key, ends, complete
        return self._extent[1:]

    def place(self, row: int) -> RecordPlace:
        """Return where a record is, by its number among all; `IndexError` if it is not found."""
        ends, _ = self._known()
        if not 0 <= row < ends[-1]:
            raise IndexError(f"record {row} of {ends[-1]}")
        at = bisect_right(ends, row) - 1
        path, record = self._shards[at], row - ends[at]
        offsets = self._offsets.get(path, ())
        if len(offsets) - 1 != ends[at + 1] - ends[at]:
            if row < self._table.rows:
                told = self._table.take(PLACES, [row])[row]
                return RecordPlace(path, *(told[name] for name in PLACES[:2]))
            offsets = self._first
        return RecordPlace(path, record, int(offsets[record]))

    def read(self, rows: Sequence[int], most: float = math.inf) -> dict[int, Record]:
        """Read some records; those that are damaged, or whose shard was changed, are missing.

        So are those after the first that have ``most`` bytes together. Of a compressed shard,
        everything before them is read, too.
        """
        found: dict[int, Record] = {}
        wanted: dict[Path, dict[int, tuple[int, int]]] = {}
        for row in rows:
            path, number, offset = self.place(row)
            wanted.setdefault(path, {})[offset] = row, number
        for path, places in wanted.items():
            here: dict[int, Record] = {}
            with os_errors_as(ShardError, path), open_shard(path) as file:
                form = detect_compression(file)
                plain = form is Compression.NONE
                for start in sorted(places) if plain else [0]:
                    if most <= 0:
                        break
                    file.seek(start)
                    for item in read_records(file, compression=form, offset=start):
                        row, number = places.get(item.offset, (-1, 0))
                        if row >= 0 and isinstance(item, Record):
                            here[row] = item._replace(index=number)
                            most -= len(item.payload)
                        if plain or most <= 0 or item.offset >= max(places):
                            break
            if not self._changed(path):
                found |= here
        return found

    def changed(self) -> list[Path]:
        """Return the shards on this machine that are not any more what they were."""
        return [path for path in self._shards if self._changed(path)]

    def _changed(self, path: Path) -> bool:
        if isinstance(path, RemotePath):
            return False  # an object that is read is the one that was opened, or an error
        try:
            return _stamp(path) != self._stamps[path]
        except ShardError:
            return True


def _stamp(path: Path) -> tuple[int, int]:
    with os_errors_as(ShardError, path):
        status = path.stat()
    return status.st_size, status.st_mtime_ns
