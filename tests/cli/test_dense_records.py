"""Records whose bytes would be millions of protobuf fields: no command reads them one by one."""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from tests.examples.wire import field
from tfrtool.cli import main
from tfrtool.records import wire
from tfrtool.records.framing import frame

MIB = 1024 * 1024
COMMANDS = (
    ("inspect", "shard"),
    ("verify",),
    ("cat", "--limit", "1"),
    ("inspect", "schema"),
    ("inspect", "stats"),
)
STEPS = 50 * 1000
"""Calls of functions in `wire`: fewer than a tenth of what would be fields in 1 MiB."""


def _steps(call: Callable[[], Any]) -> int:
    """Return how often code of `wire` was entered, or resumed as a generator."""
    entered = 0

    def count(where: FrameType, event: str, _: object) -> None:
        nonlocal entered
        entered += event == "call" and where.f_code.co_filename == wire.__file__

    sys.setprofile(count)
    try:
        call()
    finally:
        sys.setprofile(None)
    return entered


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
@pytest.mark.parametrize("name", ["zeros.tfrecord", "zeros.tfrecord.gz"])
def test_a_record_of_zeros(tmp_path: Path, command: tuple[str, ...], name: str) -> None:
    """Zeros are not protobuf: that is seen at the first of them, not at each."""
    data = frame(bytes(MIB))
    path = tmp_path / name
    path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    assert _steps(lambda: main([*command, str(path)])) < STEPS


@pytest.mark.more  # tests/examples/test_example.py has lower limits
@pytest.mark.parametrize("lists", [1, 3])
def test_too_many_strings(tmp_path: Path, capsys: pytest.CaptureFixture[str], lists: int) -> None:
    """A record of more strings than are read is not an Example, as docs/limits.md says."""
    strings = b"\x0a\x00" * (1_200_000 // lists)
    features = [
        field(1, field(1, b"tokens%d" % n), field(2, field(1, strings))) for n in range(lists)
    ]
    path = tmp_path / "tokens.tfrecord"
    path.write_bytes(frame(field(1, *features)))
    assert main(["inspect", "shard", "--json", str(path)]) == 0
    assert json.loads(capsys.readouterr().out)["payload"] == "unknown"
