"""Options of a cluster that are refused before it is used."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest

import tfrtool
from tests.conftest import MakeShard
from tests.examples.strategies import int64
from tests.sources.trees import WRITERS
from tfrtool.engines.ray_cluster import _pickled
from tfrtool.examples.example import encode_example
from tfrtool.sources.archives import SPOOL
from tfrtool.sources.folders.name_pattern import LabelFrom
from tfrtool.sources.open_source import open_source
from tfrtool.storage.remote_path import remote_path
from tfrtool.writing.run_options import JobSettings
from tfrtool.writing.store_staging import StoreStaging

pytest.importorskip("ray")


@pytest.fixture
def shard(make_shard: MakeShard, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a shard; no cluster is named in the environment."""
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    return make_shard([encode_example({"a": int64(1)})])


@pytest.mark.parametrize(
    ("words", "facts"),
    [
        ({"engine": "beam"}, ("--engine 'beam'", "local, ray")),
        ({"engine_address": "10.0.0.1:6379"}, ("--engine-address", "--engine ray")),
        ({"engine": "ray"}, ("--engine-address HOST:PORT", "RAY_ADDRESS")),
        ({"engine": "ray", "engine_address": "here"}, ("'here'", "HOST:PORT")),
        (
            {"engine": "ray", "engine_address": "ray://10.0.0.1:10001"},
            ("'ray://10.0.0.1:10001'", "HOST:PORT"),
        ),
        ({"engine": "ray", "workers": 0}, ("--workers", "got 0")),
    ],
)
def test_words_that_make_no_sense(
    shard: Path, tmp_path: Path, words: dict[str, Any], facts: tuple[str, str]
) -> None:
    """A request that can't be met is refused before anything is done, by verbs and by jobs."""
    with pytest.raises(tfrtool.UsageError) as caught:
        tfrtool.verify(shard, **words)
    assert all(fact in str(caught.value) for fact in facts)
    if "workers" in words:
        return
    with pytest.raises(tfrtool.UsageError) as caught:
        tfrtool.reshard(shard, tmp_path / "out", **words)
    assert all(fact in str(caught.value) for fact in facts)
    assert not (tmp_path / "out").exists()


def test_nobody_answers(shard: Path) -> None:
    """An address where nothing listens is an error at once, where Ray would try for minutes."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
    with pytest.raises(tfrtool.ClusterError) as caught:
        tfrtool.verify(shard, engine="ray", engine_address=address)
    assert caught.value.path == address
    assert "connection refused" in caught.value.what


def test_a_write_to_a_store_needs_no_folder_of_this_machine(tmp_path: Path) -> None:
    """What nodes get of it names no local folder, which they would be asked for."""
    root = remote_path("s3://bucket/pets")
    settings = JobSettings(folder=root, name="pets", version="1.0.0")
    staging = StoreStaging(settings, root, tmp_path)
    assert _pickled(tmp_path, Path.exists)[1] == [str(tmp_path)]
    data, asked, _ = _pickled(staging, Path.exists)
    assert asked == []
    assert str(tmp_path).encode() not in data


def test_nodes_are_asked_for_what_was_unpacked(tmp_path: Path) -> None:
    """A node that can't reach it says so, and doesn't call each image unreadable."""
    (tmp_path / "scratch").mkdir()
    packed = WRITERS["tar.gz"](tmp_path / "it.tar.gz", {"cat/1.jpg": b"x"})
    found = open_source(str(packed), LabelFrom.FOLDER, tmp_path / "scratch")
    assert found.reader.read(found.items[0]) == b"x"
    assert _pickled(found.reader, Path.exists)[1] == [str(tmp_path / "scratch" / SPOOL)]
