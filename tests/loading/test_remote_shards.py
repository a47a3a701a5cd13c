"""Datasets in a store: the same batches as from local files, and shards that come ahead of use."""

from __future__ import annotations

import contextlib
import fcntl
import gc
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tfrtool
from tests.datasets import flip_bit, image_payload, write_foreign, write_pets
from tests.emulators import Bucket, Misbehaviour
from tests.more import more
from tests.photos import image_bytes
from tfrtool import Dataset
from tfrtool.errors import CorruptShardError, DatasetError, ShardError, UsageError
from tfrtool.loading.dataset.drop_corrupt import naming_damage
from tfrtool.storage.remote.shard_cache import NoRoomError

pytestmark = pytest.mark.tf

SHARDS = 12


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep caches out of the user's own directory."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    return tmp_path / "home" / "tfrtool" / "shards"


@pytest.fixture(scope="module")
def pets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a local dataset of twelve shards a split."""
    return write_pets(tmp_path_factory.mktemp("pets"), count=60, shards=SHARDS)


@pytest.fixture
def url(bucket: Bucket, pets: Path) -> str:
    """Return the URL of the same dataset in a store."""
    bucket.put_folder(pets, "pets/")
    bucket.forget()
    return f"{bucket.url}/pets"


def _batches(dataset: Dataset, **options: Any) -> list[tuple[bytes, list[int]]]:
    chosen = {"image_size": 16, "batch_size": 8, **options}
    loaded = dataset.load(**chosen)
    return [(images.numpy().tobytes(), labels.numpy().tolist()) for images, labels in loaded]


def _size(pets: Path, split: str = "train") -> int:
    """Return the bytes of a split's largest shard."""
    return max(path.stat().st_size for path in pets.glob(f"pets-{split}.tfrecord*"))


def _sent(bucket: Bucket) -> int:
    """Return how many bytes of shards the store has sent."""
    return sum(entry["down"] for entry in bucket.log() if ".tfrecord" in entry["target"])


@pytest.mark.parametrize(
    "options",
    [
        {"epochs": 3},
        more({"epochs": 2, "training": False, "split": "validation"}),
        {"epochs": 2, "cache": "memory", "cycle_length": 4},
        {"epochs": 2, "holdout": 0.3, "held_out": True, "cycle_length": 2, "block_length": 2},
        more({"recipe": "naive", "augment": "flip"}),
    ],
    ids=lambda options: "-".join(f"{key}={value}" for key, value in options.items()),
)
def test_batches_are_those_of_local_files(
    pets: Path, url: str, bucket: Bucket, options: dict[str, Any]
) -> None:
    """Order and pixels are the same, and each shard is fetched once for all epochs."""
    local, remote = tfrtool.dataset(pets), tfrtool.dataset(url)
    bucket.forget()
    assert _batches(remote, **options) == _batches(local, **options)
    split = options.get("split", "train")
    whole = sum(path.stat().st_size for path in pets.glob(f"pets-{split}.tfrecord*"))
    assert _sent(bucket) == whole
    assert len(remote.shard_cache.fetched) == SHARDS  # type: ignore[union-attr]
    # The next run only asks for what it opens the dataset by.
    again = tfrtool.dataset(url)
    bucket.forget()
    _batches(again, **options)
    assert bucket.down() == 0


@pytest.mark.parametrize("shards", [4, more(7)])
def test_cache_smaller_than_the_dataset(pets: Path, url: str, tmp_path: Path, shards: int) -> None:
    """However few shards fit, batches stay the same, and there are never more than fit."""
    bound = shards * _size(pets)
    folder = tmp_path / "small"
    remote = tfrtool.dataset(url, shard_cache=folder, shard_cache_size=bound)
    most, done = [0], threading.Event()

    def watch() -> None:
        while not done.wait(0.001):
            # Copies only grow under the lock: without it, one that is gone and the one that came
            # in its place could both be counted.
            with (folder / "lock").open("ab") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                most[0] = max(most[0], sum(_sizes(folder)))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        found = _batches(remote, epochs=3)
    finally:
        done.set()
        watcher.join()
    assert found == _batches(tfrtool.dataset(pets), epochs=3)
    assert 0 < most[0] <= bound
    assert len(remote.shard_cache.fetched) <= 3 * SHARDS  # type: ignore[union-attr]
    assert _open_copies() == []


def _sizes(folder: Path) -> Iterator[int]:
    """Return the sizes of what is in a folder, in which a part may get another name meanwhile."""
    found = {}
    for path in folder.iterdir():
        with contextlib.suppress(FileNotFoundError):
            status = path.stat()
            found[status.st_ino] = status.st_size
    return iter(found.values())


def _open_copies() -> list[str]:
    """Return the copies that this process has open."""
    gc.collect()
    found = []
    for descriptor in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            found.append(os.readlink(descriptor))  # noqa: PTH115 - it may be no path
    return [name for name in found if name.endswith((".shard", ".part"))]


