"""The verb: a new version of a dataset with more shards; those that stay are not written again."""

import os
from contextlib import nullcontext
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from tfrtool.convert.edit.new_images import plan_new_images, unclear_split
from tfrtool.convert.edit.shard_task import one_to_one
from tfrtool.convert.pipeline.carried import CarriedMetadata
from tfrtool.convert.pipeline.record_copies import CopyTask, Selection, write_order
from tfrtool.convert.pipeline.record_pool import faults_of, find_sources, scan_shards
from tfrtool.errors import DatasetError, SchemaError, ShardError, UsageError
from tfrtool.examples.arrow.infer import ColumnsFold
from tfrtool.examples.dataset_files import DatasetFiles
from tfrtool.examples.example import PayloadKind, feature_name
from tfrtool.examples.roles import info_beside
from tfrtool.inspection.rows.batches import fold_columns
from tfrtool.records.compression import Compression, detect_compression, starts_record
from tfrtool.records.framing import Record
from tfrtool.records.reader import read_shard
from tfrtool.records.shard_sets import VERSION, check_split_name, check_version, is_shard_name
from tfrtool.records.shards import find_folders, locate_shards
from tfrtool.sources.items import Starting
from tfrtool.storage.arguments import as_path, make_options
from tfrtool.storage.atomic_files import linked
from tfrtool.storage.commit import VERSION_FOLDER
from tfrtool.storage.opening import open_regular
from tfrtool.storage.remote_path import RemotePath
from tfrtool.writing.job import JobPlan, numbered, run_job
from tfrtool.writing.job_report import JobReport
from tfrtool.writing.job_settings import JobSettings
from tfrtool.writing.write_options import dataset_identity

_FIRST = 64
"""Records of a split that are looked at, of a dataset in a store."""


def append(
    dataset: str | os.PathLike[str],
    source: str | os.PathLike[str],
    *,
    version: str | None = None,
    out: str | os.PathLike[str] | None = None,
    split: str | None = None,
    new_classes: bool = False,
    dedupe: bool = False,
    starting: Starting = nullcontext,
    **options: Any,
) -> JobReport:
    """Add images or records to a dataset as new shards, in a new version of it.

    The new version contains the existing shards as hard links, where the file system has them: they
    take no space and are read, not copied. The old version is unchanged, and no record moves to
    another split.

    Args:
        dataset: dataset directory.
        source: images, as for `write`, which are processed with the options recorded in
            ``write_report.json``; bad ones are skipped and listed. Or shards with the same features
            as the existing ones.
        version: new version, X.Y.Z. None increments the second number.
        out: directory of the new version. None uses a directory named after the version, next to
            the old one, if that is also named after its version.
        split: split for all new records. None uses the splits of the source or, if it has none, the
            seed and fractions that the dataset was split with.
        new_classes: whether to add classes that the dataset doesn't have, after the existing ones.
        dedupe: whether to skip images that the dataset already contains, and list them.
        starting: returns a context manager that is active while TensorFlow is loaded.
        **options: ``workers`` (threads, for images), ``existing``, ``dry_run`` and ``on_progress``,
            as for `tfrtool.reshard`.

    Raises:
        UsageError: the new version has no directory, or its split or classes are ambiguous.
        DatasetError: shards or class names are missing, or the class names of new shards differ.
        SchemaError: the features of the new records differ from those of the dataset.
        CorruptShardError: a shard of the dataset is damaged.
        WriteError: a file can't be written.
    """
    root = find_folders(dataset).root
    info = info_beside(root)
    name, old_version = (info.name, info.version) if info else dataset_identity(root)
    major, minor, _ = check_version(old_version).split(".")
    version = check_version(version or f"{major}.{int(minor) + 1}.0")  # as TFDS counts more data
    place = root.parent if VERSION_FOLDER.fullmatch(root.name) else root
    if out is None and not VERSION.fullmatch(place.absolute().name):
        raise UsageError(
            "its name is not a version such as 1.0.0, so the new version has no default directory",
            path=place,
            hint="use --out DIR to choose one",
        )
    folder = place.parent / version if out is None else as_path(out)
    settings = make_options(JobSettings, folder=folder, name=name, version=version, **options)
    if split is not None:
        check_split_name(split)
    before = find_sources(root, folder)
    for lack in faults_of(before, {}).kept:
        raise DatasetError(lack.fault.message, path=lack.path)
    carried = CarriedMetadata([root])
    records = _holds_records(source)
    if records and dedupe:
        raise UsageError("--dedupe applies to images, not to records", path=source)

    def plan(scratch: Path) -> JobPlan:
        shards, notes = before.paths, [*before.notes]
        if not settings.dry_run and not linked(shards[0], scratch / "linked"):
            notes.append(f"hard links can't be made in {folder}, so unchanged shards are copied")
        with open_regular(shards[0]) as first:
            compression = detect_compression(first)  # readers take one for all
        if records:
            added, come = _new_records(source, scratch, settings, before, split, compression)
        else:
            added, come = plan_new_images(
                source,
                scratch,
                settings,
                before,
                carried,
                compression,
                split=split,
                dedupe=dedupe,
                new_classes=new_classes,
                starting=starting,
            )
        try:  # of shards in a store some records tell enough, if they have the same features
            some = _fold_some(before) if isinstance(root, RemotePath) else None
            _check_columns(come, some or fold_columns(shards, workers=settings.workers), source)
        except SchemaError:
            if some is None:
                raise
            _check_columns(come, fold_columns(shards, workers=settings.workers), source)
        kept = one_to_one(before)
        return replace(
            added,
            tasks=numbered([*kept, *added.tasks], settings.name),
            inputs=[*(task.inputs for task in kept), *added.inputs],
            warnings=(*notes, *added.warnings),
        )

    return run_job(
        settings if records else replace(settings, workers=1),  # images are made by threads
        "append",
        {"split": split, "dedupe": dedupe, "written": carried.written},
        plan,
        lambda splits, _: carried.texts(settings.name, settings.version, splits),
    )


