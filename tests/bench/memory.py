"""The memory that commands take on a shard of 2 GB, plain and as gzip."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.bench.shards import write_long_shards

__all__ = ["run"]

_BYTES = 2_000_000_000
_COMMANDS = (
    ("inspect", "shard"),
    ("inspect", "schema"),
    ("verify",),
    ("count",),
)


def _peak(command: list[str]) -> tuple[int, float, str]:
    """Run a command; return its peak memory in kB, its CPU seconds, and what it printed."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        assert running.stdout is not None
        output = running.stdout.read().decode()
        _, status, usage = os.wait4(running.pid, 0)
        running.returncode = os.waitstatus_to_exitcode(status)
    if running.returncode:
        raise RuntimeError(f"{command} ended with {running.returncode}")
    return usage.ru_maxrss, usage.ru_utime + usage.ru_stime, output


def run(directory: Path) -> Iterator[str]:
    """Yield a line for each command and file."""
    plain, packed = directory / "long.tfrecord", directory / "long.tfrecord.gz"
    count = write_long_shards(plain, packed, _BYTES)
    for path in (plain, packed):
        size = path.stat().st_size
        yield f"{path.name}: {size / 1e9:.2f} GB, {count:,} records"
        for words in _COMMANDS:
            command = [sys.executable, "-m", "tfrtool", *words, str(path)]
            peak, seconds, output = _peak(command)
            if f"{count:,}" not in output:
                raise RuntimeError(f"{command} did not find {count:,} records:\n{output}")
            name = " ".join(words)
            yield f"  {name:15} peak memory {peak / 1024:6.1f} MiB, {seconds:6.2f} s CPU"
        out = directory / "out"
        command = [sys.executable, "-m", "tfrtool", "repair", str(path), str(out)]
        peak, seconds, _ = _peak(command)
        out.unlink()
        yield f"  {'repair':15} peak memory {peak / 1024:6.1f} MiB, {seconds:6.2f} s CPU"
