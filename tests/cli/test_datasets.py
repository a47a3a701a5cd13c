"""All commands mean the same by SHARDS and DATASET, whatever the files and folders are called."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest

import tfrtool
from tests.cli.inspecting import Capture
from tests.datasets import image_payload
from tfrtool.cli import main
from tfrtool.records.framing import frame

PAYLOADS = [image_payload(0), image_payload(1), image_payload(0)]
DATA = b"".join(map(frame, PAYLOADS))


def _put(path: Path, data: bytes = DATA) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def _versions(directory: Path) -> Path:
    _put(directory / "1.0.0" / "pets-train.tfrecord-00000-of-00001", frame(PAYLOADS[0]))
    _put(directory / "2.0.0" / "pets-train.tfrecord-00000-of-00001")
    return directory


def _configuration(directory: Path) -> Path:
    _put(directory / "small" / "1.0.0" / "pets-train.tfrecord-00000-of-00001")
    return directory


def _folders(directory: Path) -> Path:
    _put(directory / "Split-train" / "data_tfrecord-00000-of-00001.gz", gzip.compress(DATA))
    return directory


def _odd_names(directory: Path) -> Path:
    _put(directory / "train.record")
    (directory / "README").write_text("text")
    return directory


def _no_ending(directory: Path) -> Path:
    _put(directory / "tfrecords")
    return directory


def _packed(directory: Path) -> Path:
    _put(directory / "data.gz", gzip.compress(DATA))
    return directory


LAYOUTS = [_versions, _configuration, _folders, _odd_names, _no_ending, _packed]
Make = Callable[[Path], Path]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    "words",
    [
        ["count"],
        ["verify"],
        ["inspect", "shard"],
        ["inspect", "schema"],
        ["inspect", "dataset"],
        ["inspect", "images", "--out", "sheet.png"],
        ["extract"],
    ],
    ids=lambda words: " ".join(words[:2]),
)
def test_every_command_finds_it(
    words: list[str],
    layout: Make,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Capture,
) -> None:
    """Versions, a configuration, folders of splits, files of odd names: each finds 3 records."""
    directory = layout(tmp_path / "pets")
    monkeypatch.chdir(tmp_path)
    rest = ["out"] if words == ["extract"] else []
    assert main([*words, "--json", str(directory), *rest]) == 0
    captured = capsys.readouterr()
    data = [json.loads(line) for line in captured.out.splitlines()][-1]
    counts = {data.get(key) for key in ("records", "images", "files") if key in data}
    assert 3 in {count for count in counts if isinstance(count, int)}
    if layout is _versions:
        assert "newest of 1.0.0, 2.0.0" in captured.out + captured.err


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_loader_finds_it(layout: Make, tmp_path: Path) -> None:
    """What is trained on and benchmarked is what is inspected: the same shards and splits."""
    directory = layout(tmp_path / "pets")
    dataset = tfrtool.dataset(directory)
    summary = tfrtool.inspect_dataset(directory)
    assert dataset.split("train").records == 3
    assert list(dataset.split("train").shards) == list(tfrtool.find_shards(directory))
    assert [s.shard.path for split in summary.splits.values() for s in split.shards] == list(
        dataset.split("train").shards
    )


@pytest.mark.tf
def test_records_that_cannot_be_used_in_folders_of_splits(tmp_path: Path) -> None:
    """Shards of two splits may have one name: what is saved of them is kept apart."""
    for split, label in (("train", 0), ("eval", 1)):
        payloads = [image_payload(label)] * 3
        data = bytearray(b"".join(map(frame, payloads)))
        data[40] ^= 1
        _put(tmp_path / f"Split-{split}" / "data-00000-of-00001.tfrecord", bytes(data))
    dataset, report = tfrtool.dataset(tmp_path, on_error="skip").drop_corrupt(tmp_path / "scratch")
    assert {name: split.records for name, split in dataset.splits.items()} == {
        "train": 2,
        "eval": 2,
    }
    assert dataset.split("train").shards != dataset.split("eval").shards
    assert len(report.skipped) == 2


@pytest.mark.tf
@pytest.mark.parametrize("command", ["train", "bench"])
def test_the_version_is_told_before_anything_else(
    command: str, tmp_path: Path, capsys: Capture
) -> None:
    """Training and the benchmark say which version they take; here it has no such split."""
    directory = _versions(tmp_path / "pets")
    assert main([command, str(directory), "--split", "nosuch"]) == 2
    first, second, third = capsys.readouterr().err.splitlines()
    assert "2.0.0, the newest of 1.0.0, 2.0.0" in first
    assert "is not included (1.0.0)" in second
    assert str(directory / "2.0.0") in third


def test_index_again_by_the_pattern_that_made_it(tmp_path: Path, capsys: Capture) -> None:
    """The index that lies beside a shard is not taken for one, by any command."""
    _put(tmp_path / "a-train.tfrecord-00000-of-00001")
    (tmp_path / "a.tfrecord.json").write_text("{}")
    pattern = f"{tmp_path}/*-train.tfrecord-*"
    for _ in range(2):
        assert main(["index", pattern]) == 0
    for words in (["count"], ["verify"], ["inspect", "schema"]):
        assert main([*words, pattern]) == 0
        assert main([*words, f"{tmp_path}/**/*.tfrecord*"]) == 0
    assert "idx" not in capsys.readouterr().err
