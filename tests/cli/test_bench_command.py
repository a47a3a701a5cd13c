"""`tfrtool bench`, as a user calls it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.datasets import write_pets
from tfrtool.cli import main
from tfrtool.loading.bench import StageRun
from tfrtool.loading.dataset import Dataset

pytestmark = [pytest.mark.tf, pytest.mark.usefixtures("quick_graphs")]

FAST = ["--image-size", "32", "--batch-size", "8", "--rounds", "1"]
STAGES = [
    "naive",
    "interleave",
    "parallel map",
    "cache",
    "prefetch",
    "uncached",
    "tfrtool, uncached",
    "tfrtool",
]


@pytest.fixture(scope="module")
def pets(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return a dataset of 14 images to train on and 6 to validate on, in two shards each."""
    return str(write_pets(tmp_path_factory.mktemp("data")))


@pytest.fixture
def made_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let numbers stand for measurements, where only what is shown of them is tested."""

    def measure(work: str, dataset: Dataset, *task: Any) -> Any:
        if work == "measure_parts":
            return {"reading": 0.1, "parsing": 0.1, "decoding": 1.0, "resizing": 0.1}, None, 1e5
        epoch = {"images_per_second": 1234.0, "cpu_ms_per_image": 1.5}
        images = dataset.split("train").records
        return StageRun(images=images, labels=8, epochs=(epoch,) * task[2], memory=2**20)

    monkeypatch.setattr("tfrtool.loading.bench.measure", measure)


def test_json_is_an_object_a_stage_and_a_verdict(
    pets: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """--json prints the stages in order, then what limits the loader; nothing else is on stdout."""
    from tfrtool.loading import bench, bench_measure

    # Measuring where the test runs saves starting TensorFlow again.
    monkeypatch.setattr(bench, "measure", lambda work, *task: getattr(bench_measure, work)(*task))
    monkeypatch.setattr(bench_measure, "_PARTS_IMAGES", 12)
    assert main(["bench", pets, *FAST, "--split", "validation", "--json"]) == 0
    *stages, last = map(json.loads, capfd.readouterr().out.splitlines())
    assert [stage["stage"] for stage in stages] == STAGES
    for stage in stages:
        sizes = {"memory_bytes", "cache_bytes"}
        assert stage.keys() == {"stage", "first_epoch", "later_epochs", "skipped", *sizes}
        assert stage["skipped"] is None
        for epoch in (stage["first_epoch"], stage["later_epochs"]):
            assert epoch.keys() - {"other_cores"} == {"images_per_second", "cpu_ms_per_image"}
            assert min(epoch["images_per_second"], epoch["cpu_ms_per_image"]) > 0
            assert epoch.get("other_cores", 0) >= 0
    assert last["images"] == 6
    assert last["bottleneck"]
    assert last["sentence"].endswith(".")
    assert last["parts_cpu_ms_per_image"].keys() == {"reading", "parsing", "decoding", "resizing"}


@pytest.mark.usefixtures("made_up")
def test_text_is_a_table_and_a_sentence(pets: str, capfd: pytest.CaptureFixture[str]) -> None:
    """People read a line a stage, and what the bottleneck is."""
    assert main(["bench", pets, *FAST, "--limit", "1"]) == 0
    out = capfd.readouterr().out
    assert "Loading 7 of 14 images from 1 shard at 32 px; cache: memory\n" in out
    lines = [line.strip() for line in out.splitlines()]
    starts = [line.split("  ")[0] for line in lines]
    for stage in ("naive", "+ interleave", "+ parallel map", "+ cache", "+ prefetch", "tfrtool"):
        assert stage in starts
    assert sum(" the bottleneck" in line for line in lines) == 1
    assert max(map(len, out.splitlines())) <= 100


@pytest.mark.usefixtures("made_up")
def test_stage_that_is_skipped_is_said(
    pets: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where memory is short the published cache is not tried: exit code 3, and a reason."""
    monkeypatch.setattr("tfrtool.loading.bench.available_memory", lambda: 50_000)
    assert main(["bench", pets, *FAST, "--json"]) == 3
    *stages, _ = map(json.loads, capfd.readouterr().out.splitlines())
    skipped = {stage["stage"]: stage["skipped"] for stage in stages if stage["skipped"]}
    assert skipped.keys() == {"cache", "prefetch"}
    assert main(["bench", pets, *FAST]) == 3
    out = capfd.readouterr().out
    assert "+ cache: its float32 cache" in out


@pytest.mark.parametrize(
    "arguments",
    [["--epochs", "1"], ["--rounds", "0"], ["--split", "nope"], ["--image-size", "0"]],
)
def test_wrong_use(pets: str, arguments: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    """A request without sense is exit code 2, and one line on stderr."""
    assert main(["bench", pets, *arguments]) == 2
    output = capfd.readouterr()
    assert output.out == ""
    assert len(output.err.splitlines()) == 1


def test_no_dataset(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A directory that is not there is exit code 1, and is named."""
    assert main(["bench", str(tmp_path / "none")]) == 1
    assert str(tmp_path / "none") in capfd.readouterr().err
