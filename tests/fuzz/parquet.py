"""Fuzzing Parquet through `tfrtool.convert`: whatever a file does, it is converted or refused."""

from __future__ import annotations

import contextlib
import io
import random
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import tfrtool
from tests.fuzz.target import Scramble, Target, scratch
from tfrtool.storage import limits

__all__ = ["TARGET", "mutate"]

_MAGIC = b"PAR1"
_UNPACKED = 1 << 20
"""What a file may unpack to here, in bytes: a bomb is to be refused at once."""

_TABLES: tuple[tuple[dict[str, Any], dict[str, Any]], ...] = (
    ({"a": [1, 2, None], "b": [0.5, 1.0, -1.0]}, {"write_page_index": True}),
    ({"a": ["x", "y", "x"] * 5, "b": [b"1", b"2", b"3"] * 5}, {"compression": "zstd"}),
    ({"a": [[1, 2], [], None]}, {"use_dictionary": False, "compression": "none"}),
    ({"image": [{"bytes": b"123", "path": "a.jpg"}] * 3}, {"compression": "gzip"}),
    ({"a": [True, False, None] * 9}, {"row_group_size": 4}),
    ({"a": pa.array(["x", "y", "x"]).dictionary_encode()}, {}),
    ({"a": pa.nulls(3), "b": [1, 2, 3]}, {"data_page_version": "2.0"}),
)


def check_convert(data: bytes) -> None:
    """A file is converted and proved, or it is an error of ours; nothing else may happen."""
    source, target = scratch() / "a.parquet", scratch() / "a.tfrecord"
    source.write_bytes(data)
    before, limits.FREE_UNPACKED_BYTES = limits.FREE_UNPACKED_BYTES, _UNPACKED
    try:
        with contextlib.suppress(tfrtool.TfrtoolError):
            report = tfrtool.convert(source, target, workers=1, existing="overwrite")
            assert tfrtool.count(target) == report.job.records_out
    finally:
        limits.FREE_UNPACKED_BYTES = before


def mutate(data: bytes, rng: random.Random, scramble: Scramble) -> bytes:
    """Change the footer or what is before it, and keep the footer where readers look for it."""
    size = int.from_bytes(data[-8:-4], "little")
    if not data.endswith(_MAGIC) or size > len(data) - 12 or rng.random() < 0.1:
        return scramble(data)
    pages, footer = data[: -8 - size], data[-8 - size : -8]
    if rng.random() < 0.7:
        footer = scramble(footer)
    else:
        pages = _MAGIC + scramble(pages[4:])
    return pages + footer + len(footer).to_bytes(4, "little") + _MAGIC


def seeds() -> Iterator[bytes]:
    """Yield small files with values, pages and footers of several kinds."""
    for columns, options in _TABLES:
        for store_schema in (True, False):
            file = io.BytesIO()
            pq.write_table(pa.table(columns), file, store_schema=store_schema, **options)
            yield file.getvalue()


TARGET = Target(check=check_convert, seeds=seeds, mutate=mutate, memory=4096)
