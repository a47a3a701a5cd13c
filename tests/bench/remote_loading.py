"""Loading from s3://, against moto: seconds and bytes of each epoch, beside local files.

``python -m tests.bench.remote_loading [PHOTOGRAPHS [MILLISECONDS]]``. The store is a Python program
on the same machine, whose answers may be delayed. Images are decoded anew in each epoch.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import tfrtool
from tests.bench.photographs import make_photographs
from tests.emulators import Bucket, Emulators, Misbehaviour

__all__ = ["run"]

_SHARDS = 16
_EPOCHS = 3


def _epochs(dataset: tfrtool.Dataset, bucket: Bucket, cache: str) -> Iterator[str]:
    """Yield seconds and bytes of each epoch of one iterator, as `tfrtool train` has it."""
    start = time.perf_counter()
    bucket.forget()
    batches = dataset.load(image_size=160, epochs=_EPOCHS, cache=cache)
    iterator, steps = iter(batches), int(batches.cardinality()) // _EPOCHS
    for _ in range(_EPOCHS):
        labels = sum(int(labels.numpy().sum()) for _, labels in islice(iterator, steps))
        seconds, start = time.perf_counter() - start, time.perf_counter()
        requests = sum(bucket.requests().values())
        yield f"{seconds:6.2f} s {bucket.down() / 1e6:7.2f} MB {requests:4} requests ({labels})"
        bucket.forget()


def run(directory: Path, photographs: int = 1000, delay: float = 0.0) -> Iterator[str]:
    """Yield a line for each dataset and cache."""
    source = make_photographs(directory / "photographs", photographs)
    local = directory / "pets"
    tfrtool.write(source, local, shards=_SHARDS, check="header")
    whole = sum(path.stat().st_size for path in local.glob("*.tfrecord*"))
    yield f"{photographs} photographs, {whole / 1e6:.2f} MB in {_SHARDS} shards; {_EPOCHS} epochs"
    stores = Emulators()
    try:
        bucket = stores.bucket()
        os.environ.update(bucket.environment)
        bucket.put_folder(local, "pets/")
        bucket.misbehave(Misbehaviour(delay=delay))
        url = f"{bucket.url}/pets"
        for _ in _epochs(tfrtool.dataset(local), bucket, "none"):  # starts TensorFlow
            pass
        for name, cache in (("decoded anew", "none"), ("cache in memory", "memory")):
            yield f"{name}, local: " + ", ".join(_epochs(tfrtool.dataset(local), bucket, cache))
            with tempfile.TemporaryDirectory(dir=directory) as folder:
                opened = time.perf_counter()
                dataset = tfrtool.dataset(url, shard_cache=folder)
                shown = f"s3 (opened in {time.perf_counter() - opened:.2f} s)"
                yield f"{name}, {shown}: " + ", ".join(_epochs(dataset, bucket, cache))
    finally:
        stores.end()


def main() -> None:
    """Print what `run` yields."""
    numbers = [int(word) for word in sys.argv[1:]]
    with tempfile.TemporaryDirectory() as directory:
        delay = numbers[1] / 1000 if len(numbers) > 1 else 0.0
        for line in run(Path(directory), numbers[0] if numbers else 1000, delay):
            print(line, flush=True)


if __name__ == "__main__":
    main()
