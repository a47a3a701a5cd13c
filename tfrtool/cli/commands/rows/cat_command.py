"""``tfrtool cat``."""

import json
from collections.abc import Callable, Mapping
from typing import Any

import click

from tfrtool.cli.damage import Damage, on_corrupt_option
from tfrtool.cli.output import Outcome, emit, warn
from tfrtool.cli.parameters import INPUT, debug_option, json_option, sources_of
from tfrtool.cli.process import nobody_reads
from tfrtool.errors import ShardError, UsageError

_FORMATS = ("jsonl", "csv", "text")


@click.command(
    name="cat",
    epilog="\b\nExamples:\n"
    "  tfrtool cat train.tfrecord --limit 3\n"
    "  tfrtool cat train.tfrecord --records 0,7,100:110 --select label,image/filename\n"
    "  tfrtool cat 'data/*-train*' --where 'label = 1 AND height > 64' --format csv",
)
@click.argument("shards", nargs=-1, required=True, type=INPUT)
@click.option(
    "--select", multiple=True, metavar="A,B", help="Print these features only, in this order."
)
@click.option(
    "--records", metavar="5|10:20|0,7,9", help="Print these records of each shard, from 0 on."
)
@click.option("--limit", type=click.IntRange(min=0), metavar="N", help="Print N records at most.")
@click.option(
    "--sample", type=click.IntRange(min=1), metavar="N", help="Draw N records from all shards."
)
@click.option("--seed", type=int, default=0, show_default=True, help="Of the sample.")
@click.option(
    "--where",
    metavar="CONDITION",
    help="Of these records, print those for which an SQL condition holds.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(_FORMATS),
    default="jsonl",
    show_default=True,
    help="JSON Lines, CSV, or text for people.",
)
@click.option(
    "--bytes",
    "form_of_bytes",
    type=click.Choice(["summary", "base64"]),
    default="summary",
    show_default=True,
    help="Of bytes that are no text, print what they are, or all of them.",
)
@on_corrupt_option
@json_option
@debug_option
def cat_command(
    shards: tuple[str, ...],
    select: tuple[str, ...],
    records: str | None,
    form: str,
    form_of_bytes: str,
    on_corrupt: str,
    as_json: bool,
    **choices: Any,
) -> Outcome:
    """Print records, a line of JSON each.

    Reading ends as soon as what was asked for is out, and uncompressed shards are hopped through
    up to there. SHARDS: files, quoted globs and directories; or -, a shard on standard input. Exit
    code 3 means that damage was met on the way.
    """
    from tfrtool.inspection.rows.cat import cat
    from tfrtool.inspection.rows.payload_json import PayloadJson

    if as_json and form != "jsonl":
        raise UsageError(f"--json and --format {form} exclude each other")
    names = [name for part in select for name in part.split(",")]
    payloads = PayloadJson(select=names or None, as_base64=form_of_bytes == "base64")
    damage = Damage(on_corrupt)
    lines, left_out = _lines(form, names)
    shown = 0
    for path, record in cat(sources_of(shards), records=records, on_fault=damage, **choices):
        place = {"shard": str(path), "record": record.index}
        emit(lines(place | payloads.tell(record.payload)))
        shown += 1
        if nobody_reads():
            return damage.outcome()
    payloads.check_selection()
    outcome = damage.outcome()
    if records is not None and not shown and outcome is Outcome.FINE and not choices["where"]:
        raise ShardError(f"no record {records} in any of these shards", hint="they count from 0")
    if left_out:
        known = ", ".join(sorted(left_out)[:10])
        warn(
            f"features that the first record doesn't have are left out: {known}; --select names all"
        )
        return Outcome.DAMAGE
    return outcome


def _lines(form: str, names: list[str]) -> tuple[Callable[[Mapping[str, Any]], str], set[str]]:
    """Return what makes lines of a record, and which features it leaves out."""
    if form == "jsonl":
        return json.dumps, set()
    from tfrtool.cli.render.rows_text import CsvLines, flattened, record_text

    if form == "text":
        return record_text, set()
    table = CsvLines()
    if names:
        emit(table.head(["shard", "record", *names]))
    return lambda row: table.lines(flattened(row)), table.left_out
