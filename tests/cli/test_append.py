"""``tfrtool append``: exit codes, and what is shown."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import tfrtool
from tests.cli.inspecting import Capture
from tests.datasets import flip_bit
from tests.photos import write_class_folders
from tfrtool.cli import main


@pytest.mark.tf
def test_what_is_skipped_is_shown(tmp_path: Path, capsys: Capture) -> None:
    """Damaged records are named; the exit code is 3 then, and else 0."""
    source = write_class_folders(tmp_path / "photos", count=3)
    old = tmp_path / "pets" / "1.0.0"
    tfrtool.write(source, old)
    new = tmp_path / "new"
    shutil.copytree(old, new)
    assert main(["append", str(old), str(new), "--dry-run"]) == 0
    assert "12 records in, 12 out" in capsys.readouterr().out
    assert not (tmp_path / "pets" / "1.1.0").exists()
    flip_bit(next(new.glob("*.tfrecord-*")), 40)
    assert main(["append", str(old), str(new)]) == 3
    shown = capsys.readouterr().out
    assert "11 records in, 11 out" in shown
    assert "damaged and skipped: 1" in shown
    assert main(["append", str(old), str(new)]) == 2
    assert "already exists" in capsys.readouterr().err
    words = ["append", str(tmp_path / "pets" / "1.1.0"), str(old), "--split", "test", "--json"]
    assert main(words) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["dataset"] == str(tmp_path / "pets" / "1.2.0")
    assert {name: split["records"] for name, split in report["splits"].items()} == {
        "train": 11, "test": 6,
    }  # fmt: skip
    assert main(["append", str(old), str(tmp_path / "none"), "--version", "3.0.0"]) == 1
    assert not (tmp_path / "pets" / "3.0.0").exists()
