"""Datasets in a store: the same batches as from local files, and each shard is fetched once."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

import tfrtool
from tests.datasets import flip_bit, image_payload, write_foreign, write_pets
from tests.emulators import Bucket
from tests.more import more
from tests.photos import image_bytes
from tfrtool import Dataset
from tfrtool.errors import CorruptShardError, DatasetError, ShardError, WriteError

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


def _sent(bucket: Bucket) -> int:
    """Return how many bytes of shards the store has sent."""
    return sum(entry["down"] for entry in bucket.log() if ".tfrecord" in entry["target"])


@pytest.mark.parametrize(
    "options",
    [
        {"epochs": 3},
        more({"epochs": 2, "training": False, "split": "validation"}),
        more({"epochs": 2, "cache": "memory", "cycle_length": 4}),
        more({"epochs": 2, "holdout": 0.3, "held_out": True, "cycle_length": 2}),
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


def test_dataset_larger_than_the_disk(url: str, bucket: Bucket) -> None:
    """The error has what is needed and what is free, and nothing is fetched."""
    remote = tfrtool.dataset(url)
    bucket.forget()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("shutil.disk_usage", lambda _: _Usage)
        with pytest.raises(WriteError, match=r"full: expected .* found 1,000; .*--shard-cache"):
            remote.load(image_size=16)
    assert _sent(bucket) == 0


class _Usage:
    free = 1000


@pytest.mark.more
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
        opened = tfrtool.dataset(place, on_error="skip")
        clean, report = opened.drop_corrupt(scratch, splits=["train"])
        found.append(_batches(clean))
        (skipped,) = report.lines
        assert skipped.startswith(f"{place}/{name}:6, offset ")
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
    with pytest.raises(DatasetError, match=rf"{first}: .*metadata"):
        _batches(remote)
    bucket.put(f"pets/{first}", (pets / first).read_bytes()[:-10])
    remote = tfrtool.dataset(url)
    with pytest.raises(CorruptShardError, match=rf"{first}.*truncated"):
        _batches(remote)
    assert home.is_dir()


def test_shard_that_goes_away(url: str, bucket: Bucket) -> None:
    """The error names it."""
    remote = tfrtool.dataset(url)
    name = f"pets-train.tfrecord-00002-of-000{SHARDS}"
    bucket.client.delete_object(Bucket=bucket.name, Key=f"pets/{name}")
    with pytest.raises(ShardError, match=rf"{url}/{name}: can't be fetched: no such file"):
        _batches(remote)


@pytest.mark.more
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
