"""TensorBoard's event files in nested folders."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

import tfrtool
from tests.conftest import MakeShard

Run = Callable[..., tuple[int, str, str]]
EVENT = Path(__file__).parents[2] / "fixtures/golden/events.out.tfevents.1700000000.host"


def write_runs(root: Path, *runs: str) -> None:
    """Write an event file into each folder."""
    for run in runs:
        (root / run).mkdir(parents=True, exist_ok=True)
        (root / run / EVENT.name).write_bytes(EVENT.read_bytes())


@pytest.mark.parametrize("runs", [[".", "a", "grp/b/c"], ["x/y/z", "x/w"]])
def test_runs_at_any_depth(runs: list[str], tmp_path: Path, run: Run) -> None:
    """Runs are named by their paths, as in TensorBoard, whether or not the root has events."""
    write_runs(tmp_path, *runs)
    (tmp_path / "x").mkdir(exist_ok=True)
    (tmp_path / "x" / "loop").symlink_to(tmp_path)
    code, out, err = run("query", tmp_path, "SELECT DISTINCT run FROM records ORDER BY 1", "--json")
    assert [json.loads(line)["run"] for line in out.splitlines()] == sorted(runs)
    assert (code, f"reading the event files of {len(runs)} runs" in err) == (0, True)
    splits = tfrtool.inspect_dataset(tmp_path).splits
    assert {*splits} == {"all" if one == "." else one for one in runs}


def test_runs_of_several_sources(tmp_path: Path, run: Run) -> None:
    """Runs are relative to each directory that is named; those of files to their common folder."""
    write_runs(tmp_path, "a/x", "a/y/z")
    sql = "SELECT DISTINCT run FROM records ORDER BY 1"
    for words, runs in (
        ([tmp_path / "a" / "x", tmp_path / "a" / "y"], [".", "z"]),
        ([f"{tmp_path}/a/**"], ["x", "y/z"]),
    ):
        out = run("query", *words, sql, "--json")[1]
        assert [json.loads(line)["run"] for line in out.splitlines()] == runs


def test_events_below_other_shards(make_shard: MakeShard, tmp_path: Path) -> None:
    """Event files below a dataset are not part of it, but noted."""
    make_shard([b"x"], "a.tfrecord")
    write_runs(tmp_path, "logs")
    found = tfrtool.verify(tmp_path)
    assert len(found.shards) == 1
    assert any("1 shard in 1 subfolder is not included (logs)" in note for note in found.notes)


def test_inspect_shard_shows_events(run: Run) -> None:
    """The fields of an event, not its bytes."""
    code, out, _ = run("inspect", "shard", EVENT, "--limit", "1")
    assert (code, "payload     TensorBoard events" in out) == (0, True)
    assert 'file_version  "brain.Event:2"' in out
