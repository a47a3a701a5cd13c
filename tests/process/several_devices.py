"""Starting a training run on several devices of this machine."""

from __future__ import annotations

import os
import subprocess
import sys

__all__ = ["mirrored_run"]

_MIRRORED = """
import json, sys
import tensorflow as tf
cpu = tf.config.list_physical_devices("CPU")[0]
two = [tf.config.LogicalDeviceConfiguration()] * 2
tf.config.set_logical_device_configuration(cpu, two)
from tfrtool.cli import main
sys.exit(main([*sys.argv[1:], "--strategy", "mirrored"]))
"""


def mirrored_run(arguments: list[str]) -> subprocess.Popen[str]:
    """Start a run on two logical devices of this machine's processor."""
    return subprocess.Popen(
        [sys.executable, "-c", _MIRRORED, "train", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
    )
