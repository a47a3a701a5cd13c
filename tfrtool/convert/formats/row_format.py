"""Files that are read row by row, with the types of their columns in a schema next to them."""

import abc
import contextlib
import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import IO, BinaryIO

import pyarrow as pa

from tfrtool.convert.formats.cell_columns import CellReader, ColumnInference, Row, decode_rows
from tfrtool.convert.formats.record_format import Content, Format, ReadPosition, Scan
from tfrtool.errors import SourceError, os_errors_as
from tfrtool.examples.tfds_metadata import DatasetInfo
from tfrtool.features.schema_files import SCHEMA, read_schema, schemas_of
from tfrtool.inspection.rows.batches import BATCH_BYTES, BATCH_RECORDS
from tfrtool.sources.formats.table_limits import check_column_count, check_row_count
from tfrtool.sources.formats.unpacked import create_packed, open_unpacked
from tfrtool.storage.progress import BYTES, count_work
from tfrtool.storage.remote_path import AnyPath

_POSITION_EVERY = 256


class RowFormat(Format):
    """Rows of any cells, with a schema of ours next to them, or types that follow from all rows."""

    has_plain_nans = True
    cells: CellReader = CellReader()

    def _open(self, path: AnyPath, *, trusted: bool = False) -> AbstractContextManager[BinaryIO]:
        """Open a file, decompressed if need be; without limits if it is ``trusted``."""
        return open_unpacked(path, trusted=trusted)

    @abc.abstractmethod
    def _rows(self, file: BinaryIO, path: AnyPath, start: int) -> Iterator[tuple[Row, int]]:
        """Yield rows from an offset on, each with the offset where the next one can be read."""

    def scan(self, path: AnyPath) -> Scan:
        """Read a file through. Without a schema next to it, its columns are inferred."""
        content, positions, rows = schema_next_to(path), [ReadPosition()], 0
        inference = ColumnInference(self.cells, self.widest)
        blank = {} if content is None else dict.fromkeys(content.schema.names)
        left = size = path.stat().st_size
        with os_errors_as(SourceError, path), self._open(path) as file:
            for row, end in self._rows(file, path, 0):
                if content is None:
                    inference.add(row, rows)
                check_column_count(max(len(row), inference.fields), path)
                if blank:
                    blank = {name: None for name in blank if row.get(name) in (None, "")}
                rows += 1
                check_row_count(rows, size, path)
                if rows % _POSITION_EVERY == 0:
                    count_work(min(end - positions[-1].start, left), BYTES)
                    left = max(left - (end - positions[-1].start), 0)
                    positions.append(ReadPosition(rows, end))
            size = file.tell()
        scan = inference.scan(path, rows, size, positions)
        return scan if content is None else replace(scan, content=content, blank=tuple(blank))

    def read(self, path: AnyPath, position: ReadPosition) -> Iterator[list[Row]]:
        """Yield rows as mappings of cells."""
        return self._batches(path, position.start)

    def read_back(self, path: AnyPath, content: Content) -> Iterator[list[Row]]:  # noqa: ARG002
        """Yield the rows of a file that was just written, without limits."""
        return self._batches(path, 0, trusted=True)

    def _batches(self, path: AnyPath, start: int, *, trusted: bool = False) -> Iterator[list[Row]]:
        rows = list[Row]()
        with os_errors_as(SourceError, path), self._open(path, trusted=trusted) as file:
            for row, end in self._rows(file, path, start):
                rows.append(row)
                if len(rows) == BATCH_RECORDS or end - start > BATCH_BYTES:
                    yield rows
                    rows, start = [], end
            yield rows

    def decode(
        self, rows: Sequence[Row], content: Content, path: AnyPath, first: int
    ) -> Iterator[pa.RecordBatch]:
        """Yield rows as one batch."""
        yield decode_rows(self.cells, rows, content, path, first)

    def metadata(self, content: Content, info: DatasetInfo) -> Mapping[str, str]:  # noqa: ARG002
        """Return the schema, which makes the way back lossless."""
        return {SCHEMA: content.to_text()}


@contextlib.contextmanager
def create_text(path: Path) -> Iterator[IO[str]]:
    """Give a text file to write, which is compressed if its name says so."""
    with create_packed(path) as file, io.TextIOWrapper(file, "utf-8", newline="") as text:
        yield text


def schema_next_to(path: AnyPath) -> Content | None:
    """Return what the schema next to a file says; None if there is none of ours."""
    contents = (read_schema(schema, Content.from_json) for schema in schemas_of(path))
    return next((content for content in contents if content is not None), None)
