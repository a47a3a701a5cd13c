"""The verb: a source of images becomes a dataset of shards. Scan, plan, write, publish."""

import os
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from tfrtool.declare import takes
from tfrtool.engines.engine import Engine, cores
from tfrtool.errors import SourceError, UsageError, os_errors_as
from tfrtool.images.recipe import Encode
from tfrtool.records.shard_sets import split_named
from tfrtool.sources.folders.name_pattern import parse_label_from
from tfrtool.sources.items import Source
from tfrtool.sources.label_choice import with_splits_merged
from tfrtool.sources.open_source import TABLE_NAMES, open_source
from tfrtool.storage.arguments import as_path, as_text
from tfrtool.writing.image_findings import check_all, findings_of
from tfrtool.writing.image_task import (
    IMAGES,
    OWN_FRAMING,
    EmptyShardError,
    ImageAccount,
    ImageShard,
    ImageThreads,
    RecordMaker,
    ShardResult,
)
from tfrtool.writing.job import Job, JobPlan
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
    argument, settings = as_text(source), options.settings(path)
    try:
        return _run(argument, settings, options, checks_first=options.dedupe)
    except EmptyShardError:
        return _run(argument, settings, options, checks_first=True)


def _run(
    argument: str, settings: JobSettings, options: WriteOptions, *, checks_first: bool
) -> WriteReport:
    """Open the source, check, plan, write, report.

    Images are checked while they are written, unless the plan needs their content: where copies of
    images are to be kept out of different splits, or left out. Each is then read once, and one that
    turns out bad leaves its shard one record shorter.
    """
    workers, pool = options.workers or cores(), options.pool
    engine = pool if isinstance(pool, Engine) else ImageThreads(workers, options.starting)
    with Job(replace(settings, workers=engine), unit=IMAGES) as job:
        source, options = _open(argument, options, job.scratch)
        maker = RecordMaker(source, options.recipe, skip_bad=options.on_error == "skip")
        checks_first |= not source.splits and len(options.splits or ()) > 1
        sizes, findings = None, None
        if settings.dry_run or not options.shards:
            sizes = RecordSizes(source, maker, workers)
        if settings.dry_run or checks_first:
            checkers = pool if isinstance(pool, Engine) else workers
            findings = check_all(source, maker, checkers, settings.on_progress, job.scratch)
            findings.require_usable(source, argument)
            if options.dedupe:
                findings.skip_copies(source)
        tasks, digest = plan_shards(
            source,
            options,
            maker,
            findings,
            sizes,
            job.scratch,
            name=settings.name,
            skip_bad=checks_first,
        )
        job.begin(
            JobPlan(
                tasks=tasks,
                inputs=[digest, _archive_stamp(argument)],
                options=options.to_json(settings),
            )
        )
        files = job.write(tasks)
        if job.before is not None:
            return complete_report(job.before, job.facts(), resumed=len(files))
        skipped = findings.skipped(source, maker) if findings and checks_first else ImageAccount()
        if settings.dry_run:
            results = [*map(ImageShard.expected, tasks)]
        else:
            results = [*map(ShardResult.of, files)]
        findings = findings or findings_of(tasks, results, len(source.items), job.scratch)
        if any(file.facts.get(OWN_FRAMING) for file in files):
            source = replace(source, notices=(*source.notices, _WITHOUT_TENSORFLOW))
        facts = job.facts() | {"version": settings.version}
        report = report_on(source, results, skipped, findings, facts)
        if settings.dry_run and sizes and (sizes.tried or options.compression != "none"):
            report = replace(report, bytes_estimated_from=sizes.tried)
        job.publish(report, metadata_texts(report, source, options.recipe))
    return report


def _open(argument: str, options: WriteOptions, scratch: Path) -> tuple[Source, WriteOptions]:
    """Open the source; return it with the options that apply to it."""
    source = open_source(
        argument,
        parse_label_from(options.label_from),
        scratch,
        options.root_path,
        options.starting,
        options.meaning,
    )
    if options.ignore_splits:
        source = with_splits_merged(source, scratch)
    if source.splits and options.splits:
        raise UsageError(
            "--split can't be used: the source has its own splits "
            f"({', '.join(source.splits[:_SPLITS_SHOWN])})",
            path=argument,
            hint="remove --split to keep them, or use --ignore-splits",
        )
    split = split_named(as_path(argument).absolute().stem)
    if split not in (None, "train") and not (
        source.splits or options.splits or options.ignore_splits
    ):
        notice = f"all images are in split train; use --split {split}=1 if they are of {split}"
        source = replace(source, notices=(*source.notices, notice))
    if source.pixels and options.recipe.encode is Encode.KEEP:
        options = replace(options, encode="png")
    return source, options


def _archive_stamp(argument: str) -> int:
    """Return when an archive was changed last: the positions of its images are those of then."""
    path = as_path(argument)
    if path.suffix.lower() not in TABLE_NAMES:  # a table only names images
        with suppress(OSError, ValueError):
            return path.stat().st_mtime_ns if path.is_file() else 0
    return 0
