"""Measuring the work on a record piece by piece, in one thread, so that it can be told apart."""

from __future__ import annotations

import contextlib
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf

from tfrtool.examples.example import DType, Feature, encode_example
from tfrtool.loading.bench.bench_tasks import PartsRun, PartsTask
from tfrtool.loading.dataset.dataset import Dataset, Split, open_dataset
from tfrtool.loading.dataset.forms import ImageEncoding
from tfrtool.loading.pipeline.decode import decoder, full_image, parser
from tfrtool.loading.pipeline.reading import shard_paths, shard_reader, split_records
from tfrtool.records.framing import frame
from tfrtool.storage.opening import open_regular

__all__ = ["measure_parts"]

_CYCLE = 4
"""Shards that are read at a time while they are not in the page cache, as our pipeline does it."""


def measure_parts(task: PartsTask) -> PartsRun:
    """Measure reading, parsing, decoding and resizing, each as what it adds to those before it."""
    dataset, size = task.dataset, task.options.image_size
    split = dataset.split(task.options.split)
    cold = _cold(split)
    own = min(task.images, split.records)
    times = -(-task.images // own)
    images = own * times
    parse, decode = parser(dataset), decoder(dataset, size)
    records = split_records(dataset, split).take(own)
    steps = [
        records,
        records.map(parse),
        records.map(lambda record: full_image(dataset, parse(record))),
        records.map(decode),
    ]
    with tempfile.TemporaryDirectory(prefix="tfrtool-bench-") as directory:
        if dataset.image_form.encoding is ImageEncoding.ENCODED:
            raw = _write_raw(records.map(decode), Path(directory))
            raw_split = raw.split("train")
            raw_records = split_records(raw, raw_split)
            steps.append(raw_records.map(decoder(raw, size)))
        # What it costs to start must not be told from so few that it counts.
        steps = [step.repeat(times) for step in steps]
        cpu = [seconds / images for seconds in _cpu_of(steps, images, task.rounds)]
    reading, parsing, decoding, resizing = (
        max(upto - before, 0.0) for before, upto in zip([0.0, *cpu[:3]], cpu[:4], strict=True)
    )
    return PartsRun(
        reading=reading,
        parsing=parsing,
        decoding=decoding,
        resizing=resizing,
        raw=cpu[4] if len(cpu) > 4 else None,
        cold=cold,
        images=images,
    )


def _cpu_of(steps: Sequence[Any], images: int, rounds: int) -> list[float]:
    """Return the CPU seconds of going through each of some datasets: the median of some times."""
    options = tf.data.Options()
    # One thread, and nothing fused or left out: then what a step adds is its own.
    options.autotune.enabled = False
    options.experimental_optimization.apply_default_optimizations = False
    consumers = [_consumer(step.with_options(options)) for step in steps]
    times: list[list[float]] = [[] for _ in steps]
    for number in range(rounds + 1):
        for which, consume in enumerate(consumers):
            start = time.process_time()
            if consume() != images:
                raise RuntimeError("the records of a shard changed while they were read")
            if number:  # the first time makes buffers, and is left out
                times[which].append(time.process_time() - start)
    return [statistics.median(some) for some in times]


def _consumer(elements: Any) -> Callable[[], int]:
    """Return a function that goes through a dataset, without Python, and counts."""

    @tf.function  # type: ignore[untyped-decorator]
    def consume() -> Any:
        return elements.reduce(tf.constant(0, tf.int64), lambda count, *_: count + 1)

    return lambda: int(consume())


def _cold(split: Split) -> float | None:
    """Read the shards once they are out of the page cache; return the seconds of a record."""
    if not hasattr(os, "posix_fadvise"):
        return None
    for path in split.shards:
        with contextlib.suppress(OSError), open_regular(path) as file:
            os.fsync(file.fileno())  # only what is on the disk can leave the page cache
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    cycle = min(_CYCLE, len(split.shards))
    files = tf.data.Dataset.from_tensor_slices(shard_paths(split))
    records = files.interleave(shard_reader(split), cycle_length=cycle, num_parallel_calls=cycle)
    consume = _consumer(records)
    start = time.perf_counter()
    count = consume()
    return (time.perf_counter() - start) / max(count, 1)


def _write_raw(decoded: Any, directory: Path) -> Dataset:
    """Write images as ``tfrtool write --encode raw`` does, and open them as a dataset."""
    with (directory / "raw-train.tfrecord-00000-of-00001").open("wb") as file:
        for image, label in decoded.as_numpy_iterator():
            height, width, channels = image.shape
            sides = {"height": height, "width": width, "channels": channels}
            features = {
                f"image/{name}": Feature(dtype=DType.INT64, values=(side,))
                for name, side in sides.items()
            }
            features["image"] = Feature(dtype=DType.STRING, values=(image.tobytes(),))
            features["label"] = Feature(dtype=DType.INT64, values=(int(label),))
            file.write(frame(encode_example(features)))
    return open_dataset(directory)
