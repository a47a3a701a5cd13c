"""The verb: a source of images becomes a dataset of shards. Scan, plan, write, publish."""

import os
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
from tfrtool.sources.label_choice import with_splits_merged
from tfrtool.sources.open_source import TABLE_NAMES, open_source
from tfrtool.storage.arguments import as_path, as_text
from tfrtool.writing.image_findings import SourceFindings, check_all
from tfrtool.writing.image_task import (
    IMAGES,
    OWN_FRAMING,
    EmptyShardError,
    Finding,
    ImageAccount,
    ImageShard,
    ImageThreads,
    RecordMaker,
    account_of,
)
from tfrtool.writing.job import JobPlan, JobState, run_tasks
from tfrtool.writing.job_report import ShardReport
from tfrtool.writing.run_options import JobSettings
from tfrtool.writing.write_options import WriteOptions
from tfrtool.writing.write_plan import RecordSizes, plan_shards
from tfrtool.writing.write_report import WriteReport, complete_report, metadata_texts, report_on

_SPLITS_SHOWN = 10
_WITHOUT_TENSORFLOW = (
    "TensorFlow is not installed, so tfrtool's own writer wrote the shards, with the same bytes"
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
    path, source_path = as_path(dataset), as_path(source)  # a pattern, or tfds:NAME, is one, too
    with os_errors_as(SourceError, as_text(source)):
        is_nested = source_path.is_dir() and path.resolve().is_relative_to(source_path.resolve())
    if is_nested:
        hint = "choose a directory outside"
        raise UsageError("the dataset would be inside its source", path=path, hint=hint)
    return write_images(as_text(source), options.settings(path), options)


def write_images(source: str, settings: JobSettings, options: WriteOptions) -> WriteReport:
    """Write images; `write` says what is raised."""
    try:
        return ImageJob(source, settings, options).run()
    except EmptyShardError:
        return ImageJob(source, settings, options, looks_first=True).run()


class ImageJob:
    """A write: images are checked while they are written, unless the plan needs their content.

    That is where copies of images are to be kept out of different splits, or left out. Each is then
    read once, and one that turns out bad leaves its shard one record shorter.
    """

    def __init__(
        self,
        source: str,
        settings: JobSettings,
        options: WriteOptions,
        *,
        looks_first: bool = False,
    ) -> None:
        """Prepare to write the images of a source.

        Args:
            source: where they are.
            settings: where to write.
            options: what to write, and how.
            looks_first: whether to check all images before the plan.
        """
        self._source_text, self._settings, self._options = source, settings, options
        pool = options.pool
        self._cluster = pool if isinstance(pool, Engine) else None
        self._workers = options.workers or cores()
        self.threads = ImageThreads(self._workers, options.starting)
        self._looks_first = looks_first
        self._findings: SourceFindings | None = None
        self._sizes: RecordSizes | None = None

    def run(self) -> WriteReport:
        """Plan, write and publish, or only plan."""
        options = self._options.to_json(self._settings)
        workers = self._cluster or self.threads
        settings = replace(self._settings, options=options, workers=workers)
        return run_tasks(settings, self.plan, self._describe, unit=IMAGES)

    def plan(self, scratch: Path) -> JobPlan:
        """List the images, check them if need be, and distribute them over shards."""
        source, dry_run = self._open(scratch), self._settings.dry_run
        options = self._options
        draws = not source.splits and len(options.splits or ()) > 1
        self._looks_first |= options.dedupe or draws
        self._maker = maker = RecordMaker(
            source, options.recipe, skip_bad=options.on_error == "skip"
        )
        if dry_run or not options.shards:
            self._sizes = RecordSizes(source, maker, self._workers)
        if self._looks_first or dry_run:
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
                threads=0 if self._cluster else self.threads.threads_of(len(planned)),
            )
            for shard in planned
        ]
        # Places in an archive are those of the file as it is now; a table only names images.
        source_path, stamp = as_path(self._source_text), 0
        if source_path.suffix.lower() not in TABLE_NAMES:
            with suppress(OSError, ValueError):
                stamp = source_path.stat().st_mtime_ns if source_path.is_file() else 0
        return JobPlan(
            tasks=self._tasks, inputs=[digest, stamp], options=options.to_json(self._settings)
        )

    def left_out(self) -> ImageAccount:
        """Return the account of the images that are in no shard of the plan."""
        account, findings = ImageAccount(), self._findings
        if self._looks_first and findings is not None:
            bad = dict(findings.problems)
            for position, item in enumerate(self._source.items) if bad else ():
                if position in bad:
                    account.add(item, findings[position], self._maker)
        return account

    def _open(self, scratch: Path) -> Source:
        options = self._options
        arguments = (
            LabelFrom(options.label_from),
            scratch,
            options.root_path,
            options.starting,
            options.meaning,
        )
        source = open_source(self._source_text, *arguments)
        if options.ignore_splits:
            source = with_splits_merged(source, scratch)
        if source.splits and options.splits:
            raise UsageError(
                "--split cannot be used: the source has its own splits "
                f"({', '.join(source.splits[:_SPLITS_SHOWN])})",
                path=self._source_text,
                hint="remove --split to keep them, or use --ignore-splits",
            )
        if source.pixels and options.recipe.encode is Encode.KEEP:
            options = replace(options, encode="png")
        self._source, self._options = source, options
        return source

    def _look(self, scratch: Path) -> SourceFindings:
        """Check all images; `SourceError` if none can be used."""
        source, workers = self._source, self._cluster or self._workers
        findings = check_all(source, self._maker, workers, self._settings.on_progress, scratch)
        if not findings.digests.any():
            position, problem = next(findings.problems)
            what = f"{printable(source.items[position].key)}: {problem}"
            raise SourceError(f"no image can be used ({what})", path=self._source_text)
        if self._options.dedupe:
            findings.skip_copies(source)
        return findings

    def _describe(self, state: JobState) -> tuple[WriteReport, dict[str, str]]:
        options, source, dry_run = self._options, self._source, self._settings.dry_run
        if state.before is not None:
            facts = {"seconds": state.facts["seconds"], "resumed": len(state.files)}
            return complete_report(state.before, self._settings.folder, **facts), {}
        shards: dict[str, list[ShardReport]] = {task.split: [] for task in self._tasks}
        images = {split: ImageAccount() for split in shards}
        findings = self._findings or SourceFindings(len(source.items))
        for task, file in zip(self._tasks, state.files, strict=True):
            shard, account = self._expected(task) if dry_run else (file.shard, account_of(file))
            shards[task.split].append(shard)
            images[task.split].merge(account)
            if self._findings is None:
                digests = memoryview(account.digests).cast("Q")
                for image, digest in zip(task.images, digests, strict=True):
                    findings.digests[image.position] = digest
        if any(file.facts.get(OWN_FRAMING) for file in state.files):
            source = replace(source, notices=(*source.notices, _WITHOUT_TENSORFLOW))
        more: dict[str, Any] = {}
        if dry_run and self._sizes and (self._sizes.tried or options.compression != "none"):
            more["bytes_estimated_from"] = self._sizes.tried
        report = report_on(
            source,
            shards,
            images,
            self.left_out(),
            findings.shared(source),
            version=self._settings.version,
            duplicates=int((findings.first_copies != 0).sum()),
            **state.facts,
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
        if not records:
            raise EmptyShardError
        return ShardReport(task.name, records, size), account
