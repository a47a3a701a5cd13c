"""The records of a split as tf.data reads them: shard by shard, or several at a time."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import cast

import numpy as np
import tensorflow as tf

from tfrtool.loading.dataset.dataset import Dataset, Split
from tfrtool.loading.dataset.record_check import check_copy, limits_problem
from tfrtool.loading.pipeline.load_options import Holdout
from tfrtool.loading.pipeline.python_calls import plain
from tfrtool.loading.pipeline.remote_shards import RemoteShards
from tfrtool.loading.pipeline.tensors import Tensor, TfDataset
from tfrtool.records.compression import TF_TYPES


def split_records(dataset: Dataset, split: Split) -> TfDataset:
    """Return a split's serialized records, shard after shard, their images within the limits."""
    numbers, copies = tf.data.Dataset.range(len(split.shards)), copies_of(dataset, split, 1)
    return numbers.flat_map(part_reader(dataset, split, copies=copies))


def copies_of(dataset: Dataset, split: Split, cycle: int) -> RemoteShards | None:
    """Return what fetches the shards of a split for a pipeline, if they are in a store.

    So many are read at a time as ``cycle`` says.
    """
    if dataset.shard_cache is None:
        return None

    def check(number: int, file: Path) -> None:
        check_copy(split, number, file)
        _check_limits(dataset, split, number, file)

    return RemoteShards(dataset.shard_cache, split, cycle, check)


def _check_limits(dataset: Dataset, split: Split, number: int, file: Path) -> None:
    problem = limits_problem(dataset, file, split.compression)
    if problem is not None:
        # It becomes an InvalidArgumentError, in TensorFlow.
        raise ValueError(f"{split.shards[number].name}, {problem}")


def part_reader(
    dataset: Dataset | None,
    split: Split,
    holdout: Holdout | None = None,
    share: tuple[int, int] = (0, 1),
    copies: RemoteShards | None = None,
) -> Callable[[Tensor], TfDataset]:
    """Return a function from the number of a shard to its serialized records of a part.

    What belongs to the part is told by a record's place in its shard, and not by when it comes:
    the order of reading has no say in it. Of the part, it is every so manieth record from one on,
    by ``share``: a number and a count. Before a shard is read for the first time, its images are
    held to the limits; but not without ``dataset``, where nothing will be decoded. Those of a store
    are read from ``copies``.
    """
    checked = set[int]()

    def path_of(number: int) -> bytes:
        path = split.shards[number]
        if dataset is not None and number not in checked:
            _check_limits(dataset, split, number, path)
            checked.add(number)
        return os.fsencode(path)

    def whole(shard: Tensor) -> TfDataset:
        if copies is not None:
            return copies.records(shard, TF_TYPES[split.compression])
        path = tf.ensure_shape(tf.numpy_function(path_of, [shard], tf.string), [])
        return tf.data.TFRecordDataset(path, TF_TYPES[split.compression])

    def part(shard: Tensor) -> TfDataset:
        # Told of all records beforehand: a formula for each would take longer than parsing one.
        own = tf.data.Dataset.from_tensor_slices(belongs[ends[shard] : ends[shard + 1]])
        # The shard comes first, whose end lets go of a copy.
        both = tf.data.Dataset.zip(whole(shard), own).filter(plain(lambda _record, mine: mine))
        return both.map(plain(lambda record, _mine: record))

    if holdout is None and share == (0, 1):
        return cast(Callable[[Tensor], TfDataset], plain(whole))
    mine = np.ones(split.records, np.bool_)
    if holdout is not None:
        held = np.arange(split.records + 1) * holdout.count_held(split.records) // split.records
        mine = (held[1:] > held[:-1]) == holdout.held_out
    belongs = tf.constant(mine & ((np.cumsum(mine) - 1) % share[1] == share[0]))
    ends = tf.constant(np.cumsum((0, *split.lengths)))
    return cast(Callable[[Tensor], TfDataset], plain(part))
