"""The script of the how-to page about training on several machines runs on this machine."""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

import tfrtool
from tests.doc_examples import REPOSITORY
from tests.engines.running import Nodes
from tests.training.runs import write_drawings

pytestmark = [pytest.mark.tf, pytest.mark.several]

SCRIPT = REPOSITORY / "docs/how-to/train_workers.py"


@pytest.fixture
def script(tmp_path: Path) -> Path:
    """Return the script of the page, next to a dataset."""
    write_drawings(tmp_path / "pets")
    path = tmp_path / "train_workers.py"
    shutil.copy(SCRIPT, path)
    return path


def _free_ports(count: int) -> list[int]:
    """Return unused ports, outside the range from which the system takes ports by itself."""
    ports: set[int] = set()
    while len(ports) < count:
        port = random.SystemRandom().randrange(20_000, 32_000)
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            ports.add(port)
    return [*ports]


def _start(script: Path, out: str, *words: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, script, script.parent / "pets", script.parent / out, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", **environment},
    )


def _train(script: Path, out: str, workers: int) -> list[float]:
    """Train in several processes; return the losses that the first one prints."""
    addresses = [f"127.0.0.1:{port}" for port in _free_ports(workers)]
    processes = []
    for index in range(workers):
        task = {"type": "worker", "index": index}
        config = json.dumps({"cluster": {"worker": addresses}, "task": task})
        processes.append(_start(script, out, TF_CONFIG=config))
    printed = [process.communicate(timeout=600) for process in processes]
    assert [process.returncode for process in processes] == [0] * workers, printed
    assert not any(out for out, _ in printed[1:])
    return [float(loss) for loss in re.findall(r"loss (\S+)", printed[0][0])]


def test_two_workers_train_one_model(script: Path) -> None:
    """Losses are near those of one worker; a run goes on after its last epoch."""
    losses = _train(script, "two", 2)
    assert losses == pytest.approx(_train(script, "one", 1), rel=0.1)
    assert losses == sorted(losses, reverse=True)
    out = script.parent / "two"
    assert {path.name for path in out.iterdir()} == {"checkpoints", "model.keras"}
    dataset = tfrtool.dataset(script.parent / "pets")
    report = tfrtool.evaluate(out / "model.keras", dataset, split="train")
    assert (report.accuracy or 0.0) > 0.5
    script.write_text(script.read_text().replace("16, 3  #", "16, 4  #"))
    (last,) = _train(script, "two", 2)
    assert last < losses[-1]


def test_ray_trains_one_model(nodes: Nodes, script: Path) -> None:
    """Ray Train starts two workers on the nodes, which save a model."""
    pytest.importorskip("pydantic")
    process = _start(script, "run", "--ray", nodes.address)
    printed = process.communicate(timeout=600)
    assert process.returncode == 0, printed
    assert (script.parent / "run" / "model.keras").is_file()
