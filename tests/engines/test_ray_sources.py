"""Sources that nodes of a cluster list, held against one machine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.emulators import Bucket, Misbehaviour
from tests.engines.running import running_nodes
from tfrtool.engines.processes import map_shards
from tfrtool.engines.ray_cluster import RayCluster
from tfrtool.errors import SourceError
from tfrtool.sources.folders import store_listing
from tfrtool.sources.folders.class_layout import LabelFrom
from tfrtool.sources.open_source import open_source

pytest.importorskip("ray")


@pytest.mark.several
@pytest.mark.usefixtures("hurry")
def test_a_bucket(bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each folder of a bucket is listed by a node; items and errors are those of one machine."""
    for number in range(200):
        bucket.put(f"it/train/{number % 20} %/{number}.jpg", b"x" * number)
    found: list[Any] = []
    tasks: list[Any] = []
    monkeypatch.setattr(store_listing, "_PAGE", 8)
    with running_nodes(2) as nodes:
        for name, value in {**nodes.environment, "HOME": str(tmp_path)}.items():
            monkeypatch.setenv(name, value)
        with RayCluster(nodes.address) as cluster:

            def spread(function: Any, given: Sequence[Any]) -> Iterator[Any]:
                tasks.extend(given)
                return map_shards(function, given, cluster)

            for where in (None, spread):
                it = open_source(f"{bucket.url}/it", LabelFrom.FOLDER, tmp_path, spread=where)
                assert [item.bytes for item in it.items if item.key.endswith("/7.jpg")] == [7]
                found.append(([*it.items], it.labels, it.splits, it.ignored))
            assert found[0] == found[1]
            assert len(tasks) == 20
            told = []
            bucket.misbehave(Misbehaviour(matching="list-type=2.*%25", status=403))
            for where in (None, spread):
                with pytest.raises(SourceError) as error:
                    open_source(f"{bucket.url}/it", LabelFrom.FOLDER, tmp_path, spread=where)
                told.append(str(error.value))
            assert told[0] == told[1]
