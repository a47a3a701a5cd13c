"""Writes that are killed, as by the kernel or a power cut, and gone on with.

``python -m tests.process.test_kill 20`` kills twenty times.
"""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

PETS = Path(__file__).parents[2] / "fixtures" / "pets"
STAGING = ".tfrtool-incomplete"
SPLITS = ("--split", "train=0.8", "--split", "validation=0.2", "--shards", "20")


def _command(dataset: Path, *more: str) -> list[str]:
    words = ["write", str(PETS), str(dataset), "--name", "pets", *SPLITS, *more]
    return [sys.executable, "-m", "tfrtool", *words]


def _written(dataset: Path) -> dict[str, bytes]:
    """Return the files of a dataset, but for the report, which tells the time that it took."""
    return {
        path.name: path.read_bytes()
        for path in dataset.iterdir()
        if path.name != "write_report.json"
    }


def _kill(dataset: Path, whole_shards: int) -> bool:
    """Start a write, kill it when so many shards are whole; return whether it was still at work."""
    more = ("--resume",) if dataset.exists() else ()
    with subprocess.Popen(
        _command(dataset, *more), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as running:
        while running.poll() is None:
            done = len(list((dataset / STAGING).glob("*.done.json")))
            if done >= whole_shards and (dataset / STAGING).exists():
                running.send_signal(signal.SIGKILL)
                running.wait()
                return True
            time.sleep(0.0005)
    return False


def _kill_and_resume(directory: Path, kills: int, rng: random.Random) -> list[int]:
    """Kill again and again, then finish; return how many shards were whole at each kill."""
    dataset, whole = directory / "killed", []
    for _ in range(kills):
        if not _kill(dataset, rng.randrange(40)):
            break
        whole.append(len(list((dataset / STAGING).glob("*.done.json"))))
    else:
        subprocess.run(_command(dataset, "--resume"), capture_output=True, check=False)
    return whole


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL")
def test_a_killed_write_is_gone_on_with(tmp_path: Path) -> None:
    """After two kills the files are those of a write that was not disturbed."""
    subprocess.run(_command(tmp_path / "whole"), capture_output=True, check=False)
    _kill_and_resume(tmp_path, 2, random.Random(3))
    assert _written(tmp_path / "killed") == _written(tmp_path / "whole")
    assert len(_written(tmp_path / "whole")) == 43


def main() -> None:
    """Kill as often as the command line says, each time a write of its own."""
    rng = random.Random()
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        subprocess.run(_command(directory / "whole"), capture_output=True, check=False)
        whole = _written(directory / "whole")
        at = []
        for number in range(int(sys.argv[1])):
            (directory / str(number)).mkdir()
            at += _kill_and_resume(directory / str(number), 1, rng)
            if _written(directory / str(number) / "killed") != whole:
                raise RuntimeError(f"kill {number} ended with other bytes")
        sys.stdout.write(
            f"{len(at)} kills, with {', '.join(map(str, at))} of 40 shards whole; after --resume "
            f"all {len(whole)} files are those of an undisturbed write\n"
        )


if __name__ == "__main__":
    main()
