"""``tfrtool repair``."""

import click

from tfrtool.cli.output import Outcome, emit
from tfrtool.cli.parameters import OUTPUT_OR_URL, STREAMED, command, standard_input


@command("tfrtool repair damaged.tfrecord saved.tfrecord")
@click.argument("shard", metavar="SOURCE", type=STREAMED)
@click.argument("out", metavar="TARGET", type=OUTPUT_OR_URL)
def repair_command(shard: str, out: str, as_json: bool) -> Outcome:
    """Recover every intact record of a damaged shard into a new file.

    SOURCE is a shard, or - for standard input; it is never changed. A record is intact if both of
    its CRCs match. TARGET must not exist yet, and is verified before it appears.

    Exit code 3 means that something was lost, and 1 that there was nothing to recover.
    """
    from tfrtool.cli.bars import Bars
    from tfrtool.cli.render.repair_text import repair_page
    from tfrtool.records.repair import repair_shard
    from tfrtool.storage.json_values import to_json_values

    with Bars() as bars:
        source = standard_input() if shard == "-" else shard
        report = repair_shard(source, out, on_progress=bars)
    data = to_json_values(report)
    emit({"path": data.pop("shard"), **data} if as_json else repair_page(report))
    return Outcome.FINE if report.is_whole else Outcome.DAMAGE
