"""The columns of an Arrow table as a tree of fields."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import pyarrow as pa

from tfrtool.errors import SchemaError, some_of
from tfrtool.examples.arrow.columns import EXACT, FEATURE, METADATA, PLACES, Columns
from tfrtool.examples.arrow.value_types import logical_word
from tfrtool.examples.example import PayloadKind, feature_name
from tfrtool.examples.fields import MAX_DEPTH, Field, Kind, ListOf, Struct, Values, join
from tfrtool.features.feature_columns import FeatureColumns
from tfrtool.features.stored_layout import check_tree

_EXPECTED = "numbers, booleans, text, bytes, times, decimals, or structs and lists of these"
_SHOWN = 100
"""Columns that an error names at most."""

_TYPE_CHARACTERS = 200
"""Characters of a type that an error shows."""

_BYTES = ("binary", "large_binary", "fixed_size_binary", "binary_view")
_TEXTS = ("string", "large_string", "string_view")
_IMAGE = {"bytes", "path"}
"""The fields of Hugging Face's images; the bytes are what is kept."""

IMAGE_PATH = "{}/filename"
"""The name of the field with the path of an image."""


class _UnsupportedError(Exception):
    """A type that no field has."""


def tree_of_arrow(schema: pa.Schema) -> Struct:
    """Return the tree of a table's columns; what our own metadata says of a column comes first.

    Raises:
        SchemaError: columns have types that no tree has, or records can't store the tree.
    """
    tree = TableTree.of(schema)
    tree.check(schema.names)
    root = with_tensors(tree.root, {})
    check_stored(root)
    return root


def check_stored(root: Struct) -> None:
    """Raise a `SchemaError` if records can't store a tree."""
    try:
        check_tree(root)
    except ValueError as error:
        raise SchemaError(str(error)) from error


@dataclass(slots=True)
class TableTree:
    """The tree of a table of any types.

    Attributes:
        root: the tree; a list of a fixed size is a list with that length.
        notes: what becomes of values that are not kept as they are, a clause each.
        unsupported: the types of the other columns.
    """

    root: Struct = field(default_factory=lambda: Struct({}))
    notes: list[str] = field(default_factory=list)
    unsupported: dict[str, pa.DataType] = field(default_factory=dict)
    _nullable: frozenset[str] = frozenset()

    @classmethod
    def of(cls, schema: pa.Schema, nullable: Iterable[str] = ()) -> "TableTree":
        """Read a schema; ``nullable`` are the paths, as Parquet has them, of what may be null.

        Columns of nulls are left out.
        """
        parts = (path.replace(".", "/").split("/") for path in nullable)
        prefixes = ("/".join(names[:end]) for names in parts for end in range(1, len(names) + 1))
        tree = cls(_nullable=frozenset(prefixes))
        declared = FeatureColumns.declared_by(schema) or FeatureColumns.of(Struct({}))
        known = dict(zip(declared.names, declared.root.fields.items(), strict=True))
        types = {column.name: column.type for column in declared.to_arrow()}
        reserved = (EXACT, *PLACES) if METADATA in (schema.metadata or {}) else ()
        flat = Columns.declared(schema) or Columns(PayloadKind.EXAMPLE)
        keys = {name: one.key for name, one in zip(flat.names, flat.columns, strict=False)}
        fields: dict[str, Field] = {}
        for column in schema:
            if column.name in reserved:
                continue
            if column.name in fields:
                raise SchemaError(f"two columns are called {column.name!r}")
            if types.get(column.name) == column.type:
                name, item = known[column.name]
                fields[name] = item
                continue
            if "arrow.uuid" in str(column.type):
                tree.notes.append(f"column {column.name!r}: UUIDs become 16 bytes each")
            try:
                found = dict(tree._named_fields(column, column.name, 0))
            except _UnsupportedError:
                tree.unsupported[column.name] = column.type
            else:
                for name, item in found.items():
                    key = keys.get(name)
                    fields.setdefault(name if key is None else feature_name(key), item)
        tree.root = Struct(fields)
        return tree

    def check(self, names: Collection[str]) -> None:
        """Raise a `SchemaError` that names the columns among these whose types no tree has."""
        types = {name: kind for name, kind in self.unsupported.items() if name in names}
        if not types:
            return
        columns = f"column{'s' if len(types) > 1 else ''} {some_of([*map(repr, types)], _SHOWN)}"
        found = dict.fromkeys(str(one)[:_TYPE_CHARACTERS] for one in types.values())
        what = f"unsupported type{'s' if len(types) > 1 else ''} of {columns}"
        raise SchemaError(what, expected=_EXPECTED, found=some_of([*found], _SHOWN))

    def _named_fields(self, column: pa.Field, path: str, depth: int) -> Iterator[tuple[str, Field]]:
        """Yield a column, or a field of a struct that is in no list; with an image, its path."""
        kind = plain_type(column.type)
        if pa.types.is_null(kind):
            return
        if not is_image(kind):
            yield column.name, self._field(kind, path, 0, depth)
            return
        yield column.name, Values(kind=Kind.BYTES, info=self._info(f"{path}/bytes"))
        info = self._info(f"{path}/path")
        yield IMAGE_PATH.format(column.name), Values(kind=Kind.TEXT, info=info)

    def _info(self, path: str) -> Mapping[str, bool]:
        """Return whether a value may be missing."""
        return {"optional": True} if path in self._nullable else {}

    def _field(self, kind: pa.DataType, path: str, level: int, depth: int) -> Field:
        kind = plain_type(kind)
        if depth > MAX_DEPTH:
            raise SchemaError(f"column {path!r} is nested more than {MAX_DEPTH} levels deep")
        if is_list(kind):
            item = self._field(kind.value_type, path, level + 1, depth + 1)
            is_fixed = pa.types.is_fixed_size_list(kind)
            return ListOf(item=item, length=int(kind.list_size) if is_fixed else None)
        if not pa.types.is_struct(kind) or (level and is_image(kind)):
            values = self._values(kind, path)
            return replace(values, info={**values.info, **self._info(path)})
        if kind == FEATURE and not depth:
            return Values(kind=Kind.MIXED)
        if len({one.name for one in kind}) < len(kind):
            raise SchemaError(f"two fields in column {path!r} have the same name")
        fields: dict[str, Field] = {}
        for one in kind:
            inner = join(path, one.name)
            if level:
                fields[one.name] = self._field(one.type, inner, level, depth + 1)
                continue
            for name, item in self._named_fields(one, inner, depth + 1):
                fields.setdefault(name, item)
        return Struct(fields)

    def _values(self, kind: pa.DataType, path: str) -> Values:
        types, note = pa.types, ""
        word = logical_word(kind)
        if types.is_boolean(kind):
            values = Values(kind=Kind.BOOL, dtype="bool")
        elif types.is_integer(kind) or types.is_floating(kind):
            values = Values(kind=Kind.NUMBER, dtype=str(kind.to_pandas_dtype()().dtype))
        elif word is not None:
            values = Values(kind=Kind.TIME, dtype=word)
        elif types.is_decimal(kind):
            values, note = Values(kind=Kind.TEXT), "decimals become text"
        elif types.is_temporal(kind) and not types.is_interval(kind):
            what = "durations" if types.is_duration(kind) else "times"
            note = f"{what} become int64, in microseconds"
            values = Values(kind=Kind.NUMBER, dtype="int64")
        elif str(kind).partition("[")[0] in _TEXTS:
            values = Values(kind=Kind.TEXT)
        elif str(kind).partition("[")[0] in _BYTES or is_image(kind):
            note = "image bytes are kept, paths are dropped" if is_image(kind) else ""
            values = Values(kind=Kind.BYTES)
        else:
            raise _UnsupportedError
        if note:
            self.notes.append(f"column {path!r}: {note}")
        return values


