"""How much of ``import tensorflow`` each command takes that doesn't need TensorFlow.

Each is a whole process on a few small records, so that nearly all of its time is its start.
"""

from __future__ import annotations

import shlex
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.bench.timing import process, timed
from tests.examples.strategies import float32, int64, string
from tfrtool.examples.example import encode_example
from tfrtool.records.framing import frame

__all__ = ["run"]

_COMMANDS = (
    "--help",
    "inspect shard SHARD",
    "inspect schema SHARD",
    "inspect stats SHARD",
    "cat SHARD",
    "count SHARD",
    "verify SHARD",
    "index SHARD",
    "diff SHARD SHARD",
    "reshard SHARD OUT --overwrite",
    "filter SHARD OUT --sample 1 --overwrite",
    "convert SHARD OUT --to parquet --overwrite",
    "query SHARD 'SELECT count(*) FROM records'",
    "report SHARD --out OUT.html --overwrite",
)


def run(directory: Path, runs: int = 5) -> Iterator[str]:
    """Yield the CPU and wall time of each command, as fractions of ``import tensorflow``.

    Args:
        directory: a place for a shard and for output.
        runs: how often all of them are started, one after the other.

    Raises:
        RuntimeError: a command fails.
    """
    shard = directory / "a.tfrecord"
    features = {"name": string(b"x"), "label": int64(1), "weight": float32(0.5)}
    shard.write_bytes(frame(encode_example(features)) * 3)
    tensorflow = process(sys.executable, "-c", "import tensorflow")
    ways = {}
    for number, command in enumerate(_COMMANDS):
        text = command.replace("SHARD", str(shard)).replace("OUT", str(directory / f"out{number}"))
        ways[command] = process(sys.executable, "-m", "tfrtool", *shlex.split(text))
    fractions: dict[str, list[tuple[float, float]]] = {command: [] for command in ways}
    timed(tensorflow)
    for _ in range(runs):
        wall, cpu = timed(tensorflow)
        for command, way in ways.items():
            if way():
                raise RuntimeError(f"tfrtool {command} failed")
            times = timed(way)
            fractions[command].append((times[0] / wall, times[1] / cpu))
    yield "start-up of commands, as fractions of `import tensorflow`: CPU, and wall time"
    for command, of_command in fractions.items():
        wall, cpu = (statistics.median(values) for values in zip(*of_command, strict=True))
        yield f"  {command:45} {cpu:5.2f}  {wall:5.2f}"
