"""Measuring a loader in this process, which should have done nothing of the kind before.

TensorFlow keeps memory that was freed. A pipeline that fills a cache where another one did before
pays for none of it, and would look better than it is in any real run.
"""

from __future__ import annotations

import contextlib
import os
import re
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path

import tensorflow as tf

from tfrtool.examples.example import DType, Feature, encode_example
from tfrtool.loading.bench.bench_report import STAGES, Numbers, PartsRun, StageRun
from tfrtool.loading.dataset.dataset import Dataset, Split, open_dataset
from tfrtool.loading.dataset.forms import ImageEncoding
from tfrtool.loading.pipeline.decode import decoder, full_image, parser
from tfrtool.loading.pipeline.load_options import Cache, LoadOptions
from tfrtool.loading.pipeline.pipeline import count_images, load
from tfrtool.loading.pipeline.reading import part_reader, split_records
from tfrtool.loading.pipeline.recipes import load_published
from tfrtool.loading.pipeline.tensors import Batch, TfDataset
from tfrtool.records.framing import frame
from tfrtool.storage.opening import open_regular

__all__ = ["measure_parts", "measure_stage"]

_TINY = 16
_PARTS_IMAGES = 256
_CYCLE = 4
"""Shards that are read at a time while they are not in the page cache, as our pipeline does it."""
_TOO_SHORT = 0.1
"""Seconds; the kernel counts idle time in hundredths."""


def measure_stage(dataset: Dataset, options: LoadOptions, stage: str, epochs: int) -> StageRun:
    """Run a pipeline's epochs, 2 or more.

    The published pipelines have a new iterator for each, as Keras' ``fit`` makes them; ours has
    one for all of them, as ``tfrtool train`` has.
    """
    # Starts TensorFlow's threads, and loads what it loads on first use; tiny images leave no
    # memory behind that the measured epochs could use again.
    split = dataset.split(options.split)
    few = replace(split, shards=split.shards[:1], lengths=split.lengths[:1])
    small = replace(dataset, splits={split.name: few})
    _go_through(_build(small, replace(options, image_size=_TINY), stage))
    before = _start_watching_memory()
    at_once = stage == "tfrtool"
    runs: list[Numbers] = []
    start = _clocks()
    batches = _build(dataset, replace(options, epochs=epochs) if at_once else options, stage)
    whole = iter(batches) if at_once else None
    steps = int(batches.cardinality()) // epochs
    for _ in range(epochs):
        iterator = iter(batches) if whole is None else islice(whole, steps)
        images, labels, first = _go_through(iterator)
        last = time.perf_counter()
        del iterator  # here the published pipeline waits for its tuner's sleep
        end = _clocks()
        runs.append(_epoch(start, first, last, end, images))
        start = _clocks()
    memory = max(_kilobytes("VmHWM") - before, 0) * 1024
    return StageRun(images=images, labels=labels, epochs=tuple(runs), memory=memory)


def _epoch(start: Numbers, first: float, last: float, end: Numbers, images: int) -> Numbers:
    """Return an epoch's numbers, by the clocks around it and when its batches were there."""
    took = {name: end[name] - start[name] for name in start if name in end}
    seconds = took["wall"]
    epoch = {
        "seconds": seconds,
        "images_per_second": images / seconds,
        "cpu_ms_per_image": took["cpu"] / images * 1e3,
        "system_ms_per_image": took["system"] / images * 1e3,
        "first_batch_seconds": first - start["wall"],
        "ending_seconds": end["wall"] - last,
    }
    if "idle" in took and seconds >= _TOO_SHORT:
        epoch["idle_cores"] = took["idle"] / seconds
    return epoch


def _clocks() -> Numbers:
    """Return the seconds on the wall, of this process' CPU time, and that its cores were idle."""
    clocks = {"cpu": time.process_time(), "system": os.times().system, "wall": time.perf_counter()}
    with contextlib.suppress(OSError, ValueError, AttributeError):  # where they are not told
        lines = Path("/proc/stat").read_text("ascii").splitlines()
        own = {f"cpu{number}" for number in os.sched_getaffinity(0)}
        # proc(5): user, nice, system, idle, iowait; a core that waits for a disk is free, too.
        ticks = [sum(map(int, line.split()[4:6])) for line in lines if line.split()[0] in own]
        clocks["idle"] = sum(ticks) / os.sysconf("SC_CLK_TCK")
    return clocks


