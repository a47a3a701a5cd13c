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
from tfrtool.loading.bench import Measurement, busy_warning, measure_in_turn, run_epochs
from tfrtool.loading.options import LoadOptions

__all__ = ["run"]

_PHOTOGRAPHS, _TIMES = 1000, 4
"""The shards of 1,000 photographs are read so often in an epoch."""
_SIZE = int(os.environ.get("TFRTOOL_PIXELS", "224"))
_EPOCHS, _ROUNDS = 3, 3
_RATIOS = (
    ("filling the cache", "tfrtool", "notebook", False, 0.8),
    ("filling the cache", "tfrtool", "guide", False, 1.15),
    ("without a cache", "uncached", "guide", True, 1.0),
    ("from the cache, an iterator an epoch", "tfrtool", "notebook", True, 1.3),
    ("from the cache, one iterator", "tfrtool one", "notebook one", True, 1.0),
    ("pixels beside JPEGs, without a cache", "raw", "uncached", True, 0.25),
)
"""What is done, ours, theirs, whether in later epochs, and the highest ratio of CPU times."""


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
    notebook, cached = replace(plain, recipe="notebook"), replace(plain, cache="memory")
    paths = [os.fspath(path) for path in images.split("train").shards]
    tasks = {
        "notebook": partial(run_epochs, images, notebook, _EPOCHS),
        "notebook one": partial(run_epochs, images, replace(notebook, epochs=_EPOCHS), _EPOCHS),
        "tfrtool": partial(run_epochs, images, cached, _EPOCHS),
        "tfrtool one": partial(run_epochs, images, replace(cached, epochs=_EPOCHS), _EPOCHS),
        "guide": partial(guide_epochs, paths, _SIZE, _EPOCHS),
        "uncached": partial(run_epochs, images, plain, _EPOCHS),
        "raw": partial(run_epochs, raws, plain, _EPOCHS),
    }
    warm_up = partial(run_epochs, short, replace(plain, image_size=16), 1)
    runs, _ = measure_in_turn(directory, tasks, _ROUNDS, warm_up=warm_up)
    count = images.split("train").records
    yield f"{count:,} images at {_SIZE} px, medians of {_ROUNDS} runs, in ms an image"
    for name, measured in runs.items():
        costs = [cost(measured, later, which) for later in (False, True) for which in (3, 2)]
        first, later = (f"CPU {cpu:.3f} wall {wall:.3f}" for cpu, wall in (costs[:2], costs[2:]))
        yield f"  {name:12} first {first}, later {later}; {memory(measured):,.0f} MiB"
    for what, ours, theirs, is_later, bound in _RATIOS:
        cpu, wall = (
            cost(runs[ours], is_later, n) / cost(runs[theirs], is_later, n) for n in (3, 2)
        )
        yield f"{what}, {ours} / {theirs}: CPU {cpu:.2f} ({bound}), wall {wall:.2f}"
    ratio = memory(runs["tfrtool"]) / memory(runs["notebook"])
    yield f"memory, tfrtool / notebook: {ratio:.2f} (0.3)"
    yield busy_warning([run for measured in runs.values() for run in measured]) or "a quiet machine"


def cost(runs: Sequence[Measurement], later: bool, which: int) -> float:
    """Return the median time of an image in first or later epochs, in ms: 2 wall, 3 CPU."""
    chosen = slice(1, None) if later else slice(1)
    epochs = [epoch for run in runs for epoch in run.result[chosen]]
    return float(statistics.median(epoch[which] / epoch[0] * 1e3 for epoch in epochs))


def memory(runs: Sequence[Measurement]) -> float:
    """Return the median growth of a process at its peak, in MiB."""
    return statistics.median((run.memory_bytes or 0) / 2**20 for run in runs)
