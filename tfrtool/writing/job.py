"""Jobs: tasks that write one file each, published together; resumable after a kill."""

import abc
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from tfrtool.engines.pool import map_shards
from tfrtool.errors import DatasetError, WriteError, os_errors_as
from tfrtool.examples.tfds_metadata import REPORT, SplitInfo
from tfrtool.records.count import INDEX
from tfrtool.records.random_access import write_index
from tfrtool.records.shard_sets import ShardName
from tfrtool.records.tally import Tally
from tfrtool.storage.atomic_files import new_file_by_name
from tfrtool.storage.opening import file_sha256
from tfrtool.storage.progress import RECORDS, Meter, count_work
from tfrtool.storage.remote_path import AnyPath
from tfrtool.storage.scratch_folder import ScratchFolder
from tfrtool.writing.job_report import (
    DROPPED,
    Faults,
    FinishedFile,
    JobReport,
    ShardReport,
    SplitReport,
    Written,
    json_text,
    known_digest,
    split_infos,
)
from tfrtool.writing.publish import Staging, complete_shards, read_object, staging
from tfrtool.writing.run_options import Existing, JobSettings, check_shard_count

FORMAT = 5
"""Count it up when the same plan gives other bytes than before."""

_MIN_BYTES_PER_PROCESS = 128 * 1024 * 1024
"""Bytes that are copied in the time that a process takes to start."""

_KEPT = ("records_in", "digest_in", "digest_out", "skipped", "corrupt", "metadata", DROPPED)
"""Keys that a report of a complete job takes from the report of the run that completed it."""

_STARTED_OVER = "the interrupted run had other options or records, so it was started over"

Report = TypeVar("Report")

