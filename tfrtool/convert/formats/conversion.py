"""`tfrtool.convert`: records of one format as another."""

import os
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from tfrtool.convert.carried import CarriedMetadata
from tfrtool.convert.convert_options import ConvertOptions
from tfrtool.convert.formats.convert_task import ConvertTask, read_rows
from tfrtool.convert.formats.csv_table import CsvFormat
from tfrtool.convert.formats.format_specs import (
    FORMAT_NAMES,
    FORMATS,
    names_of_formats,
    titles_of_formats,
)
from tfrtool.convert.formats.payload_formats import PayloadFormat
from tfrtool.convert.formats.record_format import (
    Content,
    Format,
    Piece,
    Scan,
    find_format_files,
    format_of,
    format_of_files,
    format_of_name,
)
from tfrtool.convert.formats.schema_types import apply_schema, read_schema, schema_types
from tfrtool.convert.formats.single_file import check_target, write_single
from tfrtool.convert.source_records import faults_of, find_sources
from tfrtool.declare import takes
from tfrtool.engines.local_copies import local_copies
from tfrtool.engines.pool import map_shards
from tfrtool.errors import (
    SchemaError,
    SourceError,
    UsageError,
    human_count,
    some_of,
)
from tfrtool.examples.arrow.columns import Column, Columns, ColumnType, DecodedColumns, Form
from tfrtool.examples.arrow.foreign import conversion_error
from tfrtool.examples.arrow.infer import ColumnsFold
from tfrtool.examples.arrow.messages import MessageColumns
from tfrtool.examples.dtypes import FLOAT32_END, NumberRange
from tfrtool.examples.example import DType, PayloadKind, feature_key, feature_name
from tfrtool.examples.roles import is_image
from tfrtool.examples.stored_types import SCHEMA, StoredTypes
from tfrtool.examples.tfds_metadata import (
    FEATURES,
    LABEL_SIGNS,
    DatasetInfo,
    SplitInfo,
    labels_file,
)
from tfrtool.features.explode import ExplodedTable
from tfrtool.features.exploded_columns import ExplodedColumns
from tfrtool.features.feature_columns import FeatureColumns
from tfrtool.features.sources import AS_STORED, declared_features, read_features_files
from tfrtool.features.types import Struct, has_logical_types
from tfrtool.inspection.rows.batches import LABEL_NAME
from tfrtool.inspection.rows.exploded_rows import RECORD, explode_columns
from tfrtool.inspection.rows.ranking_shards import ranking_columns
from tfrtool.inspection.schema.data_schema import DataSchema
from tfrtool.records.compression import named_compression
from tfrtool.records.framing import LocatedFault
from tfrtool.records.stream import total_bytes
from tfrtool.records.tally import Tally
from tfrtool.sources.formats.csv_options import CsvOptions
from tfrtool.storage.arguments import Paths, as_path
from tfrtool.storage.json_values import to_json_values
from tfrtool.storage.progress import BYTES, Meter
from tfrtool.storage.remote_path import AnyPath
from tfrtool.writing.job import JobPlan, run_job
from tfrtool.writing.job_report import Faults, JobReport
from tfrtool.writing.run_options import (
    JobSettings,
    check_goal,
    check_shard_count,
    too_many_shards,
)

_VALUES = re.compile(r"""'[^']*'|"[^"]*"|\d[\d.e+-]*""")
"""What differs between notes that say the same of several columns."""

_NOTES_ALIKE = 3

_SAMPLED_FILES, _SAMPLED_ROWS = 8, 64
"""Number of files, and of rows in each, that show whether a column has images."""

_MIN_BYTES_PER_PROCESS = 64 * 1024 * 1024
"""Bytes that are scanned in the time that a process takes to start, roughly."""

_WHOLE = "--exact cannot be used together with --select, --rename or --cast"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvertReport:
    """Result of a conversion, or the plan of a dry run.

    Attributes:
        job: files written, and number of records read and written.
        source: name of the source format.
        target: name of the target format.
        columns: Arrow type of each column written.
        losses: what the target format can't store, one clause each.
        notes: decisions made during the conversion, one clause each.
    """

    job: JobReport
    source: str
    target: str
    columns: Mapping[str, str]
    losses: Sequence[str]
    notes: Sequence[str]

    def to_json(self) -> dict[str, Any]:
        """Return the object that ``--json`` prints."""
        details = to_json_values(
            {name: getattr(self, name) for name in ("columns", "losses", "notes")}
        )
        return {"from": self.source, "to": self.target, **self.job.to_json(), **details}


