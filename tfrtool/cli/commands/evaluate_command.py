"""``tfrtool evaluate``."""

from dataclasses import dataclass
from typing import Any, Literal

import click

from tfrtool.cli.bars import Bars
from tfrtool.cli.damage import warn_of_damage
from tfrtool.cli.output import Outcome, emit, warn_of_letters
from tfrtool.cli.parameters import (
    INPUT,
    LOCAL_INPUT,
    command,
    resolve_dataset,
)
from tfrtool.declare import Options, option
from tfrtool.storage.progress import activity


@dataclass(frozen=True, kw_only=True)
class _EvaluateOptions(Options):
    split: str | None = option(
        None,
        "Split to evaluate on.  [default: test, validation or the only one]",
        metavar="NAME",
        group="Dataset",
    )
    image_feature: str | None = option(
        None, "Feature with the images.  [default: detected]", metavar="NAME", group="Dataset"
    )
    label_feature: str | None = option(
        None,
        "Feature with the labels: class numbers, class names, or vectors of 0 and 1.  "
        "[default: detected]",
        metavar="NAME",
        group="Dataset",
    )
    decode_function: str | None = option(
        None,
        "Function that decodes records of other forms.",
        metavar="FILE.py:FUNCTION",
        group="Dataset",
    )
    on_error: Literal["stop", "skip"] = option(
        "stop",
        "Stop at the first damaged record, or skip damaged records and list them (exit code 3).",
        group="Dataset",
    )
    batch_size: int = option(
        32, "Number of images per batch.", metavar="N", least=1, group="Input pipeline"
    )
    shard_cache: str | None = option(
        None,
        "Local directory for shards that are downloaded from an object store.  "
        "[default: in the user cache directory]",
        metavar="DIR",
        path="local output",
        group="Input pipeline",
    )
    out: str | None = option(
        None,
        "Directory for predictions.jsonl, confusion.png, most_wrong.png and evaluation.json.",
        metavar="DIR",
        path="local output",
        group="Output",
    )
    top_losses: int = option(
        36,
        "Number of worst mistakes to show and draw: misclassified images with the highest loss.",
        metavar="N",
        least=1,
        group="Output",
    )
    overwrite: bool = option(False, "Replace the files of an earlier evaluation.", group="Output")


@command(
    "tfrtool evaluate run shards --split test",
    "tfrtool evaluate run/model.keras shards --out evaluation",
    options=_EvaluateOptions,
)
@click.argument("model", type=LOCAL_INPUT)
@click.argument("dataset", type=INPUT)
def evaluate_command(model: str, dataset: str, *, as_json: bool, **given: Any) -> Outcome:
    """Evaluate a model on a dataset and show its worst mistakes.

    MODEL is a model.keras file, or the directory that tfrtool train --out wrote. DATASET is a
    directory of shards with classes that the model knows.

    Exit code 3 means that damaged records were skipped.
    """
    path = resolve_dataset(dataset)
    with Bars() as bars:
        with bars.loading_tensorflow():
            from tfrtool.loading.tensors import start_devices
            from tfrtool.training.evaluation import evaluate

            start_devices()
        from tfrtool.cli.render.evaluation_text import evaluation_page
        from tfrtool.loading.open_dataset import open_dataset
        from tfrtool.training.saved_model import load_model

        bars(activity("loading the model"))
        saved = load_model(model)
        words = ("image_feature", "label_feature", "decode_function", "shard_cache")
        opening = {word: given.pop(word) for word in words}
        bars(activity("opening the dataset"))
        opened = open_dataset(path, given["on_error"], **opening)
        report = evaluate(saved, opened, **given, on_progress=bars)
    warn_of_damage(report.damage)
    emit(report.to_json() if as_json else evaluation_page(report, given["out"]))
    if given["out"]:
        from tfrtool.images.letters import undrawn

        warn_of_letters(undrawn(report.names))
    return Outcome.DAMAGE if report.skipped else Outcome.FINE
