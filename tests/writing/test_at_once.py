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
from tfrtool.writing.image_task import ImageShard
from tfrtool.writing.job_report import Written

pytestmark = pytest.mark.tf

BAD = b"\xff\xd8\xff but no image"


@pytest.fixture
def looked_at(monkeypatch: pytest.MonkeyPatch) -> Counter[int]:
    """Count how often the same bytes are looked at."""
    counts: Counter[int] = Counter()

    def counted(data: bytes, recipe: Any) -> Any:
        counts[hash(data)] += 1
        return audit_image(data, recipe)

    monkeypatch.setattr("tfrtool.writing.image_task.audit_image", counted)
    return counts


def _written(source: Path, dataset: Path, **options: Any) -> dict[str, Any]:
    """Return what a dataset's files hold, but for the time that it took."""
    tfrtool.write(source, dataset, name="d", **options)
    files: dict[str, Any] = {path.name: path.read_bytes() for path in dataset.iterdir()}
    report = json.loads(files.pop("write_report.json"))
    return {**files, "report": {**report, "seconds": 0, "dataset": ""}}


@settings(
    max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    bad=st.sets(st.integers(0, 23)),
    shards=st.integers(1, 4),
    workers=st.integers(1, 3),
    shuffle=st.booleans(),
)
def test_bad_images_leave_shards_shorter(
    tmp_path_factory: pytest.TempPathFactory,
    bad: set[int],
    shards: int,
    workers: int,
    shuffle: bool,
) -> None:
    """Any bad images are listed, and all others written: as a plan says, on any workers."""
    root = tmp_path_factory.mktemp("any")
    source = write_class_folders(root / "photos", count=12)
    for number, path in enumerate(sorted(source.rglob("*.jpg"))):
        if number in bad:
            path.write_bytes(BAD)
    options: dict[str, Any] = {"shards": shards, "workers": workers, "shuffle": shuffle}
    if len(bad) > 24 - shards:  # fewer images are left than shards
        with pytest.raises(tfrtool.TfrtoolError):
            tfrtool.write(source, root / "a", **options)
        assert not (root / "a").exists()
        return
    written = _written(source, root / "a", **options)["report"]
    assert [entry["key"] for entry in written["rejected"]] == [
        path.relative_to(source).as_posix()
        for number, path in enumerate(sorted(source.rglob("*.jpg")))
        if number in bad
    ]
    plan = tfrtool.write(source, root / "b", name="d", dry_run=True, **options)
    records = [shard["records"] for shard in written["splits"]["train"]["shards"]]
    assert records == [shard.records for shard in plan.splits["train"].shards]
    assert (sum(records), len(records), 0 in records) == (24 - len(bad), shards, False)


def test_a_shard_of_bad_images_alone(tmp_path: Path) -> None:
    """It can't be written, so all are looked at, and planned again without those that are bad."""
    source = write_class_folders(tmp_path / "photos", count=10)
    for path in sorted(source.rglob("*.jpg"))[:5]:
        path.write_bytes(BAD)
    written = _written(source, tmp_path / "d", shards=4, shuffle=False)["report"]
    counts = [shard["records"] for shard in written["splits"]["train"]["shards"]]
    assert counts == [4, 4, 3, 4]
    assert len(written["rejected"]) == 5
    plan = tfrtool.write(source, tmp_path / "p", shards=4, shuffle=False, dry_run=True)
    assert [shard.records for shard in plan.splits["train"].shards] == counts


def test_every_image_is_checked_once(tmp_path: Path, looked_at: Counter[int]) -> None:
    """Images are decoded no more than once, not even those that follow a bad one."""
    source = write_class_folders(tmp_path / "photos", count=20)
    for number, path in enumerate(sorted(source.rglob("*.jpg"))):
        path.write_bytes(path.read_bytes() + bytes(1 + number))
    sorted(source.rglob("*.jpg"))[39].write_bytes(BAD)
    tfrtool.write(source, tmp_path / "d", shuffle=False, check="header", shards=3)
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
    expected, write = _written(source, tmp_path / "a", **options), ImageShard.write

    def elsewhere(task: ImageShard, path: Path) -> Written:
        return write(pickle.loads(pickle.dumps(task)), path)

    monkeypatch.setattr(ImageShard, "write", elsewhere)
    assert _written(source, tmp_path / "b", **options) == expected