@takes(ConvertOptions)
def convert(
    source: Paths, target: str | os.PathLike[str], options: ConvertOptions
) -> ConvertReport:
    """Convert records between TFRecord, Parquet, JSON Lines, CSV and other formats.

    Splits, class names, images and the content of features.json are preserved. Memory is bounded,
    whatever the size of the data. By default, a column of doubles becomes int64 if all values are
    whole numbers, otherwise float32; whole numbers that float32 can't represent are an error.
    Records that are not Examples count as damaged if the others are Examples.

    Args:
        source: files, glob patterns and directories, one or several.
        target: directory to write to; or one file, whose extension determines the format.

    Raises:
        UsageError: an option is invalid, or the target exists.
        SchemaError: a feature has several types, or no feature matches a column or row.
        SourceError: a file can't be read, or is not what its name indicates.
        ShardError: a shard can't be read.
        WriteError: a file can't be written, or differs from the source when read back.
    """
    select, label_feature, exact = options.select or (), options.label_feature, options.exact
    folder, rename = as_path(target), dict(options.rename or {})
    check_goal(folder)
    casts = {name: ColumnType.parse(word) for name, word in (options.cast or {}).items()}
    schema = None if options.schema is None else read_schema(options, as_path(options.schema))
    found = find_sources(source, folder, partial(find_format_files, name=options.from_format))
    source_format = (
        format_of_files(found.paths)
        if options.from_format is None
        else format_of(options.from_format)
    )
    source_format = _flattening(options, source_format)
    target_format, single = _choose_target(folder, options.to, source_format)
    source_format, target_format = _with_csv(options, source_format, target_format)
    if options.index and (single or target_format.name != "tfrecord"):
        raise UsageError("--index requires a directory of TFRecord shards as TARGET")
    if options.proto is not None:
        source_format = _message_format(options, source_format, target_format)
    is_table = source_format.payloads and target_format.spec.holds == "table"
    if options.as_stored and not is_table:
        what = "--as-stored applies to records that become a table"
        raise UsageError(what)
    if options.explode is not None:
        others = ("proto", "exact", "rename", "schema", "cast")
        _check_makes_table("explode", others, options, source_format, target_format)
    stem_path = folder.with_suffix("") if single else folder
    if named_compression(stem_path) or _may_be_compressed(stem_path.name):
        stem_path = stem_path.with_suffix("")
    settings = replace(options.settings(stem_path), workers=options.pool)
    if single:
        check_target(settings, folder)
    if label_feature and target_format.spec.holds == "table":
        titles = titles_of_formats(lambda spec: spec.holds != "table")
        raise UsageError(f"--label-feature applies to {titles}, not to {target_format.name}")
    copies = local_copies(found.paths, settings.workers, settings.on_progress)
    with settings.running(), copies:
        tree_notes = list[str]()
        if is_table:
            source_format, tree_notes = _declared_format(options, source_format, found.paths)
        meter = Meter(settings.on_progress, "scanning", BYTES, total_bytes(found.paths))
        scanning = map_shards(
            partial(_scan, source_format),
            found.paths,
            settings.workers,
            _MIN_BYTES_PER_PROCESS,
            on_counts=meter.add,
        )
        scans = {scan.path: scan for scan in scanning}
        meter.finish()
        intact_rows = {path: scan.rows for path, scan in scans.items() if not scan.faults}
        faults = faults_of(found, intact_rows, stop=settings.stop)
        for path, scan in scans.items():
            for fault in scan.faults:
                faults.add(LocatedFault(path=path, fault=fault))
        before, column_notes = _content_of(
            source_format,
            [*scans.values()],
            found.folders,
            () if options.explode else tuple(select),
            options,
            schema,
            cast=casts,
        )
        before.columns.select([label_feature] if label_feature else [])
        label = label_feature or (found.info.label_feature if found.info else None)
        label = rename.get(label, label) if label else None
        after = replace(_renamed_content(before, rename), declared=True, native=None)
        label = label if label in after.columns.names else None
        is_named = target_format.spec.names_labels and (
            schema is None and (not select or LABEL_NAME in select)
        )
        after = replace(after, label=label, named=is_named)
        exploded = None
        if options.explode is not None:
            before, after, exploded = _exploded(before, options.explode, options.select)
            column_notes += exploded.notes
        payloads = source_format.payloads and target_format.payloads
        if casts and payloads:
            what = "--cast applies to tables, and neither SOURCE nor TARGET is one"
            raise UsageError(what, hint="change records with --cast of tfrtool edit")
        if not source_format.payloads:
            retained = () if target_format.payloads else before.columns.names
            column_notes += _blank_notes([*scans.values()], select, retained)
        if target_format.payloads and not source_format.payloads:
            column_notes += _stored_notes(after.columns)
        if not target_format.payloads:
            column_notes += [
                f"feature {name!r} becomes column {column!r}"
                for column, one in zip(after.columns.names, after.columns.columns, strict=False)
                if column != (name := feature_name(one.key))
            ]
        if options.verify == "bytes" and not (after.exact or payloads):
            hint = "use --exact to keep them"
            raise UsageError("--verify bytes requires payloads to compare", hint=hint)
        read, written = before, after
        pattern, losses = target_format.spec.file_name, target_format.losses(after)
        if payloads and not select and not rename and schema is None:  # they are copied as they are
            read = written = Content(columns=Columns(PayloadKind.UNKNOWN))
        else:
            losses += _table_losses([*scans.values()], after)
        if single:
            pattern = folder.name.replace("{", "{{").replace("}", "}}")
        noted = (note for scan in scans.values() for note in scan.notes)
        notes = [*dict.fromkeys((*found.notes, *noted, *tree_notes, *column_notes))]
        for text in shorten_notes([*losses, *notes]):
            options.on_note(text)
        tasks = [
            ConvertTask(
                name=pattern.format(
                    dataset=settings.name, split=split, index=index, count=len(cuts)
                ),
                split=split,
                records=sum(piece.rows for piece in pieces),
                size=sum(piece.path.stat().st_size for piece in pieces),
                source=source_format,
                target=target_format,
                pieces=pieces,
                before=read,
                after=written,
                exploded=exploded,
                first=sum(piece.rows for cut in cuts[:index] for piece in cut),
                verify=options.verify,
                stop=settings.stop,
            )
            for split, files in found.splits.items()
            for cuts in [_cut([scans[path] for path in files.shards], split, options, single)]
            for index, pieces in enumerate(cuts)
        ]
        if single and len(found.splits) > 1:
            hint = "pass a directory, and its format with --to"
            names = " and ".join(found.splits)
            raise UsageError(f"one file can't hold the splits {names}", hint=hint)

        # A schema that is there already must not give these records the types of others.
        is_typed = single and target_format.payloads and bool(StoredTypes.read([folder]).columns)

        def metadata(splits: Sequence[SplitInfo], _: Path) -> Mapping[str, str]:
            info = DatasetInfo(
                name=settings.name,
                version=settings.version,
                splits=tuple(splits),
                image_feature=next(iter(after.images), None),
                label_feature=after.label or next(iter(after.class_names), None),
            )
            texts = target_format.metadata(after, info)
            return {**texts, SCHEMA: after.to_text()} if is_typed else texts

        chosen = {
            "to": target_format.name,
            "select": list(select),
            "rename": rename,
            "cast": dict(options.cast or {}),
            "exact": exact,
            "lists": options.lists,
            "flatten": options.flatten,
            "as_stored": options.as_stored,
            "explode": options.explode and [*options.explode],
            "schema": None if schema is None else schema_types(schema),
            "label_feature": label_feature,
        }
        stats = [(str(path), path.stat()) for path in found.paths]
        inputs = [(path, status.st_size, status.st_mtime_ns) for path, status in stats]
        facts = (
            source_format.name,
            vars(source_format),
            vars(target_format),
            before,
            after,
            [task.pieces for task in tasks],
        )
        plan = JobPlan(tasks=tasks, inputs=[*inputs, facts], faults=faults)

        def run(where: JobSettings) -> JobReport:
            return run_job(where, "convert", chosen, lambda _: plan, metadata)

        has_schema = single and SCHEMA in metadata((), Path())
        job = write_single(settings, folder, run, has_schema) if single else run(settings)
    return ConvertReport(
        job=job,
        source=source_format.name,
        target=target_format.name,
        columns={one.name: str(one.type) for one in after.schema}
        | ({LABEL_NAME: "string"} if after.named_label else {}),
        losses=losses,
        notes=notes,
    )