def _holds_records(source: str | os.PathLike[str]) -> bool:
    """Tell whether a source is of shards; what holds none is left to those who read images."""
    try:
        first = locate_shards(source).paths[0]
        with open_regular(first) as file:
            return bool(is_shard_name(first.name)) or starts_record(file.read(4096))
    except (ShardError, DatasetError, OSError):
        return False


def _new_records(
    source: str | os.PathLike[str],
    scratch: Path,
    settings: JobSettings,
    before: DatasetFiles,
    split: str | None,
    compression: Compression,
) -> tuple[JobPlan, ColumnsFold]:
    """Plan to copy the records of shards, one from one; return what they hold, too."""
    found = find_sources(source, settings.folder)
    if not split and not set(found.splits) <= set(before.splits):
        raise unclear_split(source, before.splits)
    CarriedMetadata([*before.folders, *found.folders])  # an error where class names are others
    split_of = {path: split or own for own, some in found.splits.items() for path in some.shards}
    pool, faults = scan_shards(found, scratch, settings)
    order, firsts = scratch / "order", pool.firsts.tolist()
    write_order(order, Selection([""], None, JobPlan()), {"": firsts[-1]}, None)
    tasks = [
        CopyTask(
            split=split_of[shard.path],
            records=shard.records,
            size=shard.size,
            room=shard.size if compression is Compression.NONE else 0,
            pool=pool,
            order=order,
            rows=range(first, first + shard.records),
            compression=compression,
            stop=settings.stop,
        )
        for shard, first in zip(pool.shards, firsts, strict=False)
    ]
    inputs = [compression.value, *(shard.identity for shard in pool.shards)]
    plan = JobPlan(tasks=tasks, inputs=inputs, faults=faults, warnings=found.notes)
    return plan, fold_columns(found.paths, workers=settings.workers)


def _fold_some(files: DatasetFiles) -> ColumnsFold:
    """Fold the first records of each split."""
    fold = ColumnsFold()
    for some in files.splits.values():
        items = islice(read_shard(next(iter(some.shards))), _FIRST)
        fold.add([item.payload for item in items if isinstance(item, Record)])
    return fold


def _check_columns(come: ColumnsFold, held: ColumnsFold, source: str | os.PathLike[str]) -> None:
    """Raise a `SchemaError` if the features of a dataset change by the records that come."""
    before, new = held.columns(), come.columns()
    held.merge(come)
    after = held.columns()
    if after != before or (not new.parsed and new.kind not in (before.kind, PayloadKind.EMPTY)):
        differ = {feature_name(one.key) for one in {*before.columns} ^ {*after.columns}}
        raise SchemaError(
            f"its features differ from those of the dataset: {', '.join(sorted(differ))}",
            path=source,
            expected=", ".join(before.names),
            found=", ".join(new.names),
        )
