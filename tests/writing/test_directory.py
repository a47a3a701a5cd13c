"""Publishing a dataset's files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tfrtool.errors import UsageError, WriteError
from tfrtool.records.names import ShardName
from tfrtool.writing.directory import REPORT, STAGING, publish
from tfrtool.writing.options import Existing
from tfrtool.writing.staging import staging_directory

SHARDS = [ShardName(dataset="pets", split="train", index=index, count=3) for index in range(3)]
METADATA = {"features.json": "{}", "dataset_info.json": "{}", REPORT: "{}"}


def _stage(staging: Path) -> None:
    for shard in SHARDS:
        (staging / str(shard)).write_bytes(b"new")


def _write(dataset: Path, existing: Existing = Existing.REFUSE) -> None:
    with staging_directory(dataset, existing) as staging:
        _stage(staging.folder)
        publish(dataset, staging.folder, SHARDS, METADATA)


@pytest.mark.parametrize("failure", [KeyboardInterrupt, OSError(28, "No space left on device")])
@pytest.mark.parametrize("after", range(6))
def test_interrupted_publishing_is_taken_back(
    failure: BaseException | type[BaseException],
    after: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whenever it fails among the renames, no file is left under a final name."""
    real, calls = os.replace, 0

    def replace(source: Path, target: Path) -> None:
        nonlocal calls
        calls += 1
        if calls > after:
            raise failure
        real(source, target)

    monkeypatch.setattr("tfrtool.writing.directory.os.replace", replace)
    expected = KeyboardInterrupt if failure is KeyboardInterrupt else WriteError
    with pytest.raises(expected):
        _write(tmp_path / "d")
    assert not (tmp_path / "d").exists()


def test_report_comes_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the report gets its name, everything else has its own."""
    real = os.replace
    order: list[str] = []

    def replace(source: Path, target: Path) -> None:
        order.append(target.name)
        real(source, target)

    monkeypatch.setattr("tfrtool.writing.directory.os.replace", replace)
    _write(tmp_path / "d")
    assert order == [*map(str, SHARDS), "features.json", "dataset_info.json", REPORT]
    assert not (tmp_path / "d" / STAGING).exists()


def test_edited_report_deletes_no_other_files(tmp_path: Path) -> None:
    """A report that lists paths outside the dataset has none of them removed."""
    victim = tmp_path / "victim.txt"
    victim.write_text("dear")
    dataset = tmp_path / "d"
    dataset.mkdir()
    report = '{"splits": {"train": {"shards": [{"path": "../victim.txt"}, {"path": 3}]}}}'
    (dataset / REPORT).write_text(report)
    _write(dataset, Existing.OVERWRITE)
    assert victim.read_text() == "dear"


def test_file_in_place_of_a_directory(tmp_path: Path) -> None:
    """A file where the dataset should be is refused, and kept."""
    (tmp_path / "d").write_text("dear")
    with pytest.raises(UsageError):
        _write(tmp_path / "d", Existing.OVERWRITE)
    assert (tmp_path / "d").read_text() == "dear"
