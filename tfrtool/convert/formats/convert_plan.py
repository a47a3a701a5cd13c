"""The plan of a conversion: what is read, written and lost, known before anything is written."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

from tfrtool.convert.convert_options import CHANGES_EXACT
from tfrtool.convert.formats.convert_notes import (
    blank_notes,
    renamed_notes,
    stored_notes,
    table_losses,
)
from tfrtool.convert.formats.convert_request import ConvertRequest
from tfrtool.convert.formats.convert_task import ConvertTask
from tfrtool.convert.formats.folder_columns import (
    folder_columns,
    folder_fields,
    with_folders,
    without_folders,
)
from tfrtool.convert.formats.merged_content import merge_contents
from tfrtool.convert.formats.record_format import Content, Piece, Scan
from tfrtool.convert.formats.schema_types import schema_types
from tfrtool.convert.formats.source_scan import ScannedFiles
from tfrtool.convert.source_records import faults_of
from tfrtool.errors import UsageError
from tfrtool.examples.arrow.columns import Columns
from tfrtool.examples.example import PayloadKind, feature_key
from tfrtool.examples.tfds_metadata import DatasetInfo
from tfrtool.features.explode import ExplodedTable
from tfrtool.features.exploded_columns import ExplodedColumns
from tfrtool.features.feature_columns import FeatureColumns
from tfrtool.features.schema_files import SCHEMA, SchemaFields, needs_schema
from tfrtool.inspection.rows.batches import LABEL_NAME
from tfrtool.inspection.rows.exploded_rows import RECORD, explode_columns
from tfrtool.inspection.rows.extra_columns import ExtraColumns
from tfrtool.records.framing import LocatedFault
from tfrtool.storage.remote_path import AnyPath
from tfrtool.writing.job import JobPlan
from tfrtool.writing.job_report import Faults, FinishedFile, split_infos, split_reports
from tfrtool.writing.run_options import check_shard_count, too_many_shards


@dataclass(frozen=True, slots=True, kw_only=True)
class RowPlan:
    """How rows are read, and how they are written.

    Attributes:
        before: the columns as they are read.
        after: the same columns as they are written, perhaps under other names.
        exploded: how records become rows for the items of their lists, if they do.
        extra: columns that are written, and no record stores.
        notes: decisions about columns, one clause each.
    """

    before: Content
    after: Content
    exploded: ExplodedTable | None = None
    extra: ExtraColumns = field(default_factory=ExtraColumns)
    notes: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvertPlan:
    """What a conversion is going to do.

    Attributes:
        request: what it is asked to do.
        rows: how rows are read and written.
        tasks: the files to write.
        losses: what the target format can't store, one clause each.
        notes: all decisions, one clause each.
        faults: damage in the source.
        has_schema: whether a single file of payloads has a schema: of what records don't show, or
            so that they don't get the types of records that they replace.
    """

    request: ConvertRequest
    rows: RowPlan
    tasks: Sequence[ConvertTask]
    losses: Sequence[str]
    notes: Sequence[str]
    faults: Faults
    has_schema: bool

    def metadata(self, files: Sequence[FinishedFile]) -> Mapping[str, str]:
        """Return the texts of the files next to written ones, by name."""
        content, settings = self.rows.after, self.request.settings
        info = DatasetInfo(
            name=settings.name,
            version=settings.version,
            splits=split_infos(split_reports(files)),
            image_feature=next(iter(content.images), None),
            label_feature=content.label or next(iter(content.class_names), None),
        )
        texts = self.request.target_format.metadata(content, info)
        return {**texts, SCHEMA: content.to_text()} if self.has_schema else texts

    def chosen(self) -> Mapping[str, Any]:
        """Return the options that decide what files hold. A resumed run must have the same."""
        options, schema = self.request.options, self.request.types.schema
        return {
            "to": self.request.target_format.spec.name,
            "select": list(options.select or ()),
            "rename": dict(options.rename or {}),
            "cast": dict(options.cast or {}),
            "exact": options.exact,
            "lists": options.lists,
            "flatten": options.flatten,
            "as_stored": options.as_stored,
            "explode": options.explode and [*options.explode],
            "schema": None if schema is None else schema_types(schema),
            "label_feature": options.label_feature,
            **({"types": dict(options.types)} if options.types else {}),
        }

    def job_plan(self) -> JobPlan:
        """Return the plan of the job. Its digest also depends on the source and the columns."""
        stats = [(str(path), path.stat()) for path in self.request.files.paths]
        inputs = [(path, status.st_size, status.st_mtime_ns) for path, status in stats]
        source_format, target_format = self.request.source_format, self.request.target_format
        facts = (
            source_format.spec.name,
            vars(source_format),
            vars(target_format),
            self.rows.before,
            self.rows.after,
            [task.pieces for task in self.tasks],
        )
        return JobPlan(
            tasks=self.tasks,
            inputs=[*inputs, facts],
            options={**self.request.settings.identity, **self.chosen()},
            faults=self.faults,
        )


def plan_conversion(request: ConvertRequest, scanned: ScannedFiles) -> ConvertPlan:
    """Return the plan of a conversion of files that have been scanned.

    Raises:
        UsageError: an option doesn't fit what the files hold.
        SchemaError: the files don't agree on a type, or the target format can't hold one.
        SourceError: float32 would change whole numbers.
    """
    request = replace(request, source_format=scanned.format)
    options, target_format = request.options, request.target_format
    rows = _plan_rows(request, scanned)
    if options.verify == "bytes" and not (rows.after.exact or request.copies_payloads):
        hint = "use --exact to keep them"
        raise UsageError("--verify bytes requires payloads to compare", hint=hint)
    losses, task_rows = target_format.losses(rows.after), rows
    if request.copies_payloads and not (options.select or options.rename or options.schema):
        unparsed = Content(columns=Columns(PayloadKind.UNKNOWN))
        task_rows = replace(rows, before=unparsed, after=unparsed)
    else:
        losses = losses + table_losses(scanned.fold, rows.after)
    is_records_file = request.single and target_format.payloads
    return ConvertPlan(
        request=request,
        rows=rows,
        tasks=_cut_tasks(request, scanned, task_rows),
        losses=losses,
        notes=[*dict.fromkeys((*request.files.notes, *scanned.notes, *rows.notes))],
        faults=_faults(request, scanned),
        has_schema=is_records_file and _needs_schema(rows.after.columns, request.target),
    )


def _faults(request: ConvertRequest, scanned: ScannedFiles) -> Faults:
    """Return the damage in the source; an error where that is to stop the work."""
    intact_rows = {scan.path: scan.rows for scan in scanned.scans if not scan.faults}
    faults = faults_of(request.files, intact_rows, stop=request.settings.stop)
    for scan in scanned.scans:
        for fault in scan.faults:
            faults.add(LocatedFault(path=scan.path, fault=fault))
    return faults


def _plan_rows(request: ConvertRequest, scanned: ScannedFiles) -> RowPlan:
    """Return how the rows of files are read, and how they are written."""
    options, target = request.options, request.target_format
    before, notes = merge_contents(request, scanned)
    if options.label_feature:
        before.columns.select([options.label_feature])  # raises an error for a missing column
    extra = folder_columns(request, before)
    after = _written_content(with_folders(before, extra) if extra.columns else before, request)
    select, exploded = options.select or (), None
    if options.explode is not None:
        stored = without_folders(select, before.columns, request.files.paths)
        columns, exploded = explode_columns(
            before.columns, options.explode, stored or None, [*extra.fields, RECORD]
        )
        items = ExplodedColumns.of_table(columns, exploded, before.images, folder_fields(extra))
        after = Content(columns=items, images=items.images, class_names=before.class_names)
        before = replace(before, columns=columns)
        notes += exploded.notes
    if not scanned.format.payloads:
        retained = () if target.payloads else before.columns.names
        notes += blank_notes(scanned.scans, select, retained)
        notes += stored_notes(after.columns) if target.payloads else []
    notes += [] if target.payloads else renamed_notes(after.columns)
    return RowPlan(before=before, after=after, exploded=exploded, extra=extra, notes=notes)


def _written_content(content: Content, request: ConvertRequest) -> Content:
    """Return the content of the files to write."""
    options, info, rename = request.options, request.files.info, dict(request.options.rename or {})
    label = options.label_feature or (info.label_feature if info else None)
    label = rename.get(label, label) if label else None
    after = _renamed_content(content, rename)
    label = label if label in after.columns.names else None
    can_have_names = request.types.schema is None and request.target_format.spec.names_labels
    is_named = can_have_names and (not options.select or LABEL_NAME in options.select)
    named_label = _named_label(after, label) if is_named else None
    return replace(after, declared=True, native=None, label=label, named_label=named_label)


def _named_label(content: Content, label: str | None) -> str | None:
    """Return the column of single numbers whose class names can become a column."""
    name, names = label or next(iter(content.class_names), ""), content.columns.names
    if name not in names or LABEL_NAME in names or not content.class_names.get(name):
        return None
    return name if content.columns.is_single(name) else None


def _needs_schema(columns: Columns, target: AnyPath) -> bool:
    """Return whether a single file of payloads needs a schema next to it."""
    if isinstance(columns, FeatureColumns) and needs_schema(columns.root, is_alone=True):
        return True
    return bool(SchemaFields.read([target]).fields)


def _renamed_path(path: str, names: Mapping[str, str]) -> str:
    """Return the path of a field whose column is renamed."""
    for old in [path, *(path[: at.start()] for at in re.finditer("/", path))]:
        if old in names:
            return names[old] + path[len(old) :]
    return path


def _renamed_content(content: Content, names: Mapping[str, str]) -> Content:
    """Return content whose columns have other names; `UsageError` if that can't be."""
    if not names:
        return content
    if content.exact:
        raise UsageError(CHANGES_EXACT)
    content.columns.select(names)
    for name in (name for name in names if name not in content.columns.names):
        what = f"--rename applies to columns, and {name!r} is a field of one"
        raise UsageError(what, hint=f"use --select {name} to make a column of it")
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
        class_names={_renamed_path(path, new): some for path, some in content.class_names.items()},
        images=tuple(new[name] for name in content.images),
        tfds=None,
    )


