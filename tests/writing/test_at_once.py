"""Looking at images while they are written: the same bytes and the same report as looking first."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.photos import image_bytes, write_class_folders
from tfrtool.images.recipe import Check, ImageRecipe
from tfrtool.sources.items import Item
from tfrtool.writing import write as write_module
from tfrtool.writing.directory import STAGING
from tfrtool.writing.engine import LocalEngine
from tfrtool.writing.scan import image_audit, image_scan
from tfrtool.writing.write import write_dataset
from tfrtool.writing.write_options import Existing, WriteOptions, parse_splits
from tfrtool.writing.write_plan import ShardResult, ShardTask
from tfrtool.writing.write_report import WriteReport

pytestmark = pytest.mark.tf

BAD = b"\xff\xd8\xff but no image"


@pytest.fixture
def looked_at(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Count how often each item is looked at."""
    counts: Counter[str] = Counter()
    real = image_audit.examine

    def examine(reader: Any, item: Item, recipe: ImageRecipe) -> Any:
        counts[item.key] += 1
        return real(reader, item, recipe)

    monkeypatch.setattr("tfrtool.writing.records.examine", examine)
    monkeypatch.setattr(image_scan, "examine", examine)
    return counts


def _written(options: WriteOptions) -> dict[str, Any]:
    """Return what a dataset's files hold, but for the time that it took."""
    write_dataset(options)
    files: dict[str, Any] = {path.name: path.read_bytes() for path in options.dataset.iterdir()}
    report = json.loads(files.pop("write_report.json"))
    return {**files, "report": {**report, "seconds": 0, "dataset": ""}}


def _looking_first(options: WriteOptions, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    with monkeypatch.context() as patch:
        patch.setattr(write_module, "plan_unseen", lambda *_: None)
        return _written(options)


@pytest.mark.parametrize("bad", [[], [0], [11], [3, 4, 17], list(range(19))])
@pytest.mark.parametrize("check", [Check.DECODE, Check.HEADER])
def test_the_same_as_looking_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bad: list[int], check: Check
) -> None:
    """Wherever bad images and conversions are, nothing shows when they were found."""
    source = write_class_folders(tmp_path / "photos", count=10)
    paths = sorted(source.rglob("*.jpg"))
    paths[6].write_bytes(image_bytes("PNG"))
    paths[13].write_bytes(paths[2].read_bytes())
    for number in bad:
        paths[number].write_bytes(BAD if number % 2 else b"")
    options = WriteOptions(
        source=source, dataset=tmp_path / "a" / "d", shards=1, recipe=ImageRecipe(check=check)
    )
    first = _looking_first(options, monkeypatch)
    assert _written(replace(options, dataset=tmp_path / "b" / "d")) == first
    assert len(first["report"]["rejected"]) == len(bad)


@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    bad=st.sets(st.integers(0, 23)),
    shards=st.integers(1, 4),
    workers=st.integers(1, 3),
    shuffle=st.booleans(),
)
def test_bad_images_anywhere(
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    bad: set[int],
    shards: int,
    workers: int,
    shuffle: bool,
) -> None:
    """Any bad images, in any number of shards on any number of workers, leave the same bytes."""
    if len(bad) > 24 - shards:
        bad = set()
    root = tmp_path_factory.mktemp("any")
    source = write_class_folders(root / "photos", count=12)
    for number, path in enumerate(sorted(source.rglob("*.jpg"))):
        if number in bad:
            path.write_bytes(BAD)
    options = WriteOptions(
        source=source, dataset=root / "a" / "d", shards=shards, workers=workers, shuffle=shuffle
    )
    first = _looking_first(options, monkeypatch)
    assert _written(replace(options, dataset=root / "b" / "d")) == first


def test_every_image_is_looked_at_once(tmp_path: Path, looked_at: Counter[str]) -> None:
    """Good images are read and decoded no more than once."""
    source = write_class_folders(tmp_path / "photos", count=10)
    write_dataset(WriteOptions(source=source, dataset=tmp_path / "d", shards=3))
    assert (len(looked_at), set(looked_at.values())) == (20, {1})


def test_a_bad_image_does_not_make_others_be_looked_at_again(
    tmp_path: Path, looked_at: Counter[str]
) -> None:
    """What was found before the first bad image is not looked for again."""
    source = write_class_folders(tmp_path / "photos", count=20)
    sorted(source.rglob("*.jpg"))[39].write_bytes(BAD)
    options = WriteOptions(source=source, dataset=tmp_path / "d", shards=1, shuffle=False)
    write_dataset(options)
    assert (len(looked_at), set(looked_at.values())) == (40, {1})


def test_splits_by_hash_are_looked_at_first(tmp_path: Path) -> None:
    """Where copies must not be torn apart, nothing is written before all images are known."""
    source = write_class_folders(tmp_path / "photos", count=5)
    phases: list[str] = []
    progress = lambda step: phases.append(step.what)  # noqa: E731
    write_dataset(WriteOptions(source=source, dataset=tmp_path / "one"), progress)
    assert set(phases) == {"writing"}
    phases.clear()
    splits = parse_splits(["train=0.5", "test=0.5"])
    write_dataset(WriteOptions(source=source, dataset=tmp_path / "two", splits=splits), progress)
    assert phases.index("writing") == phases.count("checking")


def test_an_interrupted_write_at_once_can_be_gone_on_with(tmp_path: Path) -> None:
    """Shards that were finished before the interruption are taken over as they are."""
    source = write_class_folders(tmp_path / "photos", count=40)
    whole = _written(WriteOptions(source=source, dataset=tmp_path / "a" / "d", shards=8))
    options = WriteOptions(source=source, dataset=tmp_path / "b" / "d", shards=8)
    _interrupted(options)
    report = write_dataset(replace(options, existing=Existing.RESUME))
    assert isinstance(report, WriteReport)
    assert report.resumed >= 3
    for name, data in whole.items():
        if "tfrecord" in name:
            assert (options.dataset / name).read_bytes() == data


def _interrupted(options: WriteOptions) -> None:
    """Leave what a killed process leaves: the folder of unfinished work, and no dataset."""
    kept = options.dataset.parent / "kept"

    class Interrupted:
        """Writes shards, but not all of them."""

        def run(self, tasks: Sequence[ShardTask], on_progress: Any) -> Iterator[ShardResult]:
            """Yield some results."""
            yield from islice(LocalEngine(2).run(tasks, on_progress), 3)
            shutil.copytree(options.dataset / STAGING, kept)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_dataset(options, engine=Interrupted())
    options.dataset.mkdir(parents=True)
    shutil.move(kept, options.dataset / STAGING)
