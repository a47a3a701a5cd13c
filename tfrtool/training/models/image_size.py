"""The size that images are resized to where none is given."""

from __future__ import annotations

import statistics

import tensorflow as tf

from tfrtool.loading.dataset.dataset import Dataset
from tfrtool.loading.dataset.drop_corrupt import name_damage
from tfrtool.loading.pipeline.decode import full_image, parser
from tfrtool.loading.pipeline.reading import split_records
from tfrtool.training.models.model_choice import ModelName
from tfrtool.training.run.train_options import TrainOptions

__all__ = ["choose_image_size"]

_LOOKED_AT = 16
"""Images, from the first shard on."""

_STEP = 32
"""The cnn halves its images five times: the least that it takes, and what divides evenly."""


def choose_image_size(options: TrainOptions, dataset: Dataset) -> int:
    """Return the size of images, in pixels both ways.

    That is what was asked for, or else the model's own. The cnn has no weights from elsewhere, and
    so no size that it must have: small images are enlarged to the next multiple of 32 alone, by
    the median of the first ones' longer sides. Digits of 28 pixels are trained on at 32.

    Raises:
        UsageError: there is no such split.
        DatasetError: one of the first images can't be used; names it.
        CorruptShardError: a shard is damaged; names the record.
    """
    if options.image_size is not None or options.model != ModelName.CNN:
        return options.size
    split, parse = dataset.split(options.split), parser(dataset)
    try:
        sides = [
            max(full_image(dataset, parse(record)).shape[:2])
            for record in split_records(dataset, split).take(_LOOKED_AT)
        ]
    except (tf.errors.DataLossError, tf.errors.InvalidArgumentError) as error:
        raise name_damage(dataset, [split], error) from error
    longest = int(statistics.median(sides)) if sides else options.size
    return min(options.size, -(-max(longest, 1) // _STEP) * _STEP)
