"""Shards to measure with: seeded, so that every run reads the same bytes."""

from __future__ import annotations

import gzip
import os
import random
from pathlib import Path

from tfrtool.examples.example import DType, Feature, encode_example
from tfrtool.records.framing import FRAME_SIZE, frame

__all__ = ["write_long_shards", "write_shard"]


def write_shard(path: Path, record_bytes: int, total_bytes: int, spread: float = 0.0) -> int:
    """Write a shard of Examples with random bytes for images; return the number of records.

    Args:
        path: where to.
        record_bytes: the mean size of an image, in bytes.
        total_bytes: of all images, roughly.
        spread: how far sizes go up and down from the mean, as a part of it.
    """
    noise = random.Random(0)
    count = total_bytes // record_bytes
    with path.open("wb") as file:
        for number in range(count):
            size = round(record_bytes * (1 + spread * noise.uniform(-1, 1)))
            image = Feature(dtype=DType.STRING, values=(noise.randbytes(size),))
            label = Feature(dtype=DType.INT64, values=(number % 2,))
            file.write(frame(encode_example({"image": image, "label": label})))
    _as_from_disk(path)
    return count


def _as_from_disk(path: Path) -> None:
    """Have the page cache hold a file as a reader of the disk leaves it there, not as its writer.

    The kernel keeps what was written in pieces in small pages, which cost more to read.
    """
    if not hasattr(os, "posix_fadvise"):
        return
    with path.open("rb", buffering=0) as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        while file.read(1 << 20):
            pass


def write_long_shards(plain: Path, packed: Path, total_bytes: int) -> int:
    """Write a long shard twice, plain and as gzip, from one block of records over and over.

    Returns:
        The number of records in each.
    """
    noise = random.Random(1)
    records = []
    for number in range(40):
        image = Feature(dtype=DType.STRING, values=(noise.randbytes(12_500).hex().encode(),))
        label = Feature(dtype=DType.INT64, values=(number % 2,))
        records.append(frame(encode_example({"image": image, "label": label})))
    block = b"".join(records)
    member = gzip.compress(block, 1)
    times = total_bytes // (len(block) - FRAME_SIZE * len(records))
    with plain.open("wb") as file, packed.open("wb") as other:
        # A gzip file may have many members: the same as one, to every reader of the format.
        for _ in range(times):
            file.write(block)
            other.write(member)
    return times * len(records)
