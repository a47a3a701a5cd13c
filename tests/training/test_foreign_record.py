"""The record of a run may be a stranger's: resuming it runs no code and writes nowhere else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import tfrtool


def record(run: Path, **options: Any) -> Path:
    """Write the record of a run with these options."""
    run.mkdir()
    values = {"dataset": str(run.parent / "data"), "options": {"model": "cnn", **options}}
    (run / "run.json").write_text(json.dumps(values))
    return run


@pytest.mark.parametrize("option", ["model", "decode_function"])
def test_code_is_not_taken_from_a_record(tmp_path: Path, option: str) -> None:
    """Only the caller names code; what the record names is not even imported."""
    ran = tmp_path / "ran"
    (tmp_path / "code.py").write_text(f"open({str(ran)!r}, 'w')\ndef f(*_): pass\n")
    run = record(tmp_path / "run", **{option: f"{tmp_path / 'code.py'}:f"})
    with pytest.raises(tfrtool.UsageError, match="is your own code"):
        tfrtool.train(resume=True, out=run)
    assert not ran.exists()


@pytest.mark.parametrize("option", ["tensorboard", "cache_directory", "shard_cache"])
def test_a_record_chooses_no_folder_outside_the_run(tmp_path: Path, option: str) -> None:
    """Neither directly nor by a path that leads out of the run's directory."""
    run = record(tmp_path / "run", **{option: str(tmp_path / "run" / ".." / "elsewhere")})
    with pytest.raises(tfrtool.UsageError, match="outside its directory"):
        tfrtool.train(resume=True, out=run)
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        "[1]",
        '{"options": {}}',
        '{"dataset": "d", "options": [1]}',
        '{"dataset": "d", "options": {"epochs": "x"}}',
        '{"dataset": "d", "options": {"resume": true}}',
        '{"dataset": "d", "options": {"nosuch": 1}}',
    ],
    ids=lambda text: text[:40],
)
def test_records_that_make_no_sense(tmp_path: Path, text: str) -> None:
    """They are errors that name the file."""
    (tmp_path / "run.json").write_text(text)
    with pytest.raises(tfrtool.DatasetError, match="unusable record of the run") as caught:
        tfrtool.train(resume=True, out=tmp_path)
    assert caught.value.path == str(tmp_path / "run.json")
