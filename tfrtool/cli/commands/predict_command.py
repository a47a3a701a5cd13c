"""``tfrtool predict``."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from tfrtool.cli.native_stderr import starting_tensorflow
from tfrtool.cli.outcome import Outcome
from tfrtool.cli.output import emit, emit_json, warn
from tfrtool.cli.parameters import INPUT
from tfrtool.cli.process import nobody_reads
from tfrtool.cli.shared_options import debug_option, json_option
from tfrtool.errors import SourceError, printable

__all__ = ["predict_command"]


@click.command(
    name="predict",
    epilog="\b\nExamples:\n"
    "  tfrtool predict run photo.jpg\n"
    "  tfrtool predict run/model.keras photos 'more/**/*.jpg' --top 3",
)
@click.argument("model", type=INPUT)
@click.argument("images", nargs=-1, required=True, type=INPUT)
@click.option(
    "--top",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    metavar="K",
    help="How many classes to tell of each image, the most probable first.",
)
@click.option(
    "--batch-size",
    type=click.IntRange(min=1),
    default=32,
    show_default=True,
    metavar="N",
    help="Images that go through the model at a time.",
)
@json_option
@debug_option
def predict_command(
    model: str, images: tuple[str, ...], top: int, batch_size: int, as_json: bool
) -> Outcome:
    """Tell what images show, by a model that tfrtool train saved.

    MODEL: a model.keras, or the directory that train --out made; nothing else is needed. IMAGES:
    files, directories and quoted patterns. Prints each image with the label and its probability.
    Exit code 3 means that some images can't be read, 1 that none can.
    """
    from tfrtool.cli.bars import Bars
    from tfrtool.cli.render.predict_text import line_of
    from tfrtool.training.predict.prediction import PredictOptions, Unreadable, find_images

    options = PredictOptions(top=top, batch_size=batch_size)
    found = find_images(images)
    with starting_tensorflow():
        from tfrtool.loading.pipeline.devices import find_devices
        from tfrtool.training.models.saved_model import load_saved
        from tfrtool.training.predict.predict import predict

        find_devices()
    saved = load_saved(Path(model))
    line = line_of(found, saved.facts.class_names)
    unreadable = 0
    with Bars(unit="image") as bars:
        for done, result in enumerate(predict(saved, found, options), 1):
            if isinstance(result, Unreadable):
                unreadable += 1
                warn(f"{printable(result.path)}: {printable(result.reason)}")
            elif as_json:
                emit_json(result.to_json())
            else:
                emit(line(result))
            if not sys.stdout.isatty():  # there, the lines themselves show how far it is
                bars.show("predict", done, len(found))
            if nobody_reads():
                break
    if unreadable == len(found):
        raise SourceError("none of the images can be read", found=f"{unreadable:,} that can't")
    return Outcome.DAMAGE if unreadable else Outcome.FINE
