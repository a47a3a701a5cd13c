"""Rows in order, any number of them: few stay in memory, many are sorted by DuckDB and spilled.

Use `SortedRows` for whatever has to be sorted, grouped or looked up by its place in an order, and
may have millions of rows.
"""

import marshal
import mmap
import shutil
import tempfile
import threading
import weakref
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate
from operator import itemgetter, le
from pathlib import Path
from typing import IO, Any, TypeVar, overload

from tfrtool.errors import WriteError, reason_of

_BUFFERED = 2**16
"""Rows that stay in memory, with what Python needs for each some 20 MB."""

_BUFFERED_BYTES = 2**25

_BATCH = 2**13
"""Rows that are fetched at a time."""

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
        self._last: tuple[Any, ...] | None = None
        self._ascending, self._complete = True, False
        self._lock = threading.Lock()
        for row in rows:
            self.add(row)

    def add(self, row: Row) -> None:
        """Add a row."""
        data = marshal.dumps(tuple(row))
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
        if self._database is not None:
            pieces = self._database.read(start, stop)
        # Written by this very process, to memory or a file that nobody else can open by a name.
        yield from map(marshal.loads, pieces)

    def _spill(self) -> None:
        if self._complete:
            raise ValueError("rows are added before the first look at them")
        keys = [keys for keys, _ in self._buffer]
        if self._ascending:
            before = keys[:1] if self._last is None else [self._last]
            self._ascending = all(map(le, [*before, *keys], keys))
            self._last = keys[-1]
        if self._database is None:
            self._database = _Database(self._folder, keys[0])
        self._database.add(keys, [data for _, data in self._buffer])
        self._spilled += len(keys)
        self._buffer, self._buffered = [], 0

    def _sort(self) -> None:
        with self._lock:
            if self._complete:
                return
            if self._database is None:
                self._buffer.sort(key=itemgetter(0))
            else:
                if self._buffer:
                    self._spill()
                self._database.finish(ordered=self._ascending)
            self._complete = True


class _Database:
    """Rows in a file, and in DuckDB the columns to sort by and where each row is in the file.

    DuckDB sorts only that, because it holds long rows in memory.
    """

    def __init__(self, folder: Path | None, keys: Sequence[Any]) -> None:
        import duckdb

        self._where, self._end = folder or tempfile.gettempdir(), 0
        self._texts = [isinstance(key, str) for key in keys]
        self._names = [f"k{number}" for number in range(len(keys))]
        with self._errors():
            # Without a name, it vanishes with the process.
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
        with self._errors():
            view = memoryview(b"".join(data))
            while view:
                view = view[self._file.write(view) :]
            self._connection.register("batch", batch)
            self._connection.execute("INSERT INTO rows FROM batch")
            self._connection.unregister("batch")

    def finish(self, *, ordered: bool) -> None:
        """Sort the table; what was added in order already stays."""
        with self._errors():
            self._mapped = mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ)
        if not ordered:
            order = ", ".join([*self._names, "rowid"])
            select = f"SELECT start, size FROM rows ORDER BY {order}"
            with self._errors():
                self._connection.execute(f"CREATE TABLE ordered AS {select}")
                self._connection.execute("DROP TABLE rows")
                self._connection.execute("ALTER TABLE ordered RENAME TO rows")

    def read(self, first: int, stop: int) -> Iterator[bytes]:
        """Yield rows as they were added, from one place in the order to another."""
        select = f"SELECT start, size FROM rows WHERE rowid >= {first:d} AND rowid < {stop:d}"
        with self._errors():
            for batch in self._connection.cursor().sql(select).to_arrow_reader(_BATCH):
                yield from self._pieces(*(column.to_numpy() for column in batch.columns))

    def _pieces(self, starts: Any, sizes: Any) -> Iterator[bytes]:
        """Yield pieces of the file, and then let go of the memory that they were mapped to."""
        mapped = self._mapped
        for start, end in zip(starts.tolist(), (starts + sizes).tolist(), strict=True):
            yield mapped[start:end]
        if hasattr(mmap, "MADV_DONTNEED"):
            mapped.madvise(mmap.MADV_DONTNEED)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Raise what goes wrong with temporary files as a `WriteError` that names their folder."""
        import duckdb
        import pyarrow

        try:
            yield
        except (duckdb.Error, pyarrow.ArrowException, OSError) as error:
            what = f"temporary files can't be written: {reason_of(error)}"
            raise WriteError(what, path=self._where) from error


def _close(connection: Any, file: IO[bytes], folder: str) -> None:
    connection.close()
    file.close()
    shutil.rmtree(folder, ignore_errors=True)
