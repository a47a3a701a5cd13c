"""A node whose cable is pulled: how long until its tasks are done elsewhere.

``python -m tests.process.test_pulled_cable`` makes three network namespaces with a Ray node each,
and takes the link of one down while tasks run. Only Linux's root can do that.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tests.engines.nodes import SETTINGS
from tests.engines.tasks import begin_and_wait
from tfrtool.engines.pool import map_shards
from tfrtool.engines.ray_cluster import RayCluster

__all__ = ["pull"]

_HOSTS = ("tfr-a", "tfr-b", "tfr-c")
_BRIDGE = "tfr-bridge"
_TASKS, _BEFORE = 60, 9
_HEAD = "10.231.77.1"


def _run(*words: str) -> str:
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


@contextlib.contextmanager
def _network() -> Iterator[None]:
    """Make the hosts and what connects them."""
    try:
        _run("ip", "link", "add", _BRIDGE, "type", "bridge")
        _run("ip", "link", "set", _BRIDGE, "up")
        for number, host in enumerate(_HOSTS, start=1):
            link = f"{host}-link"
            _run("ip", "netns", "add", host)
            _run("ip", "link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", host)
            _run("ip", "link", "set", link, "master", _BRIDGE)
            _run("ip", "link", "set", link, "up")
            inside = ("ip", "-n", host)
            _run(*inside, "addr", "add", f"10.231.77.{number}/24", "dev", "eth0")
            _run(*inside, "link", "set", "eth0", "up")
            _run(*inside, "link", "set", "lo", "up")
        yield
    finally:
        for host in _HOSTS:
            listed = subprocess.run(["ip", "netns", "pids", host], capture_output=True, check=False)
            for pid in map(int, listed.stdout.split()):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            subprocess.run(["ip", "netns", "del", host], capture_output=True, check=False)
        subprocess.run(["ip", "link", "del", _BRIDGE], capture_output=True, check=False)


def pull(folder: Path, keep_alive: str) -> str:
    """Pull a cable while tasks run, and say what became of them; an error if one is missing."""
    (folder / "token").write_text(secrets.token_hex(16))
    (folder / "ray").mkdir()
    (folder / "tasks").mkdir()
    environment = {name: text for name, text in SETTINGS.items() if "health" not in name}
    environment |= {name: keep_alive for name in environment if "keepalive" in name}
    environment |= {"HOME": str(folder), "RAY_TMPDIR": str(folder)}
    environment |= {"RAY_AUTH_TOKEN_PATH": str(folder / "token")}
    environment = {**os.environ, **environment}
    ray = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block", "--num-cpus", "1"]
    ray += ["--object-store-memory", str(80 * 2**20)]
    head = ["--head", "--port", "6379", "--include-dashboard", "false"]
    head += ["--temp-dir", str(folder / "ray")]
    with _network(), (folder / "log").open("wb") as log:
        for number, host in enumerate(_HOSTS, start=1):
            words = head if number == 1 else ["--address", f"{_HEAD}:6379"]
            words = [*ray, *words, "--node-ip-address", f"10.231.77.{number}"]
            call = ["ip", "netns", "exec", host, *words]
            subprocess.Popen(call, stdout=log, stderr=log, env=environment)
            time.sleep(8)
        program = [sys.executable, "-m", __spec__.name, "drive", str(folder / "tasks")]
        driver = subprocess.Popen(
            ["ip", "netns", "exec", _HOSTS[0], *program],
            stdout=subprocess.PIPE,
            stderr=log,
            env=environment,
            text=True,
        )
        assert driver.stdout is not None
        seen, pulled, last = list[int](), 0.0, 0.0
        for line in driver.stdout:
            seen.append(int(line))
            last = time.monotonic()
            if len(seen) == _BEFORE:
                _run("ip", "link", "set", f"{_HOSTS[2]}-link", "down")
                pulled = time.monotonic()
        code = driver.wait()
        if code or sorted(seen) != list(range(_TASKS)):
            raise RuntimeError(f"exit {code}, {len(seen)} results; {(folder / 'log').read_text()}")
        begun = len(list((folder / "tasks").iterdir()))
        return (
            f"keep-alive {keep_alive} ms: all of {_TASKS} tasks were done {last - pulled:.1f} s "
            f"after the cable was pulled; {begun - _TASKS} were begun twice"
        )


def _drive(folder: Path) -> None:
    tasks = [(folder, number) for number in range(_TASKS)]
    with RayCluster(f"{_HEAD}:6379") as cluster:
        for number, _ in map_shards(begin_and_wait, tasks, cluster, in_order=False):
            sys.stdout.write(f"{number}\n")
            sys.stdout.flush()


def main() -> None:
    """Pull the cable once; the command line may say other milliseconds of the keep-alive."""
    if sys.argv[1:2] == ["drive"]:
        _drive(Path(sys.argv[2]))
    elif sys.platform != "linux" or os.geteuid() or shutil.which("ip") is None:
        sys.stdout.write("skipped: only Linux's root, with iproute2, can make network namespaces\n")
    else:
        with tempfile.TemporaryDirectory(prefix="tfr", ignore_cleanup_errors=True) as folder:
            sys.stdout.write(pull(Path(folder), *(sys.argv[1:] or ["5000"])) + "\n")


if __name__ == "__main__":
    main()
