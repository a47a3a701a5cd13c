"""Loading photographs for training: our pipeline against the published one of the notebooks.

Each measurement has a process of its own, and the two pipelines take turns. A process first runs
a few records through the same kind of pipeline, so that starting TensorFlow's threads is not
counted; building the pipeline is. Of the published pipeline, an epoch ends when its iterator is
gone; ours goes through all epochs with one iterator, as ``tfrtool train`` does.

``python -m tests.bench.loading --rounds 1 --records 1000`` is a short run, for tuning.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from tests.bench.photographs import make_photographs
from tfrtool.images.recipe import Check, Encode, ImageRecipe, Resize
from tfrtool.writing.write import write_dataset
from tfrtool.writing.write_options import WriteOptions

__all__ = ["Run", "measure", "run", "work"]

_PHOTOGRAPHS = 1000
_SHARDS = 8
_SIZE = 224
_LATER = 3
_SAME_MEAN = 0.002
"""Of pixels from 0 to 1; ours are rounded to whole 255ths, so that the mean is hardly moved."""
_LIKE_MEAN = 0.01
"""The same for images that Pillow has resized, which takes more pixels into account."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What a process measured.

    Attributes:
        images: in an epoch.
        first: wall and CPU seconds of the first epoch, building and ending it included.
        system: how many of those CPU seconds the kernel took, most of them for fresh memory.
        ending: how many of those passed between the last batch and the end of the iterator.
        later: the same as `first` of later epochs, each with a new iterator.
        memory: growth of the resident memory by the end of the first epoch, in bytes.
        labels: the sum of all labels.
        mean: of all pixels, from 0 to 1.
    """

    images: int
    first: tuple[float, float]
    system: float
    ending: float
    later: Sequence[tuple[float, float]]
    memory: int
    labels: int
    mean: float

    def first_cpu(self) -> float:
        """Return the CPU milliseconds of an image in the first epoch."""
        return self.first[1] / self.images * 1e3

    def later_cpu(self) -> float:
        """Return the CPU milliseconds of an image in later epochs."""
        return statistics.median(cpu for _, cpu in self.later) / self.images * 1e3


def run(
    directory: Path, rounds: int = 3, records: Sequence[int] = (1000, 2000, 4000)
) -> Iterator[str]:
    """Yield what the issue promises, line by line.

    Args:
        directory: a place for photographs and shards.
        rounds: how often each pipeline is measured for each number of records.
        records: multiples of 1,000; the shards are read that often.

    Raises:
        RuntimeError: the pipelines don't give the same images.
    """
    photographs = make_photographs(directory / "photographs", _PHOTOGRAPHS)
    jpeg = _write(photographs, directory / "jpeg", ImageRecipe(check=Check.HEADER))
    ratios: list[float] = []
    runs: dict[str, list[list[Run]]] = {"tfrtool": [], "notebook": []}
    for count in records:
        times = count // _PHOTOGRAPHS
        ours, theirs = _in_turn((jpeg, "tfrtool"), (jpeg, "notebook"), times, rounds)
        runs["tfrtool"].append(ours)
        runs["notebook"].append(theirs)
        ratios.append(_wall(theirs) / _wall(ours))
        yield f"{count:,} photographs at {_SIZE} px, {rounds} runs each: tfrtool, notebook"
        yield from _compared(ours, theirs)
        yield f"  first epoch, wall, notebook / tfrtool: {ratios[-1]:.2f}"
    yield f"first epoch, images a second, tfrtool / notebook: {statistics.median(ratios):.2f} (1.3)"
    if len(records) > 1:
        per_image = [_slope(of_one) for of_one in runs.values()]
        yield f"memory of the cache, bytes an image: {_pair(per_image)} (0.26)"

    size = Resize(width=_SIZE, height=_SIZE)
    recipe = ImageRecipe(check=Check.HEADER, encode=Encode.RAW, resize=size)
    raw = _write(photographs, directory / "raw", recipe)
    yield f"--encode raw --resize {_SIZE}x{_SIZE}, nothing cached: tfrtool from raw, from JPEG"
    for count in (records[0], records[-1]):
        times = count // _PHOTOGRAPHS
        runs_of = _in_turn((raw, "uncached"), (jpeg, "uncached"), times, rounds)
        for name, cost in (("first epoch", Run.first_cpu), ("later epochs", Run.later_cpu)):
            cpu = [_median(map(cost, some)) for some in runs_of]
            yield f"  {count:,} photographs, {name}, CPU an image: {cpu[0]:.3f} ms, {cpu[1]:.3f} ms"
            yield f"    JPEG / raw: {cpu[1] / cpu[0]:.2f} (4)"


def _in_turn(
    one: tuple[Path, str], other: tuple[Path, str], times: int, rounds: int
) -> tuple[list[Run], list[Run]]:
    """Measure two datasets and recipes in turn, each of them first in every other round."""
    runs: tuple[list[Run], list[Run]] = ([], [])
    for number in range(rounds):
        for which in (0, 1) if number % 2 == 0 else (1, 0):
            directory, recipe = (one, other)[which]
            runs[which].append(measure(directory, recipe, times))
        _check_same(runs[0][-1], runs[1][-1], _SAME_MEAN if one[0] == other[0] else _LIKE_MEAN)
    return runs


def _compared(ours: Sequence[Run], theirs: Sequence[Run]) -> Iterator[str]:
    both = (ours, theirs)
    rates = ", ".join(f"{runs[0].images / _wall(runs):7.1f}" for runs in both)
    yield f"  first epoch, images a second     {rates}"
    ends = ", ".join(f"{_median(run.ending for run in runs):7.3f}" for runs in both)
    yield f"    of it, seconds after last batch {ends}"
    cpu = [_median(run.first_cpu() for run in runs) for runs in both]
    yield f"  first epoch, CPU ms an image     {_pair(cpu)} (1)"
    cpu = [_median(run.system / run.images * 1e3 for run in runs) for runs in both]
    yield f"    of it, in the kernel           {_pair(cpu)}"
    cpu = [_median(run.later_cpu() for run in runs) for runs in both]
    yield f"  later epochs, CPU ms an image    {_pair(cpu)} (1)"
    memory = [_median(run.memory / 2**20 for run in runs) for runs in both]
    yield f"  growth of resident memory, MiB   {_pair(memory)}"


def _slope(runs: Sequence[Sequence[Run]]) -> float:
    """Return the bytes by which memory grows with an image: what a process has anyway is out."""
    few, many = runs[0], runs[-1]
    growth = _median(run.memory for run in many) - _median(run.memory for run in few)
    return growth / (many[0].images - few[0].images)


def _pair(values: Sequence[float]) -> str:
    ours, theirs = values
    return f"{ours:10,.3f}, {theirs:10,.3f}; tfrtool / notebook: {ours / theirs:.3f}"


def _median(values: Iterable[float]) -> float:
    return statistics.median(values)


def _wall(runs: Sequence[Run]) -> float:
    return statistics.median(run.first[0] for run in runs)


def _check_same(ours: Run, theirs: Run, tolerance: float) -> None:
    same = (ours.images, ours.labels) == (theirs.images, theirs.labels)
    if not same or abs(ours.mean - theirs.mean) > tolerance:
        raise RuntimeError(f"the images differ:\n{ours}\n{theirs}")


def _write(photographs: Path, dataset: Path, recipe: ImageRecipe) -> Path:
    options = WriteOptions(source=photographs, dataset=dataset, shards=_SHARDS, recipe=recipe)
    write_dataset(options)
    return dataset


def measure(directory: Path, recipe: str, times: int) -> Run:
    """Measure a pipeline in a process of its own.

    Args:
        directory: the dataset.
        recipe: which pipeline: tfrtool, uncached (ours, but for its cache), notebook or naive.
        times: how often its shards are read in an epoch.
    """
    code = "import sys; from tests.bench.loading import work; work(*sys.argv[1:])"
    command = [sys.executable, "-c", code, str(directory), recipe, str(times)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"measuring {recipe} failed:\n{done.stderr}")
    return Run(**json.loads(done.stdout))


def work(directory: str, recipe: str, times: str) -> None:
    """Measure a pipeline in this process, and print a `Run` as JSON."""
    from tfrtool.loading.dataset.dataset import open_dataset
    from tfrtool.loading.pipeline.load_options import Cache, LoadOptions, Recipe
    from tfrtool.loading.pipeline.pipeline import load

    dataset = open_dataset(Path(directory))
    cache = Cache.MEMORY if recipe == "tfrtool" else Cache.NONE
    # Ours goes through all epochs with one iterator, as train does; the published pipeline is read
    # as Keras' fit reads it, with a new one for each.
    at_once = recipe in ("tfrtool", "uncached")
    which = Recipe.TFRTOOL if at_once else Recipe(recipe)
    epochs = 1 + _LATER if at_once else 1
    options = LoadOptions(image_size=_SIZE, recipe=which, cache=cache, epochs=epochs)
    split = dataset.split(options.split)
    long = replace(split, shards=split.shards * int(times), lengths=split.lengths * int(times))
    # Starts threads, and loads what is loaded on first use; too small to leave memory behind that
    # the measured epochs could use again.
    few = replace(split, shards=split.shards[:1], lengths=split.lengths[:1])
    for _ in load(replace(dataset, splits={options.split: few}), replace(options, image_size=16)):
        pass
    before = _resident()
    start, system = _Clock(), os.times().system
    batches = load(replace(dataset, splits={options.split: long}), options)
    steps = -(-long.records // options.batch_size)
    epochs_left = iter(batches) if at_once else None

    def epoch() -> tuple[int, float]:
        return _whole(batches) if epochs_left is None else (_next(epochs_left, steps), 0.0)

    images, ending = epoch()
    first = start.passed()
    system = os.times().system - system
    memory = _resident() - before
    later = []
    for _ in range(_LATER):
        start = _Clock()
        epoch()
        later.append(start.passed())
    batches = batches.take(steps)
    labels, mean = _contents(batches, images)
    result = Run(
        images=images,
        first=first,
        system=system,
        ending=ending,
        later=later,
        memory=memory,
        labels=labels,
        mean=mean,
    )
    print(json.dumps(asdict(result)))


class _Clock:
    """Counts wall and CPU seconds from its making on."""

    def __init__(self) -> None:
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    def passed(self) -> tuple[float, float]:
        """Return the wall and CPU seconds so far."""
        return time.perf_counter() - self._wall, time.process_time() - self._cpu


def _next(batches: Iterator[Any], steps: int) -> int:
    """Go on through an epoch; return how many images it had."""
    return sum(labels.shape[0] for _, labels in islice(batches, steps))


def _whole(batches: Any) -> tuple[int, float]:
    """Go through an epoch; return how many images it had, and how long its iterator took to go."""
    images = 0
    iterator = iter(batches)
    for _, labels in iterator:
        images += labels.shape[0]
    last = time.perf_counter()
    del iterator
    return images, time.perf_counter() - last


def _contents(batches: Any, images: int) -> tuple[int, float]:
    labels, mean = 0, 0.0
    for pixels, numbers in batches:
        labels += int(numbers.numpy().sum())
        mean += float(pixels.numpy().mean()) * len(numbers) / images
    return labels, mean


def _resident() -> int:
    """Return the resident memory of this process, in bytes, without what is free inside it."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    status = Path("/proc/self/status").read_text("ascii")
    found = re.search(r"VmRSS:\s+(\d+) kB", status)
    if found is None:
        raise RuntimeError("this system does not tell a process' memory")
    return int(found[1]) * 1024


def _main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.loading")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--records", type=int, nargs="+", default=[1000, 2000, 4000])
    options = parser.parse_args()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    with tempfile.TemporaryDirectory() as directory:
        for line in run(Path(directory), options.rounds, options.records):
            print(line, flush=True)


if __name__ == "__main__":
    _main()
