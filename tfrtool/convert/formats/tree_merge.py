"""The trees of several tables as one: a field has the type that holds its values in all files."""

from bisect import bisect_left
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from tfrtool.convert.formats.record_format import Format, Scan
from tfrtool.errors import SchemaError, SourceError, UsageError, conversion_error, some_of
from tfrtool.examples.dtypes import FLOAT32_END, NumberRange
from tfrtool.examples.example import DType, PayloadKind
from tfrtool.examples.fields import (
    Encoding,
    Field,
    Kind,
    ListOf,
    Null,
    Struct,
    Values,
    field_at,
    join,
    tree_json,
)
from tfrtool.features.arrow_tree import check_stored, list_key, with_tensors
from tfrtool.features.feature_columns import FeatureColumns
from tfrtool.features.flat_fields import tree_of_flat
from tfrtool.features.stored_layout import stored_dtype
from tfrtool.storage.remote_path import AnyPath

_ERRORS_NAMED = 3
"""Number of columns that one error names."""


class _Seen(NamedTuple):
    """A field in a file."""

    item: Field
    scan: Scan


def merge_trees(
    source_format: Format,
    scans: Sequence[Scan],
    select: Collection[str],
    casts: Mapping[str, Values],
    *,
    lists: bool,
) -> tuple[FeatureColumns, list[str]]:
    """Return the columns of the files of a table, and notes; others than the selected as they are.

    Raises:
        SchemaError: the files don't agree on a type, or no feature can hold a column.
        SourceError: float32 would change whole numbers, and no cast asks for it.
        UsageError: a cast of something that isn't a column of values.
    """
    kinds = {scan.content.columns.kind: scan.path for scan in reversed(scans)}
    if len(kinds) > 1 and {*kinds} != {PayloadKind.EXAMPLE, PayloadKind.EMPTY}:
        found = " and ".join(f"{kind.title} ({path.name})" for kind, path in kinds.items())
        raise SchemaError("the files hold different kinds of records", found=found)
    roots = [(_root_of(scan), scan) for scan in scans]
    for scan in scans:
        if scan.table is not None:
            scan.table.check(select or [*scan.table.unsupported])
    first = tree_json(roots[0][0])  # which has what null stands for
    is_same = all(tree_json(root) == first and scan.content.declared for root, scan in roots)
    if is_same and not (casts or lists or any(scan.table is not None for scan in scans)):
        return FeatureColumns.of(roots[0][0]), []
    merge = _TreeMerge(source_format, scans, casts, lists=lists)
    root = merge.root(roots, select)
    for name in FeatureColumns.of(root).select(casts).root.fields:
        if not isinstance(_innermost(field_at(root, name)), Values):
            what = f"no column of values {name!r} to cast"
            raise UsageError(what, hint="name the path of the values, such as objects/id")
    root, notes = with_tensors(root, merge.sizes), [*merge.notes]
    try:
        check_stored(root)
    except SchemaError as error:
        error.path = str(_first_unstored(roots, lambda first: merge.root(first, select)))
        raise
    return FeatureColumns.of(root), notes


def _first_unstored(
    roots: Sequence[tuple[Struct, Scan]], merged: Callable[[Sequence[tuple[Struct, Scan]]], Struct]
) -> AnyPath:
    """Return the first file that records can't store together with those before it."""

    def is_unstored(count: int) -> bool:
        try:
            check_stored(merged(roots[:count]))
        except SchemaError:
            return True
        return False

    counts = range(1, len(roots))
    return roots[bisect_left(counts, True, key=is_unstored)][1].path


def _root_of(scan: Scan) -> Struct:
    """Return the tree of a file, also of one with columns of features."""
    columns = scan.content.columns
    if isinstance(columns, FeatureColumns):
        return columns.root
    return tree_of_flat(columns)


