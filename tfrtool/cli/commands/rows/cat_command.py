"""``tfrtool cat``."""

import json
from collections.abc import Callable, Mapping
from typing import Any

from tfrtool.cli.damage import Damage
from tfrtool.cli.output import Outcome, emit, warn
from tfrtool.cli.parameters import ON_CORRUPT, SHARDS, command, sources_of
from tfrtool.cli.process import nobody_reads
from tfrtool.errors import ShardError, UsageError


@command(
    "tfrtool cat train.tfrecord --limit 3",
    "tfrtool cat train.tfrecord --records 0,7,100:110 --select label,image/filename",
    "tfrtool cat 'data/*-train*' --where 'label = 1 AND height > 64' --format csv",
    options={
        "--select A,B": "Print these features only, in this order.",
        "--records 5|10:20|0,7,9": "Print these records of each shard, from 0 on.",
        "--limit N": "Print N records at most.",
        "--sample N": "Draw N records from all shards.",
        "--seed N=0": "Of the sample.",
        "--where CONDITION": "Of these records, print those for which an SQL condition holds.",
        "--format jsonl|csv|text=jsonl": "JSON Lines, CSV, or text for people.",
        "--bytes summary|base64=summary": "Of bytes that are no text, print what they are, or all "
        "of them.",
        **ON_CORRUPT,
    },
)
@SHARDS
def cat_command(
    shards: tuple[str, ...],
    select: str | None,
    records: str | None,
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

    form, as_base64 = choices.pop("format"), choices.pop("bytes") == "base64"
    if as_json and form != "jsonl":
        raise UsageError(f"--json and --format {form} exclude each other")
    names = select.split(",") if select else None
    payloads, damage = PayloadJson(select=names, as_base64=as_base64), Damage(on_corrupt)
    line: Callable[[Mapping[str, Any]], str] = json.dumps
    left_out: set[str] = set()
    if form != "jsonl":
        from tfrtool.cli.render.rows_text import RecordCsv, record_text

        table = RecordCsv(names)
        line, left_out = (table.line, table.left_out) if form == "csv" else (record_text, left_out)
        if form == "csv" and table.head:
            emit(table.head)
    shown = 0
    choices |= {"records": records, "sources": shards}
    for path, record in cat(sources_of(shards), on_fault=damage, **choices):
        emit(line({"shard": str(path), "record": record.index} | payloads.tell(record.payload)))
        shown += 1
        if nobody_reads():
            return damage.outcome()
    payloads.check_selection()
    outcome = damage.outcome()
    if records is not None and not shown and outcome is Outcome.FINE and not choices["where"]:
        raise ShardError(f"no record {records} in any of these shards", hint="they count from 0")
    if left_out:
        known = ", ".join(sorted(left_out)[:10])
        what = "features that the first record doesn't have are left out"
        warn(f"{what}: {known}; --select names all")
        return Outcome.DAMAGE
    return outcome
