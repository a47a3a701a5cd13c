"""What only a process of its own can show: signals, full disks, pipes."""

from __future__ import annotations

import fcntl
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
import time
from contextlib import suppress
from pathlib import Path

import pytest

from tests.examples.strategies import int64
from tests.photos import write_class_folders
from tests.process.forking import Forking
from tests.records.strategies import shard_of
from tfrtool.examples.example import encode_example

pytestmark = pytest.mark.skipif(os.name != "posix", reason="needs POSIX signals")


def _start(arguments: list[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tfrtool", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.tf
def test_ctrl_c_leaves_no_shard(forking: Forking, tmp_path: Path) -> None:
    """Interrupted while it writes, a write leaves nothing behind."""
    source = write_class_folders(tmp_path / "photos", count=20)
    dataset = tmp_path / "pets"
    words: list[str | Path] = ["write", source, dataset, "--shards", "20", "--workers", "1"]
    first = "from pathlib import Path; from tests.process.effects import signal_at\n"
    first += f"signal_at(Path({str(dataset)!r}), {signal.SIGINT:d}, 30)"
    forking.start(words, tmp_path / "out", tmp_path / "errors", first=first)
    assert forking.wait() == 130
    assert (tmp_path / "errors").read_text().strip() == "tfrtool: interrupted; nothing was written"
    assert not dataset.exists()


@pytest.mark.tf
def test_full_disk_is_one_line_and_leaves_nothing(forking: Forking, tmp_path: Path) -> None:
    """Where a file can't grow any more, the error names the shard, and nothing is left."""
    source = write_class_folders(tmp_path / "photos", count=60)
    words: list[str | Path] = ["write", source, tmp_path / "pets"]
    forking.start(words, tmp_path / "out", tmp_path / "errors", most=16 * 1024)
    assert forking.wait() == 1
    errors = (tmp_path / "errors").read_text()
    assert (tmp_path / "out").read_text() == ""
    assert "pets-train.tfrecord-00000-of-00001" in errors
    assert len([line for line in errors.splitlines() if line.startswith("tfrtool")]) == 1
    assert "Traceback" not in errors
    assert not (tmp_path / "pets").exists()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_no_permission_to_write(tmp_path: Path) -> None:
    """A directory that may not be written to ends with 1."""
    source = write_class_folders(tmp_path / "photos", count=2)
    locked = tmp_path / "locked"
    locked.mkdir(mode=0o500)
    process = _start(["write", str(source), str(locked / "pets")])
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 1
    assert "permission denied" in errors


def _cpu_seconds_of_children(process: int) -> float:
    listed = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    ticks = 0
    for one in listed:
        with suppress(OSError):  # it may have ended
            found = Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split()
            ticks += int(found[11]) + int(found[12])
    return ticks / os.sysconf("SC_CLK_TCK")


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="needs Linux")
@pytest.mark.more
def test_a_query_that_never_ends_is_interrupted(tmp_path: Path) -> None:
    """DuckDB, which ignores signals, stops with the command that started it."""
    shard = tmp_path / "a.tfrecord"
    shard.write_bytes(shard_of([encode_example({"n": int64(1)})]))
    never = "(SELECT count(*) FROM range(10000000000000)) > n"
    process = _start(["cat", str(shard), "--where", never])
    try:
        deadline = time.monotonic() + 300
        while _cpu_seconds_of_children(process.pid) < 2:  # to start takes one
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        out, errors = process.communicate(timeout=300)
    finally:
        process.kill()
    assert (process.returncode, out, errors.strip()) == (130, "", "tfrtool: interrupted")


@pytest.mark.tf
def test_progress_on_a_terminal(forking: Forking, tmp_path: Path) -> None:
    """On a terminal there is a bar for each phase, and it is gone in the end."""
    source = write_class_folders(tmp_path / "photos", count=40)
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    splits = ["--split", "train=0.5", "--split", "test=0.5"]  # so that it looks first
    words: list[str | Path] = ["write", source, tmp_path / "pets", *splits]
    forking.start(words, tmp_path / "out", Path(os.ttyname(slave)))
    code = forking.wait()
    os.close(slave)
    drawn = os.read(master, 100_000).decode()
    os.close(master)
    assert code == 0
    assert "80 records" in (tmp_path / "out").read_text()
    for phase in ("checking", "writing"):
        assert f"{phase}:" in drawn
    assert "/80" in drawn
    assert drawn.endswith("\r")
