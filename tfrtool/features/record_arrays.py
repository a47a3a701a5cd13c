"""The fields of a record as NumPy arrays, decoded record by record for training loops.

The arrays are those of ``tfds.as_numpy``: a struct is a dictionary, and a list adds a dimension to
each leaf in it, so that a list of structs is a dictionary of stacked arrays.
"""

from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

from google.protobuf.message import DecodeError

from tfrtool.examples.example import PayloadKind, classify_payload, parse_message
from tfrtool.examples.fields import Field, Leaf, ListOf, Struct, join
from tfrtool.features.leaf_arrays import LeafArrays, LeafPart, misfit
from tfrtool.features.stored_layout import check_tree

_NOT_AN_EXAMPLE = "not a tf.train.Example"


class _ListGroup(NamedTuple):
    """The leaves of a list, which have as many items each.

    Attributes:
        path: the list.
        level: the number of lists around it.
        length: how many items it has; None for any number.
        leaves: the indexes of its leaves.
    """

    path: str
    level: int
    length: int | None
    leaves: range


class FeatureArrays:
    """A function from a payload to the fields of a tree, which can be pickled."""

    def __init__(self, root: Struct) -> None:
        """Prepare for a tree; `ValueError` if records can't store it."""
        check_tree(root)
        self._leaves: list[LeafArrays] = []
        self._groups: list[_ListGroup] = []
        self._indexes = self._structure(root, "", 0)
        self._keys = {source.key for leaf in self._leaves for source in leaf.sources}

    def _structure(self, item: Field, path: str, level: int) -> Any:
        """Return the index of a leaf, or of each leaf in a struct."""
        if isinstance(item, Struct):
            fields = item.fields.items()
            return {name: self._structure(part, join(path, name), level) for name, part in fields}
        first = len(self._leaves)
        if isinstance(item, ListOf):
            indexes = self._structure(item.item, path, level + 1)
            leaves = range(first, len(self._leaves))
            self._groups.append(_ListGroup(path, level, item.length, leaves))  # inner ones first
            return indexes
        self._leaves.append(LeafArrays(Leaf(path, level, item)))
        return first

    def __call__(self, payload: bytes) -> dict[str, Any]:
        """Decode a payload; `ValueError` says how it differs from the tree."""
        try:
            message = parse_message(payload)
        except DecodeError as error:
            raise ValueError(_NOT_AN_EXAMPLE) from error
        if message.HasField("feature_lists"):
            raise ValueError("a tf.train.SequenceExample, not a tf.train.Example")
        features = {entry.key: entry.value for entry in message.context.feature}
        if self._keys.isdisjoint(features):
            kind = classify_payload(payload)
            if kind not in (PayloadKind.EXAMPLE, PayloadKind.EMPTY):
                raise ValueError(_NOT_AN_EXAMPLE)
        parts = [leaf.decode(features) for leaf in self._leaves]
        for group in self._groups:
            self._align(group, parts)
        arrays: dict[str, Any] = _arranged(self._indexes, [*map(_nested, parts)])
        return arrays

    def _align(self, group: _ListGroup, parts: list[LeafPart]) -> None:
        """Check the leaves of a list; those that a record doesn't have get as many items, too."""
        present = [index for index in group.leaves if parts[index].is_present]
        if not present:
            return
        level, first = group.level, max(present, key=lambda index: sum(parts[index].lengths[0]))
        lengths = parts[first].lengths
        for index in group.leaves if level else present:
            if parts[index].lengths[: level + 1] != lengths[: level + 1]:
                self._refuse(group, parts, index, first)
        if group.length is not None:
            for length in lengths[level]:
                if length != group.length:
                    raise misfit(group.path, f"{group.length} items", length)
        if not level and len(present) < len(group.leaves):
            for index in group.leaves:
                if not parts[index].is_present:
                    parts[index] = self._leaves[index].missing(lengths[0][0])

    def _refuse(self, group: _ListGroup, parts: Sequence[LeafPart], index: int, first: int) -> None:
        path, other = (self._leaves[number].leaf.path for number in (index, first))
        count, expected = (parts[number].lengths[0][0] for number in (index, first))
        if group.level and count == expected:
            raise misfit(path, f"lists as long as the lists of {other!r}", "other lengths")
        raise misfit(path, f"as many items as {other!r}", f"{count} instead of {expected}")


def _nested(part: LeafPart) -> Any:
    """Return the items of a leaf in their lists; the one item, without any."""
    if not part.lengths:
        return part.items[0]
    items = part.items
    for lengths in part.lengths[:0:-1]:
        items = [*_divided(items, lengths)]
    return items


def _divided(items: Any, lengths: Sequence[int]) -> Iterator[Any]:
    for start, end in pairwise(accumulate(lengths, initial=0)):
        yield items[start:end]


def _arranged(indexes: Any, arrays: Sequence[Any]) -> Any:
    """Return the arrays at indexes in structs."""
    if isinstance(indexes, dict):
        return {name: _arranged(part, arrays) for name, part in indexes.items()}
    return arrays[indexes]
