"""Jobs: files that are written by tasks, and appear together."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import tfrtool
from tfrtool.errors import DatasetError, ShardError, UsageError, WriteError
from tfrtool.records.compression import Compression
from tfrtool.records.framing import frame
from tfrtool.records.tally import Tally
from tfrtool.records.writer import ShardWriter
from tfrtool.storage.arguments import as_member
from tfrtool.writing.job import FileTask, Job, JobPlan, publish_records
from tfrtool.writing.job_report import JobReport, Written
from tfrtool.writing.run_options import Existing, JobSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class NumbersTask(FileTask):
    """Writes numbers as payloads; dies or fails if it is told to."""

    numbers: range
    fate: str = ""
    compression: str = "none"

    def write(self, path: Path) -> Written:
        """Write them."""
        if self.fate == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        payloads = [str(number).encode() for number in self.numbers]
        with ShardWriter(path, as_member(Compression, self.compression, "compression")) as writer:
            writer.write(payloads)
            if self.fate:
                raise OSError(28, "No space left on device")
        return Written(tally=writer.tally, read=writer.tally, crc32c=writer.crc32c)


def _tasks(fate: str = "", count: int = 3) -> list[NumbersTask]:
    return [
        NumbersTask(
            name=f"n-train.tfrecord-{index:05}-of-{count:05}",
            split="train",
            numbers=range(index * 1000, index * 1000 + 900),
            fate=fate if index == count - 1 else "",
            records=900,
        )
        for index in range(count)
    ]


def _run(
    folder: Path, tasks: list[NumbersTask], existing: str = "refuse", **more: Any
) -> JobReport:
    settings = JobSettings(
        folder=folder, name="n", version="1.0.0", existing=Existing(existing), **more
    )
    plan, texts = JobPlan(tasks=tasks, options={"n": 1}), {"label.labels.txt": "a\n"}
    with Job(settings, "reshard") as job:
        job.begin(plan)
        return publish_records(job, job.write(tasks), texts)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_job_writes_what_its_tasks_say(tmp_path: Path, workers: int) -> None:
    """Files, records and digests are those of the tasks, on any number of workers."""
    report = _run(tmp_path / "d", _tasks(), workers=workers)
    names = ["label.labels.txt", *(t.name for t in _tasks()), "write_report.json"]
    assert sorted(p.name for p in (tmp_path / "d").iterdir()) == sorted(names)
    tally = Tally()
    tally.add(str(n).encode() for task in reversed(_tasks()) for n in task.numbers)
    assert report.records_in == report.records_out == tally.records == 2700
    assert report.digest_out == report.digest_in == f"{tally.digest:016x}"
    with pytest.raises(UsageError, match="already exists"):
        _run(tmp_path / "d", _tasks())
    assert _run(tmp_path / "d", _tasks(), "resume").complete
    again = _run(tmp_path / "d", _tasks(count=2), "overwrite")
    assert again.records_out == 1800
    assert len(list((tmp_path / "d").iterdir())) == 4


def test_a_worker_that_dies_is_an_error_and_what_is_whole_is_resumed(tmp_path: Path) -> None:
    """The error names the file; an interrupted job goes on with files that were whole."""
    with pytest.raises(ShardError, match=r"n-train.tfrecord-00002-of-00003: a worker process died"):
        _run(tmp_path / "d", _tasks("die"), workers=2)
    assert not (tmp_path / "d").exists()  # an exception leaves all as it was


def test_a_full_disk_is_an_error_that_leaves_nothing(tmp_path: Path) -> None:
    """An error of the system names the file."""
    with pytest.raises(WriteError, match=r"n-train.tfrecord-00002-of-00003: .*no space left"):
        _run(tmp_path / "d", _tasks("fail"))
    assert list(tmp_path.iterdir()) == []


def test_sources_without_a_whole_record_make_no_dataset(tmp_path: Path) -> None:
    """Neither what is no shard, nor one whose payloads are all damaged."""
    decoy, damaged = tmp_path / "page.tfrecord", tmp_path / "damaged.tfrecord"
    decoy.write_text("<!DOCTYPE html>")
    damaged.write_bytes(frame(b"payload")[:-1] + b"!")
    for source in (decoy, damaged):
        for job in (partial(tfrtool.edit, add={"a": 1}, on_error="skip"), tfrtool.reshard):
            with pytest.raises(DatasetError, match="no record can be read") as caught:
                job(source, tmp_path / "out")
            assert caught.value.path == str(source)
            assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "line",
    [
        b"[" * 200_000,
        b"[1, 2]",
        b"{}",
        b'{"shard": {"path": ["../x"]}}',
        b'{"shard": {"path": "../x", "bytes": 1}}',
        b"\xff",
        b"1" * 70_000_000,
    ],
    ids=["deep", "a list", "empty", "a list of paths", "a path that leads out", "no UTF-8", "long"],
)
@pytest.mark.parametrize("first", [True, False], ids=["instead of the plan", "after the plan"])
def test_notes_of_somebody_else_start_the_job_over(
    tmp_path: Path, line: bytes, first: bool
) -> None:
    """Whatever notes hold that came with a folder, the job writes all of its files."""
    plan = _run(tmp_path / "known", _tasks(count=2)).plan
    staging = tmp_path / "d" / ".tfrtool-incomplete"
    staging.mkdir(parents=True)
    (staging / "n-train.tfrecord-00000-of-00002").write_bytes(b"not ours")
    (staging / "claim.json").write_bytes(line if first else f'{{"plan": "{plan}"}}'.encode())
    (staging / "n-train.tfrecord-00000-of-00002.done.json").write_bytes(line)
    report = _run(tmp_path / "d", _tasks(count=2), "resume")
    assert (report.records_out, report.resumed) == (1800, 0)
    assert not staging.exists()
    for name in ("n-train.tfrecord-00000-of-00002", "n-train.tfrecord-00001-of-00002"):
        assert (tmp_path / "d" / name).read_bytes() == (tmp_path / "known" / name).read_bytes()
