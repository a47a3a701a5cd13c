"""Which rows of a `RecordTable` fulfil a condition, and in which order: by DuckDB, sealed off."""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from threading import Event, Timer
from typing import Any

import numpy as np
import pyarrow as pa

from tfrtool.errors import UsageError, nearest, printable
from tfrtool.examples.arrow.arrays import numbers_array, strings_array
from tfrtool.examples.arrow.columns import PLACES
from tfrtool.inspection.rows.conditions import check_condition
from tfrtool.inspection.rows.sandbox import Sandbox, quoted_names
from tfrtool.inspection.table.record_table import IMAGE, RecordTable, TablePiece

ROW = "_row"
MAX_SECONDS = 30.0
"""So long a question may take; who asked may be gone."""

_OWN = {PLACES[0]: pa.string(), ROW: pa.int64(), "_split": pa.string()}


class Selector:
    """Asks the rows of a table.

    A feature is a column, under its own name. So are ``split``, ``label`` (the class name, where
    one is known), ``width``, ``height``, ``brightness`` and ``entropy`` of the image, unless a
    feature has that name; and `PLACES`.

    Attributes:
        columns: by each name that a question may use, the table's own column.
    """

    def __init__(
        self,
        table: RecordTable,
        *,
        split_of: Callable[[Path], str | None],
        label: str | None = None,
        class_names: bool = False,
    ) -> None:
        """Ask a table of the rows that it has now.

        Args:
            table: the table.
            split_of: the split of a shard.
            label: the feature that is the label.
            class_names: whether it has class names, so that it is compared by these.
        """
        self._table, self._split_of = table, split_of
        self._running: list[Sandbox] = []
        names = {name: name for name in table.features if name not in _OWN}
        if label is not None and table.has("image.label"):
            if class_names:
                names[label] = "image.label"
            names.setdefault("label", names.get(label, "image.label"))
        for name in IMAGE:
            if name not in ("label", "hash", "problem") and table.has(f"image.{name}"):
                names.setdefault(name, f"image.{name}")
        names.setdefault("split", "_split")
        names |= {name: name for name in (*PLACES, ROW)}
        self.columns: Mapping[str, str] = names

    def select(
        self,
        *,
        where: str | None = None,
        text: str | None = None,
        equal: Mapping[str, str] | None = None,
        sort: str | None = None,
        descending: bool = False,
    ) -> Any:
        """Return the numbers of the rows that fulfil everything, an array of uint32, in order.

        Args:
            where: an SQL condition, as ``tfrtool cat --where`` takes it.
            text: what stands in some text of the record, upper or lower case.
            equal: values that columns must have, as text.
            sort: the column to sort by; None for the order of the shards. Nulls come last.
            descending: whether the greatest come first.

        Raises:
            UsageError: the condition makes no sense, or takes too long, or there is no such column.
        """
        parts = []
        if where is not None and where.strip():
            check_condition(where)
            parts.append(f"(\n{where}\n)")
        for name, value in (equal or {}).items():
            parts.append(f"CAST({self._quoted(name)} AS VARCHAR) = {_literal(value)}")
        if text:
            asked = _literal(text.lower())
            has = f"coalesce(contains(lower(try(decode({{}}))), {asked}), false)"
            kinds = {n: self._table.type_of(c) for n, c in self.columns.items() if c not in _OWN}
            each = [
                f"coalesce(list_bool_or([{has.format('x')} for x in {self._quoted(name)}]), false)"
                if pa.types.is_list(kind)
                else has.format(self._quoted(name))
                for name, kind in kinds.items()
                if kind in (pa.binary(), pa.list_(pa.binary()))
            ]
            parts.append(f"({' OR '.join(each) or 'false'})")
        order = ""
        if sort is not None:
            order = f"ORDER BY {self._quoted(sort)} {'DESC' if descending else 'ASC'} NULLS LAST"
            order += f", {ROW}"
        condition = f"WHERE {' AND '.join(parts)}" if parts else ""
        found = self._ask(f"SELECT {ROW} FROM records {condition} {order}")
        rows = np.concatenate([np.from_dlpack(one.column(0)) for one in found] or [np.zeros(0)])
        return (rows if order else np.sort(rows)).astype(np.uint32)

    def _quoted(self, name: str) -> str:
        if name not in self.columns:
            expected = ", ".join(map(printable, nearest(name, self.columns)))
            raise UsageError(f"no column {name!r}", expected=f"one of {expected}")
        return quoted_names(self.columns)[[*self.columns].index(name)]

    def _schema(self) -> pa.Schema:
        return pa.schema(
            [
                pa.field(name, _OWN.get(column) or self._table.type_of(column))
                for name, column in self.columns.items()
            ]
        )

    def _ask(self, sql: str) -> list[pa.RecordBatch]:
        with closing(Sandbox(self._schema(), self._scan)) as sandbox:
            late = Event()

            def end() -> None:
                late.set()
                sandbox.interrupt()

            timer = Timer(MAX_SECONDS, end)
            timer.start()
            self._running.append(sandbox)
            try:
                sandbox.check(sql)
                return list(sandbox.read(sql))
            except Exception as error:
                if late.is_set():
                    raise UsageError(f"it takes more than {MAX_SECONDS:.0f} seconds") from error
                raise sandbox.as_error(error) from error
            finally:
                self._running.remove(sandbox)
                timer.cancel()

    def interrupt(self) -> None:
        """End what is asked at the moment."""
        for sandbox in tuple(self._running):
            sandbox.interrupt()

    def _scan(self, names: Collection[str]) -> Iterator[pa.RecordBatch]:
        wanted = [self.columns[name] for name in names]
        held = [column for column in wanted if column not in _OWN]
        start = 0
        for piece, batch in self._table.batches(held):
            arrays = [
                self._own(column, piece, start) if column in _OWN else batch.column(column)
                for column in wanted
            ]
            yield pa.record_batch(arrays, names=[*names])
            start += piece.rows

    def _own(self, column: str, piece: TablePiece, start: int) -> pa.Array:
        if column == ROW:
            return numbers_array(np.arange(start, start + piece.rows, dtype=np.int64))
        value = str(piece.path) if column == PLACES[0] else self._split_of(piece.path)
        if value is None:
            return pa.nulls(piece.rows, pa.string())
        one = strings_array([value.encode("utf-8", "backslashreplace")]).cast(pa.string())
        return one.take(numbers_array(np.zeros(piece.rows, np.int64)))


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
