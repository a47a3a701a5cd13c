"""Splits: drawn from names and a seed, evenly for names of any kind."""

from __future__ import annotations

import json
import math
import random
import uuid
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tfrtool
from tests.photos import image_bytes, write_class_folders
from tfrtool.cli import main
from tfrtool.writing.split_draws import split_drawer

TENTH = ["--split", "train=0.9", "--split", "test=0.1"]
NAMES = {
    **{
        f"every {stride}": [f"frame_{number * stride:06d}.jpg" for number in range(240)]
        for stride in (1, 24, 610)
    },
    "uuid": [f"{uuid.UUID(int=random.Random(n).getrandbits(128))}.jpg" for n in range(240)],
    "dates": [f"2024-05-{n % 30 + 1:02d} {n // 30:02d}.00.00.jpg" for n in range(240)],
}


def _distinct(number: int) -> bytes:
    """Return a JPEG with a comment that no other has."""
    image = image_bytes()
    return image[:2] + b"\xff\xfe\x00\x0a%08d" % number + image[2:]


def _counts(source: Path, capsys: pytest.CaptureFixture[str], *options: str) -> dict[str, int]:
    """Return how many images of each class the split test would get."""
    dataset = source.parent / "dataset"
    assert main(["write", str(source), str(dataset), "--dry-run", "--json", *options]) == 0
    counts: dict[str, int] = json.loads(capsys.readouterr().out)["splits"]["test"]["labels"]
    return counts


def _fits(count: int, of: int) -> bool:
    """Tell whether a tenth of so many is this, but for five standard deviations of chance."""
    return abs(count - of / 10) < 5 * math.sqrt(of * 0.1 * 0.9)


