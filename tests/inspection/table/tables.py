"""Tables of records as tests make them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from tfrtool.errors import ShardError
from tfrtool.examples.example import Feature, encode_example
from tfrtool.inspection.table.record_index import RecordIndex, find_offsets
from tfrtool.inspection.table.record_table import RecordTable, write_rows
from tfrtool.inspection.table.selection import Selector
from tfrtool.records.framing import frame

__all__ = ["index_of", "make_selector", "make_table", "write_rows_of"]


def make_table(
    shards: Sequence[Path], folder: Path, *, images: bool = False, workers: int = 1
) -> RecordTable:
    """Return the rows of shards; their files go to a folder."""
    folder.mkdir(exist_ok=True)
    table = RecordTable()
    for found in write_rows(shards, folder, images=images, workers=workers):
        table.add(found)
    return table


def index_of(shards: Sequence[Path], table: RecordTable, folder: Path) -> RecordIndex:
    """Return the places of the records of shards, hopped through where that can be."""
    index = RecordIndex(shards, table)
    for number, path in enumerate(shards):
        try:
            offsets = find_offsets(path)
        except ShardError:
            continue
        file = folder / f"offsets-{number}"
        file.write_bytes(offsets)
        index.add(path, file)
    return index


def write_rows_of(path: Path, rows: Sequence[Mapping[str, Feature]]) -> Path:
    """Write Examples as a shard."""
    path.write_bytes(b"".join(frame(encode_example(dict(row))) for row in rows))
    return path


def make_selector(table: RecordTable, *, label: str | None = None, names: str = "") -> Selector:
    """Return what asks a table of shards without splits."""
    return Selector(table, split_of={}, label=label, class_names=tuple(names.split()))
