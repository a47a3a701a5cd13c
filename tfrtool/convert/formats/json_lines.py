"""JSON Lines: rows as objects."""

import contextlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, ClassVar

import pyarrow as pa

from tfrtool.convert.formats.cell_columns import Row, with_texts
from tfrtool.convert.formats.format_specs import FORMATS
from tfrtool.convert.formats.record_format import Content, WriteBatch
from tfrtool.convert.formats.row_format import RowFormat, create_text
from tfrtool.errors import SourceError
from tfrtool.examples.example import DType
from tfrtool.features.feature_columns import FeatureColumns
from tfrtool.inspection.rows.batches import rows_of
from tfrtool.inspection.summary.summary_json import as_json
from tfrtool.sources.formats.json_rows import json_rows
from tfrtool.storage.limits import MAX_TEXT_ROW_BYTES
from tfrtool.storage.remote_path import AnyPath


class JsonLinesFormat(RowFormat):
    """An object on each line, or in a list; a missing feature is left out, or null."""

    spec = FORMATS["jsonl"]
    widening: ClassVar[Sequence[DType]] = (DType.INT64, DType.FLOAT32)

    def _rows(self, file: BinaryIO, path: AnyPath, start: int) -> Iterator[tuple[Row, int]]:
        for location, _, end, row in json_rows(file, path, start=start, limit=MAX_TEXT_ROW_BYTES):
            if isinstance(row, str):
                after = f" after offset {start}" if start else ""
                raise SourceError(f"{location}{after}: {row}", path=path)
            yield row, end

    @contextlib.contextmanager
    def write(self, path: Path, content: Content) -> Iterator[WriteBatch]:
        """Give a file to write; an object that has no values is left out, as it isn't stored."""
        is_tree = isinstance(content.columns, FeatureColumns)

        def lines(batch: pa.RecordBatch) -> Iterator[str]:
            for row in rows_of(with_texts(content.with_names(batch))):
                cells = as_json(row)
                shown = _without_empty(cells) if is_tree else cells
                yield json.dumps(shown, ensure_ascii=False) + "\n"

        with create_text(path) as file:
            yield lambda batch: file.writelines(lines(batch))


def _without_empty(value: Any) -> Any:
    """Return an object without those in it, but for those in lists, that have no values."""
    if not isinstance(value, dict):
        return value
    members = ((key, _without_empty(one)) for key, one in value.items())
    return {key: one for key, one in members if one != {}}
