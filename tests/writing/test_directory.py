"""Publishing a dataset's files."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.writing.test_plan import make_options
from tfrtool.errors import DatasetError, UsageError, WriteError
from tfrtool.examples.tfds_metadata import REPORT
from tfrtool.records.shard_sets import ShardName
from tfrtool.records.shards import find_shards
from tfrtool.storage.commit import PUBLISHING, STAGING
from tfrtool.writing.job_report import ShardReport
from tfrtool.writing.publish import Target, staging_folder
from tfrtool.writing.write_options import Existing

SHARDS = [ShardName(dataset="pets", split="train", index=index, count=3) for index in range(3)]
SHARDS_LISTED = [{"path": str(shard)} for shard in SHARDS]
LISTED = {"splits": {"train": {"shards": SHARDS_LISTED}}}
METADATA = {"features.json": "{}", "dataset_info.json": "{}", REPORT: json.dumps(LISTED)}
NEW = dict.fromkeys(map(str, SHARDS), b"new") | {n: t.encode() for n, t in METADATA.items()}


def _files(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else b""
        for path in folder.rglob("*")
    }


def _stage(staging: Path) -> None:
    for shard in SHARDS:
        (staging / str(shard)).write_bytes(b"new")


def _write(dataset: Path, existing: Existing = Existing.REFUSE) -> None:
    options = make_options(dataset=dataset, name="pets", existing=existing)
    target = Target.of_write(options)
    with staging_folder(target) as staging:
        _stage(staging.folder)
        shards = [ShardReport(str(shard), 1, 3) for shard in SHARDS]
        staging.publish(target, shards, METADATA)


@pytest.mark.parametrize("failure", [KeyboardInterrupt, OSError(28, "No space left on device")])
@pytest.mark.parametrize("old", [False, True])
@pytest.mark.parametrize("name", ["replace", "mkdir", "fsync"])
def test_failed_publishing_is_taken_back(
    failure: BaseException | type[BaseException],
    old: bool,
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whichever call fails, what was there before still is, and nothing else."""
    dataset, real, steps = tmp_path / "d", getattr(os, name), itertools.count()
    if old:
        _write(dataset)
        (dataset / str(SHARDS[0])).write_bytes(b"old")
    before = _files(tmp_path)
    for failing in range(100):
        calls = itertools.count()

        def call(*arguments: Any, _calls: Any = calls, _at: int = failing, **keywords: Any) -> Any:
            if next(_calls) == _at:
                raise failure
            return real(*arguments, **keywords)

        with monkeypatch.context() as patch, contextlib.suppress(KeyboardInterrupt, WriteError):
            patch.setattr(os, name, call)
            _write(dataset, Existing.OVERWRITE)
        if next(calls) <= failing:
            break  # that many calls there are
        next(steps)
        done = name in ("mkdir", "fsync") and _files(dataset) == NEW
        assert done or _files(tmp_path) == before
    assert next(steps) > (1 if name == "mkdir" else 8)
    assert _files(dataset) == NEW


def test_what_can_not_be_taken_back_is_said_and_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a disk that takes no change any more the error tells how to go on; the next write does."""
    real, calls = os.replace, 0

    def replace(source: Path, target: Path) -> None:
        nonlocal calls
        calls += 1
        if calls > 8:
            raise OSError(30, "Read-only file system")
        real(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", replace)
        with pytest.raises(WriteError, match="read-only file system; run tfrtool write --resume"):
            _write(tmp_path / "d")
    with pytest.raises(DatasetError, match="interrupted"):
        find_shards([str(tmp_path / "d")])
    with pytest.raises(UsageError, match="already exists"):
        _write(tmp_path / "d")
    assert _files(tmp_path / "d") == NEW


def test_report_comes_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the report gets its name, everything else has its own."""
    real = os.replace
    order: list[str] = []

    def replace(source: Path, target: Path) -> None:
        if target.parent == tmp_path / "d" and not target.name.startswith("."):
            order.append(target.name)
        real(source, target)

    monkeypatch.setattr(os, "replace", replace)
    _write(tmp_path / "d")
    assert order == [*map(str, SHARDS), "features.json", "dataset_info.json", REPORT]
    assert not (tmp_path / "d" / STAGING).exists()


