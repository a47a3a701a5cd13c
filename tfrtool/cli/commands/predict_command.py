"""``tfrtool predict``."""

import sys
from collections.abc import Iterable
from contextlib import nullcontext
from typing import Any

import click

from tfrtool.cli.output import Bars, Outcome, emit, warn
from tfrtool.cli.parameters import INPUT, LOCAL_INPUT, command
from tfrtool.cli.process import stdout_closed
from tfrtool.errors import SourceError, named_record, printable
from tfrtool.storage.progress import activity, no_progress
from tfrtool.training.evaluate_options import PredictOptions
from tfrtool.training.train_options import check_backend

_WIDEST_PATH, _WIDEST_LABEL, _WIDEST_NAME = 60, 30, 20
"""Columns; a longer text shifts only the rest of its own line."""


@command(
    "tfrtool predict run photo.jpg",
    "tfrtool predict run/model.keras photos 'more/**/*.jpg' --top 3",
    "tfrtool predict run 'shards/test*.tfrec'",
    options=PredictOptions,
)
@click.argument("model", type=LOCAL_INPUT)
@click.argument("images", nargs=-1, required=True, type=INPUT)
def predict_command(model: str, images: tuple[str, ...], as_json: bool, **words: Any) -> Outcome:
    """Classify images with a model saved by tfrtool train.

    MODEL is a model.keras file, the directory that tfrtool train --out wrote, or a .keras file of
    your own with --labels. IMAGES are files, directories, quoted globs and URLs, or shards. Prints
    each image with its class and probability.

    Exit code 3 means that some images can't be read, and 1 that none can.
    """
    from tfrtool.training.prediction import find_images

    check_backend()
    files = find_images(images)
    with Bars() as bars:
        with bars.loading_tensorflow():
            from tfrtool.loading.tensors import start_devices
            from tfrtool.training.own_model_file import load_any_model
            from tfrtool.training.prediction import predict_files
            from tfrtool.training.tasks import TASKS

            start_devices()
        bars(activity("loading the model"))
        saved = load_any_model(model, PredictOptions(**words))
    # All paths and class names are known before the first prediction.
    paths = (f"{file.path}:9999" if file.is_shard else file.path for file in files)
    path = _width(paths, _WIDEST_PATH)
    label = _width(saved.facts.class_names, _WIDEST_LABEL)
    readable = unreadable = 0
    # On a terminal, the lines themselves show the progress.
    with nullcontext(no_progress) if sys.stdout.isatty() else Bars() as progress:
        for found in predict_files(saved, files, PredictOptions(**words, on_progress=progress)):
            location = found.path
            if found.record is not None:
                location = named_record(location, found.record)
            readable += found.problem is None
            if found.problem is not None:
                unreadable += 1
                warn(f"{printable(location)}: {printable(found.problem)}")
            if as_json:
                emit(found.to_json())
            elif found.problem is None:
                cells = [f"{printable(location):{path}}"]
                if found.name is not None:
                    cells.append(f"{printable(found.name):{_WIDEST_NAME}}")
                cells += TASKS[found.task].prediction_cells(found, label)
                emit("  ".join(cells))
            if stdout_closed():
                break
    if not readable:
        raise SourceError("none of the images can be read")
    return Outcome.DAMAGE if unreadable else Outcome.FINE


def _width(texts: Iterable[str], most: int) -> int:
    return min(max((len(printable(text)) for text in texts), default=0), most)