def test_shards_come_ahead_of_use_and_in_its_order(url: str, bucket: Bucket) -> None:
    """While the first records are looked at, later shards are fetched, those needed first first."""
    remote = tfrtool.dataset(url)
    iterator = iter(remote.load(image_size=16, batch_size=1, cycle_length=1, shuffle_buffer=1))
    bucket.misbehave(Misbehaviour(methods=("GET",), delay=0.05))
    next(iterator)
    time.sleep(0.5)
    fetched = list(remote.shard_cache.fetched)  # type: ignore[union-attr]
    assert 4 <= len(fetched) < SHARDS
    labels = [int(labels[0]) for _, labels in iterator]
    assert len(labels) > 0
    order = remote.shard_cache.fetched  # type: ignore[union-attr]
    assert order[: len(fetched)] == fetched
    assert len({*order}) == len(order) == SHARDS


def test_next_epoch_is_fetched_before_this_one_ends(pets: Path, url: str, tmp_path: Path) -> None:
    """Where not all fits, an epoch does not begin by waiting: its first shards are there."""
    size = 6 * _size(pets)
    remote = tfrtool.dataset(url, shard_cache=tmp_path / "s", shard_cache_size=size)
    local = tfrtool.dataset(pets)
    options: dict[str, Any] = {"image_size": 16, "batch_size": 1, "training": False}
    options |= {"epochs": 2, "cycle_length": 1, "prefetch": 0}
    iterator = iter(remote.load(**options))
    cache = remote.shard_cache
    assert cache is not None
    records = local.split("train").records
    for _ in range(records):
        next(iterator)
    deadline = time.monotonic() + 5
    while len(cache.fetched) <= SHARDS and time.monotonic() < deadline:
        time.sleep(0.05)
    assert cache.fetched[SHARDS].name.endswith(f"train.tfrecord-00000-of-000{SHARDS}")


def test_training_and_validation_share_a_small_cache(pets: Path, url: str, tmp_path: Path) -> None:
    """Two pipelines take turns in the room that is there."""
    bound = 8 * _size(pets)
    remote = tfrtool.dataset(url, shard_cache=tmp_path / "small", shard_cache_size=bound)
    local = tfrtool.dataset(pets)

    def run(dataset: Dataset) -> list[Any]:
        options: dict[str, Any] = {"image_size": 16, "batch_size": 8}
        training = dataset.load(**options, epochs=3)
        steps, seen = int(training.cardinality()) // 3, []
        iterator = iter(training)
        for _ in range(3):
            seen += [next(iterator)[1].numpy().tolist() for _ in range(steps)]
            validation = dataset.load("validation", **options, training=False)
            seen += [labels.numpy().tolist() for _, labels in validation]
        return seen

    assert run(remote) == run(local)


def test_iterators_that_are_left_hold_nothing_for_long(
    pets: Path, url: str, tmp_path: Path
) -> None:
    """Who takes a batch and goes away, again and again, does not fill the cache for good."""
    bound = 6 * _size(pets)
    remote = tfrtool.dataset(url, shard_cache=tmp_path / "small", shard_cache_size=bound)
    batches = remote.load(image_size=16, batch_size=8)
    for _ in range(5):
        next(iter(batches))
    assert _batches(remote) == _batches(tfrtool.dataset(pets))
    del batches
    assert _open_copies() == []


def test_cache_that_can_hold_too_few(pets: Path, url: str, tmp_path: Path) -> None:
    """It is told before anything is fetched, with what is needed."""
    size = 4 * _size(pets) - 1
    remote = tfrtool.dataset(url, shard_cache=tmp_path / "s", shard_cache_size=size)
    with pytest.raises(UsageError, match=r"too small to read 4 shards at a time.*--shard-c"):
        remote.load(image_size=16)
    assert _batches(remote, cycle_length=3) == _batches(tfrtool.dataset(pets), cycle_length=3)
    tiny = tfrtool.dataset(url, shard_cache=tmp_path / "s", shard_cache_size=1)
    with pytest.raises(UsageError, match=r"too small to read a shard: .*--shard-cache-size$"):
        tiny.load(image_size=16, cycle_length=1)
    with pytest.raises(UsageError, match="--shard-cache"):
        tfrtool.dataset(pets, shard_cache=tmp_path / "s")


