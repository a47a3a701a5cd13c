"""Starting training runs on several devices of this machine, and comparing their weights."""

from __future__ import annotations

import contextlib
import json
import os
import random
import socket
import subprocess
import sys

__all__ = ["free_ports", "mirrored_run", "worker", "worker_config"]

_MIRRORED = """
import json, sys
import tensorflow as tf
cpu = tf.config.list_physical_devices("CPU")[0]
two = [tf.config.LogicalDeviceConfiguration()] * 2
tf.config.set_logical_device_configuration(cpu, two)
from tfrtool.cli import main
sys.exit(main([*sys.argv[1:], "--strategy", "mirrored"]))
"""


def free_ports(count: int) -> list[int]:
    """Return unused ports, outside the range from which the system takes ports by itself."""
    ports: set[int] = set()
    while len(ports) < count:
        port = random.SystemRandom().randrange(20_000, 32_000)
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            ports.add(port)
    return [*ports]


def start(command: list[str], **environment: str) -> subprocess.Popen[str]:
    """Start a program of Python's."""
    return subprocess.Popen(
        [sys.executable, *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", **environment},
    )


def worker_config(index: int, ports: list[int]) -> str:
    """Return TF_CONFIG of one of several workers on this machine."""
    cluster = {"worker": [f"127.0.0.1:{port}" for port in ports]}
    return json.dumps({"cluster": cluster, "task": {"type": "worker", "index": index}})


def worker(index: int, ports: list[int], arguments: list[str]) -> subprocess.Popen[str]:
    """Start one of several workers on this machine."""
    config = worker_config(index, ports)
    return start(["-m", "tfrtool", "train", *arguments], TF_CONFIG=config)


def mirrored_run(arguments: list[str]) -> subprocess.Popen[str]:
    """Start a run on two logical devices of this machine's processor."""
    return start(["-c", _MIRRORED, "train", *arguments])
