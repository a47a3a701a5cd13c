"""The plan of a conversion: what is read, written and lost, known before anything is written."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from tfrtool.convert.convert_options import CHANGES_EXACT, ConvertOptions
from tfrtool.convert.formats.convert_notes import (
    blank_notes,
    renamed_notes,
    stored_notes,
    table_losses,
)
from tfrtool.convert.formats.convert_task import ConvertTask
from tfrtool.convert.formats.format_choice import FormatChoice
from tfrtool.convert.formats.merged_content import merge_contents
from tfrtool.convert.formats.record_format import Content, Piece, Scan
from tfrtool.convert.formats.schema_types import ChosenTypes, schema_types
from tfrtool.convert.formats.source_scan import ScannedFiles
from tfrtool.convert.source_records import faults_of
from tfrtool.errors import UsageError
from tfrtool.examples.arrow.columns import Columns
from tfrtool.examples.dataset_files import DatasetFiles
from tfrtool.examples.example import PayloadKind, feature_key
from tfrtool.examples.stored_types import SCHEMA, StoredTypes
from tfrtool.examples.tfds_metadata import DatasetInfo, SplitInfo
from tfrtool.features.explode import ExplodedTable
from tfrtool.features.exploded_columns import ExplodedColumns
from tfrtool.features.feature_columns import FeatureColumns
from tfrtool.inspection.rows.batches import LABEL_NAME
from tfrtool.inspection.rows.exploded_rows import RECORD, explode_columns
from tfrtool.records.framing import LocatedFault
from tfrtool.storage.remote_path import AnyPath
from tfrtool.writing.job import JobPlan
from tfrtool.writing.job_report import Faults
from tfrtool.writing.run_options import JobSettings, check_shard_count, too_many_shards


@dataclass(frozen=True, slots=True, kw_only=True)
class RowPlan:
    """How rows are read, and how they are written.

    Attributes:
        before: the columns as they are read.
        after: the same columns as they are written, perhaps under other names.
        exploded: how records become rows for the items of their lists, if they do.
        notes: decisions about columns, one clause each.
    """

    before: Content
    after: Content
    exploded: ExplodedTable | None = None
    notes: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvertPlan:
    """What a conversion is going to do.

    Attributes:
        formats: what is read and written.
        target: the directory or the file to write.
        settings: how files are written.
        rows: how rows are read and written.
        tasks: the files to write.
        losses: what the target format can't store, one clause each.
        notes: all decisions, one clause each.
        faults: damage in the source.
        chosen: the options that decide what files hold. A run that is resumed must have the same.
        keeps_types: whether a single file of payloads replaces one that has a schema. Its schema is
            written, too, so that the records don't get the types of others.
    """

    formats: FormatChoice
    target: AnyPath
    settings: JobSettings
    rows: RowPlan
    tasks: Sequence[ConvertTask]
    losses: Sequence[str] = ()
    notes: Sequence[str] = ()
    faults: Faults = field(default_factory=Faults)
    chosen: Mapping[str, Any] = field(default_factory=dict)
    keeps_types: bool = False

    def metadata(self, splits: Sequence[SplitInfo], _: Path) -> Mapping[str, str]:
        """Return the texts of the files next to the records, by name."""
        content = self.rows.after
        info = DatasetInfo(
            name=self.settings.name,
            version=self.settings.version,
            splits=tuple(splits),
            image_feature=next(iter(content.images), None),
            label_feature=content.label or next(iter(content.class_names), None),
        )
        texts = self.formats.target.metadata(content, info)
        return {**texts, SCHEMA: content.to_text()} if self.keeps_types else texts

    def job_plan(self, paths: Sequence[AnyPath]) -> JobPlan:
        """Return the plan of the job. Its digest changes with these files and all options."""
        stats = [(str(path), path.stat()) for path in paths]
        inputs = [(path, status.st_size, status.st_mtime_ns) for path, status in stats]
        facts = (
            self.formats.source.name,
            vars(self.formats.source),
            vars(self.formats.target),
            self.rows.before,
            self.rows.after,
            [task.pieces for task in self.tasks],
        )
        return JobPlan(tasks=self.tasks, inputs=[*inputs, facts], faults=self.faults)


def plan_conversion(
    formats: FormatChoice,
    scanned: ScannedFiles,
    files: DatasetFiles,
    target: AnyPath,
    settings: JobSettings,
    options: ConvertOptions,
    types: ChosenTypes,
) -> ConvertPlan:
    """Return the plan of a conversion of files that have been scanned.

    Raises:
        UsageError: an option doesn't fit what the files hold.
        SchemaError: the files don't agree on a type, or the target format can't hold one.
        SourceError: float32 would change whole numbers.
    """
    formats = formats._replace(source=scanned.format)
    scans = scanned.scans
    rows = _plan_rows(formats, [*scans.values()], files, options, types)
    if options.verify == "bytes" and not (rows.after.exact or formats.copies_payloads):
        hint = "use --exact to keep them"
        raise UsageError("--verify bytes requires payloads to compare", hint=hint)
    losses = formats.target.losses(rows.after)
    copied = rows
    if formats.copies_payloads and not (options.select or options.rename or options.schema):
        unparsed = Content(columns=Columns(PayloadKind.UNKNOWN))
        copied = replace(rows, before=unparsed, after=unparsed)
    else:
        losses = losses + table_losses([*scans.values()], rows.after)
    scan_notes = (note for scan in scans.values() for note in scan.notes)
    is_records_file = formats.single and formats.target.payloads
    return ConvertPlan(
        formats=formats,
        target=target,
        settings=settings,
        rows=rows,
        tasks=_cut_tasks(formats, scans, files, target, settings, copied, options),
        losses=losses,
        notes=[*dict.fromkeys((*files.notes, *scan_notes, *scanned.notes, *rows.notes))],
        faults=_faults(files, scans, settings),
        chosen=_chosen(formats, options, types),
        keeps_types=is_records_file and bool(StoredTypes.read([target]).columns),
    )


def _faults(files: DatasetFiles, scans: Mapping[AnyPath, Scan], settings: JobSettings) -> Faults:
    """Return the damage in the source; an error where that is to stop the work."""
    intact_rows = {path: scan.rows for path, scan in scans.items() if not scan.faults}
    faults = faults_of(files, intact_rows, stop=settings.stop)
    for path, scan in scans.items():
        for fault in scan.faults:
            faults.add(LocatedFault(path=path, fault=fault))
    return faults


def _plan_rows(
    formats: FormatChoice,
    scans: Sequence[Scan],
    files: DatasetFiles,
    options: ConvertOptions,
    types: ChosenTypes,
) -> RowPlan:
    """Return how the rows of files are read, and how they are written."""
    source, target, select = formats.source, formats.target, options.select or ()
    before, notes = merge_contents(source, scans, files.folders, options, types)
    before.columns.select([options.label_feature] if options.label_feature else [])
    label = options.label_feature or (files.info.label_feature if files.info else None)
    rename = dict(options.rename or {})
    label = rename.get(label, label) if label else None
    after = _renamed_content(before, rename)
    after = replace(
        after,
        declared=True,
        native=None,
        label=label if label in after.columns.names else None,
        named=target.spec.names_labels
        and types.schema is None
        and (not select or LABEL_NAME in select),
    )
    exploded = None
    if options.explode is not None:
        columns, exploded = explode_columns(
            before.columns, options.explode, select or None, [RECORD]
        )
        items = ExplodedColumns.of_table(columns, exploded, before.images)
        after = Content(columns=items, images=items.images, class_names=before.class_names)
        before = replace(before, columns=columns)
        notes += exploded.notes
    if not source.payloads:
        retained = () if target.payloads else before.columns.names
        notes += blank_notes(scans, select, retained)
        notes += stored_notes(after.columns) if target.payloads else []
    notes += [] if target.payloads else renamed_notes(after.columns)
    return RowPlan(before=before, after=after, exploded=exploded, notes=notes)


def _renamed_content(content: Content, names: Mapping[str, str]) -> Content:
    """Return content whose columns have other names; `UsageError` if that can't be."""
    if not names:
        return content
    if content.exact:
        raise UsageError(CHANGES_EXACT)
    content.columns.select(names)
    new = {name: names.get(name, name) for name in content.columns.names}
    if len({*new.values()}) < len(new):
        raise UsageError("--rename gives two columns the same name")
    if isinstance(content.columns, FeatureColumns):
        renamed: Columns = content.columns.renamed(names)
    else:
        columns = [
            replace(one, key=feature_key(names[name])) if name in names else one
            for name, one in zip(new, content.columns.columns, strict=True)
        ]
        renamed = Columns(content.columns.kind, tuple(columns))
    return replace(
        content,
        columns=renamed,
        class_names={new[name]: some for name, some in content.class_names.items() if name in new},
        images=tuple(new[name] for name in content.images),
        tfds=None,
    )


