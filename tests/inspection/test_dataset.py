"""Datasets on disk: where their splits are, what they should hold, and what they do hold."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.datasets import write_pets
from tests.examples.strategies import int64, string
from tfrtool.errors import DatasetError, UsageError
from tfrtool.examples.example import encode_example
from tfrtool.inspection.dataset import dataset_summary
from tfrtool.inspection.dataset import record_labels as labels
from tfrtool.inspection.dataset.dataset_summary import (
    DatasetSummary,
    inspect_dataset,
)
from tfrtool.records.framing import Record, frame
from tfrtool.records.reader import read_records


def inspect(directory: Path, label: str | None = None) -> DatasetSummary:
    """Inspect a dataset in this process."""
    return inspect_dataset(directory, label=label, workers=1)


def shard(path: Path, values: Sequence[int | bytes], feature: str = "label") -> Path:
    """Write a shard with these labels."""
    path.parent.mkdir(parents=True, exist_ok=True)
    payloads = [
        encode_example({feature: int64(v) if isinstance(v, int) else string(v)}) for v in values
    ]
    path.write_bytes(b"".join(map(frame, payloads)))
    return path


def faults(summary: DatasetSummary) -> list[tuple[str, str]]:
    """Return the kind and the file of each fault."""
    return [(one.fault.kind.value, one.path.name) for one in summary.faults]


@pytest.fixture(scope="module")
def pets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a dataset of two splits with two shards each; it is not to be changed."""
    return write_pets(tmp_path_factory.mktemp("pets"))


@pytest.fixture
def copy(pets: Path, tmp_path: Path) -> Path:
    """Return a copy of the dataset, to be broken."""
    return Path(shutil.copytree(pets, tmp_path / "pets"))


@pytest.mark.tf
def test_a_dataset_that_is_whole(pets: Path) -> None:
    """Counts, shards and labels are those that the writer reports, and there are no faults."""
    report = json.loads((pets / "write_report.json").read_text())
    seen: list[tuple[int, int | None]] = []
    found = inspect_dataset(
        pets, workers=1, on_progress=lambda now: seen.append((now.done, now.total))
    )
    sizes = sum(path.stat().st_size for path in pets.glob("*.tfrecord-*"))
    assert (seen[0], seen[-1]) == ((0, sizes), (sizes, sizes))
    assert sorted(seen) == seen
    assert (found.name, found.version, found.label, found.faults) == ("pets", "1.0.0", "label", ())
    assert set(found.splits) == set(report["splits"])
    for name, split in found.splits.items():
        said = report["splits"][name]
        assert (split.records, split.expected_records) == (said["records"], said["records"])
        assert (split.bytes, split.labels) == (said["bytes"], said["labels"])
        assert [one.records for one in split.shards] == [s["records"] for s in said["shards"]]
        assert sum(sum(one.labels.values()) for one in split.shards) == split.records
        assert (split.missing_shards, split.extra_shards, split.unlabelled) == (0, 0, 0)


@pytest.mark.tf
def test_a_shard_that_was_exchanged(copy: Path) -> None:
    """A whole shard with the right number of records that is not the one written is told."""
    path = min(copy.glob("*.tfrecord-*"))
    with path.open("rb") as file:
        payloads = [item.payload for item in read_records(file) if isinstance(item, Record)]
    path.write_bytes(b"".join(map(frame, [payloads[1], payloads[0], *payloads[2:]])))
    found = inspect(copy)
    assert faults(found) == [("count", path.name)]
    assert "SHA-256" in found.faults[0].fault.message
    (copy / "write_report.json").write_text("{")
    assert faults(inspect(copy)) == [("parse", "write_report.json")]


@pytest.mark.tf
@pytest.mark.parametrize(
    "name",
    [
        "pets-train.tfrecord-00002-of-00003",
        "pets-train.tfrecord-00000-of-00002.gz",
        "pets-test.tfrecord-00000-of-00001",
        "pets-train.tfrecord-00002-of-00002",
    ],
)
def test_extra_shards(copy: Path, name: str) -> None:
    """Files that the metadata doesn't describe are left aside and named; counts stay right."""
    shard(copy / name, [0, 1])
    found = inspect(copy)
    assert faults(found) == [("count", name)]
    assert all(split.records == split.expected_records for split in found.splits.values())


def test_names_alone(tmp_path: Path) -> None:
    """Without metadata splits come from names, and missing numbers from their counts."""
    shard(tmp_path / "a-train-00000-of-00003.tfrecord", [0, 1])
    shard(tmp_path / "a-train-00002-of-00003.tfrecord", [0, 1])
    shard(tmp_path / "a-test-00000-of-00001.tfrecord", [1])
    found = inspect(tmp_path)
    assert faults(found) == [("missing-shard", "a-train-00001-of-00003.tfrecord")]
    assert {name: split.records for name, split in found.splits.items()} == {"train": 4, "test": 1}
    assert [split.expected_records for split in found.splits.values()] == [None, None]
    assert found.version is None


