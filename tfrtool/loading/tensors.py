"""Names for what TensorFlow has no types for, and its devices."""

from typing import Any

Tensor = Any
"""A ``tf.Tensor``, in a graph or not."""

Batch = tuple[Tensor, Tensor]
"""Images and labels; or one of each."""

TfDataset = Any
"""A ``tf.data.Dataset``."""


def start_devices() -> None:
    """Start TensorFlow's devices, which may take seconds and log about drivers on stderr."""
    import tensorflow as tf

    tf.config.list_physical_devices()