def _cut_tasks(
    formats: FormatChoice,
    scans: Mapping[AnyPath, Scan],
    files: DatasetFiles,
    target: AnyPath,
    settings: JobSettings,
    rows: RowPlan,
    options: ConvertOptions,
) -> list[ConvertTask]:
    """Return the files to write, split by split."""
    if formats.single and len(files.splits) > 1:
        hint = "pass a directory, and its format with --to"
        what = f"one file can't hold the splits {' and '.join(files.splits)}"
        raise UsageError(what, hint=hint)
    pattern = formats.target.spec.file_name
    if formats.single:
        pattern = target.name.replace("{", "{{").replace("}", "}}")
    tasks = []
    for split, split_files in files.splits.items():
        cuts = _cut([scans[path] for path in split_files.shards], split, options, formats.single)
        first = 0
        for index, pieces in enumerate(cuts):
            names = {"dataset": settings.name, "split": split, "index": index, "count": len(cuts)}
            records = sum(piece.rows for piece in pieces)
            task = ConvertTask(
                name=pattern.format_map(names),
                split=split,
                records=records,
                size=sum(piece.path.stat().st_size for piece in pieces),
                source=formats.source,
                target=formats.target,
                pieces=pieces,
                before=rows.before,
                after=rows.after,
                exploded=rows.exploded,
                first=first,
                verify=options.verify,
                stop=settings.stop,
            )
            tasks.append(task)
            first += records
    return tasks


