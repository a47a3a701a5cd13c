"""Append: a new version of a dataset with more shards; existing ones are linked, not rewritten."""

import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from tfrtool.convert.carried import CarriedMetadata
from tfrtool.convert.convert_options import AppendOptions
from tfrtool.convert.reshard import CopyTask, fold_first
from tfrtool.convert.source_records import (
    PickedRecords,
    check_unchanged,
    counted_pieces,
    faults_of,
    find_sources,
    scan_records,
    shard_stamp,
)
from tfrtool.declare import takes
from tfrtool.errors import (
    DatasetError,
    SchemaError,
    ShardError,
    UsageError,
    WriteError,
    os_errors_as,
    printable,
)
from tfrtool.examples.arrow.infer import ColumnsFold
from tfrtool.examples.dataset_files import DatasetFiles
from tfrtool.examples.example import PayloadKind, feature_name
from tfrtool.examples.tfds_metadata import LABEL_MAP, LABELS, REPORT, info_beside
from tfrtool.inspection.rows.batches import fold_columns
from tfrtool.records.compression import Compression, detect_compression, starts_record
from tfrtool.records.count import count_shard
from tfrtool.records.shard_sets import VERSION, check_version, is_shard_name
from tfrtool.records.shards import find_folders, locate_shards
from tfrtool.records.tally import Tally
from tfrtool.storage.arguments import as_path
from tfrtool.storage.atomic_files import linked
from tfrtool.storage.opening import open_regular
from tfrtool.storage.progress import RECORDS, count_work
from tfrtool.storage.remote_path import AnyPath, RemotePath
from tfrtool.writing.job import FileTask, Job, JobPlan, numbered, publish_records
from tfrtool.writing.job_report import (
    Faults,
    FinishedFile,
    JobReport,
    ShardReport,
    Written,
)
from tfrtool.writing.publish import listed_shards, read_object
from tfrtool.writing.run_options import JobSettings, dataset_identity


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkTask(FileTask):
    """A further name for a shard, or a copy of it where the file system has no links.

    Attributes:
        source: the shard.
        stamp: its size and time of change (ns).
        known: what is known of a shard in a store, which is copied there without being read.
    """

    source: AnyPath
    stamp: tuple[int, int]
    known: FinishedFile | None = None

    def copy_source(self) -> tuple[AnyPath, FinishedFile] | None:
        """Return the shard, if it need not be read."""
        if self.known is None:
            return None
        check_unchanged(self.source, self.stamp)
        return self.source, self.known

    def write(self, path: Path) -> Written:
        """Link the shard, and read it: damage is an error."""
        with os_errors_as(WriteError, path, "can't be written"):
            if not linked(self.source, path):
                with open_regular(self.source) as old, path.open("xb") as new:
                    shutil.copyfileobj(old, new, 1024 * 1024)
        tally = Tally()
        for _ in counted_pieces(self.source, tally, Faults(stop=True)):
            pass
        count_work(tally.records, RECORDS)
        check_unchanged(self.source, self.stamp)
        return Written(tally=tally, read=tally)


def _link_tasks(files: DatasetFiles) -> list[LinkTask]:
    """Return a task for each shard of a dataset."""
    listed = listed_shards(read_object(files.folders[0] / REPORT))
    tasks = []
    for split, shards in files.splits.items():
        for path, records in shards.shards.items():
            entry, stamp, known = listed.get(path.name), shard_stamp(path), None
            if isinstance(path, RemotePath) and entry and records is not None:
                known = _known_shard(path.name, split, records, stamp[0], entry)
            if known is None or records is None:
                records = count_shard(path).records
            tasks.append(
                LinkTask(
                    split=split,
                    source=path,
                    stamp=stamp,
                    size=stamp[0],
                    records=records,
                    known=known,
                )
            )
    return tasks


def _known_shard(
    name: str, split: str, records: int, size: int, entry: Mapping[str, Any]
) -> FinishedFile | None:
    """Return what a report says of a shard, if it has this size."""
    if entry.get("bytes") != size:
        return None
    text = str(entry.get("payload_digest"))
    digest = int(text, 16) if re.fullmatch("[0-9a-f]{16}", text) else None
    facts = {key: entry.get(key) for key in ("payload_bytes", "sha256", "crc32c")}
    facts["payload_digest"] = None if digest is None else text
    shard = ShardReport(path=name, records=records, bytes=size, **facts)
    return FinishedFile(shard=shard, split=split, digest=digest, read=records, read_digest=digest)


@takes(AppendOptions)
def append(
    dataset: str | os.PathLike[str], source: str | os.PathLike[str], options: AppendOptions
) -> JobReport:
    """Add records to a dataset as new shards, in a new version of it.

    The new version contains the existing shards as hard links, where the file system has them: they
    take no space and are read, not copied. The old version is unchanged, and no record moves to
    another split.

    Args:
        dataset: dataset directory.
        source: shards with the same features as those of the dataset.

    Raises:
        UsageError: the source is not shards, the new version has no directory, or its split is
            ambiguous.
        DatasetError: shards are missing, or the class names of the new shards differ.
        SchemaError: the features of the new records differ from those of the dataset.
        CorruptShardError: a shard of the dataset is damaged.
        WriteError: a file can't be written.
    """
    root = find_folders(dataset).root
    settings = _new_version(root, options)
    before = find_sources(root, settings.folder)
    for lack in faults_of(before, {}).entries:
        raise DatasetError(lack.fault.message, path=lack.path)
    _check_holds_records(source, root)
    carried = CarriedMetadata([root], before.paths)
    with Job(settings, "append") as job:
        plan = _plan_version(source, settings, before, options, job.scratch)
        job.begin(plan)
        files = job.write(plan.tasks)
        return publish_records(job, files, carried.texts(settings, files))


