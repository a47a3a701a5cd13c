"""The verb: a source of images becomes a dataset of shards. Scan, plan, write, publish."""

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from tfrtool.engines.engine import Engine
from tfrtool.engines.pool import cores, workers_of
from tfrtool.errors import SourceError, UsageError, os_errors_as, printable
from tfrtool.images.recipe import Check, Encode, ImageRecipe, Resize
from tfrtool.records.compression import Compression
from tfrtool.sources.folders.class_layout import LabelFrom
from tfrtool.sources.items import Source, Starting
from tfrtool.sources.open_source import TABLE_NAMES, open_source
from tfrtool.sources.source_options import SourceOptions
from tfrtool.storage.arguments import OnError, as_member, as_path, as_shard_size, as_text
from tfrtool.storage.progress import OnProgress, no_progress
from tfrtool.storage.remote_path import RemotePath
from tfrtool.writing.image_account import ImageAccount
from tfrtool.writing.image_findings import SourceFindings, look_at_all
from tfrtool.writing.image_records import Finding, RecordMaker
from tfrtool.writing.image_shard import ACCOUNT, IMAGES, ImageShard, ImageThreads
from tfrtool.writing.job import JobPlan, JobState, run_tasks
from tfrtool.writing.job_report import FinishedFile, ShardReport
from tfrtool.writing.publish import Target
from tfrtool.writing.record_sizes import RecordSizes
from tfrtool.writing.write_options import Existing, WriteOptions, dataset_identity
from tfrtool.writing.write_plan import plan_shards
from tfrtool.writing.write_report import WriteReport, complete_report, metadata_texts, report_on

_SHARD_BYTES = 128 * 2**20
_SPLITS_SHOWN = 10

_UNUSED = (
    "nothing of the interrupted write could be reused: its options or its images were different"
)


