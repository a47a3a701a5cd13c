"""The verb: a new version of a dataset with more shards; those that stay are not written again."""

import contextlib
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tfrtool.convert.edit.edited_features import LABELS_END, stem
from tfrtool.convert.edit.new_images import (
    NewImagesTask,
    audit_new_images,
    leave_out_known,
    options_of_write,
    plan_new_images,
    unclear_split,
)
from tfrtool.convert.edit.shard_tasks import (
    AddTask,
    LinkTask,
    first_records,
    numbered,
    one_to_one,
)
from tfrtool.convert.pipeline.carried import CarriedMetadata
from tfrtool.convert.pipeline.job import FileTask, JobPlan, run_job
from tfrtool.convert.pipeline.job_report import Faults, JobReport
from tfrtool.convert.pipeline.record_sources import cut_shards, find_sources, scan_shards
from tfrtool.engines.processes import cores
from tfrtool.errors import DatasetError, SchemaError, ShardError, UsageError
from tfrtool.examples.example import DType, Example, decode_example
from tfrtool.examples.roles import info_beside
from tfrtool.examples.tfds_metadata import FEATURES, LABELS, REPORT
from tfrtool.inspection.schema.shard_schema import infer_schema
from tfrtool.records.compression import Compression, detect_compression, starts_record
from tfrtool.records.shard_sets import check_split_name, check_version, is_shard_name
from tfrtool.records.shards import find_folders, locate_shards
from tfrtool.sources.folders.class_layout import LabelFrom
from tfrtool.sources.items import LeftOut, Starting
from tfrtool.storage.appearing import linked
from tfrtool.storage.json_files import read_json, reading_metadata
from tfrtool.storage.locations import as_path
from tfrtool.storage.opening import open_regular
from tfrtool.storage.progress import OnProgress, silent
from tfrtool.storage.words import as_member
from tfrtool.writing.dataset_folder import Target
from tfrtool.writing.shard_writer import payload_of
from tfrtool.writing.write_options import Existing, OnBad, dataset_identity

_SHOWN = 10