class _TreeMerge:
    """Merges fields.

    Attributes:
        notes: what becomes of numbers, a clause each.
        sizes: lengths of lists in others, in all files, by `list_key`.
    """

    def __init__(
        self,
        source_format: Format,
        scans: Sequence[Scan],
        casts: Mapping[str, Values],
        *,
        lists: bool,
    ) -> None:
        self._format, self._casts, self._lists = source_format, casts, lists
        self.notes = list[str]()
        self.sizes: dict[str, set[int]] = {}
        for scan in scans:
            for key, lengths in scan.sizes.items():
                self.sizes.setdefault(key, set()).update(lengths)

    def root(self, roots: Sequence[tuple[Struct, Scan]], select: Collection[str]) -> Struct:
        """Merge the fields of files; one error names all that differ."""
        fields, errors = dict[str, Field](), dict[str, SchemaError | SourceError]()
        for name in dict.fromkeys(name for root, _ in roots for name in root.fields):
            seen = [_Seen(root.fields[name], scan) for root, scan in roots if name in root.fields]
            if select and not any(f"{path}/".startswith(f"{name}/") for path in select):
                fields[name] = seen[0].item  # only its presence counts
                continue
            try:
                fields[name] = self._field(name, seen, 0, partial=len(seen) < len(roots))
            except (SchemaError, SourceError) as error:
                errors[name] = error
        if errors:
            raise _cast_error(errors, [scan for _, scan in roots])
        return Struct(fields)

    def _field(self, path: str, seen: Sequence[_Seen], level: int, *, partial: bool) -> Field:
        """Merge a field, which is in ``level`` lists; ``partial`` if some files lack it."""
        seen = [one._replace(item=_as_lists(one.item)) for one in seen]
        if any(isinstance(one.item, ListOf) for one in seen):
            return self._list(path, seen, level)
        structs = [one.item for one in seen if isinstance(one.item, Struct)]
        if not structs:
            return self._values(path, seen, level, partial=partial)
        if len(structs) < len(seen):
            raise _type_conflict(path, "types", _places(seen))
        fields = dict[str, Field]()
        for name in dict.fromkeys(name for item in structs for name in item.fields):
            inner = [
                one._replace(item=item.fields[name])
                for one, item in zip(seen, structs, strict=True)
                if name in item.fields
            ]
            if level > 1:
                parts = zip(seen, structs, strict=True)
                _check_keys(
                    path, name, [one.scan for one, item in parts if name not in item.fields]
                )
            lacks = partial or len(inner) < len(seen)
            fields[name] = self._field(join(path, name), inner, level, partial=lacks)
        return Struct(fields)

    def _list(self, path: str, seen: Sequence[_Seen], level: int) -> ListOf:
        """Merge lists; in a file with single values, these are lists of one."""
        lists = [one.item if isinstance(one.item, ListOf) else None for one in seen]
        lengths = {None if item is None else item.length for item in lists}
        known = sorted(length for length in lengths if length is not None)
        if level and len(known) > 1 and path not in self._casts:
            raise _type_conflict(path, "shapes", _places(seen))
        if len(lengths) > 1 and level:
            self.sizes.setdefault(list_key(path, level), set()).update(known)
        inner = [
            one._replace(item=one.item if item is None else item.item)
            for one, item in zip(seen, lists, strict=True)
        ]
        first = next(item for item in lists if item is not None)
        length = known[0] if len(lengths) == 1 and known else None
        item = self._field(path, inner, level + 1, partial=False)
        return ListOf(item=item, length=length, is_dataset=first.is_dataset)

    def _values(self, path: str, seen: Sequence[_Seen], level: int, *, partial: bool) -> Field:
        leaves = [one.item for one in seen if isinstance(one.item, Values)]
        cast = self._casts.get(path)
        is_mixed = any(leaf.kind is Kind.MIXED for leaf in leaves)
        if is_mixed and cast is not None:
            hint = "change records with --cast of tfrtool edit"
            raise UsageError(f"feature {path!r} has several types", hint=hint)
        if is_mixed or leaves[0].encoding is not Encoding.NONE:
            if cast is not None or any(leaf != leaves[0] for leaf in leaves):
                raise _type_conflict(path, "types", _places(seen))
            return leaves[0]
        dtypes = [(stored_dtype(leaf), one.scan) for leaf, one in zip(leaves, seen, strict=True)]
        times = [leaf.dtype if leaf.kind is Kind.TIME else None for leaf in leaves]
        if cast is None and len({*times}) > 1:
            raise _type_conflict(path, "types", _places(seen))
        chosen = None if cast is None else stored_dtype(cast)
        dtype, note = _merge_dtypes(self._format, path, dtypes, chosen)
        if note:
            self.notes.append(f"column {path!r}{note}")
        is_declared = path not in seen[0].scan.numbers
        values = _typed(leaves, dtype or DType.STRING, cast, is_declared=is_declared)
        if cast is not None and self._format.payloads:
            values = _cast_of(path, leaves[0], values)
        nulls = {leaf.null or Null.ABSENT for leaf in leaves if leaf.info.get("optional")}
        nulls |= {Null.ABSENT} if partial else set()
        if level or not nulls:
            return values
        info = {"optional": True} if Null.ABSENT in nulls else next(iter(nulls)).info
        values = replace(values, info={**values.info, **info})
        return ListOf(item=values) if self._lists or len(nulls) > 1 else values