def _cut(
    scans: Sequence[Scan], split: str, options: ConvertOptions, single: bool
) -> list[list[Piece]]:
    """Return the rows of each file of a split; all have as many."""
    rows, size = sum(scan.rows for scan in scans), sum(scan.bytes for scan in scans)
    by_size = max(1, min(rows, -(-size // options.shard_bytes)))
    count = 1 if single else options.shards or by_size
    if count > max(rows, 1):
        raise too_many_shards(count, split, rows)
    check_shard_count(count)
    bounds = [round(rows * index / count) for index in range(count + 1)]  # as TFDS does it
    files: list[list[Piece]] = [[] for _ in range(count)]
    first = 0
    for scan in scans:
        for pieces, (start, stop) in zip(files, pairwise(bounds), strict=True):
            low, high = max(start - first, 0), min(stop - first, scan.rows)
            pieces += [scan.piece(low, high - low)] if low < high else []
        first += scan.rows
    return files


def _chosen(
    formats: FormatChoice, options: ConvertOptions, types: ChosenTypes
) -> Mapping[str, Any]:
    """Return the options that decide what files hold, as JSON values."""
    return {
        "to": formats.target.name,
        "select": list(options.select or ()),
        "rename": dict(options.rename or {}),
        "cast": dict(options.cast or {}),
        "exact": options.exact,
        "lists": options.lists,
        "flatten": options.flatten,
        "as_stored": options.as_stored,
        "explode": options.explode and [*options.explode],
        "schema": None if types.schema is None else schema_types(types.schema),
        "label_feature": options.label_feature,
    }
