"""The verb: a new version of a dataset with more shards; those that stay are not written again."""

import contextlib
import os
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from tfrtool.convert.edit.new_images import (
    options_of_write,
    plan_new_images,
    unclear_split,
)
from tfrtool.convert.edit.shard_tasks import LinkTask, numbered, one_to_one
from tfrtool.convert.pipeline.carried import CarriedMetadata
from tfrtool.convert.pipeline.job import FileTask, JobPlan, run_job
from tfrtool.convert.pipeline.job_report import Faults, JobReport
from tfrtool.convert.pipeline.record_order import CopyTask, RecordOrder, RecordPool
from tfrtool.convert.pipeline.record_sources import (
    INDEX,
    faults_of,
    find_sources,
    scan_shards,
)
from tfrtool.engines.processes import cores
from tfrtool.errors import DatasetError, SchemaError, ShardError, UsageError
from tfrtool.examples.arrow.infer import ColumnsFold
from tfrtool.examples.dataset_files import DatasetFiles
from tfrtool.examples.example import PayloadKind, feature_name
from tfrtool.examples.roles import info_beside
from tfrtool.examples.tfds_metadata import FEATURES, LABELS, REPORT, read_class_names
from tfrtool.inspection.rows.batches import fold_columns
from tfrtool.records.compression import Compression, detect_compression, starts_record
from tfrtool.records.shard_sets import VERSION, check_split_name, check_version, is_shard_name
from tfrtool.records.shards import find_folders, locate_shards
from tfrtool.sources.items import LeftOut, Starting
from tfrtool.storage.appearing import linked
from tfrtool.storage.json_files import read_json, reading_metadata
from tfrtool.storage.locations import as_path
from tfrtool.storage.opening import open_regular
from tfrtool.storage.progress import OnProgress, silent
from tfrtool.storage.words import as_member
from tfrtool.writing.dataset_folder import Target
from tfrtool.writing.shard_writer import payload_of
from tfrtool.writing.write_options import Existing, dataset_identity


def append(
    dataset: str | os.PathLike[str],
    source: str | os.PathLike[str],
    *,
    version: str | None = None,
    out: str | os.PathLike[str] | None = None,
    split: str | None = None,
    new_classes: bool = False,
    dedupe: bool = False,
    workers: int | None = None,
    existing: str = "refuse",
    dry_run: bool = False,
    on_progress: OnProgress = silent,
    starting: Starting = nullcontext,
) -> JobReport:
    """Add images or records to a dataset, as new shards in a new version of it.

    The shards that are there get names in the new version, too (hard links: they take no room, and
    are read, not written), and the old version stays as it is. No record changes its split.

    Args:
        dataset: its directory.
        source: images as `write` takes them, which become what ``write_report.json`` says that the
            others have become, bad ones left out and listed; or shards, with the same features as
            those that are there.
        version: of the new version, X.Y.Z; None counts up the second number.
        out: the directory of the new version; None takes the one beside the old version that is
            called after it, where that is a version's.
        split: where all that is new goes; None leaves it to the source, or to the seed and the
            fractions by which the dataset was split.
        new_classes: whether classes that the dataset does not have are added behind its others.
        dedupe: whether images that are there already are left out and listed.
        workers: how many processes or threads; None takes the cores.
        existing: "refuse", "overwrite" or "resume": what becomes of the new version if it is there.
        dry_run: only tell what would be written.
        on_progress: called now and then.
        starting: gives a context in which TensorFlow is loaded, where it reads the images.

    Raises:
        UsageError: the new version has no place, or its split or classes are not clear.
        DatasetError: shards or class names are missing, or class names of new shards are others.
        SchemaError: the new records have other features than those of the dataset.
        CorruptShardError: a shard of the dataset is damaged.
        WriteError: something can't be written.
    """
    root = find_folders(dataset).root
    info = info_beside(root)
    name, old_version = (info.name, info.version) if info else dataset_identity(root)
    major, minor, _ = check_version(old_version).split(".")
    version = check_version(version or f"{major}.{int(minor) + 1}.0")  # as TFDS counts more data
    if out is None and not VERSION.fullmatch(root.absolute().name):
        raise UsageError(
            "the directory is not called after a version, so that a new one has no place beside it",
            path=root,
            hint="--out DIR gives it one",
        )
    folder = root.parent / version if out is None else as_path(out)
    if split is not None:
        check_split_name(split)
    before = find_sources(root, folder)
    for lack in faults_of(before, {}).kept:
        raise DatasetError(lack.fault.message, path=lack.path)
    carried = CarriedMetadata([root])
    said: dict[str, Any] = {}
    with contextlib.suppress(FileNotFoundError), reading_metadata(root / REPORT, "tfrtool"):
        said = dict(read_json(root / REPORT).get("options", {}))
    records = _holds_records(source)
    if records and dedupe:
        raise UsageError("copies are looked for among images, and these are records", path=source)

    def plan(scratch: Path) -> JobPlan:
        kept = [LinkTask(**facts) for facts in one_to_one(before)]
        shards, notes = [task.source for task in kept], [*before.notes]
        if not dry_run and not linked(shards[0], scratch / "linked"):
            notes.append(f"hard links can't be made in {folder}: shards that stay are copied there")
        with open_regular(shards[0]) as first:
            compression = detect_compression(first)  # readers take one for all
        added, faults, come = list[FileTask](), Faults(), ColumnsFold()
        rejected = list[LeftOut]()
        if records:
            found = find_sources(source, folder)
            notes += found.notes
            if not split and not set(found.splits) <= set(before.splits):
                raise unclear_split(source, before.splits)
            CarriedMetadata([root, *found.folders])  # an error where class names are others
            added, faults = _copied(found, scratch, split, compression, workers)
            come = fold_columns(found.paths, workers=workers)
        else:
            if "image" in said:  # as edit tells it
                raise DatasetError(
                    "its images were encoded anew by edit, so that others would differ from them",
                    path=root,
                    expected="records to append",
                )
            classes = read_class_names(root, "label")
            if classes is None:
                raise DatasetError(f"no {LABELS} tells the numbers of its classes", path=root)
            options = options_of_write(
                said,
                source=os.fspath(source),
                dataset=folder,
                name=name,
                version=version,
                compression=compression,
                dedupe=dedupe,
                workers=cores() if workers is None else workers,
            )
            audit, added = plan_new_images(
                options,
                scratch,
                classes,
                before,
                split,
                new_classes=new_classes,
                on_progress=on_progress,
                starting=starting,
            )
            labels, problems = audit.source.labels, audit.problems.items()
            rejected = [LeftOut(key=audit.source.items[at].key, reason=why) for at, why in problems]
            rejected += audit.source.rejected
            come.add(
                [payload_of(audit, audit.good[0], {name: at for at, name in enumerate(labels)})]
            )
            if len(labels) > len(classes):
                carried.labels[LABELS] = "".join(f"{name}\n" for name in labels)
                if carried.features is not None:
                    with reading_metadata(root / FEATURES, "TFDS"):
                        described = carried.features["featuresDict"]["features"]["label"]
                        described["classLabel"]["numClasses"] = str(len(labels))
        _check_columns(come, fold_columns(shards, workers=workers), source)
        tasks = numbered([*kept, *added], name)
        return JobPlan(tasks=tasks, faults=faults, rejected=rejected, warnings=notes)

    return run_job(
        Target(
            folder=folder,
            name=name,
            existing=as_member(Existing, existing, "existing"),
            command="append",
            options={**said, "version": version, "split": split, "dedupe": dedupe},
        ),
        plan,
        workers=workers if records else 1,  # images are made by threads
        on_progress=on_progress,
        metadata=lambda splits: carried.texts(name, version, splits),
        dry_run=dry_run,
    )


