"""The sizes of tensors that other features of the record have, such as ``image/shape``."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from tfrtool.examples.arrow.arrays import Ints
from tfrtool.examples.fields import Values
from tfrtool.features.misfits import Misfits
from tfrtool.features.stored_layout import MAX_LENGTH
from tfrtool.features.stored_lists import StoredLists, ends_of, numbers_of

_LARGE = 2.0**40
"""A product of sizes that no number of values reaches."""


class Items(NamedTuple):
    """Tensors, one after the other.

    Attributes:
        owners: the record of each.
        values: how many values each has.
    """

    owners: Ints
    values: Ints


def named_sizes(
    values: Values, sizes: Mapping[str, StoredLists], items: Items, misfits: Misfits
) -> Ints | None:
    """Return the sizes of tensors, a row each; None if some records don't have them.

    A feature has the sizes of each tensor, or those of all tensors in the record. If it has a
    single one, that is each size that it is named for.
    """
    shape, fits = values.shape, True
    dims = np.zeros((len(items.owners), len(shape)), np.int64)
    for at, size in enumerate(shape):
        dims[:, at] = -1 if size is None else size
    for name, lists in sizes.items():
        named = [at for at, one in enumerate(values.size_features) if one == name]
        found = _sizes_of_feature(name, lists, len(named), items.owners, misfits)
        if found is None:
            fits = False
        else:
            dims[:, named] = found
    if not fits:
        return None
    pairs = enumerate(zip(shape, values.size_features, strict=True))
    for at in [at for at, pair in pairs if pair == (None, None)]:  # at most one
        others = np.delete(dims, at, axis=1).astype(np.float64)
        product = np.minimum(np.prod(others, axis=1), _LARGE).astype(np.int64)
        dims[:, at] = items.values // np.maximum(product, 1)
    return dims


def _sizes_of_feature(
    name: str, lists: StoredLists, number: int, owners: Ints, misfits: Misfits
) -> Ints | None:
    """Return the sizes of tensors in a feature, ``number`` of each tensor."""
    counts, tensors = lists.counts, np.bincount(owners, minlength=len(lists.counts))
    is_each = counts == number * tensors
    fits = (counts == number) | (counts == 1) | is_each | (counts == tensors)
    wrong = np.flatnonzero(~fits & (tensors > 0))
    if wrong.size:
        what = "one size" if number == 1 else f"{number} sizes"
        misfits.add(wrong, name, what, counts[wrong])
        return None
    numbers = numbers_of(lists.values)
    outside = np.flatnonzero(numbers.view(np.uint64) > MAX_LENGTH)
    outside = outside[tensors[lists.owners(outside)] > 0]
    if outside.size:
        misfits.add(lists.owners(outside), name, "sizes", numbers[outside])
        return None
    of_record = (counts == number) | (counts == 1)
    tensor_step = np.where(of_record, 0, np.where(is_each, number, 1))
    size_step = np.where((counts == number) | (~of_record & is_each), 1, 0)
    order = np.arange(len(owners)) - ends_of(tensors)[owners]
    first = lists.bounds[:-1][owners] + order * tensor_step[owners]
    places = first[:, None] + np.arange(number) * size_step[owners][:, None]
    found: Ints = numbers[places]
    return found
