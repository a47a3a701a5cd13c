"""Folders that jobs write to: what is resumed, what is refused, and what is never touched."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

import tfrtool
from tests.datasets import write_foreign
from tests.photos import image_bytes, write_class_folders
from tests.process.effects import die, logged
from tfrtool.errors import DatasetError, SourceError, UsageError, WriteError
from tfrtool.storage.commit import PUBLISHING, STAGING
from tfrtool.storage.lock import LOCK
from tfrtool.storage.progress import Progress
from tfrtool.storage.remote_path import AnyPath
from tfrtool.writing.job_report import JobReport

EXISTING = ("refuse", "overwrite", "resume")
REPORT = "write_report.json"
SHARDS = 5
FIRST = f"n-train.tfrecord-00000-of-{SHARDS:05}"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Return a folder of records."""
    return write_foreign(tmp_path / "records", [[b"%d" % n for n in range(50)]])


def _reshard(source: Path, target: Path, existing: str = "refuse", **more: Any) -> JobReport:
    options: dict[str, Any] = {"name": "n", "shards": SHARDS, "workers": 1, "existing": existing}
    return tfrtool.reshard(source, target, **options | more)


def _killed(source: Path, target: Path, shards: int) -> None:
    """Leave what a job leaves that is killed when some shards are finished."""
    run = lambda: _reshard(source, target)  # noqa: E731
    die(run, target, lambda: logged(target) == shards)


def _files(dataset: AnyPath) -> dict[str, bytes]:
    folder = Path(dataset)
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() if path.is_file() else b""
        for path in folder.rglob("*")
        if path.name != REPORT
    }


def _unchanged(folder: Path) -> dict[str, tuple[int, int]]:
    """Return what shows that a file was replaced or written to."""
    status = {path.name: path.stat() for path in folder.iterdir()}
    return {name: (found.st_ino, found.st_mtime_ns) for name, found in status.items()}


def test_finished_shards_of_the_same_plan_are_kept(source: Path, tmp_path: Path) -> None:
    """A shard counts if it has its size; with other options or records, none does."""
    folder, staging = tmp_path / "d", tmp_path / "d" / STAGING
    whole = _reshard(source, tmp_path / "whole").dataset
    _killed(source, folder, 4)
    with pytest.raises(UsageError, match="an interrupted write was found"):
        _reshard(source, folder)
    (staging / FIRST).write_bytes((staging / FIRST).read_bytes()[:-1])
    (staging / FIRST.replace("00000", "00001", 1)).unlink()
    assert _reshard(source, folder, "resume").resumed == 2
    assert _files(folder) == _files(whole)
    changes: list[dict[str, Any]] = [{"shuffle": True}, {"version": "2.0.0"}, {}]
    for number, change in enumerate(changes):
        folder = tmp_path / str(number)
        _killed(source, folder, 3)
        if not change:
            write_foreign(source, [[b"other"] * 9])
        report = _reshard(source, folder, "resume", **change)
        assert report.resumed == 0
        assert "other options or records" in report.warnings[0]
        assert _files(folder) == _files(
            _reshard(source, tmp_path / f"{number}.w", **change).dataset
        )


def test_a_complete_dataset_is_left_as_it_is(source: Path, tmp_path: Path) -> None:
    """Resumed once more it is not touched, and what is wrong with it is an error."""
    first = _reshard(source, tmp_path / "d", "resume")
    assert (first.resumed, first.complete) == (0, False)
    before = _unchanged(tmp_path / "d")
    again = _reshard(source, tmp_path / "d", "resume")
    assert (again.resumed, again.complete, again.warnings) == (0, True, ())
    assert (again.splits, again.digest_in) == (first.splits, first.digest_in)
    assert _unchanged(tmp_path / "d") == before
    for name in (FIRST, "dataset_info.json"):
        path = tmp_path / "d" / name
        data = path.read_bytes()
        for damage in (data[:-1], None) if name == FIRST else (None,):
            path.write_bytes(damage) if damage else path.unlink()
            with pytest.raises(UsageError, match=f"{name}: missing, or changed"):
                _reshard(source, tmp_path / "d", "resume")
            path.write_bytes(data)
    assert _reshard(source, tmp_path / "d", "resume").complete


