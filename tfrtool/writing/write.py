"""The verb: a source of images becomes a dataset of shards. Scan, plan, write, publish."""

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from tfrtool.declare import takes
from tfrtool.engines.engine import Engine
from tfrtool.engines.pool import cores
from tfrtool.errors import SourceError, UsageError, os_errors_as, printable
from tfrtool.images.recipe import Encode
from tfrtool.records.compression import Compression
from tfrtool.sources.folders.class_layout import LabelFrom
from tfrtool.sources.items import Source
from tfrtool.sources.open_source import TABLE_NAMES, open_source
from tfrtool.storage.arguments import as_path, as_text
from tfrtool.writing.image_findings import SourceFindings, check_all
from tfrtool.writing.image_task import (
    IMAGES,
    Finding,
    ImageAccount,
    ImageShard,
    ImageThreads,
    RecordMaker,
)
from tfrtool.writing.job import JobPlan, JobState, run_tasks
from tfrtool.writing.job_report import FinishedFile, ShardReport
from tfrtool.writing.publish import Target
from tfrtool.writing.run_options import Existing, JobSettings
from tfrtool.writing.write_options import WriteOptions
from tfrtool.writing.write_plan import RecordSizes, plan_shards
from tfrtool.writing.write_report import WriteReport, complete_report, metadata_texts, report_on

_SPLITS_SHOWN = 10

_UNUSED = (
    "nothing of the interrupted write could be reused: its options or its images were different"
)


@takes(WriteOptions)
def write(
    source: str | os.PathLike[str], dataset: str | os.PathLike[str], options: WriteOptions
) -> WriteReport:
    """Write images as TFRecord shards, with TFDS metadata and a report.

    Every image is checked. Shards are written to temporary files, read back and compared, and then
    moved into place together. After an error or Ctrl-C the directory is unchanged; a write whose
    process was killed can be resumed. The same images, options and seed give the same bytes, with
    any number of workers.

    Args:
        source: directory with one subdirectory per class, archive of one, table, glob pattern, or
            ``tfds:NAME``.
        dataset: directory to write to.

    Raises:
        UsageError: an option is invalid or does not apply to the source, or the directory can't be
            written to or is in use by another process.
        SourceError: the source has no usable images; or an image is bad and ``on_error`` is "stop".
        WriteError: a file can't be written.
    """
    path, place = as_path(dataset), as_path(source)  # a pattern, or tfds:NAME, is one, too
    with os_errors_as(SourceError, as_text(source)):
        inside = place.is_dir() and path.resolve().is_relative_to(place.resolve())
    if inside:
        hint = "choose a directory outside"
        raise UsageError("the dataset would be inside its source", path=path, hint=hint)
    return write_images(as_text(source), options.settings(path), options)


class _EmptyShardError(Exception):
    """All images of a shard are bad: it can't be written, and its number is in other names."""


def write_images(
    source: str,
    settings: JobSettings,
    options: WriteOptions,
    *,
    tensorflow: bool = True,
    may_lack_splits: bool = False,
) -> WriteReport:
    """Write images; `write` says what is raised.

    Args:
        source: where they are.
        settings: where to write.
        options: what to write, and how.
        tensorflow: whether TensorFlow frames the records; else the same frames are our own.
        may_lack_splits: whether a split may be empty.
    """
    arguments = source, settings, options, tensorflow, may_lack_splits
    try:
        return _Write(*arguments).run()
    except _EmptyShardError:
        return _Write(*arguments, looks_first=True).run()


