"""`tfrtool.convert`: records of one format as another."""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from tfrtool.convert.carried import CarriedMetadata
from tfrtool.convert.formats.convert_task import ConvertTask, VerifyMode, read_rows
from tfrtool.convert.formats.registry import (
    NAMES,
    Content,
    Format,
    Piece,
    Scan,
    format_of,
    format_of_files,
    look_for,
)
from tfrtool.convert.formats.text_formats import SCHEMA, CsvFormat
from tfrtool.convert.source_records import faults_of, find_sources
from tfrtool.engines.engine import Workers
from tfrtool.errors import (
    SchemaError,
    SourceError,
    UsageError,
    WriteError,
    human_count,
    os_errors_as,
)
from tfrtool.examples.arrow.columns import Column, Columns, Form
from tfrtool.examples.arrow.infer import ColumnsFold
from tfrtool.examples.dtypes import FLOAT32_END, NumberRange
from tfrtool.examples.example import DType, PayloadKind, feature_key, feature_name
from tfrtool.examples.roles import is_image
from tfrtool.examples.tfds_metadata import DatasetInfo, SplitInfo, labels_file
from tfrtool.records.compression import named_compression
from tfrtool.records.framing import LocatedFault
from tfrtool.records.stream import total_bytes
from tfrtool.records.tally import Tally
from tfrtool.storage.arguments import Paths, as_member, as_path, make_options
from tfrtool.storage.atomic_files import move, new_file_by_name
from tfrtool.storage.json_values import to_json_values
from tfrtool.storage.progress import BYTES, Meter, OnProgress
from tfrtool.writing.job import JobPlan, MetadataOf, run_job
from tfrtool.writing.job_report import Faults, JobReport
from tfrtool.writing.job_settings import JobSettings, SizeSettings, too_many_shards
from tfrtool.writing.write_options import Existing, check_goal, check_shard_count

_VALUES = re.compile(r"""'[^']*'|"[^"]*"|\d[\d.e+-]*""")
"""What differs between notes that say the same of several columns."""

_NOTES_ALIKE = 3

_AS_LARGE = ("tfrecord", "webdataset")
"""Formats whose files are about as large as what their rows hold."""

_SAMPLED_FILES, _SAMPLED_ROWS = 8, 64
"""Number of files, and of rows in each, that show whether a column has images."""

_WORTH_A_PROCESS = 64 * 1024 * 1024
"""Bytes that are scanned in the time that a process takes to start, roughly."""

_WHOLE = "--exact cannot be used together with --select or --rename"


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
        facts = to_json_values(self) | self.job.to_json()
        return {"from": facts.pop("source"), "to": facts.pop("target"), **facts}


