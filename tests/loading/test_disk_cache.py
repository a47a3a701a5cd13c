"""Decoded images on disk: whole or not there, found again, and never stale."""

from __future__ import annotations

import gc
import hashlib
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tfrtool.errors import DatasetError, WriteError
from tfrtool.loading.disk_cache import (
    CacheKey,
    DiskCache,
    open_disk_cache,
    write_disk_cache,
)
from tfrtool.storage.atomic_files import TEMPORARY
from tfrtool.storage.progress import Progress

pytestmark = pytest.mark.tf

SIZE, IMAGES = 5, 70


def _key(images: int = IMAGES, size: int = SIZE, **facts: object) -> CacheKey:
    digest = hashlib.md5(repr((images, size, facts)).encode()).hexdigest()
    return CacheKey(images=images, image_size=size, part="0" * 16, digest=digest)


def _pixels(images: int = IMAGES, seed: int = 0) -> tuple[Any, Any]:
    generator = np.random.default_rng(seed)
    pixels = generator.integers(0, 256, (images, SIZE, SIZE, 3), np.uint8)
    return pixels, generator.integers(-(2**63), 2**63, images, np.int64)


def _dataset(tf: Any, arrays: tuple[Any, Any]) -> Any:
    return tf.data.Dataset.from_tensor_slices(arrays)


def _contents(cache: DiskCache) -> tuple[Any, Any]:
    return cache.read(np.arange(len(cache.labels))), cache.labels


def _same(found: tuple[Any, Any], expected: tuple[Any, Any]) -> bool:
    return all(np.array_equal(one, other) for one, other in zip(found, expected, strict=True))


def test_what_went_in_comes_out(tf: Any, tmp_path: Path) -> None:
    """All images and labels come back, in the order of writing."""
    arrays = _pixels()
    images, labels = _contents(write_disk_cache(tmp_path, _key(), _dataset(tf, arrays)))
    assert _same((images, labels), arrays)
    assert (images.dtype, labels.dtype) == (np.uint8, np.int64)


@settings(max_examples=8)
@given(labels=st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=40))
def test_round_trip(tf: Any, tmp_path_factory: pytest.TempPathFactory, labels: list[int]) -> None:
    """Whatever the labels, each image comes back with its own."""
    arrays = (_pixels(len(labels))[0], np.array(labels, np.int64))
    directory = tmp_path_factory.mktemp("caches")
    cache = write_disk_cache(directory, _key(len(labels)), _dataset(tf, arrays))
    assert _same(_contents(cache), arrays)


def test_found_again_by_its_key_alone(tf: Any, tmp_path: Path) -> None:
    """A cache is there for the key that it was written for, and for no other."""
    arrays = _pixels()
    assert open_disk_cache(tmp_path / "none", _key()) is None
    write_disk_cache(tmp_path, _key(), _dataset(tf, arrays))
    found = open_disk_cache(tmp_path, _key())
    assert found is not None
    assert _same(_contents(found), arrays)
    for other in (_key(IMAGES - 1), _key(size=4), _key(shards=["changed"])):
        assert open_disk_cache(tmp_path, other) is None
    assert open_disk_cache(tmp_path, _key()) is not None


def test_progress_is_told(tf: Any, tmp_path: Path) -> None:
    """The number of images written grows to that of all images."""
    told: list[Progress] = []
    write_disk_cache(tmp_path, _key(), _dataset(tf, _pixels()), told.append)
    assert [(progress.done, progress.total) for progress in told] == [(n, 70) for n in (32, 64, 70)]


def test_stale_caches_of_the_same_purpose_go(tf: Any, tmp_path: Path) -> None:
    """A new cache takes the place of the stale one; those for other purposes stay."""
    decoded = _dataset(tf, _pixels())
    other = replace(_key(), part="1" * 16)
    write_disk_cache(tmp_path, other, decoded)
    stale = write_disk_cache(tmp_path, _key(shards=["old"]), decoded).path
    (tmp_path / "notes.txt").write_text("the user's own")
    fresh = write_disk_cache(tmp_path, _key(shards=["new"]), decoded)
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {fresh.path.name, other.file_name, "notes.txt"}
    assert stale.name not in names


@pytest.mark.skipif(sys.platform == "win32", reason="there, a file in use can't be removed")
def test_a_cache_in_use_outlives_its_name(tf: Any, tmp_path: Path) -> None:
    """A run goes on with its cache when another run finds it stale, and removes it."""
    arrays = _pixels()
    cache = write_disk_cache(tmp_path, _key(run=1), _dataset(tf, arrays))
    write_disk_cache(tmp_path, _key(run=2), _dataset(tf, _pixels(seed=1)))
    assert not cache.path.exists()
    assert _same(_contents(cache), arrays)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux lists open files")
def test_no_descriptor_is_left_open(tf: Any, tmp_path: Path) -> None:
    """Opening and reading caches again and again keeps no files open."""
    write_disk_cache(tmp_path, _key(), _dataset(tf, _pixels()))
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    for _ in range(5):
        cache = open_disk_cache(tmp_path, _key())
        assert cache is not None
        assert _contents(cache)[0].any()
    del cache
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) <= before  # noqa: PTH208


