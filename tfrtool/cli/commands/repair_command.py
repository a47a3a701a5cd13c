"""``tfrtool repair``."""

import click

from tfrtool.cli.output import Outcome, emit
from tfrtool.cli.parameters import OUTPUT_OR_URL, STREAMED, command, standard_input


@command("tfrtool repair damaged.tfrecord saved.tfrecord")
@click.argument("shard", metavar="SOURCE", type=STREAMED)
@click.argument("out", metavar="TARGET", type=OUTPUT_OR_URL)
def repair_command(shard: str, out: str, as_json: bool) -> Outcome:
    """Save all whole records of a damaged shard to a new one.

    A record is whole if both its CRCs hold; after damage the next one is searched for, byte by
    byte. SHARD is never touched, and may be -, standard input. OUT must not exist, and is read back
    before it gets its name. Exit code 0: nothing was lost; 3: something was; 1: there is nothing to
    save.
    """
    from tfrtool.cli.bars import Bars
    from tfrtool.cli.render.repair_text import repair_page
    from tfrtool.records.repair import repair_shard
    from tfrtool.storage.plain import plain

    with Bars() as bars:
        source = standard_input() if shard == "-" else shard
        report = repair_shard(source, out, on_progress=bars)
    data = plain(report)
    emit({"path": data.pop("shard"), **data} if as_json else repair_page(report))
    return Outcome.FINE if report.is_whole else Outcome.DAMAGE