@pytest.mark.tf
def test_another_complete_write_is_refused(tmp_path: Path) -> None:
    """With any other option or image; the dataset stays."""
    photos = write_class_folders(tmp_path / "photos", count=10)
    options: dict[str, Any] = {"name": "pets", "shards": 3, "splits": {"train": 0.7, "test": 0.3}}
    tfrtool.write(photos, tmp_path / "d", **options)
    before = _unchanged(tmp_path / "d")
    changes: list[dict[str, Any]] = [
        {"seed": 7},
        {"version": "2.0.0"},
        {"name": "cats"},
        {"shards": 2},
        {"compression": "gzip"},
        {"encode": "png"},
        {"splits": {"train": 0.6, "test": 0.4}},
    ]
    for change in changes:
        with pytest.raises(UsageError, match=r"already complete.* with other options"):
            tfrtool.write(photos, tmp_path / "d", existing="resume", **options | change)
    (photos / "cat" / "cat.3.jpg").write_bytes(image_bytes(tint=99))
    with pytest.raises(UsageError, match="other options, images"):
        tfrtool.write(photos, tmp_path / "d", existing="resume", **options)
    assert _unchanged(tmp_path / "d") == before


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_a_failed_resume_keeps_what_was_there(
    error: type[BaseException], source: Path, tmp_path: Path
) -> None:
    """Neither an error nor Ctrl-C takes away what an earlier run has done."""
    _killed(source, tmp_path / "d", 3)

    def fail(progress: Progress) -> None:
        if progress.what == "writing":
            raise error

    with pytest.raises(error):
        _reshard(source, tmp_path / "d", "resume", on_progress=fail)
    with pytest.raises((SourceError, DatasetError)):
        _reshard(write_foreign(tmp_path / "none", [[]]), tmp_path / "d", "resume")
    assert _reshard(source, tmp_path / "d", "resume").resumed == 3


def test_links_in_the_folder_are_not_written_through(source: Path, tmp_path: Path) -> None:
    """Whatever an unpacked archive has put where shards and notes go, no file outside changes."""
    staging, victim = tmp_path / "d" / STAGING, tmp_path / "victim"
    _killed(source, tmp_path / "d", 2)
    victim.mkdir()
    for name in [*(path.name for path in staging.iterdir()), "dataset_info.json", REPORT]:
        if not (staging / name).is_dir():
            (victim / name).write_text("dear")
            (staging / name).unlink(missing_ok=True)
            (staging / name).symlink_to(victim / name)
    (staging / "replaced").symlink_to(victim)
    before = _files(victim)
    assert _reshard(source, tmp_path / "d", "resume").resumed == 0
    assert _files(victim) == before
    assert not any(path.is_symlink() for path in (tmp_path / "d").iterdir())
    assert _files(tmp_path / "d") == _files(_reshard(source, tmp_path / "whole").dataset)


@pytest.mark.parametrize("mode", [0o770, 0o707])
def test_a_folder_that_others_write_to_is_refused(mode: int, source: Path, tmp_path: Path) -> None:
    """It may hold anything; it is made for this user alone, and can be thrown away."""
    _killed(source, tmp_path / "d", 2)
    assert (tmp_path / "d" / STAGING).stat().st_mode & 0o777 == 0o700
    (tmp_path / "d" / STAGING).chmod(mode)
    with pytest.raises(WriteError, match="can't be used: other users can write to it"):
        _reshard(source, tmp_path / "d", "resume")
    _reshard(source, tmp_path / "d", "overwrite")


def test_two_writers_never_meet(source: Path, tmp_path: Path) -> None:
    """While one writes, another is refused, whatever it wants, and the first ends well."""
    refused: list[str] = []

    def try_another(progress: Progress) -> None:
        if progress.what == "writing" and not refused:
            for existing in EXISTING:
                with pytest.raises(UsageError, match="another tfrtool"):
                    _reshard(source, tmp_path / "d", existing)
                refused.append(existing)

    _reshard(source, tmp_path / "d", on_progress=try_another)
    assert len(refused) == 3
    assert not (tmp_path / "d" / LOCK).exists()


