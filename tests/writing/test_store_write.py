"""Datasets written to stores: what readers see of them at every moment, and what is left."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import tfrtool
from tests.emulators import Bucket, Controlled
from tests.photos import image_bytes, write_class_folders
from tests.stored import PREFIX, local_digests, stored_digests

pytestmark = pytest.mark.tf

OPTIONS: dict[str, Any] = {"splits": {"train": 0.7, "test": 0.3}, "shards": 3}
FILES = 10
"""Of such a dataset: six shards and the metadata."""


@pytest.fixture(scope="session")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a source of images."""
    return write_class_folders(tmp_path_factory.mktemp("photos") / "photos", count=20)


@pytest.fixture(scope="session")
def whole(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return the digests of the files of a local write."""
    folder = tmp_path_factory.mktemp("whole") / "cats" / "1.0.0"
    tfrtool.write(photos, folder, **OPTIONS)
    return local_digests(folder)


@pytest.fixture
def url(bucket: Bucket) -> str:
    """Return where a dataset may be written."""
    return f"{bucket.url}/{PREFIX}"


def test_the_objects_are_the_files(
    any_bucket: Controlled, photos: Path, whole: dict[str, str]
) -> None:
    """A fresh dataset is what it would be on a disk, to the byte, and nothing else is left."""
    report = tfrtool.write(photos, f"{any_bucket.url}/{PREFIX}", **OPTIONS)
    assert stored_digests(any_bucket) == whole
    assert len(whole) == FILES
    assert str(report.dataset) == f"{any_bucket.url}/{PREFIX}"


def test_a_dry_run_writes_nothing(bucket: Bucket, url: str, photos: Path) -> None:
    """Not even a claim."""
    assert tfrtool.write(photos, url, dry_run=True, **OPTIONS).dry_run
    assert bucket.names() == []


def test_tfds_reads_a_copy_of_what_replaced_another(
    bucket: Bucket, url: str, photos: Path, tmp_path: Path
) -> None:
    """Files are where they are on a disk."""
    import tensorflow_datasets as tfds

    tfrtool.write(photos, url, shards=1)
    tfrtool.write(photos, url, existing="overwrite", **OPTIONS)
    for key in bucket.names(f"{PREFIX}/"):
        path = tmp_path / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bucket.get(key))
    builder = tfds.builder_from_directory(tmp_path / PREFIX)
    assert builder.info.features["label"].names == ["cat", "dog"]
    read = {name: len(list(builder.as_dataset(split=name))) for name in ("train", "test")}
    assert sum(read.values()) == 40
    for place in (tmp_path / PREFIX, url):
        assert sum(map(tfrtool.count, tfrtool.find_shards(place))) == 40


def test_indexes_go_with_their_shards(bucket: Bucket, url: str, photos: Path) -> None:
    """Of what was replaced, no SHARD.idx is left; what is no shard's stays."""
    for times in range(3):
        tfrtool.write(photos, url, existing="overwrite" if times else "refuse", shards=1)
        assert not [name for name in bucket.names() if name.endswith("00001.idx")]
        for shard in tfrtool.find_shards(url):
            key = str(shard).removeprefix(f"{bucket.url}/")
            bucket.put(f"{key}.idx", b"")
        bucket.put(f"{PREFIX}/other.idx", b"")
    assert f"{PREFIX}/other.idx" in bucket.names()


def test_shards_of_other_sizes_are_cut_anew(bucket: Bucket, url: str, tmp_path: Path) -> None:
    """Sizes that were estimated wrongly are read back from the store, and no shard is left over."""
    source = write_class_folders(tmp_path / "photos", count=30)
    for number, path in enumerate(sorted(source.rglob("*.jpg"))):
        path.write_bytes(image_bytes(size=(200 + 60 * (number % 9), 150)))
    options: dict[str, Any] = {"encode": "png", "shard_size": 20_000, "version": "1.0.0"}
    tfrtool.write(source, tmp_path / "cats" / "1.0.0", **options)
    tfrtool.write(source, url, **options)
    assert stored_digests(bucket) == local_digests(tmp_path / "cats" / "1.0.0")


def test_append_knows_the_digest_of_what_was_written(
    url: str, photos: Path, tmp_path: Path
) -> None:
    """A version that is copied in the store has the digests of one whose records are all read."""
    digests = []
    for folder in (url, tmp_path / "cats" / "1.0.0"):
        report = tfrtool.write(photos, folder, shards=2)
        more = tfrtool.append(folder, report.dataset)  # records, all of which are there twice then
        again = tfrtool.append(more.dataset, report.dataset)
        digests.append((more.digest_in, more.digest_out, again.digest_in, again.digest_out))
    assert digests[0] == digests[1]
    assert None not in digests[0]


def test_class_names_of_another_layout_go(bucket: Bucket, url: str, photos: Path) -> None:
    """What replaces a dataset leaves none of its files of class names, wherever they lay."""
    for layout, name in (("tfds", "label.labels.txt"), ("tfod", "label_map.pbtxt")) * 2:
        tfrtool.write(photos, url, shards=1, layout=layout, existing="overwrite")  # type: ignore[arg-type]
        found = [key.rpartition("/")[2] for key in bucket.names(f"{PREFIX}/")]
        assert {one for one in found if one.startswith("label")} == {name}
