"""The verb: a source of images becomes a dataset of shards. Scan, plan, write, publish."""

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import replace
from functools import partial
from hashlib import blake2b
from itertools import islice
from pathlib import Path

from tfrtool.engines.engine import Engine
from tfrtool.engines.pool import cores, workers_of
from tfrtool.errors import SourceError, UsageError, os_errors_as, printable
from tfrtool.images.recipe import Check, Encode, ImageRecipe, Resize
from tfrtool.records.compression import Compression
from tfrtool.records.framing import FRAME_SIZE
from tfrtool.records.shard_sets import ShardName
from tfrtool.sources.folders.class_layout import LabelFrom
from tfrtool.sources.items import Starting
from tfrtool.sources.open_source import open_source
from tfrtool.sources.source_options import SourceOptions
from tfrtool.storage.arguments import OnError, as_member, as_path, as_shard_size, as_text
from tfrtool.storage.progress import OnProgress, no_progress
from tfrtool.storage.scratch_folder import ScratchFolder
from tfrtool.writing.image_audit import Audit, BadImage
from tfrtool.writing.job_report import ShardReport
from tfrtool.writing.publish import (
    Staging,
    Target,
    complete_shards,
    staging_folder,
)
from tfrtool.writing.record_sizes import RecordSizes, measure, record_sizes
from tfrtool.writing.shard_writer import SHARDS_AT_ONCE, write_shards
from tfrtool.writing.spread_write import look_at_parts
from tfrtool.writing.write_options import Existing, WriteOptions, dataset_identity
from tfrtool.writing.write_plan import PlannedShard, fits, plan_digest, plan_shards
from tfrtool.writing.write_report import WriteReport, metadata_texts, report_on

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
            A shard exceeds it by at most a tenth or one record, and the shards of a split have
            about the same size. None is 128 MiB: TensorFlow's guide and TFX recommend 100 to 200
            MB.
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
    start, path = time.perf_counter(), as_path(dataset)
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
    with ExitStack() as stack:
        if cluster is not None:
            stack.enter_context(cluster)
        if dry_run:
            scratch = Path(stack.enter_context(ScratchFolder()))
        else:
            staging = stack.enter_context(staging_folder(target := Target.of_write(options)))
            scratch = staging.folder
        found = open_source(
            options.source,
            options.label_from,
            scratch,
            options.root,
            starting,
            options.meaning,
        )
        if found.splits and options.splits:
            raise UsageError(
                "--split cannot be used: the source has its own splits "
                f"({', '.join(found.splits[:_SPLITS_SHOWN])})",
                path=options.source,
                hint="remove --split to keep them, or pass a source without split folders",
            )
        if found.pixels and options.recipe.encode is Encode.KEEP:
            options = replace(options, recipe=replace(options.recipe, encode=Encode.PNG))
        kept = options.recipe.encode is Encode.KEEP and options.recipe.resize is None
        if kept and cluster is None and not dry_run:
            images = (item.bytes for item in found.items)
            staging.check_space(partial(_room_needed, images, options))
        audit = Audit(found, options.recipe, scratch)
        if dry_run:
            return _planned(audit, options, cluster, on_progress, start)
        return _write(
            options,
            replace(target, options=options.to_json()),
            staging,
            audit,
            cluster,
            on_progress=on_progress,
            starting=starting,
            start=start,
        )


