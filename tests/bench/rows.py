"""Printing some records and asking all by SQL, against what else can do it."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.bench.shards import write_shard
from tests.bench.timing import Pair, compare, process
from tfrtool.inspection.rows.query import query

__all__ = ["count_by_label", "run"]

_LAST_THEIRS = """
import os, sys
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import tensorflow as tf
for record in tf.data.TFRecordDataset(sys.argv[1]).skip(int(sys.argv[2])).take(1):
    tf.train.Example.FromString(record.numpy())
"""


def count_by_label(path: Path) -> Counter[int]:
    """Count the records of each label by a query."""
    sql = "SELECT label, count(*) AS n FROM records GROUP BY label"
    with query([path], sql, on_fault=_refuse) as reader:
        return Counter(dict(zip(*reader.read_all().to_pydict().values(), strict=True)))


def _by_tf_data(path: Path) -> Counter[int]:
    import tensorflow as tf

    description = {"label": tf.io.FixedLenFeature([], tf.int64)}
    counts: Counter[int] = Counter()
    batches = tf.data.TFRecordDataset(str(path)).batch(1024)
    for batch in batches.map(lambda one: tf.io.parse_example(one, description)):
        counts.update(batch["label"].numpy().tolist())
    return counts


def _refuse(fault: Any) -> None:
    raise RuntimeError(fault)


def run(directory: Path) -> Iterator[Pair]:
    """Yield each comparison; ours are this package's functions and commands."""
    path = directory / "images.tfrecord"
    count = write_shard(path, 7_000, 175_000_000)
    yield compare(
        f"query: count by label over {count:,} records of 7 KB, beyond start-up; tf.data",
        lambda: count_by_label(path),
        lambda: _by_tf_data(path),
    )
    large = directory / "large.tfrecord"
    count = write_shard(large, 100_000, 2_000_000_000)
    last = str(count - 1)
    yield compare(
        "cat: the last record of a shard of 2 GB, 100 KB each, in all; tf.data's skip",
        process(sys.executable, "-m", "tfrtool", "cat", str(large), "--records", last),
        process(sys.executable, "-c", _LAST_THEIRS, str(large), last),
        runs=3,
    )
