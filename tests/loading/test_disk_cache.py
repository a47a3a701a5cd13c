"""Decoded images on disk: whole or not there, found again, and never stale."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.datasets import image_payload, write_foreign
from tests.photos import image_bytes
from tfrtool.errors import DatasetError, UsageError, WriteError
from tfrtool.examples.example import DType
from tfrtool.loading.cache_key import CacheKey, default_cache_directory
from tfrtool.loading.dataset import Dataset, open_dataset
from tfrtool.loading.disk_cache import (
    DiskCache,
    open_disk_cache,
    read_disk_cache,
    write_disk_cache,
)
from tfrtool.loading.options import Holdout, LoadOptions
from tfrtool.records.framing import frame

SIZE, IMAGES = 5, 70


def _key(images: int = IMAGES, size: int = SIZE, **facts: object) -> CacheKey:
    return CacheKey(images=images, image_size=size, purpose={"split": "train"}, facts=facts)


def _pixels(images: int = IMAGES, seed: int = 0) -> tuple[Any, Any]:
    generator = np.random.default_rng(seed)
    pixels = generator.integers(0, 256, (images, SIZE, SIZE, 3), np.uint8)
    return pixels, generator.integers(-(2**63), 2**63, images, np.int64)


def _dataset(tf: Any, arrays: tuple[Any, Any]) -> Any:
    return tf.data.Dataset.from_tensor_slices(arrays)


def _same(found: tuple[Any, Any], expected: tuple[Any, Any]) -> bool:
    return all(np.array_equal(one, other) for one, other in zip(found, expected, strict=True))


@pytest.mark.parametrize("batch", [None, 1, 16, 100])
def test_what_went_in_comes_out(tf: Any, tmp_path: Path, batch: int | None) -> None:
    """All images and labels come back, in the order of writing."""
    arrays = _pixels()
    decoded = _dataset(tf, arrays)
    cache = write_disk_cache(tmp_path, _key(), decoded if batch is None else decoded.batch(batch))
    images, labels = read_disk_cache(cache)
    assert _same((images, labels), arrays)
    assert (images.dtype, labels.dtype) == (np.uint8, np.int64)


@settings(max_examples=20)
@given(labels=st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=40))
def test_round_trip(tf: Any, tmp_path_factory: pytest.TempPathFactory, labels: list[int]) -> None:
    """Whatever the labels, each image comes back with its own."""
    arrays = (_pixels(len(labels))[0], np.array(labels, np.int64))
    directory = tmp_path_factory.mktemp("caches")
    cache = write_disk_cache(directory, _key(len(labels)), _dataset(tf, arrays))
    assert _same(read_disk_cache(cache), arrays)


def test_found_again_by_its_key_alone(tf: Any, tmp_path: Path) -> None:
    """A cache is there for the key that it was written for, and for no other."""
    arrays = _pixels()
    assert open_disk_cache(tmp_path / "none", _key()) is None
    write_disk_cache(tmp_path, _key(), _dataset(tf, arrays))
    found = open_disk_cache(tmp_path, _key())
    assert found is not None
    assert _same(read_disk_cache(found), arrays)
    for other in (_key(IMAGES - 1), _key(size=4), _key(shards=["changed"])):
        assert open_disk_cache(tmp_path, other) is None
    assert open_disk_cache(tmp_path, _key()) is not None


def test_progress_is_told(tf: Any, tmp_path: Path) -> None:
    """The number of images written grows to that of all images."""
    told: list[int] = []
    write_disk_cache(tmp_path, _key(), _dataset(tf, _pixels()).batch(30), told.append)
    assert told == [30, 60, 70]


def test_stale_caches_of_the_same_purpose_go(tf: Any, tmp_path: Path) -> None:
    """A new cache takes the place of the stale one; those for other purposes stay."""
    decoded = _dataset(tf, _pixels())
    other = replace(_key(), purpose={"split": "validation"})
    write_disk_cache(tmp_path, other, decoded)
    stale = write_disk_cache(tmp_path, _key(shards=["old"]), decoded).path
    (tmp_path / "notes.txt").write_text("the user's own")
    fresh = write_disk_cache(tmp_path, _key(shards=["new"]), decoded)
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {fresh.path.name, other.file_name, "notes.txt"}
    assert stale.name not in names


def test_cache_in_use_is_not_removed(tf: Any, tmp_path: Path) -> None:
    """A run goes on with its cache when another run finds it stale; later it is removed."""
    arrays, others = _pixels(), _dataset(tf, _pixels(seed=1))
    cache = write_disk_cache(tmp_path, _key(run=1), _dataset(tf, arrays))
    path, mapped = cache.path, read_disk_cache(cache)
    del cache
    gc.collect()
    write_disk_cache(tmp_path, _key(run=2), others)
    assert path.exists()
    assert _same(mapped, arrays)
    del mapped
    gc.collect()
    write_disk_cache(tmp_path, _key(run=3), others)
    assert not path.exists()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux lists open files")
def test_no_descriptor_is_left_open(tf: Any, tmp_path: Path) -> None:
    """Opening and reading caches again and again keeps no files open."""
    write_disk_cache(tmp_path, _key(), _dataset(tf, _pixels()))
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    for _ in range(5):
        cache = open_disk_cache(tmp_path, _key())
        assert cache is not None
        assert read_disk_cache(cache)[0].any()
    del cache
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) <= before  # noqa: PTH208


@settings(max_examples=40)
@given(data=st.data())
def test_damaged_file_is_not_used(
    tf: Any, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """A file that is cut at either end, longer, or changed behind its pixels is dropped."""
    directory = tmp_path_factory.mktemp("caches")
    arrays = _pixels()
    path = write_disk_cache(directory, _key(), _dataset(tf, arrays)).path
    whole = path.read_bytes()
    behind = SIZE * SIZE * 3 * IMAGES
    kind = data.draw(st.sampled_from(["cut", "hole", "longer", "flip", "zeros"]))
    if kind == "cut":
        damaged = whole[: data.draw(st.integers(0, len(whole) - 1))]
    elif kind == "hole":
        damaged = whole[data.draw(st.integers(1, behind)) :]
    elif kind == "longer":
        damaged = whole + data.draw(st.binary(min_size=1, max_size=99))
    elif kind == "flip":
        place = data.draw(st.integers(behind, len(whole) - 1))
        flipped = whole[place] ^ 1 << data.draw(st.integers(0, 7))
        damaged = whole[:place] + bytes([flipped]) + whole[place + 1 :]
    else:
        damaged = bytes(len(whole))
    path.write_bytes(damaged)
    assert open_disk_cache(directory, _key()) is None
    assert not path.exists()


def test_another_keys_file_under_this_name_is_dropped(tf: Any, tmp_path: Path) -> None:
    """A file says itself whose images it holds; its name alone is not believed."""
    decoded = _dataset(tf, _pixels())
    path = write_disk_cache(tmp_path, _key(shards=["old"]), decoded).path
    path.rename(tmp_path / _key(shards=["new"]).file_name)
    assert open_disk_cache(tmp_path, _key(shards=["new"])) is None
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("images", [IMAGES - 1, IMAGES + 1, 3 * IMAGES])
def test_other_number_of_images_is_an_error(tf: Any, tmp_path: Path, images: int) -> None:
    """If there are more or fewer images than were counted, there is no cache."""
    with pytest.raises(DatasetError) as caught:
        write_disk_cache(tmp_path, _key(), _dataset(tf, _pixels(images)))
    assert caught.value.expected == IMAGES
    assert list(tmp_path.iterdir()) == []


def test_failure_while_decoding_leaves_nothing(tf: Any, tmp_path: Path) -> None:
    """An image that can't be decoded ends the writing with TensorFlow's error, and no file."""
    arrays = _pixels()

    def refuse(image: Any, label: Any) -> tuple[Any, Any]:
        with tf.control_dependencies([tf.debugging.Assert(label != arrays[1][40], [label])]):
            return image, tf.identity(label)

    bad = _dataset(tf, arrays).map(refuse)
    with pytest.raises(tf.errors.InvalidArgumentError):
        write_disk_cache(tmp_path, _key(), bad)
    assert list(tmp_path.iterdir()) == []


def test_interrupt_leaves_nothing(tf: Any, tmp_path: Path) -> None:
    """On Ctrl-C in the middle, nothing of the file is left."""

    def interrupt(_: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_disk_cache(tmp_path, _key(), _dataset(tf, _pixels()), interrupt)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "change",
    [
        lambda image, label: {"image": image, "label": label},
        lambda image, _: image,
        lambda image, label: (image[:-1], label),
        lambda image, label: (image[..., :1], label),
        lambda image, label: (image / 255, label),
        lambda image, label: (image, label / 2),
        lambda image, _: (image, image),
    ],
)
def test_anything_but_images_and_labels_is_refused(tf: Any, tmp_path: Path, change: Any) -> None:
    """What isn't uint8 images of the right size and int64 labels is refused before it is read."""
    with pytest.raises(UsageError):
        write_disk_cache(tmp_path / "d", _key(), _dataset(tf, _pixels()).map(change))
    assert not (tmp_path / "d").exists()


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such limits")
@pytest.mark.parametrize("room", [0, 1000, 5 * 1024, 5806])
def test_full_disk_ends_cleanly(tf: Any, tmp_path: Path, room: int) -> None:
    """When there is no more room, the error names the file, and nothing is left of it."""
    import resource

    decoded = _dataset(tf, _pixels())
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, limits[1]))
    try:
        with pytest.raises(WriteError) as caught:
            write_disk_cache(tmp_path, _key(), decoded)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert caught.value.path == str(tmp_path / _key().file_name)
    assert list(tmp_path.iterdir()) == []


