"""Jobs that are killed at any moment, and resumed.

``python -m tests.process.test_kill_reshard 10`` kills ten jobs, one after the other.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from tfrtool.records.framing import frame

__all__ = ["kill_often"]

_WORDS = ("--shards", "30", "--shuffle", "5", "--name", "some", "--workers", "2")
_TOOL = (sys.executable, "-m", "tfrtool", "reshard")


def _make(folder: Path) -> Path:
    rng, source = random.Random(1), folder / "some-train.tfrecord-00000-of-00001"
    with source.open("wb") as file:
        for _ in range(3000):
            file.write(frame(rng.randbytes(rng.randrange(20_000))))
    return source


def _start(source: Path, target: Path, *more: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([*_TOOL, source, target, *_WORDS, *more], stdout=subprocess.DEVNULL)


def _files(folder: Path) -> dict[str, bytes]:
    return {
        path.name: path.read_bytes()
        for path in folder.iterdir()
        if path.name != "write_report.json"
    }


def _kill(source: Path, target: Path, rng: random.Random, ends: float) -> tuple[float, int, bool]:
    """Kill a job between its first file and its end; return when, what was whole, and if it was.

    It may have ended by then.
    """
    job = _start(source, target)
    staging = target / ".tfrtool-incomplete"
    while job.poll() is None and not any(staging.glob("*.done.json")):
        time.sleep(0.002)
    moment = rng.random() * ends
    time.sleep(moment)
    job.send_signal(signal.SIGKILL)
    whole = len(list(staging.glob("*.done.json")))
    return moment, whole, job.wait() == -signal.SIGKILL


def kill_often(folder: Path, kills: int) -> list[str]:
    """Kill jobs and resume them, and say how it went; `RuntimeError` if bytes differ."""
    source, rng, lines = _make(folder), random.Random(), []
    started = time.monotonic()
    job = _start(source, folder / "whole")
    while not any((folder / "whole" / ".tfrtool-incomplete").glob("*.done.json")):
        time.sleep(0.002)
    first = time.monotonic()
    if job.wait():
        raise RuntimeError("the job failed")
    ends = time.monotonic() - first
    lines.append(f"undisturbed: {time.monotonic() - started:.1f} s, {ends:.2f} s after a file")
    for number in range(kills):
        target = folder / str(number)
        moment, whole, killed = _kill(source, target, rng, ends)
        code = _start(source, target, "--resume").wait()
        same = code == 0 and _files(target) == _files(folder / "whole")
        lines.append(
            f"kill {number}: {moment:.2f} s after the first of 30 files, {whole} whole, "
            f"{'killed' if killed else 'had ended'}, exit {code}, same bytes: {same}"
        )
        if not same:
            raise RuntimeError("\n".join(lines))
    return lines


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="there is no SIGKILL")
def test_killed_jobs_are_resumed(tmp_path: Path) -> None:
    """After each of some kills, --resume ends with the bytes of an undisturbed job."""
    assert len(kill_often(tmp_path, 3)) == 4


@pytest.mark.skipif(os.name != "posix", reason="there are no limits")
def test_a_full_disk_leaves_nothing(tmp_path: Path) -> None:
    """The error names the file and what the system says; the directory is as it was."""
    source = _make(tmp_path)
    program = (
        "import resource, signal, sys; from tfrtool.cli import main;"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN);"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (500_000, 500_000)); sys.exit(main())"
    )
    words = ["reshard", str(source), str(tmp_path / "new"), "--name", "some", "--shards", "2"]
    done = subprocess.run(
        [sys.executable, "-c", program, *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "some-train.tfrecord-00000-of-00002: can't be written: file too large" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == [source.name]


def main() -> None:
    """Kill as often as the command line says."""
    with tempfile.TemporaryDirectory() as name:
        sys.stdout.write("\n".join(kill_often(Path(name), int(sys.argv[1]))) + "\n")


if __name__ == "__main__":
    main()
