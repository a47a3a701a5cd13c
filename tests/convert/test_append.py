"""Appending: a new version with more shards, and an old one that nothing happens to."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import shutil
from collections import Counter
from pathlib import Path

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


def _new_photos(folder: Path, *classes: str, count: int = 14) -> Path:
    for name in classes:
        (folder / name).mkdir(parents=True)
        for number in range(count):
            data = image_bytes(size=(40 + number, 30), tint=len(name))
            (folder / name / f"new.{number}.jpg").write_bytes(data)
    return folder


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
    """Shards that stay are the same files, no record changes its split, bad images are listed."""
    import tensorflow_datasets as tfds

    old, new = root / "pets" / "1.0.0", _new_photos(root / "new", "dog")
    (new / "dog" / "bad.jpg").write_bytes(b"no image")
    shutil.copy(root / "photos" / "dog" / "dog.3.jpg", new / "dog" / "again.jpg")
    before = _state(old)
    report = tfrtool.append(old, new, dedupe=True)
    assert (report.records_in, report.records_out, report.corrupt) == (20, 34, 0)
    assert sorted((one.key, one.reason.split(" ")[0]) for one in report.rejected) == [
        ("dog/again.jpg", "exact"), ("dog/bad.jpg", "not"),
    ]  # fmt: skip
    assert report.dataset == root / "pets" / "1.1.0"
    after = _state(Path(report.dataset))
    assert _state(old) == before
    for name, state in before.items():
        if ".tfrecord-" in name:
            assert after[name.replace("-of-00002", "-of-00003")] == state
    was, now = _names(old), _names(Path(report.dataset))
    assert all(was[split] <= now[split] for split in was)
    whole = tfrtool.write(
        new, root / "drawn", splits={"train": 0.7, "validation": 0.3}, dry_run=True
    )
    assert whole.splits["train"].records - 1 <= (now["train"] - was["train"]).total()
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
    assert third.splits["test"].records == 15
    assert tfds.builder_from_directory(third.dataset).info.splits["test"].num_examples == 15


def test_new_classes_come_last_and_only_if_they_are_wanted(root: Path) -> None:
    """A class that sorts first gets the last number; labels of what was there stay."""
    new = _new_photos(root / "new", "ape", "cat", count=2)
    with pytest.raises(tfrtool.UsageError, match="--new-classes") as caught:
        tfrtool.append(root / "pets" / "1.0.0", new)
    assert caught.value.found == "ape"
    assert not (root / "pets" / "1.1.0").exists()
    report = tfrtool.append(root / "pets" / "1.0.0", new, new_classes=True, version="2.0.0")
    assert report.dataset == root / "pets" / "2.0.0"
    labels = (report.dataset / "label.labels.txt").read_text()
    assert labels.split() == ["cat", "dog", "ape"]
    assert '"numClasses": "3"' in (report.dataset / "features.json").read_text()
    names = sum(_names(Path(report.dataset)).values(), Counter[str]())
    for name in ("b'ape/new.0.jpg' 2", "b'cat/new.0.jpg' 0", "b'dog/dog.0.jpg' 1"):
        assert names[name] == 1


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
    small = root / "small" / "1.0.0"
    tfrtool.edit(old, small, resize=8, name="pets")
    with pytest.raises(tfrtool.DatasetError, match="tfrtool edit"):
        tfrtool.append(small, root / "photos", split="train")
    (old / "label.labels.txt").unlink()
    with pytest.raises(tfrtool.DatasetError, match=r"label\.labels\.txt"):
        tfrtool.append(old, root / "photos", version="3.0.0")


def test_jobs_hand_on_how_images_were_written(root: Path) -> None:
    """After reshard and filter, append makes of images what `write` made, in its splits."""
    tfrtool.write(
        root / "photos", root / "small" / "1.0.0", splits={"train": 0.5, "test": 0.5}, seed=3,
        resize=8, encode="png", label_from="folder",
    )  # fmt: skip
    tfrtool.reshard(
        root / "small" / "1.0.0", root / "small" / "2.0.0", shards=1, shuffle=True, seed=1
    )
    tfrtool.filter_records(
        root / "small" / "2.0.0", root / "small" / "3.0.0", sample=18, seed=9, compression="gzip"
    )
    new, seen = _new_photos(root / "new", "cat"), []
    for version in ("1.0.0", "3.0.0"):
        before = _names(root / "small" / version)
        report = tfrtool.append(root / "small" / version, new, version=f"9{version}")
        after = _names(Path(report.dataset))
        seen.append({split: after[split] - names for split, names in before.items()})
        for shard in tfrtool.find_shards(report.dataset):
            for item in tfrtool.read(shard):
                assert isinstance(item, Record)
                image = parse_example(item.payload)["image"]
                assert isinstance(image, bytes)
                assert image.startswith(b"\x89PNG")
                assert 8 in image[16:24]
    assert seen[0] == seen[1]
    assert sum(names.total() for names in seen[0].values()) == 14
    tfrtool.reshard(
        root / "small" / "3.0.0", root / "small" / "4.0.0", splits={"some": 0.5, "rest": 0.5}
    )
    assert set(tfrtool.append(root / "small" / "4.0.0", new).splits) == {"some", "rest"}


def test_what_is_unclear_is_refused(root: Path, tmp_path: Path) -> None:
    """Other features, a place or a split that nothing tells, damage: nothing is written."""
    old, new = root / "pets" / "1.0.0", _new_photos(root / "new", "cat", count=1)
    (old / "write_report.json").unlink()
    with pytest.raises(tfrtool.UsageError, match="--split NAME"):
        tfrtool.append(old, new)
    halves = {"train": 0.5, "test": 0.5}
    tfrtool.write(root / "photos", root / "grouped", splits=halves, group_by=r"(\d)\.")
    with pytest.raises(tfrtool.UsageError, match="--split NAME"):
        tfrtool.append(root / "grouped", new, out=root / "out")
    other = write_foreign(tmp_path / "other", [[tfrtool.encode_example({"image": b"", "x": 1})]])
    with pytest.raises(tfrtool.SchemaError, match="image/filename"):
        tfrtool.append(old, other)
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

    new = _new_photos(root / "new", "cat", count=1)
    monkeypatch.setattr(os, "link", refuse)
    report = tfrtool.append(root / "pets" / "1.0.0", new)
    assert "copied" in report.warnings[0]
    old = _state(root / "pets" / "1.0.0")
    for name, (digest, inode, _) in _state(Path(report.dataset)).items():
        before = old.get(name.replace("-of-00003", "-of-00002"))
        if before is not None and ".tfrecord-00000-" in name:
            assert digest == before[0]
            assert inode != before[1]


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


@pytest.mark.parametrize(
    "options",
    [
        '{"splits": ["train=0"]}',
        '{"splits": ["train=nan", "validation=1"]}',
        '{"splits": ["../x=1", "validation=1"]}',
        '{"splits": 7}',
        '{"seed": 1e999}',
        '{"shard_bytes": 0}',
        '{"shard_bytes": "many"}',
        '{"resize": {"width": 1e9, "height": 1}}',
        '{"resize": {"depth": 1}}',
        '{"encode": "gif"}',
        '{"quality": "good"}',
        "7",
        "{",
    ],
)
def test_a_report_that_was_edited_is_refused(root: Path, options: str) -> None:
    """Whatever write_report.json says, it is an error of ours, and nothing is written."""
    old, new = root / "pets" / "1.0.0", _new_photos(root / "new", "cat", count=1)
    (old / "write_report.json").write_text(f'{{"options": {options}}}')
    with pytest.raises(tfrtool.TfrtoolError):
        tfrtool.append(old, new)
    assert [path.name for path in (root / "pets").iterdir()] == ["1.0.0"]


def test_labels_come_from_where_write_took_them(tmp_path: Path) -> None:
    """Images are appended with the depth, or the column, that the dataset was written with."""
    _new_photos(tmp_path / "photos" / "all", "cat", "dog")
    shutil.copytree(tmp_path / "photos" / "all", tmp_path / "photos" / "some")
    tfrtool.write(tmp_path / "photos", tmp_path / "pets" / "1.0.0", label_depth=2)
    done = tfrtool.append(tmp_path / "pets" / "1.0.0", tmp_path / "photos", out=tmp_path / "more")
    assert done.rejected == ()
    table = tmp_path / "table.csv"
    files = sorted((tmp_path / "photos").rglob("*.jpg"))
    rows = [f"{path.relative_to(tmp_path)},x,{path.parent.name}\n" for path in files]
    table.write_text("path,label,kind\n" + "".join(rows))
    tfrtool.write(table, tmp_path / "kinds" / "1.0.0", label_column="kind")
    done = tfrtool.append(tmp_path / "kinds" / "1.0.0", table, out=tmp_path / "most")
    assert done.rejected == ()
