"""The records of a split as tf.data reads them: shard by shard, or several at a time."""

import os
from collections.abc import Callable
from typing import cast

import numpy as np
import tensorflow as tf

from tfrtool.loading.dataset.dataset import Dataset, Split
from tfrtool.loading.dataset.record_check import limits_problem
from tfrtool.loading.pipeline.load_options import Holdout
from tfrtool.loading.pipeline.tensors import Tensor, TfDataset
from tfrtool.records.compression import TF_TYPES

plain = tf.autograph.experimental.do_not_convert
"""Marks a function of tensors as one without ``if`` or ``for`` over them. Else TensorFlow parses
and compiles it anew in every process, which takes as long as decoding some hundred images."""


def split_records(dataset: Dataset, split: Split) -> TfDataset:
    """Return a split's serialized records, shard after shard, their images within the limits."""
    return tf.data.Dataset.range(len(split.shards)).flat_map(part_reader(dataset, split))


def part_reader(
    dataset: Dataset | None,
    split: Split,
    holdout: Holdout | None = None,
    share: tuple[int, int] = (0, 1),
) -> Callable[[Tensor], TfDataset]:
    """Return a function from the number of a shard to its serialized records of a part.

    What belongs to the part is told by a record's place in its shard, and not by when it comes:
    the order of reading has no say in it. Of the part, it is every so manieth record from one on,
    by ``share``: a number and a count. Before a shard is read for the first time, its images are
    held to the limits; but not without ``dataset``, where nothing will be decoded.
    """
    checked = set()

    def path_of(number: int) -> bytes:
        path = split.shards[number]
        if dataset is not None and path not in checked:
            problem = limits_problem(dataset, path, split.compression)
            if problem is not None:
                raise ValueError(problem)  # an InvalidArgumentError, in TensorFlow
            checked.add(path)
        return os.fsencode(path)

    def whole(shard: Tensor) -> TfDataset:
        path = tf.ensure_shape(tf.numpy_function(path_of, [shard], tf.string), [])
        return tf.data.TFRecordDataset(path, TF_TYPES[split.compression])

    def part(shard: Tensor) -> TfDataset:
        # Told of all records beforehand: a formula for each would take longer than parsing one.
        own = tf.data.Dataset.from_tensor_slices(belongs[ends[shard] : ends[shard + 1]])
        both = tf.data.Dataset.zip(own, whole(shard)).filter(plain(lambda mine, _record: mine))
        return both.map(plain(lambda _mine, record: record))

    if holdout is None and share == (0, 1):
        return cast(Callable[[Tensor], TfDataset], plain(whole))
    mine = np.ones(split.records, np.bool_)
    if holdout is not None:
        held = np.arange(split.records + 1) * holdout.count_held(split.records) // split.records
        mine = (held[1:] > held[:-1]) == holdout.held_out
    belongs = tf.constant(mine & ((np.cumsum(mine) - 1) % share[1] == share[0]))
    ends = tf.constant(np.cumsum((0, *split.lengths)))
    return cast(Callable[[Tensor], TfDataset], plain(part))
