"""Decoded images for PyTorch and Grain, against what else reads shards and tar files in Python.

Packages that are not installed are left out; ``make test-frameworks`` installs them.
"""

from __future__ import annotations

import importlib.util
import io
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


def _others(shards: list[str], tar: str) -> Iterator[tuple[str, Callable[[], int]]]:
    """Yield other readers, by name; each returns the sum of the labels."""
    import webdataset

    tars = webdataset.WebDataset(tar, shardshuffle=False, empty_check=False)
    yield (
        "webdataset",
        lambda: _sum(label for _, label in tars.decode("rgb8").to_tuple("jpg", "cls")),
    )
    if importlib.util.find_spec("tfrecord"):
        from tfrecord.reader import tfrecord_loader

        def labels() -> Iterator[int]:
            for path in shards:
                for one in tfrecord_loader(path, None, {"image": "byte", "label": "int"}):
                    np.array(Image.open(io.BytesIO(one["image"])).convert("RGB"))
                    yield one["label"][0]

        yield "tfrecord", lambda: _sum(labels())


def _loops(images: Any, shards: list[str]) -> Iterator[tuple[str, Callable[[], int]]]:
    """Yield loops over batches, by name."""
    if importlib.util.find_spec("torch"):
        from torch.utils.data import DataLoader

        import tfrtool.torch

        stream = tfrtool.torch.IterableRecords(shards, decode="image")
        for name, records in (("DataLoader", images), ("DataLoader, IterableRecords", stream)):
            loader = DataLoader(records, _BATCH)
            yield name, lambda loader=loader: _sum(labels.sum() for _, labels in loader)  # type: ignore[misc]
    if importlib.util.find_spec("grain"):
        import grain

        batches = grain.MapDataset.source(images).batch(_BATCH)
        yield "Grain", lambda: _sum(labels.sum() for _, labels in batches)


def run(directory: Path) -> Iterator[Pair]:
    """Yield each comparison; ours are the records of `tfrtool.open_records`."""
    photographs = make_photographs(directory / "photographs", _PHOTOGRAPHS)
    tfrtool.write(photographs, directory / "shards", shards=4, resize=(_SIZE, _SIZE))
    tfrtool.convert(directory / "shards", directory / "tars", to="webdataset")
    images = tfrtool.open_records(directory / "shards", decode="image")
    shards = [str(path) for path in images.shards]
    tar = str(next((directory / "tars").glob("*.tar")))
    what = f"{len(images)} JPEGs of {_SIZE} px"
    for name, other in _others(shards, tar):
        yield compare(
            f"{what} (ours), {name} (theirs)", lambda: _sum(n for _, n in images), other, _RUNS
        )
        for loop, ours in _loops(images, shards):
            yield compare(f"{what}, batches of {loop} (ours), {name} (theirs)", ours, other, _RUNS)