def with_tensors(root: Struct, sizes: Mapping[str, Collection[int]]) -> Struct:
    """Return a tree with tensors for lists that all have the same number of values.

    ``sizes`` are the lengths of lists that are in others, by `list_key`.
    """
    return Struct({name: _with_tensors(part, name, 0, sizes) for name, part in root.fields.items()})


def list_key(path: str, level: int) -> str:
    """Return what stands for the lists of a field that are in ``level`` others."""
    return path + "[]" * level


def _with_tensors(
    item: Field, path: str, level: int, sizes: Mapping[str, Collection[int]]
) -> Field:
    if isinstance(item, Struct):
        fields = item.fields.items()
        return Struct(
            {name: _with_tensors(part, join(path, name), level, sizes) for name, part in fields}
        )
    if not isinstance(item, ListOf):
        return item
    inner = _with_tensors(item.item, path, level + 1, sizes)
    found, length = sizes.get(list_key(path, level), ()), item.length
    if length is None and level and len(found) == 1:
        length = next(iter(found))
    if length and isinstance(inner, Values) and None not in inner.shape:
        try:
            return replace(inner, shape=(length, *inner.shape))
        except ValueError as error:
            raise SchemaError(f"column {path!r}: {error}") from error
    return replace(item, item=replace(inner, info={}) if isinstance(inner, Values) else inner)


def is_image(kind: pa.DataType) -> bool:
    """Return whether a type is that of Hugging Face's images."""
    return bool(pa.types.is_struct(kind)) and {one.name for one in kind} == _IMAGE


def is_list(kind: pa.DataType) -> bool:
    """Return whether a type is that of lists."""
    types = pa.types
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def plain_type(kind: pa.DataType) -> pa.DataType:
    """Return a type without what is wrapped around its values."""
    if isinstance(kind, pa.BaseExtensionType):
        return plain_type(kind.storage_type)
    is_wrapped = pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind)
    return plain_type(kind.value_type) if is_wrapped else kind
