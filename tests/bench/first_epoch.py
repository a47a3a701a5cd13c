"""A first epoch of photographs against the published pipeline that caches nothing.

That one is interleave, a parallel map (decode, rescale, resize), batch and prefetch, all tuned by
TensorFlow. Each measurement is one of ``tfrtool bench``, in a process of its own, in turn.

``python -m tests.bench.first_epoch --pixels 180 --records 1000`` is a part of it. Where the
environment says by ``TFRTOOL_PHOTOGRAPHS`` where photographs are, in class folders, they are used.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from PIL import Image

import tfrtool
from tests.bench.photographs import make_photographs
from tfrtool.loading.bench import UNCACHED, StageRun, measure
from tfrtool.loading.open_dataset import open_dataset
from tfrtool.loading.options import Cache, LoadOptions

__all__ = ["run"]

_SHARDS = 8
_SIZE = 224
_EPOCHS = 2
_WAYS = {
    "published, uncached": (UNCACHED, Cache.NONE),
    "tfrtool, in memory": ("tfrtool", Cache.MEMORY),
    "tfrtool, no cache": ("tfrtool", Cache.NONE),
}
_AIMS = {"tfrtool, in memory": (1.15, 0.95), "tfrtool, no cache": (1.05, 0.95)}
"""Of the first epoch: at most so many times the CPU, and at least so many times the speed."""


def run(
    directory: Path,
    rounds: int = 3,
    pixels: Sequence[int] = (180, 500),
    records: Sequence[int] = (1000, 10_000),
) -> Iterator[str]:
    """Yield what each way takes, line by line.

    Args:
        directory: a place for photographs and shards.
        rounds: how often each way is measured.
        pixels: sides of the photographs.
        records: how many are loaded; shards are read again where there are fewer.
    """
    given = os.environ.get("TFRTOOL_PHOTOGRAPHS")
    source = Path(given) if given else make_photographs(directory / "photographs", 1000)
    for side in pixels:
        shards = _write(source, directory / str(side), side)
        for count in records:
            yield f"{count:,} photographs of {side} px at {_SIZE} px, {rounds} runs each"
            yield from _told(_in_turn(shards, count, rounds))


def _write(source: Path, directory: Path, side: int) -> Path:
    """Write shards of photographs of one size."""
    for path in sorted(source.rglob("*.jpg")):
        resized = directory / "jpeg" / path.parent.name / path.name
        resized.parent.mkdir(parents=True, exist_ok=True)
        with Image.open(path) as image:
            image.convert("RGB").resize((side, side)).save(resized, quality=90)
    tfrtool.write(directory / "jpeg", directory / "shards", shards=_SHARDS, check="header")
    return directory / "shards"


def _in_turn(shards: Path, count: int, rounds: int) -> dict[str, list[StageRun]]:
    dataset = open_dataset(shards)
    split = dataset.split("train")
    times = -(-count // split.records)
    split = replace(split, shards=split.shards * times, lengths=split.lengths * times)
    dataset = replace(dataset, splits={"train": split})
    runs: dict[str, list[StageRun]] = {way: [] for way in _WAYS}
    for _ in range(rounds):
        for way, (stage, cache) in _WAYS.items():
            options = LoadOptions(image_size=_SIZE, cache=cache)
            runs[way].append(measure("measure_stage", dataset, options, stage, _EPOCHS))
    if len({(run.images, run.labels) for some in runs.values() for run in some}) > 1:
        raise RuntimeError("the pipelines return different images")
    return runs


def _told(runs: dict[str, list[StageRun]]) -> Iterator[str]:
    found = {
        way: [
            statistics.median(run.epochs[epoch][name] for run in some)
            for epoch in (0, -1)
            for name in ("cpu_ms_per_image", "images_per_second")
        ]
        for way, some in runs.items()
    }
    base = found["published, uncached"]
    for way, (cpu, rate, later_cpu, later_rate) in found.items():
        yield (
            f"  {way:20} first epoch {cpu:6.3f} ms CPU, {rate:7,.0f} images/s;"
            f" later {later_cpu:6.3f} ms, {later_rate:7,.0f}"
        )
        if way in _AIMS:
            aims = _AIMS[way]
            each = [
                [
                    run.epochs[0][name] / other.epochs[0][name]
                    for run, other in zip(runs[way], runs["published, uncached"], strict=True)
                ]
                for name in ("cpu_ms_per_image", "images_per_second")
            ]
            ratios = [
                f"{mine / theirs:.2f} ({min(some):.2f} to {max(some):.2f})"
                for mine, theirs, some in zip((cpu, rate), base[:2], each, strict=True)
            ]
            yield (
                f"    of the published one's: CPU {ratios[0]}, at most {aims[0]}; "
                f"speed {ratios[1]}, at least {aims[1]}"
            )


def _main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.first_epoch")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--pixels", type=int, nargs="+", default=[180, 500])
    parser.add_argument("--records", type=int, nargs="+", default=[1000, 10_000])
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        for line in run(Path(directory), options.rounds, options.pixels, options.records):
            print(line, flush=True)


if __name__ == "__main__":
    _main()
