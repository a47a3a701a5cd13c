"""Records for programs: batches and data frames."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import tfrtool
from tests.datasets import flip_bit
from tests.records.strategies import shard_of
from tfrtool.records.framing import LocatedFault

ROWS = [{"n": n, "x": n / 2, "name": f"a{n}"} for n in range(100)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return a shard of these rows."""
    path = tmp_path / "rows.tfrecord"
    path.write_bytes(shard_of([tfrtool.encode_example(row) for row in ROWS]))
    return path


def test_batches_and_data_frames(path: Path, tmp_path: Path) -> None:
    """The columns that are asked for come in batches, as a table, and in pandas and polars."""
    rows = tfrtool.read_table(path, columns=["x", "n"])
    assert rows.schema.names == ["x", "n"]
    for _ in range(2):
        assert [n for batch in rows for n in batch["n"].to_pylist()] == list(range(100))
    assert rows.to_arrow().column("x").to_pylist() == [n / 2 for n in range(100)]
    assert rows.to_pandas()["n"].sum() == 4950
    assert rows.to_polars()["x"].dtype.is_float()
    assert tfrtool.read_table([tmp_path], columns="all").schema.names == ["n", "name", "x"]
    assert tfrtool.read_table(path, columns="name").to_arrow().num_columns == 1


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_data_frames_without_their_library(
    library: str, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error says what to install."""
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(tfrtool.UsageError, match=f"not installed; run pip install {library}"):
        getattr(tfrtool.read_table(path), f"to_{library}")()


def test_what_can_not_be_read(path: Path) -> None:
    """Damage is raised, or given to who takes it; unknown columns are usage errors."""
    with pytest.raises(tfrtool.UsageError, match="name"):
        tfrtool.read_table(path, columns=["nam"])
    flip_bit(path, 20)
    with pytest.raises(tfrtool.CorruptShardError) as caught:
        tfrtool.read_table(path, columns="all").to_arrow()
    assert (caught.value.record, caught.value.offset) == (0, 0)
    faults: list[LocatedFault] = []
    assert tfrtool.read_table(path, columns="all", on_fault=faults.append).to_arrow().num_rows == 99
    assert [one.fault.record for one in faults] == [0]
