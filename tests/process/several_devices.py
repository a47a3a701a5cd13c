"""Training on several devices, held against one: ``python -m tests.process.several_devices``.

Weight sums of runs side by side: two logical devices, two workers, a frozen base; then a worker and
the chief are killed in the middle, and the runs are resumed.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["difference", "free_ports", "mirrored_run", "start", "worker", "worker_config"]

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
    """Return ports that nobody listens at."""
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


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


def _variables(out: Path) -> dict[str, Any]:
    import tensorflow as tf

    reader = tf.train.load_checkpoint(str(out / "checkpoint"))
    names = [name for name in reader.get_variable_to_shape_map() if name.startswith("state")]
    return {name: reader.get_tensor(name).astype(np.float64) for name in names}


def difference(first: Path, second: Path) -> tuple[float, float, float]:
    """Return the sums of all numbers of two runs' checkpoints, and how far one is from another."""
    one, two = _variables(first), _variables(second)
    assert one.keys() == two.keys()
    sums = [sum(float(np.abs(value).sum()) for value in values.values()) for values in (one, two)]
    most = max(float(np.abs(one[name] - two[name]).max()) for name in one)
    return sums[0], sums[1], most


def _end(process: subprocess.Popen[str], seconds: float = 120) -> str:
    """Wait for a process; return what it printed to standard error, but for warnings."""
    printed, said = process.communicate(timeout=seconds)
    lines = [line for line in said.splitlines() if not line.startswith("tfrtool: warning:")]
    said = "\n".join(lines)
    if process.returncode > 0:
        return f"exit code {process.returncode}: {said.strip()}"
    return said if process.returncode == 0 else f"killed, {len(printed)} characters printed"


def _epochs(out: Path) -> int:
    found = [int(path.name[5:-6]) for path in out.glob("checkpoint/ckpt-*.index")]
    return max(found, default=0)


def _two(ports: list[int], arguments: list[str], kill: int | None = None) -> list[str]:
    """Run two workers, and kill one of them after its second epoch; return what they said."""
    started = [worker(index, ports, arguments) for index in range(2)]
    out, end = Path(arguments[arguments.index("--out") + 1]), time.monotonic() + 120
    if kill is not None:
        while _epochs(out) < 2 and time.monotonic() < end:
            time.sleep(0.01)
        time.sleep(0.1)
        started[kill].send_signal(signal.SIGKILL)
        _say(f"  killed worker {kill} after epoch {_epochs(out)}")
        before = time.monotonic()
        said = [_end(one) for one in started]
        _say(f"  the other ended after {time.monotonic() - before:.1f} s")
        return said
    return [_end(one) for one in started]


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _show(what: str, first: Path, second: Path) -> None:
    one, two, most = difference(first, second)
    _say(f"{what}: sums {one:.6f} and {two:.6f}, largest difference {most:.2e}")


def _main() -> None:
    from tests.training.runs import write_drawings

    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        os.environ["XDG_CACHE_HOME"] = str(root / "caches")
        shards = str(write_drawings(root / "drawings"))

        def run(out: str, *more: str) -> list[str]:
            return [shards, "--batch-size", "16", *more, "--out", str(root / out)]

        small = ["--model", "cnn", "--image-size", "32", "--epochs", "3"]
        ways = {
            "all layers, sgd": [*small, "--optimizer", "sgd", "--learning-rate", "0.05"],
            "the head, adam": [*small, "--trainable", "head"],
            "decoded anew": [*small, "--trainable", "head", "--cache", "none", "--augment", "flip"],
            "frozen base": [
                *("--model", "mobilenet_v2", "--weights", "none", "--image-size", "32"),
                *("--trainable", "head", "--epochs", "3", "--cache", "features"),
            ],
        }
        for number, (what, options) in enumerate(ways.items()):
            one, shared = (root / f"{name}{number}" for name in ("one", "shared"))
            for out, more in ((one, []), (shared, ["--shares", "2"])):
                said = _end(start(["-m", "tfrtool", "train", *run(out.name, *options, *more)]))
                assert not said, said
            mirrored = mirrored_run(run(f"mirrored{number}", *options))
            said = _end(mirrored)
            assert mirrored.returncode == 0, said
            workers = _two(free_ports(2), run(f"workers{number}", *options))
            assert workers == ["", ""], workers
            _show(f"{what}: one process and two devices", one, root / f"mirrored{number}")
            _show(f"{what}: one process and two workers", shared, root / f"workers{number}")
        ports = free_ports(4)
        alone = worker(1, ports[:2], run("alone", *small, "--worker-timeout", "0.5"))
        others = [worker(n, ports[2:], run("b", *small, "--seed", str(n))) for n in range(2)]
        for process, code, named in (
            (alone, 1, f"worker 0 (127.0.0.1:{ports[0]}) has not connected"),
            (others[0], 2, f"worker 1 (127.0.0.1:{ports[3]})"),
            (others[1], 2, f"worker 0 (127.0.0.1:{ports[2]})"),
        ):
            said = _end(process)
            _say(f"  {said}")
            assert process.returncode == code
            assert named in said
        options = [*small[:-1], "12", "--optimizer", "sgd", "--batch-size", "2"]
        assert _two(free_ports(2), run("whole", *options)) == ["", ""]
        for kill in (1, 0):
            arguments = run(f"killed{kill}", *options)
            words = _two(free_ports(2), arguments, kill)
            _say(f"  worker 0: {words[0]}\n  worker 1: {words[1]}")
            assert _two(free_ports(2), [*arguments, "--resume"]) == ["", ""]
            _show("uninterrupted, and killed and resumed", root / "whole", root / f"killed{kill}")


if __name__ == "__main__":
    _main()
