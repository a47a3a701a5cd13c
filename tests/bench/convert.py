"""Copying records: resharding against cp, and filtering against a tf.data loop."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import tfrtool
from tests.bench.timing import Pair, compare
from tfrtool.examples.example import encode_example
from tfrtool.records.framing import frame

__all__ = ["run"]

_RECORDS = 20_000
_IMAGE_BYTES = 7_000
_LABEL = 1


def run(directory: Path) -> Iterator[Pair | str]:
    """Yield each comparison; the shard is in the page cache, start-up is not counted."""
    import tensorflow as tf

    shard = directory / "pets-train.tfrecord-00000-of-00001"
    pool, rng = random.Random(1).randbytes(4 * _IMAGE_BYTES), random.Random(2)
    with shard.open("wb") as file:
        for number in range(_RECORDS):
            start, size = rng.randrange(_IMAGE_BYTES), rng.randrange(1, 2 * _IMAGE_BYTES)
            image = pool[start : start + size]
            payload = encode_example({"image": image, "label": number % 5, "id": number})
            file.write(frame(payload))
    size, numbers = shard.stat().st_size, count()
    yield f"{_RECORDS:,} records, {size / 1e6:.0f} MB"

    def place() -> Path:
        # Always a new one: replacing a file waits for the disk.
        return directory / f"out{next(numbers)}"

    def reshard() -> int:
        report = tfrtool.reshard(shard, place(), shards=2)
        if report.digest_in != report.digest_out or report.records_out != _RECORDS:
            raise RuntimeError("records were lost")
        return size

    def cp() -> int:
        out = place()
        subprocess.run(["cp", shard, out], check=True)
        return out.stat().st_size

    def cp_and_sync() -> int:
        out = place()
        subprocess.run(["cp", shard, out], check=True)
        subprocess.run(["sync", out], check=True)
        return out.stat().st_size

    yield compare("reshard, which checks, and waits for the disk (ours), cp (theirs)", reshard, cp)
    yield compare("the same (ours), cp and sync (theirs)", reshard, cp_and_sync)

    def keep() -> int:
        return tfrtool.filter_records(shard, place(), where=f"label = {_LABEL}").records_out

    def loop() -> int:
        description = {"label": tf.io.FixedLenFeature([], tf.int64)}
        found = 0
        with tf.io.TFRecordWriter(str(place())) as writer:
            for payload in tf.data.TFRecordDataset(str(shard)):
                if tf.io.parse_single_example(payload, description)["label"] == _LABEL:
                    writer.write(payload.numpy())
                    found += 1
        return found

    def graph() -> int:
        description = {"label": tf.io.FixedLenFeature([], tf.int64)}

        def holds(payload: object) -> object:
            return tf.io.parse_single_example(payload, description)["label"] == _LABEL

        found = 0
        with tf.io.TFRecordWriter(str(place())) as writer:
            for payload in tf.data.TFRecordDataset(str(shard)).filter(holds).as_numpy_iterator():
                writer.write(payload)
                found += 1
        return found

    what = "filter by label (ours)"
    yield compare(f"{what}, a tf.data loop that parses and writes (theirs)", keep, loop, 3)
    yield compare(f"{what}, tf.data's filter and a loop that writes (theirs)", keep, graph, 3)
