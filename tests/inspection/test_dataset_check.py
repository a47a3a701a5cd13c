"""Shards as a whole: against their names, and against dataset_info.json."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.datasets import flip_bit
from tfrtool.examples.example import DType, Feature, encode_example
from tfrtool.examples.tfds_metadata import DatasetInfo, SplitInfo
from tfrtool.inspection.verify.dataset_check import MISSING_LISTED
from tfrtool.inspection.verify.verify import VerifyReport, verify
from tfrtool.records.framing import frame

PER_SHARD = 3


def payload(number: int) -> bytes:
    """Return an Example that differs from all others."""
    return encode_example({"n": Feature(dtype=DType.INT64, values=(number,))})


def write_shard(path: Path, first: int, count: int = PER_SHARD) -> Path:
    """Write a shard of Examples of numbers from ``first`` on."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(frame(payload(first + i)) for i in range(count)))
    return path


def write_dataset(directory: Path, **splits: int) -> Path:
    """Write splits of so many shards, with their metadata."""
    infos, number = [], 1000
    for split, count in splits.items():
        size = 0
        for index in range(count):
            path = directory / f"nums-{split}.tfrecord-{index:05d}-of-{count:05d}"
            size += write_shard(path, number).stat().st_size - 16 * PER_SHARD
            number += PER_SHARD
        infos.append(SplitInfo(name=split, shard_lengths=(PER_SHARD,) * count, bytes=size))
    write_info(directory, DatasetInfo(name="nums", version="1.0.0", splits=tuple(infos)).to_json())
    return directory


def write_info(directory: Path, data: Any) -> None:
    """Write metadata."""
    (directory / "dataset_info.json").write_text(json.dumps(data))


def read_info(directory: Path) -> Any:
    """Return metadata as plain values."""
    return json.loads((directory / "dataset_info.json").read_text())


def told(report: VerifyReport) -> list[tuple[str, str]]:
    """Return kinds and file names of the faults of all shards together."""
    return [(fault.kind.value, fault.path.name) for fault in report.faults]


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    """Return a sound dataset of two splits."""
    return write_dataset(tmp_path / "nums", train=3, test=1)


def test_sound_dataset(dataset: Path) -> None:
    """Nothing is wrong, and the sums are right."""
    report = verify([str(dataset)])
    assert report.is_sound
    assert report.n_faults == 0
    assert report.notes == ()
    assert (len(report.shards), report.records) == (4, 4 * PER_SHARD)
    assert report.bytes == sum(path.stat().st_size for path in dataset.glob("*.tfrecord-*"))


@given(removed=st.sets(st.integers(0, 5), max_size=5), with_info=st.booleans())
def test_missing_shards(
    tmp_path_factory: pytest.TempPathFactory, removed: set[int], with_info: bool
) -> None:
    """Exactly the shards that were removed are told, with metadata and without it."""
    directory = write_dataset(tmp_path_factory.mktemp("nums"), train=6)
    names = [f"nums-train.tfrecord-{index:05d}-of-00006" for index in sorted(removed)]
    for name in names:
        (directory / name).unlink()
    if not with_info:
        (directory / "dataset_info.json").unlink()
    assert told(verify([str(directory)])) == [("missing-shard", name) for name in names]


def test_one_file_is_meant_alone(dataset: Path) -> None:
    """A single file that was named is not asked for its siblings or its metadata."""
    path = dataset / "nums-train.tfrecord-00000-of-00003"
    lonely = path.rename(dataset.parent / path.name)
    report = verify([str(lonely)])
    assert report.is_sound
    assert report.directories == ()


def test_wrong_number_of_records(dataset: Path) -> None:
    """The shard is named, with what was expected and what was found."""
    path = write_shard(dataset / "nums-train.tfrecord-00001-of-00003", 5000, 2)
    report = verify([str(dataset)])
    (fault,) = report.faults
    assert (fault.kind.value, fault.path) == ("count", path)
    assert fault.message == "dataset_info.json lists 3 records, found 2"


def test_damaged_record_is_not_counted_against_the_metadata(dataset: Path) -> None:
    """A record that is there, but damaged, is one fault and not two."""
    flip_bit(dataset / "nums-train.tfrecord-00001-of-00003", 13)
    report = verify([str(dataset)])
    assert report.faults == ()
    assert report.n_faults == 1


def test_shard_cut_between_records_is_found(dataset: Path) -> None:
    """What no reader can see in the file, the metadata tells."""
    path = dataset / "nums-train.tfrecord-00002-of-00003"
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 3])
    assert told(verify([str(dataset)])) == [("count", path.name)]


def test_numbytes(dataset: Path) -> None:
    """The right number of other records is told; the size of files is taken for payloads'."""
    info = read_info(dataset)
    split = info["splits"][0]
    size = int(split["numBytes"])
    split["numBytes"] = str(size + 16 * 3 * PER_SHARD)
    write_info(dataset, info)
    assert verify([str(dataset)]).is_sound
    split["numBytes"] = str(size + 1)
    write_info(dataset, info)
    (fault,) = verify([str(dataset)]).faults
    assert fault.kind.value == "count"
    assert f"{size + 1:,} bytes" in fault.message
    assert f"found {size:,}" in fault.message


