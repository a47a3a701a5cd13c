"""Writes on a cluster of three nodes, in which something is killed at a random moment.

``python -m tests.process.test_kill_ray 20`` kills twenty times: workers, a node, and the one that
distributes the work, whose write is then resumed.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import tfrtool
from tests.engines.running import Nodes, running_nodes
from tests.photos import image_bytes
from tests.process.effects import logged
from tfrtool.engines.ray_cluster import RayCluster

__all__ = ["kill_often"]

_KINDS = ("worker", "worker", "worker", "node", "driver")
_WORDS: dict[str, Any] = {"shards": 12, "dedupe": True, "encode": "jpeg", "resize": 256}


def _photos(folder: Path) -> Path:
    for number in range(300):
        path = folder / ("cat", "dog")[number % 2] / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        data = image_bytes(size=(400 + number, 300), tint=number % 251)
        path.write_bytes(data if number != 7 else b"no image")
    return folder


def _files(folder: Path) -> dict[str, bytes]:
    paths = (path for path in folder.rglob("*") if path.name != "write_report.json")
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths if path.is_file()}


def _kill_there(nodes: Nodes, kind: str, rng: random.Random) -> str:
    """Kill a worker or a node; return what it was."""
    if kind == "node":
        nodes.tell(f"remove {rng.randrange(2)}")
        nodes.tell("add")
        return "a node"
    end = time.monotonic() + 5
    while not (found := nodes.workers) and time.monotonic() < end:
        time.sleep(0.001)
    if found:
        os.kill(rng.choice(found), signal.SIGKILL)
    return f"one of {len(found)} workers" if found else "no worker, for none had a task"


def _kill_driver(photos: Path, target: Path, nodes: Nodes, wanted: int) -> str:
    words = ("--shards", "12", "--dedupe", "--encode", "jpeg", "--resize", "256")
    where = ("--engine", "ray", "--engine-address", nodes.address)
    call = [sys.executable, "-m", "tfrtool", "write", str(photos), str(target), *words, *where]
    process = subprocess.Popen(call, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while process.poll() is None and logged(target) < wanted:
        time.sleep(0.001)
    process.kill()
    killed = process.wait() == -signal.SIGKILL
    whole = logged(target)
    code = subprocess.run([*call, "--resume"], capture_output=True, check=False).returncode
    if code not in (0, 3):
        raise RuntimeError(f"--resume ended with {code}")
    return f"the driver, {whole} of 12 shards whole; resumed" if killed else "nothing: it was done"


def kill_often(folder: Path, kills: int) -> list[str]:
    """Write again and again, with a kill each, and say how it went; an error if bytes differ."""
    photos, rng, lines = _photos(folder / "photos"), random.Random(), list[str]()
    whole = folder / "whole" / "made"
    tfrtool.write(photos, whole, workers=2, **_WORDS)
    seconds = 0.0
    with running_nodes(3) as nodes, pytest.MonkeyPatch.context() as patch:
        for name, value in nodes.environment.items():
            patch.setenv(name, value)
        with RayCluster(nodes.address):
            for number in range(-2, kills):  # the first to get warm, the second to see how long
                kind = _KINDS[number % len(_KINDS)] if number >= 0 else ""
                target = folder / str(number) / "made"
                start, said = time.monotonic(), [""]
                moment = rng.uniform(0, seconds) if number >= 0 else 0.0
                if kind == "driver":
                    said[0] = _kill_driver(photos, target, nodes, rng.randrange(12))
                else:

                    def strike(
                        kind: str = kind, moment: float = moment, said: list[str] = said
                    ) -> None:
                        time.sleep(moment)
                        said[0] = _kill_there(nodes, kind, rng)

                    striking = threading.Thread(target=strike if kind else time.monotonic)
                    striking.start()
                    tfrtool.write(photos, target, engine="ray", **_WORDS)
                    striking.join()
                if number < 0:
                    seconds = time.monotonic() - start
                same = _files(target) == _files(whole)
                took = f"{time.monotonic() - start:.1f} s"
                if kind:
                    when = "" if kind == "driver" else f"after {moment:.1f} s "
                    text = f"kill {number}: {when}{said[0]}; {took} in all"
                    lines.append(f"{text}; same bytes: {same}")
                if not same:
                    raise RuntimeError("\n".join([*lines, "other bytes"]))
    return [f"undisturbed: {seconds:.1f} s", *lines]


def main() -> None:
    """Kill as often as the command line says."""
    with tempfile.TemporaryDirectory() as name:
        sys.stdout.write("\n".join(kill_often(Path(name), int(sys.argv[1]))) + "\n")


if __name__ == "__main__":
    main()
