"""Decoded images for PyTorch and Grain, against what else reads shards and tar files in Python.

Packages that are not installed are left out; ``make test-frameworks`` installs them.
"""

from __future__ import annotations

import importlib.util
import io
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

import tfrtool
from tests.bench.photographs import make_photographs
from tests.bench.timing import Pair, compare

__all__ = ["run"]

_PHOTOGRAPHS, _SIZE, _BATCH, _RUNS = 500, 180, 32, 3


def _sum(labels: Iterable[Any]) -> int:
    return sum(int(label) for label in labels)


def _others(shards: list[str], tar: str) -> Iterator[tuple[str, Any]]:
    """Yield other readers, by name: iterables of pixels and labels."""
    import webdataset

    tars = webdataset.WebDataset(tar, shardshuffle=False, empty_check=False)
    yield "webdataset", tars.decode("rgb8").to_tuple("jpg", "cls")
    if importlib.util.find_spec("tfrecord"):
        from tfrecord.torch.dataset import TFRecordDataset
        from torch.utils.data import ChainDataset

        features = {"image": "byte", "label": "int"}
        yield (
            "tfrecord",
            ChainDataset(
                [TFRecordDataset(path, None, features, transform=_decoded) for path in shards]
            ),
        )


def _decoded(features: dict[str, Any]) -> tuple[Any, Any]:
    with Image.open(io.BytesIO(features["image"])) as image:
        return np.array(image.convert("RGB")), features["label"][0]


def _loops(images: Any, shards: list[str]) -> Iterator[tuple[str, Any]]:
    """Yield what makes batches of our records, by name."""
    from torch.utils.data import DataLoader

    import tfrtool.torch

    stream = tfrtool.torch.IterableRecords(shards, decode="image")
    yield "DataLoader", DataLoader(images, _BATCH)
    yield "DataLoader, IterableRecords", DataLoader(stream, _BATCH)
    if importlib.util.find_spec("grain"):
        import grain

        # As a DataLoader without workers: by default, Grain reads in 16 threads.
        options = grain.ReadOptions(num_threads=0, prefetch_buffer_size=0)
        batches = grain.MapDataset.source(images).batch(_BATCH).to_iter_dataset(options)
        yield "Grain", batches
        yield "JAX, Grain", batches


def _steps() -> dict[str, Callable[[Any, Any], Any]]:
    """Return a step of each framework: a layer over a row of pixels, and the sum of the labels."""
    import torch

    torch.set_num_threads(1)  # others wait for work by computing
    layer = torch.nn.Linear(3 * _SIZE, 8)

    def step(pixels: Any, labels: Any) -> Any:
        with torch.no_grad():
            layer(torch.as_tensor(pixels)[:, 0].flatten(1).float())
        return torch.as_tensor(labels).sum()

    steps: dict[str, Callable[[Any, Any], Any]] = {"": step}
    if importlib.util.find_spec("jax"):
        import jax

        weights = jax.numpy.ones((3, 8))
        jitted = jax.jit(lambda pixels, labels: (pixels[:, 0] @ weights, labels.sum()))
        steps["JAX"] = lambda pixels, labels: jitted(np.asarray(pixels), np.asarray(labels))[1]
    return steps


def run(directory: Path) -> Iterator[Pair]:
    """Yield each comparison; ours are the records of `tfrtool.open_records`."""
    photographs = make_photographs(directory / "photographs", _PHOTOGRAPHS)
    # TensorFlow and the package tfrecord define the same messages: only one can be imported.
    write = [sys.executable, "-m", "tfrtool", "write", str(photographs), str(directory / "shards")]
    size = f"{_SIZE}x{_SIZE}"
    subprocess.run([*write, "--shards", "4", "--resize", size], capture_output=True, check=True)
    tfrtool.convert(directory / "shards", directory / "tars", to="webdataset")
    images = tfrtool.open_records(directory / "shards", decode="image")
    shards = [str(path) for path in images.shards]
    tar = str(next((directory / "tars").glob("*.tar")))
    what = f"{len(images)} JPEGs of {_SIZE} px"
    for name, other in _others(shards, tar):
        yield compare(
            f"{what} (ours), {name} (theirs)",
            lambda: _sum(label for _, label in images),
            lambda other=other: _sum(label for _, label in other),  # type: ignore[misc]
            _RUNS,
        )
        if not importlib.util.find_spec("torch"):
            continue
        from torch.utils.data import DataLoader

        steps, batched = _steps(), DataLoader(other, _BATCH)
        for loop, ours in _loops(images, shards):
            step = steps.get(loop.partition(",")[0], steps[""])
            yield compare(
                f"{what}, batches of {loop} (ours), DataLoader, {name} (theirs)",
                lambda ours=ours, step=step: _sum(step(*batch) for batch in ours),  # type: ignore[misc]
                lambda step=step, batched=batched: _sum(step(*batch) for batch in batched),  # type: ignore[misc]
                _RUNS,
            )
