"""Reading, checking, counting and inspecting shards, against what else can do it."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import tfrtool
from tests.bench.shards import write_shard
from tests.bench.timing import Pair, compare, less_start, process
from tests.inspection.profiled import verify_shard
from tfrtool.examples.fields import Kind, Struct, Values
from tfrtool.features.tfds_tree import tfds_of_tree
from tfrtool.records.count import count_records
from tfrtool.records.framing import Record, crc32c
from tfrtool.records.reader import read_records

__all__ = ["run"]

_READ_OURS = """
import sys
from tfrtool.records.reader import read_records
with open(sys.argv[1], "rb") as file:
    sys.exit(sum(1 for _ in read_records(file)) != int(sys.argv[2]))
"""
_READ_THEIRS = """
import os, sys
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import tensorflow as tf
count = sum(1 for _ in tf.data.TFRecordDataset(sys.argv[1]))
sys.exit(sys.argv[2:] not in ([], [str(count)]))
"""


def _read(path: Path) -> int:
    """Check both CRCs of all records."""
    count = 0
    with path.open("rb") as file:
        for item in read_records(file):
            assert isinstance(item, Record), item
            count += 1
    return count


def _tf_data(path: Path) -> int:
    import tensorflow as tf

    count = 0
    for _ in tf.data.TFRecordDataset(str(path)):
        count += 1
    return count


def _tf_data_numpy(path: Path) -> int:
    import tensorflow as tf

    return sum(1 for _ in tf.data.TFRecordDataset(str(path)).as_numpy_iterator())


def _in_memory(path: Path) -> Pair:
    with path.open("rb") as file:
        payloads = [item.payload for item in read_records(file) if isinstance(item, Record)]
    return compare(
        "the same (ours), google_crc32c over the same payloads in memory (theirs)",
        lambda: _read(path),
        lambda: sum(1 for payload in payloads if crc32c(payload) >= 0),
    )


def _one_file(directory: Path) -> Iterator[Pair]:
    """Verify one large file by all cores; the jobs that are split, by one worker and by all."""
    python, small = sys.executable, directory / "small.tfrecord"
    write_shard(small, 400, 4_000)
    # Photographs have about as many lengths as there are of them; raw pixels have one.
    for record_bytes, size, spread in (
        (22_500, 680_000_000, 0.8),
        (22_500, 680_000_000, 0.0),
        (150, 140_000_000, 0.0),
    ):
        large = directory / "large.tfrecord"
        write_shard(large, record_bytes, size, spread)
        lengths = [round(record_bytes * (1 + part)) for part in (-spread, spread)]
        yield less_start(
            f"verify of one file, {large.stat().st_size / 1e6:.0f} MB of records of "
            f"{' to '.join(f'{one:,}' for one in dict.fromkeys(lengths))} bytes (ours), "
            "a loop over tf.data (theirs), as processes",
            lambda path: process(python, "-m", "tfrtool", "verify", path),
            lambda path: process(python, "-c", _READ_THEIRS, path),
            str(large),
            str(small),
            7,
        )
        for command in (["verify"], ["inspect", "schema"], ["inspect", "stats"]):
            whole = [python, "-m", "tfrtool", *command]
            yield less_start(
                f"{' '.join(command)} of it by all cores (ours), by one (theirs)",
                lambda path, whole=whole: process(*whole, path),  # type: ignore[misc]
                lambda path, whole=whole: process(*whole, "--workers", "1", path),  # type: ignore[misc]
                str(large),
                str(small),
                3,
            )


def _described(directory: Path) -> Iterator[Pair]:
    """Compare small records and photographs with features.json while they are verified."""
    image = Values(kind=Kind.IMAGE)
    root = Struct({"image": image, "label": Values(kind=Kind.LABEL, info={"numClasses": "2"})})
    for name, record_bytes, size in (("150 bytes", 150, 15_000_000), ("25 kB", 25_000, 75_000_000)):
        folder = directory / f"described-{record_bytes}"
        folder.mkdir()
        shard = folder / "rows.tfrecord"
        write_shard(shard, record_bytes, size)
        (folder / "features.json").write_text(json.dumps(tfds_of_tree(root)))
        yield compare(
            f"verify of records of {name}, with features.json (ours), a loop over tf.data (theirs)",
            lambda shard=shard: tfrtool.verify(shard, workers=1).records,  # type: ignore[misc]
            lambda shard=shard: _tf_data(shard),  # type: ignore[misc]
        )
        yield compare(
            "the same (ours), without features.json (theirs)",
            lambda shard=shard: tfrtool.verify(shard, workers=1).records,  # type: ignore[misc]
            lambda shard=shard: verify_shard(shard).records,  # type: ignore[misc]
        )


def run(directory: Path) -> Iterator[Pair]:
    """Yield each comparison; ours are this package's functions and commands."""
    photographs, rows = directory / "photographs.tfrecord", directory / "rows.tfrecord"
    count = write_shard(photographs, 25_000, 150_000_000)
    write_shard(rows, 400, 40_000_000)
    mixed = directory / "mixed.tfrecord"
    write_shard(mixed, 25_000, 150_000_000, spread=0.4)
    python = sys.executable
    hundred = directory / "hundred.tfrecord"
    write_shard(hundred, 25_000, 100_000_000)
    yield compare(
        "tfrtool inspect shard, 100 MB (ours), python -c 'import tensorflow' (theirs)",
        process(python, "-m", "tfrtool", "inspect", "shard", str(hundred)),
        process(python, "-c", "import tensorflow"),
    )
    yield compare(
        "all CRCs of 150 MB, records of 25 kB (ours), a loop over tf.data (theirs)",
        lambda: _read(photographs),
        lambda: _tf_data(photographs),
    )
    yield compare(
        "the same (ours), a loop over tf.data's as_numpy_iterator (theirs)",
        lambda: _read(photographs),
        lambda: _tf_data_numpy(photographs),
    )
    yield compare(
        "the same, each as a process from its start to its end",
        process(python, "-c", _READ_OURS, str(photographs), str(count)),
        process(python, "-c", _READ_THEIRS, str(photographs), str(count)),
    )
    yield from _one_file(directory)
    yield from _described(directory)
    yield _in_memory(photographs)
    yield compare(
        "counting records of 25 kB (ours), verify_shard, which parses them, too (theirs)",
        lambda: count_records(photographs),
        lambda: verify_shard(photographs).records,
    )
    for name, path in (("25 kB", photographs), ("15 to 35 kB", mixed), ("400 bytes", rows)):
        yield compare(
            f"counting records of {name} (ours), checking all their CRCs (theirs)",
            lambda path=path: count_records(path),  # type: ignore[misc]
            lambda path=path: _read(path),  # type: ignore[misc]
        )
