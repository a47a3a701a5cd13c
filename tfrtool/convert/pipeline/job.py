"""Jobs: tasks that write a file each, whose files appear together; resumable after a kill."""

import abc
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any

from tfrtool.convert.pipeline.job_report import Faults, JobReport, Written
from tfrtool.convert.pipeline.tally import Tally, digest_text
from tfrtool.engines.processes import map_shards
from tfrtool.errors import WriteError, os_errors_as
from tfrtool.examples.tfds_metadata import REPORT, SplitInfo
from tfrtool.records.framing import Fault, FaultKind, LocatedFault
from tfrtool.sources.items import LeftOut
from tfrtool.storage.appearing import new_file_by_name
from tfrtool.storage.json_files import read_json
from tfrtool.storage.opening import file_sha256
from tfrtool.storage.plain import plain
from tfrtool.storage.progress import OnProgress, Progress, silent
from tfrtool.writing.dataset_folder import (
    Staging,
    Target,
    complete_shards,
    publish,
    staging_folder,
)
from tfrtool.writing.write_options import Existing
from tfrtool.writing.write_report import ShardReport, SplitReport, json_text

_WORTH_A_PROCESS = 128 * 1024 * 1024
"""Bytes that are copied in the time that a process takes to start."""

_TOLD = ("records_in", "digest_in", "digest_out", "left_out", "corrupt", "metadata")
"""What the report of a job tells of it when it is found complete."""

_SHARD = tuple(one.name for one in fields(ShardReport))