def _build(dataset: Dataset, options: LoadOptions, stage: str) -> TfDataset:
    if stage == "tfrtool":
        return load(dataset, options)
    does = frozenset(STAGES[1 : STAGES.index(stage) + 1])
    images = count_images(dataset, options)
    return load_published(dataset, replace(options, cache=Cache.NONE), images, does)


def _go_through(batches: Iterable[Batch]) -> tuple[int, int, float]:
    """Return the number of images, the sum of their labels, and when the first batch was there."""
    images, total, first = 0, 0, None
    for _, labels in batches:
        first = first or time.perf_counter()
        images += labels.shape[0]
        total += int(labels.numpy().sum())
    return images, total, first or time.perf_counter()


def _start_watching_memory() -> int:
    """Return the resident memory in kB, from which on its peak is watched."""
    try:
        # proc(5): 5 sets the peak back to what is resident now.
        Path("/proc/self/clear_refs").write_text("5", "ascii")
    except OSError:
        return _kilobytes("VmHWM")
    return _kilobytes("VmRSS")


def _kilobytes(name: str) -> int:
    """Return a value of /proc/self/status in kB; 0 where there is no such thing."""
    try:
        status = Path("/proc/self/status").read_text("ascii")
    except OSError:
        return 0
    found = re.search(rf"^{name}:\s+(\d+) kB", status, re.MULTILINE)
    return int(found[1]) if found else 0


def measure_parts(dataset: Dataset, options: LoadOptions, rounds: int) -> PartsRun:
    """Measure reading, parsing, decoding and resizing, each as what it adds to those before it."""
    split = dataset.split(options.split)
    cold = _cold(split)
    own = min(_PARTS_IMAGES, split.records)
    times = -(-_PARTS_IMAGES // own)
    images = own * times
    parse, decode = parser(dataset), decoder(dataset, options.image_size)
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
            raw_records = split_records(raw, raw.split("train"))
            steps.append(raw_records.map(decoder(raw, options.image_size)))
        # What it costs to start must not be told from so few that it counts.
        upto = _cpu_ms([step.repeat(times) for step in steps], images, rounds)
    names = ("reading", "parsing", "decoding", "resizing")
    added = [
        max(after - before, 0.0) for before, after in zip([0.0, *upto[:3]], upto[:4], strict=True)
    ]
    return PartsRun(
        cpu=dict(zip(names, added, strict=True)),
        raw=upto[4] if len(upto) > 4 else None,
        cold=cold,
        images=images,
    )


def _cpu_ms(steps: Sequence[TfDataset], images: int, rounds: int) -> list[float]:
    """Return the CPU milliseconds of an image of each of some datasets."""
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
    return [statistics.median(some) / images * 1e3 for some in times]


def _consumer(elements: TfDataset) -> Callable[[], int]:
    """Return a function that goes through a dataset, without Python, and counts."""
    count = tf.function(lambda: elements.reduce(tf.constant(0, tf.int64), lambda n, *_: n + 1))
    return lambda: int(count())


def _cold(split: Split) -> float | None:
    """Read the shards once they are out of the page cache; return the milliseconds of a record."""
    if not hasattr(os, "posix_fadvise"):
        return None
    for path in split.shards:
        with contextlib.suppress(OSError), open_regular(path) as file:
            os.fsync(file.fileno())  # only what is on the disk can leave the page cache
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    cycle = min(_CYCLE, len(split.shards))
    files, read = tf.data.Dataset.range(len(split.shards)), part_reader(None, split)
    records = files.interleave(read, cycle_length=cycle, num_parallel_calls=cycle)
    consume = _consumer(records)
    start = time.perf_counter()
    count = consume()
    return (time.perf_counter() - start) / max(count, 1) * 1e3


def _write_raw(decoded: TfDataset, directory: Path) -> Dataset:
    """Write images as ``tfrtool write --encode raw`` does, and open them as a dataset."""
    with (directory / "raw-train.tfrecord-00000-of-00001").open("wb") as file:
        for image, label in decoded.as_numpy_iterator():
            numbers = dict(zip(("height", "width", "channels"), image.shape, strict=True))
            features = {
                f"image/{name}": Feature(dtype=DType.INT64, values=(number,))
                for name, number in numbers.items()
            }
            features["image"] = Feature(dtype=DType.STRING, values=(image.tobytes(),))
            features["label"] = Feature(dtype=DType.INT64, values=(int(label),))
            file.write(frame(encode_example(features)))
    return open_dataset(directory)
