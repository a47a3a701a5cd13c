"""Traces of some steps."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.training.conftest import Told
from tests.training.runs import small_options
from tfrtool import train
from tfrtool.storage.progress import Progress
from tfrtool.training.callbacks import StepTrace

pytestmark = [pytest.mark.tf, pytest.mark.usefixtures("quick_base")]


def _work(tf: Any, steps: int, folder: Path) -> list[Path]:
    """Trace steps that can be told apart in the trace."""
    trace = StepTrace(folder, steps)
    for number in range(steps):
        trace.on_train_batch_begin(number)
        with tf.profiler.experimental.Trace(f"step-{number:02d}"):
            tf.random.uniform((8, 8)).numpy()
        trace.on_train_batch_end(number)
    trace.stop()
    return sorted(folder.rglob("*.xplane.pb"))


def _traced(path: Path) -> set[str]:
    proto = pytest.importorskip("tensorflow.tsl.profiler.protobuf.xplane_pb2")
    space = proto.XSpace.FromString(path.read_bytes())
    names = {meta.name for plane in space.planes for meta in plane.event_metadata.values()}
    return {name.partition("#")[0] for name in names if name.startswith("step-")}


@pytest.mark.parametrize(("steps", "first", "last"), [(20, 2, 11), (5, 2, 4), (1, 0, 0)])
def test_some_steps_are_traced(tf: Any, tmp_path: Path, steps: int, first: int, last: int) -> None:
    """Ten steps after the first two are in the trace, or those that there are, in its place."""
    (path,) = _work(tf, steps, tmp_path)
    assert path.parent.parent == tmp_path / "plugins" / "profile"
    assert _traced(path) == {f"step-{number:02d}" for number in range(first, last + 1)}


XPROF = """
import json, sys
from xprof.convert.raw_to_tool_data import xspace_to_tool_data
for path in sys.argv[1:]:
    data, _ = xspace_to_tool_data([path], "input_pipeline_analyzer", {})
    table = json.loads(data)[1]
    columns = [column["id"] for column in table["cols"]]
    rows = ((cell["v"] for cell in row["c"]) for row in table["rows"])
    print(json.dumps([dict(zip(columns, row)) for row in rows]))
"""


def test_tensorboards_profiler_finds_the_steps(finished: Told) -> None:
    """xprof, which reads traces for TensorBoard, has step times.

    It leaves out the first and the last step of a trace, which may be cut.
    """
    pytest.importorskip("xprof", reason="xprof reads the trace")
    traces = list(finished.options["tensorboard"].rglob("*.xplane.pb"))
    assert len(traces) == 1
    # In a process of its own: it brings protobuf messages that TensorFlow has, too.
    read = subprocess.run(
        [sys.executable, "-c", XPROF, *map(str, traces)], capture_output=True, check=True, text=True
    )
    found = list(map(json.loads, read.stdout.splitlines()))
    assert len(found) == 1
    for steps in found:
        numbers = [int(step["stepnum"].removeprefix("train ")) for step in steps]
        assert numbers == sorted(set(numbers) & set(range(2, 12)))
        assert len(numbers) >= 7
        assert all(step["stepTimeMs"] > 0 for step in steps)


@pytest.mark.more
def test_a_run_that_fails_ends_its_trace(few: Path, tmp_path: Path) -> None:
    """After an error in the middle, the next run can be traced."""
    for name in ("one", "two"):
        options = small_options(few, batch_size=3, epochs=1, out=tmp_path / name, profile=True)

        def interrupt(progress: Progress) -> None:
            if progress.what == "epoch 1" and progress.done == 4:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            train(**options, on_progress=interrupt)
        assert len(list((tmp_path / name).rglob("*.xplane.pb"))) == 1
