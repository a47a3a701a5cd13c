"""What the quick commands must not load."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import MakeShard
from tests.examples.strategies import float32, int64, string
from tfrtool.examples.example import encode_example

HEAVY = [
    "tensorflow",
    "keras",
    "tensorflow_datasets",
    "numpy",
    "PIL",
    "pandas",
    "pyarrow",
    "duckdb",
]

PROGRAM = """
import json, sys
from tfrtool.cli import main
code = max(main(words) for words in json.loads(sys.argv[1]))
loaded = [name for name in json.loads(sys.argv[2]) if name in sys.modules]
sys.stderr.write(json.dumps([code, loaded]))
"""


def all_loaded_by(commands: list[list[str]], suspects: list[str]) -> tuple[int, list[str]]:
    """Run commands in a new interpreter; return the exit code and which suspects they loaded."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps(commands), json.dumps(suspects)],
        capture_output=True,
        check=True,
        text=True,
    )
    assert done.stdout
    code, loaded = json.loads(done.stderr)
    return code, loaded


def loaded_by(words: list[str], suspects: list[str]) -> tuple[int, list[str]]:
    """Run a command in a new interpreter; return its exit code and which suspects it loaded."""
    return all_loaded_by([words], suspects)


@pytest.fixture
def shard(make_shard: MakeShard) -> Path:
    """Return a shard with a feature of each type."""
    features = {"a": string(b"\xff\xd8\xff"), "b": int64(1), "c": float32(0.5)}
    return make_shard([encode_example(features)] * 3)


def test_help_is_light() -> None:
    """Help loads neither TensorFlow nor numpy."""
    paths: list[list[str]] = [[], ["inspect"], ["inspect", "shard"]]
    words = [["--version"], *([*path, "--help"] for path in paths)]
    assert all_loaded_by(words, HEAVY) == (0, [])


def test_inspecting_a_shard_is_light(shard: Path) -> None:
    """Looking into a shard loads neither TensorFlow nor numpy, whatever is asked for."""
    options: list[list[str]] = [[], ["--json"], ["--raw"], ["--feature", "b:int64=1"]]
    words = [["inspect", "shard", str(shard), *more] for more in options]
    assert all_loaded_by(words, HEAVY) == (0, [])


def test_printing_records_is_light(shard: Path) -> None:
    """So does printing records, unless there is a condition."""
    options: list[list[str]] = [[], ["--records", "1"], ["--sample", "2"], ["--format", "csv"]]
    words = [["cat", str(shard), *more] for more in options]
    assert all_loaded_by(words, HEAVY) == (0, [])


def test_sql_is_light(shard: Path) -> None:
    """Conditions and queries leave DuckDB to a process of their own, and never wait for pandas."""
    where = ["cat", str(shard), "--where", "b = 1"]
    ask = ["query", str(shard), "SELECT b, count(*) FROM records GROUP BY b"]
    for words in (where, ask, [*ask, "--json"]):
        assert loaded_by(words, ["duckdb", "tensorflow", "pandas"]) == (0, [])


def test_batches_are_light(shard: Path) -> None:
    """Records as record batches, with their places and payloads, don't wait for pandas."""
    program = """
import sys
from pathlib import Path
from tfrtool.inspection.rows.batches import RowColumns, infer_columns, read_batches
paths = [Path(sys.argv[1])]
columns = infer_columns(paths)
own = RowColumns(label="b", class_names=("one", "two"))
names = own.schema(columns).names
batches = read_batches(paths, columns, exact=True, on_fault=print)
print(sum(own.add_to(batch, names).num_rows for batch in batches), "pandas" in sys.modules)
"""
    command = [sys.executable, "-c", program, str(shard)]
    done = subprocess.run(command, capture_output=True, check=True, text=True)
    assert done.stdout.split() == ["3", "False"]


def test_working_on_shards_is_light(shard: Path, tmp_path: Path) -> None:
    """So does what goes over all records, or writes them again."""
    words = [[name, str(shard)] for name in ("count", "verify", "index")]
    words += [["inspect", "schema", str(shard)]]
    words += [["repair", str(shard), str(tmp_path / "out.tfrecord")]]
    assert all_loaded_by(words, HEAVY) == (0, [])


def test_resharding_is_light(shard: Path, tmp_path: Path) -> None:
    """Copying records waits for nothing that would decode them, and takes no memory for it."""
    words = ["reshard", str(shard), str(tmp_path / "out"), "--shuffle", "--workers", "1"]
    assert loaded_by(words, ["tensorflow", "pyarrow", "pandas", "duckdb"]) == (0, [])


def test_check_can_fail(shard: Path) -> None:
    """What is loaded is seen: the protobuf runtime is."""
    words = ["inspect", "shard", str(shard)]
    assert loaded_by(words, ["google.protobuf", "tensorflow"]) == (0, ["google.protobuf"])


def test_importing_the_package_is_light() -> None:
    """Importing the package alone loads nothing heavy, nor the command line."""
    program = "import sys, tfrtool; print([n for n in sys.argv[1:] if n in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", program, *HEAVY, "click", "google.protobuf"],
        capture_output=True,
        check=True,
        text=True,
    )
    assert done.stdout.strip() == "[]"
