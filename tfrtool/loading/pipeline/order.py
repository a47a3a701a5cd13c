"""The order in which an epoch takes images that can be had at random: a formula, and no buffer."""

from dataclasses import dataclass

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

    Rows are shuffled in blocks: all rows are one, or as many as the size of a buffer. The very
    first epoch has blocks of 256, 256, 512, 1024 and so on, where nothing else is asked for: it
    begins when the first of them is there, and goes on while the others come.
    """

    images: int  # how many rows there are
    batch_size: int  # rows of a step; the last of an epoch may have fewer
    shuffled: bool
    block: int | None  # its size in rows; None is all
    seed: int  # decides the order, together with the epoch's number
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

    def ready(self, epoch: Tensor, rows: Tensor) -> Tensor:
        """Return how many steps of an epoch can be taken when the first ``rows`` rows are there."""
        whole = rows
        if self.shuffled:
            starts = tf.concat([self._starts(epoch), [self.images]], 0)
            whole = starts[tf.searchsorted(starts, rows[None], side="right")[0] - 1]
        return tf.where(
            whole >= self.images, tf.constant(self.steps, tf.int64), whole // self.batch_size
        )

    def _starts(self, epoch: Tensor) -> Tensor:
        """Return where the blocks of an epoch start, int64 [blocks]."""
        if self.block is not None:
            return tf.range(0, self.images, self.block, tf.int64)
        growing = [0]
        while max(2 * growing[-1], _FIRST_BLOCK) < self.images:
            growing.append(max(2 * growing[-1], _FIRST_BLOCK))
        return tf.cond(
            tf.equal(epoch, 0),
            lambda: tf.constant(growing, tf.int64),
            lambda: tf.constant([0], tf.int64),
        )
