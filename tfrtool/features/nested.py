"""Stored features as nested Arrow arrays, each record checked at its own bounds.

Nothing here works on one record at a time, except unpacking of encoded tensors. A record that the
tree doesn't fit becomes a misfit, and the others are built without it.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from tfrtool.examples.arrow.arrays import Ints
from tfrtool.examples.arrow.columns import FEATURE
from tfrtool.examples.arrow.value_types import logical_type
from tfrtool.examples.fields import Field, Kind, Leaf, ListOf, Struct, Values, join
from tfrtool.features.leaf_build import LeafBuild, instead
from tfrtool.features.misfits import Misfits
from tfrtool.features.stored_lists import (
    BuiltField,
    differing_records,
    ends_of,
    list_of,
    owners_of,
    with_nulls,
)


def arrow_type(item: Field) -> pa.DataType:
    """Return the Arrow type of a field."""
    if isinstance(item, Struct):
        return pa.struct([pa.field(name, arrow_type(part)) for name, part in item.fields.items()])
    if isinstance(item, ListOf):
        return pa.list_(arrow_type(item.item))
    kind = _value_type(item)
    for size in reversed(item.shape):
        kind = pa.list_(kind, size) if size else pa.list_(kind)  # Arrow has no fixed size of 0
    return kind


def _value_type(values: Values) -> pa.DataType:
    if values.kind in (Kind.NUMBER, Kind.LABEL):
        dtype = values.dtype or "int64"
        return pa.from_numpy_dtype(
            np.dtype("float32" if "16" in dtype and "float" in dtype else dtype)
        )
    if values.kind is Kind.BOOL:
        return pa.bool_()
    if values.kind is Kind.TIME:
        return logical_type(values.dtype)
    if values.kind is Kind.MIXED:
        return FEATURE
    return pa.string() if values.kind is Kind.TEXT else pa.binary()


class NestedBuild:
    """Builds the arrays of a tree's fields from those of its stored features.

    Attributes:
        misfits: how records differ from the tree, by their places; there are no arrays if any do.
        texts: the texts that are not UTF-8, in the same way, if ``strict``; they are in the arrays
            as bytes.
        arrays: the top-level fields.
    """

    def __init__(
        self, root: Struct, stored: Mapping[str, pa.Array], *, strict: bool = False
    ) -> None:
        """Build the fields.

        Args:
            root: the tree.
            stored: an array of lists for each of its `stored_features`, by name.
            strict: whether what can be shown all the same, such as a missing feature that TFDS
                needs, is a misfit too.
        """
        found = Misfits(strict=strict)
        self.misfits, self.texts = found.misfits, found.texts
        self._refuse = found.add
        self._leaves = LeafBuild(stored, found, strict=strict)
        parts = [self._build(item, name, 0) for name, item in root.fields.items()]
        self.arrays = [part.array for part in parts if part is not None]

    def _build(self, item: Field, path: str, level: int) -> BuiltField | None:
        """Return a field, which is in ``level`` lists; None if some records don't fit it."""
        if isinstance(item, Struct):
            return self._struct(item, path, level)
        if isinstance(item, ListOf):
            return self._list(item, path, level)
        return self._leaves.build(Leaf(path, level, item))

    def _struct(self, item: Struct, path: str, level: int) -> BuiltField | None:
        names = [*item.fields]
        built = [self._build(part, join(path, name), level) for name, part in item.fields.items()]
        parts = [part for part in built if part is not None]
        if len(parts) < len(built):
            return None
        if level:
            aligned = self._aligned(parts, [join(path, name) for name in names])
            if aligned is None:
                return None
            parts = aligned
        arrays = [part.array for part in parts]
        kinds = [pa.field(name, array.type) for name, array in zip(names, arrays, strict=True)]
        array = pa.Array.from_buffers(pa.struct(kinds), len(arrays[0]), [None], children=arrays)
        present = np.logical_or.reduce([part.present for part in parts])
        return BuiltField(parts[0].offsets, array, present)

    def _aligned(
        self, parts: Sequence[BuiltField], paths: Sequence[str]
    ) -> list[BuiltField] | None:
        """Return the fields of structs in lists with as many items each; None if some differ.

        A field that a record doesn't have at all is null in all of its items.
        """
        first = parts[0].offsets
        if all(_same_offsets(first, part.offsets) for part in parts[1:]):
            return [*parts]
        counts = [np.diff(part.offsets[0]) for part in parts]
        most = np.maximum.reduce(counts)
        longest = np.argmax(counts, axis=0)
        fits = True
        for part, path, count in zip(parts, paths, counts, strict=True):
            wrong = count != most
            if len(part.offsets) == 1:
                wrong &= part.present
            rows = np.flatnonzero(wrong)
            if rows.size:
                fits = False
                other = paths[int(longest[rows[0]])]
                found = instead(count[rows], most[rows])
                self._refuse(rows, path, f"as many items as {other!r}", found)
        if not fits or not self._lists_agree(parts, paths):
            return None
        ends = ends_of(most)
        filled = list[BuiltField]()
        for part, count in zip(parts, counts, strict=True):
            if not (count == most).all():
                array = with_nulls(part.array, np.repeat(part.present, most))
                part = BuiltField((ends,), array, part.present)
            filled.append(part)
        return filled

    def _lists_agree(self, parts: Sequence[BuiltField], paths: Sequence[str]) -> bool:
        """Check lists within lists: a field of their structs can't be missing in one of them."""
        first, agree = parts[0].offsets, True
        for part, path in zip(parts, paths, strict=True) if len(first) > 1 else ():
            rows = differing_records(first, part.offsets)
            if rows.size:
                agree = False
                what = f"lists as long as the lists of {paths[0]!r}"
                self._refuse(rows, path, what, "other lengths")
        return agree

    def _list(self, item: ListOf, path: str, level: int) -> BuiltField | None:
        part = self._build(item.item, path, level + 1)
        if part is None:
            return None
        *outer, last = part.offsets
        if item.length is not None:
            lengths = np.diff(last)
            wrong = np.flatnonzero(lengths != item.length)
            rows = wrong if not outer else owners_of(outer, wrong)
            absent = ~part.present[rows]
            wrong, rows = wrong[~absent], rows[~absent]
            if rows.size:
                what = f"{item.length} items"
                self._refuse(rows, path, what, lengths[wrong])
                return None
        if level:
            return BuiltField(tuple(outer), list_of(last, part.array), part.present)
        return BuiltField((), list_of(last, part.array, part.present), part.present)


def _same_offsets(left: Sequence[Ints], right: Sequence[Ints]) -> bool:
    return all(map(np.array_equal, left, right))
