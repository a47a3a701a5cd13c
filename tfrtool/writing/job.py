"""Jobs: tasks that write a file each, whose files appear together; resumable after a kill."""

import abc
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any, ClassVar

from tfrtool.engines.engine import Engine
from tfrtool.engines.pool import cores, map_shards
from tfrtool.errors import DatasetError, WriteError, os_errors_as
from tfrtool.examples.tfds_metadata import REPORT, SplitInfo
from tfrtool.records.framing import Fault, FaultKind, LocatedFault
from tfrtool.records.shard_sets import ShardName
from tfrtool.records.tally import Tally, digest_text
from tfrtool.sources.items import LeftOut
from tfrtool.storage.appearing import new_file_by_name
from tfrtool.storage.claims import current_folder
from tfrtool.storage.json_files import read_json
from tfrtool.storage.opening import file_sha256
from tfrtool.storage.plain import plain
from tfrtool.storage.progress import RECORDS, Meter, count_work
from tfrtool.storage.scratch_folder import ScratchFolder
from tfrtool.writing.dataset_folder import (
    Staging,
    Target,
    complete_shards,
    staging_folder,
)
from tfrtool.writing.job_report import Faults, JobReport, Written
from tfrtool.writing.job_settings import JobSettings
from tfrtool.writing.write_options import Existing, check_shard_count
from tfrtool.writing.write_report import ShardReport, SplitReport, json_text, split_infos

_WORTH_A_PROCESS = 128 * 1024 * 1024
"""Bytes that are copied in the time that a process takes to start."""

_TOLD = ("records_in", "digest_in", "digest_out", "skipped", "corrupt", "metadata")
"""What the report of a job tells of it when it is found complete."""