def test_what_can_not_be_taken_back_is_said_and_ended(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a disk that takes no change any more the error tells how to go on; the next write does."""
    real, folder = os.replace, tmp_path / "d"

    def replace(old: Path, new: Path) -> None:
        if (folder / FIRST).exists():
            raise OSError(30, "Read-only file system")
        real(old, new)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", replace)
        with pytest.raises(WriteError, match="read-only file system; run tfrtool reshard --resume"):
            _reshard(source, folder)
    with pytest.raises(DatasetError, match="interrupted"):
        tfrtool.find_shards([str(folder)])
    with pytest.raises(UsageError, match="already exists"):
        _reshard(source, folder)
    assert _files(folder) == _files(_reshard(source, tmp_path / "whole").dataset)


def test_only_files_that_were_written_are_replaced(source: Path, tmp_path: Path) -> None:
    """Files of others stay, whatever a report lists; those that shards would mix with are named."""
    folder, victim = tmp_path / "d", tmp_path / "victim.txt"
    folder.write_text("dear")
    with pytest.raises(UsageError, match="not a directory"):
        _reshard(source, folder, "overwrite")
    folder.unlink()
    victim.write_text("dear")
    _reshard(source, folder)
    thesis = folder / "other-train.tfrecord-00000-of-00001" / "thesis"
    thesis.parent.mkdir()
    thesis.write_text("dear")
    (folder / "notes.txt").write_text("dear")
    report = json.loads((folder / REPORT).read_text())
    report["splits"]["train"]["shards"] += [
        {"path": path} for path in ("../victim.txt", thesis.parent.name, "notes.txt")
    ]
    (folder / REPORT).write_text(json.dumps(report))
    _reshard(source, folder, "overwrite")
    assert {path.read_text() for path in (victim, thesis, folder / "notes.txt")} == {"dear"}
    for name in ("n-test.tfrecord-00000-of-00001", "n-train.tfrecord-00007-of-00009"):
        (folder / name).write_text("dear")
        with pytest.raises(UsageError, match=f"did not write.* {name}"):
            _reshard(source, folder, "overwrite")
        (folder / name).unlink()


@pytest.mark.parametrize("name", [STAGING, PUBLISHING])
@pytest.mark.parametrize("existing", EXISTING)
def test_a_planted_folder_is_not_written_to(
    source: Path, tmp_path: Path, name: str, existing: str
) -> None:
    """Where a link to somebody's folder has our folder's name, nothing in it is touched."""
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / FIRST).write_text("dear")
    (victim / "journal.json").write_text('{"new": [], "old": []}')
    before = _files(victim)
    _reshard(source, tmp_path / "d")
    own = _files(tmp_path / "d")
    (tmp_path / "d" / name).symlink_to(victim)
    with pytest.raises((WriteError, UsageError)):
        _reshard(source, tmp_path / "d", existing)
    assert _files(victim) == before
    assert _files(tmp_path / "d").items() >= own.items()


@pytest.mark.parametrize("existing", ["resume", "overwrite"])
def test_files_of_the_user_in_the_hidden_folder_stay(
    source: Path, tmp_path: Path, existing: str
) -> None:
    """A folder of an interrupted write with other files in it is refused; nothing is deleted."""
    staging = tmp_path / "d" / STAGING
    _killed(source, tmp_path / "d", 2)
    (staging / "thesis").mkdir()
    (staging / "thesis" / "chapter.txt").write_text("dear")
    before = _files(staging)
    with pytest.raises(UsageError, match="did not write, such as thesis; move them away"):
        _reshard(source, tmp_path / "d", existing)
    assert _files(staging) == before


def test_a_planted_journal_moves_no_other_files(source: Path, tmp_path: Path) -> None:
    """What an archive has unpacked under our names can have no file of another kind removed."""
    folder = tmp_path / "d"
    (folder / PUBLISHING / "replaced").mkdir(parents=True)
    (folder / "thesis").write_text("dear")
    for name in ("thesis", "../thesis", "", 3, None, ["thesis"]):
        journal = json.dumps({"new": [], "old": [name]})
        (folder / PUBLISHING / "journal.json").write_text(journal)
        with pytest.raises(WriteError, match="what an interrupted write leaves"):
            _reshard(source, folder)
    assert (folder / "thesis").read_text() == "dear"
    (folder / PUBLISHING / "journal.json").write_text('{"new": [], "old": []}')
    (folder / PUBLISHING / "thesis").write_text("dear")
    with pytest.raises(WriteError, match="what an interrupted write leaves"):
        _reshard(source, folder)
    assert (folder / PUBLISHING / "thesis").read_text() == "dear"
