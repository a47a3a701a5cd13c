"""`tfrtool write`, as a user calls it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.photos import write_class_folders
from tfrtool.cli import main

pytestmark = pytest.mark.tf


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Return a folder of 2 x 10 photographs, in a path with a space and an accent."""
    return write_class_folders(tmp_path / "mes photos d'été", count=10)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--split", "train=0.5"], 2),
        (["--split", "train"], 2),
        (["--shards", "0"], 2),
        (["--shards", "21"], 2),
        (["--name", "cats-vs-dogs"], 2),
        (["--version", "1.0"], 2),
        (["--compression", "bzip2"], 2),
        (["--shard-size", "big"], 2),
        (["--unknown"], 2),
    ],
)
def test_usage_errors(
    arguments: list[str],
    code: int,
    photos: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A request that makes no sense ends with 2, says why, and leaves nothing."""
    assert main(["write", str(photos), str(tmp_path / "pets"), *arguments]) == code
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err != ""
    assert not (tmp_path / "pets").exists()


def test_source_errors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A source that isn't there, is empty, or has no images ends with 1 and one line."""
    (tmp_path / "empty").mkdir()
    for source in ("missing", "empty"):
        assert main(["write", str(tmp_path / source), str(tmp_path / "pets")]) == 1
        output = capsys.readouterr()
        assert output.out == ""
        (line,) = output.err.splitlines()
        assert str(tmp_path / source) in line


def test_one_class_is_written_with_a_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A single class is a dataset, though none that a classifier learns from: it is said."""
    source = write_class_folders(tmp_path / "photos", ("cat",))
    assert main(["write", str(source), str(tmp_path / "pets")]) == 0
    assert "one class" in capsys.readouterr().err


def test_compression_warns_of_tfds(
    photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """GZIP shards are written, and it is said that TFDS can't read them."""
    assert main(["write", str(photos), str(tmp_path / "pets"), "--compression", "gzip"]) == 0
    assert "TFDS" in capsys.readouterr().err
    assert next((tmp_path / "pets").glob("*.tfrecord-*")).read_bytes()[:2] == b"\x1f\x8b"


def test_shard_size_is_a_size(
    photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """--shard-size 2KiB makes as many shards as records of 2048 bytes together need."""
    arguments = ["write", str(photos), str(tmp_path / "pets"), "--shard-size", "2KiB", "--json"]
    assert main(arguments) == 0
    data = json.loads(capsys.readouterr().out)
    train = data["splits"]["train"]
    assert len(train["shards"]) == -(-train["bytes"] // 2048)


def test_resume_may_be_repeated(
    photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A script that resumes until it succeeds does; other options end with 2, and are named."""
    (photos / "cat" / "bad.jpg").write_text("no image")
    words = ["write", str(photos), str(tmp_path / "pets"), "--resume"]
    assert main(words) == 3
    capsys.readouterr()
    assert main(words) == 0
    assert "already complete, nothing written" in capsys.readouterr().out
    assert main([*words, "--seed", "3"]) == 2
    assert "written with other options" in capsys.readouterr().err
    assert main(words) == 0


def test_what_a_table_was_taken_for_is_said(
    photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """New numbers of integer labels and dropped columns are on stderr and in the report."""
    table = photos / "table.csv"
    names = sorted(path.relative_to(photos) for path in photos.rglob("*.jpg"))
    rows = [f"{name},{5 if name.parts[0] == 'cat' else 10},x" for name in names]
    table.write_text("\n".join(["path,label,weather", *rows]))
    assert main(["write", str(table), str(tmp_path / "pets"), "--json"]) == 0
    output = capsys.readouterr()
    for said in (output.err, " ".join(json.loads(output.out)["notices"])):
        assert "5 becomes 0, 10 becomes 1" in said
        assert "'weather'" in said
    report = json.loads((tmp_path / "pets" / "write_report.json").read_text())
    assert report["notices"] == json.loads(output.out)["notices"]
    assert (tmp_path / "pets" / "label.labels.txt").read_text().split() == ["5", "10"]
    assert main(["write", str(table), str(tmp_path / "none"), "--dry-run"]) == 0
    assert "5 becomes 0" in capsys.readouterr().err


def test_a_table_leads_elsewhere_with_root_only(
    photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without --root the error names it, and with it the images are taken; others need no root."""
    (tmp_path / "tables").mkdir()
    table = tmp_path / "tables" / "table.csv"
    table.write_text("".join(f"{path},{path.parent.name}\n" for path in photos.rglob("*.jpg")))
    arguments = ["write", str(table), str(tmp_path / "pets"), "--dry-run"]
    assert main(arguments) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert str(table) in line
    assert "--root" in line
    assert main([*arguments, "--root", str(photos)]) == 0
    assert main(["write", str(photos), str(tmp_path / "pets"), "--root", str(photos)]) == 2
    assert main([*arguments, "--root", str(tmp_path / "missing")]) == 2


def test_nested_class_folders_are_refused_where_they_are_classes(
    photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A class folder with folders named like classes is no class; a depth chooses the classes."""
    write_class_folders(photos / "cleaned", count=2)
    words = ["write", str(photos), str(tmp_path / "out"), "--dry-run", "--json"]
    assert main(words) == 1
    error = capsys.readouterr().err
    assert "cleaned/cat/" in error
    assert "--label-depth 1" in error
    assert main([*words, "--label-depth", "1"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["splits"]["train"]["labels"] == {"cat": 10, "cleaned": 4, "dog": 10}
    assert main([*words, "--label-depth", "2"]) == 3
    report = json.loads(capsys.readouterr().out)
    assert report["splits"]["train"]["labels"] == {"cat": 2, "dog": 2}
    assert len(report["rejected"]) == 20
    assert {one["reason"] for one in report["rejected"]} == {"not in a folder at depth 2"}


def test_the_depth_of_labels_is_printed(
    photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Folders inside class folders belong to these, and the depth is printed; also in splits."""
    write_class_folders(photos / "cat", count=1)
    (photos / "cat" / "dog").rename(photos / "cat" / "siamese")
    (photos / "cat" / "cat").rename(photos / "cat" / "persian")
    (tmp_path / "all").mkdir()
    for split in ("train", "test"):
        (tmp_path / "all" / split).symlink_to(photos, target_is_directory=True)
    for source, depth in ((photos, 1), (tmp_path / "all", 2)):
        words = ["write", str(source), str(tmp_path / "out"), "--dry-run"]
        assert main(words) == 0
        error = capsys.readouterr().err
        assert f"labels are the folders at depth {depth}, such as 'cat'" in error
        assert f"--label-depth {depth + 1}" in error
        assert main([*words, "--label-depth", str(depth)]) == 0
        assert "depth" not in capsys.readouterr().err
    words = ["write", str(tmp_path / "all"), str(tmp_path / "out"), "--label-depth", "1"]
    assert main(words) == 2
    assert "--label-depth must be at least 2, got 1" in capsys.readouterr().err


def test_label_depth_needs_class_folders(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A table has no folders of classes."""
    (tmp_path / "t.csv").write_text("path,label\na.jpg,cat\n")
    words = ["write", str(tmp_path / "t.csv"), str(tmp_path / "out"), "--label-depth", "1"]
    assert main(words) == 2
    assert "--label-depth requires class folders" in capsys.readouterr().err
