"""Quick commands don't load heavy libraries."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import MakeShard
from tests.examples.strategies import float32, int64, string
from tests.photos import write_class_folders
from tfrtool.convert.formats.format_specs import FORMATS
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
    """Run commands in a new interpreter; return the exit code and the suspects it loaded."""
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
    """Run a command in a new interpreter; return its exit code and the suspects it loaded."""
    return all_loaded_by([words], suspects)


@pytest.fixture
def shard(make_shard: MakeShard) -> Path:
    """Return a shard with a feature of each type."""
    features = {"a": string(b"\xff\xd8\xff"), "b": int64(1), "c": float32(0.5)}
    return make_shard([encode_example(features)] * 3)


def test_commands_for_shards_load_nothing_heavy(shard: Path, tmp_path: Path) -> None:
    """Help, and commands that read or copy records, load neither TensorFlow nor numpy."""
    words: list[list[str]] = [["--version"], ["--help"], ["inspect", "shard", "--help"]]
    words += [[name, "--help"] for name in ("convert", "extract", "train", "write")]
    for options in ("", "--json", "--raw", "--feature b:int64=1"):
        words += [["inspect", "shard", str(shard), *options.split()]]
    for options in ("", "--records 1", "--sample 2", "--format csv"):
        words += [["cat", str(shard), *options.split()]]
    words += [[name, str(shard)] for name in ("count", "verify", "index")]
    words += [["inspect", "schema", str(shard)]]
    words += [["repair", str(shard), str(tmp_path / "out.tfrecord")]]
    assert all_loaded_by(words, HEAVY) == (0, [])


def test_sql_loads_nothing_heavy(shard: Path) -> None:
    """Conditions and queries load DuckDB and Arrow in a child process, and neither here."""
    where = ["cat", str(shard), "--where", "b = 1"]
    ask = ["query", str(shard), "SELECT b, count(*) FROM records GROUP BY b"]
    assert all_loaded_by([where, ask, [*ask, "--json"]], HEAVY) == (0, [])


def test_statistics_load_no_pandas(shard: Path) -> None:
    """Statistics of strings and numbers need Arrow, but nothing that makes it load pandas."""
    assert loaded_by(["inspect", "stats", str(shard)], HEAVY) == (0, ["numpy", "pyarrow"])


def test_writing_photographs_loads_only_pillow(tmp_path: Path) -> None:
    """Up to the first shard, ``write`` of a folder loads no numpy and no messages of protobuf."""
    write_class_folders(tmp_path / "photos", count=1)
    words = ["write", str(tmp_path / "photos"), str(tmp_path / "out"), "--dry-run"]
    assert loaded_by(words, [*HEAVY, "google.protobuf"]) == (0, ["PIL"])


def test_resharding_loads_nothing_heavy(shard: Path, tmp_path: Path) -> None:
    """Copying records loads no library that decodes them."""
    words = ["reshard", str(shard), str(tmp_path / "out"), "--shuffle", "--workers", "1"]
    assert loaded_by(words, ["tensorflow", "pyarrow", "pandas", "duckdb"]) == (0, [])


def test_conversion_loads_only_its_formats(shard: Path, tmp_path: Path) -> None:
    """Converting to Parquet loads no code of CSV, JSON Lines or WebDataset."""
    source = shard.rename(shard.with_name("records"))  # whose format is detected by its bytes
    words = ["convert", str(source), str(tmp_path / "out"), "--to", "parquet", "--workers", "1"]
    others = [FORMATS[name].implementation.split(":")[0] for name in ("csv", "jsonl", "webdataset")]
    suspects = ["csv", "duckdb", "PIL", "tensorflow", *others]
    assert loaded_by(words, [*suspects, "pyarrow.parquet"]) == (0, ["pyarrow.parquet"])


def test_check_can_fail(shard: Path) -> None:
    """The check can fail: it finds the protobuf runtime, which this command loads."""
    words = ["inspect", "shard", str(shard)]
    assert loaded_by(words, ["google.protobuf", "tensorflow"]) == (0, ["google.protobuf"])


def test_libraries_print_nothing_at_the_exit(shard: Path) -> None:
    """A database of the same process is closed at its end without a word."""
    program = "import duckdb, sys; duckdb.sql('SELECT 1').fetchall()\n"
    program += "from tfrtool.cli import main; sys.exit(main())"
    words = [sys.executable, "-c", program, "count", str(shard)]
    done = subprocess.run(words, capture_output=True, check=True, text=True)
    assert done.stderr == ""


def test_importing_the_package_loads_nothing_heavy() -> None:
    """`import tfrtool` loads no heavy library and no module of the package."""
    program = "import sys, tfrtool; print([n for n in sys.argv[1:] if n in sys.modules],"
    program += " [n for n in sys.modules if n.startswith('tfrtool.')])"
    done = subprocess.run(
        [sys.executable, "-c", program, *HEAVY, "click", "google.protobuf"],
        capture_output=True,
        check=True,
        text=True,
    )
    assert done.stdout.strip() == "[] []"
