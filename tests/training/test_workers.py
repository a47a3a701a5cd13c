"""TF_CONFIG, and workers that don't come."""

from __future__ import annotations

import json
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.process.several_devices import free_ports
from tfrtool.cli import main
from tfrtool.errors import ClusterError, UsageError
from tfrtool.training.worker_cluster import WorkerCluster, find_workers

WORKERS = ["a:1", "b:2"]
TASK = {"type": "worker", "index": 0}


def _find(cluster: Any, task: Any = None) -> WorkerCluster | None:
    config = {"cluster": cluster, "task": TASK if task is None else task}
    return find_workers({"TF_CONFIG": json.dumps(config)})


def test_workers_are_numbered_as_tensorflow_numbers_them() -> None:
    """The chief is the first, whether it is one by name or the first worker."""
    found = _find({"worker": WORKERS, "chief": ["c:3"]}, {"type": "worker", "index": 1})
    assert found == WorkerCluster(
        names=("chief 0", "worker 0", "worker 1"), addresses=("c:3", "a:1", "b:2"), own=2
    )
    # Some templates make strings of numbers.
    other = _find({"worker": WORKERS}, {"type": "worker", "index": "1"})
    assert other is not None
    assert other.describe(other.own) == "worker 1 (b:2)"


@pytest.mark.parametrize("environment", [{}, {"TF_CONFIG": ""}, {"TF_CONFIG": "{}"}])
def test_no_cluster(environment: dict[str, str]) -> None:
    """Without TF_CONFIG, or with an empty one, there are no workers."""
    assert find_workers(environment) is None


@pytest.mark.parametrize(
    "config",
    [
        *("no json", [], 1, {"cluster": 1}, {"task": {}}),
        {"cluster": {}, "task": TASK},
        {"cluster": {"worker": "a:1"}, "task": TASK},
        *({"cluster": {"worker": [one]}, "task": TASK} for one in ("a", "a:0", ":1")),
        {"cluster": {"worker": [7]}, "task": TASK},
        {"cluster": {"worker": ["a:1", "a:1"]}, "task": TASK},
        {"cluster": {"worker": WORKERS, "ps": ["c:3"]}, "task": TASK},
        {"cluster": {"worker": WORKERS}, "task": {"type": "worker", "index": 2}},
        {"cluster": {"worker": WORKERS}, "task": {"type": "chief", "index": 0}},
        {"cluster": {"worker": WORKERS}, "task": {"index": 0}},
    ],
    ids=str,
)
def test_an_invalid_cluster_is_a_usage_error(config: Any) -> None:
    """No JSON, no cluster, addresses without ports or twice, or a task that is not in it."""
    text = config if isinstance(config, str) else json.dumps(config)
    with pytest.raises(UsageError, match="TF_CONFIG is invalid"):
        find_workers({"TF_CONFIG": text})


def test_the_command_refuses_nonsense(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """It is a matter of usage: exit code 2, and one line."""
    monkeypatch.setenv("TF_CONFIG", '{"cluster": {"worker": ["a"]}, "task": {}}')
    assert main(["train", str(tmp_path)]) == 2
    error = capfd.readouterr().err
    assert "HOST:PORT" in error
    assert error.count("\n") == 1


def _cluster(count: int, own: int = 0) -> WorkerCluster:
    addresses = tuple(f"127.0.0.1:{port}" for port in free_ports(count))
    names = tuple(f"worker {index}" for index in range(count))
    return WorkerCluster(names=names, addresses=addresses, own=own)


def _come(cluster: WorkerCluster, late: float, all_are_there: threading.Barrier) -> None:
    time.sleep(late)
    cluster.wait_for_all(300.0)
    # TensorFlow's server listens from now on.
    with socket.create_server(("", int(cluster.addresses[cluster.own].rpartition(":")[2]))):
        all_are_there.wait(300.0)


def test_workers_wait_for_each_other() -> None:
    """They come in any order, and the address of each is free again for TensorFlow."""
    first, barrier = _cluster(3), threading.Barrier(3)
    workers = [
        WorkerCluster(names=first.names, addresses=first.addresses, own=own) for own in range(3)
    ]
    with ThreadPoolExecutor(3) as pool:
        come = [pool.submit(_come, one, 0.15 * n, barrier) for n, one in enumerate(workers)]
    assert [one.exception() for one in come] == [None, None, None]
    assert first.missing() == [1, 2]


def test_a_worker_that_does_not_come_is_named() -> None:
    """Not those that are there."""
    cluster = _cluster(3)
    with (
        socket.create_server(("127.0.0.1", int(cluster.addresses[1].rpartition(":")[2]))),
        pytest.raises(ClusterError) as caught,
    ):
        cluster.wait_for_all(0.0)
    assert f"no connection to worker 2 ({cluster.addresses[2]})" in str(caught.value)
    assert "worker 1" not in str(caught.value)


def test_an_address_of_its_own_that_is_taken() -> None:
    """Another program listens there."""
    cluster = _cluster(2)
    with (
        socket.create_server(("", int(cluster.addresses[0].rpartition(":")[2]))),
        pytest.raises(ClusterError, match="worker 0"),
    ):
        cluster.wait_for_all(5.0)
