"""The order in which an epoch takes images that can be had at random: a formula, and no buffer."""

from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from tfrtool.loading.pipeline.tensors import Tensor

_FIRST_BLOCK = 256
"""Images that the very first epoch waits for before it begins."""

_ROUNDS = 8
"""Of the cipher that shuffles. With 4, TensorFlow's default, neighbours stay together where there
are few images: of 300, a row was in the first half of 13 % to 83 % of the epochs. Of each seed
only the lowest byte counts (measured with TensorFlow 2.21)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowOrder:
    """Which rows each step of each epoch takes.

    Rows are shuffled in blocks: all rows are one, or as many as the size of a buffer. Where rows
    are ``growing`` on the way, the very first epoch has blocks of 256, 256, 512, 1024 and so on, if
    nothing else is asked for: it begins when the first of them is there, and goes on while the
    others come.
    """

    images: int  # how many rows there are
    batch_size: int  # rows of a step; the last of an epoch may have fewer
    shuffled: bool
    block: int | None  # its size in rows; None is all
    seed: int  # decides the order, together with the epoch's number
    growing: bool = True  # whether the first epoch begins before all rows are there
    least_steps: int = 0  # of an epoch, where others have more rows: the last one may have none

    @property
    def steps(self) -> int:
        """How many steps an epoch has."""
        return max(-(-self.images // self.batch_size), self.least_steps)

    def rows(self, epoch: Tensor, number: Tensor) -> Tensor:
        """Return the rows of a step of an epoch, int64 [n]; both are int64 [], from 0."""
        start = number * self.batch_size
        places = tf.range(start, tf.minimum(start + self.batch_size, self.images))
        if not self.shuffled:
            return places
        starts = self._starts(epoch)
        block = tf.searchsorted(starts, places, side="right", out_type=tf.int64) - 1
        first = tf.gather(starts, block)
        end = tf.gather(tf.concat([starts[1:], [self.images]], 0), block)
        drawn = tf.random.stateless_uniform(
            [3], tf.stack([tf.constant(self.seed, tf.int64), epoch]), None, None, tf.int64
        )
        shuffled = tf.raw_ops.RandomIndexShuffle(
            index=places - first,
            seed=drawn + tf.stack([block // 2**16, block // 2**8, block], axis=1),
            max_index=end - first - 1,
            rounds=_ROUNDS,
        )
        return first + shuffled

    def ready(self, epoch: int, rows: int) -> int:
        """Return how many steps of an epoch can be taken when the first ``rows`` rows are there."""
        if rows >= self.images:
            return self.steps
        if self.shuffled and self.block is not None:
            rows -= rows % self.block
        elif self.shuffled:
            rows = max(start for start in self._blocks(epoch) if start <= rows)
        return rows // self.batch_size

    def _starts(self, epoch: Tensor) -> Tensor:
        """Return where the blocks of an epoch start, int64 [blocks]; the last may have no rows."""
        if self.block is not None:
            return tf.range(0, self.images, self.block, tf.int64)
        first = self._blocks(0)
        later = [0, *[self.images] * (len(first) - 1)]
        return tf.where(tf.equal(epoch, 0), np.array(first), np.array(later))

    def _blocks(self, epoch: int) -> list[int]:
        """Return where those blocks start that no buffer makes."""
        starts = [0]
        while epoch == 0 and self.growing and max(2 * starts[-1], _FIRST_BLOCK) < self.images:
            starts.append(max(2 * starts[-1], _FIRST_BLOCK))
        return starts
