"""Running ``tfrtool inspect shard`` in this process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.examples.strategies import int64, string
from tfrtool.cli import main
from tfrtool.examples.example import encode_example

__all__ = ["CAT", "COMMAND", "DOG", "JPEG", "Capture", "damaged", "failure", "run", "run_json"]

JPEG = b"\xff\xd8\xff\xe0\x00\x10JFIF"
CAT = encode_example({"image": string(JPEG), "label": int64(0)})
DOG = encode_example({"image": string(JPEG + b"dog"), "label": int64(1)})
COMMAND = ["inspect", "shard"]

Capture = pytest.CaptureFixture[str]


def run(*words: str | Path) -> int:
    """Run the command, and return its exit code."""
    return main([*COMMAND, *map(str, words)])


def run_json(capsys: Capture, *words: str | Path) -> tuple[int, list[dict[str, Any]]]:
    """Run the command with --json; return its exit code and the objects that it printed."""
    code = run("--json", *words)
    captured = capsys.readouterr()
    assert captured.err == ""
    return code, [json.loads(line) for line in captured.out.splitlines()]


def failure(capsys: Capture, code: int, *words: str | Path) -> str:
    """Run the command, which must fail with ``code``, in one line on stderr; return the line."""
    assert run(*words) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = captured.err.splitlines()
    assert line.startswith("tfrtool: error: ")
    return line


def damaged(path: Path, *bits: int) -> Path:
    """Flip bits of a file."""
    data = bytearray(path.read_bytes())
    for bit in bits:
        data[bit // 8] ^= 1 << bit % 8
    path.write_bytes(data)
    return path
