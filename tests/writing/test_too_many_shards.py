"""Datasets whose metadata nobody would read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import tfrtool
from tests.datasets import image_payload, write_foreign
from tests.photos import write_class_folders
from tfrtool import UsageError
from tfrtool.writing import run_options


@pytest.mark.tf
def test_more_shards_than_metadata_may_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are refused before the first is written."""
    monkeypatch.setattr(run_options, "MAX_SHARDS", 4)
    source = write_class_folders(tmp_path / "photos")
    tfrtool.write(source, tmp_path / "pets", shards=3)
    with pytest.raises(UsageError, match="too many shards"):
        tfrtool.write(source, tmp_path / "more", shards=4)
    assert not list(tmp_path.glob("more/*.tfrecord*"))


@pytest.mark.parametrize("dry", [True, False])
@pytest.mark.parametrize(
    ("command", "options", "fits"),
    [
        ("reshard", {"shards": 4}, {"shards": 3}),
        ("reshard", {"shard_size": "1B"}, {"shard_size": "1GB"}),
        ("reshard", {"shards": 2, "splits": {"a": 0.5, "b": 0.5}}, {"splits": {"a": 1.0}}),
        ("filter", {"shards": 4, "sample": 5}, {"sample": 5}),
        ("convert", {"shards": 4, "to": "jsonl"}, {"shards": 3, "to": "jsonl"}),
        ("convert", {"shard_size": "1B", "to": "parquet"}, {"to": "parquet"}),
    ],
)
def test_jobs_refuse_them_too(
    command: str,
    options: dict[str, Any],
    fits: dict[str, Any],
    dry: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Before any file is written, and where nothing is to be; fewer shards are made."""
    payloads = [image_payload(n % 3, data=bytes([n])) for n in range(12)]
    source = write_foreign(tmp_path / "pets", [payloads])
    monkeypatch.setattr(run_options, "MAX_SHARDS", 4)
    run = getattr(tfrtool, command)
    with pytest.raises(UsageError, match="too many shards"):
        run(source, tmp_path / "more", **options, dry_run=dry)
    assert not [path for path in tmp_path.rglob("more/*") if path.is_file()]
    run(source, tmp_path / "some", **fits, dry_run=dry)
