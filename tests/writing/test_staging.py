"""The lock, and what an interrupted write leaves for the next."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import tfrtool
from tests.photos import image_bytes, write_class_folders
from tests.writing.test_plan import make_options
from tfrtool.errors import SourceError, UsageError, WriteError
from tfrtool.storage.commit import STAGING
from tfrtool.storage.lock import LOCK, locked
from tfrtool.storage.progress import Progress
from tfrtool.writing.publish import Staging, Target, staging_folder
from tfrtool.writing.shard_writer import write_shards
from tfrtool.writing.write_plan import PlannedShard

pytestmark = pytest.mark.tf


def _options(source: Path, dataset: Path, **changes: object) -> dict[str, Any]:
    splits = {"train": 0.7, "test": 0.3}
    return dict(
        source=source,
        dataset=dataset,
        name="pets",
        splits=splits,
        shards=3,
        **changes,
    )


def _files(dataset: Path) -> dict[str, bytes]:
    """Return the files of a dataset; of the report, which tells the time, only that it is there."""
    return {
        path.name: b"" if path.suffix == ".json" and "report" in path.name else path.read_bytes()
        for path in dataset.iterdir()
    }


def _unchanged(dataset: Path) -> dict[str, tuple[int, int]]:
    """Return what shows that a file was replaced or written to."""
    status = {path.name: path.stat() for path in dataset.iterdir()}
    return {name: (found.st_ino, found.st_mtime_ns) for name, found in status.items()}


class Killed(BaseException):
    """Stands for the death of the process."""


def _killed_write(options: dict[str, Any], monkeypatch: pytest.MonkeyPatch, *, after: int) -> None:
    """Write until some shards are done, and leave everything as a killed process does."""

    def killed(shards: Sequence[PlannedShard], staging: Staging, *more: Any) -> Any:
        if after:
            write_shards(shards[:after], staging, *more)
        (staging.folder / f"{shards[after].name}.part").write_bytes(b"half a shard")
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr("tfrtool.writing.write.write_shards", killed)
        patch.setattr("tfrtool.writing.publish.shutil.rmtree", lambda *_, **__: None)
        with pytest.raises(Killed):
            tfrtool.write(**options)
    assert (options["dataset"] / STAGING).exists()


@pytest.mark.parametrize("after", [0, 5])
def test_resuming_gives_the_same_bytes(
    after: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Shards that were whole are not written again, and the end is that of an unbroken write."""
    source = write_class_folders(tmp_path / "photos", count=20)
    tfrtool.write(**_options(source, tmp_path / "whole"))
    _killed_write(_options(source, tmp_path / "d"), monkeypatch, after=after)
    with pytest.raises(UsageError, match="interrupted"):
        tfrtool.write(**_options(source, tmp_path / "d"))
    report = tfrtool.write(**_options(source, tmp_path / "d", existing="resume"))
    assert report.resumed == after
    assert _files(tmp_path / "d") == _files(tmp_path / "whole")


