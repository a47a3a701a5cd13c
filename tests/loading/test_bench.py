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
from tfrtool.loading.bench import bench as bench_module
from tfrtool.loading.bench.bench import BenchProgress, bench
from tfrtool.loading.bench.bench_options import BenchOptions
from tfrtool.loading.bench.bench_process import Killed, measure_apart, measure_here
from tfrtool.loading.bench.bench_report import StageReport
from tfrtool.loading.bench.bench_tasks import (
    BenchStage,
    EpochTiming,
    PartsRun,
    PartsTask,
    StageRun,
    StageTask,
    Timing,
)
from tfrtool.loading.dataset.dataset import Dataset, open_dataset
from tfrtool.loading.pipeline.load_options import Cache, LoadOptions

SIZE = 32
RECORDS = (6, 7, 5)


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
    monkeypatch.setattr(bench_module, "measure_apart", measure_here)


def _made_up(task: StageTask | PartsTask) -> StageRun | PartsRun:
    """Stand in for a measurement, where only what becomes of it is tested."""
    images = task.dataset.split("train").records
    if isinstance(task, PartsTask):
        parts = (1e-4, 1e-4, 1e-3, 1e-4)
        return PartsRun(
            reading=parts[0],
            parsing=parts[1],
            decoding=parts[2],
            resizing=parts[3],
            raw=None,
            cold=None,
            images=images,
        )
    timing = Timing(seconds=0.5, cpu=0.6, system=0.1)
    epoch = EpochTiming(whole=timing, first_batch=0.1, ending=0.0, idle=None)
    return StageRun(images=images, labels=8, epochs=(epoch,) * task.epochs, memory=1000)


def _load(**changes: Any) -> LoadOptions:
    return LoadOptions(image_size=SIZE, batch_size=4, **changes)


def _options(directory: Path, **changes: Any) -> BenchOptions:
    chosen = {"image_size": SIZE, "batch_size": 4, "rounds": 1, **changes}
    return BenchOptions(dataset=directory, **chosen)


def _quiet(_progress: BenchProgress) -> None:
    pass


def test_each_stage_adds_one_thing() -> None:
    """The published stages are cumulative, from the naive pipeline to the notebooks'."""
    names = ("interleave", "parallel map", "cache", "prefetch")
    stages = list(BenchStage)[:-1]
    assert [stage.published for stage in stages] == [names[:count] for count in range(5)]


@pytest.mark.parametrize("stage", BenchStage)
def test_stage_goes_through_all_images(dataset: Dataset, stage: BenchStage) -> None:
    """Each stage loads every image once an epoch; its times fit into one another."""
    task = StageTask(dataset=dataset, options=_load(cache=Cache.MEMORY), stage=stage, epochs=3)
    run = measure_here(task)
    assert isinstance(run, StageRun)
    assert (run.images, run.labels, len(run.epochs)) == (18, 8, 3)
    for epoch in run.epochs:
        assert 0 < epoch.first_batch <= epoch.whole.seconds
        assert 0 <= epoch.ending < epoch.whole.seconds
        assert 0 <= epoch.whole.system <= epoch.whole.cpu + 0.02  # counted in hundredths
        assert epoch.idle is None or epoch.idle > -0.5


@pytest.mark.parametrize("stage", [BenchStage.CACHE, BenchStage.TFRTOOL])
def test_later_epochs_come_from_the_cache(tmp_path: Path, stage: BenchStage) -> None:
    """A later epoch of a cached stage decodes nothing, as a first or a naive one does."""
    jpeg = image_bytes(size=(3000, 2000))
    large = open_dataset(write_foreign(tmp_path, [[image_payload(0, data=jpeg)] * 50]))

    def cpu(stage: BenchStage) -> list[float]:
        options = _load(cache=Cache.MEMORY)
        run = measure_here(StageTask(dataset=large, options=options, stage=stage, epochs=2))
        assert isinstance(run, StageRun)
        return [epoch.whole.cpu for epoch in run.epochs]

    first, later = cpu(stage)
    assert later < first / 2
    assert later < cpu(BenchStage.NAIVE)[1] / 2


