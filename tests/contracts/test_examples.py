"""The examples in the documentation run, in order from top to bottom of a page.

In README, landing page, quickstart and how-to pages, every command runs. In all other pages, Python
and the commands with output run.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.contracts.executed_pages import if_changed
from tests.doc_examples import REPOSITORY, blocks_of, run_command, run_page
from tests.emulators import Bucket, set_environment
from tests.training.small_base import small_cnn
from tfrtool.cli import main

PAGES = sorted(
    path.relative_to(REPOSITORY).as_posix() for path in REPOSITORY.glob("docs/how-to/*.md")
)
CLUSTER, STORE = "docs/how-to/cluster.md", "docs/how-to/object-storage.md"
COURSE = "docs/how-to/course.md"
SEVERAL_MACHINES = "docs/how-to/several-machines.md"  # whose script tests/engines runs
LOCAL = [page for page in PAGES if page not in (CLUSTER, STORE, COURSE, SEVERAL_MACHINES)]
FIRST = ("README.md", "docs/index.md", "docs/quickstart.md")
OTHERS = sorted(
    path
    for file in REPOSITORY.glob("docs/**/*.md")
    if (path := file.relative_to(REPOSITORY).as_posix()) not in (*FIRST, *PAGES)
    and path != "docs/completion.md"  # whose console is a shell's
    and any(block.language in ("console", "python") for block in blocks_of(path))
)
MADE_UP = {
    "tfrtool inspect shard train.tfrecord": "tfrtool inspect shard fixtures/golden/plain.tfrecord",
    " data/": " mine/",
    "photos/ shards/photos": "fixtures/pets shards/photos",
    # Without a network there are no ImageNet weights.
    "tfrtool train shards/photos --out model": "tfrtool train shards/photos --model cnn "
    "--image-size 32 --epochs 1 --out first-run",
    "tfrtool train shards/pets --out run": "tfrtool train shards/pets --model cnn "
    "--image-size 32 --epochs 1 --out run",
}
"""Names of a reader's files in the first pages, and what replaces them here."""
SMALLER = {
    "--image-size 64 --batch-size 16": "--image-size 32 --batch-size 16",
    "cnn at 64 px, 230,050": "cnn at 32 px, 131,746",
    "--epochs 12": "--epochs 4",
    "(epoch 12)": "(epoch 4)",
    "   12  ...": "    4  ...",
    "12 epochs in": "4 epochs in",
}
"""Changes to the run in README and quickstart: a quarter of the pixels, and fewer epochs."""

pytestmark = pytest.mark.tf


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the fixtures, the dataset of the README, and a model for it."""
    folder = tmp_path_factory.mktemp("written")
    (folder / "fixtures").symlink_to(REPOSITORY / "fixtures")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        splits = ["--split", "train=0.8", "--split", "validation=0.2", "--shards", "4"]
        assert main(["write", "fixtures/pets", "shards/pets", *splits]) == 3
        model = ["--model", "cnn", "--image-size", "32", "--epochs", "5", "--batch-size", "16"]
        model += ["--learning-rate", "0.001"]
        with small_cnn():
            assert main(["train", "shards/pets", *model, "--out", "run"]) == 0
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


@pytest.fixture
def small() -> Iterator[None]:
    """Replace the cnn, which the first pages train, with a small one."""
    with small_cnn():
        yield


def test_there_are_twenty_how_to_pages() -> None:
    """There are twenty how-to pages, and each shows commands."""
    assert len(PAGES) == 20
    for page in PAGES:
        assert any(block.language in ("sh", "console") for block in blocks_of(page)), page


@pytest.mark.slow
@pytest.mark.usefixtures("small", "quick_graphs")
@pytest.mark.filterwarnings("ignore")  # other libraries' own
@pytest.mark.parametrize("page", [if_changed(page) for page in LOCAL])
def test_commands_run(page: str, here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The commands of a page work, and print what the page shows."""
    shutil.rmtree(here / "run")
    assert run_page(page, capfd) >= 3


@pytest.mark.slow
@pytest.mark.usefixtures("quick_graphs")
@pytest.mark.parametrize("page", [if_changed(page) for page in FIRST])
def test_first_pages_run(
    page: str,
    request: pytest.FixtureRequest,
    written: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """The first pages run, too, with only the fixtures to begin with."""
    if page != "docs/quickstart.md":  # which shows the parameters of the real cnn
        request.getfixturevalue("small")
    (tmp_path / "fixtures").symlink_to(REPOSITORY / "fixtures")
    (tmp_path / "mine").symlink_to(written / "shards" / "pets")
    monkeypatch.chdir(tmp_path)
    assert run_page(page, capfd, MADE_UP | SMALLER) >= 5


@pytest.mark.usefixtures("small", "quick_graphs")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("page", [if_changed(page) for page in OTHERS])
def test_examples_of_other_pages_run(
    page: str, here: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Python examples run, and commands print the output that is shown."""
    if page == "docs/commands/write.md":  # where it begins
        shutil.rmtree(here / "shards")
    assert run_page(page, capfd, sh=False) >= 1


@pytest.mark.slow
@pytest.mark.usefixtures("quick_graphs")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("page", [if_changed(COURSE)])
def test_course_runs(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The published cells and the commands next to them run, and give the same."""
    (tmp_path / "fixtures").symlink_to(REPOSITORY / "fixtures")
    monkeypatch.chdir(tmp_path)
    assert run_page(page, capfd, names={}) >= 20


@pytest.mark.several
@pytest.mark.usefixtures("quick_graphs")
@pytest.mark.filterwarnings("ignore")
def test_notebook_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The cells of the notebook run one after the other, as in Jupyter."""
    (tmp_path / "fixtures").symlink_to(REPOSITORY / "fixtures")
    monkeypatch.chdir(tmp_path)
    notebook = json.loads((REPOSITORY / COURSE).with_suffix(".ipynb").read_text("utf-8"))
    names: dict[str, Any] = {"__name__": "__main__"}
    for number, cell in enumerate(notebook["cells"]):
        source = "".join(cell["source"])
        if cell["cell_type"] == "code" and source.startswith("!"):
            for line in source.splitlines():
                run_command(line.removeprefix("!"), capfd)
        elif cell["cell_type"] == "code":
            exec(compile(source, f"<cell {number}>", "exec"), names)
    assert names["frozen"].facts.class_names == ("cat", "dog")


@pytest.mark.slow
@pytest.mark.usefixtures("here", "small", "quick_graphs")
@pytest.mark.parametrize("page", [if_changed(STORE)])
def test_commands_for_a_bucket_run(
    page: str, bucket: Bucket, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The commands for a bucket run against an emulated object store."""
    set_environment(bucket.environment, monkeypatch)
    assert run_page(page, capfd, {"s3://my-bucket": bucket.url}) >= 7
