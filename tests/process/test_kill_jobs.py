"""Jobs that are killed at any moment, and resumed.

``python -m tests.process.test_kill_jobs 10 convert`` kills ten of convert, one by one.
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

_FILES = 12
_WORDS = ("--shards", str(_FILES), "--name", "some", "--workers", "2")
_JOBS = {"reshard": ("--shuffle", "--seed", "5"), "convert": ("--to", "parquet")}


def _make(folder: Path) -> Path:
    rng, source = random.Random(1), folder / "some-train.tfrecord-00000-of-00001"
    with source.open("wb") as file:
        for _ in range(1200):
            file.write(frame(rng.randbytes(rng.randrange(20_000))))
    return source


def _start(verb: str, source: Path, target: Path, *more: str) -> subprocess.Popen[bytes]:
    words = [verb, str(source), str(target), *_WORDS, *_JOBS[verb], *more]
    return subprocess.Popen([sys.executable, "-m", "tfrtool", *words], stdout=subprocess.DEVNULL)


def _files(folder: Path) -> dict[str, bytes]:
    return {
        path.name: path.read_bytes()
        for path in folder.iterdir()
        if path.name != "write_report.json"
    }


def _times(folder: Path) -> set[tuple[str, int]]:
    return {(path.name, path.stat().st_mtime_ns) for path in folder.glob("[!.]*") if path.is_file()}


def _kill(verb: str, source: Path, target: Path, wanted: int) -> tuple[int, bool]:
    """Kill a job when so many of its files are whole; return how many were, and if it was killed.

    It may have ended by then.
    """
    job = _start(verb, source, target)
    notes = target / ".tfrtool-incomplete"
    while job.poll() is None and len(list(notes.glob("[!.]*.done.json"))) < wanted:
        time.sleep(0.001)
    job.send_signal(signal.SIGKILL)
    killed = job.wait() == -signal.SIGKILL
    visible = [path.name for path in target.glob("*") if not path.name.startswith(".")]
    whole = len(list(notes.glob("[!.]*.done.json")))
    if killed and visible and wanted <= whole < _FILES:
        raise RuntimeError(f"visible before all files were whole: {visible}")
    return whole, killed


def kill_often(folder: Path, kills: int, verb: str) -> list[str]:
    """Kill jobs and resume them, and say how it went; `RuntimeError` if bytes differ."""
    source, rng, lines = _make(folder), random.Random(), list[str]()
    if _start(verb, source, folder / "whole").wait():
        raise RuntimeError("the job failed")
    for number in range(kills):
        target = folder / str(number)
        whole, killed = _kill(verb, source, target, rng.randrange(1, _FILES))
        ready = _times(target / ".tfrtool-incomplete")
        code = _start(verb, source, target, "--resume").wait()
        same = code == 0 and _files(target) == _files(folder / "whole")
        kept = len(ready & _times(target))
        if killed and kept < whole < _FILES:
            raise RuntimeError(f"{whole} files were whole, and {kept} of them were kept")
        lines.append(
            f"kill {number}: {'killed' if killed else 'had ended'} with {whole} of {_FILES} files "
            f"whole; resumed: exit {code}, same bytes: {same}"
        )
        if not same:
            raise RuntimeError("\n".join(lines))
    return lines


@pytest.mark.several
@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="there is no SIGKILL")
@pytest.mark.parametrize("verb", _JOBS)
def test_killed_jobs_are_resumed(verb: str, tmp_path: Path) -> None:
    """After a kill, --resume ends with the bytes of an undisturbed job."""
    assert len(kill_often(tmp_path, 1, verb)) == 1


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
        sys.stdout.write("\n".join(kill_often(Path(name), int(sys.argv[1]), sys.argv[2])) + "\n")


if __name__ == "__main__":
    main()
