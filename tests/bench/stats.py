"""Statistics of features, against a tf.data loop with numpy that comes to the same figures."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.bench.timing import Pair, compare
from tfrtool.examples.example import encode_example
from tfrtool.inspection.stats.stats import stats
from tfrtool.records.framing import frame

__all__ = ["run"]

_RECORDS = 50_000
_BATCH = 1024
_NUMBERS = {"id": 1, "label": 1, "f1": 16, "f2": 1, "f3": 1, "i1": 1, "i2": 8}
_STRINGS = ("name", "kind", "text")


def _write(path: Path) -> None:
    """Write records of 400 bytes with 10 features."""
    noise = random.Random(0)
    with path.open("wb") as file:
        for n in range(_RECORDS):
            record: dict[str, Any] = {
                "id": n,
                "label": n % 10,
                "f1": [noise.random() for _ in range(16)],
                "f2": noise.gauss(0, 1),
                "f3": noise.random(),
                "i1": noise.randrange(1000),
                "i2": [noise.randrange(50) for _ in range(8)],
                "name": f"name{n}",
                "kind": noise.choice(["red", "green", "blue"]),
                "text": noise.randbytes(70).hex(),
            }
            file.write(frame(encode_example(record)))


def _ours(path: Path) -> dict[str, Any]:
    found = {}
    for one in stats(path, workers=1).features:
        values = one.get("values")
        if values is None:
            found[one["name"]] = one["distinct"] if one["distinct_exact"] else None
        else:
            found[one["name"]] = round(values["mean"], 3), round(values["std"], 3), values["max"]
    return found


def _theirs(path: Path) -> dict[str, Any]:
    """Parse batches, and keep sums, ranges and histograms over what numpy makes of them."""
    import numpy as np
    import tensorflow as tf

    kinds = {name: tf.float32 if name[0] == "f" else tf.int64 for name in _NUMBERS}
    features: dict[str, Any] = {
        name: tf.io.FixedLenFeature([size], kinds[name]) for name, size in _NUMBERS.items()
    }
    features |= {name: tf.io.FixedLenFeature([], tf.string) for name in _STRINGS}
    held: dict[str, list[Any]] = {name: [] for name in features}
    data = tf.data.TFRecordDataset(str(path)).batch(_BATCH)
    for batch in data.map(lambda part: tf.io.parse_example(part, features)).as_numpy_iterator():
        for name, values in batch.items():
            held[name].append(values.reshape(-1))
    found: dict[str, Any] = {}
    for name, parts in held.items():
        values = np.concatenate(parts)
        if name in _STRINGS:
            distinct = len(np.unique(values, return_counts=True)[0])
            found[name] = distinct if distinct <= 2**15 else None
            continue
        wide = values.astype(np.float64)
        np.histogram(wide, 10)
        np.quantile(wide, [0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99])
        found[name] = round(float(wide.mean()), 3), round(float(wide.std()), 3), values.max().item()
    return dict(sorted(found.items()))


def run(directory: Path) -> Iterator[Pair]:
    """Yield the comparison; the other way holds all values in memory, ours doesn't."""
    path = directory / "rows.tfrecord"
    _write(path)
    yield compare(
        "statistics of 50,000 records of 400 bytes (ours), tf.data and numpy in memory (theirs)",
        lambda: _ours(path),
        lambda: _theirs(path),
    )
