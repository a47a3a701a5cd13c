"""Datasets of Ray Data are read from shards and written as shards, on a cluster of this machine."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

import tfrtool
from tests.datasets import flip_bit
from tests.examples.strategies import int64, string
from tfrtool.engines.ray_cluster import RayCluster
from tfrtool.examples.example import encode_example
from tfrtool.records.framing import frame

ray = pytest.importorskip("ray")
pytest.importorskip("pandas")

pytestmark = [
    pytest.mark.several,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # Ray Data's own settings
]

SHARDS, RECORDS = 3, 20


@pytest.fixture(scope="module")
def ray_data(cluster: RayCluster) -> Any:
    """Return the module, which connects to Ray when it is used."""
    with cluster:
        yield importlib.import_module("tfrtool.ray")


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    """Return a dataset of some shards."""
    folder = tmp_path / "numbers"
    folder.mkdir()
    for shard in range(SHARDS):
        payloads = [
            encode_example({"number": int64(n), "text": string(b"%d" % shard)})
            for n in range(shard * RECORDS, (shard + 1) * RECORDS)
        ]
        name = f"numbers-train.tfrecord-{shard:05}-of-{SHARDS:05}"
        (folder / name).write_bytes(b"".join(map(frame, payloads)))
    return folder


def test_round_trip(ray_data: Any, shards: Path, tmp_path: Path) -> None:
    """Rows are those of `read_table`; what was changed is written, all together or not at all."""
    rows = ray_data.read(shards)
    assert rows.sort("number").take_all() == tfrtool.read_table(shards).to_arrow().to_pylist()
    report = ray_data.write(
        rows.map(lambda row: {**row, "double": 2 * row["number"]}), tmp_path / "doubles"
    )
    written = tfrtool.read_table(tmp_path / "doubles").to_pandas().sort_values("number")
    assert [*written["double"]] == [2 * n for n in range(SHARDS * RECORDS)]
    assert [*written["text"]] == [str(n // RECORDS) for n in range(SHARDS * RECORDS)]
    assert report.job.records_out == SHARDS * RECORDS
    assert tfrtool.verify(tmp_path / "doubles").is_sound
    assert sorted(path.name for path in tmp_path.iterdir()) == ["doubles", "numbers"]
    with pytest.raises(tfrtool.UsageError, match="not empty"):
        ray_data.write(rows, tmp_path / "doubles")
    ray_data.write(rows.limit(5), tmp_path / "doubles", existing="overwrite")
    assert len(tfrtool.read_table(tmp_path / "doubles").to_arrow()) == 5


def test_columns_and_damage(ray_data: Any, shards: Path) -> None:
    """Only the columns asked for are read; a damaged record is an error that names the shard."""
    assert ray_data.read(shards, columns=["text"]).schema().names == ["text"]
    with pytest.raises(tfrtool.UsageError, match="no column"):
        ray_data.read(shards, columns=["texts"])
    damaged = shards / f"numbers-train.tfrecord-00001-of-{SHARDS:05}"
    flip_bit(damaged, 20)
    assert ray_data.read(shards, on_fault="skip").count() == SHARDS * RECORDS - 1
    with pytest.raises(Exception, match=damaged.name):
        ray_data.read(shards).materialize()


def test_a_store_needs_a_folder_for_staging(ray_data: Any, shards: Path) -> None:
    """Nodes can't write to a temporary folder of this machine."""
    with pytest.raises(tfrtool.UsageError, match="requires a folder for staging"):
        ray_data.write(ray_data.read(shards), "s3://bucket/numbers")
