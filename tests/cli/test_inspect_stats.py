"""``tfrtool inspect stats``."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.inspecting import Capture
from tests.conftest import MakeShard
from tests.contracts.test_import_budget import loaded_by
from tests.examples.strategies import UNSET, entry, float32, int64, raw_example, string
from tfrtool.cli import main
from tfrtool.examples.example import encode_example


def run(*words: str | Path) -> int:
    """Run the command, and return its exit code."""
    return main(["inspect", "stats", *map(str, words)])


@pytest.fixture
def shard(make_shard: MakeShard) -> Path:
    """Return a shard of eight records."""
    words = ["red", "green", "red", "red"]
    return make_shard(
        encode_example(
            {"label": n % 2, "size": n * n, "word": words[n % 4], "ids": int64(*[7] * n)}
        )
        for n in range(8)
    )


@pytest.fixture
def other(make_shard: MakeShard) -> Path:
    """Return one whose labels and sizes are others, with a feature more and one less."""
    records = (
        {"label": n % 4, "size": n + 100, "ids": int64(*[7] * n), "more": 1.5} for n in range(8)
    )
    return make_shard(map(encode_example, records), "other.tfrecord")


def test_notes(make_shard: MakeShard, capsys: Capture) -> None:
    """What no figure shows is said below; odd names can't do anything to a terminal."""
    records = [
        raw_example([entry(b"x\x1b[1m", float32(float("nan"), 1e300 * 0)), entry(b"u", UNSET)]),
        raw_example([entry(b"x\x1b[1m", float32(float("inf"))), entry(b"s", string(b"\x1b[1m"))]),
    ]
    assert run(make_shard(records)) == 0
    out = capsys.readouterr().out
    assert "1 NaN, 1 infinite" in out
    assert "\x1b" not in out


def test_thresholds(shard: Path, other: Path, capsys: Capture) -> None:
    """What is farther than the threshold makes exit code 3, what came or went too."""
    assert run(shard, "--against", other) == 0
    out = capsys.readouterr().out
    assert "against 8 records in 1 shard" in out
    assert "only in SHARDS: word: string" in out
    assert "only in --against: more: float32" in out
    assert run(shard, "--against", other, "--threshold", "0.2") == 3
    assert "0.2500 above threshold  l_infinity" in capsys.readouterr().out
    assert run(shard, "--against", other, "--threshold", "0.99") == 3
    assert run(shard, "--against", other, "--threshold", "1") == 0
    assert run(shard, "--against", shard, "--threshold", "0") == 0
    assert run(shard, "--threshold", "0.1") == 2


def test_what_has_no_features(make_shard: MakeShard, capsys: Capture) -> None:
    """Events and other payloads are an error that says what they are."""
    event = Path(__file__).parents[2] / "fixtures/golden/events.out.tfevents.1700000000.host"
    for path, found in (
        (event, "TensorBoard events"),
        (make_shard([b"a text"] * 3), "text payloads"),
    ):
        assert run(path) == 1
        (line,) = capsys.readouterr().err.splitlines()
        assert found in line
        assert str(path) in line


def test_it_loads_no_tensorflow(make_shard: MakeShard) -> None:
    """Neither TensorFlow nor Pillow nor DuckDB is loaded."""
    path = make_shard([encode_example({"image": b"\xff\xd8\xff", "label": int64(1)})])
    heavy = ["tensorflow", "keras", "tensorflow_datasets", "PIL", "duckdb"]
    assert loaded_by(["inspect", "stats", str(path)], heavy) == (0, [])
