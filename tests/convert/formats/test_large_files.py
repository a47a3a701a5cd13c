"""Large shards are scanned in parts: what becomes of them is what one pass makes of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tfrtool
from tests.inspection.test_split_shards import ROWS, parts_of, shards
from tests.records.strategies import shard_of
from tfrtool.convert.formats.payload_formats import TfrecordFormat
from tfrtool.errors import TfrtoolError
from tfrtool.inspection.rows import batches


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a file that properties write to again and again."""
    return tmp_path_factory.mktemp("large") / "a.tfrecord"


def small_batches(patch: pytest.MonkeyPatch, size: int) -> None:
    """Have batches of so many bytes, and of a tenth as many records."""
    counts = size // 10 + 1
    patch.setattr(batches.in_batches, "__defaults__", (size, counts))


def _scanned(path: Path) -> Any:
    try:
        (scan,) = TfrecordFormat().scans([path], 1, 1)
    except TfrtoolError as error:
        return repr(error), vars(error)
    held = scan.content.columns, scan.fold.kinds, scan.fold.skipped
    rows = [scan.piece(row, 1).position for row in range(scan.rows)]
    assert all(position.row <= row for row, position in enumerate(rows))
    return scan.rows, scan.bytes, scan.faults, held


@given(data=shards(), size=st.integers(1, 2000), batch=st.integers(1, 500))
@settings(deadline=None, max_examples=20)
def test_scan(path: Path, data: bytes, size: int, batch: int) -> None:
    """Rows, columns and faults are those of one pass, wherever the shard is cut."""
    path.write_bytes(data)
    with pytest.MonkeyPatch.context() as patch:
        small_batches(patch, batch)
        expected = _scanned(path)
        with parts_of(size):
            assert _scanned(path) == expected


def test_convert(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The files are the same, to the byte."""
    small_batches(monkeypatch, 500)
    path.write_bytes(shard_of(ROWS * 9))

    def converted(name: str) -> Any:
        target = tmp_path / name
        report = tfrtool.convert(
            path, target, to="parquet", name="same", shards=3, workers=1
        ).to_json()
        kept = {key: report[key] for key in ("splits", "columns", "records_in", "digest_in")}
        return json.dumps(kept), {one.name: one.read_bytes() for one in target.glob("*.parquet")}

    expected = converted("whole")
    assert len(expected[1]) == 3
    with parts_of(1700):
        assert converted("parts") == expected
