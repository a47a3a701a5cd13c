"""Large shards are gone through in parts before they are copied; the result is that of one pass."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.inspection.test_split_shards import ROWS, parts_of, shards
from tests.records.strategies import shard_of
from tfrtool.convert.pipeline import record_sources
from tfrtool.convert.pipeline.record_sources import scan_shards
from tfrtool.examples.dataset_files import find_files
from tfrtool.writing.job_settings import JobSettings


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder that properties write to again and again."""
    return tmp_path_factory.mktemp("large")


def scanned(path: Path, scratch: Path, workers: int = 1) -> Any:
    """Return what is known of a shard's records, and remove it."""
    scratch.mkdir()
    settings = JobSettings(folder=scratch / "out", name="a", version="1.0.0", workers=workers)
    pool, faults = scan_shards(find_files([path]), scratch, settings)
    (shard,) = pool.shards
    copy = shard.copy and shard.copy.read_bytes()
    found = pool.index.read_bytes(), shard.records, shard.size, copy, [*shard.lost], faults.kept
    left = {one.name for one in scratch.iterdir()} - {"index", "0.records"}
    for one in scratch.iterdir():
        one.unlink()
    scratch.rmdir()
    return found, left


@given(data=shards(), size=st.integers(1, 2000))
@example(data=shard_of(ROWS * 3), size=100)
@example(data=shard_of([shard_of(ROWS)] * 3), size=500)
@settings(deadline=None, max_examples=25)
def test_scan(folder: Path, data: bytes, size: int) -> None:
    """The index, and what is copied of damaged shards, are the same wherever the shard is cut."""
    path = folder / "a.tfrecord"
    path.write_bytes(data)
    expected = scanned(path, folder / "scratch")
    with parts_of(size):
        assert scanned(path, folder / "scratch") == expected
    assert expected[1] == set()


def test_sound_shards_are_hopped_over_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No part of a sound shard is gone through again, and two processes do as one does."""
    path = folder / "b.tfrecord"
    path.write_bytes(shard_of(ROWS * 20))
    expected = scanned(path, folder / "scratch")
    monkeypatch.setattr(record_sources, "_index_records", None)
    with parts_of(1000):
        assert scanned(path, folder / "scratch", workers=2) == expected