def _scan(form: Format, path: AnyPath) -> Scan:
    try:
        return form.scan(path)
    except SchemaError as error:
        error.path = error.path or str(path)
        raise


def _flattening(options: ConvertOptions, source_format: Format) -> Format:
    """Return the format that flattens nested values, if the options do."""
    titles = titles_of_formats(lambda spec: spec.flattens)
    if options.flatten and not source_format.spec.flattens:
        raise UsageError(f"--flatten applies to {titles}, not to {source_format.name}")
    if not options.flatten:
        return source_format
    implementation: Any = type(source_format)
    flattening: Format = implementation(flatten=True)
    return flattening


def _may_be_compressed(name: str) -> bool:
    """Return whether a file of this name, which is not a shard, could have a suffix like .gz."""
    return any(
        spec.compressible and spec.holds != "payloads" and spec.file_pattern.search(name)
        for spec in FORMATS.values()
    )


def _with_csv(
    options: ConvertOptions, source_format: Format, target_format: Format
) -> tuple[Format, Format]:
    """Return formats with the options of CSV: those of CSV that is read, or else written."""
    csv = CsvOptions.take({**vars(options)})
    if source_format.name == "csv":
        return CsvFormat(csv), target_format
    if target_format.name != "csv":
        for name in csv.changed():
            raise UsageError(
                f"{name} applies to CSV, not to {source_format.name} or {target_format.name}"
            )
        return source_format, target_format
    csv_format = CsvFormat(csv)
    csv_format.check_written()
    return source_format, csv_format


