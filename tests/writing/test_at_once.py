"""Looking at images while they are written: the same bytes and the same report as looking first."""

from __future__ import annotations

import json
import pickle
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tfrtool
from tests.photos import image_bytes, write_class_folders
from tfrtool.images.audit import audit_image
from tfrtool.storage.commit import STAGING
from tfrtool.writing.shard_writer import write_shards

pytestmark = pytest.mark.tf

BAD = b"\xff\xd8\xff but no image"


@pytest.fixture
def looked_at(monkeypatch: pytest.MonkeyPatch) -> Counter[int]:
    """Count how often the same bytes are looked at."""
    counts: Counter[int] = Counter()

    def counted(data: bytes, recipe: Any) -> Any:
        counts[hash(data)] += 1
        return audit_image(data, recipe)

    monkeypatch.setattr("tfrtool.writing.image_audit.audit_image", counted)
    return counts


def _written(source: Path, dataset: Path, **options: Any) -> dict[str, Any]:
    """Return what a dataset's files hold, but for the time that it took."""
    tfrtool.write(source, dataset, name="d", **options)
    files: dict[str, Any] = {path.name: path.read_bytes() for path in dataset.iterdir()}
    report = json.loads(files.pop("write_report.json"))
    return {**files, "report": {**report, "seconds": 0, "dataset": ""}}


@pytest.mark.parametrize("bad", [[], [0], [3, 4, 17], list(range(19))])
@pytest.mark.parametrize("check", ["decode", "header"])
def test_the_same_as_looking_first(tmp_path: Path, bad: list[int], check: str) -> None:
    """Wherever bad images and conversions are, nothing shows when they were found."""
    source = write_class_folders(tmp_path / "photos", count=10)
    paths = sorted(source.rglob("*.jpg"))
    paths[6].write_bytes(image_bytes("PNG"))
    paths[13].write_bytes(paths[2].read_bytes())
    for number in bad:
        paths[number].write_bytes(BAD if number % 2 else b"")
    # Who resumes looks first.
    first = _written(source, tmp_path / "a", shards=1, check=check, existing="resume")
    assert _written(source, tmp_path / "b", shards=1, check=check) == first
    assert len(first["report"]["rejected"]) == len(bad)


@settings(
    max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    bad=st.sets(st.integers(0, 23)),
    shards=st.integers(1, 4),
    workers=st.integers(1, 3),
    shuffle=st.booleans(),
)
def test_bad_images_anywhere(
    tmp_path_factory: pytest.TempPathFactory,
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
    options: dict[str, Any] = {"shards": shards, "workers": workers, "shuffle": shuffle}
    first = _written(source, root / "a", existing="resume", **options)
    assert _written(source, root / "b", **options) == first


@pytest.mark.parametrize("options", [{"shards": 3}, {"shard_size": 2000}])
def test_every_image_is_looked_at_once(
    tmp_path: Path, looked_at: Counter[int], options: dict[str, int]
) -> None:
    """Images are decoded no more than once, not even those that were tried, or follow a bad one."""
    source = write_class_folders(tmp_path / "photos", count=20)
    for number, path in enumerate(sorted(source.rglob("*.jpg"))):
        path.write_bytes(path.read_bytes() + bytes(1 + number))
    sorted(source.rglob("*.jpg"))[39].write_bytes(BAD)
    tfrtool.write(source, tmp_path / "d", shuffle=False, check="header", **options)  # type: ignore[arg-type]
    assert (len(looked_at), set(looked_at.values())) == (40, {1})


def test_splits_by_hash_are_looked_at_first(tmp_path: Path) -> None:
    """Where copies must not be torn apart, nothing is written before all images are known."""
    source = write_class_folders(tmp_path / "photos", count=5)
    phases: list[str] = []
    progress = lambda step: phases.append(step.what)  # noqa: E731
    tfrtool.write(source, tmp_path / "one", on_progress=progress)
    assert set(phases) == {"writing"}
    phases.clear()
    splits = {"train": 0.5, "test": 0.5}
    tfrtool.write(source, tmp_path / "two", splits=splits, on_progress=progress)
    assert phases.index("writing") == phases.count("checking")


def test_an_interrupted_write_at_once_can_be_gone_on_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Shards that were finished before the interruption are taken over as they are."""
    source, dataset = write_class_folders(tmp_path / "photos", count=40), tmp_path / "b"
    whole = _written(source, tmp_path / "a", shards=8)

    def interrupted(shards: Any, *arguments: Any) -> Any:
        write_shards(shards[:3], *arguments)
        shutil.copytree(dataset / STAGING, tmp_path / "kept")
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("tfrtool.writing.write.write_shards", interrupted)
        with pytest.raises(KeyboardInterrupt):
            tfrtool.write(source, dataset, name="d", shards=8)
    dataset.mkdir()
    shutil.move(tmp_path / "kept", dataset / STAGING)
    report = tfrtool.write(source, dataset, name="d", shards=8, existing="resume")
    assert report.resumed >= 3
    for name, data in whole.items():
        if "tfrecord" in name:
            assert (dataset / name).read_bytes() == data


@pytest.mark.parametrize("packed", [False, True], ids=["folder", "zip"])
def test_planned_shards_can_be_sent_elsewhere(
    packed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A planned shard is whole: pickled, as another process gets it, it is the same bytes."""
    source = write_class_folders(tmp_path / "photos", count=10)
    next(source.rglob("*.jpg")).write_bytes(image_bytes("PNG"))
    if packed:
        source = Path(shutil.make_archive(str(tmp_path / "photos"), "zip", source))
    options: dict[str, Any] = {"splits": {"train": 0.5, "test": 0.5}, "shards": 2}
    expected = _written(source, tmp_path / "a", **options)

    def elsewhere(shards: Any, *arguments: Any) -> Any:
        sent = (pickle.loads(pickle.dumps(shard)) for shard in shards)
        return [write_shards([shard], *arguments)[0] for shard in sent]

    monkeypatch.setattr("tfrtool.writing.write.write_shards", elsewhere)
    assert _written(source, tmp_path / "b", **options) == expected
