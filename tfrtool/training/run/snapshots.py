"""The weights of a model at one moment, to come back to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tfrtool.errors import WeightsError
from tfrtool.records.crc import crc32c
from tfrtool.training.models.trainable import Learner

__all__ = ["Snapshot", "Snapshots"]

Values = tuple[Any, ...]
"""Arrays of numpy, one for each variable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """All that a run needs to go on as if it had not been left.

    Attributes:
        weights: what may change: weights, statistics of BatchNormalization, states of dropout.
        optimizer: Adam's moments and its count of steps.
        frozen: the CRC-32C of all weights that never change.
    """

    weights: Values
    optimizer: Values
    frozen: int


class Snapshots:
    """Takes and restores the weights of a model in training."""

    def __init__(self, learner: Learner, frozen: Sequence[Any]) -> None:
        """Get ready.

        Args:
            learner: what is trained.
            frozen: variables of Keras that never change; they need not be kept.
        """
        apart = {id(variable) for variable in frozen}
        self._variables = [v for v in learner.model.variables if id(v) not in apart]
        self._optimizer = learner.optimizer.variables
        self._frozen = 0
        for variable in frozen:
            value = np.ascontiguousarray(variable.numpy())
            self._frozen = crc32c(value.tobytes() + self._frozen.to_bytes(4, "little"))

    def take(self) -> Snapshot:
        """Return the weights as they are now."""
        return Snapshot(
            weights=_values(self._variables),
            optimizer=_values(self._optimizer),
            frozen=self._frozen,
        )

    def take_weights(self) -> Values:
        """Return the weights alone as they are now."""
        return _values(self._variables)

    def restore(self, snapshot: Snapshot) -> None:
        """Make everything what it was.

        Raises:
            WeightsError: the snapshot is of another model.
        """
        if snapshot.frozen != self._frozen:
            raise WeightsError("the frozen weights are not those that the run began with")
        _assign(self._optimizer, snapshot.optimizer)
        self.restore_weights(snapshot.weights)

    def restore_weights(self, weights: Values) -> None:
        """Make the weights what they were, and leave the optimizer alone.

        Raises:
            WeightsError: they are of another model.
        """
        _assign(self._variables, weights)


def _values(variables: Sequence[Any]) -> Values:
    # A copy: TensorFlow may hand out the memory that the next step writes to.
    return tuple(np.array(variable.numpy()) for variable in variables)


def _assign(variables: Sequence[Any], values: Values) -> None:
    expected = [(tuple(variable.shape), str(variable.dtype)) for variable in variables]
    if expected != [(value.shape, str(value.dtype)) for value in values]:
        raise WeightsError("it is of another model")
    for variable, value in zip(variables, values, strict=True):
        variable.assign(value)