@pytest.mark.parametrize("naming", NAMES)
def test_a_class_gives_about_its_share_whatever_its_names(
    naming: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Numbers in any steps, dates and UUIDs are shared out evenly, in folders and in tables."""
    lines = ["path,label"]
    for number, name in enumerate(NAMES[naming]):
        label = ("cat", "dog")[number % 2]
        path = tmp_path / "photos" / label / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(_distinct(number))
        lines.append(f"photos/{label}/{name},{label}")
    (tmp_path / "table.csv").write_text("\n".join(lines))
    for source in ("photos", "table.csv"):
        counts = _counts(tmp_path / source, capsys, *TENTH, "--check", "header")
        assert counts.keys() == {"cat", "dog"}
        assert all(_fits(count, 120) for count in counts.values()), (source, counts)


@given(
    st.lists(st.text(min_size=1), min_size=1, unique=True),
    st.integers(-(2**63), 2**63 - 1),
    st.lists(st.integers(1, 9), min_size=1, max_size=5),
)
def test_key_and_seed_alone_decide(keys: list[str], seed: int, weights: list[int]) -> None:
    """Other images, and their order, have no say in the split of one."""
    shares = {f"s{number}": weight / sum(weights) for number, weight in enumerate(weights)}
    together = split_drawer(shares, seed)
    splits = {key: together(key) for key in keys}
    assert splits == {key: split_drawer(shares, seed)(key) for key in reversed(keys)}
    assert set(splits.values()) <= {*range(len(shares))}


def _names(dataset: Path, split: str) -> set[object]:
    """Return the names of the images of a split."""
    names: set[object] = set()
    for path in dataset.glob(f"*-{split}.tfrecord-*"):
        for item in tfrtool.read(path):
            assert isinstance(item, tfrtool.Record)
            names.add(tfrtool.parse_example(item.payload)["image/filename"])
    return names


@pytest.mark.tf
def test_an_added_image_moves_no_other(tmp_path: Path) -> None:
    """With one photograph more, in the middle of its class, all others stay where they were."""
    source = write_class_folders(tmp_path / "photos", count=20)
    splits = {"train": 0.5, "test": 0.5}
    before: dict[str, set[object]] = {}
    for name in ("a", "b"):
        tfrtool.write(source, tmp_path / name, splits=splits)
        found = {split: _names(tmp_path / name, split) for split in ("train", "test")}
        before = before or found
        (source / "cat" / "cat.10b.jpg").write_bytes(_distinct(0))
    assert all(before[split] <= found[split] for split in found)
    assert sum(map(len, found.values())) == 41


def test_a_class_that_a_split_lacks_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A warning names the classes that a split has no image of; the exit code is still 0."""
    source = write_class_folders(tmp_path / "photos", ("ant", "bee", "cat"), count=1)
    for number in range(60):
        (source / "bee" / f"{number}.jpg").write_bytes(_distinct(number))
        (source / "cat" / f"{number}.jpg").write_bytes(_distinct(100 + number))
    arguments = ["write", str(source), str(tmp_path / "d"), *TENTH, "--dry-run", "--seed", "1"]
    assert main(arguments) == 0
    (warning,) = capsys.readouterr().err.splitlines()
    assert "'test'" in warning
    assert "ant" in warning
    assert "cat" not in warning


@pytest.mark.tf
@pytest.mark.parametrize("dry", [["--dry-run"], []])
@pytest.mark.parametrize("split", [["--split", "train=1"], TENTH])
def test_a_source_with_splits_takes_no_others(
    dry: list[str], split: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """--split is a usage error that names the splits of the source, and nothing is left."""
    for name in ("train", "validation"):
        write_class_folders(tmp_path / "photos" / name, count=3)
    table = tmp_path / "table.csv"
    table.write_text(
        "path,label,split\n"
        "photos/train/cat/cat.0.jpg,cat,train\nphotos/train/cat/cat.1.jpg,cat,validation\n"
    )
    for source in (tmp_path / "photos", table):
        assert main(["write", str(source), str(tmp_path / "d"), *split, *dry]) == 2
        output = capsys.readouterr()
        (line,) = output.err.splitlines()
        assert str(source) in line
        assert "train, validation" in line
        assert output.out == ""
        assert not (tmp_path / "d").exists()
    assert main(["write", str(table), str(tmp_path / "d"), *dry]) == 0


@pytest.mark.parametrize("options", [["--stratify"], [], ["--group-by", "[a-z]+"]])
def test_images_that_stay_together_are_told(
    options: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where no fraction and no seed can help, because images are alike, the error says that."""
    (tmp_path / "photos" / "cat").mkdir(parents=True)
    for number in range(9):
        image = _distinct(number if "--group-by" in options else 0)
        (tmp_path / "photos" / "cat" / f"{number}.jpg").write_bytes(image)
    assert main(["write", str(tmp_path / "photos"), str(tmp_path / "d"), *TENTH, *options]) == 1
    told = capsys.readouterr().err
    assert "8 of 9 images" in told
    assert "--seed" not in told


def test_splits_of_a_source_can_be_ignored(tmp_path: Path) -> None:
    """Images are then split like those of a source without splits, by name and seed."""
    for number in range(40):
        path = tmp_path / "s" / ("train", "test")[number % 2] / "cat" / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(_distinct(number))
    splits = {"train": 0.5, "validation": 0.5}
    with pytest.raises(tfrtool.UsageError, match="own splits"):
        tfrtool.write(tmp_path / "s", tmp_path / "d", splits=splits)
    report = tfrtool.write(tmp_path / "s", tmp_path / "d", splits=splits, ignore_splits=True)
    assert [*report.splits] == ["train", "validation"]
    assert sum(split.records for split in report.splits.values()) == 40
    alone = tfrtool.write(tmp_path / "s", tmp_path / "e", ignore_splits=True, dry_run=True)
    assert [*alone.splits] == ["train"]


def test_a_source_that_is_named_like_a_split(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A note says that its images are in train, and which option puts them elsewhere."""
    write_class_folders(tmp_path / "in" / "test", count=2)
    words = ["write", str(tmp_path / "in" / "test"), str(tmp_path / "out"), "--dry-run"]
    assert main(words) == 0
    assert "all images are in split train; use --split test=1" in capsys.readouterr().err
    for more in (["--split", "test=1"], ["--ignore-splits"]):
        assert main([*words, *more]) == 0
        assert "split train" not in capsys.readouterr().err


def test_a_split_without_labels(tmp_path: Path) -> None:
    """Its images have TFDS' label -1; without splits they would be in training, and are skipped."""
    for split in ("seg_train", "seg_test"):
        write_class_folders(tmp_path / "in" / split / split, count=2)
    folder = tmp_path / "in" / "seg_pred" / "seg_pred"
    folder.mkdir(parents=True)
    (folder / "7.jpg").write_bytes(image_bytes(tint=7))
    source, dataset = tmp_path / "in", tmp_path / "shards"
    report = tfrtool.write(source, dataset)
    assert {name: split.records for name, split in report.splits.items()} == {
        "train": 4,
        "test": 4,
        "pred": 1,
    }
    assert [
        batch["label"].to_pylist() for batch in tfrtool.read_table([*dataset.glob("*pred*")])
    ] == [[-1]]
    assert not tfrtool.verify([dataset]).faults
    report = tfrtool.write(source, tmp_path / "merged", ignore_splits=True)
    assert report.splits["train"].records == 8
    assert [(one.key, one.reason) for one in report.rejected] == [
        ("seg_pred/seg_pred/7.jpg", "no label")
    ]
