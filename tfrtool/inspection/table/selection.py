"""Which rows of a `RecordTable` match a condition, and in which order: by DuckDB, sealed off."""

import secrets
from collections.abc import Collection, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from tfrtool.errors import UsageError, suggestion
from tfrtool.examples.arrow.arrays import numbers_array
from tfrtool.examples.arrow.columns import PLACES
from tfrtool.inspection.rows.batches import LABEL_NAME, class_names_of, text_array
from tfrtool.inspection.rows.sandbox import Sandbox, check_condition, quoted_names
from tfrtool.inspection.table.record_table import IMAGE, RecordTable, TablePiece

_TEXT = pa.dictionary(pa.int32(), pa.string())


class Selector:
    """Asks the rows of a table; it can be pickled for a process that does so.

    A feature is a column, under its own name, as stored. So are `PLACES`, `LABEL_NAME` where
    class names are known, and ``width``, ``height``, ``brightness`` and ``entropy`` of the image,
    unless a feature has that name.

    Attributes:
        columns: by each name that a question may use, the table's own column.
    """

    def __init__(
        self,
        table: RecordTable,
        *,
        split_of: Mapping[Path, str],
        label: str | None = None,
        class_names: tuple[str, ...] = (),
    ) -> None:
        """Ask a table of the rows that it has now.

        Args:
            table: the table.
            split_of: the split of each shard that has one.
            label: the feature that is the label.
            class_names: the names of the label's classes, by their numbers.
        """
        self._table, self._split_of = table, split_of
        self._label, self._class_names = label, class_names
        names = {name: name for name in table.features if name not in PLACES}
        if class_names and label in names:
            names.setdefault(LABEL_NAME, LABEL_NAME)
        for name in IMAGE:
            if name not in ("label", "hash", "problem") and table.has(f"image.{name}"):
                names.setdefault(name, f"image.{name}")
        names |= {name: name for name in PLACES}
        self.columns: Mapping[str, str] = names
        # What no condition names: the number of a row, and its label as people call it.
        self._row, self._shown = (f"_{secrets.token_hex(8)}" for _ in range(2))
        hidden = {self._row: self._row}
        if (label is not None and table.has("image.label")) or label in names:
            hidden[self._shown] = "image.label" if table.has("image.label") else label or ""
        self._columns = {**names, **hidden}
        self._own = {self._row: pa.int64(), PLACES[0]: _TEXT, PLACES[4]: _TEXT}
        if not table.has(LABEL_NAME):
            self._own[LABEL_NAME] = _TEXT

    def select(
        self,
        *,
        where: str | None = None,
        text: str | None = None,
        equal: Mapping[str, str | None] | None = None,
        sort: str | None = None,
        descending: bool = False,
    ) -> Any:
        """Return the numbers of the rows that match everything, an array of uint32, in order.

        Args:
            where: an SQL condition, as ``tfrtool cat --where`` takes it.
            text: what stands in some text of the record, upper or lower case.
            equal: the ``split``, None for none, and the ``label`` as people call it.
            sort: the column to sort by; None for the order of the shards. Nulls come last.
            descending: whether the greatest come first.

        Raises:
            UsageError: the condition makes no sense, or there is no such column.
            ShardError: the condition fails at a value, or needs too much memory.
        """
        parts = []
        if where is not None and where.strip():
            check_condition(where)
            parts.append(f"(\n{where}\n)")
        for name, value in (equal or {}).items():
            if name == "label" and self._shown not in self._columns:
                raise UsageError("no labels to filter by")
            asked = self._quoted({"split": PLACES[4], "label": self._shown}[name])
            if name == "label" and self._type(self._shown) == pa.binary():
                asked = f"try(decode({asked}))"
            same = "IS NULL" if value is None else f"= {_literal(value)}"
            parts.append(f"CAST({asked} AS VARCHAR) {same}")
        if text:
            asked = _literal(text.lower())
            has = f"coalesce(contains(lower(try(decode({{}}))), {asked}), false)"
            kinds = {name: self._type(name) for name in self._columns}
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
            order += f", {self._row}"
        condition = f"WHERE {' AND '.join(parts)}" if parts else ""
        found = self._ask(f'SELECT "{self._row}" FROM records {condition} {order}')
        rows = np.concatenate([np.from_dlpack(one.column(0)) for one in found] or [np.zeros(0)])
        return (rows if order else np.sort(rows)).astype(np.uint32)

    def _quoted(self, name: str) -> str:
        if name not in self._columns:
            raise UsageError(f"no column {name!r}", hint=suggestion(name, self.columns, "columns"))
        return quoted_names(self._columns)[[*self._columns].index(name)]

    def _type(self, name: str) -> pa.DataType:
        column = self._columns[name]
        return self._own.get(column) or self._table.type_of(column)

    def _ask(self, sql: str) -> list[pa.RecordBatch]:
        names = [name for name in self._columns if name != self._shown or name in sql]
        schema = pa.schema([pa.field(name, self._type(name)) for name in names])
        with closing(Sandbox(schema, self._scan)) as sandbox:
            sandbox.check(sql)
            try:
                return list(sandbox.read(sql))
            except Exception as error:
                raise sandbox.as_error(error) from error

    def _scan(self, names: Collection[str]) -> Iterator[pa.RecordBatch]:
        wanted = [self._columns[name] for name in names]
        needed = [self._label if one == LABEL_NAME and self._label else one for one in wanted]
        held = [*dict.fromkeys(one for one in needed if one not in self._own)]
        start = 0
        for piece, batch in self._table.batches(held):
            arrays = [
                self._made(column, piece, start, batch)
                if column in self._own
                else batch.column(column)
                for column in wanted
            ]
            yield pa.record_batch(arrays, names=[*names])
            start += piece.rows

    def _made(self, column: str, piece: TablePiece, start: int, batch: pa.RecordBatch) -> pa.Array:
        if column == self._row:
            return numbers_array(np.arange(start, start + piece.rows, dtype=np.int64))
        if column == LABEL_NAME:
            return class_names_of(batch.column(self._label), self._class_names)
        value = str(piece.path) if column == PLACES[0] else self._split_of.get(piece.path)
        which = np.full(piece.rows, -1 if value is None else 0, np.int32)
        return text_array(which, [value or ""])


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
