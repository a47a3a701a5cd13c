"""`tfrtool bench`, as a user calls it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.datasets import write_pets
from tfrtool.cli import main

pytestmark = [pytest.mark.tf, pytest.mark.usefixtures("quick_graphs", "in_process")]

FAST = ["--image-size", "32", "--batch-size", "8", "--rounds", "1"]


@pytest.fixture(scope="module")
def pets(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return a dataset of 14 images to train on and 6 to validate on, in two shards each."""
    return str(write_pets(tmp_path_factory.mktemp("data")))


@pytest.fixture
def in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measure where the test runs: starting TensorFlow again takes seconds."""
    monkeypatch.setattr(
        "tfrtool.loading.bench.in_own_process",
        lambda _path, function, *task, **_progress: function(*task),
    )


@pytest.mark.more
def test_text_and_json(
    pets: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Text has a line per pipeline; --json has an object per pipeline and one for the rest.

    If memory is short, the notebook's cache is not tried: exit code 3, and a reason.
    """
    with monkeypatch.context() as patch:
        patch.setattr("tfrtool.loading.bench.available_memory", lambda: 60_000)
        assert main(["bench", pets, *FAST, "--limit", "1"]) == 3
    out = capfd.readouterr().out
    assert "skipped notebook: the cache does not fit" in out
    assert "Loading 7 of 14 images from 1 shard at 32 px; cache: memory\n" in out
    starts = [line.strip().split("  ")[0] for line in out.splitlines()]
    for name in ("naive", "tfrtool, uncached", "tfrtool"):
        assert name in starts
    assert main(["bench", pets, *FAST, "--split", "validation", "--json"]) == 0
    *pipelines, last = map(json.loads, capfd.readouterr().out.splitlines())
    assert [one["pipeline"] for one in pipelines][::3] == ["naive", "tfrtool"]
    for one in pipelines:
        for epoch in (one["first_epoch"], one["later_epochs"]):
            assert epoch.keys() == {"cpu_ms_per_image", "cpu_ms_range", "images_per_second"}
    assert (last["images"], last["cache"]) == (6, "memory")


@pytest.mark.parametrize(
    "arguments",
    [
        ["--epochs", "1"],
        ["--rounds", "0"],
        ["--limit", "0"],
        ["--split", "nope"],
        ["--image-size", "0"],
        ["--decode", "slow"],
    ],
)
def test_wrong_use(pets: str, arguments: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    """An invalid request is exit code 2, and one line on stderr."""
    assert main(["bench", pets, *arguments]) == 2
    output = capfd.readouterr()
    assert output.out == ""
    assert len(output.err.splitlines()) == 1


def test_no_dataset(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A directory that is not there is exit code 1, and is named."""
    assert main(["bench", str(tmp_path / "none")]) == 1
    assert str(tmp_path / "none") in capfd.readouterr().err