def test_parts_tell_decoding_from_the_rest(tmp_path: Path) -> None:
    """Of large JPEGs decoding costs most; from raw pixels of the right size little is left."""
    jpeg = image_bytes(size=(3000, 2000))
    large = open_dataset(write_foreign(tmp_path, [[image_payload(1, data=jpeg)] * 6]))
    parts = measure_here(PartsTask(dataset=large, options=_load(), images=20, rounds=2))
    assert isinstance(parts, PartsRun)
    assert parts.images == 24
    assert parts.decoding > 2 * parts.resizing
    assert parts.decoding > 3 * (parts.reading + parts.parsing)
    assert parts.whole == pytest.approx(
        parts.reading + parts.parsing + parts.decoding + parts.resizing
    )
    assert parts.raw is not None
    assert parts.raw < parts.whole / 4
    assert parts.cold is None or parts.cold > 0


def test_parts_measure_as_many_images_as_asked(dataset: Dataset) -> None:
    """A few images of a large dataset are enough to tell its parts; raw pixels are copied once."""
    parts = measure_here(PartsTask(dataset=dataset, options=_load(), images=7, rounds=1))
    assert isinstance(parts, PartsRun)
    assert parts.images == 7


@pytest.mark.usefixtures("in_this_process")
def test_report(directory: Path) -> None:
    """All stages are measured as often as asked, in turn; the report sums them up."""
    seen: list[BenchProgress] = []
    report = bench(_options(directory, rounds=2, limit=6), seen.append)
    names = [stage.value for stage in BenchStage]
    assert [progress.what for progress in seen] == ["pieces", *names, *names]
    assert [(progress.done, progress.total) for progress in seen] == [(n, 13) for n in range(13)]
    assert [stage.stage for stage in report.stages] == list(BenchStage)
    assert (report.images, report.total_images, report.shards) == (6, 18, 1)
    assert report.cache == "memory"
    for stage in report.stages:
        assert stage.first is not None
        assert stage.later is not None
        rate = stage.first.images_per_second
        assert rate.least <= rate.median <= rate.most
        assert rate.most == pytest.approx(6 / stage.first.seconds.least)
    naive = report.speedup(BenchStage.NAIVE)
    assert naive is not None
    assert min(naive) > 0
    assert report.speedup(BenchStage.TFRTOOL) == (1, 1)


def test_first_and_later_epochs_are_told_apart() -> None:
    """The first epochs of all rounds are summed up, and so are all others."""

    def run(*seconds: float) -> StageRun:
        epochs = tuple(
            EpochTiming(
                whole=Timing(seconds=value, cpu=2 * value, system=value / 2),
                first_batch=value / 10,
                ending=value / 20,
                idle=None,
            )
            for value in seconds
        )
        return StageRun(images=100, labels=8, epochs=epochs, memory=round(seconds[0]))

    report = StageReport.of(BenchStage.CACHE, [run(10, 1, 2), run(30, 3, 2), run(20, 4, 5)])
    assert report.first is not None
    assert report.later is not None
    first, later = report.first.seconds, report.later.seconds
    assert (first.median, first.least, first.most) == (20, 10, 30)
    assert (later.median, later.least, later.most) == (2.5, 1, 5)
    assert report.first.images_per_second.median == pytest.approx(5)
    assert report.first.cpu_ms.median == pytest.approx(400)
    assert report.first.system_ms.median == pytest.approx(100)
    assert report.first.first_batch.median == pytest.approx(2)
    assert report.first.ending.median == pytest.approx(1)
    assert report.memory == 20


@pytest.mark.parametrize(("limit", "shards"), [(1, 1), (6, 1), (7, 2), (14, 3), (1000, 3)])
def test_limit_takes_whole_shards(
    directory: Path, monkeypatch: pytest.MonkeyPatch, limit: int, shards: int
) -> None:
    """As many shards are read as it takes to have enough images; the report tells of the rest."""
    monkeypatch.setattr(bench_module, "measure_apart", _made_up)
    report = bench(_options(directory, limit=limit), _quiet)
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
    monkeypatch.setattr(bench_module, "available_memory", lambda: free)
    monkeypatch.setattr(bench_module, "measure_apart", _made_up)
    report = bench(_options(directory), _quiet)
    reasons = [stage.left_out for stage in report.stages if stage.left_out is not None]
    assert len(reasons) == left_out
    assert all("float32 cache" in reason for reason in reasons)
    assert report.cache == cache
    assert (report.speedup(BenchStage.PREFETCH) is None) == (left_out == 2)
    assert report.speedup(BenchStage.NAIVE) is not None


