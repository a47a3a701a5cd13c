"""A cluster of two nodes on this machine, for the whole session."""

from __future__ import annotations

import importlib
from collections.abc import Iterator

import pytest

from tests.engines.running import Nodes, running_nodes
from tfrtool.engines.ray_cluster import RayCluster


@pytest.fixture(scope="session")
def started() -> Iterator[Nodes]:
    """Start the nodes; each test session has its own."""
    pytest.importorskip("ray")
    with running_nodes() as nodes:
        yield nodes


@pytest.fixture(scope="module")
def nodes(started: Nodes) -> Iterator[Nodes]:
    """Return the cluster; who connects to it has its token, and a home of its own."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in started.environment.items():
            patch.setenv(name, value)
        (started.folder / "driver").mkdir(exist_ok=True)
        patch.setenv("HOME", str(started.folder / "driver"))
        patch.delenv("RAY_ADDRESS", raising=False)
        # A program sets the variables before it imports Ray.
        raylet = importlib.import_module("ray._raylet")
        raylet.Config.initialize("")
        raylet.AuthenticationTokenLoader.instance().reset_cache()
        yield started


@pytest.fixture(scope="module")
def cluster(nodes: Nodes) -> Iterator[RayCluster]:
    """Return an engine that is connected; what connects after it takes part in that."""
    with RayCluster(nodes.address) as engine:
        yield engine
