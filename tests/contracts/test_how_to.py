"""The how-to pages: every command in them runs, in order, in a folder with the fixtures."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.doc_examples import REPOSITORY, blocks_of, run_page
from tests.emulators import Bucket, set_environment
from tfrtool.cli import main

PAGES = sorted(
    path.relative_to(REPOSITORY).as_posix() for path in REPOSITORY.glob("docs/how-to/*.md")
)
CLUSTER, STORE = "docs/how-to/cluster.md", "docs/how-to/object-storage.md"
LOCAL = [page for page in PAGES if page not in (CLUSTER, STORE)]

pytestmark = pytest.mark.tf


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the fixtures and the dataset of the README."""
    folder = tmp_path_factory.mktemp("written")
    (folder / "fixtures").symlink_to(REPOSITORY / "fixtures")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        splits = ["--split", "train=0.8", "--split", "validation=0.2", "--shards", "4"]
        assert main(["write", "fixtures/pets", "shards/pets", *splits]) == 3
    return folder


@pytest.fixture
def here(written: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a copy of that folder, which is the current directory."""
    folder = tmp_path / "here"
    shutil.copytree(written, folder, symlinks=True)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.setenv("HF_DATASETS_OFFLINE", "1")
    return folder


def test_there_are_ten() -> None:
    """A page for each of the tasks that people come with, and each shows commands."""
    assert len(PAGES) == 10
    for page in PAGES:
        assert any(block.language in ("sh", "console") for block in blocks_of(page)), page


@pytest.mark.slow
@pytest.mark.usefixtures("here", "quick_cnn", "quick_graphs")
@pytest.mark.filterwarnings("ignore")  # other libraries' own
@pytest.mark.parametrize("page", LOCAL)
def test_commands_run(page: str, capfd: pytest.CaptureFixture[str]) -> None:
    """What a reader copies from the page works, and prints what the page shows."""
    assert run_page(page, capfd) >= 3


@pytest.mark.slow
@pytest.mark.usefixtures("here", "quick_cnn", "quick_graphs")
def test_commands_for_a_bucket_run(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The same with an object store in place of the page's bucket."""
    set_environment(bucket.environment, monkeypatch)
    assert run_page(STORE, capfd, {"s3://my-bucket": bucket.url}) >= 7