def _measure(change: Callable[[StageRun], StageRun], stage: BenchStage) -> Callable[..., Any]:
    def measure(task: StageTask | PartsTask) -> StageRun | PartsRun:
        result = _made_up(task)
        if isinstance(task, StageTask) and task.stage is stage and isinstance(result, StageRun):
            return change(result)
        return result

    return measure


@pytest.mark.parametrize("wrong", [{"labels": 7}, {"images": 17}])
def test_pipelines_must_agree(
    directory: Path, monkeypatch: pytest.MonkeyPatch, wrong: dict[str, Any]
) -> None:
    """Numbers of pipelines that don't load the same images are not compared."""
    measure = _measure(lambda run: replace(run, **wrong), BenchStage.CACHE)
    monkeypatch.setattr(bench_module, "measure_apart", measure)
    with pytest.raises(DatasetError, match="same images"):
        bench(_options(directory), _quiet)


def test_killed_stage_is_left_out(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stage that the system ends is not tried again, the others are; without ours all fails."""

    def kill(_run: StageRun) -> StageRun:
        raise Killed("ended by signal 9")

    seen: list[str] = []
    monkeypatch.setattr(bench_module, "measure_apart", _measure(kill, BenchStage.CACHE))
    report = bench(_options(directory, rounds=2), lambda progress: seen.append(progress.what))
    assert seen.count("cache") == 1
    assert seen.count("prefetch") == 2
    assert report.stage(BenchStage.CACHE).left_out == "it was ended by signal 9"
    assert report.stage(BenchStage.PREFETCH).first is not None
    monkeypatch.setattr(bench_module, "measure_apart", _measure(kill, BenchStage.TFRTOOL))
    with pytest.raises(DatasetError, match="signal 9"):
        bench(_options(directory), _quiet)


def test_process_of_its_own_tells_the_memory(dataset: Dataset) -> None:
    """A measurement in a process of its own knows what the float32 cache takes, at least."""
    options = LoadOptions(image_size=512, batch_size=4)
    run = measure_apart(
        StageTask(dataset=dataset, options=options, stage=BenchStage.CACHE, epochs=2)
    )
    assert (run.images, run.labels) == (18, 8)
    cache = 18 * 512 * 512 * 3 * 4
    assert cache < run.memory < 6 * cache


def test_damaged_record_is_an_error(directory: Path, tmp_path: Path) -> None:
    """What TensorFlow says of a record that it can't read comes out of the process."""
    path = tmp_path / "part-00000-of-00001.tfrecord"
    path.write_bytes(min(directory.iterdir()).read_bytes())
    opened = open_dataset(tmp_path)
    flip_bit(path, path.stat().st_size - 40)  # in the last record, before its CRC
    task = StageTask(dataset=opened, options=_load(), stage=BenchStage.NAIVE, epochs=2)
    with pytest.raises(DatasetError, match="corrupted record") as caught:
        measure_apart(task)
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
    task = StageTask(dataset=dataset, options=_load(), stage=BenchStage.NAIVE, epochs=2)
    with pytest.raises(error, match=says):
        measure_apart(task)


def _refuse(_task: StageTask | PartsTask) -> None:
    raise UsageError("no such thing", expected="another")


def test_errors_come_out_of_the_process_as_they_are(
    dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error of ours in a measuring process is raised again, with its exit code and facts."""
    monkeypatch.setattr("tfrtool.loading.bench.bench_process.measure_here", _refuse)
    task = StageTask(dataset=dataset, options=_load(), stage=BenchStage.NAIVE, epochs=2)
    with pytest.raises(UsageError, match="no such thing: expected another"):
        measure_apart(task)


@pytest.mark.parametrize(
    "wrong",
    [{"epochs": 1}, {"rounds": 0}, {"limit": 0}, {"image_size": 0}, {"batch_size": 0}],
)
def test_impossible_options(directory: Path, wrong: dict[str, int]) -> None:
    """Options without sense are refused before anything is measured; a later epoch must be."""
    with pytest.raises(UsageError, match="impossible"):
        _options(directory, **wrong)


def test_split_must_be_there(directory: Path) -> None:
    """A split that the dataset has not is a wrong request."""
    with pytest.raises(UsageError, match="no split 'nope'"):
        bench(_options(directory, split="nope"), _quiet)


def test_the_process_that_asks_does_without_tensorflow() -> None:
    """Only processes that measure load TensorFlow: what asks takes none of their memory."""
    code = "import sys, tfrtool.loading.bench.bench; sys.exit('tensorflow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
