"""Appending: a new version with more shards, and an old one that nothing happens to."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import tfrtool
from tests.datasets import flip_bit, write_foreign
from tests.photos import image_bytes, write_class_folders
from tests.process.effects import die, logged
from tfrtool.cli import main
from tfrtool.examples.parsing import parse_example
from tfrtool.records.framing import Record

pytestmark = pytest.mark.tf


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with photos, and a dataset of them with two splits: pets/1.0.0."""
    root = tmp_path_factory.mktemp("append")
    source = write_class_folders(root / "photos", count=10)
    splits = {"train": 0.7, "validation": 0.3}
    tfrtool.write(source, root / "pets" / "1.0.0", splits=splits, shards=2)
    return root


@pytest.fixture
def root(template: Path, tmp_path: Path) -> Path:
    """Return a copy of that folder."""
    shutil.copytree(template, tmp_path / "root")
    return tmp_path / "root"


def _new_pets(root: Path, count: int = 14, **options: Any) -> Path:
    """Write photos of dogs with the class numbers of the dataset."""
    folder = root / "new" / "dog"
    folder.mkdir(parents=True)
    for number in range(count):
        (folder / f"new.{number}.jpg").write_bytes(image_bytes(size=(40 + number, 30), tint=3))
    labels = root / "pets" / "1.0.0" / "label.labels.txt"
    tfrtool.write(root / "new", root / "shards" / "new", labels=labels, **options)
    return root / "shards" / "new"


def _state(folder: Path) -> dict[str, tuple[str, int, int]]:
    """Return what each file of a directory holds, which one it is, and when it was changed."""
    return {
        path.name: (
            hashlib.sha256(path.read_bytes()).hexdigest(),
            path.stat().st_ino,
            path.stat().st_mtime_ns,
        )
        for path in folder.iterdir()
    }


def _names(folder: Path) -> dict[str, Counter[str]]:
    """Return the names of the images in each split."""
    found: dict[str, Counter[str]] = {}
    for shard in tfrtool.find_shards(folder):
        split = found.setdefault(shard.name.split("-")[1].split(".")[0], Counter())
        for item in tfrtool.read(shard):
            if isinstance(item, Record):
                example = parse_example(item.payload)
                split[f"{example['image/filename']!r} {example['label']!r}"] += 1
    return found


def test_tfds_reads_the_new_version_and_the_old_one_is_untouched(root: Path) -> None:
    """Shards that stay are the same files, and no record changes its split."""
    import tensorflow_datasets as tfds

    old = root / "pets" / "1.0.0"
    new = _new_pets(root, splits={"train": 0.7, "validation": 0.3})
    before = _state(old)
    report = tfrtool.append(old, new)
    assert (report.records_in, report.records_out, report.corrupt) == (34, 34, 0)
    assert report.dataset == root / "pets" / "1.1.0"
    after = _state(Path(report.dataset))
    assert _state(old) == before
    for name, state in before.items():
        if ".tfrecord-" in name:
            assert after[name.replace("-of-00002", "-of-00003")] == state
    was, added, now = _names(old), _names(new), _names(Path(report.dataset))
    assert now == {split: was[split] + added[split] for split in was}
    builder = tfds.builder_from_directory(report.dataset)
    assert builder.info.features["label"].names == ["cat", "dog"]
    found = Counter(
        int(one["label"])
        for split in ("train", "validation")
        for one in builder.as_dataset(split=split)
    )
    assert found == {0: 10, 1: 24}
    assert tfrtool.verify(report.dataset).is_sound
    third = tfrtool.append(root / "pets", new, split="test")
    assert third.dataset.name == "1.2.0"
    assert third.splits["test"].records == 14
    assert tfds.builder_from_directory(third.dataset).info.splits["test"].num_examples == 14


def test_images_are_refused(root: Path) -> None:
    """The error has the command that makes records of images with the numbers of the classes."""
    old = root / "pets" / "1.0.0"
    labels = old / "label.labels.txt"
    for source in (root / "photos", root / "photos" / "dog" / "dog.1.jpg"):
        with pytest.raises(tfrtool.UsageError, match="not TFRecord files") as caught:
            tfrtool.append(old, source)
        assert f"write {source} NEW --labels {labels}" in str(caught.value.hint)
    labels.unlink()
    with pytest.raises(tfrtool.UsageError, match="photos NEW, and append NEW"):
        tfrtool.append(old, root / "photos")
    assert [path.name for path in (root / "pets").iterdir()] == ["1.0.0"]