def _message_format(
    options: ConvertOptions, source_format: Format, target_format: Format
) -> Format:
    """Return a format of payloads that decodes the messages of --proto."""
    others = ("exact", "lists", "rename", "schema", "cast", "label_feature")
    payloads = _check_makes_table("proto", others, options, source_format, target_format)
    return type(payloads)(MessageColumns.read(str(options.proto)))


def _check_makes_table(
    name: str,
    others: Sequence[str],
    options: ConvertOptions,
    source_format: Format,
    target_format: Format,
) -> PayloadFormat:
    """Return a format of payloads; `UsageError` if an option that makes tables doesn't fit it."""
    if not isinstance(source_format, PayloadFormat):
        titles = titles_of_formats(lambda spec: spec.holds == "payloads")
        raise UsageError(f"--{name} applies to {titles}, not to {source_format.name}")
    if target_format.spec.holds != "table":
        what = f"--{name} makes tables, and {target_format.name} is not one"
        names = names_of_formats(lambda spec: spec.holds == "table")
        raise UsageError(what, hint=f"use a table format: --to {names}")
    for other in (other for other in others if getattr(options, other)):
        what = f"--{name} and --{other.replace('_', '-')} cannot be used together"
        raise UsageError(what)
    return source_format


def _declared_format(
    options: ConvertOptions, source_format: Format, shards: Sequence[AnyPath]
) -> tuple[Format, list[str]]:
    """Return a format of payloads that decodes what is known of them, and notes.

    That is what features.json describes, or lists of Examples. Where features.json describes only
    what features hold by themselves, they are decoded as such.
    """
    if options.as_stored or not isinstance(source_format, PayloadFormat) or source_format.decoded:
        return source_format, []
    asked = [f"--{name}" for name in ("cast", "lists", "schema") if getattr(options, name)]
    described = read_features_files([*dict.fromkeys(path.parent for path in shards)]).root
    columns: DecodedColumns | None = None
    notes = list[str]()
    if described is not None:
        if not has_logical_types(described):
            return source_format, []
        if not asked:
            declared = declared_features(shards)
            columns, notes = declared.columns, [*declared.notes]  # the scan finds all others
    elif source_format.name == "tfrecord":
        columns = ranking_columns(
            shards,
            notes.append,
            exact=True,
            workers=options.pool,
            on_progress=options.on_progress,
        )
        asked += ["--exact"] if options.exact else []
        described = None if columns is None else Struct({})
    if described is not None and asked:
        return source_format, [f"with {asked[0]}, features are written as they are stored"]
    return source_format if columns is None else type(source_format)(columns), notes


def _exploded(
    content: Content, explode: Sequence[str], select: Sequence[str] | None
) -> tuple[Content, Content, ExplodedTable]:
    """Return what records are read as, the rows for their items, and how these are made."""
    columns, table = explode_columns(content.columns, explode, select or None, [RECORD])
    rows = ExplodedColumns.of_table(columns, table, content.images)
    read = replace(content, columns=columns)
    written = Content(columns=rows, images=rows.images, class_names=content.class_names)
    return read, written, table


def shorten_notes(notes: Sequence[str]) -> list[str]:
    """Return notes without those that repeat three others on further columns, and their number."""
    alike: dict[str, list[str]] = {}
    for text in notes:
        alike.setdefault(_VALUES.sub("", text), []).append(text)
    shortened = []
    for texts in alike.values():
        shortened += texts[:_NOTES_ALIKE]
        if len(texts) > _NOTES_ALIKE:
            more = human_count(len(texts) - _NOTES_ALIKE, "similar note")
            shortened.append(f"{more} on other columns; use --json to list them all")
    return shortened


