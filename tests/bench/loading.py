"""Loading photographs: our pipeline against those that notebooks and TensorFlow's guide publish.

All take turns, each run in a process of its own. ``TFRTOOL_PHOTOGRAPHS`` may name a folder of
photographs, a class a folder, instead of made ones.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import tfrtool
from tests.bench.photographs import make_photographs
from tfrtool.loading.bench import Measurement, measure_in_turn, run_epochs
from tfrtool.loading.options import LoadOptions

__all__ = ["run"]

_PHOTOGRAPHS, _TIMES = 1000, 4
"""The shards of 1,000 photographs are read so often in an epoch."""
_SIZE = int(os.environ.get("TFRTOOL_PIXELS", "180"))
_EPOCHS, _ROUNDS = 3, 3


def guide_epochs(
    paths: Sequence[str], size: int, epochs: int
) -> list[tuple[int, int, float, float]]:
    """Load as TensorFlow's guide does without a cache; return what `run_epochs` does."""
    import tensorflow as tf

    features = {
        "image": tf.io.FixedLenFeature([], tf.string),
        "label": tf.io.FixedLenFeature([], tf.int64),
    }

    def decode(record: Any) -> Any:
        parsed = tf.io.parse_single_example(record, features)
        image = tf.image.resize(tf.io.decode_jpeg(parsed["image"], 3), (size, size))
        return image / 255, parsed["label"]

    tuned, costs = tf.data.AUTOTUNE, []
    files = tf.data.Dataset.from_tensor_slices(list(paths)).shuffle(len(paths))
    records = files.interleave(tf.data.TFRecordDataset, cycle_length=4, num_parallel_calls=tuned)
    records = records.shuffle(1024)
    batches = records.map(decode, num_parallel_calls=tuned).batch(32).prefetch(tuned)
    for _ in range(epochs):
        start, cpu = time.perf_counter(), time.process_time()
        counts = [(len(labels), int(labels.numpy().sum())) for _, labels in batches]
        images, total = (sum(numbers) for numbers in zip(*counts, strict=True))
        costs.append((images, total, time.perf_counter() - start, time.process_time() - cpu))
    return costs


def repeated(dataset: tfrtool.Dataset) -> tfrtool.Dataset:
    """Return a dataset whose shards are read several times in an epoch."""
    split = dataset.split("train")
    times = replace(split, shards=split.shards * _TIMES, lengths=split.lengths * _TIMES)
    return replace(dataset, splits={"train": times})


def run(directory: Path) -> Iterator[str]:
    """Yield what each pipeline takes, and the ratios that must hold, line by line."""
    source = os.environ.get("TFRTOOL_PHOTOGRAPHS")
    photographs = Path(source or make_photographs(directory / "photographs", _PHOTOGRAPHS))
    jpeg, raw = directory / "jpeg", directory / "raw"
    tfrtool.write(photographs, jpeg, shards=8, check="header")
    tfrtool.write(photographs, raw, shards=8, check="header", encode="raw", resize=(_SIZE, _SIZE))
    short = tfrtool.dataset(jpeg)
    images, raws = repeated(short), repeated(tfrtool.dataset(raw))
    plain = LoadOptions(image_size=_SIZE)
    paths = [os.fspath(path) for path in images.split("train").shards]
    tasks = {
        "notebook": partial(run_epochs, images, replace(plain, recipe="notebook"), _EPOCHS),
        "tfrtool": partial(run_epochs, images, replace(plain, cache="memory"), _EPOCHS),
        "guide": partial(guide_epochs, paths, _SIZE, _EPOCHS),
        "uncached": partial(run_epochs, images, plain, _EPOCHS),
        "fast": partial(run_epochs, images, replace(plain, decode="fast"), _EPOCHS),
        "raw": partial(run_epochs, raws, plain, _EPOCHS),
    }
    warm_up = partial(run_epochs, short, replace(plain, image_size=16), 1)
    runs, _ = measure_in_turn(directory, tasks, _ROUNDS, warm_up=warm_up)
    yield f"{images.split('train').records:,} images at {_SIZE} px, medians of {_ROUNDS} runs"
    for name, some in runs.items():
        costs = f"{cpu(some):.3f} ms, later {cpu(some, later=True):.3f} ms"
        yield f"  {name:8} CPU an image: {costs}; {memory(some):,.0f} MiB"
    ours, theirs = runs["tfrtool"], runs["notebook"]
    yield f"first epoch, tfrtool / notebook: {cpu(ours) / cpu(theirs):.2f} (1)"
    later = cpu(ours, later=True) / cpu(theirs, later=True)
    yield f"later epochs, tfrtool / notebook: {later:.2f} (1)"
    yield f"memory, tfrtool / notebook: {memory(ours) / memory(theirs):.2f} (0.3)"
    for first, second, bound in (("uncached", "guide", 1.1), ("raw", "uncached", 0.25)):
        one, other = (cpu(runs[name], later=True) for name in (first, second))
        yield f"without a cache, {first} / {second}: {one / other:.2f} ({bound})"


def cpu(runs: Sequence[Measurement], *, later: bool = False) -> float:
    """Return the median CPU time of an image in first or later epochs, in ms."""
    chosen = slice(1, None) if later else slice(1)
    epochs = [epoch for run in runs for epoch in run.result[chosen]]
    return float(statistics.median(used / images * 1e3 for images, _, _, used in epochs))


def memory(runs: Sequence[Measurement]) -> float:
    """Return the median growth of a process at its peak, in MiB."""
    return statistics.median((run.memory_bytes or 0) / 2**20 for run in runs)
