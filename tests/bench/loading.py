"""Loading photographs for training: our pipeline against the published one of the notebooks.

Each measurement is one of ``tfrtool bench``, in a process of its own, and two pipelines take turns.

``python -m tests.bench.loading --rounds 1 --records 1000`` is a short run, for tuning.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import tfrtool
from tests.bench.photographs import make_photographs
from tfrtool.loading.bench import StageRun, measure
from tfrtool.loading.dataset import Dataset
from tfrtool.loading.open_dataset import open_dataset
from tfrtool.loading.options import Cache, LoadOptions

__all__ = ["run"]

_PHOTOGRAPHS = 1000
_SHARDS = 8
_SIZE = 224
_EPOCHS = 4
_SAME_MEAN = 0.002
"""Of pixels from 0 to 1; ours are rounded to whole 255ths, so that the mean is hardly moved."""
_LIKE_MEAN = 0.01
"""The same for images that Pillow has resized, which takes more pixels into account."""

_PIPELINES = {
    "tfrtool": ("tfrtool", Cache.MEMORY),
    "uncached": ("tfrtool", Cache.NONE),
    "notebook": ("prefetch", Cache.NONE),
}
"""The stages of the benchmark, and where ours keep images."""


def run(
    directory: Path, rounds: int = 3, records: Sequence[int] = (1000, 2000, 4000)
) -> Iterator[str]:
    """Yield what each pipeline takes, and their ratios, line by line.

    Args:
        directory: a place for photographs and shards.
        rounds: how often each pipeline is measured for each number of records.
        records: multiples of 1,000; the shards are read that often.

    Raises:
        RuntimeError: the pipelines don't give the same images.
    """
    photographs = make_photographs(directory / "photographs", _PHOTOGRAPHS)
    jpeg = _write(photographs, directory / "jpeg", check="header")
    ratios: list[float] = []
    runs: dict[str, list[list[StageRun]]] = {"tfrtool": [], "notebook": []}
    for count in records:
        times = count // _PHOTOGRAPHS
        ours, theirs = _in_turn((jpeg, "tfrtool"), (jpeg, "notebook"), times, rounds)
        runs["tfrtool"].append(ours)
        runs["notebook"].append(theirs)
        ours_rate, their_rate = (_median_of(some, "images_per_second") for some in (ours, theirs))
        ratios.append(ours_rate / their_rate)
        yield f"{count:,} photographs at {_SIZE} px, {rounds} runs each: tfrtool, notebook"
        yield from _compared(ours, theirs)
        yield f"  first epoch, wall, notebook / tfrtool: {ratios[-1]:.2f}"
    yield f"first epoch, images a second, tfrtool / notebook: {statistics.median(ratios):.2f} (1.3)"
    if len(records) > 1:
        per_image = [_slope(of_one) for of_one in runs.values()]
        yield f"memory of the cache, bytes an image: {_pair(per_image)} (0.26)"

    recipe = {"check": "header", "encode": "raw", "resize": (_SIZE, _SIZE)}
    raw = _write(photographs, directory / "raw", **recipe)
    yield f"--encode raw --resize {_SIZE}x{_SIZE}, nothing cached: tfrtool from raw, from JPEG"
    for count in (records[0], records[-1]):
        times = count // _PHOTOGRAPHS
        runs_of = _in_turn((raw, "uncached"), (jpeg, "uncached"), times, rounds)
        for name, later in (("first epoch", False), ("later epochs", True)):
            cpu = [_median_of(some, "cpu_ms_per_image", later) for some in runs_of]
            yield f"  {count:,} photographs, {name}, CPU an image: {cpu[0]:.3f} ms, {cpu[1]:.3f} ms"
            yield f"    JPEG / raw: {cpu[1] / cpu[0]:.2f} (4)"


def _in_turn(
    one: tuple[Path, str], other: tuple[Path, str], times: int, rounds: int
) -> tuple[list[StageRun], list[StageRun]]:
    """Measure two datasets and pipelines in turn, each of them first in every other round."""
    _check_means(one, other)
    runs: tuple[list[StageRun], list[StageRun]] = ([], [])
    for number in range(rounds):
        for which in (0, 1) if number % 2 == 0 else (1, 0):
            directory, pipeline = (one, other)[which]
            runs[which].append(_measured(directory, pipeline, times))
        ours, theirs = runs[0][-1], runs[1][-1]
        if (ours.images, ours.labels) != (theirs.images, theirs.labels):
            raise RuntimeError(f"the images differ:\n{ours}\n{theirs}")
    return runs


def _compared(ours: Sequence[StageRun], theirs: Sequence[StageRun]) -> Iterator[str]:
    def both(name: str, later: bool = False) -> list[float]:
        return [_median_of(runs, name, later) for runs in (ours, theirs)]

    rates = ", ".join(f"{rate:7.1f}" for rate in both("images_per_second"))
    yield f"  first epoch, images a second     {rates}"
    yield f"  first epoch, CPU ms an image     {_pair(both('cpu_ms_per_image'))} (1)"
    yield f"  later epochs, CPU ms an image    {_pair(both('cpu_ms_per_image', later=True))} (1)"
    memory = [_memory(runs) / 2**20 for runs in (ours, theirs)]
    yield f"  growth of resident memory, MiB   {_pair(memory)}"


def _slope(runs: Sequence[Sequence[StageRun]]) -> float:
    """Return the bytes by which memory grows with an image: what a process has anyway is out."""
    few, many = runs[0], runs[-1]
    return (_memory(many) - _memory(few)) / (many[0].images - few[0].images)


def _memory(runs: Sequence[StageRun]) -> float:
    return statistics.median(run.memory for run in runs)


def _pair(values: Sequence[float]) -> str:
    ours, theirs = values
    return f"{ours:10,.3f}, {theirs:10,.3f}; tfrtool / notebook: {ours / theirs:.3f}"


def _median_of(runs: Iterable[StageRun], name: str, later: bool = False) -> float:
    """Return the median of a number of all first epochs, or of all later ones."""
    chosen = slice(1, None) if later else slice(1)
    return statistics.median(epoch[name] for run in runs for epoch in run.epochs[chosen])


def _write(photographs: Path, dataset: Path, **recipe: Any) -> Path:
    tfrtool.write(photographs, dataset, shards=_SHARDS, **recipe)
    return dataset


def _measured(directory: Path, pipeline: str, times: int) -> StageRun:
    """Measure a pipeline in a process of its own.

    Args:
        directory: the dataset.
        pipeline: one of `_PIPELINES`.
        times: how often its shards are read in an epoch.
    """
    dataset, (stage, cache) = open_dataset(directory), _PIPELINES[pipeline]
    split = dataset.split("train")
    long = replace(split, shards=split.shards * times, lengths=split.lengths * times)
    options = LoadOptions(image_size=_SIZE, cache=cache)
    dataset = replace(dataset, splits={"train": long})
    run: StageRun = measure("measure_stage", dataset, options, stage, _EPOCHS)
    return run


def _check_means(*pipelines: tuple[Path, str]) -> None:
    """Check that two pipelines give the same pixels, as far as their mean tells."""
    means = [_mean(open_dataset(path), _PIPELINES[name][0]) for path, name in pipelines]
    tolerance = _SAME_MEAN if pipelines[0][0] == pipelines[1][0] else _LIKE_MEAN
    if abs(means[0] - means[1]) > tolerance:
        raise RuntimeError(f"the images of {pipelines} differ: their means are {means}")


def _mean(dataset: Dataset, stage: str) -> float:
    recipe = "tfrtool" if stage == "tfrtool" else "notebook"
    batches = dataset.load(image_size=_SIZE, recipe=recipe)
    images = dataset.split("train").records
    return sum(float(pixels.numpy().mean()) * len(labels) / images for pixels, labels in batches)


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