def _holds_records(source: str | os.PathLike[str]) -> bool:
    """Tell whether a source is of shards; what holds none is left to those who read images."""
    try:
        first = locate_shards(source).paths[0]
        with open_regular(first) as file:
            return bool(is_shard_name(first.name)) or starts_record(file.read(4096))
    except (ShardError, DatasetError, OSError):
        return False


def _copied(
    found: DatasetFiles,
    scratch: Path,
    split: str | None,
    compression: Compression,
    workers: int | None,
) -> tuple[list[FileTask], Faults]:
    """Plan to copy the records of shards, one from one; return the damage that was met, too."""
    split_of = {path: split or own for own, some in found.splits.items() for path in some.shards}
    tasks = list[FileTask]()
    shards = scan_shards([*split_of], scratch, workers=workers)
    whole = {shard.path: shard.records for shard in shards if not shard.faults.count}
    faults = faults_of(found, whole)
    pool = RecordPool(shards=shards, index=scratch / INDEX)
    for shard, first in zip(shards, pool.firsts.tolist(), strict=False):
        faults.merge(shard.faults)
        tasks.append(
            CopyTask(
                name="",
                split=split_of[shard.path],
                records=shard.records,
                size=shard.size,
                order=RecordOrder(pool=pool, count=shard.records, first=first),
                start=0,
                end=shard.records,
                recipe=shard.identity,
                compression=compression,
                stop=False,
            )
        )
    return tasks, faults


def _check_columns(come: ColumnsFold, held: ColumnsFold, source: str | os.PathLike[str]) -> None:
    """Raise a `SchemaError` if the features of a dataset change by the records that come."""
    before, new = held.columns(), come.columns()
    held.merge(come)
    after = held.columns()
    if after != before or (not new.parsed and new.kind not in (before.kind, PayloadKind.EMPTY)):
        differ = {feature_name(one.key) for one in {*before.columns} ^ {*after.columns}}
        raise SchemaError(
            "has other features than the dataset",
            path=source,
            expected=", ".join(before.names),
            found=f"{', '.join(new.names)}; they differ in {', '.join(sorted(differ))}",
        )
