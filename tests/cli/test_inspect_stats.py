"""``tfrtool inspect stats``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.inspecting import Capture, damaged
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


def test_page(shard: Path, capsys: Capture) -> None:
    """People get tables: numbers with a histogram each, lengths of lists, commonest values."""
    assert run(shard) == 0
    out, err = capsys.readouterr()
    assert (
        out
        == """\
8 records in 1 shard, tf.train.Example

  numbers  present  mean    std  min  median  max  zeros  histogram
  ids          all     7      0    7       7    7      0  █
  label        all   0.5    0.5    0       0    1      4  █        █
  size         all  17.5  16.68    0       9   49      1  █▃ ▃ ▃ ▃ ▃

  list lengths  present  mean    std  min  median  max  zeros  histogram
  ids               all   3.5  2.291    0       3    7      1  ███ ██ ███

  values  present  distinct  most common
  ids     all      1         7 100.0%
  label   all      2         0 50.0%, 1 50.0%
  size    all      8         0 12.5%, 1 12.5%, 4 12.5%
  word    all      2         red 75.0%, green 25.0%
"""
    )
    assert err == ""


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


def test_json(shard: Path, other: Path, capsys: Capture) -> None:
    """Programs get one object, with the buckets of each histogram."""
    assert run(shard, "--json", "--against", other) == 0
    (line,) = capsys.readouterr().out.splitlines()
    data = json.loads(line)
    assert (data["shards"], data["records"], data["payload"]) == (1, 8, "example")
    size = next(one for one in data["features"] if one["name"] == "size")
    assert size["values"]["histogram"]["counts"] == [3, 1, 0, 1, 0, 1, 0, 1, 0, 1]
    assert size["values"]["histogram"]["edges"][::10] == [0, 49]
    far = {(one["feature"], one["of"]): one["distance"] for one in data["against"]["distances"]}
    assert far["size", "values"] == 1.0
    assert far["more", "presence"] == 1.0
    assert run(shard, "--json") == 0
    assert json.loads(capsys.readouterr().out)["against"] is None


def test_damage(shard: Path, capsys: Capture) -> None:
    """What is damaged is named on stderr, and makes exit code 3."""
    assert run(damaged(shard, 8 * 40)) == 3
    out, err = capsys.readouterr()
    assert out.startswith("7 records in 1 shard")
    assert "1 fault" in err
    assert str(shard) in err


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
