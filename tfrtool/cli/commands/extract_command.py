"""``tfrtool extract``."""

from typing import Any

import click

from tfrtool.cli.output import Outcome, emit
from tfrtool.cli.parameters import OUTPUT, SHARDS, command, shards_of


@command(
    "tfrtool extract shards/pets photos",
    "tfrtool extract 'data/*.tfrecord*' masks --feature image/mask --flat",
    "tfrtool extract street street-voc --annotations voc",
    options={
        "--feature NAME": "The string feature to extract; the default is the image.",
        "--by FEATURE": "The feature that names the class folder; the default is the label.",
        "--name FEATURE": "The feature that names the files; image/filename or its like, if there "
        "is one.",
        "--flat": "No class folders: put every file into DIR itself.",
        "--limit N": "Extract the first N records only.",
        "--annotations coco|voc|yolo": "Also write the objects in the images, as files of that "
        "format; images go where it has them.",
        "--overwrite": "Replace what an earlier extract wrote to DIR.",
    },
)
@SHARDS
@click.argument("directory", type=OUTPUT, metavar="TARGET")
def extract_command(
    shards: tuple[str, ...], directory: str, as_json: bool, **choices: Any
) -> Outcome:
    """Take the images back out of TFRecord files, byte for byte.

    SHARDS: files, quoted globs and directories. DIR must be empty or not there yet; it gets class
    folders. Names come from the records, and stay inside DIR whatever those say. DIR.jsonl gets the
    other features, a line for each record. Exit code 3 means that records were damaged or had
    nothing to take out, or that objects could not be written as they are.
    """
    from tfrtool.cli.bars import Bars
    from tfrtool.cli.render.extract_text import extract_page
    from tfrtool.inspection.extract.extract import extract

    with Bars() as bars:
        report = extract(shards_of(shards), directory, **choices, on_progress=bars)
    emit(report.to_json() if as_json else extract_page(report))
    return Outcome.FINE if report.complete else Outcome.DAMAGE