def test_directory_that_can_not_be_made_is_an_error(tf: Any, tmp_path: Path) -> None:
    """A file where the directory should be is an error that names it."""
    (tmp_path / "file").write_text("x")
    with pytest.raises(WriteError) as caught:
        write_disk_cache(tmp_path / "file" / "d", _key(), _dataset(tf, _pixels()))
    assert str(tmp_path / "file") in str(caught.value.path)
    assert open_disk_cache(tmp_path / "file" / "d", _key()) is None


@pytest.mark.skipif(sys.platform == "win32", reason="who renames last wins only elsewhere")
@pytest.mark.parametrize("same", [True, False])
def test_two_writers_do_not_hurt_each_other(tf: Any, tmp_path: Path, same: bool) -> None:
    """A whole other write during a write, for the same key or not, spoils neither."""
    arrays, others = _pixels(), _pixels(seed=0 if same else 1)
    other = _key() if same else _key(shards="other")
    inner: list[DiskCache] = []

    def meanwhile(_: int) -> None:
        if not inner:
            inner.append(write_disk_cache(tmp_path, other, _dataset(tf, others)))

    outer = write_disk_cache(tmp_path, _key(), _dataset(tf, arrays), meanwhile)
    assert _same(read_disk_cache(outer), arrays)
    assert _same(read_disk_cache(inner[0]), others)
    assert all(path.suffix == ".images" for path in tmp_path.iterdir())


