"""Exact copies of images in a source's own splits, and leaving copies out."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tfrtool
from tests.photos import write_class_folders
from tfrtool.cli import main
from tfrtool.sources.items import Item, Source
from tfrtool.writing.image_findings import SourceFindings
from tfrtool.writing.image_task import Finding, digest_of

pytestmark = pytest.mark.tf

SPLITS = ("train", "validation", "test")


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Return a source with the splits train and test, which share two images."""
    source = tmp_path / "photos"
    write_class_folders(source / "train", count=8)
    shutil.copytree(source / "train", source / "test")
    for number in range(6):
        for label in ("cat", "dog"):
            path = source / "test" / label / f"{label}.{number}.jpg"
            path.write_bytes(path.read_bytes()[:-2] + b"\0\xff\xd9")
    for label in ("cat", "dog"):
        (source / "test" / label / f"{label}.7.jpg").unlink()
    return source


@pytest.mark.parametrize("dry", [["--dry-run"], []])
def test_images_in_several_splits_are_named(
    photos: Path, tmp_path: Path, dry: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """What the source's splits share is told in text, in JSON and as a warning."""
    arguments = ["write", str(photos), str(tmp_path / "d"), *dry]
    assert main(arguments) == 0
    output = capsys.readouterr()
    assert "in the same split" not in output.out
    for label in ("cat", "dog"):
        assert f"train/{label}/{label}.6.jpg" in output.out
        assert f"test/{label}/{label}.6.jpg" in output.out
    (warning,) = output.err.splitlines()
    assert "2 images" in warning
    assert "test/cat/cat.6.jpg" in warning
    assert main([*arguments, "--json", *([] if dry else ["--overwrite"])]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["across_splits"] == [
        {split: [f"{split}/{label}/{label}.6.jpg"] for split in ("train", "test")}
        for label in ("cat", "dog")
    ]


def test_dedupe_leaves_one(
    photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With --dedupe the copies in the later split are listed, and verify finds none."""
    shutil.copy(photos / "train" / "cat" / "cat.0.jpg", photos / "train" / "dog" / "a.jpg")
    arguments = ["write", str(photos), str(tmp_path / "d"), "--dedupe", "--json"]
    assert main([*arguments, "--dry-run"]) == 3
    plan = json.loads(capsys.readouterr().out)
    assert main(arguments) == 3
    output = capsys.readouterr()
    data = json.loads(output.out)
    assert output.err == ""
    assert data["rejected"] == plan["rejected"]
    assert {entry["key"]: entry["reason"].split(",")[0] for entry in data["rejected"]} == {
        "test/cat/cat.6.jpg": "exact duplicate of train/cat/cat.6.jpg",
        "test/dog/dog.6.jpg": "exact duplicate of train/dog/dog.6.jpg",
        "train/dog/a.jpg": "exact duplicate of train/cat/cat.0.jpg",
    }
    assert (data["duplicates"], data["across_splits"]) == (0, [])
    assert data["splits"]["train"]["records"] == 16
    assert main(["verify", str(tmp_path / "d"), "--images"]) == 0


def test_dedupe_with_drawn_splits(
    photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of copies that would share a split, the first by name stays."""
    source = photos / "train"
    shutil.copy(source / "cat" / "cat.3.jpg", source / "cat" / "a.jpg")
    arguments = ["--split", "train=0.5", "--split", "test=0.5", "--dedupe", "--json"]
    assert main(["write", str(source), str(tmp_path / "d"), *arguments]) == 3
    data = json.loads(capsys.readouterr().out)
    assert data["rejected"] == [{"key": "cat/cat.3.jpg", "reason": "exact duplicate of cat/a.jpg"}]
    assert sum(split["records"] for split in data["splits"].values()) == 16


@dataclass(frozen=True)
class Contents:
    """A reader of items whose bytes are the last letter of their keys."""

    def read(self, item: Item) -> bytes:
        return item.key[-1:].encode()

    def describe(self, item: Item) -> str:
        return item.key


@given(
    st.lists(
        st.tuples(st.sampled_from("abcdef"), st.sampled_from(SPLITS), st.booleans()), min_size=1
    )
)
def test_each_image_once_in_the_first_split(images: list[tuple[str, str, bool]]) -> None:
    """Any copies in any splits, some of them bad: one of each stays, in the first split."""
    items = tuple(
        Item(key=f"{number:03d}{content}", label="cat", bytes=1, split=split)
        for number, (content, split, _) in enumerate(images)
    )
    source = Source(items=items, labels=("cat",), reader=Contents(), splits=SPLITS)
    found, kept = SourceFindings(len(items)), SourceFindings(len(items))
    for at, (content, _, bad) in enumerate(images):
        for one in (found, kept):
            problem = "bad" if bad else None
            one.add(at, Finding(0 if bad else digest_of(content.encode()), problem=problem))
    kept.skip_copies(source)
    good, left = (
        [at for at in range(len(images)) if not some[at].problem] for some in (found, kept)
    )
    assert Counter(images[at][0] for at in left) == Counter({images[at][0] for at in good})
    for position in left:
        same = [at for at in good if images[at][0] == images[position][0]]
        assert position == min(same, key=lambda at: (SPLITS.index(images[at][1]), at))
    assert kept.shared(source).entries == []
    shared = {keys[0][-1] for image in found.shared(source).entries for keys in image.values()}
    assert shared == {
        content
        for content in "abcdef"
        if len({images[at][1] for at in good if images[at][0] == content}) > 1
    }


def _split_options(source: Path, dataset: Path) -> dict[str, Any]:
    splits = {"train": 0.7, "test": 0.3}
    return {"source": source, "dataset": dataset, "name": "pets", "splits": splits, "shards": 3}


def test_a_plan_writes_nothing(tmp_path: Path) -> None:
    """A dry run tells shards, records and sizes as they will be, and leaves no file."""
    source = write_class_folders(tmp_path / "photos", count=20)
    (source / "cat" / "bad.jpg").write_text("no image")
    options = _split_options(source, tmp_path / "d")
    plan = tfrtool.write(**options, dry_run=True)  # type: ignore[call-arg]
    assert [path.name for path in tmp_path.iterdir()] == ["photos"]
    report = tfrtool.write(**options)  # type: ignore[call-arg]
    assert list(plan.splits) == list(report.splits)
    for planned, written in zip(plan.splits.values(), report.splits.values(), strict=True):
        assert planned.labels == written.labels
        for one, shard in zip(planned.shards, written.shards, strict=True):
            assert (one.path, one.records) == (shard.path, shard.records)
            assert one.bytes == pytest.approx(shard.bytes, rel=0.02)
    assert plan.rejected == report.rejected


def test_copies_are_counted_and_stay_together(tmp_path: Path) -> None:
    """Exact copies are in one split, whatever their names, and the report counts them."""
    source = write_class_folders(tmp_path / "photos", count=20)
    data = (source / "cat" / "cat.0.jpg").read_bytes()
    for number in range(12):
        (source / "dog" / f"copy.{number}.jpg").write_bytes(data)
    report = tfrtool.write(**_split_options(source, tmp_path / "d"))  # type: ignore[call-arg]
    assert report.duplicates == 12
    where = {
        name
        for name, split in report.splits.items()
        for shard in split.shards
        if data in (tmp_path / "d" / shard.path).read_bytes()
    }
    assert len(where) == 1