@settings(max_examples=20)
@given(data=st.data())
def test_damaged_file_is_not_used(
    tf: Any, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """A file that is cut at either end, longer, or changed anywhere is dropped."""
    directory = tmp_path_factory.mktemp("caches")
    arrays = _pixels()
    path = write_disk_cache(directory, _key(), _dataset(tf, arrays)).path
    whole = path.read_bytes()
    pixels = SIZE * SIZE * 3 * IMAGES
    kind = data.draw(st.sampled_from(["cut", "hole", "longer", "flip", "zeros", "black"]))
    if kind == "cut":
        damaged = whole[: data.draw(st.integers(0, len(whole) - 1))]
    elif kind == "hole":
        damaged = whole[data.draw(st.integers(1, pixels)) :]
    elif kind == "longer":
        damaged = whole + data.draw(st.binary(min_size=1, max_size=99))
    elif kind == "flip":
        place = data.draw(st.integers(0, len(whole) - 1))
        flipped = whole[place] ^ 1 << data.draw(st.integers(0, 7))
        damaged = whole[:place] + bytes([flipped]) + whole[place + 1 :]
    elif kind == "black":
        damaged = bytes(pixels) + whole[pixels:]
    else:
        damaged = bytes(len(whole))
    path.write_bytes(damaged)
    assert open_disk_cache(directory, _key()) is None
    assert not path.exists()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no FIFOs")
@pytest.mark.parametrize("kind", ["fifo", "link", "folder", "device"])
def test_what_is_no_file_is_not_opened(tf: Any, tmp_path: Path, kind: str) -> None:
    """A FIFO is not waited for, and a link is not followed; a cache takes their place."""
    directory, elsewhere = tmp_path / "caches", tmp_path / "elsewhere"
    written = write_disk_cache(directory, _key(), _dataset(tf, _pixels())).path
    written.rename(elsewhere)
    before = elsewhere.read_bytes()
    if kind == "fifo":
        os.mkfifo(written)
    elif kind == "folder":
        written.mkdir()
    else:
        written.symlink_to(elsewhere if kind == "link" else "/dev/zero")
    assert open_disk_cache(directory, _key()) is None
    if kind == "folder":
        with pytest.raises(WriteError):
            write_disk_cache(directory, _key(), _dataset(tf, _pixels()))
    else:
        assert _same(
            _contents(write_disk_cache(directory, _key(), _dataset(tf, _pixels()))), _pixels()
        )
    assert elsewhere.read_bytes() == before


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="files have no owners")
def test_another_users_file_is_not_believed(
    tf: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What somebody else has put into the folder is no cache, though all of it fits."""
    write_disk_cache(tmp_path, _key(), _dataset(tf, _pixels()))
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    assert open_disk_cache(tmp_path, _key()) is None
    with pytest.raises(WriteError, match="another user"):
        write_disk_cache(tmp_path, _key(), _dataset(tf, _pixels()))


@pytest.mark.skipif(sys.platform == "win32", reason="permissions are others there")
def test_nobody_else_can_look(tf: Any, tmp_path: Path) -> None:
    """The folder and the file are the user's alone, and the folder is no link."""
    directory = tmp_path / "new" / "caches"
    cache = write_disk_cache(directory, _key(), _dataset(tf, _pixels()))
    assert [path.stat().st_mode & 0o777 for path in (directory, cache.path)] == [0o700, 0o600]
    (tmp_path / "link").symlink_to(directory)
    with pytest.raises(WriteError, match="link"):
        write_disk_cache(tmp_path / "link", _key(run=2), _dataset(tf, _pixels()))
    assert list(directory.iterdir()) == [cache.path]


def test_images_in_use_are_not_overwritten(tf: Any, tmp_path: Path) -> None:
    """Memory is used again, but never while anybody holds a part of what was read into it."""
    arrays = _pixels()
    cache = write_disk_cache(tmp_path, _key(), _dataset(tf, arrays))
    held: list[tuple[int, Any]] = []
    for start in range(0, IMAGES - 10, 3):
        images = cache.read(np.arange(start, start + 10))
        held.append((start, images[2:3, 1:] if start % 2 else tf.convert_to_tensor(images)))
        if len(held) > 4:
            held.pop(0)
        for first, part in held:
            expected = arrays[0][first + 2 : first + 3, 1:] if first % 2 else arrays[0][first:]
            assert np.array_equal(part, expected[: len(part)])


@pytest.mark.parametrize("damage", ["cut", "emptied"])
def test_a_cache_that_shrinks_under_its_reader(tf: Any, tmp_path: Path, damage: str) -> None:
    """A file that is cut while it is in use is an error that names it, and kills nobody."""
    cache = write_disk_cache(tmp_path, _key(), _dataset(tf, _pixels()))
    os.truncate(cache.path, 100 if damage == "cut" else 0)
    with pytest.raises(ValueError, match=str(cache.path)):
        cache.read(np.array([0, IMAGES - 1]))


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

    def interrupt(_: Progress) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_disk_cache(tmp_path, _key(), _dataset(tf, _pixels()), interrupt)
    assert list(tmp_path.iterdir()) == []


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

    def meanwhile(_: Progress) -> None:
        if not inner:
            inner.append(write_disk_cache(tmp_path, other, _dataset(tf, others)))

    outer = write_disk_cache(tmp_path, _key(), _dataset(tf, arrays), meanwhile)
    assert _same(_contents(outer), arrays)
    assert _same(_contents(inner[0]), others)
    assert all(path.suffix == ".images" for path in tmp_path.iterdir())


def test_what_killed_writers_left_goes(tf: Any, tmp_path: Path) -> None:
    """What nobody has written to for long is removed; what may have a writer is left alone."""
    names = [f"{TEMPORARY}{number:016x}.{_key().file_name}" for number in range(2)]
    for name in names:
        (tmp_path / name).write_bytes(bytes(5000))
    os.utime(tmp_path / names[0], (1, 1))
    cache = write_disk_cache(tmp_path, _key(), _dataset(tf, _pixels()))
    assert set(tmp_path.iterdir()) == {cache.path, tmp_path / names[1]}
