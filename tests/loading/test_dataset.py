"""Opening a directory of shards."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from tests.datasets import flip_bit, image_payload, write_foreign, write_pets
from tfrtool.errors import CorruptShardError, DatasetError, UsageError
from tfrtool.examples.example import encode_example
from tfrtool.loading.dataset import open_dataset
from tfrtool.records.compression import Compression


def test_our_dataset(tmp_path: Path) -> None:
    """Name, splits, counts, features and class names come from the metadata."""
    dataset = open_dataset(write_pets(tmp_path))
    assert dataset.name == "pets"
    assert dataset.class_names == ("cat", "dog")
    assert (dataset.image_feature, dataset.label_feature) == ("image", "label")
    assert sum(split.records for split in dataset.splits.values()) == 20
    assert all(len(split.shards) == 2 for split in dataset.splits.values())


def test_shards_without_metadata(tmp_path: Path) -> None:
    """All shards are one split, classes are numbered, features are told from the records."""
    payloads = [image_payload(label, image="pic", target="kind") for label in (0, 3, 1)]
    dataset = open_dataset(write_foreign(tmp_path / "d", [payloads, payloads[:1]]))
    assert dataset.split("train").records == 4
    assert dataset.class_names == ("0", "1", "2", "3")
    assert (dataset.image_feature, dataset.label_feature) == ("pic", "kind")


def test_compressed_shards(tmp_path: Path) -> None:
    """Compression is told from the bytes, for the whole split."""
    directory = write_foreign(tmp_path / "d", [[image_payload(0), image_payload(1)]])
    (path,) = directory.iterdir()
    path.write_bytes(gzip.compress(path.read_bytes()))
    split = open_dataset(directory).split("train")
    assert (split.compression, split.records) == (Compression.GZIP, 2)


def test_mixed_compression_is_an_error(tmp_path: Path) -> None:
    """TensorFlow reads one kind at a time: a mixed split is refused, not misread."""
    directory = write_foreign(tmp_path / "d", [[image_payload(0)], [image_payload(1)]])
    path = min(directory.iterdir())
    path.write_bytes(gzip.compress(path.read_bytes()))
    with pytest.raises(DatasetError, match="compressed"):
        open_dataset(directory)


def test_missing_shard_is_an_error(tmp_path: Path) -> None:
    """TensorFlow would read the rest in silence; the missing file is named."""
    directory = write_pets(tmp_path)
    missing = directory / "pets-train.tfrecord-00001-of-00002"
    missing.unlink()
    with pytest.raises(DatasetError) as caught:
        open_dataset(directory)
    assert caught.value.path == str(missing)


def test_shard_cut_between_records_is_an_error(tmp_path: Path) -> None:
    """A shard that lost whole records is whole to TensorFlow; the metadata tells otherwise."""
    directory = write_foreign(tmp_path / "d", [[image_payload(0)]])
    shard = write_pets(tmp_path / "p") / "pets-train.tfrecord-00000-of-00002"
    shard.write_bytes(next(directory.iterdir()).read_bytes())
    with pytest.raises(DatasetError) as caught:
        open_dataset(shard.parent)
    assert (caught.value.path, caught.value.found) == (str(shard), 1)


@pytest.mark.parametrize("place", [0, 4, 9])
def test_damaged_header_is_named(place: int, tmp_path: Path) -> None:
    """A damaged length is an error that names file, record and offset, before training."""
    first = image_payload(0)
    directory = write_foreign(tmp_path / "d", [[first, image_payload(1)]])
    (path,) = directory.iterdir()
    offset = len(first) + 16
    flip_bit(path, offset + place)
    with pytest.raises(CorruptShardError) as caught:
        open_dataset(directory)
    error = caught.value
    assert (error.path, error.record, error.offset) == (str(path), 1, offset)


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"name": "x"}', '{"name": 1, "splits": [{"shardLengths": ["a"]}]}']
)
def test_malformed_metadata_is_an_error(text: str, tmp_path: Path) -> None:
    """Whatever dataset_info.json holds, the error names it."""
    directory = write_pets(tmp_path)
    (directory / "dataset_info.json").write_text(text)
    with pytest.raises(DatasetError):
        open_dataset(directory)


def test_hostile_names_in_metadata_are_refused(tmp_path: Path) -> None:
    """A dataset's name with a path in it leads nowhere."""
    directory = write_pets(tmp_path)
    path = directory / "dataset_info.json"
    info = json.loads(path.read_text()) | {"name": "../../etc/passwd"}
    path.write_text(json.dumps(info))
    with pytest.raises((DatasetError, UsageError)):
        open_dataset(directory)


@pytest.mark.parametrize("layout", ["missing", "file", "empty", "no-records", "no-images"])
def test_no_dataset_is_an_error(layout: str, tmp_path: Path) -> None:
    """What is no directory of image shards is refused, and named."""
    path = tmp_path / "d"
    if layout == "file":
        path.write_text("x")
    elif layout == "empty":
        path.mkdir()
    elif layout == "no-records":
        write_foreign(path, [[]])
    elif layout == "no-images":
        write_foreign(path, [[encode_example({})]])
    with pytest.raises(DatasetError) as caught:
        open_dataset(path)
    assert caught.value.path is not None


def test_unknown_split_names_those_there_are(tmp_path: Path) -> None:
    """The error for a split that isn't there lists the others."""
    dataset = open_dataset(write_pets(tmp_path))
    with pytest.raises(UsageError) as caught:
        dataset.split("test")
    assert caught.value.expected == "train or validation"


def test_label_that_is_no_class_is_named(tmp_path: Path) -> None:
    """Without class names, a negative label is an error with its record."""
    directory = write_foreign(tmp_path / "d", [[image_payload(0), image_payload(-1)]])
    with pytest.raises(DatasetError) as caught:
        open_dataset(directory)
    assert caught.value.record == 1