def test_folders_of_splits(tmp_path: Path) -> None:
    """TFX's folders are splits."""
    for name in ("Split-train", "Split-eval"):
        shard(tmp_path / name / "data_tfrecord-00000-of-00001", [0, 1])
    found = inspect(tmp_path)
    assert {name: split.records for name, split in found.splits.items()} == {"train": 2, "eval": 2}


@pytest.mark.tf
def test_the_newest_version_is_taken(pets: Path, tmp_path: Path) -> None:
    """Of versions in folders the newest is read, by number and not by letter."""
    for version in ("2.0.0", "10.0.0", "9.1.0"):
        shutil.copytree(pets, tmp_path / "pets" / version)
    found = inspect(tmp_path / "pets")
    assert found.dataset == tmp_path / "pets" / "10.0.0"
    assert "10.0.0" in found.notes[0]
    shutil.copytree(tmp_path / "pets", tmp_path / "home" / "config")
    shutil.move(tmp_path / "home", tmp_path / "named")
    assert inspect(tmp_path / "named").dataset == tmp_path / "named" / "config" / "10.0.0"
    shutil.copytree(tmp_path / "pets", tmp_path / "named" / "other")
    with pytest.raises(DatasetError, match="config, other"):
        inspect(tmp_path / "named")


def test_labels_are_numbered_alike_in_all_shards(tmp_path: Path) -> None:
    """The same label in another shard is the same, in whatever order they come."""
    shard(tmp_path / "train-00000-of-00002", [5, 5, 9] * 10)
    shard(tmp_path / "train-00001-of-00002", [9, 7, 5] * 10)  # 9 ends the one, and starts this
    (split,) = inspect(tmp_path).splits.values()
    assert split.labels == {"5": 30, "7": 10, "9": 20}
    assert [one.labels for one in split.shards] == [{"5": 20, "9": 10}, {"5": 10, "7": 10, "9": 10}]
    assert split.shuffle is not None
    assert split.shuffle.longest_run == 2


@pytest.mark.tf
def test_labels_that_a_split_lacks(copy: Path) -> None:
    """A class that other splits have, or the list of names alone, has no records."""
    (copy / "label.labels.txt").write_text("cat\ndog\nzebra\n")
    for number in (0, 1):
        path = copy / f"pets-validation.tfrecord-0000{number}-of-00002"
        shard(path, [1] * 3)
    found = inspect(copy).splits
    assert found["validation"].labels == {"cat": 0, "dog": 6, "zebra": 0}
    assert [label for label, count in found["train"].labels.items() if not count] == ["zebra"]


def test_labels_with_the_same_text_stay_apart(tmp_path: Path) -> None:
    """Two classes of one name, and a number beside its text, are two labels."""
    (tmp_path / "label.labels.txt").write_text("cat\ncat\n")
    shard(tmp_path / "train-00000-of-00001", [0, 1, 1, b"cat"])
    (split,) = inspect(tmp_path).splits.values()
    assert sorted(split.labels.values()) == [1, 1, 2]
    assert len(split.labels) == 3


def test_a_label_that_is_named(tmp_path: Path) -> None:
    """--label takes any feature; one that no record has is a mistake, with the candidates."""
    payload = encode_example({"a": int64(1), "b": int64(2)})
    (tmp_path / "train-00000-of-00001").write_bytes(frame(payload) * 3)
    assert inspect(tmp_path).label is None
    assert set(inspect(tmp_path).label_candidates) == {"a", "b"}
    assert inspect(tmp_path, "b").splits["train"].labels == {"2": 3}
    with pytest.raises(UsageError, match=r"feature 'c'.*a, b"):
        inspect(tmp_path, "c")


@pytest.mark.parametrize("where", ["in a shard", "in all"])
def test_too_many_labels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    """Beyond the limit all but the labels is told, wherever it is passed."""
    monkeypatch.setattr(dataset_summary, "MAX_LABELS", 4)
    monkeypatch.setattr(labels, "MAX_LABELS", 2 if where == "in a shard" else 4)
    for number in range(3):
        values = range(number * 3, number * 3 + 3)
        shard(tmp_path / f"train-0000{number}-of-00003", values)
    found = inspect(tmp_path)
    assert (found.distinct_labels, found.label, found.records) == (None, "label", 9)
    assert found.splits["train"].shuffle is None
    assert found.splits["train"].labels == {}


@pytest.mark.tf
def test_an_empty_shard_may_be_meant(copy: Path) -> None:
    """A shard without records is a fault, unless the metadata says so."""
    info = json.loads((copy / "dataset_info.json").read_text())
    split = next(split for split in info["splits"] if split["name"] == "train")
    split["shardLengths"][0] = "0"
    split["numBytes"] = "0"  # which says nothing
    (copy / "dataset_info.json").write_text(json.dumps(info))
    (copy / "write_report.json").unlink()
    (copy / "pets-train.tfrecord-00000-of-00002").write_bytes(b"")
    assert faults(inspect(copy)) == []
    (copy / "pets-train.tfrecord-00001-of-00002").write_bytes(b"")
    assert [kind for kind, _ in faults(inspect(copy))] == ["count", "empty"]
