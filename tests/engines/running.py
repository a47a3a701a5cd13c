"""Nodes of a cluster that a program starts, controls and ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from tests.engines.nodes import SETTINGS

__all__ = ["Nodes", "running_nodes"]

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Nodes:
    """A cluster: its address, what a driver's environment has, and what ends and adds nodes."""

    address: str
    environment: dict[str, str]
    folder: Path
    orders: IO[str]
    answers: IO[str]

    def send(self, line: str) -> None:
        """Have nodes removed or added."""
        self.orders.write(f"{line}\n")
        self.orders.flush()
        assert self.answers.readline().split() == line.split()[:1]

    def kill_one(self) -> None:
        """Kill a process as soon as there is one that runs a task."""
        deadline = time.monotonic() + 300
        while not self.kill_any():
            assert time.monotonic() < deadline
            time.sleep(0.001)

    def kill_any(self) -> bool:
        """Kill a process that runs a task, and return whether there was one."""
        for process in self.workers:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
                return True
        return False

    @property
    def workers(self) -> list[int]:
        """The processes of its nodes that do a task just now."""
        found = []
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                title = path.read_bytes().rstrip(b"\0")
                owned = str(self.folder).encode() in path.with_name("environ").read_bytes()
            except OSError:
                continue
            if title.startswith(b"ray::run") and owned:
                found.append(int(path.parent.name))
        return found


@contextmanager
def running_nodes(count: int = 2) -> Iterator[Nodes]:
    """Start nodes, and end them."""
    # A socket's path has 107 bytes at most, and pytest's folders are too deep.
    with tempfile.TemporaryDirectory(prefix="tfr", ignore_cleanup_errors=True) as folder:
        log = Path(folder, "log").open("wb")  # noqa: SIM115
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.engines.nodes", folder, str(count)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            cwd=ROOT,
            text=True,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        assert address, Path(folder, "log").read_text()
        names = ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN_PATH")
        environment = dict(zip(names, (SETTINGS[names[0]], f"{folder}/token"), strict=True))
        yield Nodes(address, environment, Path(folder), process.stdin, process.stdout)
        process.stdin.close()
        process.wait(300)
        process.stdout.close()
        log.close()
