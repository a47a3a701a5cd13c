"""What a run leaves in its directory."""

import json
import platform
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from tfrtool import __version__
from tfrtool.errors import WriteError, os_errors_as
from tfrtool.images.charts import draw_charts
from tfrtool.loading.labels import Task
from tfrtool.storage.atomic_files import new_file, new_file_by_name
from tfrtool.training.models.saved_model import MODEL_FILE, ModelFacts, save_model
from tfrtool.training.run.scores import MEAN_AVERAGE_PRECISION
from tfrtool.training.run.train_options import RUN_FILE, TrainOptions
from tfrtool.training.run.train_report import TrainReport


def save_record(options: TrainOptions) -> None:
    """Save the options of a run in its directory, with which `train` resumes it."""
    if options.out is None:
        return
    recorded = options.record()
    record = {
        "dataset": recorded.pop("dataset"),
        "options": recorded,
        "versions": {
            "tfrtool": __version__,
            "tensorflow": tf.__version__,
            "keras": keras.__version__,
            "python": platform.python_version(),
        },
    }
    _save_json(options.out / RUN_FILE, record)


def save_history(out: Path, report: TrainReport) -> None:
    """Save history.json."""
    epochs = [epoch.to_json() for epoch in report.epochs]
    _save_json(out / "history.json", {"epochs": epochs, "run": report.to_json()})


def _save_json(path: Path, value: Any) -> None:
    data = f"{json.dumps(value, indent=2, allow_nan=False)}\n".encode("ascii")
    with os_errors_as(WriteError, path, "can't be written"), new_file(path) as file:
        file.write(data)


def save_run(out: Path, core: Any, report: TrainReport) -> None:
    """Save model.keras, history.json, history.png and labels.txt; the model comes last."""
    plan = report.plan
    drawn = ["loss", "accuracy", *([MEAN_AVERAGE_PRECISION] if plan.task is Task.MULTI else [])]
    charts = {
        name.replace("_", " "): {
            "training": [getattr(one, name) for one in report.epochs],
            "validation": [getattr(one, f"val_{name}") for one in report.epochs],
        }
        for name in drawn
    }
    files = {
        "history.png": draw_charts(charts),
        "labels.txt": "".join(f"{name}\n" for name in plan.class_names).encode(),
    }
    facts = ModelFacts(
        model=plan.options.model,
        image_size=plan.image_size,
        class_names=plan.class_names,
        task=plan.task,
    )
    save_history(out, report)
    for name, data in files.items():
        path = out / name
        with os_errors_as(WriteError, path, "can't be written"), new_file(path) as file:
            file.write(data)
    path = out / MODEL_FILE
    with os_errors_as(WriteError, path, "can't be written"), new_file_by_name(path) as temporary:
        save_model(temporary, core, plan.rescale, facts)
