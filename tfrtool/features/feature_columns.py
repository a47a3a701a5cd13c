"""A tree of fields as the columns of a table, which payloads are decoded to."""

import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from tfrtool.errors import UsageError
from tfrtool.examples.arrow.arrays import Ints, numbers_array, strings_array
from tfrtool.examples.arrow.columns import (
    EXACT,
    METADATA,
    PLACES,
    Column,
    Columns,
    DecodedColumns,
)
from tfrtool.examples.arrow.decode_batch import MisfitError, decode_batch
from tfrtool.examples.arrow.encode_batch import encode_payloads
from tfrtool.examples.example import PayloadKind, feature_key, feature_name
from tfrtool.examples.fields import (
    Kind,
    Leaf,
    Null,
    Struct,
    Values,
    field_at,
    leaves_of,
    paths_of,
    select_fields,
    stored_values,
    tree_from_json,
    tree_json,
    with_info,
)
from tfrtool.features.flatten import FlatFeatures
from tfrtool.features.misfits import FieldMisfit
from tfrtool.features.nested import NestedBuild, arrow_type
from tfrtool.features.sound_fields import RATE, is_rated
from tfrtool.features.stored_layout import check_fields, stored_features

_BATCH_VALUES = 4_000_000
"""Values of a batch, about, where shapes are fixed."""


class Comparison(NamedTuple):
    """How payloads compare with a tree, by their places.

    Attributes:
        misfits: how they differ from the tree.
        damaged: why others have features of other types, or are no Examples.
        other_keys: how many have each feature that the tree doesn't have.
    """

    misfits: dict[int, dict[str, FieldMisfit]]
    damaged: dict[int, str]
    other_keys: Counter[bytes]


