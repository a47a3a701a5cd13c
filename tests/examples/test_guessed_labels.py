"""A feature that may be the label is no more than a guess, in every command."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

import tfrtool
from tests.photos import image_bytes
from tests.records.strategies import shard_of
from tfrtool.cli import main

Capture = pytest.CaptureFixture[str]
GUESS = "traffic_light_state/current/timestamp_micros"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with a shard of images beside numbers that are no classes."""
    payloads = [tfrtool.encode_example({"image": image_bytes(), GUESS: n}) for n in range(4)]
    (tmp_path / "in").mkdir()
    path = tmp_path / "in" / "a-train.tfrecord-00000-of-00001"
    path.write_bytes(shard_of(payloads))
    return tmp_path / "in"


def members(folder: Path) -> set[str]:
    """Return the endings of the members of the archives in a folder."""
    found = set()
    for path in folder.glob("*.tar"):
        with tarfile.open(path) as tar:
            found |= {name.partition(".")[2] for name in tar.getnames()}
    return found


def test_samples_have_no_guessed_class(folder: Path, tmp_path: Path, capsys: Capture) -> None:
    """Only a label that is named, by the metadata or the user, becomes .cls."""
    words = ["convert", str(folder), str(tmp_path / "out"), "--to", "webdataset"]
    assert main(words) == 0
    assert not any("cls" in name for name in members(tmp_path / "out"))
    words[2] = str(tmp_path / "named")
    assert main([*words, "--label-feature", GUESS]) == 0
    assert "--label-feature" not in capsys.readouterr().err
    assert "cls" in members(tmp_path / "named")
    for name in ("out", "named"):
        tfrtool.convert(tmp_path / name, tmp_path / f"{name}-back")
        assert tfrtool.diff(folder, tmp_path / f"{name}-back").same
    assert main([*words, "--overwrite", "--label-feature", "none"]) == 2
    assert "no column 'none'" in capsys.readouterr().err
    words[-1] = "csv"
    assert main([*words, "--overwrite", "--label-feature", GUESS]) == 2
    assert "--label-feature applies to TFRecord, ArrayRecord" in capsys.readouterr().err


def test_the_metadata_say_the_label(folder: Path, tmp_path: Path) -> None:
    """A label that was named once is known from dataset_info.json."""
    tfrtool.convert(folder, tmp_path / "named", to="tfrecord", label_feature=GUESS)
    assert tfrtool.inspect_dataset(tmp_path / "named").label == GUESS
    tfrtool.convert(tmp_path / "named", tmp_path / "samples", to="webdataset")
    assert "cls" in members(tmp_path / "samples")
    tfrtool.convert(folder, tmp_path / "plain", to="tfrecord")
    assert tfrtool.inspect_dataset(tmp_path / "plain").label is None


def test_inspect_dataset_counts_no_guessed_classes(folder: Path, capsys: Capture) -> None:
    """It names what may be the label, and counts classes of what the user names."""
    assert main(["inspect", "dataset", str(folder)]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert f"--label-feature: {GUESS}" in out
    assert "classes" not in out
    assert main(["inspect", "dataset", str(folder), "--label-feature", GUESS]) == 0
    assert f"{GUESS}, 4 classes" in capsys.readouterr().out


def test_extract_makes_no_guessed_folders(folder: Path, tmp_path: Path, capsys: Capture) -> None:
    """Files lie in the directory itself until a feature is named."""
    assert main(["extract", str(folder), str(tmp_path / "out")]) == 0
    assert f"if '{GUESS}' is the label, use --by {GUESS}" in " ".join(
        capsys.readouterr().out.split()
    )
    assert len([one for one in (tmp_path / "out").iterdir() if one.is_file()]) == 4
    report = tfrtool.extract(folder, tmp_path / "by", by=GUESS)
    assert (report.by, sorted(report.classes)) == (GUESS, ["0", "1", "2", "3"])


def test_open_needs_a_named_label(folder: Path) -> None:
    """Images come with a label that is known."""
    with pytest.raises(tfrtool.ShardError, match="label_feature=NAME"):
        tfrtool.open_records(folder, decode="image")
    _, label = tfrtool.open_records(folder, decode="image", label_feature=GUESS)[2]
    assert label == 2


def test_verify_finds_no_guessed_contradiction(folder: Path, capsys: Capture) -> None:
    """The same image beside two numbers is not under two labels."""
    assert main(["verify", str(folder), "--images"]) == 0
    assert "labels" not in capsys.readouterr().out
