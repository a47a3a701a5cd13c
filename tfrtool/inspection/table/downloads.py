"""Downloads of records: the rows of `query`, with the names, tags and predictions of records."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from tfrtool.errors import UsageError, human_bytes
from tfrtool.inspection.rows.database import literal
from tfrtool.inspection.rows.query import query, query_rows, write_parquet
from tfrtool.inspection.rows.row_lines import csv_lines, json_lines, row_json
from tfrtool.sources.formats.csv_options import CsvOptions
from tfrtool.storage.arguments import Paths
from tfrtool.storage.remote_path import AnyPath

Item = TypeVar("Item")

DOWNLOADS = {
    "csv": "text/csv",
    "jsonl": "application/x-ndjson",
    "parquet": "application/vnd.apache.parquet",
}
"""Formats, and their media types."""

MAX_BYTES = 2 * 1024**3
"""Size of a download."""

_POSITION = "_position"
_SELECTED = pa.schema(
    {
        _POSITION: pa.int64(),
        "_name": pa.string(),
        "_shard": pa.string(),
        "_record": pa.int64(),
        "_tags": pa.list_(pa.string()),
        "_predicted": pa.string(),
        "_confidence": pa.float64(),
        "_loss": pa.float64(),
        "_correct": pa.bool_(),
    }
)
"""Columns of what was selected; those of predictions only if there are any."""


class Download(NamedTuple):
    """What to write: records of shards in a format.

    Attributes:
        form: one of `DOWNLOADS`.
        shards: the files.
        sources: what names them.
        image: the feature with the images that pages show, which is left out.
        as_stored: whether columns are the features as records store them.
        types: types of features by name.
    """

    form: str
    shards: Sequence[AnyPath]
    sources: Paths
    image: str | None
    as_stored: bool
    types: Mapping[str, str] | None

    def write(self, selected: Path, target: Path) -> None:
        """Write the records that `write_selected` wrote to a new file, in their order.

        Raises:
            UsageError: the file would be larger than `MAX_BYTES`.
            ShardError: a file can't be read, or the query needs too much memory.
        """
        hidden = ", ".join(map(literal, filter(None, (_POSITION, self.image))))
        ask = query if self.form == "parquet" else query_rows
        answer: Any = ask(
            self.shards,
            f"SELECT COLUMNS(lambda name: name NOT IN ({hidden})) FROM selected "
            f"LEFT JOIN records USING (_shard, _record) ORDER BY {_POSITION}",
            tables={"selected": selected},
            sources=self.sources,
            workers=1,
            as_text=self.form != "parquet",
            as_stored=self.as_stored,
            types=self.types,
            on_fault=lambda _: None,  # a damaged record has no values
        )
        with answer as found, target.open("xb") as file:
            if self.form == "parquet":
                bounded = _bounded(found, file)
                write_parquet(pa.RecordBatchReader.from_batches(found.schema, bounded), file)
                return
            rows = (row_json(dict(zip(found.names, row, strict=True))) for row in found.rows)
            is_csv = self.form == "csv"
            lines = csv_lines(rows, found.names, CsvOptions()) if is_csv else json_lines(rows)
            for line in _bounded(lines, file):
                file.write(f"{line}\n".encode())


def _bounded(items: Iterable[Item], file: BinaryIO) -> Iterator[Item]:
    for item in items:
        if file.tell() > MAX_BYTES:
            raise UsageError(f"the download is larger than {human_bytes(MAX_BYTES)}")
        yield item


def write_selected(
    path: Path, rows: Sequence[tuple[Any, ...]], shards: Sequence[AnyPath], names: Sequence[str]
) -> None:
    """Write the records to download: their names, tags and predictions."""
    numbers, records, *others = zip(*rows, strict=True) if rows else [()] * 7
    columns = [
        range(len(rows)),
        [f"{names[shard]}:{record}" for shard, record in zip(numbers, records, strict=True)],
        [str(shards[shard]).encode("utf-8", "backslashreplace").decode() for shard in numbers],
        records,
        *others,
    ]
    arrays = [pa.array(one, kind) for one, kind in zip(columns, _SELECTED.types, strict=True)]
    table = pa.Table.from_arrays(arrays, schema=_SELECTED)
    if not any(others[1]):
        table = table.select(_SELECTED.names[:-4])
    pq.write_table(table, path)
