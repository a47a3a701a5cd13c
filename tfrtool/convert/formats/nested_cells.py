"""Cells with objects, and with lists of different lengths: the fields that hold them."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from tfrtool.examples.example import DType
from tfrtool.examples.fields import MAX_DEPTH, Field, Kind, ListOf, Struct, Values, join
from tfrtool.features.arrow_tree import list_key
from tfrtool.sources.formats.cell_types import NULL_IN_LIST, CellTypes, is_object

_SOME = "only some objects of a list have the key {!r}"
_OBJECTS, _LISTS, _SINGLE = "objects", "lists", "single values"


class NestedCellError(ValueError):
    """No field holds a cell, or what is in it.

    Attributes:
        name: the path of what can't be held.
    """

    def __init__(self, reason: str, name: str) -> None:
        super().__init__(reason)
        self.name = name


@dataclass(slots=True)
class NestedTypes:
    """A fold over the cells of a column, or over what is in its lists and objects.

    Attributes:
        path: the name of the column, and of the fields in it.
        level: the number of lists around the values.
        count: the number of values that are not null.
        kind: what they are: objects, lists or single values.
        values: the types of single values.
        items: what is in the lists.
        lengths: the numbers of items in the lists; two of them are enough.
        members: what objects have, by key.
    """

    path: str
    level: int = 0
    count: int = 0
    kind: str = ""
    values: CellTypes = field(default_factory=CellTypes)
    items: "NestedTypes | None" = None
    lengths: set[int] = field(default_factory=set)
    members: dict[str, "NestedTypes"] = field(default_factory=dict)
    checked: int = 0  # the count after the last record that `check_items` has seen

    @classmethod
    def of_cells(cls, name: str, cells: CellTypes) -> "NestedTypes":
        """Return what cells without objects are; their lists have the same lengths."""
        root = node = cls(name, count=cells.cells)
        for level in range(len(cells.sizes) + 1 if cells.is_list else 0):
            node.kind, node.lengths = _LISTS, {*cells.sizes[level - 1 : level]}
            node.items = node = cls(name, level + 1)
        if cells.dtypes:
            node.kind, node.values = _SINGLE, cells
        return root

    def add(self, value: Any, row: int, depth: int = 1) -> int:
        """Add a value, which isn't null; return how many fields are new.

        Raises:
            NestedCellError: no field holds this and the values before.
        """
        self.count += 1
        if isinstance(value, list):
            return self._add_list(value, row, depth)
        if not is_object(value):
            self._set_kind(_SINGLE)
            self.values.add_value(value, row)
            if DType.STRING in self.values.dtypes and len(self.values.dtypes) > 1:
                dtypes = sorted(dtype.value for dtype in self.values.dtypes)
                raise NestedCellError(f"mixes {' and '.join(dtypes)}", self.path)
            return 0
        self._set_kind(_OBJECTS)
        added = 0
        for key, member in value.items():
            if (node := self.members.get(key)) is None:
                if self.level > 1 and self.checked:  # there are objects without it
                    raise NestedCellError(_SOME.format(key), self.path)
                node = self.members[key] = self._below(join(self.path, key), self.level, depth)
                added += 1
            if member is not None:
                added += node.add(member, row, depth + 1)
        return added

    def _add_list(self, values: list[Any], row: int, depth: int) -> int:
        self._set_kind(_LISTS)
        if len(self.lengths) < 2:
            self.lengths.add(len(values))
        if self.items is None:
            self.items = self._below(self.path, self.level + 1, depth)
        added = 0
        for value in values:
            if value is None:
                raise NestedCellError(NULL_IN_LIST, self.path)
            added += self.items.add(value, row, depth + 1)
        if not self.level:
            self.items.check_items(len(values))
        return added

    def _below(self, path: str, level: int, depth: int) -> "NestedTypes":
        if depth >= MAX_DEPTH:
            raise NestedCellError(f"nested more than {MAX_DEPTH} levels deep", self.path)
        return NestedTypes(path, level)

    def _set_kind(self, kind: str) -> None:
        if self.kind != kind:
            if self.kind:
                raise NestedCellError(f"mixes {self.kind} and {kind}", self.path)
            self.kind = kind

    def check_items(self, expected: int) -> None:
        """Check the values of a record in lists, of which there are ``expected``.

        Records store each key of objects on its own. It can be missing in all objects of the
        outermost list, but not in some of them.

        Raises:
            NestedCellError: it is missing in some, or no object has any value.
        """
        if not self._has_values(expected) and expected:
            raise NestedCellError("objects without values in a list", self.path)

    def _has_values(self, expected: int) -> bool:
        has_values = self.kind != _OBJECTS and expected > 0
        if self.kind == _LISTS and self.items is not None:
            self.items.check_items(self.items.count - self.items.checked)
        for key, node in self.members.items():
            found = node.count - node.checked
            if found != expected and (found or self.level > 1):
                raise NestedCellError(_SOME.format(key), self.path)
            has_values |= node._has_values(found)
        self.checked = self.count
        return has_values

    def leaves(self) -> Iterator["NestedTypes"]:
        """Yield what holds single values, or nothing."""
        for node in [*self.members.values(), *([self.items] if self.items else [])]:
            yield from node.leaves()
        if not self.members and self.items is None:
            yield self

    def sizes(self) -> Iterator[tuple[str, set[int]]]:
        """Yield the lengths of the lists that are in others, by `list_key`."""
        if self.kind == _LISTS and self.level:
            yield list_key(self.path, self.level), self.lengths
        for node in [*self.members.values(), *([self.items] if self.items else [])]:
            yield from node.sizes()

    def field(self) -> Field | None:
        """Return the field that holds all values; None without any."""
        if self.kind == _LISTS:
            item = self.items and self.items.field()
            return ListOf(item=item) if item else None
        if self.kind != _OBJECTS:
            return field_of_values(self.values)
        fields = dict[str, Field]()
        for key, node in self.members.items():
            item = node.field()
            if item is not None:
                is_optional = node.count < self.count and not self.level
                fields[key] = as_optional(item) if is_optional else item
        return Struct(fields) if fields else None


def as_optional(item: Field) -> Field:
    """Return a field whose values may be missing."""
    if isinstance(item, Struct):
        return Struct({name: as_optional(part) for name, part in item.fields.items()})
    if isinstance(item, ListOf):
        return item
    return replace(item, info={**item.info, "optional": True})


def field_of_values(types: CellTypes) -> Values | None:
    """Return the field of single values; None without any."""
    if not types.dtypes:
        return None
    if DType.STRING in types.dtypes:
        return Values(kind=Kind.TEXT if types.is_text else Kind.BYTES)
    if types.is_bool:
        return Values(kind=Kind.BOOL, dtype="bool")
    dtype = DType.FLOAT32 if DType.FLOAT32 in types.dtypes else DType.INT64
    return Values(kind=Kind.NUMBER, dtype=dtype.value)


def cell_at(row: Any, path: str) -> Any:
    """Return the cell of a column, or what a path such as ``a/b`` leads to."""
    if isinstance(row, list):
        cells = [cell_at(one, path) for one in row]
        return None if cells and all(cell is None for cell in cells) else cells
    if not isinstance(row, dict):
        return None
    if path in row or "/" not in path:
        return row.get(path)
    for name, cell in row.items():
        if path.startswith(f"{name}/"):
            found = cell_at(cell, path[len(name) + 1 :])
            if found is not None:
                return found
    return None
