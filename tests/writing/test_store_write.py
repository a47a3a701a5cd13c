"""Datasets written to stores: what readers see of them at every moment, and what is left."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import tfrtool
from tests.emulators import Bucket
from tests.photos import write_class_folders
from tests.stored import PREFIX, local_digests, stored_digests

pytestmark = pytest.mark.tf

OPTIONS: dict[str, Any] = {"splits": {"train": 0.7, "test": 0.3}, "shards": 3}
FILES = 10
"""Of such a dataset: six shards and the metadata."""


@pytest.fixture(scope="session")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a source of images."""
    return write_class_folders(tmp_path_factory.mktemp("photos") / "photos", count=20)


@pytest.fixture(scope="session")
def whole(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return the digests of the files of a local write."""
    folder = tmp_path_factory.mktemp("whole") / "cats" / "1.0.0"
    tfrtool.write(photos, folder, **OPTIONS)
    return local_digests(folder)


@pytest.fixture
def url(bucket: Bucket) -> str:
    """Return where a dataset may be written."""
    return f"{bucket.url}/{PREFIX}"


def test_the_objects_are_the_files(bucket: Bucket, photos: Path, whole: dict[str, str]) -> None:
    """A fresh dataset is what it would be on a disk, to the byte, and nothing else is left."""
    report = tfrtool.write(photos, f"{bucket.url}/{PREFIX}", **OPTIONS)
    assert stored_digests(bucket) == whole
    assert len(whole) == FILES
    assert str(report.dataset) == f"{bucket.url}/{PREFIX}"


def test_a_dry_run_writes_nothing(bucket: Bucket, url: str, photos: Path) -> None:
    """Not even a claim."""
    assert tfrtool.write(photos, url, dry_run=True, **OPTIONS).dry_run
    assert bucket.names() == []