def _new_version(root: AnyPath, options: AppendOptions) -> JobSettings:
    """Return where the new version of a dataset is written, and its number."""
    info = info_beside(root)
    name, old_version = (info.name, info.version) if info else dataset_identity(root)
    major, minor, _ = check_version(old_version).split(".")
    version = check_version(options.version or f"{major}.{int(minor) + 1}.0")  # as in TFDS
    if options.out is None and not VERSION.fullmatch(root.absolute().name):
        raise UsageError(
            "its name is not a version such as 1.0.0, so the new version has no default directory",
            path=root,
            hint="use --out DIR to choose one",
        )
    folder = root.parent / version if options.out is None else as_path(options.out)
    return replace(options.settings(folder), name=name, version=version)


def _plan_version(
    source: str | os.PathLike[str],
    settings: JobSettings,
    before: DatasetFiles,
    options: AppendOptions,
    scratch: Path,
) -> JobPlan:
    """Plan to link the shards of a dataset, and to write those that are added to them."""
    shards, notes = before.paths, [*before.notes]
    if not settings.dry_run and not linked(shards[0], scratch / "linked"):
        what = f"hard links can't be made in {settings.folder}"
        notes.append(f"{what}, so unchanged shards are copied")
    with open_regular(shards[0]) as first:
        compression = detect_compression(first)  # readers take one for all
    added, new = _new_records(source, settings, before, options, compression, scratch)
    try:  # some records are enough, if they have the same features
        first_shards = [next(iter(split.shards)) for split in before.splits.values()]
        _check_columns(new, fold_first(first_shards), source)
    except SchemaError:
        _check_columns(new, fold_columns(shards, workers=options.workers), source)
    link_tasks = _link_tasks(before)
    return replace(
        added,
        tasks=numbered([*link_tasks, *added.tasks], settings.name),
        inputs=[*((str(task.source), task.stamp) for task in link_tasks), *added.inputs],
        options={**settings.identity, "split": options.split},
        warnings=(*notes, *added.warnings),
    )


def _check_holds_records(source: str | os.PathLike[str], root: AnyPath) -> None:
    """Raise a `UsageError` if a source exists and does not consist of shards."""
    try:
        first = locate_shards(source).paths[0]
        with open_regular(first) as file:
            holds_records = is_shard_name(first.name) or starts_record(file.read(4096))
    except (ShardError, DatasetError, OSError):
        holds_records = not as_path(source).exists()  # which another error reports
    if not holds_records:
        labels = [path for path in (root / LABELS, root / LABEL_MAP) if path.exists()]
        names = "".join(f" --labels {printable(str(path))}" for path in labels[:1])
        shown = printable(str(as_path(source)))
        raise UsageError(
            "not TFRecord files",
            path=source,
            hint=f"write images with tfrtool write {shown} NEW{names}, and append NEW",
        )


def _new_records(
    source: str | os.PathLike[str],
    settings: JobSettings,
    before: DatasetFiles,
    options: AppendOptions,
    compression: Compression,
    scratch: Path,
) -> tuple[JobPlan, ColumnsFold]:
    """Plan to copy the records of shards, one shard from one; return what they hold, too."""
    found, split = find_sources(source, settings.folder), options.split
    if not split and not set(found.splits) <= set(before.splits):
        raise _unclear_split(source, before)
    # An error where class names or types are others.
    joined = CarriedMetadata([*before.folders, *found.folders], [*before.paths, *found.paths])
    for name in sorted(joined.types.conflicts):
        what = f"its type of {name!r} differs from the dataset's type, so its meaning would change"
        raise DatasetError(what, path=source)
    split_of = {path: split or own for own, some in found.splits.items() for path in some.shards}
    table = scan_records(
        found,
        scratch,
        workers=options.workers,
        on_progress=settings.on_progress,
        stop=settings.stop,
    )
    tasks = [
        CopyTask.of(picked, split_of[shard.path], compression, stop=settings.stop)
        for number, shard in enumerate(table.shards)
        for own in [table.records_of(number)]
        for picked in [PickedRecords(table, np.arange(own.start, own.stop))]
    ]
    inputs = [compression.value, *(shard.identity for shard in table.shards)]
    plan = JobPlan(tasks=tasks, inputs=inputs, faults=table.faults, warnings=found.notes)
    return plan, fold_columns(found.paths, workers=settings.workers)


def _unclear_split(source: str | os.PathLike[str], before: DatasetFiles) -> UsageError:
    return UsageError(
        f"ambiguous split: the dataset has {', '.join(before.splits)}",
        path=source,
        hint="use --split NAME",
    )


def _check_columns(
    come: ColumnsFold, existing: ColumnsFold, source: str | os.PathLike[str]
) -> None:
    """Raise a `SchemaError` if the features of a dataset change by the records that come."""
    before, new = existing.columns(), come.columns()
    existing.merge(come)
    after = existing.columns()
    if after != before or (not new.parsed and new.kind not in (before.kind, PayloadKind.EMPTY)):
        differ = {feature_name(one.key) for one in {*before.columns} ^ {*after.columns}}
        raise SchemaError(
            f"its features differ from the dataset's: {', '.join(sorted(differ))}",
            path=source,
            expected=", ".join(before.names),
            found=", ".join(new.names),
        )
