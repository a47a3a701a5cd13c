"""What all records of some files hold together: columns, class names, images."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from tfrtool.convert.formats.convert_task import read_rows
from tfrtool.convert.formats.registry import Content, Format, Scan
from tfrtool.convert.pipeline.carried import CarriedMetadata
from tfrtool.engines.engine import Workers
from tfrtool.errors import SchemaError, SourceError, UsageError
from tfrtool.examples.arrow.columns import Column, Columns, Form
from tfrtool.examples.arrow.infer import ColumnsFold
from tfrtool.examples.dtypes import FLOAT32_END, NumberRange
from tfrtool.examples.example import DType, PayloadKind, feature_key, feature_name
from tfrtool.examples.roles import is_image
from tfrtool.examples.tfds_metadata import labels_file
from tfrtool.records.stream import total_bytes
from tfrtool.records.tally import Tally
from tfrtool.storage.progress import BYTES, Meter, OnProgress
from tfrtool.writing.job_report import Faults

_SAMPLED_FILES, _SAMPLED_ROWS = 8, 64
"""What tells whether a column has images."""

_WORTH_A_PROCESS = 64 * 1024 * 1024
"""Bytes that are scanned in the time that a process takes to start, roughly."""

_WHOLE = "--exact cannot be used together with --select or --rename"


def scan_files(
    form: Format, paths: Sequence[Path], workers: Workers, on_progress: OnProgress
) -> list[Scan]:
    """Look through files, on several workers."""
    meter = Meter(on_progress, "scanning", BYTES, total_bytes(paths))
    scans = [*form.scans(paths, workers, _WORTH_A_PROCESS, meter.add)]
    meter.finish()
    return scans


def content_of(
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


def renamed_content(content: Content, names: Mapping[str, str]) -> Content:
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
            merged.append(held[0][0])  # of which no more is asked than that it is there
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


def table_losses(scans: Sequence[Scan], content: Content) -> list[str]:
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
