"""The disk cache: it deletes only what it made, and reads only what it wrote."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

import tfrtool
from tests.datasets import flip_bit, write_pets
from tests.training.runs import small_options
from tfrtool import Dataset, DatasetError
from tfrtool.storage.atomic_files import temporary_name
from tfrtool.storage.lock import LOCK
from tfrtool.training.train_report import EpochReport

pytestmark = pytest.mark.tf

INDEX, KEYS, DATA = "tfrtool_cache.json", "images.index", "images.data-00000-of-00001"


@pytest.fixture(scope="module")
def pets(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """Return a small dataset."""
    return tfrtool.dataset(write_pets(tmp_path_factory.mktemp("data"), shards=1))


def fill(pets: Dataset, folder: Path, **options: Any) -> Any:
    """Return the pipeline of tiny images with a cache on disk, which is filled."""
    options = {"cache": "disk", "cache_directory": folder, "image_size": 8, **options}
    return pets.load(**options)


@pytest.fixture(scope="module")
def filled(pets: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with one cache."""
    folder = tmp_path_factory.mktemp("filled") / "caches"
    fill(pets, folder)
    return folder


@pytest.fixture
def cache(filled: Path, tmp_path: Path) -> Path:
    """Return the cache in a copy of that folder."""
    (found,) = Path(shutil.copytree(filled, tmp_path / "caches")).iterdir()
    return found


def test_only_caches_of_its_own_are_deleted(pets: Dataset, cache: Path, tmp_path: Path) -> None:
    """Old files and folders of the user stay, whatever they are called; an old cache goes."""
    folder = cache.parent
    (folder / "thesis").mkdir()
    (folder / "thesis" / "chapter.txt").write_text("all of it")
    (folder / "photo.jpg").touch()
    named = folder / ("0" * 32)  # the name of a cache, and no index
    named.mkdir()
    (named / "photo.jpg").touch()
    mixed = Path(shutil.copytree(cache, folder / ("1" * 32)))  # a cache with something in it
    index = (mixed / INDEX).read_text().replace(cache.name, mixed.name)
    (mixed / INDEX).write_text(index)
    (mixed / "photo.jpg").touch()
    renamed = Path(shutil.copytree(cache, folder / ("2" * 32)))  # the index of another cache
    unproven = temporary_name(folder / ("3" * 32))
    unproven.mkdir()
    (unproven / "photo.jpg").touch()
    killed = temporary_name(cache)  # what a killed run leaves while it fills a cache
    (killed / cache.name).mkdir(parents=True)
    (killed / cache.name / DATA).touch()
    (killed / LOCK).write_text("write 1\n")
    before = {path for path in folder.rglob("*") if killed not in (path, *path.parents)}
    for path in (*folder.rglob("*"), *folder.iterdir()):
        os.utime(path, (1, 1))
    fill(pets, folder, image_size=9)
    assert not killed.exists()
    assert before - set(folder.rglob("*")) == {cache, *(cache / n for n in (INDEX, KEYS, DATA))}
    assert renamed.exists()
    assert tmp_path.exists()


def test_a_fifo_is_not_waited_for(pets: Dataset, cache: Path) -> None:
    """A pipe in the place of a file is an error at once, which names it."""
    (cache / DATA).unlink()
    os.mkfifo(cache / DATA)
    with pytest.raises(DatasetError, match=rf"{DATA}: it is a pipe.*delete this folder"):
        fill(pets, cache.parent)
    shutil.rmtree(cache)  # as the error says
    assert next(iter(fill(pets, cache.parent)))


@pytest.mark.parametrize("name", [KEYS, DATA, INDEX])
def test_a_truncated_file_is_named(pets: Dataset, cache: Path, name: str) -> None:
    """A file that lost its end, or is missing, is an error before anything is read from it."""
    said = "no usable index" if name == INDEX else f"{name}: it is not the file that was written"
    os.truncate(cache / name, (cache / name).stat().st_size - 1)
    with pytest.raises(DatasetError, match=said) as caught:
        fill(pets, cache.parent)
    assert caught.value.path == str(cache)
    (cache / name).unlink()
    with pytest.raises(DatasetError, match=r"no such file|no usable index"):
        fill(pets, cache.parent)


def test_files_of_another_cache_are_not_taken(pets: Dataset, cache: Path) -> None:
    """Files of the same size with other images are noticed."""
    other = tfrtool.dataset(pets.directory, label_feature="label")
    fill(other, cache.parent, cycle_length=1, shuffle_buffer=2)  # the same images, shuffled less
    (second,) = {*cache.parent.iterdir()} - {cache}
    assert (second / KEYS).stat().st_size == (cache / KEYS).stat().st_size
    for name in (KEYS, DATA):
        shutil.copy(second / name, cache / name)
    with pytest.raises(DatasetError, match=f"{KEYS}: it is not the file that was written"):
        fill(pets, cache.parent)


@pytest.mark.more
def test_train_names_a_cache_with_damaged_images(pets: Dataset, tmp_path: Path) -> None:
    """An image that changes on the disk between two epochs ends a run, and the cache is named."""
    folder = tmp_path / "caches"

    def damage(_epoch: EpochReport) -> None:
        for data in folder.glob("*/images.data*"):
            flip_bit(data, 1000)

    options = small_options(pets.directory, cache_directory=folder, on_epoch=damage)
    with pytest.raises(DatasetError, match="a disk cache in this folder is damaged") as caught:
        tfrtool.train(**options)
    assert caught.value.path == str(folder)