def convert(
    source: Paths,
    target: str | os.PathLike[str],
    *,
    to: str | None = None,
    from_format: str | None = None,
    select: Sequence[str] = (),
    rename: Mapping[str, str] | None = None,
    cast: Mapping[str, str] | None = None,
    label_feature: str | None = None,
    delimiter: str | None = None,
    exact: bool = False,
    verify: str | VerifyMode = VerifyMode.VALUES,
    on_note: Callable[[str], None] = lambda _: None,
    **options: Any,
) -> ConvertReport:
    """Convert records between TFRecord, Parquet, JSON Lines, CSV and other formats.

    Splits, class names, images and the content of features.json are preserved. Memory is bounded,
    whatever the size of the data.

    Args:
        source: files, glob patterns and directories, one or several.
        target: directory to write to; or one file, whose extension determines the format.
        to: format to write. None derives it from the name of the target; tables become TFRecord.
        from_format: format to read. None detects it from names and content.
        select: columns to keep. An empty sequence keeps all of them.
        rename: mapping of old to new column names.
        cast: mapping of column names of a table to "int64", "float32" or "string". By default, a
            column of doubles becomes int64 if all values are whole numbers, otherwise float32;
            whole numbers that float32 can't represent are an error.
        label_feature: column with the label, for ``.cls`` of WebDataset and for dataset_info.json.
            None uses the one in the metadata, or one with a common name.
        delimiter: column separator of CSV, or "tab". None detects comma, semicolon, tab or ``|``.
        exact: whether to add a column ``_payload`` with the original bytes of each payload.
        verify: what to read back and compare with the source: "none", "values" or "bytes".
        on_note: called with each loss and note before anything is written.
        **options: options of `tfrtool.reshard` except ``compression``. Records that are not
            Examples count as damaged if the others are Examples.

    Raises:
        UsageError: an option is invalid, or the target exists.
        SchemaError: a feature has several types, or no feature matches a column or row.
        SourceError: a file can't be read, or is not what its name indicates.
        ShardError: a shard can't be read.
        WriteError: a file can't be written, or differs from the source when read back.
    """
    folder = as_path(target)
    check_goal(folder)
    verify_mode = as_member(VerifyMode, verify, "verify")
    casts = {name: as_member(DType, word, "cast") for name, word in (cast or {}).items()}
    found = find_sources(source, folder, partial(look_for, name=from_format))
    form = format_of_files(found.paths) if from_format is None else format_of(from_format)
    if delimiter is not None:
        if form.name != "csv":
            raise UsageError(f"--delimiter applies to CSV, not to {form.name}")
        form = CsvFormat(delimiter)
    goal, single = _goal(folder, to, form)
    own = folder.with_suffix("") if single else folder
    own = own.with_suffix("") if named_compression(own) else own
    settings = make_options(SizeSettings, folder=own, **options)
    if label_feature and not (goal.payloads or goal.name == "webdataset"):
        known = "TFRecord, ArrayRecord and WebDataset"
        raise UsageError(f"--label-feature applies to {known}, not to {goal.name}")
    with settings.running():
        scans = _scan_files(form, found.paths, settings.workers, settings.on_progress)
        whole = {scan.path: scan.rows for scan in scans if not scan.faults}
        faults = faults_of(found, whole, stop=settings.stop)
        for scan in scans:
            for fault in scan.faults:
                faults.add(LocatedFault(path=scan.path, fault=fault))
        before, said = _content_of(
            form, scans, found.folders, tuple(select), exact=exact, cast=casts
        )
        before.columns.select([label_feature] if label_feature else [])
        label = label_feature or (found.info.label_feature if found.info else None)
        label = (rename or {}).get(label, label) if label else None
        after = replace(_renamed_content(before, rename or {}), declared=True)
        after = replace(after, label=label if label in after.columns.names else None)
        payloads = form.payloads and goal.payloads
        if verify_mode is VerifyMode.BYTES and not (after.exact or payloads):
            raise UsageError(
                "--verify bytes requires payloads to compare", hint="use --exact to keep them"
            )
        read, written, pattern, losses = before, after, goal.file_name, goal.losses(after)
        if payloads and not select and not rename:  # they are copied as they are
            read = written = Content(columns=Columns(PayloadKind.UNKNOWN))
        else:
            losses += _table_losses(scans, after)
        if single:
            pattern = folder.name.replace("{", "{{").replace("}", "}}")
        notes = dict.fromkeys((*found.notes, *(one for scan in scans for one in scan.notes), *said))
        for text in shorten_notes([*losses, *notes]):
            on_note(text)
        of_path = {scan.path: scan for scan in scans}
        parts = {
            name: [of_path[path] for path in files.shards] for name, files in found.splits.items()
        }
        tasks = [
            ConvertTask(
                name=pattern.format(
                    dataset=settings.name, split=split, index=index, count=len(cuts)
                ),
                split=split,
                records=sum(piece.rows for piece in pieces),
                size=sum(piece.path.stat().st_size for piece in pieces),
                room=sum(_room_of(piece, of_path[piece.path], form) for piece in pieces)
                if goal.name in _AS_LARGE and not select
                else 0,
                source=form,
                target=goal,
                pieces=pieces,
                before=read,
                after=written,
                verify=verify_mode,
                stop=settings.stop,
            )
            for split, cuts in _files(parts, single, settings.shards, settings.shard_bytes).items()
            for index, pieces in enumerate(cuts)
        ]

        def metadata(splits: Sequence[SplitInfo], _: Path) -> Mapping[str, str]:
            info = DatasetInfo(
                name=settings.name,
                version=settings.version,
                splits=tuple(splits),
                image_feature=next(iter(after.images), None),
                label_feature=after.label or next(iter(after.class_names), None),
            )
            return goal.metadata(after, info)

        chosen = {
            "to": goal.name,
            "select": list(select),
            "rename": dict(rename or {}),
            "cast": {name: one.value for name, one in casts.items()},
            "exact": exact,
            "label_feature": label_feature,
        }
        stats = [(str(path), path.stat()) for path in found.paths]
        inputs = [(path, status.st_size, status.st_mtime_ns) for path, status in stats]
        facts = (form.name, vars(form), before, after, [task.pieces for task in tasks])
        plan = JobPlan(tasks=tasks, inputs=[*inputs, facts], faults=faults)
        job = _run(settings, folder, chosen, plan, metadata, single=single)
    return ConvertReport(
        job=job,
        source=form.name,
        target=goal.name,
        columns={one.name: str(one.type) for one in after.schema},
        losses=losses,
        notes=tuple(notes),
    )


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


