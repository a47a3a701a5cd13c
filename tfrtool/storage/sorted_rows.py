"""Rows in order, any number of them: few stay in memory, many are sorted by DuckDB and spilled.

Use `SortedRows` for whatever has to be sorted, grouped or looked up by its place in an order, and
may have millions of rows.
"""

import marshal
import shutil
import tempfile
import threading
import weakref
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from operator import itemgetter, le
from pathlib import Path
from typing import Any, TypeVar, overload

from tfrtool.errors import WriteError, reason_of

_BUFFERED = 2**16
"""Rows that stay in memory, with what Python needs for each some 20 MB."""

_BUFFERED_BYTES = 2**25

_BATCH = 2**13
"""Rows that are fetched at a time; of large rows they are fewer."""

_BATCH_BYTES = 2**24

_CONFIG = {
    "allow_community_extensions": "false",
    "allow_persistent_secrets": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "memory_limit": "128MiB",
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
        data = marshal.dumps(row[self._by :])
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
        if self._database is None:
            for keys, data in self._buffer[start:stop]:
                # Written by this very process, to memory or a file that is this user's alone.
                yield (*keys, *marshal.loads(data))  # type: ignore[misc]
        else:
            yield from self._database.read(start, stop)  # type: ignore[misc]

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
    """A table in DuckDB: columns k0, k1, ... to sort by, and d with the rest."""

    def __init__(self, folder: Path | None, keys: Sequence[Any]) -> None:
        import duckdb

        self._texts = [isinstance(key, str) for key in keys]
        self._names = [f"k{number}" for number in range(len(keys))]
        self._bytes = self._count = 0
        self._where = folder or tempfile.gettempdir()
        with self._errors():
            spilled = tempfile.mkdtemp(prefix="rows-", dir=folder)
            config = {**_CONFIG, "temp_directory": spilled}
            self._connection = duckdb.connect(":memory:", config=config)
            weakref.finalize(self, _close, self._connection, spilled)
            types = ["BIGINT" if isinstance(key, int) else "BLOB" for key in keys]
            columns = [" ".join(pair) for pair in zip(self._names, types, strict=True)]
            self._connection.execute(f"CREATE TABLE rows ({', '.join(columns)}, d BLOB)")

    def add(self, keys: Sequence[tuple[Any, ...]], data: Sequence[bytes]) -> None:
        import pyarrow

        columns = dict(zip(self._names, map(list, zip(*keys, strict=True)), strict=True))
        for name, text in zip(self._names, self._texts, strict=True):
            if text:
                columns[name] = [key.encode(*_CODING) for key in columns[name]]
        arrays = [
            pyarrow.array(
                column, pyarrow.int64() if isinstance(column[0], int) else pyarrow.binary()
            )
            for column in columns.values()
        ]
        arrays.append(pyarrow.array(data, pyarrow.large_binary()))
        batch = pyarrow.table(arrays, [*self._names, "d"])
        with self._errors():
            self._connection.register("batch", batch)
            self._connection.execute("INSERT INTO rows FROM batch")
            self._connection.unregister("batch")
        self._bytes += sum(map(len, data))
        self._count += len(data)

    def finish(self, *, ordered: bool) -> None:
        """Sort the table; what was added in order already stays."""
        if not ordered:
            order = ", ".join([*self._names, "rowid"])
            with self._errors():
                self._connection.execute(f"CREATE TABLE ordered AS FROM rows ORDER BY {order}")
                self._connection.execute("DROP TABLE rows")
                self._connection.execute("ALTER TABLE ordered RENAME TO rows")

    def read(self, start: int, stop: int) -> Iterator[tuple[Any, ...]]:
        rows = max(1, min(_BATCH, _BATCH_BYTES * self._count // (self._bytes + 1)))
        with self._errors():
            cursor = self._connection.cursor()
            where = f"rowid >= {start:d} AND rowid < {stop:d}"
            found = cursor.sql(f"FROM rows WHERE {where}")
            for batch in found.to_arrow_reader(rows):
                *keys, data = (column.to_pylist() for column in batch.columns)
                for at, text in enumerate(self._texts):
                    if text:
                        keys[at] = [str(key, *_CODING) for key in keys[at]]
                for *key, rest in zip(*keys, data, strict=True):
                    yield (*key, *marshal.loads(rest))

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


def _close(connection: Any, folder: str) -> None:
    connection.close()
    shutil.rmtree(folder, ignore_errors=True)
