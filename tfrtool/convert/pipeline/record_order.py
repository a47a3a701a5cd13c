"""Records in an order, all or some of them: an order by number, and files that follow it."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby, pairwise
from operator import itemgetter
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from tfrtool.convert.pipeline.record_sources import Numbers, RecordPool, changed
from tfrtool.errors import ShardError, os_errors_as
from tfrtool.records.compression import Compression
from tfrtool.records.count import read_ranges
from tfrtool.records.crc import masked_crc32c
from tfrtool.records.framing import (
    CRC,
    FOOTER_SIZE,
    HEADER_SIZE,
    FaultKind,
    header,
)
from tfrtool.records.tally import Words, payload_key, seed_word, splitmix64
from tfrtool.records.writer import ShardWriter
from tfrtool.storage.opening import open_regular
from tfrtool.storage.progress import RECORDS, count_work
from tfrtool.writing.job import FileTask
from tfrtool.writing.job_report import Faults, Written
from tfrtool.writing.write_options import check_shard_count

_ROUNDS = 6
_CHUNK = 65_536
_WINDOW = 8 * 1024 * 1024
"""Bytes of output whose records are read in the order in which they lie in the sources."""

_BLOCK = 1024 * 1024
"""The same, where they are in that order anyway."""

_WORTH_NO_COPY = 8192
_FILES_OPEN = 100
_HEADERS_KNOWN = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordOrder:
    """Some records of a pool, in an order.

    Attributes:
        pool: the records.
        count: how many there are.
        first: the number of the first one, where they are all those from there on.
        chosen: a file with their numbers, where they are others.
        seed: of a permutation; None keeps the order.
    """

    pool: RecordPool
    count: int
    first: int = 0
    chosen: Path | None = None
    seed: int | None = None

    def numbers(self, start: int, end: int) -> Words:
        """Return the numbers of the records from one place in the order to another."""
        at = np.arange(start, end, dtype=np.uint64)
        if self.seed is not None:
            at = permuted(at, self.count, self.seed)
        if self.chosen is None:
            return np.array(at + np.uint64(self.first), np.uint64)
        chosen = np.memmap(self.chosen, np.uint64, "r")
        return np.array(chosen[at.astype(np.int64)], np.uint64)

    def cut(self, count: int | None, shard_bytes: int) -> list[tuple[int, int, int]]:
        """Cut the order into files: so many, or by their bytes, frames included.

        Returns:
            Of each where it starts and ends, and about how many bytes it has.
        """
        total = sum(int(sizes.sum()) for _, sizes in self._sizes())
        files = count or max(1, -(-total // shard_bytes))
        check_shard_count(min(files, self.count))
        bounds, done = [0], 0
        if count:
            bounds = [round(self.count * number / files) for number in range(files)]
        for start, sizes in () if count else self._sizes():
            ends = done + np.cumsum(sizes)
            while (wanted := total * len(bounds) // files) <= ends[-1] and len(bounds) < files:
                at = int(np.searchsorted(ends, wanted))
                nearer = ends[at] - wanted < wanted - (ends[at] - sizes[at])
                bounds.append(start + at + int(nearer))
            done = int(ends[-1])
        ranges = pairwise(dict.fromkeys([*bounds, self.count]))
        return [(low, high, total * (high - low) // self.count) for low, high in ranges]

    def _sizes(self) -> Iterator[tuple[int, Numbers]]:
        for start in range(0, self.count, _CHUNK):
            numbers = self.numbers(start, min(start + _CHUNK, self.count))
            yield start, self.pool.places(numbers)[2]


def permuted(places: Words, count: int, seed: int) -> Words:
    """Return where a permutation of ``count`` places puts some of them; none is held in memory.

    A Feistel network over the next power of four, walked until it is within the places.
    """
    half = max(1, -(-(count - 1).bit_length() // 2))
    mask, shift = np.uint64((1 << half) - 1), np.uint64(half)
    rounds: Words = np.arange(_ROUNDS, dtype=np.uint64)
    keys = splitmix64(rounds ^ seed_word(seed))
    found = places.copy()
    left = np.arange(len(places))
    while len(left):
        high, low = found[left] >> shift, found[left] & mask
        for key in keys:
            high, low = low, high ^ (splitmix64(low ^ key) & mask)
        found[left] = high << shift | low
        left = left[found[left] >= count]
    return np.asarray(found, np.uint64)


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyTask(FileTask):
    """Copies records in an order: those from one place to another; all CRCs are checked."""

    order: RecordOrder
    start: int
    end: int
    compression: Compression
    stop: bool

    def write(self, path: Path) -> Written:
        """Copy them: a window at a time, read in the order in which it lies in the sources."""
        faults, pool = Faults(stop=self.stop), self.order.pool
        with ShardWriter(path, self.compression) as writer, _PoolReader(pool) as reader:
            for start in range(self.start, self.end, _CHUNK):
                numbers = self.order.numbers(start, min(start + _CHUNK, self.end))
                shards, starts, sizes = pool.places(numbers)
                windows = np.cumsum(sizes) // (_BLOCK if self.order.seed is None else _WINDOW)
                bounds = [0, *(np.flatnonzero(np.diff(windows)) + 1).tolist(), len(numbers)]
                for low, high in pairwise(bounds):
                    part = slice(low, high)
                    writer.write_frames(
                        *reader.read(numbers[part], shards[part], starts[part], sizes[part], faults)
                    )
                    count_work(high - low, RECORDS)
        return Written(tally=writer.tally, read=writer.tally, faults=faults, crc32c=writer.crc32c)


_header = lru_cache(_HEADERS_KNOWN)(header)


class _PoolReader:
    """Reads records of a pool by their numbers; a context manager that closes the files."""

    def __init__(self, pool: RecordPool) -> None:
        self._pool, self._firsts = pool, pool.firsts
        self._files: dict[int, BinaryIO] = {}

    def __enter__(self) -> "_PoolReader":
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._files.values():
            file.close()

    def read(
        self, numbers: Words, shards: Numbers, starts: Words, sizes: Numbers, faults: Faults
    ) -> tuple[bytes, list[int]]:
        """Return records in the order of ``numbers``, each checked, and their `payload_key`.

        They are read in the order in which they lie in the files, neighbours at once.
        """
        frames: list[memoryview | None] = [None] * len(numbers)
        keys = [0] * len(numbers)
        ranks = np.lexsort((starts, shards))
        files, begins = shards[ranks], starts[ranks].astype(np.int64)
        ends = begins + sizes[ranks]
        apart = (files[1:] != files[:-1]) | (begins[1:] != ends[:-1])
        runs = [0, *(np.flatnonzero(apart) + 1).tolist(), len(ranks)]
        order, places, stops = ranks.tolist(), begins.tolist(), ends.tolist()
        data = b""
        wanted = [(int(files[low]), places[low], stops[high - 1]) for low, high in pairwise(runs)]
        for (low, high), data in zip(pairwise(runs), self._read(wanted), strict=True):
            number, base = int(files[low]), places[low]
            shard = self._pool.shards[number]
            view, array = memoryview(data), np.frombuffer(data, np.uint8)
            for at in range(low, high):
                first, stop = places[at] - base, stops[at] - base - FOOTER_SIZE
                body, rank = first + HEADER_SIZE, order[at]
                if data[first:body] != _header(stop - body) or stop + FOOTER_SIZE > len(data):
                    raise changed(shard.path)
                # The library takes bytes, or an array, which is not copied.
                payload: Any = array[body:stop] if stop - body > _WORTH_NO_COPY else data[body:stop]
                crc, (stored,) = masked_crc32c(payload), CRC.unpack_from(data, stop)
                if stored == crc:
                    frames[rank] = view[first : stop + FOOTER_SIZE]
                    keys[rank] = payload_key(crc, stop - body)
                    continue
                if shard.copy is not None:  # which was whole
                    raise changed(shard.path)
                message = (
                    f"payload checksum (CRC) mismatch: expected {stored:08x} (stored), "
                    f"got {crc:08x} for {stop - body} bytes"
                )
                index = int(numbers[rank]) - int(self._firsts[number])
                kind, offset = FaultKind.PAYLOAD_CRC, places[at]
                faults.note(shard.path, kind, message, offset=offset, record=index)
        whole = [frame for frame in frames if frame is not None]
        if len(whole) == len(frames) and len(runs) == 2 and order == sorted(order):
            return data, keys
        return b"".join(whole), [
            key for key, frame in zip(keys, frames, strict=True) if frame is not None
        ]

    def _read(self, wanted: Iterable[tuple[int, int, int]]) -> Iterator[bytes]:
        for number, runs in groupby(wanted, itemgetter(0)):
            shard = self._pool.shards[number]
            with os_errors_as(ShardError, shard.place):
                if number not in self._files:
                    if len(self._files) == _FILES_OPEN:
                        self._files.pop(next(iter(self._files))).close()
                    self._files[number] = open_regular(shard.place, buffering=0)
                file = self._files[number]
                for data in read_ranges(file, [(base, stop - base) for _, base, stop in runs]):
                    if shard.copy is None:
                        shard.check_stamp(file)
                    yield data
