"""What a cache on disk depends on."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.datasets import image_payload, write_foreign
from tests.photos import image_bytes
from tfrtool.examples.example import DType
from tfrtool.loading.dataset import Dataset
from tfrtool.loading.disk_cache import (
    CacheKey,
    default_cache_directory,
    open_disk_cache,
    write_disk_cache,
)
from tfrtool.loading.open_dataset import open_dataset
from tfrtool.loading.options import Holdout, LoadOptions
from tfrtool.loading.share import Share
from tfrtool.records.framing import frame

pytestmark = pytest.mark.tf

SIZE = 5


@pytest.fixture
def shards(tmp_path: Path) -> Dataset:
    """Return a dataset of two shards, of two and one records."""
    payloads = [image_payload(number % 2) for number in range(3)]
    return open_dataset(write_foreign(tmp_path / "shards", [payloads[:2], payloads[2:]]))


def _of(dataset: Dataset, pipelines: int = 1, **changes: Any) -> CacheKey:
    options = replace(LoadOptions(image_size=8), **changes)
    return CacheKey.of(dataset, options, 3, Share(count=pipelines))


def test_key_is_the_same_for_the_same_images(shards: Dataset) -> None:
    """What doesn't change the images doesn't change the key."""
    again = open_dataset(shards.directory)
    assert _of(again, batch_size=4, seed=3, training=False).digest == _of(shards).digest


def test_key_differs_with_anything_that_decides(shards: Dataset) -> None:
    """Another size, order, part or share is another key."""
    half = Holdout(fraction=0.5, held_out=True)
    split, form = shards.split("train"), shards.label_form
    turned = replace(split, shards=split.shards[::-1])
    keys = [
        _of(shards),
        _of(shards, image_size=9),
        _of(shards, holdout=half),
        _of(shards, holdout=replace(half, held_out=False)),
        _of(shards, holdout=replace(half, fraction=0.4)),
        _of(shards, cycle_length=1),
        _of(shards, block_length=2),
        _of(replace(shards, label_form=replace(form, names=form.names[::-1]))),
        _of(replace(shards, label_form=replace(form, dtype=DType.STRING))),
        _of(shards, pipelines=2),
        _of(replace(shards, image_feature="other")),
        _of(replace(shards, splits={"train": turned})),
        _of(replace(shards, label_feature="other")),
    ]
    assert len({key.digest for key in keys}) == len(keys)
    assert len({key.part for key in keys}) == 4


@pytest.mark.parametrize("change", ["touch", "grow"])
def test_changed_shard_makes_a_cache_stale(
    tf: Any, shards: Dataset, tmp_path: Path, change: str
) -> None:
    """When a shard changes, the old cache isn't used, and goes when the new one is written."""
    directory = tmp_path / "caches"
    arrays = np.zeros((3, SIZE, SIZE, 3), np.uint8), np.arange(3)
    decoded = tf.data.Dataset.from_tensor_slices(arrays)
    old = CacheKey.of(shards, LoadOptions(image_size=SIZE), 3)
    write_disk_cache(directory, old, decoded)
    path = shards.split("train").shards[1]
    if change == "touch":
        os.utime(path, ns=(0, path.stat().st_mtime_ns + 1_000_000))
    else:
        before = path.stat().st_mtime_ns
        path.write_bytes(frame(image_payload(0, data=image_bytes(size=(40, 40)))))
        os.utime(path, ns=(before, before))
    new = CacheKey.of(open_dataset(shards.directory), LoadOptions(image_size=SIZE), 3)
    assert open_disk_cache(directory, new) is None
    write_disk_cache(directory, new, decoded)
    assert [path.name for path in directory.iterdir()] == [new.file_name]


def test_default_directory_follows_the_specification(monkeypatch: pytest.MonkeyPatch) -> None:
    """XDG_CACHE_HOME is used if it is an absolute path, and else .cache at home."""
    monkeypatch.setenv("HOME", "/home/someone")
    monkeypatch.setenv("USERPROFILE", "/home/someone")
    at_home = Path.home() / ".cache" / "tfrtool" / "images"
    assert default_cache_directory({"XDG_CACHE_HOME": "/x"}) == Path("/x/tfrtool/images")
    for environment in ({}, {"XDG_CACHE_HOME": ""}, {"XDG_CACHE_HOME": "relative"}):
        assert default_cache_directory(environment) == at_home
