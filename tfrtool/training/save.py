"""Saving a run: the model, its history as numbers and as a picture, and its labels."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tfrtool.errors import UsageError, WriteError, os_reason
from tfrtool.images.chart import Series, draw_charts
from tfrtool.training.checkpoint import CHECKPOINT
from tfrtool.training.files import TEMPORARY, replace_file
from tfrtool.training.report import TrainReport
from tfrtool.training.saved_model import MODEL_FILE, ModelFacts, save_model

__all__ = ["check_out", "save_run"]


def check_out(out: Path, *, resume: bool) -> None:
    """Make the directory for a run, before any time is spent on training.

    Args:
        out: the directory.
        resume: whether a run that is there is gone on with.

    Raises:
        UsageError: it holds a model already, or the checkpoint of another run.
        WriteError: it can't be made.
    """
    begun = (out / CHECKPOINT).exists()
    if begun and not resume:
        raise UsageError(
            "holds a run already", path=out, hint="--resume goes on with it; or choose another"
        )
    if not begun and (out / MODEL_FILE).exists():
        raise UsageError(
            "holds a model already, and no checkpoint of its run",
            path=out,
            hint="choose another directory",
        )
    try:
        out.mkdir(parents=True, exist_ok=True)
        probe = out / f"{TEMPORARY}probe"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise WriteError(f"can't be written to: {os_reason(error)}", path=out) from error


def save_run(out: Path, core: Any, report: TrainReport) -> None:
    """Save model.keras, history.json, history.png and labels.txt; the model comes last.

    Raises:
        WriteError: the disk is full, or fails otherwise.
    """
    plan = report.plan
    facts = ModelFacts(model=plan.model, image_size=plan.image_size, class_names=plan.class_names)
    names = "".join(f"{name}\n" for name in plan.class_names)
    try:
        replace_file(out / "history.json", lambda path: _save_history(path, report))
        replace_file(out / "history.png", lambda path: _save_chart(path, report))
        replace_file(out / "labels.txt", lambda path: path.write_text(names, "utf-8"))
        replace_file(out / MODEL_FILE, lambda path: save_model(path, core, plan.rescale, facts))
    except OSError as error:
        raise WriteError(
            f"can't be written: {os_reason(error)}", path=error.filename or out
        ) from error


def _save_history(path: Path, report: TrainReport) -> None:
    data = {
        "epochs": [epoch.to_json() for epoch in report.epochs],
        "run": report.to_json(),
    }
    path.write_text(json.dumps(data, indent=2, allow_nan=False) + "\n", "utf-8")


def _save_chart(path: Path, report: TrainReport) -> None:
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
    path.write_bytes(draw_charts(charts))