def test_what_is_unclear_is_refused(root: Path, tmp_path: Path) -> None:
    """Other features or classes, a place or a split that nothing tells, damage."""
    old, new = root / "pets" / "1.0.0", root / "copy"
    shutil.copytree(old, new)
    tfrtool.write(root / "photos" / "dog", tmp_path / "dogs", label_from="filename")
    with pytest.raises(tfrtool.DatasetError, match="class names differ"):
        tfrtool.append(old, tmp_path / "dogs", split="train")
    (other,) = write_foreign(
        tmp_path / "x", [[tfrtool.encode_example({"image": b"", "x": 1})]]
    ).glob("*.tfrecord*")
    other = other.rename(tmp_path / "x-new.tfrecord-00000-of-00001")
    with pytest.raises(tfrtool.UsageError, match="--split NAME"):
        tfrtool.append(old, other)
    with pytest.raises(tfrtool.SchemaError, match="image/filename"):
        tfrtool.append(old, other, split="train")
    shutil.copytree(old, root / "plain")
    with pytest.raises(tfrtool.UsageError, match="--out DIR"):
        tfrtool.append(root / "plain", new, split="train")
    with pytest.raises(tfrtool.UsageError, match="inside its source"):
        tfrtool.append(old, new, split="train", version="1.0.0")
    next(old.glob("*-train.tfrecord-00001-*")).unlink()
    with pytest.raises(tfrtool.DatasetError, match="1 shard missing"):
        tfrtool.append(old, new, split="train")
    hurt = root / "plain"
    flip_bit(next(hurt.glob("*-train.tfrecord-00001-*")), 40)
    with pytest.raises(tfrtool.CorruptShardError):
        tfrtool.append(hurt, new, split="train", out=root / "out")
    assert sorted(path.name for path in (root / "pets").iterdir()) == ["1.0.0"]
    assert not (root / "out").exists()


def test_copies_where_links_cannot_be(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a file system without hard links shards are copied, and that is said."""

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    shutil.copytree(root / "pets" / "1.0.0", root / "copy")
    monkeypatch.setattr(os, "link", refuse)
    report = tfrtool.append(root / "pets" / "1.0.0", root / "copy")
    assert "copied" in report.warnings[0]
    old = _state(root / "pets" / "1.0.0")
    for name, (digest, inode, _) in _state(Path(report.dataset)).items():
        before = old.get(name.replace("-of-00004", "-of-00002"))
        if before is not None and ".tfrecord-00000-" in name:
            assert digest == before[0]
            assert inode != before[1]


def test_records_are_copied_and_reproducible(root: Path) -> None:
    """Shards of records go in as they are; any number of workers writes the same bytes."""
    old = root / "pets" / "1.0.0"
    one = tfrtool.append(old, old, out=root / "one", workers=1)
    two = tfrtool.append(old, old, out=root / "two", workers=2)
    assert one.records_in == one.records_out == 40
    assert one.digest_in == one.digest_out == two.digest_out
    states = [
        {name: state[0] for name, state in _state(root / name).items()} for name in ("one", "two")
    ]
    for state in states:
        del state["write_report.json"]
    assert states[0] == states[1]
    assert {name: 2 * count for name, count in _names(old)["train"].items()} == _names(
        root / "one"
    )["train"]
    again = tfrtool.append(old, old, out=root / "one", existing="resume", workers=1)
    assert again.complete


def test_packed_and_damaged_records_of_several_splits(root: Path) -> None:
    """What is compressed comes in as the dataset's shards are; damage is left out and listed."""
    old, source = root / "pets" / "1.0.0", root / "packed"
    shutil.copytree(old, source)
    for shard in map(Path, tfrtool.find_shards(source)):
        shard.write_bytes(gzip.compress(shard.read_bytes()))
    report = tfrtool.append(old, source)
    assert (report.records_out, report.corrupt) == (40, 0)
    for verdict in tfrtool.verify(report.dataset).shards:
        assert (verdict.compression.value, verdict.faults) == ("none", ())
    hurt = root / "hurt"
    shutil.copytree(old, hurt)
    for split in ("train", "validation"):
        flip_bit(next(hurt.glob(f"*-{split}.tfrecord-00000-*")), 1)
        flip_bit(next(hurt.glob(f"*-{split}.tfrecord-00001-*")), 40)
    report = tfrtool.append(old, hurt, version="2.0.0")
    assert (report.records_out, report.corrupt) == (36, 4)
    assert not any(verdict.faults for verdict in tfrtool.verify(report.dataset).shards)


def test_a_killed_overwrite_with_another_version_is_resumed(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same shards under another version are another dataset, whether or not it was killed."""
    old, new, source = root / "pets" / "1.0.0", root / "new", root / "copy"
    shutil.copytree(old, source)
    words = ["append", str(old), str(source), "--out", str(new), "--workers", "1"]
    assert main(words) == 0
    assert main([*words, "--version", "2.0.0", "--resume"]) == 2
    assert "written with other options" in capsys.readouterr().err
    die(lambda: main([*words, "--version", "2.0.0", "--overwrite"]), new, lambda: logged(new) == 1)
    assert main([*words, "--version", "2.0.0", "--resume"]) == 0
    assert "already complete" not in capsys.readouterr().out
    assert json.loads((new / "dataset_info.json").read_text())["version"] == "2.0.0"
