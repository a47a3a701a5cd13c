"""Commands that run SQL under a limit on address space (``ulimit -v``)."""

from __future__ import annotations

import gzip
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import MakeShard
from tfrtool.examples.example import DType, Feature, encode_example
from tfrtool.records.framing import frame

resource = pytest.importorskip("resource")

pytestmark = pytest.mark.skipif(sys.platform == "darwin", reason="macOS does not enforce RLIMIT_AS")

LIMIT = 620_000 * 1024
"""With this much, libraries aborted the process as they started threads."""


@pytest.mark.parametrize(
    "words", [["report", "--out", "r.html"], ["query", "SELECT 1 FROM records"]]
)
@pytest.mark.more
def test_too_little_address_space_is_an_error(
    words: list[str], make_shard: MakeShard, tmp_path: Path
) -> None:
    """The command ends with one line that has the limit, and leaves no file."""
    shard = make_shard([encode_example({"a": Feature(dtype=DType.INT64, values=(1,))})], "a.record")
    done = subprocess.run(
        [sys.executable, "-m", "tfrtool", words[0], shard, *words[1:]],
        cwd=tmp_path,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (LIMIT, LIMIT)),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "tfrtool: error: SQL needs at least 1.0 GiB of address space, and its limit is 605.5 MiB; "
        "raise ulimit -v to 1048576 or more\n"
    )
    assert [path.name for path in tmp_path.iterdir()] == ["a.record"]


@pytest.mark.more
def test_long_record_of_a_short_compressed_shard_can_be_queried(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    run: Callable[..., tuple[int, str, str]],
) -> None:
    """The types are found outside of the process with limited memory if it has not enough."""
    monkeypatch.setattr("tfrtool.inspection.rows.sql_child.MAX_SQL_MEMORY", 750 * 1024**2)
    shard = tmp_path / "long.tfrecord.gz"
    payload = encode_example({"label": 3, "text": b"a word " * 14_000_000})  # 98 MB in 0.4 MB
    shard.write_bytes(gzip.compress(frame(payload), 1))
    assert run("query", str(shard), "SELECT label FROM records", "--format", "csv") == (
        0,
        "label\n3\n",
        "",
    )
