"""Times, decimals and tensors, which features store as other types: by schemas next to files."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from tfrtool.errors import DatasetError
from tfrtool.examples.example import DType, PayloadKind, feature_name
from tfrtool.examples.tfds_metadata import FEATURES
from tfrtool.storage.json_files import read_json, reading_metadata
from tfrtool.storage.remote_path import AnyPath

if TYPE_CHECKING:  # Arrow takes 35 MB, and most records have no schema
    from tfrtool.examples.arrow.columns import Column, Columns

SCHEMA = "schema.json"
"""The file with the columns of records; next to a single file it is ``NAME.schema.json``."""

_FEW = 4
"""Files for which schemas are looked up one by one, and not by a list of their folder."""

_NUMBERS = re.compile(r"-\d{5,}-of-\d{5,}", re.ASCII)
_EPOCH = datetime(1970, 1, 1)


def schema_of(path: AnyPath) -> AnyPath:
    """Return the path of the schema next to a single file; files of a numbered set share it."""
    return path.with_name(f"{_NUMBERS.sub('', path.name)}.{SCHEMA}")


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTypes:
    """The columns of times, decimals and tensors, by the features' names.

    Attributes:
        columns: those that are alike in all schemas.
        singles: columns of other types, text among them, that have one value or null in a record.
        conflicts: features of other types in other schemas.
        partial: features that not all files have a type for.
        folders: those of the files, in which TFDS' features.json may say what is text.
    """

    columns: "Mapping[str, Column]" = field(default_factory=dict)
    singles: "Mapping[str, Column]" = field(default_factory=dict)
    conflicts: frozenset[str] = frozenset()
    partial: frozenset[str] = frozenset()
    folders: "tuple[AnyPath, ...]" = ()

    @classmethod
    def read(cls, paths: Iterable[AnyPath]) -> "StoredTypes":
        """Read the schemas next to files; `DatasetError` for one that is damaged."""
        known: dict[AnyPath, dict[str, Column] | None] = {}
        files: list[dict[str, Column]] = []
        paths, listed = [*paths], dict[AnyPath, set[str]]()
        for path in paths:
            if len(paths) > _FEW and path.parent not in listed:  # a store is asked once
                listed[path.parent] = {one.name for one in path.parent.iterdir()}
            for schema_path in (schema_of(path), path.with_name(SCHEMA)):
                if schema_path not in known:
                    is_there = schema_path.name in listed.get(path.parent, {schema_path.name})
                    known[schema_path] = _read(schema_path) if is_there else None
                if known[schema_path] is not None:
                    break
            types = known[schema_path] or {}
            files += [types] if types not in files else []
        columns_by_name: dict[str, list[Column]] = {}
        singles = _singles(files)
        files = [{name: one for name, one in types.items() if is_typed(one)} for types in files]
        for types in files:
            for name, column in types.items():
                columns_by_name.setdefault(name, []).append(column)
        alike = {
            name: len({(one.dtype, one.logical, one.shape) for one in some}) == 1
            for name, some in columns_by_name.items()
        }
        partial = frozenset(
            name for name, some in columns_by_name.items() if len(some) < len(files)
        )
        return cls(
            columns={
                n: some[0] for n, some in columns_by_name.items() if alike[n] and n not in partial
            },
            singles=singles,
            conflicts=frozenset(name for name in columns_by_name if not alike[name]),
            partial=partial,
            folders=tuple(dict.fromkeys(path.parent for path in paths)),
        )

    def apply(self, columns: "Columns") -> "Columns":
        """Return columns of Examples with these types, where the features are stored as these."""
        undecided = any(one.is_utf8 and not one.is_text for one in columns.columns)
        texts = _declared_texts(self.folders) if undecided else frozenset[str]()
        if not (self.columns or texts) or columns.kind is not PayloadKind.EXAMPLE:
            return columns
        from tfrtool.examples.arrow.columns import ColumnType, Form

        changed = []
        for column in columns.columns:
            name = feature_name(column.key)
            if column.is_utf8 and name in texts:
                column = replace(column, is_text=True)
            known = self.columns.get(name)
            if known is not None and known.dtype is column.dtype:
                column = replace(column, form=Form.LIST) if known.form is Form.LIST else column
                kind = ColumnType(known.dtype, known.logical, known.shape)
                column = kind.of(column, is_utf8=False)
            changed.append(column)
        return replace(columns, columns=tuple(changed))

    def shown(self, name: str, dtype: DType, values: list[Any], *, is_whole: bool) -> list[Any]:
        """Return a feature's values as people read them: times as text, tensors as nested lists.

        Args:
            name: the feature's name.
            dtype: the type that it is stored as.
            values: its values, or the first of them.
            is_whole: whether these are all.
        """
        column = self.columns.get(name)
        if column is None or column.dtype is not dtype:
            return values
        if column.logical and dtype is DType.INT64:
            values = [_time_text(value, column.logical) for value in values]
        for size in reversed(column.shape[1:] if is_whole else ()):
            if size < 1 or len(values) % size:
                break
            values = [values[start : start + size] for start in range(0, len(values), size)]
        return values

    def texts(self) -> dict[str, str]:
        """Return the file that has these types, if there are any."""
        if not self.columns:
            return {}
        from tfrtool.examples.arrow.columns import METADATA, Columns

        known = {**self.columns, **self.singles}
        columns = Columns(PayloadKind.EXAMPLE, tuple(known.values()))
        data = {"columns": json.loads(columns.to_arrow().metadata[METADATA])}
        others = {"exact": False, "class_names": {}, "tfds": None}  # of tables alone
        return {SCHEMA: json.dumps(data | others, indent=1) + "\n"}


def _time_text(microseconds: int, word: str) -> int | str:
    """Return a time in ISO 8601, those with a zone in UTC; the number if it is out of range."""
    try:
        time = _EPOCH + timedelta(microseconds=microseconds)
    except OverflowError:
        return microseconds
    if word == "date":
        return microseconds if time.time() != _EPOCH.time() else str(time.date())
    text = str(time).rstrip("0") if time.microsecond else str(time)
    return text if word == "timestamp" else f"{text}+00"


def _declared_texts(folders: Iterable[AnyPath]) -> frozenset[str]:
    """Return the features that TFDS' features.json declares as text; none if it can't be read."""
    names = set[str]()
    for folder in folders:
        with suppress(DatasetError, FileNotFoundError), reading_metadata(folder / FEATURES, "TFDS"):
            features = read_json(folder / FEATURES)["featuresDict"]["features"]
            names |= {name for name, one in features.items() if "text" in one}
    return frozenset(names)


def _read(path: AnyPath) -> "dict[str, Column] | None":
    """Return the columns of a schema; None without a file."""
    with suppress(FileNotFoundError), reading_metadata(path, "tfrtool"):
        data = read_json(path)
        declared = data.get("columns") if isinstance(data, dict) else None
        if not isinstance(declared, dict) or declared.get("kind") != PayloadKind.EXAMPLE.value:
            return {}  # of somebody else, or of other messages
        from tfrtool.examples.arrow.columns import Columns

        columns = Columns.from_json(declared).columns
        # A type that doesn't exist is an error here.
        return {feature_name(one.key): one for one in columns if one.type}
    return None


def is_typed(column: "Column") -> bool:
    """Return whether a column's values stand for others than the feature has."""
    return bool(column.logical or column.shape)


def _singles(files: "Sequence[Mapping[str, Column]]") -> "dict[str, Column]":
    """Return the columns that are alike in all schemas, and of single values as they are stored."""
    first = files[0] if files else {}
    return {
        name: column
        for name, column in first.items()
        if column.form.is_single and not is_typed(column)
        if all(types.get(name) == column for types in files)
    }
