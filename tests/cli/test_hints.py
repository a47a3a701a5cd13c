"""What an error tells to do is done: it is accepted, and it helps."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tfrtool
from tests.cli.hint_rows import ALL, Row
from tests.cli.hint_world import write_world
from tests.cli.inspecting import Capture
from tests.datasets import flip_bit
from tests.more import more
from tfrtool.cli import main

pytestmark = pytest.mark.skipif(os.name != "posix", reason="hints are run by a shell")


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory, quick_cnn: None) -> Iterator[Path]:  # noqa: ARG001
    """Return a folder with all that goes wrong; whatever replaces a file makes a new one."""
    root = tmp_path_factory.mktemp("template")
    write_world(root)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        assert do("tfrtool train pets --model cnn --image-size 32 --epochs 1 --out run") == 0
    before = _contents(root)
    yield root
    assert _contents(root) == before


def _contents(root: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


def _link(source: str, target: str) -> None:
    """Make a file by a link, which is quick; locks must be files of their own."""
    (shutil.copy2 if "lock" in source else os.link)(source, target)


@pytest.fixture
def world(
    request: pytest.FixtureRequest,
    template: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Path:
    """Return a copy of that folder, which is the current directory."""
    world = tmp_path / "world"
    is_round = "circle" in request.node.name
    without = None if is_round else shutil.ignore_patterns("circle")  # hundreds of links
    shutil.copytree(template, world, symlinks=True, copy_function=_link, ignore=without)
    os.mkfifo(world / "pipe")
    monkeypatch.chdir(world)
    return world


def do(command: str) -> int:
    """Run a command of the tool in this process, and any other in a shell."""
    if re.match(r"tfrtool ([^|<>&']|'[^']*')*$", command):
        return main(shlex.split(command)[1:])
    tool = f"{shlex.quote(sys.executable)} -m tfrtool"
    return subprocess.run(
        re.sub(r"\btfrtool\b", tool, command), shell=True, check=False, capture_output=True
    ).returncode


def _or_more(row: Row) -> Any:
    """Return a row; of those that train, the gate has the one that resumes a run."""
    trains = any(re.match("tfrtool train (?!nosuch)", then) for then, _ in row.follow)
    return more(row) if trains and "--resume" not in row.hint else row


@pytest.mark.tf
@pytest.mark.usefixtures("quick_graphs")
@pytest.mark.parametrize("row", [*map(_or_more, ALL)], ids=lambda row: row.command[:60])
@pytest.mark.usefixtures("world")
def test_hint(
    row: Row,
    capsys: Capture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The error ends with the hint; what it says is accepted, and does what was wanted."""
    monkeypatch.setattr("tfrtool.storage.limits.FREE_UNPACKED_BYTES", 100_000)
    assert not any(map(do, row.before))
    capsys.readouterr()
    assert main(shlex.split(row.command)) == row.code
    (line,) = (line for line in capsys.readouterr().err.splitlines() if "error: " in line)
    assert f"; {row.hint}" in line or line.endswith(row.hint)
    for then, ends in row.follow:
        assert do(then) == ends, (then, capsys.readouterr().err)


@pytest.mark.tf
@pytest.mark.usefixtures("quick_graphs")
def test_a_record_that_was_damaged_meanwhile(world: Path) -> None:
    """The command in the hint of random access is run."""
    shutil.copy(world / "a.tfrecord", world / "own.tfrecord")
    records = tfrtool.open_records("own.tfrecord")
    flip_bit(world / "own.tfrecord", 40)
    with pytest.raises(tfrtool.CorruptShardError) as caught:
        records[0]
    records.close()
    assert caught.value.hint is not None
    command = re.search("tfrtool verify .*(?= to list)", caught.value.hint)
    assert command is not None
    assert do(command[0]) == 3


@pytest.mark.tf
@pytest.mark.usefixtures("quick_graphs")
@pytest.mark.usefixtures("world")
def test_a_dataset_of_several_splits() -> None:
    """What the hint says is an argument that helps."""
    with pytest.raises(tfrtool.UsageError) as caught:
        tfrtool.open_records("pets")
    assert caught.value.hint is not None
    match = re.search(r"split='(\w+)'", caught.value.hint)
    assert match is not None
    assert len(tfrtool.open_records("pets", split=match[1])) > 0


@pytest.mark.tf
@pytest.mark.usefixtures("quick_graphs")
def test_no_place_for_a_cache(tmp_path: Path) -> None:
    """XDG_CACHE_HOME is one."""
    from tfrtool.loading.cache import cache_directory

    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("XDG_CACHE_HOME", raising=False)
        patch.setattr(Path, "home", lambda: (_ for _ in ()).throw(RuntimeError))
        with pytest.raises(tfrtool.UsageError, match="XDG_CACHE_HOME"):
            cache_directory()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path))
        assert cache_directory().is_relative_to(tmp_path)


@pytest.mark.parametrize(
    "words",
    [
        "--weights none",
        "--weights model.keras",
        "--model cnn",
        "--rescale unit",
        "--model mobilenet_v2 --trainable head",
        "--recipe tfrtool",
        "--cache disk",
        "--cache none",
        "--cache auto --image-size 96",
    ],
)
def test_what_training_is_told_to_do_is_accepted(words: str, capsys: Capture) -> None:
    """Hints that need a model or a machine of their own: nothing but the dataset is amiss then."""
    assert do(f"tfrtool train nosuch {words}") == 1
    assert "no such directory" in capsys.readouterr().err


@pytest.mark.tf
@pytest.mark.more  # tests/training/test_models.py has a smaller model
@pytest.mark.usefixtures("quick_graphs")
def test_layers_that_a_model_lists_are_accepted() -> None:
    """The name of a layer that its summary shows is one that --trainable takes."""
    from tfrtool.training.models import build_classifier

    with pytest.raises(tfrtool.UsageError, match=r"model.summary\(\)"):
        build_classifier("mobilenet_v2", 32, 2, "none", "nosuch")
    base = build_classifier("mobilenet_v2", 32, 2, "none", "block_16_project").core.layers[1]
    shown: list[str] = []
    base.summary(print_fn=lambda line, **_: shown.append(line), line_length=200)
    assert "block_16_project" in "".join(shown)
