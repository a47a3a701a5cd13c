"""Sorted rows, any number of them: few stay in memory, many are merged from runs in a file.

Use `SortedRows` for whatever has to be sorted, grouped or looked up by its place in an order, and
may have millions of rows.
"""

import heapq
import marshal
import os
import tempfile
import threading
import weakref
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import chain, pairwise
from operator import itemgetter
from pathlib import Path
from typing import IO, Any, TypeVar, overload

from tfrtool.errors import WriteError, reason_of

_BUFFERED, _BUFFERED_BYTES = 2**17, 2**25
"""Rows, and their bytes, that stay in memory: with what Python needs for each some 40 MB."""

_FORMAT = 2
"""The version of `marshal`: later ones look up each value among those that were written before."""

_BLOCK, _BLOCK_BYTES = 256, 2**18
"""Rows, and their bytes, that are written and read together."""

Row = TypeVar("Row", bound=tuple[Any, ...])


class SortedRows(Sequence[Row]):
    """Rows sorted by their first columns; those equal there stay in the order of their adding.

    Rows hold what `marshal` takes. They are added first; after the first look at them, none can be
    added. Several threads may read at once. It can't be pickled. A full disk is a `WriteError`.
    """

    def __init__(
        self, folder: Path | None = None, *, by: int = 1, rows: Iterable[Row] = ()
    ) -> None:
        """Start with some rows.

        Args:
            folder: where many rows are spilled to; None is the system's for temporary files.
            by: number of the columns to sort by.
            rows: the first rows to add.
        """
        self._folder = folder
        self._key = itemgetter(0 if by == 1 else slice(by))
        self._keys, self._buffer = list[Any](), list[bytes]()  # no pairs: they cost the collector
        self._buffered = 0
        self._file: _RowFile | None = None  # runs of sorted rows; in the end, one
        self._runs = [0]  # where they start, and the end
        self._last: Any = None
        self._in_order, self._complete = True, False
        self._lock = threading.Lock()
        for row in rows:
            self.add(row)

    def add(self, row: Row) -> None:
        """Add a row."""
        data = marshal.dumps(tuple(row), _FORMAT)
        self._keys.append(self._key(row))
        self._buffer.append(data)
        self._buffered += len(data)
        if len(self._buffer) >= _BUFFERED or self._buffered >= _BUFFERED_BYTES:
            self._spill()

    def __len__(self) -> int:
        return self._runs[-1] + len(self._buffer)

    def __iter__(self) -> Iterator[Row]:
        return self.read()

    @overload
    def __getitem__(self, at: int) -> Row: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[Row]: ...
    def __getitem__(self, at: int | slice) -> Row | Sequence[Row]:
        places = range(len(self))[at]
        if isinstance(places, int):
            return next(self.read(places, places + 1))
        if places.step != 1:
            return [self[place] for place in places]
        return [*self.read(places.start, places.stop)]

    def read(self, start: int = 0, stop: int | None = None) -> Iterator[Row]:
        """Yield the rows from one place in the order to another."""
        self._sort()
        stop = len(self) if stop is None else stop
        pieces = iter(self._buffer[start:stop])
        if self._file is not None:
            pieces = self._file.read(start, stop)
        # Written by this very process, to memory or a file that nobody else can open by a name.
        yield from map(marshal.loads, pieces)

    def drain(self) -> Iterator[Row]:
        """Yield all rows, without a merged copy of them on disk; after it, there are none."""
        if self._file is None:
            yield from self.read()
            return
        if self._buffer:
            self._spill()
        self._complete, file = True, self._file
        runs = [map(marshal.loads, file.read(*ends)) for ends in pairwise(self._runs)]
        self._file, self._runs = None, [0]
        if self._in_order:
            yield from chain.from_iterable(runs)
        else:
            yield from heapq.merge(*runs, key=self._key)

    def _spill(self) -> None:
        if self._complete:
            raise ValueError("rows are added before the first look at them")
        if self._file is None:
            self._file = _RowFile(self._folder)
        self._sort_buffer()
        self._in_order &= self._last is None or self._last <= self._keys[0]
        self._last = self._keys[-1]
        self._file.add(self._buffer)
        self._runs.append(self._runs[-1] + len(self._buffer))
        self._keys, self._buffer, self._buffered = [], [], 0

    def _sort_buffer(self) -> None:
        order = sorted(range(len(self._keys)), key=self._keys.__getitem__)
        self._keys, self._buffer = (
            [items[at] for at in order] for items in (self._keys, self._buffer)
        )

    def _sort(self) -> None:
        with self._lock:
            if self._complete:
                return
            if self._file is None:
                self._sort_buffer()
            elif self._buffer:
                self._spill()
            if self._file is not None and not self._in_order:
                merged = _RowFile(self._folder)
                runs = (self._keyed(self._file, *ends) for ends in pairwise(self._runs))
                merged.add(data for _, data in heapq.merge(*runs, key=itemgetter(0)))
                self._file = merged
            self._complete = True

    def _keyed(self, file: "_RowFile", start: int, stop: int) -> Iterator[tuple[Any, bytes]]:
        for data in file.read(start, stop):
            yield self._key(marshal.loads(data)), data


class _RowFile:
    """Pieces of data in a file, in the order of their adding."""

    def __init__(self, folder: Path | None) -> None:
        self._where, self._end, self._count = folder or tempfile.gettempdir(), 0, 0
        self._firsts, self._starts = array("Q"), array("Q")  # of each block: row and offset
        with self._errors():
            # Without a name, it vanishes with the process.
            self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115
        weakref.finalize(self, _close, self._file)

    def add(self, pieces: Iterable[bytes]) -> None:
        block, size = list[bytes](), 0
        for data in pieces:
            block.append(data)
            size += len(data)
            if len(block) == _BLOCK or size >= _BLOCK_BYTES:
                self._write(block)
                block, size = [], 0
        if block:
            self._write(block)
        with self._errors():
            self._file.flush()

    def _write(self, block: list[bytes]) -> None:
        self._firsts.append(self._count)
        self._starts.append(self._end)
        with self._errors():
            self._end += self._file.write(marshal.dumps(block, _FORMAT))
        self._count += len(block)

    def read(self, first: int, stop: int) -> Iterator[bytes]:
        """Yield pieces from one place to another; several threads may read."""
        for at in range(max(0, bisect_right(self._firsts, first) - 1), len(self._firsts)):
            if (number := self._firsts[at]) >= stop:
                return
            start = self._starts[at]
            end = self._starts[at + 1] if at + 1 < len(self._starts) else self._end
            with self._errors():
                block = marshal.loads(os.pread(self._file.fileno(), end - start, start))
            yield from block[max(0, first - number) : stop - number]

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            what = f"temporary files can't be written: {reason_of(error)}"
            raise WriteError(what, path=self._where) from error


def _close(file: IO[bytes]) -> None:
    with suppress(OSError):  # closing tries once more to write what didn't fit
        file.close()
