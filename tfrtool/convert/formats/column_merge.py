"""The columns of several files of a table as one: their types, forms and shapes."""

from collections.abc import Collection, Mapping, Sequence

from tfrtool.convert.formats.record_format import Format, Scan
from tfrtool.errors import SchemaError, SourceError, conversion_error, some_of
from tfrtool.examples.arrow.columns import Column, Columns, Form
from tfrtool.examples.dtypes import FLOAT32_END, NumberRange
from tfrtool.examples.example import DType, feature_name

_ERRORS_NAMED = 3
"""Number of columns that one error names."""


def merge_columns(scans: Sequence[Scan], select: Sequence[str], *, lists: bool) -> Columns:
    """Return the columns of files that tfrtool wrote; others than the selected as they are.

    Raises:
        SchemaError: the files don't agree on a type.
    """
    kinds = {scan.content.columns.kind: scan.path for scan in reversed(scans)}
    if len(kinds) > 1:
        found = " and ".join(f"{kind.title} ({path.name})" for kind, path in kinds.items())
        raise SchemaError("the files hold different kinds of records", found=found)
    seen: dict[tuple[bool, bytes], list[tuple[Column, Scan]]] = {}
    for scan in scans:
        for one in scan.content.columns.columns:
            seen.setdefault((one.is_list, one.key), []).append((one, scan))
    merged, errors = [], dict[str, SchemaError | SourceError]()
    for (is_list, key), occurrences in seen.items():
        name = feature_name(key)
        if select and name not in select:
            merged.append(occurrences[0][0])  # only its presence counts
            continue
        forms = {one.form for one, _ in occurrences}
        forms |= set() if len(occurrences) == len(scans) else {Form.OPTIONAL}
        try:
            merged.append(_merge_column(occurrences, _form(forms, lists, is_list)))
        except SchemaError as error:
            errors[name] = error
    if errors:
        raise cast_error(errors, scans)
    return Columns(next(iter(kinds)), tuple(merged))


def cast_error(
    errors: Mapping[str, SchemaError | SourceError], scans: Sequence[Scan]
) -> SchemaError | SourceError:
    """Return the error for columns whose types have to be chosen; there is at least one."""
    if len(errors) == 1:
        return next(iter(errors.values()))
    casts = some_of([f"--cast {name}:TYPE" for name in errors], _ERRORS_NAMED, " ")
    path = scans[0].path if len(scans) == 1 else None
    reasons = [error.what for error in errors.values()]
    return conversion_error(reasons, path, f"use {casts} to choose their types")


def _merge_column(occurrences: Sequence[tuple[Column, Scan]], form: Form) -> Column:
    """Return what a column is in all files."""
    first = occurrences[0][0]
    dtypes = {one.dtype: scan.path for one, scan in reversed(occurrences) if one.dtype is not None}
    if len(dtypes) > 1:
        places = [f"{one.value} in {dtypes[one]}" for one in reversed(dtypes)]
        raise type_conflict(feature_name(first.key), "types", places)
    dtype = None if form is Form.FEATURE else next(iter(dtypes), None)
    texts = all(one.is_text for one, _ in occurrences)
    return Column(
        key=first.key,
        form=form,
        dtype=dtype,
        is_list=first.is_list,
        is_text=dtype is DType.STRING and texts,
    )


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


def type_conflict(name: str, what: str, places: Sequence[str]) -> SchemaError:
    """Return the error for a column whose types differ between files."""
    hint = f"use --cast {name}:TYPE to choose one, or --select to choose other features"
    return SchemaError(f"conflicting {what} of {name!r}: {' and '.join(places)}", hint=hint)


def merge_dtypes(
    source_format: Format,
    name: str,
    occurrences: Sequence[tuple[DType | None, Scan]],
    cast: DType | None,
) -> tuple[DType | None, str]:
    """Return the type of a column's features, and a note.

    Doubles become int64 where all of them, in all files, are whole.
    """
    total, singles = NumberRange(), False
    for dtype, scan in occurrences:
        if name in scan.numbers:
            total.merge(scan.numbers[name])
        else:
            singles |= dtype is DType.FLOAT32
    all_integral = total.seen and total.all_integral and not singles
    dtypes = {
        DType.INT64 if all_integral and one is DType.FLOAT32 else one: scan.path
        for one, scan in reversed(occurrences)
        if one is not None
    }
    places = [f"{one.value} in {dtypes[one]}" for one in reversed(dtypes)]
    try:
        chosen = cast or source_format.widest(dtypes)
    except ValueError as error:
        raise type_conflict(name, "types", places) from error
    if chosen is DType.STRING and len(dtypes) > 1 and cast is None:
        return chosen, f" becomes text: it is {' and '.join(places)}"
    if chosen is DType.INT64 and total.doubles and total.all_integral:
        return chosen, ": whole numbers become int64"
    if chosen is not DType.FLOAT32 or not total.seen:
        return chosen, ""
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
    return chosen, f": numbers become float32; {change if total.change else 'no value changes'}"
