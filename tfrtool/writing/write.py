"""The verb: a source of images becomes a dataset of shards."""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tfrtool.errors import SourceError, UsageError
from tfrtool.examples.tfds_metadata import (
    DATASET_INFO,
    FEATURES,
    LABELS,
    DatasetInfo,
    SplitInfo,
    image_features_json,
)
from tfrtool.images.recipe import Encode, ImageRecipe
from tfrtool.sources.items import LeftOut, Source
from tfrtool.sources.open import open_source
from tfrtool.writing.audit import Audit, audit_source
from tfrtool.writing.directory import REPORT, publish
from tfrtool.writing.engine import Engine, LocalEngine
from tfrtool.writing.options import WriteOptions
from tfrtool.writing.plan import ShardResult, ShardTask, plan_shards
from tfrtool.writing.report import PlanReport, SplitReport, WriteReport, plan_report, split_reports
from tfrtool.writing.staging import Staging, staging_directory

__all__ = ["Progress", "plan_dataset", "write_dataset"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a write has come.

    Attributes:
        phase: "check" while images are looked at, "write" while records are written.
        done: images so far.
        total: images in all.
        bytes: their bytes so far.
    """

    phase: str
    done: int
    total: int
    bytes: int


OnProgress = Callable[[Progress], None]


def write_dataset(
    options: WriteOptions,
    on_progress: OnProgress = lambda _: None,
    before_writing: Callable[[], None] = lambda: None,
    engine: Engine | None = None,
) -> WriteReport:
    """Write the images of a source as TFRecord shards, with TFDS metadata and a report.

    Every image is looked at first. Shards are written beside their final place, read back, and
    only when all of them are whole are they given their names. An exception, Ctrl-C included,
    leaves the directory as it was; what a killed process leaves can be gone on with.

    Args:
        options: what to write, and how.
        on_progress: called now and then, from the threads that work, one at a time.
        before_writing: called once, when all images are checked and TensorFlow is about to load.
        engine: where shards are written; None uses threads of this process.

    Raises:
        UsageError: the dataset's directory may not be written to, or another process does.
        SourceError: the source holds nothing that can be used, or a bad image where those are not
            to be skipped.
        WriteError: something can't be written.
    """
    start = time.perf_counter()
    _check_apart(options)
    with staging_directory(options.dataset, options.existing) as staging:
        source, audit = _look(options, staging.folder, on_progress)
        tasks = plan_shards(source, audit, options, staging.folder)
        results, resumed = _write(
            tasks,
            staging,
            engine or LocalEngine(options.workers, audit.waits),
            on_progress,
            before_writing,
        )
        splits = split_reports(results, source.labels)
        report = WriteReport(
            dataset=options.dataset,
            name=options.name,
            version=options.version,
            splits=splits,
            rejected=_rejected(source, audit),
            converted=tuple(audit.converted.values()),
            ignored=source.ignored,
            duplicates=audit.copies,
            resumed=resumed,
            seconds=time.perf_counter() - start,
        )
        metadata = _metadata(report, splits, source.labels, options)
        publish(options.dataset, staging.folder, [task.name for task in tasks], metadata)
    return report


def plan_dataset(options: WriteOptions, on_progress: OnProgress = lambda _: None) -> PlanReport:
    """Look at the images of a source, and tell what would be written; nothing is.

    Args:
        options: what to write, and how.
        on_progress: called now and then.

    Raises:
        UsageError: the options don't fit the source.
        SourceError: the source holds nothing that can be used.
        WriteError: a split would get no image.
    """
    _check_apart(options)
    with tempfile.TemporaryDirectory(prefix="tfrtool-") as scratch:
        source, audit = _look(options, Path(scratch), on_progress)
        tasks = plan_shards(source, audit, options, options.dataset)
        return plan_report(options, tasks, _rejected(source, audit), audit, source)


def _look(options: WriteOptions, scratch: Path, on_progress: OnProgress) -> tuple[Source, Audit]:
    """List a source and look at all of it."""
    source = open_source(os.fspath(options.source), options.label_from, scratch)
    total = len(source.items)
    audit = audit_source(
        source,
        options.recipe,
        options.workers,
        lambda done, size: on_progress(Progress(phase="check", done=done, total=total, bytes=size)),
    )
    if audit.problems and not options.skip_bad:
        position, problem = next(iter(audit.problems.items()))
        raise SourceError(
            problem,
            path=source.reader.describe(source.items[position]),
            hint="--on-bad skip leaves such images out",
        )
    if not audit.good:
        position, problem = next(iter(audit.problems.items()))
        raise SourceError(
            f"none of the {total} images can be used",
            path=options.source,
            found=f"{source.items[position].key}: {problem}",
        )
    return source, audit


def _check_apart(options: WriteOptions) -> None:
    if not os.path.isdir(options.source):  # noqa: PTH112
        return
    source, dataset = Path(options.source).resolve(), options.dataset.resolve()
    if dataset.is_relative_to(source):
        raise UsageError(
            "the dataset would lie inside its source",
            path=options.dataset,
            hint="choose a directory outside",
        )


def _write(
    tasks: Sequence[ShardTask],
    staging: Staging,
    engine: Engine,
    on_progress: OnProgress,
    before_writing: Callable[[], None],
) -> tuple[list[ShardResult], int]:
    """Do the tasks that are not done; return all results, and how many were done before."""
    results = {}
    for task in tasks:
        result = staging.finished(task)
        if result is not None:
            results[task.name] = result
    resumed = len(results)
    rest = {task.name: task for task in tasks if task.name not in results}
    if rest:
        before_writing()
    before = sum(result.records for result in results.values())
    total = before + sum(len(task.items) for task in rest.values())
    for result in engine.run(
        list(rest.values()),
        lambda done, size: on_progress(
            Progress(phase="write", done=before + done, total=total, bytes=size)
        ),
    ):
        staging.note(rest[result.name], result)
        results[result.name] = result
    return [results[task.name] for task in tasks], resumed


def _rejected(source: Source, audit: Audit) -> tuple[LeftOut, ...]:
    bad = (
        LeftOut(key=source.items[position].key, reason=problem)
        for position, problem in audit.problems.items()
    )
    return tuple(sorted((*source.rejected, *bad), key=lambda entry: entry.key))


def _metadata(
    report: WriteReport,
    splits: Sequence[SplitReport],
    labels: Sequence[str],
    options: WriteOptions,
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
        FEATURES: _json_text(_features(len(labels), options.recipe)),
        DATASET_INFO: _json_text(info.to_json()),
        LABELS: "".join(f"{label}\n" for label in labels),
        REPORT: _json_text(report.to_json()),
    }


def _features(class_count: int, recipe: ImageRecipe) -> dict[str, Any]:
    encoding = "jpeg" if recipe.encode is Encode.KEEP else recipe.encode.value
    size = recipe.resize
    if size is None or size.height is None or size.width is None:
        return image_features_json(class_count, encoding)
    return image_features_json(class_count, encoding, (size.height, size.width))


def _json_text(data: object) -> str:
    return json.dumps(data, indent=2) + "\n"