def _choose_target(target: AnyPath, to: str | None, source: Format) -> tuple[Format, bool]:
    """Return the format to write, and whether the target is one file."""
    named = format_of_name(target.name)
    if named_compression(target) and named is None and not target.is_dir():
        titles = titles_of_formats(lambda spec: spec.compressible)
        hint = f"remove {target.suffix} from the name"
        raise UsageError(f"only {titles} files can be compressed", path=target, hint=hint)
    if named is not None and not target.is_dir() and to in (None, named.name):
        return format_of(named.name), True
    if to is None and source.name == "tfrecord":
        hint = f"use --to with one of {FORMAT_NAMES}"
        raise UsageError("unknown output format", path=target, hint=hint)
    return format_of(to or "tfrecord"), False


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


def _content_of(
    source_format: Format,
    scans: Sequence[Scan],
    folders: Sequence[AnyPath],
    select: Sequence[str],
    options: ConvertOptions,
    schema: DataSchema | None,
    *,
    cast: Mapping[str, ColumnType],
) -> tuple[Content, list[str]]:
    """Return what files hold together, and notes on types; of the columns the selected, or all.

    Raises:
        SchemaError: the files don't agree on a type.
        SourceError: float32 would change whole numbers, and no ``cast`` asks for it.
        UsageError: a column is selected or cast that isn't there.
    """
    known, exact, lists = [scan.content for scan in scans], options.exact, options.lists
    has_exact = not source_format.payloads and all(one.exact for one in known)
    if exact and not (source_format.payloads or has_exact):
        hint = "convert it without --exact"
        raise UsageError("--exact keeps payloads, and a table has none", hint=hint)
    if schema is not None:
        select = [spec.name for spec in schema.features]
    if exact and (select or cast):
        raise UsageError(_WHOLE)
    if any(one.declared != known[0].declared for one in known):
        raise SchemaError("some of the files have a schema next to them, others don't")
    typed = source_format.payloads or has_exact or (source_format.widening and known[0].declared)
    types = dict(cast)
    if schema is not None and not typed:
        types = {one.name: ColumnType(one.dtype) for one in schema.features if one.dtype} | types
    notes, native = list[str](), None
    if isinstance(known[0].columns, DecodedColumns):
        columns: Columns = _decoded_columns(scans, options)
        notes = _undeclared_notes(scans, columns)
    elif source_format.payloads:
        columns = _total(scans).table_columns(lists=lists)
        native = StoredTypes.read(scan.path for scan in scans).apply(columns)
        columns = _retyped(native, types)
    else:
        rows = [scan for scan in scans if scan.rows] or scans[:1]
        columns, notes = _merged(source_format, rows, select, types, lists=lists)
    cast_columns = columns.select(cast)
    if source_format.payloads and not isinstance(columns, DecodedColumns):
        _check_text_casts(cast_columns, cast)
    if LABEL_NAME not in columns.names:
        select = [name for name in select if name != LABEL_NAME]
    if schema is not None:
        columns = apply_schema(columns.select(select), schema, cast)
    native = None if native is None else _native(columns, native)
    class_names: dict[str, tuple[str, ...]] = {}
    for scan in scans:
        for name, names in scan.content.class_names.items():
            if class_names.setdefault(name, names) != names:
                what = f"its class names of {name!r} differ from those of the other files"
                raise SchemaError(what, path=scan.path)
    content = Content(
        columns=columns.select(select) if select else columns,
        exact=(exact or has_exact) and not (select or cast),
        class_names=class_names,
        class_files=known[0].class_files,
        tfds=None if select else known[0].tfds,
        declared=known[0].declared,
        native=native,
    )
    if columns.kind is not PayloadKind.EXAMPLE:
        return content, notes
    if source_format.payloads:
        carried = CarriedMetadata(folders)
        for name in _label_names(content.columns):
            files = (labels_file(name, sign) for sign in LABEL_SIGNS)
            text = next((carried.labels[one] for one in files if one in carried.labels), "")
            if text:
                lines = (line.strip() for line in text.split("\n"))
                class_names[name] = tuple(filter(None, lines))
        tfds = None if select else carried.features
        content = replace(content, class_files=carried.labels, tfds=tfds)
    return replace(content, images=_images(source_format, scans, content)), notes


def _label_names(columns: Columns) -> Sequence[str]:
    """Return the columns of whole numbers, which may have names of classes."""
    if isinstance(columns, FeatureColumns):
        return columns.numbers
    named = zip(columns.names, columns.columns, strict=True)
    return [name for name, column in named if column.dtype is DType.INT64]