MetadataOf = Callable[[Sequence[SplitInfo], Path], Mapping[str, str]]
"""Makes the texts of the metadata, by names in the order of their appearance, of the splits, and of
the folder where the whole files are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileTask(abc.ABC):
    """One file to write; it can be pickled, and has no effect but that file.

    Attributes:
        name: the file's name; `numbered` gives one.
        split: the split that it belongs to.
        records: how many records it will have, where that is known.
        size: about how many bytes are to be read for it.
        room: about how many bytes the file takes, or fewer; 0 where that isn't known.
        new: whether its records are made, and not read from a source.
    """

    new: ClassVar[bool] = False
    name: str = ""
    split: str
    records: int = 0
    size: int = 0
    room: int = 0

    def __str__(self) -> str:
        return self.name

    @property
    @abc.abstractmethod
    def fingerprint(self) -> str:
        """A digest of all that the file's bytes depend on."""

    def as_it_is(self) -> tuple[Path, dict[str, Any]] | None:
        """Return the file that this is a copy of, and what is noted of it if it is not read.

        None if it is none, or is to be read.
        """
        return None

    @abc.abstractmethod
    def write(self, path: Path) -> Written:
        """Write the file; ``path`` is not there yet, and its own. `WriteError` if that fails."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPlan:
    """What a job is going to do.

    Attributes:
        tasks: the files to write, split by split, in order.
        read: all records of the sources, where they have been read for the plan; else the tasks
            tell what they read.
        faults: damage that was met.
        skipped: how many records no task will see, by the rule that left them out.
        rejected: images that no task will see.
        warnings: what the user should know, a sentence each.
    """

    tasks: Sequence[FileTask] = ()
    read: Tally | None = None
    faults: Faults = field(default_factory=Faults)
    skipped: Mapping[str, int] = field(default_factory=dict)
    rejected: Sequence[LeftOut] = ()
    warnings: Sequence[str] = ()


def numbered(tasks: Sequence[FileTask], dataset: str) -> list[FileTask]:
    """Name tasks as the shards of their splits, in order."""
    splits: dict[str, list[FileTask]] = {}
    for task in tasks:
        splits.setdefault(task.split, []).append(task)
    return [
        replace(task, name=str(ShardName(dataset=dataset, split=split, index=at, count=len(own))))
        for split, own in splits.items()
        for at, task in enumerate(own)
    ]


def run_job(
    settings: JobSettings,
    command: str,
    facts: Mapping[str, Any],
    plan: Callable[[Path], JobPlan],
    metadata: MetadataOf = lambda *_: {},
    worth: int = _WORTH_A_PROCESS,
) -> JobReport:
    """Write the files of a job and publish them together, with their metadata and a report.

    Files are written by processes into a staging folder, each brought to the disk and noted there
    when it is whole, so that a killed job can be resumed. Nobody else writes to the target
    meanwhile. An exception leaves it as it was.

    Args:
        settings: where to, and what becomes of what is there.
        command: the one that resumes what was interrupted.
        facts: what decides what the files hold, for the report.
        plan: says what to write, given a folder for what it keeps meanwhile.
        metadata: what describes the files, beside the report.
        worth: how many bytes are read in the time that a process takes to start.

    Raises:
        UsageError: the target may not be written to, or another process does.
        WriteError: a file can't be written, or holds other records than were to be in it.
        ShardError: a source can't be read, or a worker process died.
    """
    start = time.perf_counter()
    target = Target(
        folder=settings.folder,
        name=settings.name,
        existing=settings.existing,
        command=command,
        options={"name": settings.name, "version": settings.version, **facts},
    )

    def checked(scratch: Path) -> JobPlan:
        planned = plan(scratch)
        check_shard_count(len(planned.tasks), len({task.split for task in planned.tasks}))
        return planned

    if settings.dry_run:
        with settings.running(), ScratchFolder() as scratch:
            planned = checked(Path(scratch))
        notes = [
            _note(task, Written(tally=tally, read=Tally() if task.new else tally), bytes=task.size)
            for task in planned.tasks
            for tally in [Tally(records=task.records)]
        ]
        return _report(target, planned, notes, start, dry_run=True)
    with settings.running(), staging_folder(target) as staging:
        scratch_folder = staging.folder / "scratch"  # swept away with the rest
        with os_errors_as(WriteError, scratch_folder, "can't be written to"):
            scratch_folder.mkdir(exist_ok=True)
        planned = checked(scratch_folder)
        if target.existing is Existing.RESUME:
            digest = _plan_digest(planned.tasks, settings.version)
            done = complete_shards(digest, target, interrupted=staging.resumed)
            if done is not None:
                return _complete(target, planned, done, start)
        staging.settle(partial(_plan_digest, planned.tasks, settings.version))
        notes, resumed = _written(staging, planned.tasks, settings, worth)
        report = _report(target, planned, notes, start, resumed=resumed)
        if report.corrupt and not report.records_out:
            what, first = "read" if not report.records_in else "used", report.faults[0]
            found = first.fault.message
            raise DatasetError(f"no record can be {what}", path=first.path, found=found)
        if not resumed and staging.left:
            what = "the interrupted run had other options or records, so it was started over"
            report = replace(report, warnings=(*report.warnings, what))
        texts = dict(metadata(split_infos(report.splits), staging.place))
        report = replace(report, metadata=(*texts, REPORT))
        texts[REPORT] = json_text(report.to_json())
        shards = [shard for split in report.splits.values() for shard in split.shards]
        staging.publish(target, shards, texts)
    return report


def _note(task: FileTask, written: Written, **file: Any) -> dict[str, Any]:
    """Return what is noted of a file, as JSON values: it, and what was read for it."""
    file = {"sha256": None, "etag": None, **file}
    facts = {"path": task.name, "split": task.split, "crc32c": written.crc32c}
    facts["payload_digest"] = _digest(written.tally.records, written.tally.digest)
    faults = {"corrupt": written.faults.count, "faults": written.faults.kept}
    read = {"read": written.read.records, "read_digest": written.read.digest}
    return dict(plain(facts | asdict(written.tally) | faults | read | file))


def _write_task(task: FileTask, staging: Staging) -> dict[str, Any]:
    """Write a file, bring it to the disk, and note it."""
    kept = task.as_it_is()
    if kept is not None and (etag := staging.copy(kept[0], task.name)):
        note = _note(task, Written(tally=Tally(), read=Tally()), **kept[1], etag=etag)
        staging.note(task, note)
        count_work(task.records, RECORDS)
        return note
    with staging.room() as folder:
        path = folder / task.name
        with os_errors_as(WriteError, path, "can't be written"):
            with new_file_by_name(path) as temporary:
                written = task.write(temporary)
            sha256 = None if written.crc32c else file_sha256(path, follow=False)
            size = path.stat().st_size
        note = _note(task, written, bytes=size, sha256=sha256, etag=staging.bring(path))
    staging.note(task, note)
    return note


def _written(
    staging: Staging,
    tasks: Sequence[FileTask],
    settings: JobSettings,
    worth: int,
) -> tuple[list[dict[str, Any]], int]:
    """Write the files that are not there yet; return the notes of all, and how many were."""
    notes = {str(name): dict(note) for name, note in staging.noted(tasks).items()}
    rest = [task for task in tasks if task.name not in notes]
    resumed = len(notes)
    done, total = sum(one["records"] for one in notes.values()), sum(t.records for t in tasks)
    if not isinstance(settings.workers, Engine):  # whose nodes have disks of their own
        staging.check_room(partial(_room_needed, rest, settings.workers, worth))
    meter = Meter(settings.on_progress, "writing", RECORDS, max(total, done), done=done)
    for note in map_shards(
        partial(_write_task, staging=staging),
        rest,
        settings.workers,
        worth if settings.workers is None else 1,
        size=sum(task.size for task in rest) + len(rest),
        in_order=False,
        on_counts=meter.add,
    ):
        notes[note["path"]] = note
    meter.finish()
    return [notes[task.name] for task in tasks], resumed


def _room_needed(tasks: Sequence[FileTask], workers: int | None, worth: int) -> int:
    """Return how many bytes the files take that are made at once, about."""
    few = 1 + sum(task.size for task in tasks) // worth
    at_once = min(cores(), few) if workers is None else workers
    return sum(sorted((task.room for task in tasks), reverse=True)[:at_once])


def _complete(
    target: Target, planned: JobPlan, done: Sequence[ShardReport], start: float
) -> JobReport:
    """Return the report of a job that an earlier run has done."""
    path = current_folder(target.folder) / REPORT
    with os_errors_as(WriteError, path, "can't be read"):
        before = read_json(path)
    shards = {shard.path: asdict(shard) for shard in done}
    nothing = Written(tally=Tally(), read=Tally())
    notes = [_note(task, nothing, **shards[task.name]) for task in planned.tasks]
    report = _report(target, planned, notes, start, complete=True)
    return replace(report, **{key: before[key] for key in _TOLD if key in before})


def _report(
    target: Target,
    planned: JobPlan,
    notes: Sequence[Mapping[str, Any]],
    start: float,
    **more: Any,
) -> JobReport:
    """Return the report of a job, of its files and of what was met and left out before them."""
    shards: dict[str, list[ShardReport]] = {}
    for one in notes:
        facts = {key.name: one[key.name] for key in fields(ShardReport)}
        shards.setdefault(one["split"], []).append(ShardReport(**facts))
    read = planned.read or Tally(
        records=sum(one["read"] for one in notes),
        digest=sum(one["read_digest"] or 0 for one in notes) % 2**64,
    )
    unread, out = any(one["digest"] is None for one in notes), sum(o["records"] for o in notes)
    faults = [_fault(**fault) for one in notes for fault in one["faults"]]
    return JobReport(
        command=target.command,
        dataset=target.folder,
        name=target.name,
        splits={split: SplitReport.of_shards(own) for split, own in shards.items()},
        records_in=read.records,
        records_out=out,
        digest_in=None if unread else _digest(read.records, read.digest),
        digest_out=None if unread else _digest(out, sum(o["digest"] for o in notes) % 2**64),
        skipped=dict(planned.skipped),
        corrupt=planned.faults.count + sum(one["corrupt"] for one in notes),
        seconds=round(time.perf_counter() - start, 3),
        plan=_plan_digest(planned.tasks, target.options["version"]),
        options=target.options,
        faults=(*planned.faults.kept, *faults),
        rejected=tuple(planned.rejected),
        warnings=tuple(planned.warnings),
        **more,
    )


def _digest(records: int, digest: int) -> str | None:
    """Return a digest as text; None where no payloads were counted: of a plan, or of tables."""
    return digest_text(digest) if digest or not records else None


def _fault(path: str, kind: str, **facts: Any) -> LocatedFault:
    return LocatedFault(path=Path(path), fault=Fault(kind=FaultKind(kind), **facts))


def _plan_digest(tasks: Sequence[FileTask], version: str) -> str:
    facts = (version, sorted((task.name, task.fingerprint) for task in tasks))
    return blake2b(repr(facts).encode(), digest_size=16).hexdigest()