def _goal(target: Path, to: str | None, source: Format) -> tuple[Format, bool]:
    """Return the format to write, and whether the target is one file."""
    forms = [*map(format_of, NAMES)]
    named = next((one for one in forms if one.own_names.search(target.name)), None)
    if named_compression(target) and named is None and not target.is_dir():
        what = "only TFRecord files can be compressed"
        raise UsageError(what, path=target, hint=f"remove {target.suffix} from the name")
    if named is not None and not target.is_dir() and to in (None, named.name):
        return named, True
    if to is None and source.name == "tfrecord":
        hint = f"use --to with one of {', '.join(NAMES)}"
        raise UsageError("unknown output format", path=target, hint=hint)
    return format_of(to or "tfrecord"), False


def _files(
    splits: Mapping[str, Sequence[Scan]], single: bool, shards: int | None, shard_bytes: int
) -> dict[str, list[list[Piece]]]:
    """Return the rows of each file to write, by split; files of a split have as many each."""
    if single and len(splits) > 1:
        hint = "pass a directory, and its format with --to"
        raise UsageError(f"one file can't hold the splits {' and '.join(splits)}", hint=hint)
    files: dict[str, list[list[Piece]]] = {}
    for split, own in splits.items():
        rows, size = sum(scan.rows for scan in own), sum(scan.bytes for scan in own)
        count = 1 if single else shards or max(1, min(rows, -(-size // shard_bytes)))
        if count > max(rows, 1):
            raise too_many_shards(count, split, rows)
        check_shard_count(count)
        bounds = [round(rows * index / count) for index in range(count + 1)]  # as TFDS does it
        files[split] = [[] for _ in range(count)]
        first = 0
        for scan in own:
            for pieces, (start, stop) in zip(files[split], pairwise(bounds), strict=True):
                low, high = max(start - first, 0), min(stop - first, scan.rows)
                pieces += [scan.piece(low, high - low)] if low < high else []
            first += scan.rows
    return files


def _room_of(piece: Piece, scan: Scan, form: Format) -> int:
    """Return about how many bytes rows take that are written in a format without compression."""
    size = scan.bytes if form.payloads else min(scan.bytes, piece.path.stat().st_size)
    return size * piece.rows // max(scan.rows, 1)


def _run(
    settings: JobSettings,
    path: Path,
    facts: Mapping[str, Any],
    plan: JobPlan,
    metadata: MetadataOf,
    *,
    single: bool,
) -> JobReport:
    """Run the job. A single file is written in a private folder, and moved out of it."""
    if not single:
        return run_job(settings, "convert", facts, lambda _: plan, metadata)
    if settings.existing is Existing.RESUME:
        raise UsageError(
            "--resume does not apply to one file", path=path, hint="use --overwrite to replace it"
        )
    schema = path.with_name(f"{path.stem}.{SCHEMA}")
    if settings.existing is Existing.REFUSE:
        # A schema may be that of another table: rows.jsonl has the one of rows.csv.
        for place in (path, *([schema] if facts["to"] in ("jsonl", "csv") else [])):
            if place.exists() or place.is_symlink():
                hint = "use --overwrite to replace it"
                raise UsageError("already exists", path=place, hint=hint)
    if settings.dry_run:
        return replace(run_job(settings, "convert", facts, lambda _: plan, metadata), dataset=path)
    with os_errors_as(WriteError, path, "can't be written"), new_file_by_name(path) as file:
        inside = replace(settings, folder=file.parent)
        job = run_job(inside, "convert", facts, lambda _: plan, metadata)
        if SCHEMA in job.metadata:
            with new_file_by_name(schema) as schema_file:
                move(file.with_name(SCHEMA), schema_file)
    return replace(job, dataset=path)


def _scan_files(
    form: Format, paths: Sequence[Path], workers: Workers, on_progress: OnProgress
) -> list[Scan]:
    """Look through files, on several workers."""
    meter = Meter(on_progress, "scanning", BYTES, total_bytes(paths))
    scans = [*form.scans(paths, workers, _WORTH_A_PROCESS, meter.add)]
    meter.finish()
    return scans


def _content_of(
    form: Format,
    scans: Sequence[Scan],
    folders: Sequence[Path],
    select: Sequence[str],
    *,
    exact: bool,
    cast: Mapping[str, DType],
) -> tuple[Content, list[str]]:
    """Return what files hold together, and notes on types; of the columns the selected, or all.

    TFDS' files in the ``folders`` describe payloads.

    Raises:
        SchemaError: the files don't agree on a type.
        SourceError: float32 would change whole numbers, and no ``cast`` asks for it.
        UsageError: a column is selected or cast that isn't there.
    """
    known = [scan.content for scan in scans]
    kept = not form.payloads and all(one.exact for one in known)
    if exact and not (form.payloads or kept):
        raise UsageError(
            "--exact keeps payloads, and a table has none", hint="convert it without --exact"
        )
    if exact and select:
        raise UsageError(_WHOLE)
    if any(one.declared != known[0].declared for one in known):
        raise SchemaError("some of the files have a schema next to them, others don't")
    if cast and (form.payloads or kept or (form.widening and known[0].declared)):
        what = "--cast applies to tables without a schema, and these records have types"
        raise UsageError(what, hint="change them with --cast of tfrtool edit")
    some = [scan for scan in scans if scan.rows] or scans[:1]
    columns, changes, notes = _merged(form, some, select, cast)
    columns.select(cast)
    content = Content(
        columns=columns.select(select) if select else columns,
        exact=(exact or kept) and not select,
        class_names=_class_names(scans),
        class_files=known[0].class_files,
        tfds=None if select else known[0].tfds,
        declared=known[0].declared,
        changes=changes,
    )
    if columns.kind is not PayloadKind.EXAMPLE:
        return content, notes
    if form.payloads:
        content = _described(content, folders, whole=not select)
    return replace(content, images=_images(form, scans, content)), notes


def _renamed_content(content: Content, names: Mapping[str, str]) -> Content:
    """Return content whose columns have other names; `UsageError` if that can't be."""
    if not names:
        return content
    if content.exact:
        raise UsageError(_WHOLE)
    content.columns.select(names)
    new = {name: names.get(name, name) for name in content.columns.names}
    columns = [
        replace(one, key=feature_key(names[name])) if name in names else one
        for name, one in zip(new, content.columns.columns, strict=True)
    ]
    try:
        made = Columns(content.columns.kind, tuple(columns))
    except ValueError as error:
        raise UsageError("--rename gives two columns the same name") from error
    return replace(
        content,
        columns=made,
        class_names={new[name]: some for name, some in content.class_names.items() if name in new},
        images=tuple(new[name] for name in content.images),
        changes={},
        tfds=None,
    )


def _merged(
    form: Format, scans: Sequence[Scan], select: Sequence[str], cast: Mapping[str, DType]
) -> tuple[Columns, dict[str, float], list[str]]:
    """Return the columns of files, the relative changes of numbers, and notes."""
    kinds = {scan.content.columns.kind: scan.path for scan in reversed(scans)}
    seen: dict[tuple[bool, bytes], list[tuple[Column, Scan]]] = {}
    for scan in scans:
        for one in scan.content.columns.columns:
            seen.setdefault((one.is_list, one.key), []).append((one, scan))
    merged, changes, notes = [], dict[str, float](), list[str]()
    for (is_list, key), held in seen.items():
        name = feature_name(key)
        if select and name not in select:
            merged.append(held[0][0])  # only its presence counts
            continue
        forms = {one.form for one, _ in held} | ({Form.LIST} if len(held) < len(scans) else set())
        shape = max(forms, key=[Form.SCALAR, Form.LIST, Form.FEATURE].index)
        dtype, change, said = _dtype(form, name, held, cast.get(name))
        if shape is Form.FEATURE:
            dtype = None
        else:
            notes += said
            changes |= {name: change} if change else {}
        merged.append(Column(key=key, form=shape, dtype=dtype, is_list=is_list))
    if form.payloads:
        return _total(scans).columns(), {}, []
    if len(kinds) > 1:
        found = " and ".join(f"{kind.title} ({path.name})" for kind, path in kinds.items())
        raise SchemaError("the files hold different kinds of records", found=found)
    return Columns(next(iter(kinds)), tuple(merged)), changes, notes


def _dtype(
    form: Format, name: str, held: Sequence[tuple[Column, Scan]], cast: DType | None
) -> tuple[DType | None, float, list[str]]:
    """Return the type of a column, the largest relative change of its numbers, and notes.

    Doubles become int64 where all of them, in all files, are whole.
    """
    total, singles = NumberRange(), False
    for one, scan in held:
        if name in scan.numbers:
            total.merge(scan.numbers[name])
        elif one.dtype is DType.FLOAT32:
            singles = True
    whole = total.seen and total.whole and not singles
    dtypes = {
        DType.INT64 if whole and one.dtype is DType.FLOAT32 else one.dtype: scan.path
        for one, scan in reversed(held)
        if one.dtype is not None
    }
    dtype = cast
    if cast is None:
        try:
            dtype = form.widest(dtypes)
        except ValueError as error:
            places = " and ".join(f"{one.value} in {dtypes[one]}" for one in reversed(dtypes))
            hint = "--select to choose other features"
            hint = (
                f"use {hint}"
                if form.payloads
                else f"use --cast {name}:TYPE to choose one, or {hint}"
            )
            what = f"conflicting types of {name!r}: {places}"
            raise SchemaError(what, hint=hint) from error
    if dtype is DType.STRING and len(dtypes) > 1 and cast is None:
        places = " and ".join(f"{one.value} in {dtypes[one]}" for one in reversed(dtypes))
        return dtype, 0.0, [f"column {name!r} becomes text: it is {places}"]
    if dtype is DType.INT64 and total.doubles and total.whole:
        return dtype, 0.0, [f"column {name!r}: whole numbers become int64"]
    if dtype is not DType.FLOAT32 or not total.seen:
        return dtype, 0.0, []
    for _, scan in held:
        wide = scan.numbers[name].wide if name in scan.numbers else None
        if wide is not None and cast is None:
            row, value = wide
            rounds = f"--cast {name}:float32 to round it, or " if abs(value) < FLOAT32_END else ""
            raise SourceError(
                f"column {name!r} would become float32, which can't hold {value!r}",
                path=scan.path,
                record=row,
                hint=f"use {rounds}--cast {name}:string to keep its digits",
            )
    said = f"the largest relative change is {total.change:.3g}"
    said = said if total.change else "no value changes"
    return dtype, total.change, [f"column {name!r}: numbers become float32; {said}"]


def _total(scans: Sequence[Scan]) -> ColumnsFold:
    total = ColumnsFold()
    for scan in scans:
        total.merge(scan.fold)
    return total


def _table_losses(scans: Sequence[Scan], content: Content) -> list[str]:
    """Return what no table has of files of payloads, a clause each."""
    total, held = _total(scans), content.columns.columns
    odd = total.kinds[PayloadKind.EVENT] + total.kinds[PayloadKind.UNKNOWN]
    losses = [f"records that are not Examples: {odd:,}"] if odd and content.columns.parsed else []
    if total.skipped and len(held) == len(total.columns().columns):  # all that there are
        losses.append(f"features beyond the first {len(held):,}")
    return losses


def _class_names(scans: Sequence[Scan]) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for scan in scans:
        for name, names in scan.content.class_names.items():
            if found.setdefault(name, names) != names:
                what = f"its class names of {name!r} differ from those of the other files"
                raise SchemaError(what, path=scan.path)
    return found


def _described(content: Content, folders: Sequence[Path], *, whole: bool) -> Content:
    """Add what TFDS' files say in folders of shards."""
    carried = CarriedMetadata(folders)
    found = {}
    for name, one in zip(content.columns.names, content.columns.columns, strict=True):
        text = carried.labels.get(labels_file(name), "")
        if one.dtype is DType.INT64 and text:
            found[name] = tuple(line.strip() for line in text.split("\n") if line.strip())
    return replace(
        content,
        class_names=found,
        class_files=carried.labels,
        tfds=carried.features if whole else None,
    )


def _images(form: Format, scans: Sequence[Scan], content: Content) -> tuple[str, ...]:
    """Return the columns that have an encoded image in each of the first records of some files."""
    names, seen = [], False
    for name, one in zip(content.columns.names, content.columns.columns, strict=True):
        names += [name] if one.form is Form.SCALAR and one.dtype is DType.STRING else []
    for scan in [scan for scan in scans if scan.rows][:_SAMPLED_FILES] if names else ():
        piece = scan.piece(0, min(scan.rows, _SAMPLED_ROWS))
        chosen = replace(content, columns=content.columns.select(names), exact=False)
        for batch in read_rows(form, piece, chosen, Tally(), Faults()):
            names = [one for one in names if all(map(is_image, batch.column(one).to_pylist()))]
            seen = True
    return tuple(names) if seen else ()