def _decoded_columns(scans: Sequence[Scan], options: ConvertOptions) -> Columns:
    """Return the columns of files that hold the same messages or the same tree of features.

    Raises:
        SchemaError: they hold different ones.
        UsageError: an option that applies to features alone.
    """
    first = scans[0]
    for scan in scans:
        if scan.content.columns != first.content.columns:
            what = f"its columns are not those of {first.path.name}"
            raise SchemaError(what, path=scan.path)
    for name in ("cast", "lists", "schema"):
        if getattr(options, name):
            hint = "use --as-stored when you make the table"
            raise UsageError(f"--{name} doesn't apply to nested columns", hint=hint)
    return first.content.columns


def _undeclared_notes(scans: Sequence[Scan], columns: Columns) -> list[str]:
    """Return a note on features that features.json doesn't describe, and no column has."""
    total = _total(scans)
    if not isinstance(columns, FeatureColumns) or columns.kind is not PayloadKind.EXAMPLE:
        return []
    known = {column.key for column in columns.stored.columns}
    others = [feature.name for feature in total.features() if feature.key not in known]
    if not others:
        return []
    what = f"{human_count(len(others), 'feature')} not in {FEATURES}: {some_of(others, 3)}"
    return [f"not converted: {what}; {AS_STORED}"]


def _retyped(columns: Columns, types: Mapping[str, ColumnType]) -> Columns:
    """Return columns with some other types."""
    columns.select(types)
    if types and columns.kind is not PayloadKind.EXAMPLE:
        raise UsageError(f"--cast applies to tf.train.Examples, not to {columns.kind.title}")
    changed = []
    for name, column in zip(columns.names, columns.columns, strict=False):
        if name in types and column.dtype is None:
            hint = "change records with --cast of tfrtool edit"
            raise UsageError(f"feature {name!r} has several types", hint=hint)
        changed.append(_cast_column(name, column, types[name]) if name in types else column)
    return replace(columns, columns=tuple(changed))


def _cast_column(name: str, column: Column, target: ColumnType) -> Column:
    """Return a column with another type; `UsageError` if it has that type already."""
    changed = target.of(column)
    is_bytes = column.dtype is DType.STRING and not column.is_text  # which is another error
    if changed == column and not is_bytes:
        what = f"--cast changes nothing: column {name!r} is {target.logical or column.value_type}"
        raise UsageError(what, hint="convert it without the cast")
    return changed


def _check_text_casts(columns: Columns, cast: Mapping[str, ColumnType]) -> None:
    """Raise a `SchemaError` if bytes that are not text would be cast to string."""
    pairs = zip(columns.names, columns.columns, strict=False)
    text = ColumnType(DType.STRING)
    names = [n for n, one in pairs if cast.get(n) == text and one.dtype and not one.is_text]
    for name in names[:1]:
        what = f"column {name!r} can't be cast to string: some of its values are not UTF-8 text"
        raise SchemaError(what, hint="without the cast, its bytes are kept as they are")


def _native(columns: Columns, native: Columns) -> Columns | None:
    """Return columns with their types before a cast; None if these are the same."""
    known = {(one.key, one.is_list): one for one in native.columns}
    found = []
    for one in columns.columns:
        original = known[one.key, one.is_list]
        shape = original.shape if one.form is Form.LIST else ()
        found.append(
            one if original.dtype is None else replace(original, form=one.form, shape=shape)
        )
    uncast = replace(columns, columns=tuple(found))
    return None if uncast == columns else uncast


def _blank_notes(
    scans: Sequence[Scan], select: Collection[str], retained: Collection[str]
) -> list[str]:
    """Return notes on columns without values that aren't kept, a clause each."""
    blank = {scan.path: {*scan.blank} for scan in scans}
    valued = {n for scan in scans for n in scan.content.columns.names if n not in blank[scan.path]}
    skipped = dict.fromkeys(name for scan in scans for name in scan.blank if name not in valued)
    names = (name for name in skipped if name not in retained and (not select or name in select))
    return [f"column {name!r} has no values; skipped" for name in names]


def _stored_notes(columns: Columns) -> list[str]:
    """Return how records store values of other types, a clause each."""
    notes = []
    for name, column in zip(columns.names, columns.columns, strict=False):
        if column.logical:
            form = "int64, in microseconds" if column.dtype is DType.INT64 else "text"
            notes.append(f"column {name!r}: {column.logical.partition('(')[0]}s become {form}")
        if len(column.shape) > 1 or column.shape > (0,):
            notes.append(f"column {name!r}: tensors become flat lists, in row-major order")
    return notes


