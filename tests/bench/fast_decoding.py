"""`--decode fast` on large photographs: how fast, how far from exact, and what can't be left out.

Photographs are made 2, 4 and 8 times as large as is asked for: smooth, as enlarging leaves them,
and sharpened with the noise of a sensor, for as many bytes a pixel as cameras write. The floor is
libjpeg at an eighth: it reads all Huffman codes, and makes next to no pixels of them.

``python -m tests.bench.fast_decoding``. Where the environment says by ``TFRTOOL_PHOTOGRAPHS`` where
photographs are, in class folders, they are used.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageFilter

import tfrtool
from tests.bench.photographs import make_photographs
from tfrtool.loading.bench import OWN_UNCACHED, measure
from tfrtool.loading.open_dataset import open_dataset
from tfrtool.loading.options import Decoding, LoadOptions

__all__ = ["run"]

_SIZE = 224
_COUNTS = {2: 120, 4: 60, 8: 32}
"""How many photographs of a size: an epoch of them takes about as long."""
_NOISE = {"smooth": 0.0, "camera": 3.5}
_READ = 4
"""How often shards are read in an epoch."""


def run(directory: Path, rounds: int = 5) -> Iterator[str]:
    """Yield speeds and differences for each size and kind of photographs, line by line."""
    given = os.environ.get("TFRTOOL_PHOTOGRAPHS")
    source = Path(given) if given else make_photographs(directory / "photographs", 200)
    for ratio, count in _COUNTS.items():
        for kind, noise in _NOISE.items():
            large = directory / f"{kind}{ratio}"
            each = _enlarge(source, large, ratio, count, noise)
            tfrtool.write(large, directory / f"shards{kind}{ratio}", shards=4, check="header")
            yield f"{ratio} times {_SIZE} px, {kind}, {each:.2f} bytes a pixel"
            yield from _speeds(directory / f"shards{kind}{ratio}", rounds)
            yield from _parts(sorted(large.rglob("*.jpg"))[:24], ratio)


def _enlarge(source: Path, target: Path, ratio: int, count: int, noise: float) -> float:
    """Write photographs whose smaller side is ``ratio`` times the size; return bytes a pixel."""
    random, size, pixels = np.random.default_rng(ratio), 0, 0
    paths = sorted(source.rglob("*.jpg"))
    for path in paths[:: max(1, len(paths) // count)][:count]:
        with Image.open(path) as small:
            scale = _SIZE * ratio * random.uniform(1.002, 1.06) / min(small.size)
            sides = round(small.width * scale), round(small.height * scale)
            image = small.convert("RGB").resize(sides, Image.Resampling.BICUBIC)
        if noise:
            sharp = np.asarray(image.filter(ImageFilter.UnsharpMask(2, 120, 0)), np.float32)
            grain = random.normal(0, noise, (*sharp.shape[:2], 1))
            grain = grain + random.normal(0, noise / 2, sharp.shape)
            image = Image.fromarray(np.clip(sharp + grain, 0, 255).astype(np.uint8))
        large = target / path.parent.name / path.name
        large.parent.mkdir(parents=True, exist_ok=True)
        image.save(large, quality=90 if noise else 88)
        size, pixels = size + large.stat().st_size, pixels + image.width * image.height
    return size / pixels


def _speeds(shards: Path, rounds: int) -> Iterator[str]:
    """Measure the loader without a cache, each way in a process of its own, in turn."""
    dataset = open_dataset(shards)
    split = dataset.split("train")
    split = replace(split, shards=split.shards * _READ, lengths=split.lengths * _READ)
    dataset = replace(dataset, splits={"train": split})
    found: dict[Decoding, list[float]] = {way: [] for way in Decoding}
    for _ in range(rounds):
        for way, cpu in found.items():
            options = LoadOptions(image_size=_SIZE, decode=way)
            stage = measure("measure_stage", dataset, options, OWN_UNCACHED, 2)
            cpu.append(stage.epochs[1]["cpu_ms_per_image"])
    exact, fast = min(found[Decoding.EXACT]), min(found[Decoding.FAST])
    yield f"  loader: exact {exact:.2f} ms CPU an image, fast {fast:.2f}: {exact / fast:.2f} times"


def _parts(paths: list[Path], ratio: int) -> Iterator[str]:
    """Measure TensorFlow's operations alone, and how far pixels are from each other."""
    import tensorflow as tf

    files, size = [tf.constant(path.read_bytes()) for path in paths], (_SIZE, _SIZE)

    def cost(operation: Callable[[Any], Any]) -> float:
        graph = tf.function(operation, input_signature=[tf.TensorSpec([], tf.string)])
        took = []
        for _ in range(6):
            start = time.process_time()
            for data in files:
                graph(data)
            took.append((time.process_time() - start) / len(files) * 1e3)
        return min(took)

    ways = {
        "whole": lambda data: tf.io.decode_jpeg(data, 3),
        f"at 1/{ratio}": lambda data: tf.io.decode_jpeg(data, 3, ratio=ratio),
        "the floor": lambda data: tf.io.decode_jpeg(data, 3, ratio=8),
    }
    told = ", ".join(f"{name} {cost(way):.2f} ms" for name, way in ways.items())
    yield f"  decode_jpeg alone: {told}"

    def far(one: Any, other: Any) -> Any:
        return np.abs(np.round(one) - np.round(other))

    means: dict[str, list[float]] = {"fast-exact": [], "fast-average": [], "exact-average": []}
    most = dict.fromkeys(means, 0.0)
    for data in files:
        whole = tf.cast(tf.io.decode_jpeg(data, 3), tf.float32)
        height, width = ((side + ratio // 2) // ratio for side in whole.shape[:2])
        small = tf.io.decode_jpeg(data, 3, ratio=ratio)[:height, :width]
        fast, exact = tf.image.resize(small, size), tf.image.resize(whole, size)
        average = tf.image.resize(whole, size, antialias=True)
        pairs = (far(fast, exact), far(fast, average), far(exact, average))
        for name, difference in zip(means, pairs, strict=True):
            means[name].append(float(difference.mean()))
            most[name] = max(most[name], float(difference.max()))
    told = ", ".join(
        f"{name} {np.mean(some):.1f} / {most[name]:.0f}" for name, some in means.items()
    )
    yield f"  grey levels, mean / at most: {told}"


def _main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        for line in run(Path(directory)):
            print(line, flush=True)


if __name__ == "__main__":
    _main()
