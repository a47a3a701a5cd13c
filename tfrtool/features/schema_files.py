"""What TFDS' features.json can't say about fields: files of their types next to shards."""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from tfrtool.examples.example import PayloadKind
from tfrtool.examples.fields import (
    Field,
    Kind,
    ListOf,
    Struct,
    Values,
    has_logical_types,
    leaves_of,
    tree_from_json,
    tree_json,
)
from tfrtool.examples.tfds_metadata import FEATURES
from tfrtool.storage.json_values import read_json, reading_metadata
from tfrtool.storage.remote_path import AnyPath

Parsed = TypeVar("Parsed")

SCHEMA = "schema.json"
"""The file with the fields of records; next to a single file it is ``NAME.schema.json``."""

_FEW = 4
"""Files for which schemas are looked up one by one, and not by a list of their folder."""

_NUMBERS = re.compile(r"-\d{5,}-of-\d{5,}", re.ASCII)


def schema_of(path: AnyPath) -> AnyPath:
    """Return the path of the schema next to a single file; files of a numbered set share it."""
    return path.with_name(f"{_NUMBERS.sub('', path.name)}.{SCHEMA}")


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaFields:
    """The fields that the schemas next to shards describe.

    Attributes:
        fields: those that are alike in all schemas.
        conflicts: those that have several types.
        partial: those that not all files have a type for.
        is_complete: whether each file has a schema, the same one, and it has all features.
    """

    fields: Mapping[str, Field] = field(default_factory=dict)
    conflicts: frozenset[str] = frozenset()
    partial: frozenset[str] = frozenset()
    is_complete: bool = False

    @classmethod
    def read(cls, paths: Iterable[AnyPath]) -> "SchemaFields":
        """Read the schemas next to files; `DatasetError` for one that is damaged."""
        roots = [*_schemas([*paths])]
        known = [root.fields for root in roots if root is not None]
        alike, conflicts, partial = dict[str, Field](), set[str](), set[str]()
        for name in dict.fromkeys(name for fields in known for name in fields):
            found = [fields[name] for fields in known if name in fields]
            is_typed = any(map(_says_more, found))
            if any(one != found[0] for one in found):
                conflicts |= {name} if is_typed else set()
            elif len(found) < len(roots):
                partial |= {name} if is_typed else set()
            else:
                alike[name] = found[0]
        return cls(
            fields=alike,
            conflicts=frozenset(conflicts),
            partial=frozenset(partial),
            is_complete=len(roots) == 1 and roots[0] is not None and len(alike) == len(known[0]),
        )

    def texts(self) -> dict[str, str]:
        """Return the file that has these fields, if features.json doesn't say as much."""
        root = Struct(dict(self.fields))
        if not needs_schema(root):
            return {}
        columns = {"kind": PayloadKind.EXAMPLE.value, "features": tree_json(root)}
        return {SCHEMA: json.dumps({"columns": columns}, indent=1) + "\n"}


def may_be_described(shards: Sequence[AnyPath]) -> bool:
    """Return whether there is a features.json or a schema next to shards."""
    folders = {shard.parent for shard in shards}
    candidates = [folder / name for folder in folders for name in (FEATURES, SCHEMA)]
    return any(path.exists() for path in [*candidates, *map(schema_of, shards[:_FEW])])


def _schemas(paths: list[AnyPath]) -> Iterable[Struct | None]:
    """Return the different schemas next to files; None for files without one."""
    known: dict[AnyPath, Struct | None] = {}
    listed, found = dict[AnyPath, set[str]](), list[Struct | None]()
    for path in paths:
        if len(paths) > _FEW and path.parent not in listed:  # a store is asked once
            listed[path.parent] = {one.name for one in path.parent.iterdir()}
        root: Struct | None = None
        for schema_path in schemas_of(path):
            if schema_path not in known:
                is_there = schema_path.name in listed.get(path.parent, {schema_path.name})
                known[schema_path] = read_schema(schema_path, _parse_fields) if is_there else None
            root = known[schema_path]
            if root is not None:
                break
        found += [root] if root not in found else []
    return found


