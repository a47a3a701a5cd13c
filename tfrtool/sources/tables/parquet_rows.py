"""Reading tables in Parquet, through pyarrow, of which only the columns that count are read."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow
import pyarrow.parquet
import pyarrow.types

from tfrtool.errors import SourceError
from tfrtool.sources.tables.table_columns import Row, needed_columns
from tfrtool.storage.limits import MAX_ROW_BYTES

_BATCH = 1024
"""Rows that are held at a time."""

_FREE_ROWS = 100_000
"""Rows that a table may have however small it is; more need a byte of it each, for paths differ."""


def read_parquet(file: BinaryIO, table: Path) -> Iterator[Row]:
    """Yield the rows of a table, numbered from 1; memory is bounded by a group of them."""
    try:
        metadata = pyarrow.parquet.read_metadata(file)
        schema = metadata.schema.to_arrow_schema()
        places = needed_columns(schema.names, table)
        wanted = [schema.names[place] for place in places if place is not None]
        for role, place in places._asdict().items():
            if place is not None:
                _check_type(role, schema.field(place), table)
        size = os.fstat(file.fileno()).st_size
        if metadata.num_rows > max(_FREE_ROWS, size):
            raise SourceError(f"{metadata.num_rows:,} rows in {size:,} bytes", path=table)
        # As dictionaries, texts that come again and again are in memory once.
        parquet = pyarrow.parquet.ParquetFile(file, metadata=metadata, read_dictionary=wanted)
        number, dropped = 0, places.others(schema.names)
        for batch in parquet.iter_batches(_BATCH, columns=wanted, use_threads=False):
            batch.validate(full=True)
            for cells in zip(*(map(_text, batch.column(name)) for name in wanted), strict=True):
                number += 1
                where, (path, label, split) = f"row {number}", (*cells, "")[:3]
                if max(map(len, cells)) > MAX_ROW_BYTES:
                    yield Row(where, problem=f"longer than {MAX_ROW_BYTES:,} bytes")
                    continue
                split = split.strip().lower()
                yield Row(where, path, label.strip(), split, dropped=dropped)
    except (pyarrow.ArrowException, ValueError, LookupError, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise SourceError(
            "the Parquet table is cut or damaged", path=table, found=reason[:200]
        ) from error


def _check_type(role: str, field: Any, table: Path) -> None:
    """Raise if a column can't be what its name says."""
    types = pyarrow.types
    kind = field.type.value_type if types.is_dictionary(field.type) else field.type
    if role == "label" and (types.is_list(kind) or types.is_large_list(kind)):
        raise SourceError(
            f"an image has several labels in its column '{field.name}'",
            path=table,
            found=kind,
            hint="several labels an image can't be written yet; give each image one",
        )
    text = types.is_string(kind) or types.is_large_string(kind)
    if not (text or (role == "label" and types.is_integer(kind))):
        raise SourceError(
            f"its column '{field.name}' holds no {role}s",
            path=table,
            expected="strings or integers" if role == "label" else "strings",
            found=kind,
        )


def _text(scalar: Any) -> str:
    value = scalar.as_py()
    return "" if value is None else str(value)
