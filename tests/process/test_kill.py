"""Writes that are killed, as by the kernel or a power cut, and gone on with.

``python -m tests.process.test_kill 20`` kills twenty times.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import tempfile
from pathlib import Path

import pytest

from tests.process.forking import Forking

PETS = Path(__file__).parents[2] / "fixtures" / "pets"
STAGING = ".tfrtool-incomplete"
SHARDS = 40
WORDS = ("--split", "train=0.8", "--split", "validation=0.2", "--shards", "20", "--name", "pets")

KILLED = """
import os, signal
from tfrtool.writing.dataset_folder import Staging

note, left = Staging.note, [{shards}]

def die(self, file):
    note(self, file)
    left[0] -= 1
    if not left[0]:
        os.kill(os.getpid(), signal.SIGKILL)

Staging.note = die
"""
"""Has a write die when so many more shards are whole, with those on their way after them."""


def _write(forking: Forking, dataset: Path, *more: str, first: str = "") -> int:
    """Write in a process; return the exit code."""
    nowhere = Path(os.devnull)
    forking.start(["write", PETS, dataset, *WORDS, *more], nowhere, nowhere, first=first)
    return forking.wait()


def _files(dataset: Path) -> dict[str, bytes]:
    """Return the files of a dataset, but for the report, which tells the time that it took."""
    return {
        path.name: path.read_bytes()
        for path in dataset.iterdir()
        if path.name != "write_report.json"
    }


def _kill(forking: Forking, dataset: Path, shards: int) -> None:
    """Start a write or go on with one, and kill it when so many more shards are whole."""
    before = len(list((dataset / STAGING).glob("*.done.json")))
    more = ("--resume",) if dataset.exists() else ()
    code = _write(forking, dataset, *more, first=KILLED.format(shards=shards))
    assert code == -signal.SIGKILL
    assert len(list((dataset / STAGING).glob("*.done.json"))) == before + shards
    assert not list(dataset.glob("*.json"))


@pytest.mark.tf
@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL")
def test_a_killed_write_is_gone_on_with(forking: Forking, tmp_path: Path) -> None:
    """After two kills the files are those of a write that was not disturbed."""
    assert _write(forking, tmp_path / "whole") == 3  # one of the drawings is cut, on purpose
    _kill(forking, tmp_path / "killed", 3)
    _kill(forking, tmp_path / "killed", 17)
    assert _write(forking, tmp_path / "killed", "--resume") == 3
    assert _files(tmp_path / "killed") == _files(tmp_path / "whole")
    assert len(_files(tmp_path / "whole")) == SHARDS + 3


def kill_often() -> None:
    """Kill as often as the command line says, each time a write of its own."""
    rng, at, forking = random.Random(), [], Forking()
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        _write(forking, directory / "whole")
        for number in range(int(sys.argv[1])):
            at.append(rng.randrange(1, SHARDS + 1))
            dataset = directory / str(number)
            _kill(forking, dataset, at[-1])
            _write(forking, dataset, "--resume")
            if _files(dataset) != _files(directory / "whole"):
                raise RuntimeError(f"kill {number} ended with other bytes")
    forking.end()
    sys.stdout.write(
        f"{len(at)} kills, with {', '.join(map(str, at))} of {SHARDS} shards whole; after "
        "--resume all files are those of an undisturbed write\n"
    )


if __name__ == "__main__":
    kill_often()
