"""The verb: a source of images becomes a dataset of shards."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from tfrtool.errors import SourceError, UsageError
from tfrtool.records.framing import FRAME_SIZE
from tfrtool.sources.items import LeftOut, Source
from tfrtool.sources.open_source import open_source
from tfrtool.writing.cuts import Cut, cut_as_before, cut_by_number, cut_by_size, fits
from tfrtool.writing.directory import publish
from tfrtool.writing.earlier import complete_results
from tfrtool.writing.engine import Engine, LocalEngine
from tfrtool.writing.scan.copies import shared_images, without_copies
from tfrtool.writing.scan.findings import Audit, BadImage, Findings
from tfrtool.writing.scan.image_scan import audit_source
from tfrtool.writing.scan.sizes import RecordSizes, measure, record_sizes
from tfrtool.writing.staging import Staging, staging_directory
from tfrtool.writing.write_options import Existing, WriteOptions
from tfrtool.writing.write_plan import (
    ShardResult,
    ShardTask,
    plan_digest,
    plan_shards,
    plan_unseen,
    with_fingerprint,
)
from tfrtool.writing.write_report import (
    PlanReport,
    WriteReport,
    metadata_texts,
    plan_report,
    split_reports,
)

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


_SPLITS_SHOWN = 10

OnProgress = Callable[[Progress], None]


def write_dataset(
    options: WriteOptions,
    on_progress: OnProgress = lambda _: None,
    before_writing: Callable[[], None] = lambda: None,
    engine: Engine | None = None,
    before_preparing: Callable[[], None] = lambda: None,
) -> WriteReport:
    """Write the images of a source as TFRecord shards, with TFDS metadata and a report.

    Every image is looked at, on the way where that is possible and before anything is written
    where it isn't; what is written is the same. Shards are written beside their final place, read
    back, and only when all of them are whole are they given their names, together. An exception,
    Ctrl-C included, leaves the directory as it was; what a killed process leaves can be gone on
    with, and if it was about to give the shards their names, the next write does that first.

    Args:
        options: what to write, and how.
        on_progress: called now and then, from the threads that work, one at a time.
        before_writing: called once, when TensorFlow is about to load.
        engine: where shards are written; None uses threads of this process.
        before_preparing: called when TFDS is about to prepare a dataset, which loads TensorFlow.

    Raises:
        UsageError: the dataset's directory may not be written to, or another process does.
        SourceError: the source holds nothing that can be used, or a bad image where those are not
            to be skipped.
        WriteError: something can't be written.
    """
    start = time.perf_counter()
    _check_apart(options)
    with staging_directory(options) as staging:
        source = _opened(options, staging.folder, before_preparing)
        work = _Work(
            source=source,
            options=options,
            staging=staging,
            engine=engine or LocalEngine(options.workers),
            on_progress=on_progress,
            before_writing=before_writing,
        )
        written = work.run()
        report = WriteReport(
            dataset=options.dataset,
            name=options.name,
            version=options.version,
            splits=split_reports(written.results, source.labels),
            rejected=_rejected(source, written.audit),
            converted=tuple(written.audit.converted.values()),
            ignored=source.ignored,
            duplicates=written.audit.copies,
            across_splits=shared_images(source, written.audit),
            resumed=written.resumed,
            complete=written.complete,
            notices=source.notices,
            seconds=time.perf_counter() - start,
            plan=written.plan,
            options=options.to_json(),
            warnings=() if written.resumed or not staging.left else (staging.unused(),),
        )
        if not report.complete:
            metadata = metadata_texts(report, source.labels, options.recipe)
            names = [result.name for result in written.results]
            publish(options.dataset, staging.folder, names, metadata)
    return report


def plan_dataset(
    options: WriteOptions,
    on_progress: OnProgress = lambda _: None,
    before_preparing: Callable[[], None] = lambda: None,
) -> PlanReport:
    """Look at the images of a source, and tell what would be written; nothing is.

    Args:
        options: what to write, and how.
        on_progress: called now and then.
        before_preparing: called when TFDS is about to prepare a dataset, which loads TensorFlow.

    Raises:
        UsageError: the options don't fit the source.
        SourceError: the source holds nothing that can be used.
        WriteError: a split would get no image.
    """
    _check_apart(options)
    with tempfile.TemporaryDirectory(prefix="tfrtool-") as scratch:
        source = _opened(options, Path(scratch), before_preparing)
        sizes = record_sizes(source, options)
        audit = _look(source, options, on_progress, Findings(source.items))
        tasks = plan_shards(source, audit, options, options.dataset, _cut(options, sizes))
        return plan_report(options, tasks, _rejected(source, audit), audit, source, sizes)


def _cut(options: WriteOptions, sizes: RecordSizes | None) -> Cut:
    """Return what cuts splits into shards, by number or by size."""
    if sizes is None or options.shards is not None:
        return cut_by_number(options.shards or 1)
    return cut_by_size(sizes.records, options.shard_bytes)


def _opened(options: WriteOptions, scratch: Path, before_preparing: Callable[[], None]) -> Source:
    """List a source, and check that no splits are asked for where it has its own."""
    source = open_source(
        os.fspath(options.source), options.label_from, scratch, options.root, before_preparing
    )
    if source.splits and options.splits:
        raise UsageError(
            "has splits of its own, and can't be split in another way",
            path=options.source,
            expected="no --split",
            found=f"the splits {', '.join(source.splits[:_SPLITS_SHOWN])}",
            hint="without --split they are kept; to split anew, write from a source without them",
        )
    return source


def _look(
    source: Source, options: WriteOptions, on_progress: OnProgress, findings: Findings
) -> Audit:
    """Look at all items of a source that nobody has looked at yet."""
    total = len(source.items)
    audit = audit_source(
        source,
        options.recipe,
        options.workers,
        lambda done, size: on_progress(Progress(phase="check", done=done, total=total, bytes=size)),
        findings,
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
    return without_copies(source, audit) if options.dedupe else audit


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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Written:
    """Shards that are whole.

    Attributes:
        audit: what was found of the items.
        results: of all shards, in the order of the plan.
        plan: a digest of that.
        resumed: how many of them an earlier run had written.
        complete: whether they are in their places.
    """

    audit: Audit
    results: list[ShardResult]
    plan: str
    resumed: int = 0
    complete: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _Work:
    """A write that is under way."""

    source: Source
    options: WriteOptions
    staging: Staging
    engine: Engine
    on_progress: OnProgress
    before_writing: Callable[[], None]

    def run(self) -> _Written:
        """Write all shards."""
        source, options, folder = self.source, self.options, self.staging.folder
        findings = Findings(source.items)
        sizes = record_sizes(source, options) if options.shards is None else None
        cut = _cut(options, sizes)
        # What an interrupted write has left can't be told to be right without looking first.
        if options.existing is not Existing.RESUME:
            unseen = plan_unseen(source, options, folder, cut)
            written = None if unseen is None else self._at_once(unseen, findings)
            if unseen is not None and written is not None:
                return self._evened(written, unseen, sizes)
        audit = _look(source, options, self.on_progress, findings)
        planned = partial(plan_shards, source, audit, options, folder)
        tasks = planned(cut)
        plan = plan_digest(tasks, options.version)
        if options.existing is not Existing.RESUME:
            # What is whole was written by this very run, before it met a bad image.
            written = replace(self._planned(tasks, audit, plan), resumed=0)
            return self._evened(written, tasks, sizes)
        results = complete_results(planned, plan, options, begun=self.staging.resumed)
        if results is not None:
            return _Written(
                audit=audit, results=results, plan=plan, resumed=len(results), complete=True
            )
        if records := self.staging.cut(plan):
            return self._planned(planned(cut_as_before(records)), audit, plan)
        return self._evened(self._planned(tasks, audit, plan), tasks, sizes)

    def _evened(
        self, written: _Written, tasks: Sequence[ShardTask], sizes: RecordSizes | None
    ) -> _Written:
        """Write all once more if shards turned out to be too large or too small."""
        source, options, audit = self.source, self.options, written.audit
        shards = [(s.name.split, s.payload_bytes + FRAME_SIZE * s.records) for s in written.results]
        known = sizes is None or (sizes.exact and not audit.converted)
        if known or fits(shards, options.shard_bytes):
            return written
        cut = cut_by_size(measure(tasks, len(source.items)), options.shard_bytes)
        again = plan_shards(source, audit, options, self.staging.folder, cut)
        if [task.positions for task in again] == [task.positions for task in tasks]:
            return written  # the records are as large as shards
        self.staging.note_cut(written.plan, again)
        for task in tasks:
            task.path.unlink(missing_ok=True)
        return replace(self._planned(again, audit, written.plan), resumed=written.resumed)

    def _at_once(self, tasks: Sequence[ShardTask], findings: Findings) -> _Written | None:
        """Look at each image and write it: all are read once, but those that tell the sizes.

        Bad images would take the places of others. At the first one this gives up, and all is
        planned anew without it; what was found up to then need not be looked for again.
        """
        self.before_writing()
        by_name = {task.name: task for task in tasks}
        results = {}
        done = []
        total = len(self.source.items)
        try:
            for result in self.engine.run(tasks, self._on_written(0, total)):
                task, found = by_name[result.name], result.findings
                if found is None:
                    raise TypeError("the engine gave back no findings")
                findings.add_shard(task.positions, found)
                known = with_fingerprint(
                    task, found.digests, found.converted, self.source, self.options
                )
                self.staging.note(known, result)
                done.append(known)
                results[result.name] = replace(result, findings=None)
        except BadImage as bad:
            findings.add_shard(by_name[bad.name].positions, bad.findings)
            return None
        return _Written(
            audit=findings.audit(),
            results=[results[task.name] for task in tasks],
            plan=plan_digest(done, self.options.version),
        )

    def _planned(self, tasks: Sequence[ShardTask], audit: Audit, plan: str) -> _Written:
        """Do the tasks that are not done."""
        results = {}
        for task in tasks:
            result = self.staging.finished(task)
            if result is not None:
                results[task.name] = result
        resumed = len(results)
        rest = {task.name: task for task in tasks if task.name not in results}
        if rest:
            self.before_writing()
        before = sum(result.records for result in results.values())
        total = before + sum(len(task.items) for task in rest.values())
        for result in self.engine.run(list(rest.values()), self._on_written(before, total)):
            self.staging.note(rest[result.name], result)
            results[result.name] = result
        ordered = [results[task.name] for task in tasks]
        return _Written(audit=audit, results=ordered, plan=plan, resumed=resumed)

    def _on_written(self, before: int, total: int) -> Callable[[int, int], None]:
        return lambda done, size: self.on_progress(
            Progress(phase="write", done=before + done, total=total, bytes=size)
        )


def _rejected(source: Source, audit: Audit) -> tuple[LeftOut, ...]:
    bad = (
        LeftOut(key=source.items[position].key, reason=problem)
        for position, problem in audit.problems.items()
    )
    return tuple(sorted((*source.rejected, *bad), key=lambda entry: entry.key))