def test_a_damaged_or_other_shard_is_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shard counts only if it has its size, and the images are still the same."""
    source = write_class_folders(tmp_path / "photos", count=20)
    _killed_write(_options(source, tmp_path / "d"), monkeypatch, after=5)
    shards = sorted((tmp_path / "d" / STAGING).glob("*.tfrecord-*-of-00003"))
    shards[0].write_bytes(shards[0].read_bytes()[:-1])
    shards[1].unlink()
    report = tfrtool.write(**_options(source, tmp_path / "d", existing="resume"))
    assert report.resumed == 3
    tfrtool.write(**_options(source, tmp_path / "whole"))
    assert _files(tmp_path / "d") == _files(tmp_path / "whole")
    _killed_write(_options(source, tmp_path / "e"), monkeypatch, after=5)
    (source / "cat" / "cat.3.jpg").write_bytes(image_bytes(tint=99))
    report = tfrtool.write(**_options(source, tmp_path / "e", existing="resume"))
    assert report.resumed == 0
    assert "options" in report.warnings[0]
    tfrtool.write(**_options(source, tmp_path / "other"))
    assert _files(tmp_path / "e") == _files(tmp_path / "other")


def test_a_complete_write_is_left_as_it_is(tmp_path: Path) -> None:
    """Resumed once more, a whole dataset is not touched; a missing one is simply written."""
    source = write_class_folders(tmp_path / "photos", count=10)
    options = _options(source, tmp_path / "d", existing="resume")
    report = tfrtool.write(**options)
    assert (report.resumed, report.complete) == (0, False)
    before = _unchanged(options["dataset"])
    again = tfrtool.write(**options)
    assert (again.resumed, again.complete, again.warnings) == (6, True, ())
    assert again.splits == report.splits
    assert _unchanged(options["dataset"]) == before


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"seed": 7}, "seed 0 instead of 7"),
        ({"version": "2.0.0"}, 'version "1.0.0" instead of "2.0.0"'),
        ({"name": "cats"}, 'name "pets" instead of "cats"'),
        ({"shards": 2}, "shards 3 instead of 2"),
        ({"compression": "gzip"}, 'compression "none" instead of "gzip"'),
        ({"encode": "png"}, 'encode "keep" instead of "png"'),
        ({"splits": {"train": 0.6, "test": 0.4}}, "splits .*0.7.* instead of .*0.6"),
    ],
)
def test_another_complete_write_is_refused(
    tmp_path: Path, changes: dict[str, object], what: str
) -> None:
    """The error says which option is another than that of the dataset, which stays."""
    source = write_class_folders(tmp_path / "photos", count=10)
    options = _options(source, tmp_path / "d")
    tfrtool.write(**options)
    before = _files(tmp_path / "d")
    with pytest.raises(UsageError, match=f"already complete.* {what}"):
        tfrtool.write(**dict(options, existing="resume", **changes))
    assert _files(tmp_path / "d") == before


def test_a_complete_write_of_other_images_is_refused(tmp_path: Path) -> None:
    """Where an image, a shard or the metadata is another, a write is not what was asked for."""
    source = write_class_folders(tmp_path / "photos", count=10)
    options = _options(source, tmp_path / "d", existing="resume")
    tfrtool.write(**options)
    info = tmp_path / "d" / "dataset_info.json"
    info.rename(tmp_path / "info")
    with pytest.raises(UsageError, match=r"dataset_info.json: missing"):
        tfrtool.write(**options)
    (tmp_path / "info").rename(info)
    image, shard = source / "cat" / "cat.3.jpg", min((tmp_path / "d").glob("*tfrecord*"))
    for path, what in [(image, "other images"), (shard, f"{shard.name}: missing")]:
        data = path.read_bytes()
        path.write_bytes(image_bytes(tint=99) if path == image else data[:-1])
        with pytest.raises(UsageError, match=what):
            tfrtool.write(**options)
        path.write_bytes(data)
    assert tfrtool.write(**options).complete


def test_other_options_than_those_of_the_interrupted_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where nothing can be used, it is said why, and the result is that of the new options."""
    source = write_class_folders(tmp_path / "photos", count=20)
    _killed_write(_options(source, tmp_path / "d"), monkeypatch, after=3)
    report = tfrtool.write(**_options(source, tmp_path / "d", seed=5, existing="resume"))
    assert "options" in report.warnings[0]
    tfrtool.write(**_options(source, tmp_path / "whole", seed=5))
    assert _files(tmp_path / "d") == _files(tmp_path / "whole")


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_a_failed_resume_keeps_what_was_there(
    error: type[BaseException], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither an error nor Ctrl-C takes away what an earlier run has done."""
    source = write_class_folders(tmp_path / "photos", count=20)
    options = _options(source, tmp_path / "d", existing="resume")
    _killed_write(options, monkeypatch, after=3)

    def fail(progress: Progress) -> None:
        if progress.what == "writing":
            raise error

    with pytest.raises(error):
        tfrtool.write(**options, on_progress=fail)
    with pytest.raises(SourceError):
        tfrtool.write(**dict(options, source=tmp_path / "typo"))
    assert tfrtool.write(**options).resumed >= 3
    assert not (tmp_path / "d" / STAGING).exists()


def test_links_in_the_folder_are_not_written_through(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever an unpacked archive has put where shards and notes go, no file outside changes."""
    source = write_class_folders(tmp_path / "photos", count=20)
    options = _options(source, tmp_path / "d", existing="resume")
    _killed_write(options, monkeypatch, after=2)
    staging, victim = tmp_path / "d" / STAGING, tmp_path / "victim"
    victim.mkdir()
    names = [path.name for path in staging.iterdir()]
    for name in [*names, *(f"{name}.part" for name in names), "features.json", "write_report.json"]:
        (victim / name).write_text("dear")
        (staging / name).unlink(missing_ok=True)
        (staging / name).symlink_to(victim / name)
    (staging / "replaced").symlink_to(victim)
    before = _files(victim)
    assert tfrtool.write(**options).resumed == 0
    assert _files(victim) == before
    assert not any(path.is_symlink() for path in (tmp_path / "d").iterdir())
    tfrtool.write(**_options(source, tmp_path / "whole"))
    assert _files(tmp_path / "d") == _files(tmp_path / "whole")


@pytest.mark.parametrize("mode", [0o770, 0o707])
def test_a_folder_that_others_write_to_is_refused(
    mode: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may hold anything; it is made for this user alone, and can be thrown away."""
    source = write_class_folders(tmp_path / "photos", count=20)
    options = _options(source, tmp_path / "d", existing="resume")
    _killed_write(options, monkeypatch, after=2)
    assert (tmp_path / "d" / STAGING).stat().st_mode & 0o777 == 0o700
    (tmp_path / "d" / STAGING).chmod(mode)
    with pytest.raises(WriteError, match="can't be used: other users can write to it"):
        tfrtool.write(**options)
    tfrtool.write(**dict(options, existing="overwrite"))


def test_two_writers_never_meet(tmp_path: Path) -> None:
    """While one writes, another is refused, whatever it wants, and the first ends well."""
    source = write_class_folders(tmp_path / "photos", count=10)
    refused: list[str] = []

    def try_another(progress: Progress) -> None:
        if progress.what == "writing" and not refused:
            for existing in ("refuse", "overwrite", "resume"):
                with pytest.raises(UsageError, match="another tfrtool"):
                    tfrtool.write(**_options(source, tmp_path / "d", existing=existing))
                refused.append(existing)

    tfrtool.write(**_options(source, tmp_path / "d"), on_progress=try_another)
    assert len(refused) == 3
    assert not (tmp_path / "d" / LOCK).exists()


def test_a_lock_is_had_by_one(tmp_path: Path) -> None:
    """Of many threads that want a lock at once, one has it at a time, and no file is left."""
    inside, most, had, lock = 0, 0, 0, threading.Lock()

    def work() -> None:
        nonlocal inside, most, had
        for _ in range(50):
            try:
                with locked(tmp_path):
                    with lock:
                        inside += 1
                        most = max(most, inside)
                        had += 1
                    with lock:
                        inside -= 1
            except UsageError:
                continue

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 1
    assert had > 0
    assert list(tmp_path.iterdir()) == []


def test_directories_that_were_made_go_again(tmp_path: Path) -> None:
    """An error takes away the dataset's directory and those above it that weren't there."""
    options = make_options(dataset=tmp_path / "a" / "b")
    with pytest.raises(RuntimeError), staging_folder(Target.of_write(options)):
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []


def test_a_plan_writes_nothing(tmp_path: Path) -> None:
    """A dry run tells shards, records and sizes as they will be, and leaves no file."""
    source = write_class_folders(tmp_path / "photos", count=20)
    (source / "cat" / "bad.jpg").write_text("no image")
    plan = tfrtool.write(**_options(source, tmp_path / "d"), dry_run=True)
    assert [path.name for path in tmp_path.iterdir()] == ["photos"]
    report = tfrtool.write(**_options(source, tmp_path / "d"))
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
    report = tfrtool.write(**_options(source, tmp_path / "d"))
    assert report.duplicates == 12
    where = {
        name
        for name, split in report.splits.items()
        for shard in split.shards
        if data in (tmp_path / "d" / shard.path).read_bytes()
    }
    assert len(where) == 1
