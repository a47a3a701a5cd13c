"""Datasets whose metadata nobody would read."""

from __future__ import annotations

from pathlib import Path

import pytest

import tfrtool
from tests.photos import write_class_folders
from tfrtool import UsageError
from tfrtool.writing import write_plan

pytestmark = pytest.mark.tf


def test_more_shards_than_metadata_may_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are refused before the first is written."""
    monkeypatch.setattr(write_plan, "MAX_SHARDS", 4)
    source = write_class_folders(tmp_path / "photos")
    tfrtool.write(source, tmp_path / "pets", shards=3)
    with pytest.raises(UsageError, match="more shards than its metadata may name"):
        tfrtool.write(source, tmp_path / "more", shards=4)
    assert not list(tmp_path.glob("more/*.tfrecord*"))