MetadataOf = Callable[[Sequence[SplitInfo]], Mapping[str, str]]
"""Makes the texts of the metadata, by names in the order of their appearance, of the splits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileTask(abc.ABC):
    """One file to write; it can be pickled, and has no effect but that file.

    Attributes:
        name: the file's name.
        split: the split that it belongs to.
        records: how many records it will have, where that is known.
        size: about how many bytes are to be read for it.
    """

    name: str
    split: str
    records: int = 0
    size: int = 0

    def __str__(self) -> str:
        return self.name

    @property
    @abc.abstractmethod
    def fingerprint(self) -> str:
        """A digest of all that the file's bytes depend on."""

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
        left_out: how many records no task will see, by the rule that left them out.
        rejected: images that no task will see.
        warnings: what the user should know, a sentence each.
    """

    tasks: Sequence[FileTask]
    read: Tally | None = None
    faults: Faults = field(default_factory=Faults)
    left_out: Mapping[str, int] = field(default_factory=dict)
    rejected: Sequence[LeftOut] = ()
    warnings: Sequence[str] = ()


def run_job(
    target: Target,
    tasks: Sequence[FileTask] | Callable[[Path], JobPlan],
    *,
    workers: int | None = None,
    on_progress: OnProgress = silent,
    metadata: MetadataOf = lambda _: {},
    dry_run: bool = False,
    worth: int = _WORTH_A_PROCESS,
) -> JobReport:
    """Write the files of a job and publish them together, with their metadata and a report.

    Files are written by processes into a staging folder, each brought to the disk and noted there
    when it is whole, so that a killed job can be resumed. Nobody else writes to the target
    meanwhile. An exception leaves it as it was.

    Args:
        target: where to, and what becomes of what is there.
        tasks: what to write; or what plans that, given a folder for what it keeps meanwhile.
        workers: processes; None takes the cores, and only those that pay.
        on_progress: called after each file.
        metadata: what describes the files, beside the report.
        dry_run: only plan.
        worth: how many bytes are read in the time that a process takes to start.

    Raises:
        UsageError: the target may not be written to, or another process does.
        WriteError: a file can't be written, or holds other records than were to be in it.
        ShardError: a source can't be read, or a worker process died.
    """
    start = time.perf_counter()
    planner = tasks if callable(tasks) else lambda _: JobPlan(tasks=tasks)
    if dry_run:
        with tempfile.TemporaryDirectory(prefix="tfrtool-") as scratch:
            planned = planner(Path(scratch))
            results = [
                _result(task, records=task.records, bytes=task.size, read=task.records)
                for task in planned.tasks
            ]
            return _report(target, planned, results, start, dry_run=True)
    with staging_folder(target) as staging:
        scratch_folder = staging.folder / "scratch"  # swept away with the rest
        with os_errors_as(WriteError, scratch_folder, "can't be written to"):
            scratch_folder.mkdir(exist_ok=True)
        planned = planner(scratch_folder)
        digest = _plan_digest(planned.tasks)
        if target.existing is Existing.RESUME:
            done = complete_shards(digest, target, interrupted=staging.resumed)
            if done is not None:
                return _complete(target, planned, done, start)
        results, resumed = _run(staging, planned.tasks, workers, on_progress, worth)
        report = _report(target, planned, results, start, resumed=resumed)
        if not resumed and staging.left:
            what = "nothing of an interrupted run could be used: it had other options or records"
            report = replace(report, warnings=(*report.warnings, what))
        infos = [
            SplitInfo(
                name=name,
                shard_lengths=tuple(shard.records for shard in split.shards),
                bytes=sum(shard.payload_bytes or 0 for shard in split.shards),
            )
            for name, split in report.splits.items()
        ]
        texts = dict(metadata(infos))
        report = replace(report, metadata=(*texts, REPORT))
        texts[REPORT] = json_text(report.to_json())
        publish(target, staging.folder, [task.name for task in planned.tasks], texts)
    return report


def _result(task: FileTask, **facts: Any) -> dict[str, Any]:
    """Return what is noted of a file that is whole, as JSON values; by default as if not read."""
    unread: dict[str, Any] = {"read": 0, "read_digest": 0, "left_out": {}, "corrupt": 0}
    shard: dict[str, Any] = {"payload_bytes": 0, "sha256": None, "crc32c": None, "digest": 0}
    names = {"path": task.name, "split": task.split}
    return dict(plain({**unread, **shard, "faults": [], **names, **facts}))


def _write_task(task: FileTask, staging: Staging) -> dict[str, Any]:
    """Write a file, bring it to the disk, and note it."""
    path = staging.folder / task.name
    with os_errors_as(WriteError, path, "can't be written"):
        with new_file_by_name(path) as temporary:
            written = task.write(temporary)
        result = _result(
            task,
            **asdict(written.tally),
            bytes=path.stat().st_size,
            sha256=None if written.crc32c else file_sha256(path, follow=False),
            crc32c=written.crc32c,
            read=written.read.records,
            read_digest=written.read.digest,
            left_out=written.left_out,
            corrupt=written.faults.count,
            faults=written.faults.kept,
        )
    staging.note(task, result)
    return result


def _run(
    staging: Staging,
    tasks: Sequence[FileTask],
    workers: int | None,
    on_progress: OnProgress,
    worth: int,
) -> tuple[list[dict[str, Any]], int]:
    """Write the files that are not there yet; return what became of all, and how many were."""
    noted = {task.name: staging.noted(task) for task in tasks}
    results = {name: dict(note) for name, note in noted.items() if note is not None}
    resumed = len(results)
    rest = [task for task in tasks if task.name not in results]
    done, total = sum(one["records"] for one in results.values()), sum(t.records for t in tasks)
    for result in map_shards(
        partial(_write_task, staging=staging),
        rest,
        workers,
        worth if workers is None else 1,
        size=sum(task.size for task in rest) + len(rest),
    ):
        results[result["path"]] = result
        done += result["records"]
        last = done if len(results) == len(tasks) else max(total, done)
        on_progress(Progress(what="writing", done=done, total=last, unit="records"))
    return [results[task.name] for task in tasks], resumed


def _complete(
    target: Target, planned: JobPlan, done: Sequence[ShardReport], start: float
) -> JobReport:
    """Return the report of a job that an earlier run has done."""
    with os_errors_as(WriteError, target.folder / REPORT, "can't be read"):
        before = read_json(target.folder / REPORT)
    by_name = {shard.path: asdict(shard) for shard in done}
    results = [_result(task, **by_name[task.name]) for task in planned.tasks]
    report = _report(target, planned, results, start, complete=True)
    return replace(report, **{key: before[key] for key in _TOLD if key in before})


def _report(
    target: Target,
    planned: JobPlan,
    results: Sequence[Mapping[str, Any]],
    start: float,
    **more: Any,
) -> JobReport:
    """Return the report of a job, of its files and of what was met and left out before them."""
    splits: dict[str, SplitReport] = {}
    for split in dict.fromkeys(one["split"] for one in results):
        own = [one for one in results if one["split"] == split]
        splits[split] = SplitReport(
            records=sum(one["records"] for one in own),
            bytes=sum(one["bytes"] for one in own),
            shards=tuple(ShardReport(**{key: one[key] for key in _SHARD}) for one in own),
            labels={},
        )
    left_out, read = Counter(planned.left_out), Tally()
    for one in results:
        left_out.update(one["left_out"])
        read.merge(Tally(records=one["read"], digest=one["read_digest"]))
    read = planned.read or read
    faults = [_fault(**fault) for one in results for fault in one["faults"]]
    return JobReport(
        command=target.command,
        dataset=target.folder,
        name=target.name,
        splits=splits,
        records_in=read.records,
        records_out=sum(one["records"] for one in results),
        digest_in=digest_text(read.digest),
        digest_out=digest_text(sum(one["digest"] for one in results) % 2**64),
        left_out=dict(left_out),
        corrupt=planned.faults.count + sum(one["corrupt"] for one in results),
        seconds=round(time.perf_counter() - start, 3),
        plan=_plan_digest(planned.tasks),
        options=target.options,
        faults=(*planned.faults.kept, *faults),
        rejected=tuple(planned.rejected),
        warnings=tuple(planned.warnings),
        **more,
    )


def _fault(path: str, kind: str, **facts: Any) -> LocatedFault:
    return LocatedFault(path=Path(path), fault=Fault(kind=FaultKind(kind), **facts))


def _plan_digest(tasks: Sequence[FileTask]) -> str:
    facts = sorted((task.name, task.fingerprint) for task in tasks)
    return blake2b(repr(facts).encode(), digest_size=16).hexdigest()
