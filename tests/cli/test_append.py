"""``tfrtool append``: exit codes, and what is shown."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import tfrtool
from tests.cli.inspecting import Capture
from tests.photos import image_bytes, write_class_folders
from tfrtool.cli import main


@pytest.mark.tf
def test_what_is_skipped_is_shown(tmp_path: Path, capsys: Capture) -> None:
    """Images that are bad, or there already, are named; the exit code is 3 then, and else 0."""
    source = write_class_folders(tmp_path / "photos", count=3)
    old = tmp_path / "pets" / "1.0.0"
    tfrtool.write(source, old)
    new = tmp_path / "new" / "cat"
    new.mkdir(parents=True)
    (new / "more.jpg").write_bytes(image_bytes(size=(64, 48)))
    assert main(["append", str(old), str(new.parent), "--dry-run"]) == 0
    assert "6 records in, 7 out" in capsys.readouterr().out
    assert not (tmp_path / "pets" / "1.1.0").exists()
    (new / "bad\x1b[31m.jpg").write_bytes(b"no image")
    (new / "again.jpg").write_bytes((source / "dog" / "dog.1.jpg").read_bytes())
    capsys.readouterr()
    assert main(["append", str(old), str(new.parent), "--dedupe"]) == 3
    shown = capsys.readouterr().out
    assert "6 records in, 7 out" in shown
    assert "skipped: 2" in shown
    assert "again.jpg" in shown
    assert "\x1b" not in shown
    assert main(["append", str(old), str(new.parent), "--dedupe"]) == 2
    assert "already exists" in capsys.readouterr().err
    words = ["append", str(tmp_path / "pets" / "1.1.0"), str(old), "--split", "test", "--json"]
    assert main(words) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["dataset"] == str(tmp_path / "pets" / "1.2.0")
    assert {name: split["records"] for name, split in report["splits"].items()} == {
        "train": 7, "test": 6,
    }  # fmt: skip
    assert main(["append", str(old), str(tmp_path / "none"), "--version", "3.0.0"]) == 1
    assert not (tmp_path / "pets" / "3.0.0").exists()
