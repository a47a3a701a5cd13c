"""``tfrtool extract``."""

from typing import Any

import click

from tfrtool.cli.output import Outcome, emit
from tfrtool.cli.parameters import OUTPUT, SHARDS, command, resolve_shards
from tfrtool.inspection.extract.extract_options import ExtractOptions


@command(
    "tfrtool extract shards/pets photos",
    "tfrtool extract 'data/*.tfrecord*' masks --feature image/mask --flat",
    "tfrtool extract street street-voc --annotations voc",
    options=ExtractOptions,
)
@SHARDS
@click.argument("directory", type=OUTPUT, metavar="TARGET")
def extract_command(
    shards: tuple[str, ...], directory: str, as_json: bool, **choices: Any
) -> Outcome:
    """Extract images from TFRecord files, byte for byte.

    SHARDS are files, quoted globs and directories. TARGET must be empty or new; it gets a folder
    per class, with files named as in the records. TARGET.jsonl gets the other features, one line
    per record.

    Exit code 3 means that a record was damaged or had nothing to extract, or that objects couldn't
    be exported unchanged.
    """
    from tfrtool.cli.bars import Bars
    from tfrtool.cli.render.extract_text import extract_page
    from tfrtool.inspection.extract.extract import extract

    with Bars() as bars:
        report = extract(resolve_shards(shards), directory, **choices, on_progress=bars)
    emit(report.to_json() if as_json else extract_page(report))
    return Outcome.FINE if report.complete else Outcome.DAMAGE
