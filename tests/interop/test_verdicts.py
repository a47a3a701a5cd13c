"""What TensorFlow and tfrtool report of damaged files."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import tfrtool

pytestmark = [pytest.mark.slow, pytest.mark.more]

DAMAGED = Path(__file__).parents[2] / "fixtures" / "damaged"
TYPES = {"none": "", "gzip": "GZIP", "zlib": "ZLIB"}

# TensorFlow's process dies of some files, so it prints what it begins with.
PROGRAM = """
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
        print(f"{count} records, then {type(error).__name__}", flush=True)
"""


def test_tensorflow_never_gets_more_out() -> None:
    """Our reader yields all records that TensorFlow reads, mostly more, and reports all damage."""
    paths = [path for path in DAMAGED.iterdir() if path.suffix != ".json"]
    paths.sort(key=lambda path: path.name == "huge-length.tfrecord")  # TensorFlow ends with it
    ours = [tfrtool.inspect_shard(path, limit=0) for path in paths]
    arguments = [
        f"{TYPES[summary.shard.compression.value]}:{summary.shard.path}" for summary in ours
    ]
    theirs: list[str] = []
    while len(theirs) < len(paths):
        command = [sys.executable, "-c", PROGRAM, *arguments[len(theirs) :]]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        lines = done.stdout.splitlines()
        assert lines, done.stderr
        theirs += [line for line in lines if line != "?"]
        theirs += ["dies"] if lines[-1] == "?" else []
    assert all(summary.faults for summary in ours)
    counts = [int(re.match(r"\d*", text)[0] or 0) for text in theirs]  # type: ignore[index]
    assert all(one.records >= count for one, count in zip(ours, counts, strict=True))
    assert sum(one.records > count for one, count in zip(ours, counts, strict=True)) >= 15
    silent = {p.name for p, text in zip(paths, theirs, strict=True) if text.endswith("records")}
    assert {"cut-in-header.tfrecord", "stray-bytes.tfrecord", "no-trailer.tfrecord.gz"} <= silent
    assert [p.name for p, text in zip(paths, theirs, strict=True) if text == "dies"] == [
        "huge-length.tfrecord"
    ]