def test_edited_report_deletes_no_other_files(tmp_path: Path) -> None:
    """A report that lists paths outside the dataset has none of them removed."""
    victim = tmp_path / "victim.txt"
    victim.write_text("dear")
    dataset = tmp_path / "d"
    dataset.mkdir()
    report = '{"splits": {"train": {"shards": [{"path": "../victim.txt"}, {"path": 3}]}}}'
    (dataset / REPORT).write_text(report)
    _write(dataset, Existing.OVERWRITE)
    assert victim.read_text() == "dear"


def test_file_in_place_of_a_directory(tmp_path: Path) -> None:
    """A file where the dataset should be is refused, and kept."""
    (tmp_path / "d").write_text("dear")
    with pytest.raises(UsageError):
        _write(tmp_path / "d", Existing.OVERWRITE)
    assert (tmp_path / "d").read_text() == "dear"


def test_shard_that_the_report_does_not_list_is_kept(tmp_path: Path) -> None:
    """A file that would be taken for one of the new shards is neither replaced nor mixed in."""
    _write(tmp_path / "d")
    before = _files(tmp_path / "d")
    for name in ("pets-test.tfrecord-00000-of-00001", "pets-train.tfrecord-00007-of-00009"):
        (tmp_path / "d" / name).write_text("dear")
        with pytest.raises(UsageError, match=f"did not write.* {name}"):
            _write(tmp_path / "d", Existing.OVERWRITE)
        (tmp_path / "d" / name).unlink()
    assert _files(tmp_path / "d") == before


def test_folder_that_the_report_lists_is_kept(tmp_path: Path) -> None:
    """A report that was edited to name a folder has it neither deleted nor emptied."""
    _write(tmp_path / "d")
    folder = tmp_path / "d" / "other-train.tfrecord-00000-of-00001"
    folder.mkdir()
    (folder / "thesis").write_text("dear")
    report = {"splits": {"train": {"shards": [{"path": folder.name}, *SHARDS_LISTED]}}}
    (tmp_path / "d" / REPORT).write_text(json.dumps(report))
    _write(tmp_path / "d", Existing.OVERWRITE)
    assert (folder / "thesis").read_text() == "dear"


@pytest.mark.parametrize("name", [STAGING, PUBLISHING])
@pytest.mark.parametrize("existing", Existing)
def test_planted_folder_is_not_written_to(tmp_path: Path, name: str, existing: Existing) -> None:
    """Where a link to somebody's folder has our folder's name, nothing in it is touched."""
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / str(SHARDS[0])).write_text("dear")
    (victim / "journal.json").write_text('{"new": [], "old": []}')
    before = _files(victim)
    _write(tmp_path / "d")
    (tmp_path / "d" / name).symlink_to(victim)
    with pytest.raises((WriteError, UsageError)):
        _write(tmp_path / "d", existing)
    assert _files(victim) == before
    assert _files(tmp_path / "d").items() >= NEW.items()


def test_planted_journal_moves_no_other_files(tmp_path: Path) -> None:
    """What an archive has unpacked under our names can have no file of another kind removed."""
    dataset = tmp_path / "d"
    (dataset / PUBLISHING / "replaced").mkdir(parents=True)
    (dataset / "thesis").write_text("dear")
    for name in ("thesis", "../thesis", "", 3, None, ["thesis"]):
        journal = json.dumps({"new": [], "old": [name]})
        (dataset / PUBLISHING / "journal.json").write_text(journal)
        with pytest.raises(WriteError, match="what an interrupted write leaves"):
            _write(dataset)
    assert (dataset / "thesis").read_text() == "dear"
