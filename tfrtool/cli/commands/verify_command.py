"""``tfrtool verify``."""

from typing import Any

import click

from tfrtool.cli.bars import Bars
from tfrtool.cli.output import Outcome, emit
from tfrtool.cli.parameters import STREAMED, command, standard_input
from tfrtool.errors import ShardError
from tfrtool.inspection.inspect_options import VerifyOptions


@command(
    "tfrtool verify data/cats_vs_dogs/4.0.1",
    "tfrtool verify 'data/train-*.tfrecord' --workers 8",
    "tfrtool verify data/cats_vs_dogs/4.0.1 --images --json",
    options=VerifyOptions,
)
@click.argument("shards", nargs=-1, required=True, type=STREAMED, metavar="SHARDS|DATASET...")
def verify_command(shards: tuple[str, ...], images: bool, as_json: bool, **words: Any) -> Outcome:
    """Check every record, and that no shard is missing.

    SHARDS are files, quoted globs and directories, or - for a shard on standard input. DATASET is
    a dataset directory. The checks:

    - CRCs of all lengths and payloads
    - truncation and trailing bytes
    - whether every record parses
    - missing, extra and duplicate shards in directories
    - the counts in dataset_info.json

    Each fault is listed with its likely cause, if there is one. TensorFlow's "corrupted record at
    N" is the fault at offset N, or at N - 12 if the payload is damaged.

    Exit code 3 means that a fault was found. With --images, an image that appears in two splits or
    with two labels is a fault; other duplicates are only reported.
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