@dataclass(frozen=True, slots=True)
class FeatureColumns(DecodedColumns):
    """The fields of a tree as columns.

    Attributes:
        root: the tree. A top-level name may be a path, such as ``steps/reward``.
    """

    root: Struct = field(default_factory=lambda: Struct({}))

    @classmethod
    def of(cls, root: Struct) -> "FeatureColumns":
        """Return the columns of a tree."""
        return cls(PayloadKind.EXAMPLE, root=root)

    @property
    def names(self) -> tuple[str, ...]:
        """The name of each field; some get a ``_``, as the table has such a column."""
        return tuple(map(self._column_name, self.root.fields))

    def _column_name(self, name: str) -> str:
        if name not in {EXACT, *PLACES}:
            return name
        name = f"{name}_"
        while name in self.root.fields:
            name += "_"
        return name

    @property
    def batch_records(self) -> int:
        """Records of a batch."""
        sizes = [leaf.values.extent for leaf in leaves_of(self.root) if not leaf.level]
        return max(1, _BATCH_VALUES // max(1, sum(sizes)))

    @property
    def required(self) -> set[str]:
        """The names of the columns that are never null: none, as features may be missing."""
        return set()

    @property
    def inner_paths(self) -> tuple[str, ...]:
        """The paths of what is in structs and lists, which can be columns of their own."""
        paths = dict.fromkeys(paths_of(self.root))
        return tuple(path for path in paths if path not in self.root.fields)

    def with_paths(self, mentioned: Collection[str]) -> "FeatureColumns":
        """Return the same with those of the `inner_paths` that are mentioned, in lower case."""
        paths = [path for path in self.inner_paths if path.casefold() in mentioned]
        return self.narrowed([*self.names, *paths]) if paths else self

    @property
    def images(self) -> tuple[str, ...]:
        """The columns that have one encoded image in a record."""
        fields = zip(self.names, self.root.fields.values(), strict=True)
        return tuple(
            name
            for name, item in fields
            if isinstance(item, Values) and item.kind is Kind.IMAGE and not item.shape
        )

    @property
    def numbers(self) -> tuple[str, ...]:
        """The columns that have one whole number in a record; labels first."""
        leaves = [
            Leaf(name, 0, item)
            for name, item in zip(self.names, self.root.fields.values(), strict=True)
            if isinstance(item, Values) and not item.shape
        ]
        kinds = (Kind.LABEL, Kind.NUMBER)
        integers = [one for one in leaves if one.values.kind in kinds and not one.values.is_float]
        integers.sort(key=lambda leaf: kinds.index(leaf.values.kind))
        return tuple(leaf.path for leaf in integers)

    def is_single(self, name: str) -> bool:
        """Return whether a record has at most one value in a column."""
        return isinstance(self.select([name]).root.fields.get(name), Values)

    def select(self, names: Iterable[str]) -> "FeatureColumns":
        """Return the fields of these names or paths, in this order; `UsageError` without one."""
        known = dict(zip(self.names, self.root.fields, strict=True))
        chosen = select_fields(self.root, [known.get(one, one) for one in names])
        return replace(self, root=chosen)

    def narrowed(self, columns: Iterable[str]) -> "FeatureColumns":
        """Return the columns among these names, which may be paths, in their own order."""
        wanted = {*columns}
        named = zip(self.names, self.root.fields.items(), strict=True)
        fields = {name: item for column, (name, item) in named if column in wanted}
        for path in self.inner_paths:
            found = field_at(self.root, path) if path in wanted else None
            fields |= {} if found is None else {path: found}
        return replace(self, root=Struct(fields))

    def renamed(self, names: Mapping[str, str]) -> "FeatureColumns":
        """Return the same fields, some under other names."""
        fields = self.root.fields.items()
        return replace(self, root=Struct({names.get(name, name): part for name, part in fields}))

    @property
    def stored(self) -> Columns:
        """The stored features as columns of lists."""
        features = {feature.key: feature.dtype for feature in stored_features(self.root)}
        columns = (Column.of_lists(feature_key(key), dtype) for key, dtype in features.items())
        return Columns(PayloadKind.EXAMPLE, tuple(columns))

    def encode(self, batch: pa.RecordBatch) -> Sequence[bytes]:
        """Return Examples that store rows; `SchemaError` for a value that no feature holds."""
        flat, stored = FlatFeatures(self.root, batch.columns, batch.num_rows), self.stored
        arrays = [flat.arrays[feature_name(column.key)] for column in stored.columns]
        if not arrays:
            return [b""] * batch.num_rows
        nulls = {leaf.path: leaf.values.null for leaf in leaves_of(self.root)}
        columns = list[Column]()
        for column, array in zip(stored.columns, arrays, strict=True):
            if column.dtype is not None and not pa.types.is_nested(array.type):
                null = nulls.get(feature_name(column.key)) or Null.ABSENT
                column = replace(column, item=stored_values(column.dtype, null.info))
            columns.append(column)
        stored = replace(stored, columns=tuple(columns))
        return encode_payloads(pa.record_batch(arrays, schema=stored.to_arrow()), stored)

    @classmethod
    def from_json(cls, data: Any) -> "FeatureColumns":
        """Read what a schema's metadata holds; a ValueError or its like if it is something else."""
        root = tree_from_json(data["features"])
        if not isinstance(root, Struct):
            raise ValueError("the features are not a struct")
        check_fields(root)
        rated = _with_rates(root, data.get("rates", {}))
        return cls.of(_with_classes(rated, data.get("classes", {})))

    @classmethod
    def declared_by(cls, schema: pa.Schema) -> "FeatureColumns | None":
        """Return the columns that a schema's metadata says it has, if it does."""
        try:
            return cls.from_json(json.loads((schema.metadata or {})[METADATA]))
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError, UsageError):
            return None

    def to_arrow(self, *, exact: bool = False) -> pa.Schema:
        """Return the schema of a table with these columns."""
        kinds = map(arrow_type, self.root.fields.values())
        fields = [pa.field(*one) for one in zip(self.names, kinds, strict=True)]
        fields += [pa.field(EXACT, pa.binary())] if exact else []
        content = {"kind": self.kind.value, "features": tree_json(self.root)}
        classes = {
            leaf.path: leaf.values.info["names"]
            for leaf in leaves_of(self.root)
            if leaf.values.info.get("names")
        }
        content |= {"classes": classes} if classes else {}
        rates = {
            name: part.info[RATE]
            for name, part in self.root.fields.items()
            if isinstance(part, Values) and is_rated(part)
        }
        content |= {"rates": rates} if rates else {}
        return pa.schema(fields, {METADATA: json.dumps(content)})

    def decode(
        self,
        payloads: Sequence[bytes],
        *,
        exact: bool = False,
        other_keys: Counter[bytes] | None = None,
    ) -> tuple[pa.RecordBatch, dict[int, str]]:
        """Decode payloads to a batch, with the reasons of those that can't be by their places.

        ``other_keys`` counts the features that the tree doesn't have.
        """
        batch, misfits, damaged = self.checked(payloads, strict=False, other_keys=other_keys)
        rejected = {row: str(next(iter(found.values()))) for row, found in misfits.items()}
        rejected |= damaged
        schema = self.to_arrow(exact=exact)
        arrays = [*batch.flatten()]
        if exact:
            intact = [one for row, one in enumerate(payloads) if row not in rejected]
            arrays.append(strings_array(intact))
        if not arrays:
            return pa.RecordBatch.from_struct_array(batch), rejected
        return pa.RecordBatch.from_arrays(arrays, schema=schema), rejected

    def checked(
        self,
        payloads: Sequence[bytes],
        *,
        strict: bool,
        other_keys: Counter[bytes] | None = None,
    ) -> tuple[pa.StructArray, dict[int, dict[str, FieldMisfit]], dict[int, str]]:
        """Decode payloads, and return the records that fit as an array of structs.

        Besides, by the places of the others: how they differ from the tree, and why some are no
        Examples. ``strict`` is that of `NestedBuild`; with it, text that isn't UTF-8 is a misfit
        of records that fit, too.
        """
        places, arrays, damaged = self._stored_arrays(payloads, other_keys)
        rows, misfits = self._built(places, arrays, strict=strict)
        return rows, misfits, damaged

    def compare(self, payloads: Sequence[bytes]) -> Comparison:
        """Compare payloads with the tree, as TFDS would read them."""
        other_keys = Counter[bytes]()
        places, arrays, damaged = self._stored_arrays(payloads, other_keys)
        _, misfits = self._built(places, arrays, strict=True)
        return Comparison(misfits, damaged, other_keys)

    def _built(
        self, places: Ints, arrays: dict[str, pa.Array], *, strict: bool
    ) -> tuple[pa.StructArray, dict[int, dict[str, FieldMisfit]]]:
        """Return the records that fit, and how the others differ, by their places."""
        misfits = dict[int, dict[str, FieldMisfit]]()
        while True:
            build = NestedBuild(self.root, arrays, strict=strict)
            for row, found in build.texts.items():
                misfits.setdefault(int(places[row]), {}).update(found)
            if not build.misfits:
                break
            bad = np.array(sorted(build.misfits))
            for row in bad.tolist():
                misfits.setdefault(int(places[row]), {}).update(build.misfits[row])
            fitting = np.delete(np.arange(len(places)), bad)
            places = places[fitting]
            arrays = {key: array.take(numbers_array(fitting)) for key, array in arrays.items()}
        names = [
            pa.field(*one) for one in zip(self.names, map(_type_of, build.arrays), strict=True)
        ]
        rows = pa.Array.from_buffers(pa.struct(names), len(places), [None], children=build.arrays)
        return rows, misfits

    def _stored_arrays(
        self, payloads: Sequence[bytes], other_keys: Counter[bytes] | None = None
    ) -> tuple[Ints, dict[str, pa.Array], dict[int, str]]:
        """Return the places of the Examples that have these types, and their stored features.

        Besides, why others are no such Examples, by their places.
        """
        damaged, places, stored = dict[int, str](), np.arange(len(payloads)), self.stored
        while True:
            try:
                chosen = payloads
                if len(places) < len(payloads):
                    chosen = [payloads[row] for row in places.tolist()]
                flat = decode_batch(chosen, stored, unset_is_absent=True, other_keys=other_keys)
                break
            except MisfitError as error:
                bad = np.array([*error.others])
                reasons = error.others.values()
                damaged |= zip(places[bad].tolist(), reasons, strict=True)
                places = np.delete(places, bad)
        arrays = zip(self._stored_names(stored), stored.arrays(flat), strict=True)
        return places, dict(arrays), damaged

    def _stored_names(self, stored: Columns) -> list[str]:
        """Return the name of each stored feature in the tree."""
        return [feature_name(column.key) for column in stored.columns]


def _type_of(array: pa.Array) -> pa.DataType:
    return array.type


def _with_rates(root: Struct, rates: Mapping[str, Any]) -> Struct:
    """Return a tree whose samples have rates, by name."""
    fields = dict(root.fields)
    for name, rate in rates.items():
        item = fields.get(name)
        if not isinstance(item, Values) or not isinstance(rate, int | str):
            raise ValueError("a sample rate or its feature is not numeric")
        fields[name] = replace(item, info={**item.info, RATE: rate})
    return Struct(fields)


def _with_classes(root: Struct, classes: Mapping[str, Any]) -> Struct:
    """Return a tree whose labels have the names of their classes, by path."""

    def named(path: str, values: Values) -> Values:
        names = classes.get(path)
        if values.kind is not Kind.LABEL or names is None:
            return values
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise ValueError("the names of classes are not texts")
        return replace(values, info={"names": tuple(names)})

    return with_info(root, named)
