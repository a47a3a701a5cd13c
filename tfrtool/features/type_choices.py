"""Types that a user or a metadata file chooses for features."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tfrtool.errors import UsageError, suggestion
from tfrtool.examples.fields import (
    ITEM_SIZES,
    Encoding,
    Field,
    Kind,
    ListOf,
    Struct,
    Values,
    leaves_of,
    paths_of,
    with_field_at,
)
from tfrtool.examples.roles import is_image
from tfrtool.features.first_examples import CONTEXT, LISTS, FirstExamples
from tfrtool.features.stored_layout import check_tree, stored_features
from tfrtool.features.tensor_protos import tensor_sizes
from tfrtool.storage.limits import MAX_DIMENSIONS

_KEPT_INFO = ("optional", "null")


def with_types(root: Struct, types: Mapping[str, Values], first: FirstExamples) -> Struct:
    """Return a tree in which features have other types.

    Args:
        root: the tree.
        types: types by the path of a field, or the name of a feature that the tree doesn't have.
        first: the first records, which show how many sizes tensors have.

    Raises:
        UsageError: no such feature, or the type doesn't fit what the tree says.
    """
    for name, values in types.items():
        root = _with_type(root, name, values, first)
    try:
        check_tree(root)
    except ValueError as error:
        raise UsageError(f"the types can't be used together: {error}") from error
    return root


def sequence_types(types: Mapping[str, Values], first: FirstExamples) -> dict[str, Values]:
    """Return types by the paths of a SequenceExample's features, of which users give the names."""

    def path(name: str, parts: Sequence[str]) -> str:
        paths = [f"{part}/{name}" for part in parts]
        paths += [name.replace(".", "/", 1)]
        return next((one for one in paths if one in first.keys), name)

    return {
        path(name, (CONTEXT, LISTS)): replace(
            values,
            size_features=tuple(size and path(size, (CONTEXT,)) for size in values.size_features),
        )
        for name, values in types.items()
    }


def with_images(root: Struct, first: FirstExamples) -> Struct:
    """Return an inferred tree in which strings are images, if they are in all first records."""
    fields = dict(root.fields)
    for name, item in root.fields.items():
        if isinstance(item, Values) and item.kind is Kind.BYTES:
            values = [value for found in first.values(name) for value in found]
            if values and all(map(is_image, values)):
                fields[name] = replace(item, kind=Kind.IMAGE)
    return Struct(fields)


def _with_type(root: Struct, name: str, values: Values, first: FirstExamples) -> Struct:
    if values.stores_shape and name not in first.keys:
        parts = {f"{name}/value", f"{name}/shape"}
        if parts <= first.keys:
            fields = {key: part for key, part in root.fields.items() if key not in parts}
            return Struct({**fields, name: values})
    if values.stores_shape:
        what = f"the type {values} of {name!r} has several unknown sizes"
        raise UsageError(what, hint="name the feature that has them: raw:uint8[@height,@width,3]")
    stored = {feature.key for feature in stored_features(root)} | first.keys
    for size in dict.fromkeys(values.named_sizes):
        if size not in stored:
            hint = suggestion(size, sorted(stored), "features")
            raise UsageError(f"no feature {size!r} for the sizes of {name!r}", hint=hint)

    def change(item: Field) -> Field:
        if first.is_sequence and name.startswith(f"{LISTS}/") and isinstance(item, ListOf):
            return replace(item, item=_retyped(item.item, name, values, first))
        return _retyped(item, name, values, first)

    found = with_field_at(root, name, change)
    if found is None and name in first.keys and not first.is_sequence:
        return Struct({**root.fields, name: change(first.field_of(name))})
    if not isinstance(found, Struct):
        known = sorted({*paths_of(root), *first.keys})
        raise UsageError(f"no feature {name!r}", hint=suggestion(name, known, "features"))
    return found


def _retyped(item: Field, name: str, values: Values, first: FirstExamples) -> Field:
    """Return a field with another type, in the lists that it is in if they are stored apart."""
    inner = item
    while isinstance(inner, ListOf):
        inner = inner.item
    if isinstance(inner, Struct):
        path = next((leaf.path for leaf in leaves_of(inner, name)), f"{name}/...")
        what = f"{name!r} is a struct, which can't have the type {values}"
        raise UsageError(what, hint=f"name one of its fields, such as {path}")
    strings = [found for found in first.values(name) if isinstance(found[0], bytes)]
    is_list = isinstance(item, ListOf)
    if values.encoding is Encoding.NONE:
        is_list = is_list and not values.shape
    elif values.encoding is Encoding.RAW and is_list:
        sizes = {len(string) for found in strings for string in found if len(found) > 1}
        is_list = not sizes or not sizes <= {1, ITEM_SIZES[values.dtype]}
    values = _with_rank(values, name, strings, first)
    info = {key: inner.info[key] for key in _KEPT_INFO if key in inner.info}
    values = replace(values, info={**values.info, **info})
    return _in_lists(item, values) if is_list else values


def _in_lists(item: Field, values: Values) -> Field:
    return replace(item, item=_in_lists(item.item, values)) if isinstance(item, ListOf) else values


def _with_rank(
    values: Values, name: str, records: Sequence[Sequence[bytes]], first: FirstExamples
) -> Values:
    """Return a type with as many sizes as the first records have, if it doesn't say how many."""
    names, strings = values.size_features, [string for record in records for string in record]
    try:
        if values.encoding is Encoding.TENSOR and not values.shape and strings:
            return replace(values, shape=(None,) * len(tensor_sizes(strings[0]) or ()))
        if values.encoding is Encoding.RAW and not values.shape:
            sizes = {*map(len, strings)}
            return values if sizes <= {ITEM_SIZES[values.dtype]} else replace(values, shape=(None,))
        if len(names) == 1 and names[0] is not None and (found := first.values(names[0])):
            rank = _rank([*map(len, found)], [*map(len, first.values(name))])
            return replace(values, shape=(None,) * rank, size_features=names * rank)
    except ValueError as error:
        raise UsageError(f"the type {values} of {name!r} can't be used: {error}") from error
    return values


def _rank(counts: Sequence[int], tensors: Sequence[int]) -> int:
    """Return how many sizes a tensor has, by how many sizes and tensors records have."""
    rank = counts[0]
    shares = {divmod(count, number) for count, number in zip(counts, tensors, strict=False)}
    if len({*counts}) > 1 and len(shares) == 1:
        rank, _ = shares.pop()  # each tensor has its own sizes
    if rank > MAX_DIMENSIONS:
        raise ValueError(f"{rank:,} dimensions (limit {MAX_DIMENSIONS})")
    return rank
