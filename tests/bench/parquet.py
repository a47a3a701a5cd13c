"""Shards to Parquet, against Hugging Face's ``datasets`` from a generator over tf.data."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.bench.shards import write_shard
from tests.bench.timing import Pair, compare

__all__ = ["run"]

_IMAGES, _IMAGE_BYTES = 8000, 7000

_THEIRS = """
import sys
import datasets, tensorflow as tf
datasets.disable_progress_bars()
shard, target, cache = sys.argv[1:]
description = {
    "image": tf.io.FixedLenFeature((), tf.string), "label": tf.io.FixedLenFeature((), tf.int64)
}
def parse(one):
    return tf.io.parse_single_example(one, description)
def rows():
    for row in tf.data.TFRecordDataset(shard).map(parse):
        yield {"image": row["image"].numpy(), "label": int(row["label"].numpy())}
features = datasets.Features({"image": datasets.Value("binary"), "label": datasets.Value("int64")})
made = datasets.Dataset.from_generator(rows, features=features, cache_dir=cache)
made.to_parquet(target)
print(len(made))
"""


def run(directory: Path) -> Iterator[Pair]:
    """Measure whole processes, whose start is in; ours also reads back what it wrote."""
    shard = directory / "images.tfrecord"
    count = write_shard(shard, _IMAGE_BYTES, _IMAGES * _IMAGE_BYTES, 0.3)
    number = iter(range(1000))

    def ours() -> None:
        target = str(directory / f"{next(number)}.parquet")
        words = [sys.executable, "-m", "tfrtool", "convert", str(shard), target]
        said = subprocess.run(words, check=True, capture_output=True, text=True).stdout
        if f"{count:,} records" not in said:
            raise RuntimeError(said)

    def theirs() -> None:
        one = next(number)
        words = [str(shard), str(directory / f"{one}.parquet"), str(directory / f"cache{one}")]
        program = [sys.executable, "-c", _THEIRS, *words]
        said = subprocess.run(program, check=True, capture_output=True, text=True).stdout
        if said.split()[-1] != str(count):
            raise RuntimeError(said)

    what = f"{count:,} images of {_IMAGE_BYTES:,} bytes to Parquet, and proved"
    yield compare(f"{what}: datasets.Dataset.from_generator over tf.data", ours, theirs, 2)
