"""The benchmark of the loader, and measurements in turn."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tfrtool import DatasetError
from tfrtool.loading.bench import Measurement, busy_warning, measure_in_turn

pytestmark = pytest.mark.tf

NAMES = ["naive", "notebook", "tfrtool, uncached", "tfrtool"]


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


@pytest.mark.more
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
    short, long = (min(run.cpu_seconds for run in results[name]) for name in ("short", "long"))
    assert short < 0.3 <= long
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
