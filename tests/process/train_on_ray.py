"""Training on a Ray cluster in which a worker dies: ``python -m tests.process.train_on_ray``.

A run of two workers, undisturbed; then the first, the second, and the process that trains for one
of them are killed in the middle, and nodes are taken away. Weights are held against those of one
process. At last a worker dies at every start, and a run is interrupted and resumed.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from tests.engines.running import Nodes, running_nodes
from tests.process.several_devices import difference
from tests.training.runs import write_drawings

_EPOCHS = 12


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _processes(nodes: Nodes) -> dict[int, tuple[int, int]]:
    """Return by worker the process that trains, and the actor that started it."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if b"tfrtool.storage.child" not in path.read_bytes():
                continue
            environment = path.with_name("environ").read_bytes()
            parent = path.with_name("stat").read_text().rpartition(")")[2].split()[1]
        except OSError:
            continue
        index = re.search(rb'TF_CONFIG=.*"index": (\d+)', environment)
        if index is not None and str(nodes.folder).encode() in environment:
            found[int(index[1])] = int(path.parent.name), int(parent)
    return found


def _epochs(out: Path) -> int:
    return max((int(path.name[5:-6]) for path in out.glob("checkpoint/ckpt-*.index")), default=0)


def _train(
    command: list[str], out: Path, harm: Callable[[int], str] | None = None, *, again: bool = False
) -> tuple[int, str, str]:
    """Train, and do harm after the second epoch, or as soon as anybody can be harmed."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tfrtool", "train", *command, "--out", str(out)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
    )

    def strike() -> None:
        while harm is not None and process.poll() is None:
            if (again or _epochs(out) >= 2) and (done := harm(process.pid)):
                _say(f"  {done} after epoch {_epochs(out)}")
                if not again:
                    return
                time.sleep(1)
            time.sleep(0.01)

    striking = threading.Thread(target=strike)
    striking.start()
    printed, said = process.communicate(timeout=200)
    striking.join()
    return process.returncode, printed, said


def _main() -> None:
    with tempfile.TemporaryDirectory() as folder, running_nodes(3) as nodes:
        root = Path(folder)
        os.environ |= {**nodes.environment, "XDG_CACHE_HOME": str(root / "caches")}
        small = ["--model", "cnn", "--image-size", "32", "--batch-size", "4", "--trainable", "head"]
        small += ["--epochs", str(_EPOCHS)]
        command = [str(write_drawings(root / "drawings")), *small]
        there = ["--engine", "ray", "--engine-address", nodes.address, "--workers", "2"]

        def kill(worker: int, *, actor: bool) -> str:
            found = _processes(nodes)
            if len(found) < 2:
                return ""
            os.kill(found[worker][actor], signal.SIGKILL)
            return f"killed the {'actor' if actor else 'child'} of worker {worker}"

        def remove(_: int) -> str:
            """End all nodes but the head's, one of which has a worker, and add others."""
            if len(_processes(nodes)) < 2:
                return ""
            for line in ("remove 0", "remove 0", "add", "add"):
                nodes.tell(line)
            return "took away two of three nodes"

        code, _, said = _train([*command, "--shares", "2"], root / "one")
        assert (code, said) == (0, ""), said
        harms: dict[str, Callable[[int], str] | None] = {
            "undisturbed": None,
            "the actor of the chief killed": lambda _: kill(0, actor=True),
            "the actor of the other killed": lambda _: kill(1, actor=True),
            "what trains in the chief's killed": lambda _: kill(0, actor=False),
            "nodes taken away": remove,
        }
        for number, (what, harm) in enumerate(harms.items()):
            _say(f"{what}:")
            start = time.monotonic()
            out = root / f"out{number}"
            code, printed, said = _train([*command, *there], out, harm)
            for line in said.splitlines():
                _say(f"  {line}")
            assert code == 0, code
            rows = [line for line in printed.splitlines() if line[:5].strip().isdigit()]
            epochs = [int(line.split()[0]) for line in rows]
            assert epochs == list(range(1, _EPOCHS + 1)), epochs
            sums = difference(out, root / "one")
            took = f"{time.monotonic() - start:.1f} s, {len(epochs)} epochs printed"
            _say(f"  {took}; sums {sums[0]:.6f} and {sums[1]:.6f}, at most {sums[2]:.2e} apart")
            assert sums[2] < 1e-5
        _say("killed at every start:")

        def always(_: int) -> str:
            return kill(1, actor=False)

        code, _, said = _train([*command, *there], root / "never", always, again=True)
        for line in said.splitlines():
            _say(f"  {line}")
        _say(f"  exit code {code}")
        assert code == 1
        _say("interrupted, and resumed:")

        def interrupt(process: int) -> str:
            os.kill(process, signal.SIGINT)
            return "interrupted"

        out = root / "interrupted"
        code, _, said = _train([*command, *there], out, interrupt)
        left = [path.name for path in out.iterdir()]
        _say(f"  {said.strip()}; exit code {code}; left: {' '.join(left)}")
        assert (code, left) == (130, ["checkpoint"])
        code, _, said = _train([*command, *there, "--resume"], out)
        assert code == 0, said
        sums = difference(out, root / "one")
        _say(f"  sums {sums[0]:.6f} and {sums[1]:.6f}, at most {sums[2]:.2e} apart")
        assert sums[2] < 1e-5
        _say("an error that workers meet:")
        code, _, said = _train([*command, *there], root / "out0")
        _say(f"  {said.strip()}")
        assert code == 2


if __name__ == "__main__":
    _main()
