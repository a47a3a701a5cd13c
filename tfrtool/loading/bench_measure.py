"""Measuring a loader in this process, which should have done nothing of the kind before.

TensorFlow keeps memory that was freed. A pipeline that fills a cache where another one did before
pays for none of it, and would look better than it is in any real run.
"""

import contextlib
import gc
import os
import statistics
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from itertools import islice, pairwise

import tensorflow as tf

from tfrtool.engines.pool import busy_seconds
from tfrtool.loading.bench import OWN, OWN_UNCACHED, STAGES, UNCACHED, Numbers, StageRun
from tfrtool.loading.cache import own_memory
from tfrtool.loading.corrupt import naming_damage
from tfrtool.loading.dataset import Dataset, Split
from tfrtool.loading.decoding import (
    LARGE_RECORD,
    decoder,
    fast_image,
    full_image,
    parser,
)
from tfrtool.loading.options import Cache, Decoding, LoadOptions
from tfrtool.loading.pipeline import count_images, load
from tfrtool.loading.published import load_published, load_uncached
from tfrtool.loading.reading import part_reader, split_records
from tfrtool.loading.tensors import Batch, TfDataset
from tfrtool.storage.opening import open_regular

_TINY = 16
_PARTS_IMAGES = 256
_CYCLE = 4
"""Shards that are read at a time while they are not in the page cache, as our pipeline does it."""


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
    with naming_damage(dataset, options.split):
        _go_through(_build(small, replace(options, image_size=_TINY), stage))
        # One collection of all that TensorFlow's import made takes 0.3 s. It would come anyway, and
        # fall to whichever pipeline is under way.
        gc.collect()
        gc.freeze()
        before = own_memory("VmHWM")
        at_once = stage in (OWN, OWN_UNCACHED)
        runs: list[Numbers] = []
        start = _now()
        batches = _build(dataset, replace(options, epochs=epochs) if at_once else options, stage)
        whole = iter(batches) if at_once else None
        steps = int(batches.cardinality()) // epochs
        for _ in range(epochs):
            iterator = iter(batches) if whole is None else islice(whole, steps)
            images, labels = _go_through(iterator)
            del iterator  # here the published pipeline waits for its tuner's sleep
            end = _now()
            runs.append(_numbers(images, start, end))
            start = _now()
    memory = own_memory("VmHWM") - before
    return StageRun(images=images, labels=labels, epochs=tuple(runs), memory=memory)


def _now() -> tuple[float, float, float | None]:
    return time.perf_counter(), time.process_time(), busy_seconds()


def _numbers(
    images: int, start: tuple[float, float, float | None], end: tuple[float, float, float | None]
) -> Numbers:
    """Return the numbers of an epoch between two times of `_now`."""
    wall, cpu = end[0] - start[0], end[1] - start[1]
    numbers = {"images_per_second": images / wall, "cpu_ms_per_image": cpu / images * 1e3}
    if start[2] is not None and end[2] is not None:
        numbers["other_cores"] = max(end[2] - start[2] - cpu, 0.0) / wall
    return numbers


def _build(dataset: Dataset, options: LoadOptions, stage: str) -> TfDataset:
    if stage in (OWN, OWN_UNCACHED):
        return load(dataset, options if stage == OWN else replace(options, cache=Cache.NONE))
    if stage == UNCACHED:
        return load_uncached(dataset, options)
    does = frozenset(STAGES[1 : STAGES.index(stage) + 1])
    images = count_images(dataset, options)
    return load_published(dataset, replace(options, cache=Cache.NONE), images, does)


def _go_through(batches: Iterable[Batch]) -> tuple[int, int]:
    """Return the number of images, and the sum of their labels."""
    images, total = 0, 0
    for _, labels in batches:
        images += labels.shape[0]
        total += int(labels.numpy().sum())
    return images, total


def measure_parts(
    dataset: Dataset, options: LoadOptions, rounds: int
) -> tuple[Numbers, float | None, float]:
    """Return the CPU milliseconds of an image of each piece of work, with one thread.

    Each is what it adds to those before it. And return the milliseconds on the wall of reading
    an image from the disk itself, None where that can't be told, and the pixels of an image, the
    mean.
    """
    split = dataset.split(options.split)
    own = min(_PARTS_IMAGES, split.records)
    times = -(-_PARTS_IMAGES // own)
    fast = options.decode is Decoding.FAST
    large = split.record_bytes(range(len(split.shards))) > LARGE_RECORD
    parse = parser(dataset)
    decode = decoder(dataset, options.image_size, large=large, fast=fast)
    sized = partial(fast_image, least=options.image_size) if fast else full_image
    records = split_records(dataset, split).take(own)
    steps = {
        "reading": records,
        "parsing": records.map(parse),
        "decoding": records.map(lambda record: sized(dataset, parse(record))),
        "resizing": records.map(decode),
    }
    chosen = tf.data.Options()
    # One thread, and nothing fused or left out: then what a step adds is its own.
    chosen.autotune.enabled = False
    chosen.experimental_optimization.apply_default_optimizations = False
    # What it costs to start must not be told from so few that it counts: hence the repeats.
    consumers = [_consumer(step.repeat(times).with_options(chosen)) for step in steps.values()]
    seconds: list[list[float]] = [[] for _ in steps]
    with naming_damage(dataset, split.name):
        cold = _cold(split)
        shapes = records.map(lambda record: tf.shape(full_image(dataset, parse(record)))[:2])
        pixels = statistics.fmean(
            float(height * width) for height, width in shapes.as_numpy_iterator()
        )
        for number in range(rounds + 1):
            for which, consume in enumerate(consumers):
                start = time.process_time()
                consume()
                if number:  # the first time makes buffers, and is left out
                    seconds[which].append(time.process_time() - start)
    upto = [0.0, *(statistics.median(some) / own / times * 1e3 for some in seconds)]
    added = (max(after - before, 0.0) for before, after in pairwise(upto))
    return dict(zip(steps, added, strict=True)), cold, pixels


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
    consume = _consumer(files.interleave(read, cycle_length=cycle, num_parallel_calls=cycle))
    start = time.perf_counter()
    count = consume()
    return (time.perf_counter() - start) / max(count, 1) * 1e3
