"""Caches of decoded images in use: filled by several at once, damaged, planted."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import tfrtool
from tests.datasets import image_payload, write_foreign, write_pets
from tests.photos import image_bytes
from tfrtool import DatasetError
from tfrtool.loading.options import LoadOptions
from tfrtool.loading.pipeline import load

pytestmark = pytest.mark.tf

SHARDS, EACH = 6, 60


@pytest.fixture(scope="module")
def numbered(tmp_path_factory: pytest.TempPathFactory) -> tfrtool.Dataset:
    """Return a dataset of 360 images; an image's label is its number."""
    data = image_bytes(size=(8, 8))
    shards = [
        [image_payload(EACH * shard + row, data=data) for row in range(EACH)]
        for shard in range(SHARDS)
    ]
    return tfrtool.dataset(write_foreign(tmp_path_factory.mktemp("d"), shards))


def _labels(batches: Iterator[Any]) -> list[int]:
    return [int(label) for _, labels in batches for label in labels.numpy()]


def _in_threads(batches: Any) -> list[list[int]]:
    """Return the labels of three iterators that run at the same time."""
    with ThreadPoolExecutor(3) as pool:
        return list(pool.map(_labels, [iter(batches) for _ in range(3)]))


def _in_turn(batches: Any) -> list[list[int]]:
    """Return the labels of three iterators; two begin when the first is halfway."""
    iterators = [iter(batches) for _ in range(3)]
    found = [_labels(itertools.islice(iterators[0], 10)), [], []]
    for some in itertools.zip_longest(*iterators):
        for labels, batch in zip(found, some, strict=True):
            labels += [] if batch is None else _labels(iter([batch]))
    return found


@pytest.mark.parametrize(("in_turn", "deterministic"), [(_in_threads, False), (_in_turn, True)])
def test_iterators_that_fill_one_store(
    numbered: tfrtool.Dataset, in_turn: Callable[[Any], list[list[int]]], deterministic: bool
) -> None:
    """Each of several iterators has every image once an epoch, and so has every later epoch."""
    options = LoadOptions(
        image_size=4,
        cache="memory",  # type: ignore[arg-type]
        batch_size=16,
        deterministic=deterministic,
    )
    everything = list(range(SHARDS * EACH))
    batches = load(numbered, options)
    assert [sorted(labels) for labels in in_turn(batches)] == [everything] * 3
    assert sorted(_labels(iter(batches))) == everything


def _pixels(directory: Path, caches: Path, told: list[int] | None = None) -> list[float]:
    options = LoadOptions(
        image_size=16,
        cache="disk",  # type: ignore[arg-type]
        cache_directory=caches,
        training=False,
    )
    batches = load(
        tfrtool.dataset(directory),
        options,
        on_progress=lambda at: None if told is None else told.append(at.done),
    )
    return [float(image.sum()) for images, _ in batches for image in images.numpy()]


def test_a_zeroed_cache_is_written_again(tmp_path: Path) -> None:
    """Nothing is trained on black: pixels that are not those that were written are decoded anew."""
    directory, caches = write_pets(tmp_path), tmp_path / "caches"
    first = _pixels(directory, caches)
    (path,) = caches.iterdir()
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.write(bytes(16 * 16 * 3 * 14))
    assert path.stat().st_size == size
    told: list[int] = []
    assert _pixels(directory, caches, told) == first
    assert told
    told.clear()
    assert _pixels(directory, caches, told) == first
    assert not told


def test_a_cache_that_is_cut_under_a_run_is_an_error(tmp_path: Path, tf: Any) -> None:
    """The run ends with an error that names the file, and not with a signal."""
    caches = tmp_path / "caches"
    options = LoadOptions(
        image_size=64,
        cache="disk",  # type: ignore[arg-type]
        cache_directory=caches,
        epochs=50,
    )
    batches = iter(load(tfrtool.dataset(write_pets(tmp_path)), options))
    next(batches)
    (path,) = caches.iterdir()
    os.truncate(path, 0)
    with pytest.raises(tf.errors.InvalidArgumentError, match=path.name):
        list(batches)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no FIFOs")
@pytest.mark.parametrize("name", ["features.json", "label.labels.txt", "dataset_info.json"])
def test_a_fifo_is_not_waited_for(tmp_path: Path, name: str) -> None:
    """A FIFO in the place of a dataset's file is an error that names it."""
    directory = write_pets(tmp_path)
    (directory / name).unlink()
    os.mkfifo(directory / name)
    with pytest.raises(DatasetError) as caught:
        tfrtool.dataset(directory)
    assert caught.value.path == str(directory / name)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no FIFOs")
def test_a_fifo_in_the_place_of_a_cache(tmp_path: Path) -> None:
    """A cache takes its place."""
    directory, caches = write_pets(tmp_path), tmp_path / "caches"
    first = _pixels(directory, caches)
    (path,) = caches.iterdir()
    path.unlink()
    os.mkfifo(path)
    assert _pixels(directory, caches) == first
    assert path.is_file()
