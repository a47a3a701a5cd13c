"""Saving a run: the model, its history as numbers and as a picture, and its labels."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from tfrtool.errors import UsageError, WriteError, os_reason
from tfrtool.images.chart import Series, draw_charts
from tfrtool.storage.appearing import new_file, new_file_by_name
from tfrtool.storage.lock import locked
from tfrtool.training.models.saved_model import MODEL_FILE, ModelFacts, save_model
from tfrtool.training.run.checkpoint import CHECKPOINT
from tfrtool.training.run.train_report import TrainReport

__all__ = ["run_directory", "save_run"]


@contextmanager
def run_directory(out: Path, *, resume: bool) -> Iterator[None]:
    """Make the directory for a run, before any time is spent on training, and hold its lock.

    Args:
        out: the directory.
        resume: whether a run that is there is gone on with.

    Raises:
        UsageError: it holds a model already, or the checkpoint of another run; or another run is
            at work in it.
        WriteError: it can't be made, or not be written to.
    """
    with ExitStack() as stack:
        try:
            out.mkdir(parents=True, exist_ok=True)
            stack.enter_context(locked(out, "train"))
        except OSError as error:
            raise WriteError(
                f"can't be written to: {os_reason(error)}", path=error.filename or out
            ) from error
        begun = os.path.lexists(out / CHECKPOINT)
        if begun and not resume:
            raise UsageError(
                "holds a run already", path=out, hint="--resume goes on with it; or choose another"
            )
        if not begun and os.path.lexists(out / MODEL_FILE):
            raise UsageError(
                "holds a model already, and no checkpoint of its run",
                path=out,
                hint="choose another directory",
            )
        yield


def save_run(out: Path, core: Any, report: TrainReport) -> None:
    """Save model.keras, history.json, history.png and labels.txt; the model comes last.

    Raises:
        WriteError: the disk is full, or fails otherwise.
    """
    plan = report.plan
    facts = ModelFacts(model=plan.model, image_size=plan.image_size, class_names=plan.class_names)
    names = "".join(f"{name}\n" for name in plan.class_names)
    try:
        for name, data in {
            "history.json": _history(report).encode("ascii"),
            "history.png": _chart(report),
            "labels.txt": names.encode(),
        }.items():
            with new_file(out / name) as file:
                file.write(data)
        with new_file_by_name(out / MODEL_FILE) as path:
            save_model(path, core, plan.rescale, facts)
    except OSError as error:
        raise WriteError(
            f"can't be written: {os_reason(error)}", path=error.filename or out
        ) from error


def _history(report: TrainReport) -> str:
    data = {
        "epochs": [epoch.to_json() for epoch in report.epochs],
        "run": report.to_json(),
    }
    return json.dumps(data, indent=2, allow_nan=False) + "\n"


def _chart(report: TrainReport) -> bytes:
    epochs = report.epochs
    charts = [
        (
            "loss",
            [
                Series(name="training", values=tuple(epoch.loss for epoch in epochs)),
                Series(name="validation", values=tuple(epoch.val_loss for epoch in epochs)),
            ],
        ),
        (
            "accuracy",
            [
                Series(name="training", values=tuple(epoch.accuracy for epoch in epochs)),
                Series(name="validation", values=tuple(epoch.val_accuracy for epoch in epochs)),
            ],
        ),
    ]
    return draw_charts(charts)