def _cut_tasks(request: ConvertRequest, scanned: ScannedFiles, rows: RowPlan) -> list[ConvertTask]:
    """Return the files to write, split by split."""
    splits, settings, spec = request.files.splits, request.settings, request.target_format.spec
    if request.single and len(splits) > 1:
        hint = "pass a directory, and its format with --to"
        raise UsageError(f"one file can't hold the splits {' and '.join(splits)}", hint=hint)
    tasks = []
    for split, files in splits.items():
        cuts = _cut([scanned.by_path[path] for path in files.shards], split, request)
        first = 0
        for index, pieces in enumerate(cuts):
            name = spec.file_name.format(
                dataset=settings.name, split=split, index=index, count=len(cuts)
            )
            task = ConvertTask(
                name=request.target.name if request.single else name,
                split=split,
                records=sum(piece.rows for piece in pieces),
                size=sum(piece.path.stat().st_size for piece in pieces),
                source=request.source_format,
                target=request.target_format,
                pieces=pieces,
                before=rows.before,
                after=rows.after,
                exploded=rows.exploded,
                extra=rows.extra.of_shards({piece.path for piece in pieces}),
                first=first,
                verify=request.options.verify,
                stop=settings.stop,
                assumed=scanned.assumed,
            )
            tasks.append(task)
            first += task.records
    return tasks


def _cut(scans: Sequence[Scan], split: str, request: ConvertRequest) -> list[list[Piece]]:
    """Return the rows of each file of a split; all have as many."""
    rows, size = sum(scan.rows for scan in scans), sum(scan.bytes for scan in scans)
    by_size = max(1, min(rows, -(-size // request.options.shard_bytes)))
    count = 1 if request.single else request.options.shards or by_size
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
