"""The directory of a run: its lock, and the model, history, chart and labels in the end."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from tfrtool.errors import UsageError, WriteError, os_reason
from tfrtool.images.chart import draw_charts
from tfrtool.storage.appearing import new_file, new_file_by_name
from tfrtool.storage.lock import locked
from tfrtool.training.models.saved_model import MODEL_FILE, ModelFacts, save_model
from tfrtool.training.run.checkpoints import has_checkpoint
from tfrtool.training.run.train_report import TrainReport


@contextmanager
def run_directory(out: Path, *, resume: bool) -> Iterator[None]:
    """Make the directory for a run, before any time is spent on training, and hold its lock.

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
        begun = has_checkpoint(out)
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
    """Save model.keras, history.json, history.png and labels.txt; the model comes last."""
    plan, epochs = report.plan, report.epochs
    history = {"epochs": [epoch.to_json() for epoch in epochs], "run": report.to_json()}
    charts = {
        name: {
            "training": [getattr(one, name) for one in epochs],
            "validation": [getattr(one, f"val_{name}") for one in epochs],
        }
        for name in ("loss", "accuracy")
    }
    files = {
        "history.json": f"{json.dumps(history, indent=2, allow_nan=False)}\n".encode("ascii"),
        "history.png": draw_charts(charts),
        "labels.txt": "".join(f"{name}\n" for name in plan.class_names).encode(),
    }
    facts = ModelFacts(model=plan.model, image_size=plan.image_size, class_names=plan.class_names)
    try:
        for name, data in files.items():
            with new_file(out / name) as file:
                file.write(data)
        with new_file_by_name(out / MODEL_FILE) as path:
            save_model(path, core, plan.rescale, facts)
    except OSError as error:
        raise WriteError(
            f"can't be written: {os_reason(error)}", path=error.filename or out
        ) from error
