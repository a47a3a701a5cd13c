"""What a run leaves in its directory."""

import json
from pathlib import Path
from typing import Any

from tfrtool.errors import WriteError, os_errors_as
from tfrtool.images.chart import draw_charts
from tfrtool.loading.dataset.label_form import Task
from tfrtool.storage.appearing import new_file, new_file_by_name
from tfrtool.training.models.saved_model import MODEL_FILE, ModelFacts, save_model
from tfrtool.training.run.scores import MEAN_AVERAGE_PRECISION
from tfrtool.training.run.train_report import TrainReport


def save_run(out: Path, core: Any, report: TrainReport) -> None:
    """Save model.keras, history.json, history.png and labels.txt; the model comes last."""
    plan, epochs = report.plan, [epoch.to_json() for epoch in report.epochs]
    drawn = ["loss", "accuracy", *([MEAN_AVERAGE_PRECISION] if plan.task is Task.MULTI else [])]
    charts = {
        name.replace("_", " "): {
            "training": [getattr(one, name) for one in report.epochs],
            "validation": [getattr(one, f"val_{name}") for one in report.epochs],
        }
        for name in drawn
    }
    history = {"epochs": epochs, "run": report.to_json()}
    files = {
        "history.json": f"{json.dumps(history, indent=2, allow_nan=False)}\n".encode("ascii"),
        "history.png": draw_charts(charts),
        "labels.txt": "".join(f"{name}\n" for name in plan.class_names).encode(),
    }
    facts = ModelFacts(
        model=plan.options.model,
        image_size=plan.image_size,
        class_names=plan.class_names,
        task=plan.task,
    )
    with os_errors_as(WriteError, out, "can't be written"):
        for name, data in files.items():
            with new_file(out / name) as file:
                file.write(data)
        with new_file_by_name(out / MODEL_FILE) as path:
            save_model(path, core, plan.rescale, facts)