def append(
    dataset: str | os.PathLike[str],
    source: str | os.PathLike[str],
    *,
    version: str | None = None,
    out: str | os.PathLike[str] | None = None,
    split: str | None = None,
    new_classes: bool = False,
    dedupe: bool = False,
    label_from: str = "folder",
    on_bad: str = "skip",
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
            others have become; or shards, with the same features as those that are there.
        version: of the new version, X.Y.Z; None counts up the second number.
        out: the directory of the new version; None takes the one beside the old version that is
            called after it, where that is a version's.
        split: where all that is new goes; None leaves it to the source, or to the seed and the
            fractions by which the dataset was split.
        new_classes: whether classes that the dataset does not have are added behind its others.
        dedupe: whether images that are there already are left out and listed.
        label_from: "folder" or "name", as in `write`.
        on_bad: "skip" leaves out bad images and lists them; "fail" ends the work.
        workers: how many processes or threads; None takes the cores.
        existing: "refuse", "overwrite" or "resume": what becomes of the new version if it is there.
        dry_run: only tell what would be written.
        on_progress: called now and then.
        starting: gives a context in which TensorFlow is loaded, once there are images to write.

    Raises:
        UsageError: the new version has no place, or its split or classes are not clear.
        SchemaError: the new records have other features than those of the dataset.
        CorruptShardError: a shard of the dataset is damaged.
        WriteError: something can't be written.
    """
    root = find_folders(dataset).root
    info = info_beside(root)
    name, old_version = (info.name, info.version) if info else dataset_identity(root)
    version = check_version(version or _next(old_version))
    folder = _place(root, version, out)
    before = find_sources(root, folder)
    if before.faults:
        raise DatasetError(before.faults[0].fault.message, path=root)
    said: dict[str, Any] = {}
    with contextlib.suppress(FileNotFoundError), reading_metadata(root / REPORT, "tfrtool"):
        said = dict(read_json(root / REPORT).get("options", {}))
    records = _holds_records(source)
    if records and dedupe:
        raise UsageError("copies are looked for among images, and these are records", path=source)
    job = _Append(
        name=name,
        version=version,
        carried=CarriedMetadata([root]),
        before=before.splits,
        root=root,
        folder=folder,
        source=os.fspath(source),
        said=said,
        split=split if split is None else check_split_name(split),
        new_classes=new_classes,
        dedupe=dedupe,
        label_from=as_member(LabelFrom, label_from, "label_from"),
        skip_bad=as_member(OnBad, on_bad, "on_bad") is OnBad.SKIP,
        workers=cores() if workers is None else workers,
        dry_run=dry_run,
        on_progress=on_progress,
        starting=starting,
    )
    asked = {"version": version, "split": split, "dedupe": dedupe}
    target = Target(
        folder=folder,
        name=name,
        existing=as_member(Existing, existing, "existing"),
        command="append",
        options={**said, **asked},
    )
    return run_job(
        target,
        job.plan_records if records else job.plan_images,
        workers=workers if records else 1,  # images are made by threads
        on_progress=on_progress,
        metadata=lambda splits: job.carried.texts(name, version, splits),
        dry_run=dry_run,
    )


def _next(version: str) -> str:
    """Return the version whose data are more, as TFDS counts them."""
    major, minor, _ = check_version(version).split(".")
    return f"{major}.{int(minor) + 1}.0"


def _place(root: Path, version: str, out: str | os.PathLike[str] | None) -> Path:
    """Return the directory of the new version."""
    if out is not None:
        return as_path(out)
    try:
        check_version(root.absolute().name)
    except UsageError:
        raise UsageError(
            "the directory is not called after a version, so that a new one has no place beside it",
            path=root,
            hint="--out DIR gives it one",
        ) from None
    return root.parent / version


def _holds_records(source: str | os.PathLike[str]) -> bool:
    """Tell whether a source is of shards; what holds none is left to those who read images."""
    try:
        first = locate_shards(source).paths[0]
        with open_regular(first) as file:
            return bool(is_shard_name(first.name)) or starts_record(file.read(4096))
    except (ShardError, DatasetError, OSError):
        return False


@dataclass(slots=True, kw_only=True)
class _Append:
    """An append that is being planned; then ``carried`` has the classes that are new, too."""

    name: str
    version: str
    carried: CarriedMetadata
    before: Mapping[str, Sequence[Path]]
    root: Path
    folder: Path
    source: str
    said: Mapping[str, Any]
    split: str | None
    new_classes: bool
    dedupe: bool
    label_from: LabelFrom
    skip_bad: bool
    workers: int
    dry_run: bool
    on_progress: OnProgress
    starting: Starting

    @property
    def shards(self) -> list[Path]:
        """The shards that stay."""
        return [path for paths in self.before.values() for path in paths]

    @property
    def compression(self) -> Compression:
        """How the shards that stay are compressed: readers take one for all."""
        with open_regular(self.shards[0]) as first:
            return detect_compression(first)

    def plan_records(self, scratch: Path) -> JobPlan:
        """Plan to copy shards, one from one."""
        found = find_sources(self.source, self.folder)
        if not self.split and not set(found.splits) <= set(self.before):
            raise unclear_split(self.source, self.before)
        self._check_features(
            first_records(path for paths in found.splits.values() for path in paths)
        )
        for file, text in CarriedMetadata(found.folders).labels.items():
            self._check_classes(file, names_in(text))
        split_of = {path: split for split, paths in found.splits.items() for path in paths}
        scanned = scan_shards([*split_of], scratch, workers=self.workers)
        faults = Faults()
        for fault in (*found.faults, *(one for shard in scanned for one in shard.faults.kept)):
            faults.add(fault)
        added = [
            AddTask(
                name="",
                split=self.split or split_of[shard.path],
                records=shard.records,
                size=shard.size,
                segments=cut_shards([shard], 1, 1)[0],
                compression=self.compression,
                stop=False,
            )
            for shard in scanned
        ]
        return replace(self._plan(scratch, added), faults=faults)

    def plan_images(self, scratch: Path) -> JobPlan:
        """Plan to write images as the others were written."""
        options = options_of_write(
            self.said,
            source=self.source,
            dataset=self.folder,
            name=self.name,
            version=self.version,
            compression=self.compression,
            skip_bad=self.skip_bad,
            dedupe=self.dedupe,
            label_from=self.label_from,
            root=None,
            workers=self.workers,
        )
        if "image" in self.said:  # as edit tells it
            raise DatasetError(
                "its images were encoded anew by edit, so that others would differ from them",
                path=self.root,
                expected="records to append",
            )
        if LABELS not in self.carried.labels:
            raise DatasetError(f"no {LABELS} tells the numbers of its classes", path=self.root)
        audit = audit_new_images(
            options,
            scratch,
            names_in(self.carried.labels[LABELS]),
            new_classes=self.new_classes,
            on_progress=self.on_progress,
            starting=self.starting,
        )
        if self.dedupe:
            leave_out_known(audit, self.shards, self.workers)
        items, labels = audit.source.items, audit.source.labels
        added = [
            NewImagesTask(
                name="",
                split=shard.name.split,
                records=len(shard.positions),
                size=sum(items[position].bytes for position in shard.positions),
                shard=shard,
                workers=self.workers,
                starting=self.starting,
            )
            for shard in plan_new_images(audit, options, self.before, self.split)
        ]
        first = payload_of(audit, audit.good[0], {name: at for at, name in enumerate(labels)})
        self._check_features([decode_example(first)])
        self._set_classes(LABELS, labels)
        bad = (LeftOut(key=items[at].key, reason=why) for at, why in audit.problems.items())
        return replace(self._plan(scratch, added), rejected=(*audit.source.rejected, *bad))

    def _plan(self, scratch: Path, added: Sequence[FileTask]) -> JobPlan:
        """Number all shards of each split, those that stay first."""
        kept = [LinkTask(**facts) for facts in one_to_one(self.before)]
        notes = []
        if not self.dry_run and not linked(kept[0].source, scratch / "linked"):
            notes.append(
                f"hard links can't be made in {self.folder}: shards that stay are copied there"
            )
        return JobPlan(tasks=numbered([*kept, *added], self.name), warnings=notes)

    def _check_features(self, new: Sequence[Example]) -> None:
        """Raise a `SchemaError` if new records have other features than those that are there."""
        come = _types(new)
        if come == _types(first_records(self.shards)):
            return
        schema = infer_schema(self.shards, workers=self.workers)
        held = {one.name: one for one in schema.features}
        wrong = {
            name for name, types in come.items() if name not in held or types - {*held[name].dtypes}
        }
        wrong |= {one.name for one in schema.features if one.present == schema.records} - {*come}
        if wrong:
            raise SchemaError(
                "has other features than the dataset",
                path=self.source,
                expected=", ".join(sorted(held)),
                found=f"{', '.join(sorted(come))}; they differ in {', '.join(sorted(wrong))}",
            )

    def _check_classes(self, file: str, new: Sequence[str]) -> None:
        """Take new class names where they come after those that are there; else `UsageError`."""
        old = names_in(self.carried.labels.get(file, ""))
        if not old or new == old[: len(new)]:
            return
        if not self.new_classes or old != new[: len(old)]:
            raise UsageError(
                "its classes have other numbers than those of the dataset",
                path=self.source,
                expected=", ".join(old[:_SHOWN]),
                found=", ".join(new[:_SHOWN]),
            )
        self._set_classes(file, new)

    def _set_classes(self, file: str, names: Sequence[str]) -> None:
        self.carried.labels[file] = "".join(f"{name}\n" for name in names)
        with reading_metadata(FEATURES, "TFDS"):
            described = (
                self.carried.features["featuresDict"]["features"] if self.carried.features else {}
            )
            for name, feature in described.items():
                if f"{stem(name)}{LABELS_END}" == file:
                    feature["classLabel"]["numClasses"] = str(len(names))


def names_in(text: str) -> list[str]:
    """Return the class names in a file of them, one a line, as TFDS reads it."""
    return [line.strip() for line in text.split("\n") if line.strip()]


def _types(examples: Iterable[Example]) -> dict[str, set[DType]]:
    """Return the types that the values of each feature have."""
    found: dict[str, set[DType]] = {}
    for example in examples:
        for name, feature in example.features.items():
            found.setdefault(name, set()).update(filter(None, [feature.dtype]))
        for name, steps in example.feature_lists.items():
            found.setdefault(name, set()).update(filter(None, (step.dtype for step in steps)))
    return found
