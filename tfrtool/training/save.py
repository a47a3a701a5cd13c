"""Saving a run: the model, its history as numbers and as a picture, and its labels."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from tfrtool.errors import UsageError, WriteError, os_reason
from tfrtool.images.chart import Series, draw_charts
from tfrtool.loading.options import Rescale
from tfrtool.training.models import whole_model
from tfrtool.training.report import TrainReport

__all__ = ["check_out", "save_run"]

_MODEL = "model.keras"
_TEMPORARY = ".incomplete-"


def check_out(out: Path) -> None:
    """Make the directory for a run, before any time is spent on training.

    Raises:
        UsageError: it holds a model already.
        WriteError: it can't be made.
    """
    if (out / _MODEL).exists():
        raise UsageError("holds a model already", path=out, hint="choose another directory")
    try:
        out.mkdir(parents=True, exist_ok=True)
        probe = out / f"{_TEMPORARY}probe"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise WriteError(f"can't be written to: {os_reason(error)}", path=out) from error


def save_run(out: Path, core: Any, image_size: int, rescale: Rescale, report: TrainReport) -> None:
    """Save model.keras, history.json, history.png and labels.txt; the model comes last.

    Raises:
        WriteError: the disk is full, or fails otherwise.
    """
    try:
        _replace(out / "history.json", lambda path: _save_history(path, report))
        _replace(out / "history.png", lambda path: _save_chart(path, report))
        names = "".join(f"{name}\n" for name in report.plan.class_names)
        _replace(out / "labels.txt", lambda path: path.write_text(names, "utf-8"))
        _replace(out / _MODEL, lambda path: whole_model(core, image_size, rescale).save(path))
    except OSError as error:
        raise WriteError(
            f"can't be written: {os_reason(error)}", path=error.filename or out
        ) from error


def _replace(path: Path, write: Any) -> None:
    """Write a file under a temporary name first."""
    temporary = path.with_name(f"{_TEMPORARY}{path.name}")
    try:
        write(temporary)
        os.replace(temporary, path)  # noqa: PTH105
    finally:
        temporary.unlink(missing_ok=True)


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