def _room_needed(records: Iterable[int], options: WriteOptions) -> int:
    """Return how many bytes of shards there are at once before they are uploaded, about."""
    total = sum(records)
    shard = options.shard_bytes if options.shards is None else -(-total // options.shards)
    return min(total, SHARDS_AT_ONCE * shard)


def _planned(
    audit: Audit,
    options: WriteOptions,
    cluster: Engine | None,
    on_progress: OnProgress,
    start: float,
) -> WriteReport:
    """Look at all images, and report what would be written."""
    sizes = record_sizes(audit, options.workers)
    check_images(audit, options, on_progress, cluster)
    planned = plan_shards(audit, options, None if options.shards else sizes.records)
    shards = []
    for shard in planned:
        size = sum(map(sizes.records.__getitem__, shard.positions))
        shards.append(ShardReport(str(shard.name), len(shard.positions), size))
    known = _known(sizes, audit) and options.compression is Compression.NONE
    return report_on(
        audit,
        options,
        planned,
        shards,
        dry_run=True,
        bytes_estimated_from=None if known else sizes.tried,
        seconds=round(time.perf_counter() - start, 3),
    )


def check_images(
    audit: Audit, options: WriteOptions, on_progress: OnProgress, cluster: Engine | None = None
) -> None:
    """Look at all images that nobody has looked at yet; `SourceError` if they can't be used."""
    if cluster is None:
        audit.look_at_all(options.workers, on_progress)
    else:
        look_at_parts(audit, cluster, on_progress)
    for position, problem in islice(audit.problems(), 1):
        item = audit.source.items[position]
        if not options.skip_bad:
            raise SourceError(
                problem,
                path=audit.source.reader.describe(item),
                hint="use --on-error skip to skip such images",
            )
        if not any(True for _ in audit.good()):
            raise SourceError(
                f"no image can be used ({printable(item.key)}: {problem})", path=options.source
            )
    if options.dedupe:
        audit.leave_out_copies()


def _known(sizes: RecordSizes | None, audit: Audit) -> bool:
    """Return whether the sizes of all records are known, if they matter."""
    return sizes is None or (sizes.exact and not any(True for _ in audit.converted()))


def _write(
    options: WriteOptions,
    target: Target,
    staging: Staging,
    audit: Audit,
    cluster: Engine | None,
    *,
    on_progress: OnProgress,
    starting: Starting,
    start: float,
) -> WriteReport:
    """Plan, write and publish.

    Images are looked at while they are written, so that each is read once, unless the plan
    depends on what they hold: where copies of images are to be kept out of different splits,
    or left out, and where what an interrupted write has left is to be told from the rest.
    """
    sizes = None if options.shards else record_sizes(audit, options.workers)
    estimates = None if sizes is None else sizes.records
    if cluster is None and options.recipe.always:  # images as they are have been summed up

        def needed() -> int:
            known = record_sizes(audit, options.workers).records if estimates is None else estimates
            return _room_needed(known, options)

        staging.check_space(needed)
    resume, draws = options.existing is Existing.RESUME, not audit.source.splits
    bad = any(True for _ in audit.problems())
    if resume or options.dedupe or (draws and len(options.splits) > 1) or bad:
        check_images(audit, options, on_progress, cluster)
    planned = plan_shards(audit, options, estimates)
    done = None
    if resume:
        plan = plan_digest(planned, options.version)
        done = complete_shards(plan, target, interrupted=staging.resumed)
    identity = _identity(audit, options)
    calls = (cluster or options.workers, on_progress, starting)
    finished = _finished(staging, identity, planned) if done is None else {}
    resumed = len(finished)
    try:
        shards = write_shards(planned, staging, finished, *calls) if done is None else done
    except BadImage:  # it takes no place of others: all is planned anew without it
        check_images(audit, options, on_progress, cluster)
        planned = plan_shards(audit, options, estimates)
        finished = _finished(staging, identity, planned)
        shards = write_shards(planned, staging, finished, *calls)
    plan = plan_digest(planned, options.version)
    if done is None and not _known(sizes, audit):
        again = _cut_again(audit, options, planned, shards, staging)
        if again:
            finished = _finished(staging, identity, again)
            resumed += len(finished)
            shards = write_shards(again, staging, finished, *calls)
    resumed = resumed if done is None else len(done)
    report = report_on(
        audit,
        options,
        planned,
        shards,
        resumed=resumed if resume else 0,  # else they were written by this very run
        complete=done is not None,
        seconds=round(time.perf_counter() - start, 3),
        plan=plan,
        warnings=(_UNUSED,) if staging.left and not resumed else (),
    )
    if done is None:
        staging.publish(target, shards, metadata_texts(report, audit))
    return report


def _cut_again(
    audit: Audit,
    options: WriteOptions,
    planned: Sequence[PlannedShard],
    shards: Sequence[ShardReport],
    staging: Staging,
) -> list[PlannedShard]:
    """Return shards to write instead if those that were turned out too large or too small."""
    sizes = [
        (plan.name.split, (shard.payload_bytes or 0) + FRAME_SIZE * shard.records)
        for plan, shard in zip(planned, shards, strict=True)
    ]
    if fits(sizes, options.shard_bytes):
        return []
    again = plan_shards(audit, options, measure(planned, staging.place))
    if [one.positions for one in again] == [one.positions for one in planned]:
        return []  # the records are as large as shards
    return again


def _finished(
    staging: Staging, identity: str, planned: Sequence[PlannedShard]
) -> dict[ShardName, ShardReport]:
    """Return what became of the shards that are finished already."""
    files = staging.begin(identity, [str(shard.name) for shard in planned])
    if any(planned[0].audit.unknown):
        return {}
    return {
        shard.name: file.shard
        for shard in planned
        if (file := files.get(str(shard.name))) is not None
        and file.facts.get("task") == shard.fingerprint
    }


def _identity(audit: Audit, options: WriteOptions) -> str:
    """Return a digest of what is known of a write before any image is looked at."""
    digest = blake2b(repr(options.to_json()).encode(), digest_size=16)
    for item in audit.source.items:
        facts = (item.key, item.label, item.split, item.bytes)
        digest.update(repr(facts).encode("utf-8", "surrogateescape"))
    for packed in audit.source.beside:
        digest.update(packed)
    return digest.hexdigest()
