"""Jobs: tasks that write one file each, published together; resumable after a kill."""

import abc
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from tfrtool.engines.pool import map_shards
from tfrtool.errors import DatasetError, WriteError, human_count, os_errors_as
from tfrtool.examples.tfds_metadata import REPORT
from tfrtool.records.count import INDEX
from tfrtool.records.random_access import write_index
from tfrtool.records.shard_sets import ShardName
from tfrtool.records.tally import Tally
from tfrtool.storage.opening import file_sha256
from tfrtool.storage.progress import RECORDS, Meter, count_work
from tfrtool.storage.remote_path import AnyPath, RemotePath
from tfrtool.storage.scratch_folder import ScratchFolder
from tfrtool.writing.job_report import (
    COUNTED,
    DROPPED,
    Faults,
    FinishedFile,
    JobReport,
    RunReport,
    Written,
    json_text,
    known_digest,
    split_reports,
)
from tfrtool.writing.publish import Staging, complete_shards, read_object, stage_in_folder
from tfrtool.writing.run_options import Existing, JobSettings, check_shard_count
from tfrtool.writing.store_staging import stage_in_store

FORMAT = 5
"""Count it up when the same plan gives other bytes than before."""

_MIN_BYTES_PER_PROCESS = 128 * 1024 * 1024
"""Bytes that are copied in the time that a process takes to start."""

_KEPT = ("records_in", "digest_in", "digest_out", "skipped", "corrupt", "metadata", DROPPED)
"""Keys that a report of a complete job takes from the report of the run that completed it."""

