"""The benchmark of the loader, and measurements in turn."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import tfrtool
from tests.datasets import image_payload, write_foreign
from tests.photos import image_bytes
from tfrtool import DatasetError, UsageError
from tfrtool.loading.bench import Measurement, busy_warning, measure_in_turn
from tfrtool.storage.progress import Progress

pytestmark = pytest.mark.tf

NAMES = ["naive", "notebook", "tfrtool, uncached", "tfrtool"]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a dataset of 18 JPEGs in 3 shards."""
    jpeg = image_bytes(size=(300, 200))
    shards = [[image_payload(n % 2, data=jpeg) for n in range(count)] for count in (6, 7, 5)]
    return write_foreign(tmp_path_factory.mktemp("bench"), shards)


@pytest.fixture
def in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measure where the test runs, once it is warm: starting TensorFlow again takes seconds."""
    monkeypatch.setattr(
        "tfrtool.loading.bench.in_own_process",
        lambda _path, function, task, _warm_up: function(task),
    )


@pytest.mark.usefixtures("in_process")
def test_all_pipelines_are_measured_in_turn(directory: Path) -> None:
    """Each is measured in turn, on whole shards, and has its costs."""
    reports: list[Progress] = []
    report = tfrtool.bench(
        directory, image_size=16, batch_size=4, rounds=1, limit=7, on_progress=reports.append
    )
    assert [(one.what, one.done) for one in reports] == list(zip(NAMES, range(4), strict=True))
    assert [one.pipeline for one in report.pipelines] == NAMES
    assert (report.images, report.total_images, report.shards, report.cache) == (
        13,
        18,
        2,
        "memory",
    )
    for pipeline in report.pipelines:
        for cost in (pipeline.first_epoch, pipeline.later_epochs):
            assert cost is not None
            low, high = cost["cpu_ms_range"]
            assert 0 < low <= cost["cpu_ms_per_image"] <= high
            assert cost["images_per_second"] > 0


@pytest.mark.usefixtures("in_process")
def test_what_does_not_fit_is_skipped(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A float32 cache that memory has no room for is not tried."""
    monkeypatch.setattr("tfrtool.loading.bench.available_memory", lambda: 50_000)
    report = tfrtool.bench(directory, image_size=16, rounds=1)
    skipped = {one.pipeline: one.skipped for one in report.pipelines if one.skipped}
    assert list(skipped) == ["notebook"]
    assert "float32" in (skipped["notebook"] or "")


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"epochs": 1}, "--epochs must be at least 2"),
        ({"rounds": 0}, "--rounds"),
        ({"limit": 0}, "--limit"),
        ({"split": "nope"}, "no split 'nope'"),
        ({"decode": "slow"}, "one of exact, fast"),
    ],
)
def test_wrong_use(directory: Path, options: dict[str, Any], problem: str) -> None:
    """A request without sense is an error before anything is measured."""
    with pytest.raises(UsageError, match=problem):
        tfrtool.bench(directory, **options)


def work(seconds: float) -> int:
    """Keep a core busy, and take memory; return the process."""
    end, memory = time.process_time() + seconds, bytearray(30 * 2**20)
    while time.process_time() < end:
        pass
    return os.getpid() if memory else 0


def fail() -> None:
    """Raise an error as a pipeline does."""
    raise DatasetError("no room")


def die() -> None:
    """End the process, as the system does if memory is short."""
    os.kill(os.getpid(), 9)


def test_each_task_has_a_process_of_its_own(tmp_path: Path) -> None:
    """CPU time and memory are the task's; an optional task may fail, and others may not."""
    tasks: dict[str, Callable[[], Any]] = {
        "short": partial(work, 0.0),
        "long": partial(work, 0.3),
        "none": fail,
    }
    results, errors = measure_in_turn(
        tmp_path, tasks, 1, warm_up=partial(work, 0.2), optional=["none"]
    )
    runs = results["short"] + results["long"]
    assert len({run.result for run in runs} - {os.getpid()}) == 2
    assert max(run.cpu_seconds for run in results["short"]) < 0.2
    assert 0.3 <= min(run.cpu_seconds for run in results["long"]) < 0.6
    assert all((run.memory_bytes or 0) > 25 * 2**20 for run in runs)
    assert errors == {"none": "no room"}
    with pytest.raises(DatasetError, match="killed by signal 9"):
        measure_in_turn(tmp_path, {"dead": die}, 1)


def test_a_busy_machine_is_reported() -> None:
    """Other programs on more than a tenth of the cores make wall time unreliable."""
    quiet = Measurement(result=0, seconds=1, cpu_seconds=1, memory_bytes=0, other_cores=0.01)
    busy = Measurement(result=0, seconds=1, cpu_seconds=1, memory_bytes=0, other_cores=99.0)
    assert busy_warning([quiet]) is None
    assert "up to 99.0 of" in (busy_warning([quiet, busy]) or "")
