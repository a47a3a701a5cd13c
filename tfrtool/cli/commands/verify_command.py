"""``tfrtool verify``."""

from typing import Any

import click

from tfrtool.cli.bars import Bars
from tfrtool.cli.output import Outcome, emit
from tfrtool.cli.parameters import ENGINE, STREAMED, WORKERS, command, standard_input
from tfrtool.errors import ShardError


@command(
    "tfrtool verify data/cats_vs_dogs/4.0.1",
    "tfrtool verify 'data/train-*.tfrecord' --workers 8",
    "tfrtool verify data/cats_vs_dogs/4.0.1 --images --json",
    options={"--images": "Decode every image, and find duplicates.", **WORKERS, **ENGINE},
)
@click.argument("shards", nargs=-1, required=True, type=STREAMED, metavar="SHARDS|DATASET")
def verify_command(shards: tuple[str, ...], images: bool, as_json: bool, **words: Any) -> Outcome:
    """Check every record, and whether all files are there.

    Of each shard: the CRCs of all lengths and payloads, truncation, trailing bytes, and that every
    record parses. Of a directory, or of several files: missing, extra and duplicate shards, and
    counts in dataset_info.json. With --images: that every image decodes, and which are there more
    than once. A fault comes with its likely cause. TensorFlow's "corrupted record at N" is the one
    at offset N, or, where its payload is damaged, at N - 12. SHARDS may be -, standard input.

    Exit code 3 means that a fault was found. The same image in two splits or under two labels is
    one; within one split and label it is only told.
    """
    from tfrtool.cli.render.verify_text import verify_page
    from tfrtool.inspection.verify.verify import verify

    source = standard_input() if shards == ("-",) else shards
    with Bars() as bars:
        report = verify(source, images=images, on_progress=bars, **words)
    for verdict in report.shards if as_json else ():
        emit(verdict.to_json())
    emit(report.to_json() if as_json else verify_page(report))
    if report.unreadable:
        first = report.unreadable[0]
        raise ShardError(first.error or "", path=first.path)
    return Outcome.FINE if report.is_sound else Outcome.DAMAGE
