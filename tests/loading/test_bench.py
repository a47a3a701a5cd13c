"""The benchmark of the loader, on small datasets; most of it without processes of its own."""

from __future__ import annotations

import stat
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.datasets import flip_bit, image_payload, write_foreign
from tests.photos import image_bytes
from tfrtool.errors import DatasetError, UsageError
from tfrtool.loading.bench.bench import Killed, bench, measure_apart, parts_of, stage_of
from tfrtool.loading.bench.bench_report import (
    STAGES,
    BenchReport,
    PartsRun,
    StageReport,
    StageRun,
    medians,
)
from tfrtool.loading.dataset.dataset import Dataset, open_dataset
from tfrtool.loading.pipeline import recipes
from tfrtool.loading.pipeline.load_options import Cache, LoadOptions
from tfrtool.storage.progress import Progress

pytestmark = pytest.mark.tf

SIZE = 32
RECORDS = (6, 7, 5)
MODULE = "tfrtool.loading.bench.bench"


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a dataset of 18 JPEGs in 3 shards; half of its labels are 1."""
    jpeg = image_bytes(size=(300, 200))
    shards = [[image_payload(n % 2, data=jpeg) for n in range(count)] for count in RECORDS]
    return write_foreign(tmp_path_factory.mktemp("bench"), shards)


@pytest.fixture(scope="module")
def dataset(directory: Path) -> Dataset:
    """Return it opened."""
    return open_dataset(directory)


@pytest.fixture
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let measurements run where the test does, which saves starting TensorFlow again."""
    monkeypatch.setattr(f"{MODULE}.measure_apart", lambda measure, *task: measure(*task))


Measure = Callable[..., StageRun | PartsRun]


def _made_up(measure: Measure, dataset: Dataset, *task: Any) -> StageRun | PartsRun:
    """Stand in for a measurement, where only what becomes of it is tested."""
    images = dataset.split("train").records
    if measure is parts_of:
        cpu = {"reading": 0.1, "parsing": 0.1, "decoding": 1.0, "resizing": 0.1}
        return PartsRun(cpu=cpu, raw=None, cold=None, images=images)
    return StageRun(images=images, labels=8, epochs=(_epoch(images, 0.5),) * task[2], memory=1000)


def _epoch(images: int, seconds: float) -> dict[str, float]:
    return {
        "seconds": seconds,
        "images_per_second": images / seconds,
        "cpu_ms_per_image": 1.2 * seconds / images * 1e3,
        "system_ms_per_image": 0.2 * seconds / images * 1e3,
        "first_batch_seconds": seconds / 5,
        "ending_seconds": 0.0,
    }


def _load(**changes: Any) -> LoadOptions:
    return LoadOptions(image_size=SIZE, batch_size=4, **changes)


def _bench(directory: Path, **changes: Any) -> BenchReport:
    return bench(directory, **{"image_size": SIZE, "batch_size": 4, "rounds": 1, **changes})


@pytest.mark.parametrize("stage", STAGES)
def test_stage_goes_through_all_images(dataset: Dataset, stage: str) -> None:
    """Each stage loads every image once an epoch; its times fit into one another."""
    run = stage_of(dataset, _load(cache=Cache.MEMORY), stage, 3)
    assert (run.images, run.labels, len(run.epochs)) == (18, 8, 3)
    for epoch in run.epochs:
        assert 0 < epoch["first_batch_seconds"] <= epoch["seconds"]
        assert 0 <= epoch["ending_seconds"] < epoch["seconds"]
        hundredth = 10 / run.images  # in which the kernel counts, an image
        assert 0 <= epoch["system_ms_per_image"] <= epoch["cpu_ms_per_image"] + 2 * hundredth
        assert epoch.get("idle_cores", 0) > -0.5
        assert epoch["images_per_second"] == pytest.approx(18 / epoch["seconds"])