def _says_more(item: Field) -> bool:
    """Return whether a field is more than values as features have them, or lists of those."""
    return has_logical_types(Struct({"": item})) or isinstance(item, ListOf)


def needs_schema(root: Struct, *, is_alone: bool = False) -> bool:
    """Return whether a tree says what neither features.json nor the records show.

    ``is_alone`` is whether there is no features.json, as next to a single file.
    """
    has_lists = any(isinstance(item, ListOf) for item in root.fields.values())
    if is_alone:
        return has_lists or has_logical_types(root)
    if any(leaf.values.kind is Kind.TIME for leaf in leaves_of(root)):
        return True
    described = described_by_tfds(root)
    if has_logical_types(described):
        return bool(described != root)
    return has_lists or has_logical_types(root)  # plain values that may be missing are inferred


def described_by_tfds(item: Any, level: int = 0) -> Any:
    """Return a field whose records TFDS can read: values that some lack are lists of them."""
    if isinstance(item, Struct):
        fields = item.fields.items()
        return Struct({name: described_by_tfds(part, level) for name, part in fields})
    if isinstance(item, ListOf):
        return replace(item, item=described_by_tfds(item.item, level + 1))
    is_role = item.kind in (Kind.IMAGE, Kind.LABEL)
    if level or is_role or not item.info.get("optional"):
        return item
    info = {key: value for key, value in item.info.items() if key != "optional"}
    return ListOf(item=replace(item, shape=(), info=info))


def schemas_of(path: AnyPath) -> tuple[AnyPath, AnyPath]:
    """Return the paths of the schema next to a single file, and of that of its folder."""
    return schema_of(path), path.with_name(SCHEMA)


def read_schema(path: AnyPath, parse: Callable[[Any], Parsed]) -> Parsed | None:
    """Return what a function makes of a schema; None without a file, or for one of somebody else.

    Raises:
        DatasetError: it is damaged.
    """
    with suppress(FileNotFoundError), reading_metadata(path, "tfrtool"):
        data = read_json(path)
        return parse(data) if isinstance(data, dict) and "columns" in data else None
    return None


def _parse_fields(data: Any) -> Struct | None:
    """Return the fields of a schema; None if it is of somebody else, or of other records."""
    declared = data["columns"]
    if not isinstance(declared, dict) or declared.get("kind") != PayloadKind.EXAMPLE.value:
        return None
    if "features" in declared:
        root = tree_from_json(declared["features"])
        return root if isinstance(root, Struct) else None
    return older_tree(declared)


def older_tree(declared: Any) -> Struct:
    """Read the columns that earlier versions wrote; a ValueError or its like if they are others."""
    columns = (one for one in declared["columns"] if not one["list"])
    return Struct({str(one["key"]): _older_field(one) for one in columns})


def _older_field(column: Any) -> Field:
    """Return a column of an earlier version: a feature with its form, and perhaps a shape."""
    from tfrtool.examples.arrow.columns import check_shape, column_of_json
    from tfrtool.examples.arrow.value_types import logical_type

    found = column_of_json(column)
    values = found.values
    if column.get("logical") and found.dtype is not None:
        declared = tree_from_json(column["logical"])
        if not isinstance(declared, Values):
            raise ValueError("a column has an unknown type")
        values = replace(declared, info=values.info)
    if values.kind is Kind.TIME:
        logical_type(values.dtype)
    if not isinstance(found.item, ListOf):
        return values
    shape = tuple(map(int, column.get("shape") or (-1,)))
    check_shape(shape)
    if 0 in shape or shape == (-1,):
        return ListOf(item=values)
    sizes = tuple(None if size < 0 else size for size in shape)
    return replace(values, shape=sizes, info={} if None in sizes else {"optional": True})