MetadataOf = Callable[[Sequence[SplitInfo], Path], Mapping[str, str]]
"""Makes metadata files, by name in the order of appearance, from splits and the finished files'
folder."""


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
        options: options that the plan has changed, in place of those of the settings.
        read: all records of the sources; None adds up what the tasks read.
        faults: damage in the sources.
        skipped: number of records that no task sees, by the rule that skipped them.
        warnings: warnings, one sentence each.
    """

    tasks: Sequence[FileTask] = ()
    inputs: Sequence[object] = ()
    options: Mapping[str, Any] | None = None
    read: Tally | None = None
    faults: Faults = field(default_factory=Faults)
    skipped: Mapping[str, int] = field(default_factory=dict)
    warnings: Sequence[str] = ()

    def digest(self, settings: JobSettings) -> str:
        """Return a digest of all that the files depend on."""
        hashed = blake2b(digest_size=16)
        names = [(task.name, task.records) for task in self.tasks]
        options = sorted(settings.options.items())
        for fact in (FORMAT, settings.command, options, names, *self.inputs):
            hashed.update(repr(fact).encode("utf-8", "surrogateescape") + b"\n")
        return hashed.hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class JobState:
    """How a job ended, for its report.

    Attributes:
        settings: where it wrote, with the options that count.
        planned: what it was going to do.
        files: the files, in the order of the tasks.
        facts: the fields that all reports of runs share.
        folder: where the finished files are; None if no metadata is to be written.
        before: the report of the run that completed the job; None if this run did.
    """

    settings: JobSettings
    planned: JobPlan
    files: Sequence[FinishedFile]
    facts: Mapping[str, Any]
    folder: Path | None = None
    before: Mapping[str, Any] | None = None


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


def run_tasks(
    settings: JobSettings,
    plan: Callable[[Path], JobPlan],
    describe: Callable[[JobState], tuple[Report, Mapping[str, str]]],
    *,
    unit: str = RECORDS,
    worth: int = _MIN_BYTES_PER_PROCESS,
) -> Report:
    """Write files and publish them together, with their metadata and a report.

    Each file is written into a staging folder, flushed to disk and noted there, so that a killed
    job can be resumed. Nobody else writes to the target meanwhile. After an exception the target is
    as it was.

    Args:
        settings: where to write, and what to do with an existing dataset.
        plan: returns what to write, given a scratch folder.
        describe: returns the report and all metadata files, by name in the order of appearance.
        unit: unit of progress, which tasks count with `count_work`.
        worth: number of bytes that are read in the time that a process takes to start.

    Raises:
        UsageError: the target may not be written to, or another process writes to it.
        WriteError: a file can't be written, or differs from what was to be written.
        ShardError: a source can't be read, or a worker process died.
    """
    start = time.perf_counter()

    def checked(scratch: Path) -> tuple[JobPlan, JobSettings, str]:
        planned = plan(scratch)
        check_shard_count(len(planned.tasks), len({task.split for task in planned.tasks}))
        changed = planned.options
        options = settings.options if changed is None else changed
        effective = replace(
            settings, options={**options, **({"index": True} if settings.index else {})}
        )
        return planned, effective, planned.digest(effective)

    def state(files: Sequence[FinishedFile], warnings: Sequence[str] = (), **more: Any) -> JobState:
        facts = {
            "dataset": effective.folder,
            "name": effective.name,
            "dry_run": effective.dry_run,
            "resumed": more.pop("resumed", 0),
            "seconds": round(time.perf_counter() - start, 3),
            "plan": digest,
            "options": effective.options,
            "warnings": (*planned.warnings, *warnings),
            "complete": "before" in more,
        }
        return JobState(settings=effective, planned=planned, files=files, facts=facts, **more)

    with settings.running():
        if settings.dry_run:
            with ScratchFolder() as scratch:
                planned, effective, digest = checked(Path(scratch))
            return describe(state([*map(_planned_file, planned.tasks)]))[0]
        with staging(settings) as staged:
            scratch_folder = staged.folder / "scratch"  # deleted with the rest
            with os_errors_as(WriteError, scratch_folder, "can't be written to"):
                scratch_folder.mkdir(exist_ok=True)
            planned, effective, digest = checked(scratch_folder)
            names = [task.name for task in planned.tasks]
            if effective.existing is Existing.RESUME:
                complete = complete_shards(digest, effective, names, interrupted=staged.resumed)
                if complete is not None:
                    shards = {shard.path: shard for shard in complete}
                    files = [
                        FinishedFile(shard=shards[task.name], split=task.split)
                        for task in planned.tasks
                    ]
                    return describe(state(files, before=read_object(effective.folder / REPORT)))[0]
            finished = staged.begin(digest, names)
            resumed = len(finished)
            _write_files(planned.tasks, finished, staged, effective, unit, worth)
            files = [finished[name] for name in names]
            warnings = [_STARTED_OVER] if staged.left and not resumed else []
            done = state(files, warnings, resumed=resumed, folder=staged.target)
            report, texts = describe(done)
            staged.publish([file.shard for file in files], texts)
            return report


def _planned_file(task: FileTask) -> FinishedFile:
    tally = Tally(records=task.records)
    written = Written(tally=tally, read=Tally() if task.new else tally)
    return FinishedFile.of(task.name, task.split, written, bytes=task.size)


def _write_files(
    tasks: Sequence[FileTask],
    finished: dict[str, FinishedFile],
    staged: Staging,
    settings: JobSettings,
    unit: str,
    worth: int,
) -> None:
    """Write the files that are not finished yet."""
    rest = [task for task in tasks if task.name not in finished]
    done = sum(file.shard.records for file in finished.values())
    total = max(sum(task.records for task in tasks), done)
    meter = Meter(settings.on_progress, "writing", unit, total, done=done)
    for file in map_shards(
        partial(_write_file, staged=staged, index=settings.index),
        rest,
        settings.workers,
        worth if settings.workers is None else 1,
        size=sum(task.size for task in rest) + len(rest),
        in_order=False,
        on_counts=meter.add,
    ):
        staged.note(file)
        finished[file.shard.path] = file
    meter.finish()


def _write_file(task: FileTask, staged: Staging, index: bool) -> FinishedFile:
    """Write a file, and flush it to disk or upload it."""
    source = task.copy_source()
    if source is not None and (etag := staged.copy(source[0], task.name)):
        count_work(task.records, RECORDS)
        return replace(source[1], shard=replace(source[1].shard, path=task.name, etag=etag))
    with staged.scratch_dir() as folder:
        path = folder / task.name
        with os_errors_as(WriteError, path, "can't be written"):
            with new_file_by_name(path) as temporary:
                written = task.write(temporary)
            sha256 = None if written.crc32c else file_sha256(path, follow=False)
            size = path.stat().st_size
        facts = {"bytes": size, "sha256": sha256}
        if index:
            write_index(path, index_path := path.with_name(f"{path.name}{INDEX}"))
            facts["index"] = index_path.stat().st_size
        facts["etag"] = staged.upload(path)
        if index:
            staged.upload(index_path)
        return FinishedFile.of(task.name, task.split, written, **facts)


def run_job(
    settings: JobSettings,
    command: str,
    facts: Mapping[str, Any],
    plan: Callable[[Path], JobPlan],
    metadata: MetadataOf = lambda *_: {},
    worth: int = _MIN_BYTES_PER_PROCESS,
) -> JobReport:
    """Write files that hold the records of other files; see `run_tasks`.

    Args:
        settings: where to write, and what to do with an existing dataset.
        command: the command that resumes an interrupted run.
        facts: options that decide what the files hold, for the report.
        plan: returns what to write, given a scratch folder.
        metadata: returns what describes the files, besides the report.
        worth: number of bytes that are read in the time that a process takes to start.

    Raises:
        DatasetError: there are faults, and no intact record.
        UsageError, WriteError, ShardError: as for `run_tasks`.
    """

    def describe(state: JobState) -> tuple[JobReport, Mapping[str, str]]:
        report = _job_report(state)
        if state.folder is None:
            return report, {}
        if report.corrupt and not report.records_out:
            what, first = "read" if not report.records_in else "used", report.faults[0]
            found = first.fault.message
            raise DatasetError(f"no record can be {what}", path=first.path, found=found)
        texts = dict(metadata(split_infos(report.splits), state.folder))
        report = replace(report, metadata=(*texts, REPORT))
        return report, {**texts, REPORT: json_text(report.to_json())}

    options = {"name": settings.name, "version": settings.version, **facts}
    return run_tasks(
        replace(settings, command=command, options=options), plan, describe, worth=worth
    )


def _job_report(state: JobState) -> JobReport:
    """Return the report of a job: its files, and what the plan met and skipped."""
    planned, files, splits = state.planned, state.files, dict[str, list[ShardReport]]()
    for file in files:
        splits.setdefault(file.split, []).append(file.shard)
    read = planned.read or Tally(
        records=sum(file.read for file in files),
        digest=sum(file.read_digest or 0 for file in files) % 2**64,
    )
    known, out = all(f.digest is not None for f in files), sum(f.shard.records for f in files)
    dropped = Counter[str]()
    for file in files:
        dropped.update(file.facts.get(DROPPED, {}))
    digest_out = sum(file.digest or 0 for file in files) % 2**64
    noted = dict.fromkeys(text for file in files for text in file.facts.get("warnings", ()))
    facts = {**state.facts, "warnings": (*state.facts["warnings"], *noted)}
    report = JobReport(
        command=state.settings.command,
        splits={split: SplitReport.of_shards(own) for split, own in splits.items()},
        records_in=read.records,
        records_out=out,
        digest_in=known_digest(read.records, read.digest) if known else None,
        digest_out=known_digest(out, digest_out) if known else None,
        skipped=dict(planned.skipped),
        corrupt=planned.faults.count + sum(file.corrupt for file in files),
        faults=(*planned.faults.entries, *(fault for file in files for fault in file.faults)),
        metadata=(),
        dropped=dict(dropped),
        **facts,
    )
    before = state.before or {}
    return replace(report, **{key: before[key] for key in _KEPT if key in before})
