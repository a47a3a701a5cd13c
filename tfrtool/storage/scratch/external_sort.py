"""What is too much for memory: rows to sort, and a number for each image, in a scratch folder.

The files there have no names, so that they vanish with the process, however it ends. Small amounts
stay in memory. A disk that is full is a `WriteError`.
"""

import contextlib
import errno
import heapq
import marshal
import mmap
import os
import tempfile
import threading
import weakref
from array import array
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from itertools import chain, islice
from pathlib import Path
from typing import IO, Any, Generic, Literal, TypeVar

from tfrtool.errors import WriteError, os_errors_as

RUN = 2**17
"""Rows that are sorted in memory: some 40 MB."""

_CHUNK = 1024
"""Rows of a run that are in memory while runs are merged."""

_MERGED = 256
"""Runs that are merged at a time, and so about 60 MB of rows."""

_SMALL = 2**20
"""Bytes that stay in memory."""

_LOOKED_UP = 4096
"""Numbers that are looked up before mapped memory is let go: each may bring in 64 kB."""

Piece = TypeVar("Piece")
Row = TypeVar("Row", bound=tuple[Any, ...])


def scratch_errors(folder: Path | None) -> AbstractContextManager[None]:
    """Raise what goes wrong with files in a scratch folder as a `WriteError` that names it."""
    where = folder or tempfile.gettempdir()
    return os_errors_as(WriteError, where, "temporary files can't be written")


def close_with(owner: object, file: IO[bytes]) -> None:
    """Close a file when its owner goes; what then finds no room is not needed any more."""

    def close() -> None:
        with contextlib.suppress(OSError):
            file.close()

    weakref.finalize(owner, close)


class ScratchFile:
    """Pieces of data, in memory while they are few; several threads may use it at once."""

    def __init__(self, folder: Path | None = None) -> None:
        """Start without any; a folder of None is the system's."""
        self._folder = folder
        where = None if folder is None else os.fspath(folder)
        self._file = tempfile.SpooledTemporaryFile(_SMALL, dir=where)  # noqa: SIM115
        close_with(self, self._file)
        self._lock = threading.Lock()

    def append(self, data: bytes) -> int:
        """Add a piece at the end, and return where it is."""
        with self._lock, scratch_errors(self._folder):
            offset = self._file.seek(0, os.SEEK_END)
            self._file.write(data)
        return offset

    def read(self, offset: int, size: int) -> bytes:
        """Return a piece again."""
        with self._lock, scratch_errors(self._folder):
            self._file.seek(offset)
            if len(data := self._file.read(size)) != size:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
        return data


class ExternalSort(Generic[Row]):
    """Sorts any number of rows, which are tuples of what `marshal` takes.

    Runs of them are sorted in memory and merged from the disk. Once all have been added, rows can
    be iterated over again and again.
    """

    def __init__(self, folder: Path | None = None, rows: Iterable[Row] = ()) -> None:
        """Start with some rows."""
        self._file = ScratchFile(folder)
        self._rows: list[Row] = []  # that are in no run yet
        self._runs: list[list[tuple[int, int]]] = []  # where the chunks of each are
        for row in rows:
            self.add(row)

    def __len__(self) -> int:
        return sum(map(len, self._runs)) * _CHUNK + len(self._rows)

    def add(self, row: Row) -> None:
        """Add a row."""
        self._rows.append(row)
        if len(self._rows) == RUN:
            self._spill()

    def settle(self) -> None:
        """Merge all runs, for rows that are iterated over more than once."""
        while len(self._runs) > 1:
            self._runs = [
                self._write(heapq.merge(*map(self._read, self._runs[start : start + _MERGED])))
                for start in range(0, len(self._runs), _MERGED)
            ]

    def __iter__(self) -> Iterator[Row]:
        if len(self._runs) > _MERGED:
            self.settle()
        self._rows.sort()
        runs = [*map(self._read, self._runs), iter(self._rows)]
        return heapq.merge(*runs) if len(runs) > 1 else runs[0]

    def _spill(self) -> None:
        self._rows.sort()
        self._runs.append(self._write(iter(self._rows)))
        self._rows = []

    def _write(self, rows: Iterator[Row]) -> list[tuple[int, int]]:
        chunks = []
        while some := [*islice(rows, _CHUNK)]:  # RUN is a multiple of it, so that all are full
            data = marshal.dumps(some)
            chunks.append((self._file.append(data), len(data)))
        return chunks

    def _read(self, run: Sequence[tuple[int, int]]) -> Iterator[Row]:
        # Written by this very process, to a file that nobody else can open by a name.
        return chain.from_iterable(marshal.loads(self._file.read(*chunk)) for chunk in run)


def column(typecode: Literal["B", "H", "Q"], count: int, folder: Path | None = None) -> memoryview:
    """Return so many numbers, all 0, of a type as `array` has them; many are in a mapped file.

    Its blocks are written at once: a mapped file that finds no room later ends the process.
    """
    size = count * array(typecode).itemsize
    if size <= _SMALL:
        return memoryview(bytearray(size)).cast("B").cast(typecode)
    with scratch_errors(folder), tempfile.TemporaryFile(dir=folder) as file:
        for start in range(0, size, _SMALL):
            file.write(bytes(min(_SMALL, size - start)))
        file.flush()
        return memoryview(mmap.mmap(file.fileno(), size)).cast(typecode)


def forgetting(rows: Iterable[Piece], *columns: object) -> Iterator[Piece]:
    """Yield rows, and now and then let go of columns that they are looked up in."""
    for at, row in enumerate(rows):
        if at % _LOOKED_UP == 0:
            forget(*columns)
        yield row


def pieces(groups: Iterable[Sequence[int]]) -> Iterator[list[Sequence[int]]]:
    """Yield groups of numbers together: some that have `RUN` at most, or a part of a large one."""
    some, count = list[Sequence[int]](), 0
    for group in groups:
        for start in range(0, len(group), RUN):
            piece = group[start : start + RUN]
            if count + len(piece) > RUN:
                yield some
                some, count = [], 0
            some.append(piece)
            count += len(piece)
    if some:
        yield some


def rising(groups: Iterable[Sequence[int]], *columns: object) -> Iterator[tuple[int, int]]:
    """Yield positions in columns, and before each its place among them, `RUN` at a time rising.

    Positions that are near each other are then looked up one after another: those in no order
    would bring in memory for each. The columns are let go of now and then.
    """
    import numpy

    start = 0
    for some in pieces(groups):
        positions = numpy.concatenate([numpy.asarray(group, "Q") for group in some])
        order = positions.argsort()
        pairs = zip((order + start).tolist(), positions[order].tolist(), strict=True)
        yield from forgetting(pairs, *columns, some[0])
        start += len(positions)


def forget(*columns: object) -> None:
    """Let go of the memory that mapped columns take; what they hold stays on the disk."""
    for one in columns:
        mapped = one.obj if isinstance(one, memoryview) else one
        if isinstance(mapped, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
            mapped.madvise(mmap.MADV_DONTNEED)
