"""The how-to page about clusters: its commands run on a cluster of this machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.doc_examples import REPOSITORY, run_page
from tests.engines.running import Nodes


@pytest.mark.tf
@pytest.mark.filterwarnings("ignore")  # of Ray Data's own settings, and of small nodes
@pytest.mark.several  # TensorFlow is loaded by each process of the cluster
def test_commands_run(
    nodes: Nodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Commands and Python of the page end well, with the cluster's address for the page's."""
    (tmp_path / "fixtures").symlink_to(REPOSITORY / "fixtures")
    (tmp_path / "shared").mkdir()
    monkeypatch.chdir(tmp_path)
    replaced = {"10.0.0.1:6379": nodes.address, "/mnt/shared": str(tmp_path / "shared")}
    assert run_page("docs/how-to/cluster.md", capfd, replaced) == 4