_STARTED_OVER = "the interrupted run had other options or records, so it was started over"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileTask(abc.ABC):
    """One file to write. It can be pickled, and has no effect but that file.

    Attributes:
        name: the file's name; `numbered` sets it.
        split: the split that it belongs to.
        records: number of records that it will have, if known.
        size: estimated number of bytes to read for it.
        new: whether its records are created rather than read from a source.
    """

    new: ClassVar[bool] = False
    name: str = ""
    split: str
    records: int = 0
    size: int = 0

    def __str__(self) -> str:
        return self.name

    def copy_source(self) -> tuple[AnyPath, FinishedFile] | None:
        """Return the file that a store may copy for this one, with its facts; None to write it."""
        return None

    @abc.abstractmethod
    def write(self, path: Path) -> Written:
        """Write the file. No file is at ``path``, and nobody else writes there.

        Raises:
            WriteError: the file can't be written.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPlan:
    """What a job is going to do.

    Attributes:
        tasks: the files to write, split by split, in order.
        inputs: what the files depend on besides the options, such as paths, sizes and times of
            change; each with the same ``repr`` in every run.
        options: options that decide what the files hold, for the report.
        read: all records of the sources; None adds up what the tasks read.
        faults: damage in the sources.
        skipped: number of records that no task sees, by the rule that skipped them.
        warnings: warnings, one sentence each.
    """

    tasks: Sequence[FileTask] = ()
    inputs: Sequence[object] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    read: Tally | None = None
    faults: Faults = field(default_factory=Faults)
    skipped: Mapping[str, int] = field(default_factory=dict)
    warnings: Sequence[str] = ()

    def digest(self, command: str) -> str:
        """Return a digest of all that the files of a command depend on."""
        hashed = blake2b(digest_size=16)
        names = [(task.name, task.records) for task in self.tasks]
        options = sorted(self.options.items())
        for fact in (FORMAT, command, options, names, *self.inputs):
            hashed.update(repr(fact).encode("utf-8", "surrogateescape") + b"\n")
        return hashed.hexdigest()


AnyTask = TypeVar("AnyTask", bound=FileTask)


def numbered(tasks: Iterable[AnyTask], dataset: str) -> list[AnyTask]:
    """Name tasks as the shards of their splits, in order."""
    splits: dict[str, list[AnyTask]] = {}
    for task in tasks:
        splits.setdefault(task.split, []).append(task)
    return [
        replace(task, name=str(ShardName(dataset=dataset, split=split, index=at, count=len(own))))
        for split, own in splits.items()
        for at, task in enumerate(own)
    ]


class Job:
    """A run of a command that writes files, in steps: `begin`, `write`, `publish`.

    Each file is written into a staging folder, flushed to disk and noted there, so that a killed
    job can be resumed. Nobody else writes to the target while the context is open. After an
    exception the target is as it was.

    Attributes:
        settings: where to write, and what to do with an existing dataset.
        scratch: a folder for what a job needs until it ends.
        plan: what to write, as `begin` got it.
        before: the report of the run that completed the job; None unless one did.
    """

    scratch: Path

    def __init__(
        self,
        settings: JobSettings,
        command: str = "write",
        *,
        unit: str = RECORDS,
        worth: int = _MIN_BYTES_PER_PROCESS,
    ) -> None:
        """Prepare a job.

        Args:
            settings: where to write, and what to do with an existing dataset.
            command: the command that resumes an interrupted run.
            unit: unit of progress, which tasks count with `count_work`.
            worth: number of bytes that are read in the time that a process takes to start.
        """
        self.settings = replace(settings, command=command)
        self._unit, self._worth, self._start = unit, worth, time.perf_counter()
        self._contexts = ExitStack()
        self._staged: Staging | None = None
        self.plan = JobPlan()
        self.before: Mapping[str, Any] | None = None
        self._finished: dict[str, FinishedFile] = {}
        self._digest, self._resumed = "", 0

    def __enter__(self) -> "Job":
        """Claim the target.

        Raises:
            UsageError: the target may not be written to, or another process writes to it.
        """
        settings, folder = self.settings, self.settings.folder
        with ExitStack() as contexts:
            contexts.enter_context(settings.running())
            if settings.dry_run:
                self.scratch = Path(contexts.enter_context(ScratchFolder()))
            else:
                if isinstance(folder, RemotePath):
                    self._staged = contexts.enter_context(stage_in_store(settings, folder))
                else:
                    self._staged = contexts.enter_context(stage_in_folder(settings, folder))
                self.scratch = self._staged.folder / "scratch"  # deleted with the rest
                with os_errors_as(WriteError, self.scratch, "can't be written to"):
                    self.scratch.mkdir(exist_ok=True)
            self._contexts = contexts.pop_all()
        return self

    def __exit__(self, *error: Any) -> None:
        self._contexts.__exit__(*error)

    @property
    def folder(self) -> AnyPath | None:
        """Where finished files are; None if this run writes none."""
        return None if self._staged is None else self._staged.target

    def begin(self, plan: JobPlan) -> None:
        """Find out which files of a plan are finished; what another plan has left is deleted.

        Raises:
            UsageError: there are too many files, or another dataset is complete.
        """
        settings, names = self.settings, [task.name for task in plan.tasks]
        check_shard_count(len(plan.tasks), len({task.split for task in plan.tasks}))
        if settings.index:
            plan = replace(plan, options={**plan.options, "index": True})
        self.plan, self._digest = plan, plan.digest(settings.command)
        if self._staged is None:
            self._finished = {task.name: _planned_file(task) for task in plan.tasks}
            return
        complete = None
        if settings.existing is Existing.RESUME:
            resumes = self._staged.resumed
            complete = complete_shards(self._digest, settings, names, interrupted=resumes)
        if complete is None:
            self._finished = self._staged.begin(self._digest, names)
            self._resumed = len(self._finished)
            return
        self.before, self._staged = read_object(settings.folder / REPORT), None
        shards = {shard.path: shard for shard in complete}
        for task in plan.tasks:
            self._finished[task.name] = FinishedFile(shard=shards[task.name], split=task.split)

    def write(self, tasks: Sequence[FileTask]) -> list[FinishedFile]:
        """Write the files that are not finished yet; return all, in the order of the tasks.

        Raises:
            WriteError: a file can't be written, or differs from what was to be written.
            ShardError: a source can't be read, or a worker process died.
            DatasetError: there are faults, and no intact record.
        """
        settings, finished = self.settings, self._finished
        if (staged := self._staged) is not None:
            rest = [task for task in tasks if task.name not in finished]
            done = sum(file.shard.records for file in finished.values())
            total = max(sum(task.records for task in tasks), done)
            meter = Meter(settings.on_progress, "writing", self._unit, total, done=done)
            for file in map_shards(
                partial(_write_file, staged=staged, index=settings.index),
                rest,
                settings.workers,
                self._worth if settings.workers is None else 1,
                size=sum(task.size for task in rest) + len(rest),
                in_order=False,
                on_counts=meter.add,
            ):
                staged.note(file)
                finished[file.shard.path] = file
            meter.finish()
        files = [finished[task.name] for task in tasks]
        faults = [*self.plan.faults.entries, *(fault for file in files for fault in file.faults)]
        if staged and faults and not any(file.shard.records for file in files):
            what = "used" if _records_read(self.plan, files).records else "read"
            found = faults[0].fault.message
            raise DatasetError(f"no record can be {what}", path=faults[0].path, found=found)
        return files

    def facts(self) -> dict[str, Any]:
        """Return the fields that the reports of all runs share."""
        warnings = [*self.plan.warnings]
        if self._staged is not None and self._staged.left and not self._resumed:
            warnings.append(_STARTED_OVER)
        return {
            "dataset": self.settings.folder,
            "name": self.settings.name,
            "dry_run": self.settings.dry_run,
            "resumed": self._resumed,
            "seconds": round(time.perf_counter() - self._start, 3),
            "plan": self._digest,
            "options": self.plan.options,
            "warnings": tuple(warnings),
            "complete": self.before is not None,
        }

    def publish(self, report: RunReport, texts: Mapping[str, str]) -> None:
        """Give all files their final names, together with metadata and a report.

        Nothing is done in a dry run, or if an earlier run has completed the job.

        Args:
            report: the report.
            texts: other metadata files, by name in the order of appearance.
        """
        if self._staged is not None:
            shards = [self._finished[task.name].shard for task in self.plan.tasks]
            self._staged.publish(shards, {**texts, REPORT: json_text(report.to_json())})


def _planned_file(task: FileTask) -> FinishedFile:
    tally = Tally(records=task.records)
    written = Written(tally=tally, read=Tally() if task.new else tally)
    return FinishedFile.of(task.name, task.split, written, bytes=task.size)


def _write_file(task: FileTask, staged: Staging, index: bool) -> FinishedFile:
    """Write a file, and flush it to disk or upload it."""
    source = task.copy_source()
    if source is not None and (etag := staged.copy(source[0], task.name)):
        count_work(task.records, RECORDS)
        return replace(source[1], shard=replace(source[1].shard, path=task.name, etag=etag))
    errors = os_errors_as(WriteError, staged.target / task.name, "can't be written")
    with errors, staged.scratch_dir() as folder:
        path = folder / task.name
        written = task.write(path)
        sha256 = None if written.crc32c else file_sha256(path, follow=False)
        facts: dict[str, Any] = {"bytes": path.stat().st_size, "sha256": sha256}
        index_path = path.with_name(f"{path.name}{INDEX}")
        if index:
            write_index(path, index_path)
            facts["index"] = index_path.stat().st_size
        facts["etag"] = staged.finish(path)
        if index:
            staged.finish(index_path)
    return FinishedFile.of(task.name, task.split, written, **facts)


def _records_read(plan: JobPlan, files: Sequence[FinishedFile]) -> Tally:
    """Return the intact records that a job read."""
    return plan.read or Tally(
        records=sum(file.read for file in files),
        digest=sum(file.read_digest or 0 for file in files) % 2**64,
    )


def _summed(files: Sequence[FinishedFile], key: str) -> dict[str, int]:
    """Return the sums of what all files have counted under a key of their facts."""
    total = Counter[str]()
    for file in files:
        total.update(file.facts.get(key, {}))
    return dict(total)


def _warnings(files: Sequence[FinishedFile]) -> list[str]:
    """Return the warnings about files, those that are counted with their number of rows."""
    noted = dict.fromkeys(text for file in files for text in file.facts.get("warnings", ()))
    counted = _summed(files, COUNTED).items()
    return [*noted, *(f"{text}: {human_count(rows, 'row')}" for text, rows in counted)]


def publish_records(job: Job, files: Sequence[FinishedFile], texts: Mapping[str, str]) -> JobReport:
    """Publish the files of a job that copies or changes records; return its report.

    Args:
        job: the job, which has written its files.
        files: the files.
        texts: the metadata to publish with them.
    """
    plan, read = job.plan, _records_read(job.plan, files)
    known, out = all(f.digest is not None for f in files), sum(f.shard.records for f in files)
    digest_out = sum(file.digest or 0 for file in files) % 2**64
    facts = job.facts()
    report = JobReport(
        command=job.settings.command,
        splits=split_reports(files),
        records_in=read.records,
        records_out=out,
        digest_in=known_digest(read.records, read.digest) if known else None,
        digest_out=known_digest(out, digest_out) if known else None,
        skipped=dict(plan.skipped),
        corrupt=plan.faults.count + sum(file.corrupt for file in files),
        faults=(*plan.faults.entries, *(fault for file in files for fault in file.faults)),
        metadata=(*texts, REPORT) if job.folder else (),
        dropped=_summed(files, DROPPED),
        **{**facts, "warnings": (*facts["warnings"], *_warnings(files))},
    )
    job.publish(report, texts)
    before = job.before or {}
    return replace(report, **{key: before[key] for key in _KEPT if key in before})