def test_leftover_of_another_count(dataset: Path) -> None:
    """Shards of an earlier write are told, with metadata and without it."""
    write_shard(dataset / "nums-train.tfrecord-00000-of-00004", 7000)
    assert told(verify([str(dataset)])) == [("count", "nums-train.tfrecord-00000-of-00004")]
    (dataset / "dataset_info.json").unlink()
    assert told(verify([str(dataset)])) == [("count", "nums-train.tfrecord-00000-of-00004")]


def test_other_count_than_the_metadata_says(dataset: Path) -> None:
    """Where no shard has the number that is expected, that is one fault."""
    for path in dataset.glob("*train*"):
        path.rename(str(path).replace("-of-00003", "-of-00005"))
    (fault,) = verify([str(dataset)]).faults
    assert fault.kind.value == "count"
    assert "3 shards" in fault.message
    assert "found nums-train.tfrecord-*-of-00005" in fault.message


def test_number_that_is_too_high(tmp_path: Path) -> None:
    """A shard beyond the count is extra."""
    for index in (0, 1, 2):
        write_shard(tmp_path / f"x-{index:05d}-of-00002", 10 * index)
    assert told(verify([str(tmp_path)])) == [("count", "x-00002-of-00002")]


def test_two_files_for_one_number(tmp_path: Path) -> None:
    """A compressed twin is told: a glob reads both."""
    for index in (0, 1):
        path = write_shard(tmp_path / f"x-{index:05d}-of-00002", 10 * index)
    (tmp_path / "x-00001-of-00002.gz").write_bytes(gzip.compress(path.read_bytes()))
    assert told(verify([str(tmp_path)])) == [
        ("count", "x-00001-of-00002.gz"),
        ("decompression", "x-00001-of-00002.gz"),
        ("count", "x-00001-of-00002.gz"),
    ]


def test_copy_of_a_shard_in_place_of_another(tmp_path: Path) -> None:
    """Shards of one set with the same records are a fault."""
    for name in ("x-00000-of-00002", "x-00001-of-00002", "copy.tfrecord"):
        write_shard(tmp_path / name, 0)
    assert told(verify([str(tmp_path)])) == [("count", "x-00001-of-00002")]


def test_same_records_in_two_splits(tmp_path: Path) -> None:
    """A test split that is a copy of the training split is a fault."""
    for split in ("train", "test"):
        write_shard(tmp_path / f"{split}-00000-of-00001", 0, 2)
    assert told(verify([str(tmp_path)])) == [("count", "train-00000-of-00001")]


def test_shards_of_one_set_compressed_differently(tmp_path: Path) -> None:
    """TensorFlow reads one compression at a time; the rarer one is named."""
    for index in range(3):
        path = write_shard(tmp_path / f"x-{index:05d}-of-00003", 10 * index)
    path.write_bytes(gzip.compress(path.read_bytes()))
    assert told(verify([str(tmp_path)])) == [("decompression", path.name)]


def test_compressed_shards_beside_metadata_are_noted(dataset: Path) -> None:
    """TFDS can't read them, and TensorFlow must be told: no damage, but worth to be known."""
    for path in dataset.glob("*.tfrecord-*"):
        path.write_bytes(gzip.compress(path.read_bytes()))
    report = verify([str(dataset)])
    assert report.is_sound
    assert any("TFDS" in note and "4" in note for note in report.notes)
    assert any("compression_type='GZIP'" in note for note in report.notes)
    for path in dataset.glob("*.tfrecord-*"):
        path.write_bytes(gzip.compress(b"no records, but an archive"))
    assert not any("compression_type" in note for note in verify([str(dataset)]).notes)


BROKEN = [
    b"{",
    b"[]",
    b"\xff",
    b"[" * 100_000,
    b'{"name": "x", "splits": 3}',
    b'{"name": "x", "splits": [{"name": "train", "shardLengths": ["-1"]}]}',
    b'{"name": "x", "splits": [{"name": "train", "shardLengths": ["x"]}]}',
]


@pytest.mark.parametrize("text", BROKEN, ids=range(len(BROKEN)))
def test_metadata_that_cannot_be_read(dataset: Path, text: bytes) -> None:
    """It is a fault by itself, and the names are looked at in its place."""
    (dataset / "dataset_info.json").write_bytes(text)
    (dataset / "nums-train.tfrecord-00001-of-00003").unlink()
    assert told(verify([str(dataset)])) == [
        ("parse", "dataset_info.json"),
        ("missing-shard", "nums-train.tfrecord-00001-of-00003"),
    ]


def test_hostile_metadata(dataset: Path) -> None:
    """Names that are none, and a split of 90,000 shards, cost little and are bounded."""
    lengths = ["1"] * 90_000
    info = read_info(dataset)
    info["splits"] += [
        {"name": "../../etc", "shardLengths": ["1"]},
        {"name": "huge", "shardLengths": lengths},
        {"name": "unsaid"},
    ]
    write_info(dataset, info)
    report = verify([str(dataset)])
    assert told(report) == [("missing-shard", "nums")] * 2


@pytest.mark.parametrize("count", ["99999999999", "0" * 5, "9" * 18])
def test_hostile_counts(tmp_path: Path, count: str) -> None:
    """A name may claim any number of shards; what is told of them is bounded."""
    write_shard(tmp_path / f"-00000-of-{count}", 0)
    report = verify([str(tmp_path)])
    assert 1 <= len(report.faults) <= MISSING_LISTED + 1
