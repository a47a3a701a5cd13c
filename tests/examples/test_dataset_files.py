"""What commands mean by a dataset, a pattern or a file: the same files and splits for all."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import tfrtool
from tests.datasets import image_payload
from tests.records.strategies import shard_of


@pytest.fixture
def pets(tmp_path: Path) -> Path:
    """Return a dataset of one split of two shards, and files that its metadata doesn't have."""
    folder = tmp_path / "pets"
    folder.mkdir()
    names = ["train.tfrecord-00000-of-00002", "train.tfrecord-00001-of-00002"]
    names += ["train.tfrecord-00000-of-00001", "old.tfrecord-00000-of-00001"]
    for number, name in enumerate(names):
        payloads = [image_payload(number), image_payload(number)]
        (folder / f"pets-{name}").write_bytes(shard_of(payloads))
    write_info(folder, {"name": "train", "numBytes": "1", "shardLengths": ["2", "2"]})
    return folder


def write_info(folder: Path, *splits: object) -> None:
    """Write metadata of these splits."""
    data = {"name": "pets", "version": "1.0.0", "splits": splits}
    (folder / "dataset_info.json").write_text(json.dumps(data))


def test_metadata_says_which_files_a_dataset_has(pets: Path, tmp_path: Path) -> None:
    """What an earlier write left is read by no command, and those that copy say so."""
    assert len(tfrtool.open_records(pets)) == 4
    assert tfrtool.inspect_dataset(pets, workers=1).records == 4
    said: list[str] = []
    report = tfrtool.convert(pets, tmp_path / "rows", to="jsonl", on_note=said.append)
    assert (report.job.records_in, list(report.job.splits)) == (4, ["train"])
    copied = tfrtool.reshard(pets, tmp_path / "copy")
    assert copied.records_in == 4
    for notes in (said, copied.warnings):
        assert any("skipped 2 files" in note for note in notes)


def test_wrong_counts_and_missing_files_are_told(pets: Path, tmp_path: Path) -> None:
    """A conversion names what the metadata has and the files don't, as other jobs do."""
    lengths = ["2", "3", "1"]
    write_info(pets, {"name": "train", "numBytes": "1", "shardLengths": lengths})
    for number in range(2):
        path = pets / f"pets-train.tfrecord-0000{number}-of-00002"
        path.rename(pets / f"pets-train.tfrecord-0000{number}-of-00003")
    jobs = [tfrtool.convert(pets, tmp_path / "rows", to="jsonl").job]
    jobs.append(tfrtool.reshard(pets, tmp_path / "copy"))
    for job in jobs:
        assert [(one.path.name, one.fault.kind.value) for one in job.faults] == [
            ("pets-train.tfrecord-00002-of-00003", "missing-shard"),
            ("pets-train.tfrecord-00001-of-00003", "count"),
        ]


def test_shards_of_two_writes(pets: Path, tmp_path: Path) -> None:
    """Without metadata nothing tells which are meant: all are read, and it is said."""
    (pets / "dataset_info.json").unlink()
    job = tfrtool.reshard(pets, tmp_path / "copy")
    assert (job.records_in, len(job.warnings)) == (8, 1)
    names = "pets-train.tfrecord-*-of-00001", "pets-train.tfrecord-*-of-00002"
    assert all(name in job.warnings[0] for name in names)


def test_folders_are_splits(tmp_path: Path) -> None:
    """In a dataset's directory; and what describes it goes along."""
    for split in ("fold-1", "fold-2"):
        path = tmp_path / "d" / split / "part-00000-of-00001"
        path.parent.mkdir(parents=True)
        path.write_bytes(shard_of([image_payload(0)]))
    (tmp_path / "d" / "label.labels.txt").write_text("cat\ndog\n")
    assert len(tfrtool.open_records(tmp_path / "d", split="fold-1")) == 1
    assert list(tfrtool.diff(tmp_path / "d", tmp_path / "d").splits) == ["fold-1", "fold-2"]
    for name, job in (
        ("a", tfrtool.reshard(tmp_path / "d", tmp_path / "a")),
        ("b", tfrtool.convert(tmp_path / "d", tmp_path / "b", to="tfrecord").job),
    ):
        assert list(job.splits) == ["fold_1", "fold_2"]
        assert (tmp_path / name / "label.labels.txt").exists()


def test_patterns_over_several_folders(tmp_path: Path) -> None:
    """What describes the files in each folder is read, and none is written to."""
    for name, classes in (("a", "cat\ndog\n"), ("b", "dog\ncat\n")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "x.tfrecord").write_bytes(shard_of([image_payload(0)]))
        (tmp_path / name / "label.labels.txt").write_text(classes)
    with pytest.raises(tfrtool.DatasetError, match="class names"):
        tfrtool.reshard(f"{tmp_path}/*/x.tfrecord", tmp_path / "c")
    with pytest.raises(tfrtool.UsageError, match="inside its source"):
        tfrtool.reshard(f"{tmp_path}/*/x.tfrecord", tmp_path / "a", existing="overwrite")