def _check_keys(path: str, name: str, lacking: Sequence[Scan]) -> None:
    """Raise a `SchemaError` if objects in lists of lists have a key in some files of JSON only."""
    inferred = [scan.path for scan in lacking if not scan.content.declared]
    if inferred:
        what = f"column {path!r}: its objects lack the key {name!r}, which other files have"
        raise SchemaError(what, path=inferred[0])


def _typed(
    leaves: Sequence[Values], dtype: DType, cast: Values | None, *, is_declared: bool
) -> Values:
    """Return values that features of a type hold, as close to what they are as possible."""
    first = leaves[0]
    is_same = all(leaf == first for leaf in leaves) and stored_dtype(first) is dtype
    if cast is not None and cast.kind is Kind.TIME:
        keeps_zone = cast.dtype == "timestamp" and first.dtype.startswith("timestamp")
        return replace(first, shape=()) if keeps_zone else cast
    if is_same and cast is None and (is_declared or first.dtype != "float64"):
        return first
    if dtype is DType.STRING:
        texts = all(leaf.kind is not Kind.BYTES and leaf.kind is not Kind.IMAGE for leaf in leaves)
        return Values(kind=Kind.TEXT if texts else Kind.BYTES)
    if dtype is DType.FLOAT32 or cast is not None:
        return Values(kind=Kind.NUMBER, dtype=dtype.value)
    sizes = {leaf.dtype for leaf in leaves if leaf.kind is Kind.NUMBER}
    for signed in (("int8", "int16", "int32", "int64"), ("uint8", "uint16", "uint32")):
        if sizes <= {*signed} and len(sizes) == len({leaf.dtype for leaf in leaves}):
            return Values(kind=Kind.NUMBER, dtype=max(sizes, key=signed.index))
    return Values(kind=Kind.NUMBER, dtype="int64")


def _cast_of(path: str, values: Values, cast: Values) -> Values:
    """Return what a cast makes of values of records, which have to change."""
    if values.kind is Kind.BYTES and cast.kind in (Kind.BYTES, Kind.TEXT):
        if not values.info.get("is_utf8"):
            what = f"column {path!r} can't be cast to string: some of its values are not UTF-8 text"
            raise SchemaError(what, hint="without the cast, its bytes are kept as they are")
        return Values(kind=Kind.TEXT)
    if values == cast:
        what = f"--cast changes nothing: column {path!r} is {values}"
        raise UsageError(what, hint="convert it without the cast")
    return cast


def _as_lists(item: Field) -> Field:
    """Return a tensor as lists of its sizes; anything else as it is."""
    if not isinstance(item, Values) or not item.shape or item.encoding is not Encoding.NONE:
        return item
    outer, *shape = item.shape
    return ListOf(item=replace(item, shape=tuple(shape)), length=outer)


def _innermost(item: Field | None) -> Field | None:
    while isinstance(item, ListOf):
        item = item.item
    return item


def _places(seen: Sequence[_Seen]) -> list[str]:
    """Return the types of a field with the first file that has each."""
    found = {_word(one.item): one.scan.path for one in reversed(seen)}
    return [f"{word} in {found[word]}" for word in reversed(found)]


def _word(item: Field) -> str:
    if isinstance(item, ListOf):
        return f"lists of {'' if item.length is None else f'{item.length} '}{_word(item.item)}"
    return "structs" if isinstance(item, Struct) else str(item)


def _cast_error(
    errors: Mapping[str, SchemaError | SourceError], scans: Sequence[Scan]
) -> SchemaError | SourceError:
    """Return the error for columns whose types have to be chosen; there is at least one."""
    if len(errors) == 1:
        return next(iter(errors.values()))
    casts = some_of([f"--cast {name}:TYPE" for name in errors], _ERRORS_NAMED, " ")
    path = scans[0].path if len(scans) == 1 else None
    reasons = [error.what for error in errors.values()]
    return conversion_error(reasons, path, f"use {casts} to choose their types")


def _type_conflict(name: str, what: str, places: Sequence[str]) -> SchemaError:
    """Return the error for a column whose types differ between files."""
    hint = f"use --cast {name}:TYPE to choose one, or --select to choose other features"
    return SchemaError(f"conflicting {what} of {name!r}: {' and '.join(places)}", hint=hint)


def _merge_dtypes(
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
        raise _type_conflict(name, "types", places) from error
    declared = {dtype for dtype, scan in occurrences if name not in scan.numbers}
    if cast is None and chosen is DType.FLOAT32 and DType.INT64 in declared:
        raise _type_conflict(name, "types", places)  # the numbers may be too large for float32
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
