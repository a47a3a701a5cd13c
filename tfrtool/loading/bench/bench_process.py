"""Measurements in processes of their own: what one leaves behind would change the next."""

from __future__ import annotations

import os
import tempfile
from typing import overload

from tfrtool.errors import DatasetError, TfrtoolError
from tfrtool.loading.bench.bench_tasks import PartsRun, PartsTask, StageRun, StageTask
from tfrtool.storage.child import Child, ChildDied, ChildError

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
    environment = {"TF_CPP_MIN_LOG_LEVEL": "2", **os.environ}
    with tempfile.TemporaryFile() as errors, Child(errors, environment) as child:
        try:
            return child.call(measure_here, task)
        except ChildDied as death:
            if death.code < 0:
                raise Killed(f"ended by signal {-death.code}") from death
            errors.seek(0)
            lines = errors.read().decode("utf-8", "replace").strip().splitlines()
            found = lines[-1] if lines else f"exit code {death.code}"
        except TfrtoolError:
            raise
        except ChildError as error:  # of TensorFlow, which ends with the names of nodes
            lines = [line for line in str(error).splitlines() if "[[" not in line]
            found = lines[-1] if lines else str(error)
        except Exception as error:  # noqa: BLE001 - whatever else
            found = f"{type(error).__name__}: {error}"
    raise DatasetError("measuring the loader failed", path=task.dataset.directory, found=found)


def measure_here(task: StageTask | PartsTask) -> StageRun | PartsRun:
    """Measure in this process, which pays for TensorFlow's start, and for what was done before."""
    if isinstance(task, StageTask):
        from tfrtool.loading.bench.bench_stage import measure_stage

        return measure_stage(task)
    from tfrtool.loading.bench.bench_parts import measure_parts

    return measure_parts(task)
