"""The optimizers that a model is trained by, and how the learning rate goes."""

import enum
from typing import Any


class Optimizer(enum.Enum):
    """Which of Keras' optimizers; the values are those of the CLI. SGD has a momentum of 0.9."""

    ADAM = "adam"
    ADAMW = "adamw"
    SGD = "sgd"
    RMSPROP = "rmsprop"
    LION = "lion"


class Schedule(enum.Enum):
    """How the learning rate goes: the same all the time, or half a cosine down to 0."""

    CONSTANT = "constant"
    COSINE = "cosine"


FACTORS = {Optimizer.SGD: 10.0, Optimizer.LION: 0.1}
"""By how much the usual rate is another than Adam's. Keras' own default for SGD is ten times that
of Adam; Lion's paper (Chen et al., 2023) takes a tenth to a third of AdamW's."""

_MOMENTUM = 0.9


def make_optimizer(
    optimizer: Optimizer,
    rate: float,
    schedule: Schedule = Schedule.CONSTANT,
    steps: int = 1,
    *,
    scaled: bool = False,
) -> Any:
    """Return a ``keras.optimizers.Optimizer``; ``steps`` is how many a schedule has in all.

    With ``scaled`` it scales the loss, so that small gradients are not 0 in float16.
    """
    import keras

    chosen: Any = float(rate)
    if schedule is Schedule.COSINE:
        chosen = keras.optimizers.schedules.CosineDecay(rate, steps)
    made = {
        Optimizer.ADAM: keras.optimizers.Adam,
        Optimizer.ADAMW: keras.optimizers.AdamW,
        Optimizer.SGD: lambda rate: keras.optimizers.SGD(rate, momentum=_MOMENTUM),
        Optimizer.RMSPROP: keras.optimizers.RMSprop,
        Optimizer.LION: keras.optimizers.Lion,
    }
    found = made[optimizer](chosen)
    return keras.optimizers.LossScaleOptimizer(found) if scaled else found