class _Write:
    """A write: images are looked at while they are written, unless the plan needs their content.

    That is where copies of images are to be kept out of different splits, or left out. Each is then
    read once, and one that turns out bad leaves its shard one record shorter.
    """

    def __init__(
        self,
        source: str,
        settings: JobSettings,
        options: WriteOptions,
        tensorflow: bool,
        may_lack_splits: bool,
        *,
        looks_first: bool = False,
    ) -> None:
        self._place, self._settings, self._options = source, settings, options
        self._tensorflow, self._may_lack_splits = tensorflow, may_lack_splits
        pool = options.pool
        self._cluster = pool if isinstance(pool, Engine) else None
        self._workers = options.workers or cores()
        self._threads = ImageThreads(self._workers, options.starting, tensorflow=tensorflow)
        self._looks_first, self._dry_run = looks_first, options.dry_run
        self._findings: SourceFindings | None = None
        self._sizes: RecordSizes | None = None

    def run(self) -> WriteReport:
        """Plan, write and publish, or only plan."""
        settings = self._settings
        target = Target(
            folder=settings.folder,
            name=settings.name,
            existing=settings.existing,
            options=self._options.to_json(settings),
        )
        return run_tasks(
            target,
            self._plan,
            self._describe,
            workers=self._cluster or self._threads,
            on_progress=settings.on_progress,
            dry_run=self._dry_run,
            unit=IMAGES,
        )

    def _plan(self, scratch: Path) -> JobPlan:
        """List the images, look at them if need be, and distribute them over shards."""
        source = self._open(scratch)
        options = self._options
        self._maker = maker = RecordMaker(
            source, options.recipe, skip_bad=options.on_error == "skip"
        )
        if self._dry_run or not options.shards:
            self._sizes = RecordSizes(source, maker, self._workers)
        self._looks_first |= options.dedupe or (not source.splits and len(options.splits or ()) > 1)
        if self._looks_first or self._dry_run:
            self._findings = self._look(scratch)
        planned, digest = plan_shards(
            source,
            options,
            maker,
            self._findings,
            self._sizes,
            scratch,
            name=self._settings.name,
            skip_bad=self._looks_first,
            may_lack_splits=self._may_lack_splits,
        )
        self._tasks = [
            ImageShard(
                name=str(shard.name),
                split=shard.name.split,
                records=len(shard.images),
                size=shard.size,
                images=shard.images,
                maker=maker,
                compression=Compression(options.compression),
                tensorflow=self._tensorflow,
                threads=0 if self._cluster else self._threads.threads_of(len(planned)),
            )
            for shard in planned
        ]
        # Places in an archive are those of the file as it is now; a table only names images.
        place, stamp = as_path(self._place), 0
        if place.suffix.lower() not in TABLE_NAMES:
            with suppress(OSError, ValueError):
                stamp = place.stat().st_mtime_ns if place.is_file() else 0
        return JobPlan(
            tasks=self._tasks, inputs=[digest, stamp], options=options.to_json(self._settings)
        )

    def _open(self, scratch: Path) -> Source:
        options = self._options
        place = (
            LabelFrom(options.label_from),
            scratch,
            options.root_path,
            options.starting,
            options.meaning,
        )
        self._source = source = open_source(self._place, *place)
        if source.splits and options.splits:
            raise UsageError(
                "--split cannot be used: the source has its own splits "
                f"({', '.join(source.splits[:_SPLITS_SHOWN])})",
                path=self._place,
                hint="remove --split to keep them, or pass a source without split folders",
            )
        if source.pixels and options.recipe.encode is Encode.KEEP:
            self._options = replace(options, encode="png")
        return source

    def _look(self, scratch: Path) -> SourceFindings:
        """Look at all images; `SourceError` if none can be used."""
        source, options = self._source, self._options
        workers = self._cluster or self._workers
        findings = check_all(source, self._maker, workers, self._settings.on_progress, scratch)
        if not findings.digests.any():
            position, problem = next(findings.problems)
            what = f"{printable(source.items[position].key)}: {problem}"
            raise SourceError(f"no image can be used ({what})", path=self._place)
        if options.dedupe:
            findings.skip_copies(source)
        return findings

    def _describe(
        self, _: JobPlan, files: Sequence[FinishedFile], state: JobState
    ) -> tuple[WriteReport, dict[str, str]]:
        options, source = self._options, self._source
        if state.before is not None:
            facts = {"seconds": state.seconds, "resumed": len(files)}
            return complete_report(state.before, self._settings.folder, **facts), {}
        shards: dict[str, list[ShardReport]] = {task.split: [] for task in self._tasks}
        images = {split: ImageAccount() for split in shards}
        findings = self._findings or SourceFindings(len(source.items))
        for task, file in zip(self._tasks, files, strict=True):
            shard = file.shard
            if state.dry_run:
                shard, account = self._expected(task)
            else:
                account = ImageAccount.from_text(file.facts[IMAGES])
            if not shard.records:
                raise _EmptyShardError
            shards[task.split].append(shard)
            images[task.split].merge(account)
            if self._findings is None:
                for image, digest in zip(
                    task.images, memoryview(account.digests).cast("Q"), strict=True
                ):
                    findings.digests[image.position] = digest
        left_out = ImageAccount()
        if self._looks_first:
            bad = dict(findings.problems)
            for position, item in enumerate(source.items):
                if position in bad:
                    left_out.add(item, findings[position], self._maker)
        more: dict[str, Any] = {"dry_run": True}
        if not state.dry_run:
            resumes = self._settings.existing is Existing.RESUME
            more = {"resumed": state.resumed if resumes else 0, "plan": state.plan}
            more["warnings"] = (_UNUSED,) if state.started_over else ()
        elif self._sizes is not None and (self._sizes.tried or options.compression != "none"):
            more["bytes_estimated_from"] = self._sizes.tried
        report = report_on(
            source,
            state.target,
            self._settings.version,
            shards,
            images,
            left_out,
            findings.shared(source),
            duplicates=int((findings.first_copies != 0).sum()),
            seconds=state.seconds,
            **more,
        )
        return report, metadata_texts(report, source, options.recipe)

    def _expected(self, task: ImageShard) -> tuple[ShardReport, ImageAccount]:
        """Return what would become of a shard whose images were looked at."""
        account, size = ImageAccount(), 0
        for image in task.images:
            finding = image.finding or Finding(0)
            account.add(image.item, finding, self._maker)
            size += 0 if finding.problem else image.size
        records = task.records - len(account.rejected)
        return ShardReport(task.name, records, size), account
