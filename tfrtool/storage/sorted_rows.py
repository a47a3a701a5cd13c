"""Rows in order, any number of them: few stay in memory, many are in files, and sorted by DuckDB.

Use `SortedRows` for whatever has to be sorted, grouped or looked up by its place in an order, and
may have millions of rows.
"""

import marshal
import os
import shutil
import tempfile
import threading
import weakref
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate, islice, repeat
from operator import itemgetter, le
from pathlib import Path
from typing import IO, Any, TypeVar, overload

from tfrtool.errors import WriteError, reason_of

_BUFFERED = 2**16
"""Rows that stay in memory, with what Python needs for each some 20 MB."""

_BUFFERED_BYTES = 2**25

_FORMAT = 2
"""The version of `marshal`: later ones look up each value among those that were written before."""

_BLOCK = 256
"""Rows that are written and read together."""

_BLOCK_BYTES = 2**18

_CONFIG = {
    "allow_community_extensions": "false",
    "allow_persistent_secrets": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "memory_limit": "96MiB",
    "python_enable_replacements": "false",
    "threads": "1",
}

_CODING = "utf-8", "surrogatepass"
"""Sorts as Python's strings do, and takes names that are not valid UTF-8."""

Row = TypeVar("Row", bound=tuple[Any, ...])