def write(
    source: str | os.PathLike[str],
    dataset: str | os.PathLike[str],
    *,
    name: str | None = None,
    version: str | None = None,
    label_from: str = "folder",
    root: str | os.PathLike[str] | None = None,
    annotations: str | Sequence[str] | None = None,
    masks: str = "polygons",
    columns: Sequence[str] = (),
    labels: str | os.PathLike[str] | None = None,
    multi_label: str | None = None,
    label_column: str | None = None,
    label_depth: int | None = None,
    layout: str | None = None,
    splits: Mapping[str, float] | None = None,
    stratify: bool = False,
    group_by: str | None = None,
    shards: int | None = None,
    shard_size: int | str | None = None,
    seed: int = 0,
    shuffle: bool = True,
    compression: str = "none",
    check: str = "decode",
    on_error: str | OnError = "skip",
    dedupe: bool = False,
    encode: str = "keep",
    resize: int | tuple[int, int] | None = None,
    quality: int = 95,
    orient: bool = True,
    workers: int | None = None,
    engine: str = "local",
    engine_address: str | None = None,
    existing: str = "refuse",
    dry_run: bool = False,
    on_progress: OnProgress = no_progress,
    starting: Starting = nullcontext,
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
        name: name of the dataset, valid for TFDS. None derives it from the directory.
        version: version of the dataset, X.Y.Z. None takes it from the path, or uses 1.0.0.
        label_from: "folder" or "filename": where the labels of image files come from.
        root: additional directory that the paths in a table may refer to, besides the table's own.
        annotations: objects in the images, added as features of each record: ``coco:PATH``,
            ``voc:DIR``, ``yolo:DIR`` or ``csv:PATH``, or several of these to merge.
        masks: how to store outlines of objects: "polygons" stores COCO polygons and run-length
            encodings as JSON, "png" as images, "none" not at all.
        columns: additional columns of a table to write, ``NAME`` or ``NAME:DTYPE`` (int64, float32
            or string). ``["all"]`` writes all of them.
        labels: file with the class names in order, or a ``label_map.pbtxt``. "keep" writes integer
            labels unchanged.
        multi_label: separator between the labels of an image that can have several.
        label_column: column of a table with the labels. None detects it by name.
        label_depth: depth of the class directories, where 1 is directly below ``source``. None uses
            the uppermost level at which directories differ.
        layout: feature names: "tfds", or "tfod" for those of the TF Object Detection API. None uses
            "tfod" if there are annotations.
        splits: fraction of each class for each split, such as ``{"train": 0.8, "test": 0.2}``, met
            approximately. None keeps the splits of the source, or writes everything to ``train``.
        stratify: whether to keep class proportions the same in every split.
        group_by: column of the table, or regular expression for the file names. Images with the
            same value go into the same split.
        shards: number of shards per split. None uses ``shard_size``.
        shard_size: maximum size of a shard before compression, in bytes or as text such as "100MB".
            Where bytes are kept, a shard exceeds it by at most a tenth or one record; where images
            are re-encoded, it is an estimate. The shards of a split have about the same size. None
            is 128 MiB: TensorFlow's guide and TFX recommend 100 to 200 MB.
        seed: random seed for the splits and the order of records.
        shuffle: whether to write records in random order. Otherwise they are sorted by key.
        compression: "none", "gzip" or "zlib". TFDS only reads uncompressed shards.
        check: which check an image must pass: "decode", "header" or "tfds".
        on_error: "skip" skips bad images and lists them; "stop" raises an error at the first one.
        dedupe: whether to skip exact duplicates of an image, and list them.
        encode: "keep", "jpeg", "png" or "raw": how to store images.
        resize: length of the shorter side, or (width, height), in pixels. None keeps the size.
        quality: JPEG quality for re-encoded images, 1 to 100.
        orient: whether to rotate images according to their EXIF orientation.
        workers: maximum number of threads. None uses one per core.
        engine: "local", or "ray" to run on a Ray cluster.
        engine_address: address of the cluster, HOST:PORT. None uses RAY_ADDRESS.
        existing: what to do with an existing dataset: "refuse" raises an error, "overwrite"
            replaces it if tfrtool wrote it, "resume" continues an interrupted write.
        dry_run: whether to check the images and return the plan without writing anything.
        on_progress: called regularly, from the calling thread.
        starting: returns a context manager that is active while TensorFlow is loaded.

    Raises:
        UsageError: an option is invalid or does not apply to the source, or the directory can't be
            written to or is in use by another process.
        SourceError: the source has no usable images; or an image is bad and ``on_error`` is "stop".
        WriteError: a file can't be written.
    """
    path = as_path(dataset)
    if None not in (shards, shard_size):
        raise UsageError("--shards and --shard-size cannot be used together")
    place = as_path(source)  # a pattern, or tfds:NAME, is one, too
    name, version = dataset_identity(path, name, version)
    pool = workers_of(engine, engine_address, workers)
    cluster = pool if isinstance(pool, Engine) else None
    options = WriteOptions(
        source=as_text(source),
        dataset=path,
        name=name,
        version=version,
        label_from=as_member(LabelFrom, label_from, "label_from"),
        root=None if root is None else as_path(root),
        splits=dict(splits or {}),
        shards=shards,
        shard_bytes=_SHARD_BYTES if shard_size is None else as_shard_size(shard_size),
        seed=seed,
        shuffle=shuffle,
        compression=as_member(Compression, compression, "compression"),
        skip_bad=as_member(OnError, on_error, "on_error") is OnError.SKIP,
        dedupe=dedupe,
        recipe=ImageRecipe(
            check=as_member(Check, check, "check"),
            encode=as_member(Encode, encode, "encode"),
            resize=Resize.of(resize),
            quality=quality,
            orient=orient,
        ),
        workers=cores() if workers is None else workers,
        existing=as_member(Existing, existing, "existing"),
        stratify=stratify,
        meaning=SourceOptions(
            annotations=annotations or (),
            masks=masks,
            columns=tuple(columns),
            labels=None if labels is None else os.fspath(labels),
            multi_label=multi_label,
            label_column=label_column,
            label_depth=label_depth,
            group_by=group_by,
            layout=layout,
        ),
    )
    with os_errors_as(SourceError, as_text(source)):
        inside = place.is_dir() and path.resolve().is_relative_to(place.resolve())
    if inside:
        raise UsageError(
            "the dataset would be inside its source", path=path, hint="choose a directory outside"
        )
    return write_images(
        options, cluster=cluster, dry_run=dry_run, on_progress=on_progress, starting=starting
    )


class _EmptyShardError(Exception):
    """All images of a shard are bad: it can't be written, and its number is in other names."""


def write_images(
    options: WriteOptions,
    *,
    cluster: Engine | None = None,
    tensorflow: bool = True,
    dry_run: bool = False,
    on_progress: OnProgress = no_progress,
    starting: Starting = nullcontext,
) -> WriteReport:
    """Write images as options say it; `write` says what these are, and what is raised.

    Args:
        options: what to write, and how.
        cluster: where to write the shards, if not here.
        tensorflow: whether TensorFlow frames the records; else the same frames are our own.
        dry_run: whether to plan only.
        on_progress: called regularly, from the calling thread.
        starting: returns a context manager that is active while TensorFlow is loaded.
    """
    arguments = cluster, tensorflow, dry_run, on_progress, starting
    try:
        return _Write(options, *arguments).run()
    except _EmptyShardError:
        return _Write(options, *arguments, looks_first=True).run()


class _Write:
    """A write: images are looked at while they are written, unless the plan needs their content.

    That is where copies of images are to be kept out of different splits, or left out. Each is then
    read once, and one that turns out bad leaves its shard one record shorter.
    """

    def __init__(
        self,
        options: WriteOptions,
        cluster: Engine | None,
        tensorflow: bool,
        dry_run: bool,
        on_progress: OnProgress,
        starting: Starting,
        *,
        looks_first: bool = False,
    ) -> None:
        self._options, self._on_progress, self._dry_run = options, on_progress, dry_run
        self._tensorflow, self._cluster = tensorflow, cluster
        self._threads = ImageThreads(options.workers, starting, tensorflow=tensorflow)
        self._looks_first, self._starting = looks_first, starting
        self._findings: SourceFindings | None = None
        self._sizes: RecordSizes | None = None

    def run(self) -> WriteReport:
        """Plan, write and publish, or only plan."""
        return run_tasks(
            Target.of_write(self._options),
            self._plan,
            self._describe,
            workers=self._cluster or self._threads,
            on_progress=self._on_progress,
            dry_run=self._dry_run,
            unit=IMAGES,
        )

    def _plan(self, scratch: Path) -> JobPlan:
        """List the images, look at them if need be, and distribute them over shards."""
        source = self._open(scratch)
        options = self._options
        self._maker = maker = RecordMaker(source, options.recipe, skip_bad=options.skip_bad)
        stored = isinstance(options.dataset, RemotePath)  # shards need room here before they go
        if self._dry_run or stored or not options.shards:
            self._sizes = RecordSizes(source.items, maker, options.workers)
        self._looks_first |= options.dedupe or (not source.splits and len(options.splits) > 1)
        if self._looks_first or self._dry_run:
            self._findings = self._look(scratch)
        plan = source, options, maker, self._findings, self._sizes, scratch
        planned, digest = plan_shards(*plan, leave_out=self._looks_first)
        self._tasks = [
            ImageShard(
                name=str(shard.name),
                split=shard.name.split,
                records=len(shard.images),
                size=shard.size,
                room=0 if self._sizes is None and options.recipe.always else shard.size,
                images=shard.images,
                maker=maker,
                compression=options.compression,
                tensorflow=self._tensorflow,
                threads=0 if self._cluster else self._threads.threads_of(len(planned)),
            )
            for shard in planned
        ]
        # Places in an archive are those of the file as it is now; a table only names images.
        place, stamp = as_path(options.source), 0
        if place.suffix.lower() not in TABLE_NAMES:
            with suppress(OSError, ValueError):
                stamp = place.stat().st_mtime_ns if place.is_file() else 0
        return JobPlan(tasks=self._tasks, inputs=[digest, stamp], options=options.to_json())

    def _open(self, scratch: Path) -> Source:
        options = self._options
        place = options.label_from, scratch, options.root, self._starting, options.meaning
        self._source = source = open_source(options.source, *place)
        if source.splits and options.splits:
            raise UsageError(
                "--split cannot be used: the source has its own splits "
                f"({', '.join(source.splits[:_SPLITS_SHOWN])})",
                path=options.source,
                hint="remove --split to keep them, or pass a source without split folders",
            )
        if source.pixels and options.recipe.encode is Encode.KEEP:
            recipe = replace(options.recipe, encode=Encode.PNG)
            self._options = replace(options, recipe=recipe)
        return source

    def _look(self, scratch: Path) -> SourceFindings:
        """Look at all images; `SourceError` if none can be used."""
        source, options = self._source, self._options
        workers = self._cluster or options.workers
        findings = look_at_all(source, self._maker, workers, self._on_progress, scratch)
        if not findings.any_good:
            position, problem = next(findings.problems)
            what = f"{printable(source.items[position].key)}: {problem}"
            raise SourceError(f"no image can be used ({what})", path=options.source)
        if options.dedupe:
            findings.leave_out_copies(source, self._maker)
        return findings

    def _describe(
        self, _: JobPlan, files: Sequence[FinishedFile], state: JobState
    ) -> tuple[WriteReport, dict[str, str]]:
        options, source = self._options, self._source
        if state.before is not None:
            facts = {"seconds": state.seconds, "resumed": len(files)}
            return complete_report(state.before, options.dataset, **facts), {}
        shards: dict[str, list[ShardReport]] = {task.split: [] for task in self._tasks}
        images = {split: ImageAccount() for split in shards}
        findings = self._findings or SourceFindings(len(source.items))
        for task, file in zip(self._tasks, files, strict=True):
            shard = file.shard
            if state.dry_run:
                shard, account = self._expected(task)
            else:
                account = ImageAccount.from_text(file.facts[ACCOUNT])
            if not shard.records:
                raise _EmptyShardError
            shards[task.split].append(shard)
            images[task.split].merge(account)
            if self._findings is None:
                for image, digest in zip(task.images, account.digests, strict=True):
                    findings.digests[image.position] = digest
        left_out = ImageAccount()
        if self._looks_first:
            for item, finding in zip(source.items, findings, strict=True):
                if finding.problem is not None:
                    left_out.add(item, finding, self._maker)
        more: dict[str, Any] = {"dry_run": True}
        if not state.dry_run:
            resumes = options.existing is Existing.RESUME
            more = {"resumed": state.resumed if resumes else 0, "plan": state.plan}
            more["warnings"] = (_UNUSED,) if state.started_over else ()
        elif not self._sizes_known(images.values()):
            more["bytes_estimated_from"] = self._sizes and self._sizes.tried
        report = report_on(
            source,
            options,
            shards,
            images,
            left_out,
            findings.shared(source, self._maker),
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
        records = len(task.images) - account.rejected.count
        return ShardReport(task.name, records, size), account

    def _sizes_known(self, images: Iterable[ImageAccount]) -> bool:
        """Return whether the sizes of all shards are known before they are written."""
        exact = self._sizes is not None and self._sizes.exact
        exact = exact and self._options.compression is Compression.NONE
        return exact and not any(account.converted.count for account in images)
