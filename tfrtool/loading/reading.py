"""The records of a split as tf.data reads them: shard by shard, or several at a time."""

import os
from collections.abc import Callable
from typing import Any, cast

import numpy as np
import tensorflow as tf

from tfrtool.errors import TfrtoolError
from tfrtool.loading.dataset import Dataset, Split
from tfrtool.loading.options import Holdout
from tfrtool.loading.python_calls import changed, plain, records_of
from tfrtool.loading.record_check import check_copy, limits_problem
from tfrtool.loading.share import Share
from tfrtool.loading.tensors import Tensor, TfDataset
from tfrtool.records.compression import TF_TYPES

_ALL = Share()


def split_records(dataset: Dataset, split: Split) -> TfDataset:
    """Return a split's serialized records, shard after shard, their images within the limits."""
    return tf.data.Dataset.range(len(split.shards)).flat_map(part_reader(dataset, split))


def part_reader(
    dataset: Dataset | None,
    split: Split,
    holdout: Holdout | None = None,
    share: Share = _ALL,
    *,
    decodes: bool = True,
) -> Callable[[Tensor], TfDataset]:
    """Return a function from the number of a shard to its serialized records of a part.

    Whether a record belongs to the part depends on its place in its shard, and not on the order
    of reading. Of the part, it is the range of a ``share``. Before a shard is first read, a copy
    of a remote one is checked against the metadata; and its images are held to the limits, if
    they are to be decoded. Without ``dataset``, the shards are local and nothing is checked.
    """
    checked = set[int]()

    def path_of(number: int) -> bytes:
        path = split.shards[number]
        if dataset is None:
            return os.fsencode(path)
        try:
            file = dataset.fetch(path)
            if number not in checked and dataset.shard_cache is not None:
                check_copy(split, number, file)
        except TfrtoolError as error:
            if dataset.shard_cache is not None:
                dataset.shard_cache.failure = error
            raise ValueError(str(error)) from error  # an InvalidArgumentError, in TensorFlow
        if number not in checked and decodes:
            problem = limits_problem(dataset, file, split.compression)
            if problem is not None:
                raise ValueError(f"{path.name}, {problem}")
        checked.add(number)
        return os.fsencode(file)

    def read(shard: Tensor, cut: Callable[[TfDataset], TfDataset] = lambda one: one) -> TfDataset:
        path = tf.ensure_shape(tf.numpy_function(path_of, [shard], tf.string), [])
        return cut(records_of(path, TF_TYPES[split.compression]))

    def part(shard: Tensor) -> TfDataset:
        # Told of all records beforehand: a formula for each would take longer than parsing one.
        first, end = starts[shard] + firsts[shard], starts[shard] + ends[shard]
        own = tf.data.Dataset.from_tensor_slices(belongs[first:end])
        # What is before and after a pipeline's range is neither parsed, nor read to its end.
        records = read(shard, lambda one: one.skip(firsts[shard]).take(ends[shard] - firsts[shard]))
        both = tf.data.Dataset.zip(records, own)
        both = changed(both, "Filter", lambda _record, mine: mine)
        return changed(both, "Map", lambda record, _mine: record)

    if holdout is None and share.count == 1:
        return cast(Callable[[Tensor], TfDataset], plain(lambda shard: read(shard)))
    mine, bounds = _belonging(split, holdout, share)
    belongs, starts = tf.constant(mine), tf.constant(np.cumsum((0, *split.lengths)))
    firsts, ends = tf.constant(bounds[:, 0]), tf.constant(bounds[:, 1])
    return cast(Callable[[Tensor], TfDataset], plain(part))


def own_shards(split: Split, holdout: Holdout | None, share: Share) -> list[int]:
    """Return the numbers of the shards that hold a part's range of a share."""
    if share.count == 1:
        return list(range(len(split.shards)))
    _, bounds = _belonging(split, holdout, share)
    return [int(number) for number in np.flatnonzero(bounds[:, 0] < bounds[:, 1])]


def _belonging(split: Split, holdout: Holdout | None, share: Share) -> tuple[Any, Any]:
    """Return which records belong to the range of a share in a part, bool [records].

    And of each shard, where in it they begin, and where they are at an end: int64 [shards, 2].
    """
    mine = np.ones(split.records, np.bool_)
    if holdout is not None:
        held = np.arange(split.records + 1) * holdout.count_held(split.records) // split.records
        mine = (held[1:] > held[:-1]) == holdout.held_out
    if share.count > 1:
        first, end = share.bounds(int(np.count_nonzero(mine)))
        place = np.cumsum(mine) - 1
        mine &= (place >= first) & (place < end)
    bounds = np.zeros((len(split.lengths), 2), np.int64)
    for number, own in enumerate(np.split(mine, np.cumsum(split.lengths)[:-1])):
        found = np.flatnonzero(own)
        bounds[number] = (found[0], found[-1] + 1) if len(found) else (0, 0)
    return mine, bounds
