"""`make bench`: how fast the tool is, as ratios to alternatives measured in the same run."""

from __future__ import annotations

import os
import random
import sys
import tempfile
from pathlib import Path

from tests.bench.timing import compare, process
from tfrtool.examples.example import DType, Feature, encode_example
from tfrtool.records.crc import crc32c
from tfrtool.records.framing import FRAME_SIZE, Record, frame
from tfrtool.records.reader import read_records


def _write_shard(path: Path, record_bytes: int, total_bytes: int) -> int:
    """Write a shard of random images, as Examples; return the number of records."""
    noise = random.Random(0)
    count = total_bytes // record_bytes
    with path.open("wb") as file:
        for number in range(count):
            image = Feature(dtype=DType.STRING, values=(noise.randbytes(record_bytes),))
            label = Feature(dtype=DType.INT64, values=(number % 2,))
            file.write(frame(encode_example({"image": image, "label": label})))
    return count


def _read_ours(path: Path) -> int:
    size = 0
    with path.open("rb") as file:
        for item in read_records(file):
            assert isinstance(item, Record), item
            size += len(item.payload)
    return size


def _read_tf_data(path: Path) -> int:
    import tensorflow as tf

    return sum(len(record) for record in tf.data.TFRecordDataset(str(path)).as_numpy_iterator())


def _read_crc_only(path: Path) -> int:
    """Compute the CRCs of the same bytes in memory, with nothing else around them."""
    data = path.read_bytes()
    size = offset = 0
    while offset < len(data):
        length = int.from_bytes(data[offset : offset + 8], "little")
        crc32c(data[offset + 12 : offset + 12 + length])
        size += length
        offset += FRAME_SIZE + length
    return size


def main() -> None:
    """Run all benchmarks and print their ratios."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    with tempfile.TemporaryDirectory() as directory:
        photographs, rows = Path(directory) / "photographs.tfrecord", Path(directory) / "rows"
        _write_shard(photographs, 25_000, 150_000_000)
        _write_shard(rows, 400, 20_000_000)
        small = Path(directory) / "small.tfrecord"
        _write_shard(small, 25_000, 2_500_000)
        python = sys.executable
        print(
            compare(
                "inspect shard, 100 records of 25 kB (ours) and import tensorflow (theirs)",
                process(python, "-m", "tfrtool", "inspect", "shard", str(small)),
                process(python, "-c", "import tensorflow"),
            )
        )
        for name, path in (("25 kB", photographs), ("400 bytes", rows)):
            print(
                compare(
                    f"reading records of {name} with all CRCs (ours) and tf.data (theirs)",
                    lambda path=path: _read_ours(path),  # type: ignore[misc]
                    lambda path=path: _read_tf_data(path),  # type: ignore[misc]
                )
            )
        print(
            compare(
                "reading records of 25 kB (ours) and google_crc32c alone, from memory (theirs)",
                lambda: _read_ours(photographs),
                lambda: _read_crc_only(photographs),
            )
        )


if __name__ == "__main__":
    main()
