"""What TensorFlow says of damaged and foreign files, beside what tfrtool says.

``python -m tests.interop.verdicts [SHARDS]`` prints a table; without SHARDS, of the fixtures.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tfrtool.inspection.summary.shard_summary import ShardSummary, inspect_shard
from tfrtool.records.compression import Compression
from tfrtool.records.shards import find_shards

__all__ = ["Verdict", "verdicts"]

_FIXTURES = Path(__file__).parents[2] / "fixtures"

# A process of its own, for TensorFlow dies of some files; it says what it begins with.
_PROGRAM = """
import os, sys
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import tensorflow as tf
for argument in sys.argv[1:]:
    compression, _, path = argument.partition(":")
    print("?", flush=True)
    count = 0
    try:
        for _ in tf.data.TFRecordDataset(path, compression_type=compression):
            count += 1
        print(f"{count} records", flush=True)
    except Exception as error:
        said = str(error).split("} ")[-1].split(" [Op")[0].split("\\n")[0]
        print(f"{count} records, then {type(error).__name__}: {said}", flush=True)
"""
_TYPES = {Compression.NONE: "", Compression.GZIP: "GZIP", Compression.ZLIB: "ZLIB"}


class Verdict(tuple[Path, str, str]):
    """A file, what TensorFlow says of it, and what tfrtool says."""

    __slots__ = ()


def verdicts(paths: list[Path]) -> Iterator[Verdict]:
    """Yield what both say of each file; TensorFlow is told the right compression."""
    summaries = [inspect_shard(path, limit=0) for path in paths]
    ours = [_ours(summary) for summary in summaries]
    arguments = [
        f"{_TYPES[summary.shard.compression]}:{summary.shard.path}" for summary in summaries
    ]
    theirs: list[str] = []
    while len(theirs) < len(paths):
        command = [sys.executable, "-c", _PROGRAM, *arguments[len(theirs) :]]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        lines = done.stdout.splitlines()
        said = [line for line in lines if line != "?"]
        if lines.count("?") > len(said):
            said.append(f"the process dies (exit code {done.returncode})")
        if not said:
            raise RuntimeError(done.stderr)
        theirs += said
    for path, their, our in zip(paths, theirs, ours, strict=True):
        yield Verdict((path, their, our))


def _ours(summary: ShardSummary) -> str:
    text = f"{summary.records} records"
    for fault in summary.faults:
        text += f"; {fault.kind.value} at {fault.offset}"
        text += "" if fault.record is None else f" (record {fault.record})"
    return text


def main() -> None:
    """Print the table."""
    paths = list(find_shards(sys.argv[1:] or [str(_FIXTURES / "damaged")]))
    if not sys.argv[1:]:
        paths = [path for path in paths if path.suffix != ".json"]
    for path, theirs, ours in verdicts(paths):
        sys.stdout.write(f"{path.name}\n  TensorFlow  {theirs}\n  tfrtool     {ours}\n")


if __name__ == "__main__":
    main()