def _renamed_content(content: Content, names: Mapping[str, str]) -> Content:
    """Return content whose columns have other names; `UsageError` if that can't be."""
    if not names:
        return content
    if content.exact:
        raise UsageError(_WHOLE)
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


def _merged(
    source_format: Format,
    scans: Sequence[Scan],
    select: Sequence[str],
    cast: Mapping[str, ColumnType],
    *,
    lists: bool,
) -> tuple[Columns, list[str]]:
    """Return the columns of the files of a table, and notes."""
    kinds = {scan.content.columns.kind: scan.path for scan in reversed(scans)}
    if len(kinds) > 1:
        found = " and ".join(f"{kind.title} ({path.name})" for kind, path in kinds.items())
        raise SchemaError("the files hold different kinds of records", found=found)
    seen: dict[tuple[bool, bytes], list[tuple[Column, Scan]]] = {}
    for scan in scans:
        for one in scan.content.columns.columns:
            seen.setdefault((one.is_list, one.key), []).append((one, scan))
    merged, notes, errors = [], list[str](), dict[str, SchemaError | SourceError]()
    for (is_list, key), occurrences in seen.items():
        name = feature_name(key)
        if select and name not in select:
            merged.append(occurrences[0][0])  # only its presence counts
            continue
        forms = {one.form for one, _ in occurrences}
        forms |= set() if len(occurrences) == len(scans) else {Form.OPTIONAL}
        shape = _form(forms, lists, is_list)
        try:
            chosen = cast.get(name)
            dtype, note = _dtype(source_format, name, occurrences, chosen)
            logical, sizes = _logical(name, occurrences, chosen), _shape(name, occurrences, chosen)
        except (SchemaError, SourceError) as error:
            errors[name] = error
            continue
        if shape is Form.FEATURE:
            dtype = None
        elif note:
            notes.append(f"column {name!r}{note}")
        texts = (one.is_text or one.dtype is not DType.STRING for one, _ in occurrences)
        text = dtype is DType.STRING and all(texts)
        merged.append(
            Column(
                key=key,
                form=shape,
                dtype=dtype,
                is_list=is_list,
                is_text=text,
                logical=logical if dtype else None,
                shape=sizes if shape is Form.LIST else (),
            )
        )
    if len(errors) > 1:
        names = some_of([f"--cast {name}:TYPE" for name in errors], _NOTES_ALIKE, " ")
        hint = f"use {names} to choose their types"
        path = scans[0].path if len(scans) == 1 else None
        raise conversion_error([error.what for error in errors.values()], path, hint)
    if errors:
        raise next(iter(errors.values()))
    return Columns(next(iter(kinds)), tuple(merged)), notes


def _form(forms: Collection[Form], lists: bool, is_list: bool) -> Form:
    """Return the form that holds all that columns of these forms hold."""
    for wider in (Form.FEATURE, Form.LIST):
        if wider in forms:
            return wider
    if is_list:
        return Form.SCALAR
    optional = {*forms} - {Form.SCALAR}
    if (lists and optional == {Form.OPTIONAL}) or optional == {Form.OPTIONAL, Form.EMPTY}:
        return Form.LIST
    return Form.FEATURE if len(optional) > 1 else next(iter(optional or forms))


def _logical(
    name: str, occurrences: Sequence[tuple[Column, Scan]], cast: ColumnType | None
) -> str | None:
    """Return the word for times or decimals in a column, if it has these."""
    words = {one.logical: (one, scan.path) for one, scan in reversed(occurrences)}
    if len(words) > 1 and cast is None:
        types = ((one.logical or one.dtype, path) for one, path in reversed(words.values()))
        places = [f"{getattr(one, 'value', one)} in {path}" for one, path in types]
        raise _conflict(name, "types", places)
    word = next(iter(words))
    same = cast is None or (cast.logical == "timestamp" and (word or "").startswith("timestamp"))
    return word if same or cast is None else cast.logical


def _conflict(name: str, what: str, places: Sequence[str]) -> SchemaError:
    """Return the error for a column whose types differ between files."""
    hint = f"use --cast {name}:TYPE to choose one, or --select to choose other features"
    return SchemaError(f"conflicting {what} of {name!r}: {' and '.join(places)}", hint=hint)