class SortedRows(Sequence[Row]):
    """Rows sorted by their first columns; those equal there stay in the order of their adding.

    The columns to sort by are str, bytes, or int of 64 bits, and of one type in all rows; what
    follows them is anything that `marshal` takes. Rows are added first; after the first look at
    them, none can be added. Several threads may read at once. It can't be pickled.

    A disk that is full is a `WriteError`.
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
        self._folder, self._by = folder, by
        self._buffer: list[tuple[tuple[Any, ...], bytes]] = []
        self._buffered = self._spilled = 0
        self._database: _Database | None = None
        self._blocks: _RowFile | None = None
        self._last: tuple[Any, ...] | None = None
        self._complete = False
        self._lock = threading.Lock()
        for row in rows:
            self.add(row)

    def add(self, row: Row) -> None:
        """Add a row."""
        data = marshal.dumps(tuple(row), _FORMAT)
        self._buffer.append((row[: self._by], data))
        self._buffered += len(data)
        if len(self._buffer) >= _BUFFERED or self._buffered >= _BUFFERED_BYTES:
            self._spill()

    def __len__(self) -> int:
        return self._spilled + len(self._buffer)

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
        pieces: Iterator[bytes] = (data for _, data in self._buffer[start:stop])
        if self._blocks is not None:
            pieces = self._blocks.read(start, stop)
        # Written by this very process, to memory or a file that nobody else can open by a name.
        yield from map(marshal.loads, pieces)

    def _spill(self) -> None:
        if self._complete:
            raise ValueError("rows are added before the first look at them")
        keys, data = zip(*self._buffer, strict=True)
        if self._blocks is None:
            self._blocks = _RowFile(self._folder)
        if self._database is None:
            last = keys[0] if self._last is None else self._last
            if all(map(le, (last, *keys), keys)):
                self._last = keys[-1]
            else:  # those before are in order, and these are not
                self._database = _Database(self._folder, keys[0])
                pieces, self._blocks = self._blocks.read(0, self._spilled), _RowFile(self._folder)
                while batch := [*islice(pieces, _BUFFERED)]:
                    known = [marshal.loads(data)[: self._by] for data in batch]
                    self._database.add(known, batch)
        if self._database is None:
            self._blocks.add(data)
        else:
            self._database.add(keys, data)
        self._spilled += len(data)
        self._buffer, self._buffered = [], 0

    def _sort(self) -> None:
        with self._lock:
            if self._complete:
                return
            if self._blocks is None:
                self._buffer.sort(key=itemgetter(0))
            elif self._buffer:
                self._spill()
            if self._blocks is not None and self._database is not None:
                self._blocks.add(self._database.in_order())
                self._database = None
            self._complete = True


class _RowFile:
    """Pieces of data in a file, in the order of their adding."""

    def __init__(self, folder: Path | None) -> None:
        self._where, self._end, self._count = folder or tempfile.gettempdir(), 0, 0
        self._firsts, self._starts = array("Q"), array("Q")  # of each block: row and offset
        with _errors_of(self._where):
            # Without a name, it vanishes with the process.
            self._file = tempfile.TemporaryFile(dir=folder, buffering=0)  # noqa: SIM115
        weakref.finalize(self, self._file.close)

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

    def _write(self, block: list[bytes]) -> None:
        self._firsts.append(self._count)
        self._starts.append(self._end)
        data = marshal.dumps(block, _FORMAT)
        with _errors_of(self._where):
            _write_all(self._file, data)
        self._count += len(block)
        self._end += len(data)

    def read(self, first: int, stop: int) -> Iterator[bytes]:
        """Yield pieces from one place to another; several threads may read."""
        for at in range(max(0, bisect_right(self._firsts, first) - 1), len(self._firsts)):
            if (number := self._firsts[at]) >= stop:
                return
            start = self._starts[at]
            end = self._starts[at + 1] if at + 1 < len(self._starts) else self._end
            with _errors_of(self._where):
                block = marshal.loads(os.pread(self._file.fileno(), end - start, start))
            yield from block[max(0, first - number) : stop - number]


class _Database:
    """Rows in a file, and in DuckDB the columns to sort by and where each row is in the file.

    DuckDB sorts only that, because it holds long rows in memory.
    """

    def __init__(self, folder: Path | None, keys: Sequence[Any]) -> None:
        import duckdb

        self._where, self._end = folder or tempfile.gettempdir(), 0
        self._texts = [isinstance(key, str) for key in keys]
        self._names = [f"k{number}" for number in range(len(keys))]
        with _errors_of(self._where):
            self._file = tempfile.TemporaryFile(dir=folder, buffering=0)  # noqa: SIM115
            spilled = tempfile.mkdtemp(prefix="rows-", dir=folder)
            config = {**_CONFIG, "temp_directory": spilled}
            self._connection = duckdb.connect(":memory:", config=config)
            weakref.finalize(self, _close, self._connection, self._file, spilled)
            types = ["BIGINT" if isinstance(key, int) else "BLOB" for key in keys]
            columns = [" ".join(pair) for pair in zip(self._names, types, strict=True)]
            table = f"CREATE TABLE rows ({', '.join(columns)}, start BIGINT, size BIGINT)"
            self._connection.execute(table)

    def add(self, keys: Sequence[tuple[Any, ...]], data: Sequence[bytes]) -> None:
        import pyarrow

        arrays = []
        for text, column in zip(self._texts, zip(*keys, strict=True), strict=True):
            kind = pyarrow.int64() if isinstance(column[0], int) else pyarrow.binary()
            values = [key.encode(*_CODING) for key in column] if text else column
            arrays.append(pyarrow.array(values, kind))
        sizes = [*map(len, data)]
        starts = [*accumulate(sizes, initial=self._end)]
        self._end = starts.pop()
        arrays += (pyarrow.array(numbers, pyarrow.int64()) for numbers in (starts, sizes))
        batch = pyarrow.table(arrays, [*self._names, "start", "size"])
        with _errors_of(self._where):
            _write_all(self._file, b"".join(data))
            self._connection.register("batch", batch)
            self._connection.execute("INSERT INTO rows FROM batch")
            self._connection.unregister("batch")

    def in_order(self) -> Iterator[bytes]:
        """Yield all rows as they were added, sorted; those with equal columns as they came."""
        order, file = ", ".join([*self._names, "start"]), self._file.fileno()
        with _errors_of(self._where):
            found = self._connection.sql(f"SELECT start, size FROM rows ORDER BY {order}")
            for batch in found.to_arrow_reader(_BUFFERED):
                starts, sizes = (column.to_pylist() for column in batch.columns)
                yield from map(os.pread, repeat(file), sizes, starts)


@contextmanager
def _errors_of(folder: str | Path) -> Iterator[None]:
    """Raise what goes wrong with temporary files as a `WriteError` that names their folder."""
    try:
        yield
    except OSError as error:
        raise _error(folder, error) from error
    except Exception as error:
        if type(error).__module__.partition(".")[0] not in ("duckdb", "_duckdb", "pyarrow"):
            raise
        raise _error(folder, error) from error


def _error(folder: str | Path, error: Exception) -> WriteError:
    return WriteError(f"temporary files can't be written: {reason_of(error)}", path=folder)


def _write_all(file: IO[bytes], data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[file.write(view) :]


def _close(connection: Any, file: IO[bytes], folder: str) -> None:
    connection.close()
    file.close()
    shutil.rmtree(folder, ignore_errors=True)