def test_each_stage_adds_one_thing(dataset: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    """The published stages are cumulative, from the naive pipeline to the notebooks'."""
    built: list[set[str]] = []
    real = recipes.load_published

    def spy(*arguments: Any) -> Any:
        built.append(set(arguments[-1]))
        return real(*arguments)

    monkeypatch.setattr("tfrtool.loading.bench.bench_measure.load_published", spy)
    for count, stage in enumerate(STAGES[:-1]):
        stage_of(dataset, _load(), stage, 2)
        assert built.pop() == set(STAGES[1 : count + 1])


@pytest.mark.parametrize("stage", ["cache", "tfrtool"])
def test_later_epochs_come_from_the_cache(tmp_path: Path, stage: str) -> None:
    """A later epoch of a cached stage decodes nothing, as a first or a naive one does."""
    jpeg = image_bytes(size=(1500, 1000))
    large = open_dataset(write_foreign(tmp_path, [[image_payload(0, data=jpeg)] * 50]))

    def cpu(stage: str) -> list[float]:
        run = stage_of(large, _load(cache=Cache.MEMORY), stage, 2)
        return [epoch["cpu_ms_per_image"] for epoch in run.epochs]

    first, later = cpu(stage)
    assert later < first / 2
    assert later < cpu("naive")[1] / 2


def test_parts_tell_decoding_from_the_rest(tmp_path: Path) -> None:
    """Of large JPEGs decoding costs most; from raw pixels of the right size little is left."""
    jpeg = image_bytes(size=(1500, 1000))
    large = open_dataset(write_foreign(tmp_path, [[image_payload(1, data=jpeg)] * 6]))
    parts = parts_of(large, _load(), 2)
    reading, parsing, decoding, resizing = parts.cpu.values()
    assert parts.images == 258
    assert decoding > 2 * resizing
    assert decoding > 3 * (reading + parsing)
    assert parts.raw is not None
    assert parts.raw < sum(parts.cpu.values()) / 4
    assert parts.cold is None or parts.cold > 0


@pytest.mark.usefixtures("in_this_process")
def test_report(directory: Path) -> None:
    """All stages are measured as often as asked, in turn; the report sums them up."""
    seen: list[Progress] = []
    report = _bench(directory, rounds=2, limit=6, on_progress=seen.append)
    assert [progress.what for progress in seen] == ["pieces", *STAGES, *STAGES]
    assert [(progress.done, progress.total) for progress in seen] == [(n, 13) for n in range(13)]
    assert tuple(stage.stage for stage in report.stages) == STAGES
    assert (report.images, report.total_images, report.shards) == (6, 18, 1)
    assert report.cache == "memory"
    for stage in report.to_json()[:-1]:
        rate = stage["first_epoch"]["images_per_second"]
        assert rate["min"] <= rate["median"] <= rate["max"]
        assert rate["max"] == pytest.approx(6 / stage["first_epoch"]["seconds"]["min"])
    naive = report.speedup("naive")
    assert naive is not None
    assert min(naive.values()) > 0
    assert report.speedup("tfrtool") == {"first_epoch": 1, "later_epochs": 1}


def test_first_and_later_epochs_are_told_apart() -> None:
    """The first epochs of all rounds are summed up, and so are all others."""

    def run(*seconds: float) -> StageRun:
        epochs = tuple(_epoch(100, value) for value in seconds)
        return StageRun(images=100, labels=8, epochs=epochs, memory=round(seconds[0]))

    report = StageReport.of("cache", [run(10, 1, 2), run(30, 3, 2), run(20, 4, 5)])
    told = report.to_json()
    assert told["first_epoch"]["seconds"] == {"median": 20, "min": 10, "max": 30}
    assert told["later_epochs"]["seconds"] == {"median": 2.5, "min": 1, "max": 5}
    assert told["first_epoch"]["idle_cores"] is None
    first = medians(report.first)
    assert first["images_per_second"] == pytest.approx(5)
    assert first["cpu_ms_per_image"] == pytest.approx(240)
    assert first["first_batch_seconds"] == pytest.approx(4)
    assert report.memory_bytes == 20


@pytest.mark.parametrize(("limit", "shards"), [(1, 1), (6, 1), (7, 2), (14, 3), (1000, 3)])
def test_limit_takes_whole_shards(
    directory: Path, monkeypatch: pytest.MonkeyPatch, limit: int, shards: int
) -> None:
    """As many shards are read as it takes to have enough images; the report tells of the rest."""
    monkeypatch.setattr(f"{MODULE}.measure_apart", _made_up)
    report = _bench(directory, limit=limit)
    assert report.shards == shards
    assert (report.images, report.total_images) == (sum(RECORDS[:shards]), sum(RECORDS))


@pytest.mark.parametrize(
    ("free", "cache", "left_out"),
    [
        (None, "none", 0),
        (4 * 18 * SIZE * SIZE * 12, "memory", 0),
        (18 * SIZE * SIZE * 12, "memory", 2),
        (18 * SIZE * SIZE * 3, "none", 2),
    ],
)
def test_caches_that_do_not_fit_are_not_tried(
    directory: Path,
    monkeypatch: pytest.MonkeyPatch,
    free: int | None,
    cache: str,
    left_out: int,
) -> None:
    """A stage that would take most of the memory is left out, and ours does without a cache."""
    monkeypatch.setattr(f"{MODULE}.available_memory", lambda: free)
    monkeypatch.setattr(f"{MODULE}.measure_apart", _made_up)
    report = _bench(directory)
    reasons = [stage.left_out for stage in report.stages if stage.left_out is not None]
    assert len(reasons) == left_out
    assert all("float32 cache" in reason for reason in reasons)
    assert report.cache == cache
    assert (report.speedup("prefetch") is None) == (left_out == 2)
    assert report.speedup("naive") is not None


def _measure(change: Callable[[StageRun], StageRun], stage: str) -> Measure:
    def measure(*task: Any) -> StageRun | PartsRun:
        result = _made_up(*task)
        return change(result) if isinstance(result, StageRun) and task[3] == stage else result

    return measure


@pytest.mark.parametrize("wrong", [{"labels": 7}, {"images": 17}])
def test_pipelines_must_agree(
    directory: Path, monkeypatch: pytest.MonkeyPatch, wrong: dict[str, Any]
) -> None:
    """Numbers of pipelines that don't load the same images are not compared."""
    measure = _measure(lambda run: replace(run, **wrong), "cache")
    monkeypatch.setattr(f"{MODULE}.measure_apart", measure)
    with pytest.raises(DatasetError, match="same images"):
        _bench(directory)


def test_killed_stage_is_left_out(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stage that the system ends is not tried again, the others are; without ours all fails."""

    def kill(_run: StageRun) -> StageRun:
        raise Killed("ended by signal 9")

    seen: list[str] = []
    monkeypatch.setattr(f"{MODULE}.measure_apart", _measure(kill, "cache"))
    report = _bench(directory, rounds=2, on_progress=lambda progress: seen.append(progress.what))
    assert seen.count("cache") == 1
    assert seen.count("prefetch") == 2
    assert report.stage("cache").left_out == "it was ended by signal 9"
    assert report.stage("prefetch").first
    monkeypatch.setattr(f"{MODULE}.measure_apart", _measure(kill, "tfrtool"))
    with pytest.raises(DatasetError, match="signal 9"):
        _bench(directory)


def test_process_of_its_own_tells_the_memory(dataset: Dataset) -> None:
    """A measurement in a process of its own knows what the float32 cache takes, at least."""
    options = LoadOptions(image_size=512, batch_size=4)
    run = measure_apart(stage_of, dataset, options, "cache", 2)
    assert (run.images, run.labels) == (18, 8)
    cache = 18 * 512 * 512 * 3 * 4
    assert cache < run.memory < 6 * cache


def test_damaged_record_is_an_error(directory: Path, tmp_path: Path) -> None:
    """What TensorFlow says of a record that it can't read comes out of the process."""
    path = tmp_path / "part-00000-of-00001.tfrecord"
    path.write_bytes(min(directory.iterdir()).read_bytes())
    opened = open_dataset(tmp_path)
    flip_bit(path, path.stat().st_size - 40)  # in the last record, before its CRC
    with pytest.raises(DatasetError, match="corrupted record") as caught:
        measure_apart(stage_of, opened, _load(), "naive", 2)
    assert caught.value.path == str(tmp_path)


@pytest.mark.skipif(sys.platform == "win32", reason="the stand-in for Python is a shell script")
@pytest.mark.parametrize(
    ("script", "error", "says"),
    [
        ("kill -9 $$", Killed, "signal 9"),
        ("echo first >&2; echo last >&2; exit 1", DatasetError, "found last"),
        ("exit 7", DatasetError, "exit code 7"),
    ],
)
def test_process_that_ends_badly(
    dataset: Dataset,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    script: str,
    error: type[Exception],
    says: str,
) -> None:
    """A process that the system ended is told from one that failed, whose last words are kept."""
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\n{script}\n")
    python.chmod(python.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setattr(sys, "executable", str(python))
    with pytest.raises(error, match=says):
        measure_apart(stage_of, dataset, _load(), "naive", 2)


def _refuse(_dataset: Dataset) -> None:
    raise UsageError("no such thing", expected="another")


def test_errors_come_out_of_the_process_as_they_are(dataset: Dataset) -> None:
    """An error of ours in a measuring process is raised again, with its exit code and facts."""
    with pytest.raises(UsageError, match="no such thing: expected another"):
        measure_apart(_refuse, dataset)


@pytest.mark.parametrize(
    "wrong",
    [{"epochs": 1}, {"rounds": 0}, {"limit": 0}, {"image_size": 0}, {"batch_size": 0}],
)
def test_impossible_options(directory: Path, wrong: dict[str, int]) -> None:
    """Options without sense are refused before anything is measured; a later epoch must be."""
    with pytest.raises(UsageError, match="impossible"):
        _bench(directory, **wrong)


def test_split_must_be_there(directory: Path) -> None:
    """A split that the dataset has not is a wrong request."""
    with pytest.raises(UsageError, match="no split 'nope'"):
        _bench(directory, split="nope")


def test_the_process_that_asks_does_without_tensorflow() -> None:
    """Only processes that measure load TensorFlow: what asks takes none of their memory."""
    code = "import sys, tfrtool.loading.bench.bench; sys.exit('tensorflow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
