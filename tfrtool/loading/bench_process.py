"""Measurements in processes of their own: what one leaves behind would change the next.

``python -m tfrtool.loading.bench_process TASK RESULT`` is such a process: it reads a pickled task
from one file, and writes what came of it to the other.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import cast, overload

from tfrtool.errors import DatasetError, TfrtoolError
from tfrtool.loading.bench_tasks import PartsRun, PartsTask, StageRun, StageTask

__all__ = ["Killed", "measure_apart", "measure_here"]


class Killed(Exception):  # noqa: N818 - it is no error of ours, but what became of a process
    """The system ended a measuring process; mostly it was out of memory."""


@overload
def measure_apart(task: StageTask) -> StageRun: ...
@overload
def measure_apart(task: PartsTask) -> PartsRun: ...
def measure_apart(task: StageTask | PartsTask) -> StageRun | PartsRun:
    """Measure in a process of its own.

    Raises:
        TfrtoolError: what the measurement raised.
        DatasetError: it failed otherwise, such as for a record that TensorFlow can't read.
        Killed: the system ended the process.
    """
    with tempfile.TemporaryDirectory(prefix="tfrtool-bench-") as directory:
        given, taken = Path(directory, "task"), Path(directory, "result")
        given.write_bytes(pickle.dumps(task))
        done = subprocess.run(
            [sys.executable, "-m", __name__, str(given), str(taken)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            env=_environment(),
        )
        if done.returncode < 0:
            raise Killed(f"ended by signal {-done.returncode}")
        if done.returncode:
            lines = done.stderr.strip().splitlines()
            raise DatasetError(
                "measuring the loader failed",
                path=task.dataset.directory,
                found=lines[-1] if lines else f"exit code {done.returncode}",
            )
        result = pickle.loads(taken.read_bytes())
    if isinstance(result, TfrtoolError):
        raise result
    return cast("StageRun | PartsRun", result)


def _environment() -> dict[str, str]:
    """Return this process' environment, for one that finds the same modules, and says little."""
    paths = os.pathsep.join(path or os.curdir for path in sys.path)
    return {"TF_CPP_MIN_LOG_LEVEL": "2", **os.environ, "PYTHONPATH": paths}


def measure_here(task: StageTask | PartsTask) -> StageRun | PartsRun:
    """Measure in this process, which pays for TensorFlow's start, and for what was done before."""
    if isinstance(task, StageTask):
        from tfrtool.loading.bench_stage import measure_stage

        return measure_stage(task)
    from tfrtool.loading.bench_parts import measure_parts

    return measure_parts(task)


def _work(given: Path, taken: Path) -> None:
    result: StageRun | PartsRun | TfrtoolError
    try:
        result = measure_here(pickle.loads(given.read_bytes()))
    except TfrtoolError as error:
        result = error
    taken.write_bytes(pickle.dumps(result))


if __name__ == "__main__":
    _work(Path(sys.argv[1]), Path(sys.argv[2]))