def test_cache_full_of_what_others_use(
    pets: Path, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who finds no room waits a while, and then says what would help."""
    monkeypatch.setattr("tfrtool.loading.pipeline.remote_shards._PATIENCE", 0.2)
    size = 4 * _size(pets)
    remote, other = (
        tfrtool.dataset(url, shard_cache=tmp_path / "s", shard_cache_size=size) for _ in range(2)
    )
    held = [other.shard_cache.fetch(path) for path in other.split("train").shards[:3]]  # type: ignore[union-attr]
    with pytest.raises(NoRoomError, match="--shard-cache-size"), naming_damage(remote, "train"):
        _batches(remote, training=False, split="validation")
    for file in held:
        file.close()


def test_shard_that_is_not_what_was_written(url: str, bucket: Bucket, pets: Path, tf: Any) -> None:
    """A flipped bit is told by the shard's digest before a record of it is used."""
    name = f"pets-train.tfrecord-00002-of-000{SHARDS}"
    data = bytearray((pets / name).read_bytes())
    data[-100] ^= 1
    bucket.put(f"pets/{name}", bytes(data))
    remote = tfrtool.dataset(url)
    with (
        pytest.raises(CorruptShardError, match=rf"{name}: .*SHA-256.*--on-error skip"),
        naming_damage(remote, "train"),
    ):
        _batches(remote)
    # Who loads without `train` gets an error of TensorFlow's with the same text.
    with pytest.raises(
        tf.errors.InvalidArgumentError, match=rf"{name}: .* differs from what was written"
    ):
        _batches(remote)


def test_damage_is_skipped(url: str, bucket: Bucket, pets: Path, tmp_path: Path) -> None:
    """What is damaged in a store is named by its URL, and left out, as of local files."""
    name = f"pets-train.tfrecord-00002-of-000{SHARDS}"
    copy = tmp_path / "copy"
    copy.mkdir()
    for path in pets.iterdir():
        (copy / path.name).write_bytes(path.read_bytes())
    flip_bit(copy / name, (copy / name).stat().st_size - 100)
    bucket.put(f"pets/{name}", (copy / name).read_bytes())
    found = []
    for place, scratch in ((copy, tmp_path / "a"), (url, tmp_path / "b")):
        opened = tfrtool.dataset(place, "skip")
        clean, report = opened.drop_corrupt(scratch, splits=["train"])
        found.append(_batches(clean))
        (skipped,) = report.lines
        assert skipped.startswith(f"{place}/{name}, record ")
    assert found[0] == found[1]


def test_dataset_without_metadata(bucket: Bucket, tmp_path: Path) -> None:
    """Classes and counts come from the shards, each of which is fetched once for all."""
    data = image_bytes(size=(8, 8))
    payloads = [[image_payload(n % 3, data=data) for n in range(5)] for _ in range(6)]
    local = write_foreign(tmp_path / "foreign", payloads)
    bucket.put_folder(local, "foreign/")
    remote = tfrtool.dataset(f"{bucket.url}/foreign")
    assert remote.class_names == ("0", "1", "2")
    assert _batches(remote, epochs=2) == _batches(tfrtool.dataset(local), epochs=2)
    assert len(remote.shard_cache.fetched) == 6  # type: ignore[union-attr]


def test_shard_with_other_records_than_the_metadata_says(
    url: str, bucket: Bucket, pets: Path, home: Path
) -> None:
    """Without a report, what was believed of a shard is held against it when it is fetched."""
    first, second = (f"pets-train.tfrecord-0000{n}-of-000{SHARDS}" for n in (1, 3))
    bucket.client.delete_object(Bucket=bucket.name, Key="pets/write_report.json")
    bucket.put(f"pets/{first}", (pets / first).read_bytes() + (pets / second).read_bytes())
    remote = tfrtool.dataset(url)
    with pytest.raises(DatasetError, match=rf"{first}: .*metadata"), naming_damage(remote, "train"):
        _batches(remote)
    bucket.put(f"pets/{first}", (pets / first).read_bytes()[:-10])
    remote = tfrtool.dataset(url)
    with (
        pytest.raises(CorruptShardError, match=rf"{first}.*truncated"),
        naming_damage(remote, "train"),
    ):
        _batches(remote)
    assert home.is_dir()


def test_shard_that_goes_away(url: str, bucket: Bucket) -> None:
    """The error names it."""
    remote = tfrtool.dataset(url)
    name = f"pets-train.tfrecord-00002-of-000{SHARDS}"
    bucket.client.delete_object(Bucket=bucket.name, Key=f"pets/{name}")
    with (
        pytest.raises(ShardError, match=rf"{url}/{name}: can't be fetched: no such file"),
        naming_damage(remote, "train"),
    ):
        _batches(remote)


def test_images_on_disk_are_those_of_the_shards(
    url: str, bucket: Bucket, tmp_path: Path, pets: Path
) -> None:
    """The cache of decoded images is used again, and not when a shard has changed."""
    options = {"cache": "disk", "cache_directory": tmp_path / "images", "epochs": 2}
    first = _batches(tfrtool.dataset(url), **options)
    local = {**options, "cache_directory": tmp_path / "local"}
    assert first == _batches(tfrtool.dataset(pets), **local)
    remote = tfrtool.dataset(url)
    assert _batches(remote, **options) == first
    assert remote.shard_cache.fetched == []  # type: ignore[union-attr]
    time.sleep(1.1)  # a store's times are whole seconds
    name = f"pets-train.tfrecord-00002-of-000{SHARDS}"
    bucket.put(f"pets/{name}", (pets / name).read_bytes())
    again = tfrtool.dataset(url)
    assert _batches(again, **options) == first
    assert len(again.shard_cache.fetched) == 1  # type: ignore[union-attr]
