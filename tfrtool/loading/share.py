"""What one of several pipelines has of a split, and what each of its replicas has of a batch."""

from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from tfrtool.errors import UsageError
from tfrtool.loading.python_calls import plain
from tfrtool.loading.tensors import Batch, Tensor, TfDataset


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """A range of images, as large as those of the other pipelines but for one image.

    In each step, every pipeline has as much of the batch, and gives each replica as much of that,
    again but for one image. The last batch of an epoch may be so small that some have none of it;
    they have an empty batch then, so that all of them have as many steps.
    """

    number: int = 0  # of the pipeline, from 0
    count: int = 1  # of pipelines
    replicas: int = 1  # that this one has batches for, one after the other

    @classmethod
    def of(cls, context: Any, images: int, batch_size: int) -> "Share":
        """Return the share of a ``tf.distribute.InputContext``; None is all there is.

        UsageError if so many images can't be shared out, in batches of ``batch_size`` for all.
        """
        if context is None:
            return cls()
        count, replicas = context.num_input_pipelines, context.num_replicas_in_sync
        if images < count or batch_size < replicas or batch_size % count:
            raise UsageError(
                f"{images} images can't be distributed in batches of {batch_size}",
                expected=f"at least {count} images, and a batch size of at least {replicas}"
                f"{f' that is a multiple of {count}' if count > 1 else ''}",
            )
        return cls(
            number=context.input_pipeline_id, count=count, replicas=max(replicas // count, 1)
        )

    def bounds(self, images: int) -> tuple[int, int]:
        """Return the first of this pipeline's images, by number, and the first after them."""
        return images * self.number // self.count, images * (self.number + 1) // self.count

    def images(self, images: int) -> int:
        """Return how many of so many images this pipeline has."""
        first, end = self.bounds(images)
        return end - first

    def for_replicas(self, batches: TfDataset) -> TfDataset:
        """Return batches in which each replica has a part of one, in the order of replicas."""
        if self.replicas == 1:
            return batches
        return batches.flat_map(plain(self._parts))

    def _parts(self, images: Tensor, labels: Tensor) -> TfDataset:
        count = tf.shape(labels, tf.int64)[0]

        def part(replica: Tensor) -> Batch:
            first = count * replica // self.replicas
            end = count * (replica + 1) // self.replicas
            return images[first:end], labels[first:end]

        return tf.data.Dataset.range(self.replicas).map(plain(part))


def empty_batch(batches: TfDataset) -> TfDataset:
    """Return a dataset of one batch like the others, without an image."""
    nothing = tf.nest.map_structure(
        lambda spec: tf.zeros([0, *spec.shape[1:]], spec.dtype), batches.element_spec
    )
    return tf.data.Dataset.from_tensors(nothing)