def _shape(
    name: str, occurrences: Sequence[tuple[Column, Scan]], cast: ColumnType | None
) -> tuple[int, ...]:
    """Return the shape of the tensors in a column; a cast makes lists of them."""
    if cast is not None:
        return next((one.shape[:1] and (-1,) for one, _ in occurrences), ())
    shapes = {
        one.shape or (-1,): scan.path
        for one, scan in reversed(occurrences)
        if one.form is Form.LIST
    }
    levels = [{*sizes} - {0} for sizes in zip(*shapes, strict=False)]
    if len({*map(len, shapes)}) > 1 or any(len(sizes) > 1 for sizes in levels[1:]):
        places = [f"{[*shape]} in {path}" for shape, path in reversed(shapes.items())]
        raise _conflict(name, "shapes", places)
    if not all(levels):
        return ()
    shape = tuple(-1 if len(sizes) > 1 else next(iter(sizes)) for sizes in levels)
    return shape if any(one.shape for one, _ in occurrences) else ()


def _dtype(
    source_format: Format,
    name: str,
    occurrences: Sequence[tuple[Column, Scan]],
    chosen: ColumnType | None,
) -> tuple[DType | None, str]:
    """Return the type of a column, and a note.

    Doubles become int64 where all of them, in all files, are whole.
    """
    total, singles, cast = NumberRange(), False, None if chosen is None else chosen.dtype
    for column, scan in occurrences:
        if name in scan.numbers:
            total.merge(scan.numbers[name])
        else:
            singles |= column.dtype is DType.FLOAT32
    all_integral = total.seen and total.all_integral and not singles
    dtypes = {
        DType.INT64 if all_integral and one.dtype is DType.FLOAT32 else one.dtype: scan.path
        for one, scan in reversed(occurrences)
        if one.dtype is not None
    }
    places = [f"{one.value} in {dtypes[one]}" for one in reversed(dtypes)]
    try:
        dtype = cast or source_format.widest(dtypes)
    except ValueError as error:
        raise _conflict(name, "types", places) from error
    if dtype is DType.STRING and len(dtypes) > 1 and cast is None:
        return dtype, f" becomes text: it is {' and '.join(places)}"
    if dtype is DType.INT64 and total.doubles and total.all_integral:
        return dtype, ": whole numbers become int64"
    if dtype is not DType.FLOAT32 or not total.seen:
        return dtype, ""
    for _, scan in occurrences if cast is None else ():
        wide = scan.numbers[name].wide if name in scan.numbers else None
        if wide is not None:
            row, value = wide
            rounds = f"--cast {name}:float32 to round it, or " if abs(value) < FLOAT32_END else ""
            raise SourceError(
                f"column {name!r} would become float32, which can't hold {value!r}",
                path=scan.path,
                record=row,
                hint=f"use {rounds}--cast {name}:string to keep its digits",
            )
    change = f"the largest relative change is {total.change:.3g}"
    return dtype, f": numbers become float32; {change if total.change else 'no value changes'}"


def _total(scans: Sequence[Scan]) -> ColumnsFold:
    total = ColumnsFold()
    for scan in scans:
        total.merge(scan.fold)
    return total


def _table_losses(scans: Sequence[Scan], content: Content) -> list[str]:
    """Return what no table has of files of payloads, a clause each."""
    total, columns = _total(scans), content.columns.columns
    others = total.kinds[PayloadKind.EVENT] + total.kinds[PayloadKind.UNKNOWN]
    losses = []
    if others and content.columns.parsed:
        losses.append(f"records that are not Examples: {others:,}")
    if total.skipped and len(columns) == len(total.columns().columns):  # all that there are
        losses.append(f"features beyond the first {len(columns):,}")
    return losses


def _images(source_format: Format, scans: Sequence[Scan], content: Content) -> tuple[str, ...]:
    """Return the columns that have an encoded image in each of the first records of some files."""
    names, seen = [], set[str]()
    if isinstance(content.columns, FeatureColumns):
        return content.columns.images
    for name, column in zip(content.columns.names, content.columns.columns, strict=True):
        is_bytes = column.dtype is DType.STRING and not column.is_text and column.form.is_single
        names += [name] if is_bytes else []
    for scan in [scan for scan in scans if scan.rows][:_SAMPLED_FILES] if names else ():
        piece = scan.piece(0, min(scan.rows, _SAMPLED_ROWS))
        chosen = replace(content, columns=content.columns.select(names), exact=False)
        for batch in read_rows(source_format, [piece], chosen, Tally(), Faults()):
            values = {one: batch.column(one).drop_null().to_pylist() for one in names}
            names = [one for one in names if all(map(is_image, values[one]))]
            seen |= {one for one in names if values[one]}
    return tuple(one for one in names if one in seen)
