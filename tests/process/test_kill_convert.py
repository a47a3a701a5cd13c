"""Conversions that are killed in the midst, and resumed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import tfrtool
from tests.records.strategies import shard_of

_WORDS = ("--to", "parquet", "--shards", "12", "--name", "some", "--workers", "2")


def _start(source: Path, target: Path, *more: str) -> subprocess.Popen[bytes]:
    tool = (sys.executable, "-m", "tfrtool", "convert", source, target)
    return subprocess.Popen([*tool, *_WORDS, *more], stdout=subprocess.DEVNULL)


def _files(folder: Path) -> dict[str, bytes]:
    return {
        path.name: path.read_bytes()
        for path in folder.iterdir()
        if path.name != "write_report.json"
    }


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="there is no SIGKILL")
def test_killed_conversions_are_resumed(tmp_path: Path) -> None:
    """After a kill nothing is visible; --resume keeps what was whole, and ends with equal bytes."""
    source = tmp_path / "some-train.tfrecord-00000-of-00001"
    rows = ({"n": number, "data": os.urandom(4000)} for number in range(6000))
    source.write_bytes(shard_of([tfrtool.encode_example(row) for row in rows]))
    assert _start(source, tmp_path / "whole").wait() == 0
    target = tmp_path / "killed"
    staging = target / ".tfrtool-incomplete"
    job = _start(source, target)
    while job.poll() is None and len(list(staging.glob("*.done.json"))) < 2:
        time.sleep(0.002)
    job.send_signal(signal.SIGKILL)
    assert job.wait() == -signal.SIGKILL
    whole = {path: path.stat().st_mtime_ns for path in staging.glob("*.parquet")}
    assert 2 <= len(list(staging.glob("*.done.json"))) < 12
    assert not list(target.glob("*.parquet"))
    assert _start(source, target, "--resume").wait() == 0
    assert _files(target) == _files(tmp_path / "whole")
    kept = [p.stat().st_mtime_ns == whole.get(staging / p.name) for p in target.glob("*.parquet")]
    assert sum(kept) >= 2
