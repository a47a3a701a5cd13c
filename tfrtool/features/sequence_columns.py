"""SequenceExamples as columns, some of whose features have types of their own."""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tfrtool.examples.arrow.arrays import Ints, list_array, numbers_array
from tfrtool.examples.arrow.columns import CONTEXT, LISTS, METADATA, Column, Columns
from tfrtool.examples.example import PayloadKind, feature_key, feature_name
from tfrtool.examples.fields import Encoding, Leaf, Struct, leaves_of
from tfrtool.features.feature_columns import FeatureColumns
from tfrtool.features.stored_layout import StoredLeaf, stored_leaf
from tfrtool.features.stored_lists import StoredLists


@dataclass(frozen=True, slots=True)
class SequenceColumns(FeatureColumns):
    """The struct ``context`` and the struct of lists ``feature_lists`` as columns.

    The tree is laid out like that of an Example: ``feature_lists/rgb`` has the values of all steps.
    """

    @classmethod
    def of(cls, root: Struct) -> "SequenceColumns":
        """Return the columns of a tree."""
        return cls(PayloadKind.UNKNOWN, root=root)

    def to_arrow(self, *, exact: bool = False) -> pa.Schema:
        """Return the schema of a table with these columns, which has no way back."""
        schema = FeatureColumns.to_arrow(self, exact=exact)
        content = {"message": PayloadKind.SEQUENCE_EXAMPLE.title}
        return schema.with_metadata({METADATA: json.dumps(content)})

    def select(self, names: Iterable[str]) -> FeatureColumns:
        """Return the columns of these names or paths; ``rgb`` is ``feature_lists/rgb``, too."""
        paths = {*self.root.fields, *self.inner_paths}
        chosen = list[str]()
        for name in names:
            known = (name, f"{CONTEXT}/{name}", f"{LISTS}/{name}", name.replace(".", "/", 1))
            chosen.append(next((path for path in known if path in paths), name))
        return FeatureColumns.select(self, chosen)

    @property
    def stored(self) -> Columns:
        """The stored features and feature lists as columns of lists."""
        columns = dict[tuple[bytes, bool], Column]()
        for leaf in leaves_of(self.root):
            stored, (part, _, name) = stored_leaf(leaf), leaf.path.partition("/")
            keys = [(name, part == LISTS, stored.values.dtype)]
            keys += [(size.key.partition("/")[2], False, size.dtype) for size in stored.sizes]
            for key, is_list, dtype in keys:
                column = Column.of_lists(feature_key(key), dtype, is_list=is_list)
                columns.setdefault((column.key, is_list), column)
        found = sorted(columns.values(), key=lambda column: column.is_list)
        return Columns(PayloadKind.SEQUENCE_EXAMPLE, tuple(found))

    def _stored_arrays(
        self, payloads: Sequence[bytes], other_keys: Counter[bytes] | None = None
    ) -> tuple[Ints, dict[str, pa.Array], dict[int, str]]:
        """Do what `FeatureColumns` does; steps with other numbers of values don't fit."""
        places, flat, damaged = FeatureColumns._stored_arrays(self, payloads, other_keys)
        arrays, wrong = dict[str, pa.Array](), dict[int, str]()
        for leaf in leaves_of(self.root):
            stored = stored_leaf(leaf)
            arrays |= {size.key: flat[size.key] for size in stored.sizes}
            if leaf.path.startswith(f"{LISTS}/"):
                arrays |= _steps(leaf, stored, flat[leaf.path], wrong)
            else:
                arrays[stored.values.key] = flat[leaf.path]
        if wrong:
            fitting = np.delete(np.arange(len(places)), [*wrong])
            damaged |= {int(places[row]): why for row, why in wrong.items()}
            places = places[fitting]
            arrays = {key: array.take(numbers_array(fitting)) for key, array in arrays.items()}
        return places, arrays, damaged

    def _stored_names(self, stored: Columns) -> list[str]:
        """Return the path of each of the stored columns."""
        return [
            f"{LISTS if column.is_list else CONTEXT}/{feature_name(column.key)}"
            for column in stored.columns
        ]


def _steps(
    leaf: Leaf, stored: StoredLeaf, array: pa.Array, wrong: dict[int, str]
) -> dict[str, pa.Array]:
    """Return the features that would store a feature list in an Example.

    ``wrong`` gets the reasons of records that have other steps than the leaf.
    """
    lists = StoredLists.of(array)
    steps = StoredLists.of(lists.values)
    places = np.flatnonzero(lists.present)
    totals = np.diff(steps.bounds[lists.bounds])[places]
    kind = pa.list_(steps.values.type)
    found = {stored.values.key: list_array(kind, len(array), places, totals, steps.values)}
    for feature in stored.lengths:
        lengths = numbers_array(steps.counts)
        lists_of = pa.list_(pa.int64())
        found[feature.key] = list_array(lists_of, len(array), places, lists.counts[places], lengths)
    if not stored.lengths:
        expected = 1 if leaf.values.encoding is not Encoding.NONE else leaf.values.size
        others = np.flatnonzero(steps.counts != expected)
        for row, step in zip(lists.owners(others).tolist(), others.tolist(), strict=True):
            count = int(steps.counts[step])
            what = f"expected {expected} values in each step, found {count}"
            wrong.setdefault(row, f"feature list {leaf.path.partition('/')[2]!r}: {what}")
    return found
