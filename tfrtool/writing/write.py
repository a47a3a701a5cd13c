"""The verb: a source of images becomes a dataset of shards."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from typing import TypeVar

from tfrtool.errors import SourceError, UsageError, os_reason
from tfrtool.examples.tfds_metadata import (
    DATASET_INFO,
    FEATURES,
    LABELS,
    DatasetInfo,
    SplitInfo,
    features_json,
)
from tfrtool.images.audit import MAX_JPEG_SIDE, ImageVerdict, audit_image, quiet_pillow
from tfrtool.sources.class_folders import read_class_folders
from tfrtool.sources.items import Item, LeftOut
from tfrtool.writing.directory import REPORT, publish, staging_directory
from tfrtool.writing.options import WriteOptions
from tfrtool.writing.plan import PlannedItem, ShardResult, ShardTask, plan_shards
from tfrtool.writing.report import Conversion, SplitReport, WriteReport, split_reports

__all__ = ["Progress", "write_dataset"]

Task = TypeVar("Task")
Result = TypeVar("Result")

_CHUNK = 32
"""Images that a worker audits at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a write has come.

    Attributes:
        phase: "check" while images are decoded, "write" while records are written.
        done: images so far.
        total: images in all.
    """

    phase: str
    done: int
    total: int


class _Cancelled(Exception):  # noqa: N818 - it never leaves this module
    """The work was called off."""


class _Counter:
    """Counts what several threads have done, and stops them when it is told to."""

    def __init__(self, phase: str, total: int, report: Callable[[Progress], None]) -> None:
        self._phase = phase
        self._total = total
        self._report = report
        self._lock = threading.Lock()
        self._done = 0
        self.cancelled = False

    def count(self) -> None:
        if self.cancelled:
            raise _Cancelled
        with self._lock:
            self._done += 1
            self._report(Progress(phase=self._phase, done=self._done, total=self._total))


def write_dataset(
    options: WriteOptions,
    on_progress: Callable[[Progress], None] = lambda _: None,
    before_writing: Callable[[], None] = lambda: None,
) -> WriteReport:
    """Write the images of a source as TFRecord shards, with TFDS metadata and a report.

    Every image is decoded first. Shards are written beside their final place, read back, and only
    when all of them are whole are they given their names. An exception, Ctrl-C included, leaves
    the directory as it was.

    Args:
        options: what to write, and how.
        on_progress: called after each image, from the threads that work, one at a time.
        before_writing: called once, when all images are checked and TensorFlow is about to load.

    Raises:
        UsageError: the dataset's directory may not be written to.
        SourceError: the source holds nothing that can be used, or a bad image where those are not
            to be skipped.
        WriteError: something can't be written.
    """
    start = time.perf_counter()
    _check_apart(options)
    with staging_directory(options.dataset, overwrite=options.overwrite) as staging:
        source = read_class_folders(options.source)
        verdicts = _audit(source.items, options, on_progress)
        good, rejected = _sort_out(source.items, verdicts, options)
        tasks = plan_shards(good, source.labels, options, staging)

        before_writing()
        splits = split_reports(_write(tasks, options, on_progress), source.labels)
        report = WriteReport(
            dataset=options.dataset,
            name=options.name,
            version=options.version,
            splits=splits,
            rejected=tuple(sorted((*source.rejected, *rejected), key=lambda entry: entry.key)),
            converted=tuple(
                Conversion(key=item.key, format=verdict.format or "", reason=verdict.conversion)
                for item, verdict in zip(source.items, verdicts, strict=True)
                if verdict.conversion is not None
            ),
            ignored=source.ignored,
            seconds=time.perf_counter() - start,
        )
        metadata = _metadata(report, splits, source.labels)
        publish(options.dataset, staging, [task.name for task in tasks], metadata)
    return report


def _check_apart(options: WriteOptions) -> None:
    source, dataset = options.source.resolve(), options.dataset.resolve()
    if dataset.is_relative_to(source):
        raise UsageError(
            "the dataset would lie inside its source",
            path=options.dataset,
            hint="choose a directory outside",
        )


def _audit(
    items: Sequence[Item], options: WriteOptions, on_progress: Callable[[Progress], None]
) -> list[ImageVerdict]:
    """Decode every image, on all cores: Pillow lets go of the interpreter while it decodes."""
    counter = _Counter("check", len(items), on_progress)

    def audit(chunk: Sequence[Item]) -> list[ImageVerdict]:
        verdicts = []
        for item in chunk:
            verdicts.append(_audit_item(item))
            counter.count()
        return verdicts

    chunks = [items[start : start + _CHUNK] for start in range(0, len(items), _CHUNK)]
    with quiet_pillow():
        results = _run(audit, chunks, counter, options.workers)
    return [verdict for verdicts in results for verdict in verdicts]


def _audit_item(item: Item) -> ImageVerdict:
    try:
        verdict = audit_image(item.path.read_bytes())
    except OSError as error:
        return ImageVerdict(problem=f"it can't be read: {os_reason(error)}")
    width, height = verdict.width, verdict.height
    if verdict.conversion is not None and max(width, height) > MAX_JPEG_SIDE:
        problem = f"it has {width} x {height} pixels; a JPEG has at most {MAX_JPEG_SIDE:,} a side"
        return replace(verdict, problem=problem, conversion=None)
    return verdict


def _sort_out(
    items: Sequence[Item], verdicts: Sequence[ImageVerdict], options: WriteOptions
) -> tuple[list[PlannedItem], list[LeftOut]]:
    good: list[PlannedItem] = []
    rejected: list[LeftOut] = []
    for item, verdict in zip(items, verdicts, strict=True):
        if verdict.problem is None:
            good.append(PlannedItem(item=item, conversion=verdict.conversion))
        elif options.skip_bad:
            rejected.append(LeftOut(key=item.key, reason=verdict.problem))
        else:
            raise SourceError(
                verdict.problem, path=item.path, hint="--on-bad skip leaves such images out"
            )
    if not good:
        raise SourceError(
            f"none of the {len(items)} images can be used",
            path=options.source,
            found=f"{rejected[0].key}: {rejected[0].reason}",
        )
    return good, rejected


def _write(
    tasks: Sequence[ShardTask], options: WriteOptions, on_progress: Callable[[Progress], None]
) -> list[ShardResult]:
    # TensorFlow is only needed, and only loaded, once there is something to write.
    from tfrtool.writing.shard import write_shard

    counter = _Counter("write", sum(len(task.items) for task in tasks), on_progress)

    def write(task: ShardTask) -> ShardResult:
        return write_shard(task, counter.count)

    with quiet_pillow():
        return _run(write, tasks, counter, options.workers)


def _run(
    function: Callable[[Task], Result], tasks: Sequence[Task], counter: _Counter, workers: int
) -> list[Result]:
    """Run a function over tasks in a pool of threads; the first error calls off the rest."""
    with ThreadPoolExecutor(max_workers=workers, thread_name_prefix="tfrtool") as pool:
        futures = [pool.submit(function, task) for task in tasks]
        try:
            done, _ = wait(futures, return_when=FIRST_EXCEPTION)
            for future in done:
                future.result()
        except BaseException:
            counter.cancelled = True
            pool.shutdown(wait=True, cancel_futures=True)
            raise
        return [future.result() for future in futures]


def _metadata(
    report: WriteReport, splits: Sequence[SplitReport], labels: Sequence[str]
) -> dict[str, str]:
    info = DatasetInfo(
        name=report.name,
        version=report.version,
        splits=tuple(
            SplitInfo(
                name=split.name,
                shard_lengths=tuple(shard.records for shard in split.shards),
                bytes=sum(shard.payload_bytes for shard in split.shards),
            )
            for split in splits
        ),
    )
    return {
        FEATURES: _json_text(features_json(len(labels))),
        DATASET_INFO: _json_text(info.to_json()),
        LABELS: "".join(f"{label}\n" for label in labels),
        REPORT: _json_text(report.to_json()),
    }


def _json_text(data: object) -> str:
    return json.dumps(data, indent=2) + "\n"
