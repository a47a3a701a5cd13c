"""``tfrtool cat``."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tfrtool.cli.damage import Damage
from tfrtool.cli.output import Outcome, emit, warn
from tfrtool.cli.parameters import ON_ERROR, SHARDS, command, sources_of
from tfrtool.cli.process import nobody_reads
from tfrtool.errors import ShardError, UsageError

_HELD_BYTES = 16 * 1024 * 1024
"""Payloads whose lines wait until a record has each selected feature; then all are looked at."""


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
        **ON_ERROR,
    },
)
@SHARDS
def cat_command(
    shards: tuple[str, ...],
    select: str | None,
    records: str | None,
    on_error: str,
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
        raise UsageError(f"--json and --format {form} cannot be used together")
    names = select.split(",") if select else None
    payloads, damage = PayloadJson(select=names, as_base64=as_base64), Damage(on_error)
    line: Callable[[Mapping[str, Any]], str] = json.dumps
    skipped: set[str] = set()
    if form != "jsonl":
        from tfrtool.cli.render.rows_text import RecordCsv, record_text

        table = RecordCsv(names)
        line, skipped = (table.line, table.skipped) if form == "csv" else (record_text, skipped)
    held = [table.head] if form == "csv" and table.head else []
    held_bytes, is_checked = 0, names is None
    shown, sources = 0, sources_of(shards)
    choices |= {"records": records, "sources": shards}
    for path, record in cat(sources, on_fault=damage, **choices):
        told = payloads.tell(record.payload)
        held.append(line({"shard": str(path), "record": record.index} | told))
        shown += 1
        held_bytes += len(record.payload)
        is_checked = is_checked or not payloads.unseen()
        if not is_checked and held_bytes > _HELD_BYTES:
            if all(isinstance(source, Path) for source in sources):
                for _, other in cat(sources, on_fault=lambda _: None, **choices):
                    payloads.tell(other.payload)
                    if not payloads.unseen():
                        break
                payloads.check_selection()
            is_checked = True  # a stream is read once
        if is_checked:
            for text in held:
                emit(text)
                if nobody_reads():
                    return damage.outcome()
            held.clear()
    payloads.check_selection()
    for text in held:
        emit(text)
    outcome = damage.outcome()
    if records is not None and not shown and outcome is Outcome.FINE and not choices["where"]:
        raise ShardError(f"no record {records} in any of these shards", hint="they count from 0")
    if skipped:
        known = ", ".join(sorted(skipped)[:10])
        what = "features that the first record doesn't have are left out"
        warn(f"{what}: {known}; --select names all")
        return Outcome.DAMAGE
    return outcome
