"""Small records, of tables and ranking: microseconds a record, without start-up.

TensorFlow's sides do less: `tf_record_iterator` parses nothing, and `parse_example` writes nothing.
"""

from __future__ import annotations

import json
import os
import random
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

import tfrtool
from tests.bench.rows import count_by_label
from tests.bench.timing import Pair, less_start, process
from tfrtool.examples.example import encode_example
from tfrtool.records.framing import FRAME_SIZE, frame

__all__ = ["run"]

_RECORDS, _FEW, _RUNS = 50_000, 1_000, 3
_SHAPES = ((1, 1), (8, 40))
"""Features of a float in a record, and half the characters of its text: 71 and 311 bytes."""


def write_small(path: Path, records: int, floats: int, text: int) -> str:
    """Write records with numbers and a text, and return the path."""
    noise = random.Random(0)
    with path.open("wb") as file:
        for number in range(records):
            row: dict[str, Any] = {"id": number, "label": noise.randrange(10)}
            row |= {f"feature_{n}": noise.random() for n in range(floats)}
            row["text"] = noise.randbytes(text).hex()
            file.write(frame(encode_example(row)))
    return str(path)


def _iterate(path: str) -> int:
    import tensorflow as tf

    return sum(1 for _ in tf.compat.v1.io.tf_record_iterator(path))


def _print(path: str) -> int:
    """Print a JSON object of each record, by protobuf; return an exit code."""
    import tensorflow as tf

    with Path(os.devnull).open("w", encoding="utf-8") as out:
        for payload in tf.compat.v1.io.tf_record_iterator(path):
            row = {}
            for name, feature in tf.train.Example.FromString(payload).features.feature.items():
                kind = feature.WhichOneof("kind")
                values = [*getattr(feature, kind).value]
                row[name] = [v.decode() for v in values] if kind == "bytes_list" else values
            out.write(json.dumps(row) + "\n")
    return 0


def _parse(path: str) -> int:
    """Parse all features in batches."""
    import tensorflow as tf

    payload = next(iter(tf.data.TFRecordDataset(path))).numpy()
    types = {"bytes_list": tf.string, "float_list": tf.float32, "int64_list": tf.int64}
    specs = {
        name: tf.io.FixedLenFeature([], types[feature.WhichOneof("kind")])
        for name, feature in tf.train.Example.FromString(payload).features.feature.items()
    }
    batches = tf.data.TFRecordDataset(path).batch(1024)
    batches = batches.map(lambda batch: tf.io.parse_example(batch, specs))
    return sum(len(batch["label"]) for batch in batches)


def _by_duckdb(path: str) -> dict[int, int]:
    """Parse the labels, and count them as a table in memory."""
    import tensorflow as tf

    specs = {"label": tf.io.FixedLenFeature([], tf.int64)}
    batches = tf.data.TFRecordDataset(path).batch(1024)
    batches = batches.map(lambda batch: tf.io.parse_example(batch, specs)["label"])
    labels = np.concatenate([*batches.as_numpy_iterator()])
    table = duckdb.from_arrow(pa.table({"label": labels}))
    return dict(table.aggregate("label, count(*)").fetchall())


def run(directory: Path) -> Iterator[Pair]:
    """Yield each comparison, for records of both sizes."""
    numbers = count()

    def verify(path: str) -> int:
        return tfrtool.verify(path, workers=1).records

    def convert(path: str) -> int:
        return tfrtool.convert(path, directory / f"{next(numbers)}.parquet").job.records_out

    def bound(function: Callable[[str], object]) -> Callable[[str], Callable[[], object]]:
        return lambda path: lambda: function(path)

    def cat(path: str) -> Callable[[], object]:
        return process(sys.executable, "-m", "tfrtool", "cat", path)

    for shape in _SHAPES:
        large, small = (
            write_small(directory / f"{shape[0]}-{records}.tfrecord", records, *shape)
            for records in (_RECORDS, _FEW)
        )
        size = Path(large).stat().st_size // _RECORDS - FRAME_SIZE

        for name, ours, theirs in (
            ("verify (ours), tf_record_iterator (theirs)", bound(verify), bound(_iterate)),
            ("cat (ours), protobuf and json.dumps (theirs)", cat, bound(_print)),
            ("convert to Parquet (ours), parse_example (theirs)", bound(convert), bound(_parse)),
            (
                "query: count by label (ours), parse_example and DuckDB (theirs)",
                bound(lambda path: dict(count_by_label(Path(path)))),
                bound(_by_duckdb),
            ),
        ):
            what = f"{_RECORDS:,} records of {size} bytes, {name}"
            pair = less_start(what, ours, theirs, large, small, _RUNS)
            yield replace(pair, records=_RECORDS - _FEW)
