"""``tfrtool inspect shard``."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.cli.inspecting import (
    CAT,
    COMMAND,
    Capture,
    failure,
    run,
)
from tests.conftest import MakeShard
from tests.examples.strategies import float32, int64, string
from tfrtool.cli import main
from tfrtool.examples.example import encode_example


def test_description_in_a_pipe(capsys: Capture, make_shard: MakeShard, tmp_path: Path) -> None:
    """A FIFO without a writer is refused, and not waited for."""
    os.mkfifo(tmp_path / "pipe")
    line = failure(capsys, 2, make_shard([CAT]), "--description", tmp_path / "pipe")
    assert "not a regular file" in line


def test_long_values_are_cut(capsys: Capture, make_shard: MakeShard) -> None:
    """Long values stay within the width of a terminal, and tell their size."""
    payload = encode_example(
        {"text": string(b"x" * 5000), "many": int64(*range(5000)), "n" * 30: float32(0.1)}
    )
    assert run(make_shard([payload])) == 0
    lines = capsys.readouterr().out.splitlines()[1:]
    assert max(map(len, lines)) <= 80
    assert any("5,000" in line for line in lines)


def test_debug_shows_a_traceback(capsys: Capture, tmp_path: Path) -> None:
    """--debug adds a traceback to the error, wherever it stands."""
    for words in (["--debug", *COMMAND], [*COMMAND, "--debug"]):
        assert main([*words, str(tmp_path / "missing")]) == 1
        captured = capsys.readouterr()
        assert "Traceback" in captured.err
        assert captured.err.splitlines()[-1].startswith("tfrtool: error: ")


def test_head_ends_quietly(make_shard: MakeShard) -> None:
    """Where the reader of a pipe goes away, the command ends without a word."""
    paths = [make_shard([CAT] * 2000, f"{number}.tfrecord") for number in range(3)]
    tool = [sys.executable, "-m", "tfrtool", *COMMAND, *map(str, paths), "--limit", "2000"]
    with subprocess.Popen(tool, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 0
