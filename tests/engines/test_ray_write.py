"""A write on a cluster makes the dataset that one machine makes, whatever dies."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

import tfrtool
from tests.engines.running import Nodes
from tests.photos import image_bytes, write_class_folders
from tfrtool.storage.progress import Progress

pytest.importorskip("ray")
pytestmark = [pytest.mark.tf, pytest.mark.slow, pytest.mark.usefixtures("cluster")]


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return images of two classes: one is a copy, one is no JPEG, one is no image."""
    source = write_class_folders(tmp_path_factory.mktemp("write") / "photos", count=60)
    (source / "cat" / "bad.jpg").write_bytes(b"no image")
    (source / "cat" / "png.jpg").write_bytes(image_bytes("PNG"))
    (source / "dog" / "copy.jpg").write_bytes((source / "cat" / "cat.1.jpg").read_bytes())
    return source


def files_of(folder: Path) -> dict[str, bytes]:
    """Return the files of a dataset; of its report what doesn't tell of the time or the place."""
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    report = json.loads(files.pop("write_report.json"))
    kept = {key: value for key, value in report.items() if key not in ("seconds", "dataset")}
    return files | {"report": json.dumps(kept).encode()}


WRITES: dict[str, dict[str, Any]] = {
    "by number": {"shards": 5},
    "by size, in splits": {
        "splits": {"train": 0.8, "test": 0.2},
        "shard_size": "32KB",
        "dedupe": True,
    },
}


@pytest.mark.parametrize("words", WRITES.values(), ids=WRITES)
def test_the_same_dataset(
    words: dict[str, Any], photos: Path, nodes: Nodes, tmp_path: Path
) -> None:
    """All files are the same, to the byte, and so is what the report tells of each image."""
    there, here = tmp_path / "there" / "made", tmp_path / "here" / "made"
    found = tfrtool.write(photos, there, engine="ray", engine_address=nodes.address, **words)
    assert found.rejected
    tfrtool.write(photos, here, workers=1, **words)
    assert files_of(there) == files_of(here)


def test_a_worker_that_dies(photos: Path, nodes: Nodes, tmp_path: Path) -> None:
    """One that dies while it looks at images, and another one in the midst of a shard."""
    there, here = tmp_path / "there" / "made", tmp_path / "here" / "made"
    words: dict[str, Any] = {"shards": 12, "dedupe": True}
    killed = []

    def kill(progress: Progress) -> None:
        if progress.what not in killed and (workers := nodes.workers):
            killed.append(progress.what)
            os.kill(workers[0], signal.SIGKILL)

    where = {"engine": "ray", "engine_address": nodes.address}
    tfrtool.write(photos, there, on_progress=kill, **words | where)
    assert "writing" in killed
    tfrtool.write(photos, here, workers=1, **words)
    assert files_of(there) == files_of(here)
