"""The records of a split as tf.data reads them: shard by shard, or several at a time."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tfrtool.loading.dataset import Split
from tfrtool.loading.options import Holdout
from tfrtool.records.compression import Compression

__all__ = ["hold_out", "plain", "shard_paths", "shard_reader"]

plain = tf.autograph.experimental.do_not_convert
"""Marks a function of tensors as one without ``if`` or ``for`` over them. Else TensorFlow parses
and compiles it anew in every process, which takes as long as decoding some hundred images."""

_TYPES = {Compression.NONE: "", Compression.GZIP: "GZIP", Compression.ZLIB: "ZLIB"}


def shard_paths(split: Split) -> list[str]:
    """Return the paths of a split's shards, in order."""
    return [os.fspath(path) for path in split.shards]


def shard_reader(split: Split) -> Callable[[Any], Any]:
    """Return a function from the path of a shard, or of several, to their serialized records."""
    kind = _TYPES[split.compression]
    read: Callable[[Any], Any] = plain(
        lambda path: tf.data.TFRecordDataset(path, compression_type=kind)
    )
    return read


def hold_out(records: Any, total: int, holdout: Holdout | None) -> Any:
    """Keep the held-out part of the records, or the rest, before anything is decoded.

    Args:
        records: a ``tf.data.Dataset`` of serialized records, always in the same order.
        total: how many there are.
        holdout: which part; None keeps all.
    """
    if holdout is None:
        return records
    held = int(total * holdout.fraction)

    def belongs(number: Any, _record: Any) -> Any:
        is_held = (number + 1) * held // total > number * held // total
        return is_held if holdout.held_out else tf.logical_not(is_held)

    return records.enumerate().filter(plain(belongs)).map(plain(lambda _number, record: record))
