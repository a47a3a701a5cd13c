"""The order in which an epoch takes images that can be had at random: a formula, and no buffer."""

from dataclasses import dataclass

import tensorflow as tf

from tfrtool.loading.tensors import Tensor

_ROUNDS = 8
"""Of the cipher that shuffles. With 4, TensorFlow's default, neighbours stay together where there
are few images: of 300, a row was in the first half of 13 % to 83 % of the epochs. Of each seed
only the lowest byte counts (measured with TensorFlow 2.21)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowOrder:
    """Which rows each step of each epoch takes.

    Rows are shuffled in blocks: all rows are one, or as many as the size of a buffer. Where rows
    are ``growing`` on the way, the very first epoch has them as they come, mixed already.
    """

    images: int  # how many rows there are
    batch_size: int  # rows of a step; the last of an epoch may have fewer
    shuffled: bool
    block: int | None  # its size in rows; None is all
    seed: int  # decides the order, together with the epoch's number
    growing: bool = True  # whether the first epoch fills the rows
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
        seed = tf.random.stateless_uniform(
            [3], tf.stack([tf.constant(self.seed, tf.int64), epoch]), None, None, tf.int64
        )
        index, first, last = places, 0, self.images - 1
        size = self.block or self.images
        # One seed for all rows is simpler, but the operation takes none for a step without rows.
        if size < self.images or self.least_steps > -(-self.images // self.batch_size):
            block = places // size
            first = block * size
            index, last = places - first, tf.minimum(first + size, self.images) - 1 - first
            seed += tf.stack([block // 2**16, block // 2**8, block], axis=1)
        shuffled = first + tf.raw_ops.RandomIndexShuffle(
            index=index, seed=seed, max_index=tf.cast(last, tf.int64), rounds=_ROUNDS
        )
        return tf.where(tf.equal(epoch, 0), places, shuffled) if self.growing else shuffled
