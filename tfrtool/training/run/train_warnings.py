"""What is said before a run that may waste effort."""

import tensorflow as tf

from tfrtool.training.run.train_options import Precision, TrainOptions


def plan_warnings(options: TrainOptions) -> tuple[str, ...]:
    """Return a sentence for each thing that is likely not meant."""
    found = []
    if options.precision.policy != Precision.FLOAT32.value and not tf.config.list_physical_devices(
        "GPU"
    ):
        found.append(f"{options.precision.value} is slower than float32 here: there is no GPU")
    return tuple(found)
