"""The verb: a source of images becomes a dataset of shards. Scan, plan, write, publish."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

from tfrtool.errors import SourceError, UsageError
from tfrtool.records.compression import Compression
from tfrtool.records.framing import FRAME_SIZE
from tfrtool.sources.items import Source, Starting
from tfrtool.sources.open_source import open_source
from tfrtool.storage.progress import OnProgress, Progress, silent
from tfrtool.writing.cuts import Cut, cut_as_before, cut_by_number, cut_by_size, fits
from tfrtool.writing.directory import complete_results, publish
from tfrtool.writing.engine import Engine, LocalEngine
from tfrtool.writing.scan.copies import without_copies
from tfrtool.writing.scan.image_audit import Audit
from tfrtool.writing.scan.image_scan import audit_source
from tfrtool.writing.scan.sizes import RecordSizes, measure, record_sizes
from tfrtool.writing.staging import Staging, staging_directory
from tfrtool.writing.write_options import Existing, WriteOptions, options_of
from tfrtool.writing.write_plan import (
    BadImage,
    ShardResult,
    ShardTask,
    plan_digest,
    plan_shards,
    plan_unseen,
)
from tfrtool.writing.write_report import WriteReport, metadata_texts, report_on

_SPLITS_SHOWN = 10


def write(
    source: str | os.PathLike[str],
    dataset: str | os.PathLike[str],
    *,
    name: str | None = None,
    version: str | None = None,
    label_from: str = "folder",
    root: str | os.PathLike[str] | None = None,
    splits: Mapping[str, float] | None = None,
    shards: int | None = None,
    shard_size: int | str = "128MiB",
    seed: int = 0,
    shuffle: bool = True,
    compression: str = "none",
    check: str = "decode",
    on_bad: str = "skip",
    dedupe: bool = False,
    encode: str = "keep",
    resize: int | tuple[int, int] | None = None,
    quality: int = 95,
    orient: bool = True,
    workers: int | None = None,
    existing: str = "refuse",
    dry_run: bool = False,
    on_progress: OnProgress = silent,
) -> WriteReport:
    """Write the images of a source as TFRecord shards, with TFDS metadata and a report.

    Every image is looked at. Shards are written beside their final place, read back, and only when
    all of them are whole are they given their names, together. An exception, Ctrl-C included,
    leaves the directory as it was; what a killed process leaves can be resumed. The same images,
    options and seed give the same bytes, on any number of workers.

    Args:
        source: a directory of class folders, an archive of such, a table, a pattern, or
            ``tfds:NAME``.
        dataset: the directory to write to.
        name: the dataset's name, as TFDS takes it; None makes one from the directory's path.
        version: its version, X.Y.Z; None takes it from the path, or 1.0.0.
        label_from: "folder" or "name": where labels come from, in a source of files.
        root: a folder besides a table's own that the table's paths may lead to.
        splits: the splits, and about their share of each class: ``{"train": 0.8, "test": 0.2}``.
            None means the source's own splits, or all in ``train`` where it has none.
        shards: how many shards each split gets; None goes by ``shard_size``.
        shard_size: of a shard before compression, in bytes or as in "100MB"; it is kept to within
            a tenth, or one record.
        seed: decides the splits and the order of records.
        shuffle: whether records are shuffled; else they are in the order of their keys.
        compression: of the shards: "none", "gzip" or "zlib". TFDS reads none only.
        check: what makes an image bad: "decode", "header" or "tfds".
        on_bad: "skip" leaves bad images out and lists them, "fail" ends the work.
        dedupe: whether exact copies of an image are left out and listed, all but one.
        encode: "keep", "jpeg", "png" or "raw": what is kept of an image's bytes.
        resize: the shorter side in pixels, or width and height.
        quality: of the JPEGs that are made, 1 to 100.
        orient: whether images are turned upright as their EXIF orientation says.
        workers: how many threads work at a time; None takes the cores.
        existing: what becomes of a dataset that is there already: "refuse" leaves it, "overwrite"
            replaces it if tfrtool wrote it, "resume" goes on with an interrupted write.
        dry_run: whether images are only looked at, and the plan is reported; nothing is written.
        on_progress: called now and then, from the threads that work, one at a time.

    Raises:
        UsageError: an option makes no sense, or does not fit the source; the directory may not be
            written to, or another process does.
        SourceError: the source holds nothing that can be used, or a bad image where those are not
            to be skipped.
        WriteError: something can't be written.
    """
    options = options_of(
        source=source,
        dataset=dataset,
        name=name,
        version=version,
        label_from=label_from,
        root=root,
        splits=splits,
        shards=shards,
        shard_size=shard_size,
        seed=seed,
        shuffle=shuffle,
        compression=compression,
        check=check,
        on_bad=on_bad,
        dedupe=dedupe,
        encode=encode,
        resize=resize,
        quality=quality,
        orient=orient,
        workers=workers,
        existing=existing,
    )
    return (plan_dataset if dry_run else write_dataset)(options, on_progress)


def write_dataset(
    options: WriteOptions,
    on_progress: OnProgress = silent,
    *,
    starting: Starting = nullcontext,
    engine: Engine | None = None,
) -> WriteReport:
    """Do what `write` does, with options that are checked, and perhaps on another engine.

    TensorFlow is loaded in a context of ``starting``.
    """
    start = time.perf_counter()
    _check_apart(options)
    with staging_directory(options) as staging:
        source = _opened(options, staging.folder, starting)
        engine = engine or LocalEngine(options.workers, starting)
        written = _Shards(source, options, staging, engine, on_progress).write()
        report = report_on(
            source,
            written.audit,
            options,
            written.results,
            resumed=written.resumed,
            complete=written.complete,
            seconds=time.perf_counter() - start,
            plan=written.plan,
            warnings=() if written.resumed or not staging.left else (staging.unused(),),
        )
        if not report.complete:
            metadata = metadata_texts(report, source.labels, options.recipe)
            names = [result.name for result in written.results]
            publish(options.dataset, staging.folder, names, metadata)
    return report


def plan_dataset(
    options: WriteOptions, on_progress: OnProgress = silent, *, starting: Starting = nullcontext
) -> WriteReport:
    """Do what `write` does in a dry run."""
    _check_apart(options)
    with tempfile.TemporaryDirectory(prefix="tfrtool-") as scratch:
        source = _opened(options, Path(scratch), starting)
        sizes = record_sizes(source, options)
        audit = _look(source, options, on_progress, Audit(len(source.items)))
        tasks = plan_shards(source, audit, options, options.dataset, _cut(options, sizes))
        planned = []
        for task in tasks:
            size = round(sum(map(sizes.records.__getitem__, task.positions)) * sizes.compressed)
            planned.append(task.result(bytes=size, payload_bytes=0, sha256=""))
        known = sizes.exact and not audit.converted and options.compression is Compression.NONE
        tried = None if known else sizes.tried
        return report_on(source, audit, options, planned, dry_run=True, estimated_from=tried)


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


def _opened(options: WriteOptions, scratch: Path, starting: Starting) -> Source:
    """List a source, and check that no splits are asked for where it has its own."""
    source = open_source(
        os.fspath(options.source), options.label_from, scratch, options.root, starting
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


def _cut(options: WriteOptions, sizes: RecordSizes | None) -> Cut:
    """Return what cuts splits into shards, by number or by size."""
    if sizes is None or options.shards is not None:
        return cut_by_number(options.shards or 1)
    return cut_by_size(sizes.records, options.shard_bytes)


def _look(source: Source, options: WriteOptions, on_progress: OnProgress, audit: Audit) -> Audit:
    """Look at all items of a source that nobody has looked at yet."""
    audit_source(source, options.recipe, options.workers, on_progress, audit)
    if problems := audit.problems:
        position, problem = next(iter(problems.items()))
        item = source.items[position]
        if not options.skip_bad:
            raise SourceError(
                problem,
                path=source.reader.describe(item),
                hint="--on-bad skip leaves such images out",
            )
        if len(problems) == len(source.items):
            raise SourceError(
                f"none of the {len(source.items)} images can be used",
                path=options.source,
                found=f"{item.key}: {problem}",
            )
    return without_copies(source, audit) if options.dedupe else audit


class _Written(NamedTuple):
    """Shards that are whole.

    Attributes:
        audit: what was found of the items.
        results: of all shards, in the order of the plan.
        plan: a digest of what was planned first.
        resumed: how many of them an earlier run had written.
        complete: whether they are in their places.
    """

    audit: Audit
    results: list[ShardResult]
    plan: str
    resumed: int = 0
    complete: bool = False


@dataclass(frozen=True, slots=True)
class _Shards:
    """The shards of a write that is under way."""

    source: Source
    options: WriteOptions
    staging: Staging
    engine: Engine
    on_progress: OnProgress

    def write(self) -> _Written:
        """Write all shards."""
        source, options, folder = self.source, self.options, self.staging.folder
        audit = Audit(len(source.items))
        sizes = record_sizes(source, options) if options.shards is None else None
        cut = _cut(options, sizes)
        # What an interrupted write has left can't be told to be right without looking first.
        resume = options.existing is Existing.RESUME
        unseen = None if resume else plan_unseen(source, options, folder, cut)
        if unseen is not None and (at_once := self._at_once(unseen, audit)):
            return self._evened(at_once, unseen, sizes)
        audit = _look(source, options, self.on_progress, audit)
        planned = partial(plan_shards, source, audit, options, folder)
        tasks = planned(cut)
        plan = plan_digest(tasks, options.version)
        if resume:
            results = complete_results(planned, plan, options, begun=self.staging.resumed)
            if results is not None:
                return _Written(audit, results, plan, resumed=len(results), complete=True)
            if records := self.staging.cut(plan):
                return self._planned(planned(cut_as_before(records)), audit, plan)
        written = self._planned(tasks, audit, plan)
        if not resume:
            # What is whole was written by this very run, before it met a bad image.
            written = written._replace(resumed=0)
        return self._evened(written, tasks, sizes)

    def _at_once(self, tasks: Sequence[ShardTask], audit: Audit) -> _Written | None:
        """Look at each image and write it: all are read once, but those that tell the sizes.

        Bad images would take the places of others. At the first one this gives up, and all is
        planned anew without it; what was found up to then need not be looked for again.
        """
        by_name = {task.name: task for task in tasks}
        results = {}
        done = []
        try:
            for result in self.engine.run(tasks, partial(self._tell, 0, len(self.source.items))):
                task, found = by_name[result.name], result.audit
                if found is None:
                    raise TypeError("the engine gave back no audit")
                audit.add_shard(task.positions, found)
                done.append(task.seen(found))
                self.staging.note(done[-1], result)
                results[result.name] = replace(result, audit=None)
        except BadImage as bad:
            audit.add_shard(by_name[bad.name].positions, bad.audit)
            return None
        ordered = [results[task.name] for task in tasks]
        return _Written(audit, ordered, plan_digest(done, self.options.version))

    def _planned(self, tasks: Sequence[ShardTask], audit: Audit, plan: str) -> _Written:
        """Do the tasks that are not done."""
        found = {task.name: self.staging.finished(task) for task in tasks}
        results = {name: result for name, result in found.items() if result is not None}
        resumed = len(results)
        rest = {task.name: task for task in tasks if task.name not in results}
        before = sum(result.records for result in results.values())
        total = before + sum(len(task.items) for task in rest.values())
        for result in self.engine.run(list(rest.values()), partial(self._tell, before, total)):
            self.staging.note(rest[result.name], result)
            results[result.name] = result
        return _Written(audit, [results[task.name] for task in tasks], plan, resumed)

    def _tell(self, before: int, total: int, done: int) -> None:
        done += before
        self.on_progress(Progress(what="writing", done=done, total=total, unit="images"))

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
        return self._planned(again, audit, written.plan)._replace(resumed=written.resumed)
