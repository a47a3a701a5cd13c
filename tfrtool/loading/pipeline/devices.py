"""The devices that TensorFlow can use."""

from __future__ import annotations

import tensorflow as tf

__all__ = ["find_devices"]


def find_devices() -> tuple[str, ...]:
    """Start TensorFlow's devices, and return their names: "CPU:0", "GPU:0".

    The first call may take seconds, and makes its libraries tell of drivers on stderr.
    """
    return tuple(
        device.name.rpartition("physical_device:")[2]
        for device in tf.config.list_physical_devices()
    )