KILLED = """
import sys, time
from pathlib import Path
from tfrtool.loading.cache_files import new_file

with new_file(Path(sys.argv[1])) as file:
    file.write(bytes(5000))
    file.flush()
    print("writing", flush=True)
    time.sleep(60)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL")
def test_killed_writer(tf: Any, tmp_path: Path) -> None:
    """A killed writer leaves nothing under the final name, and the next writer cleans up.

    While it lives, what it has written is left alone.
    """
    path, decoded = tmp_path / _key().file_name, _dataset(tf, _pixels())
    command = [sys.executable, "-c", KILLED, os.fspath(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"writing\n"
        other = write_disk_cache(tmp_path, replace(_key(), purpose={}), decoded)
        assert len(list(tmp_path.iterdir())) == 2
        process.send_signal(signal.SIGKILL)
    assert len(list(tmp_path.iterdir())) == 2
    assert open_disk_cache(tmp_path, _key()) is None
    cache = write_disk_cache(tmp_path, _key(), decoded)
    assert set(tmp_path.iterdir()) == {cache.path, other.path}


@pytest.fixture
def shards(tmp_path: Path) -> Dataset:
    """Return a dataset of two shards, of two and one records."""
    payloads = [image_payload(number % 2) for number in range(3)]
    return open_dataset(write_foreign(tmp_path / "shards", [payloads[:2], payloads[2:]]))


def _of(dataset: Dataset, extra: dict[str, object] | None = None, **changes: Any) -> CacheKey:
    options = replace(LoadOptions(image_size=8), **changes)
    return CacheKey.of(dataset, options, 3, extra)


def test_key_is_the_same_for_the_same_images(shards: Dataset) -> None:
    """What doesn't change the images doesn't change the key."""
    again = open_dataset(shards.directory)
    assert _of(again, batch_size=4, seed=3, training=False).digest == _of(shards).digest


def test_key_differs_with_anything_that_decides(shards: Dataset) -> None:
    """Another size, order, part or list of records to leave out is another key."""
    half = Holdout(fraction=0.5, held_out=True)
    split = shards.split("train")
    turned = replace(split, shards=split.shards[::-1])
    keys = [
        _of(shards),
        _of(shards, image_size=9),
        _of(shards, holdout=half),
        _of(shards, holdout=replace(half, held_out=False)),
        _of(shards, holdout=replace(half, fraction=0.4)),
        _of(shards, cycle_length=1),
        _of(shards, block_length=2),
        _of(replace(shards, class_names=shards.class_names[::-1])),
        _of(replace(shards, label_dtype=DType.STRING)),
        _of(shards, extra={"left out": [1]}),
        _of(replace(shards, image_feature="other")),
        _of(replace(shards, splits={"train": turned})),
        _of(replace(shards, label_feature="other")),
    ]
    assert len({key.digest for key in keys}) == len(keys)
    assert len({key.slot for key in keys}) == 3


@pytest.mark.parametrize("change", ["touch", "grow"])
def test_changed_shard_makes_a_cache_stale(
    tf: Any, shards: Dataset, tmp_path: Path, change: str
) -> None:
    """When a shard changes, the old cache isn't used, and goes when the new one is written."""
    directory, decoded = tmp_path / "caches", _dataset(tf, _pixels(3))
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
