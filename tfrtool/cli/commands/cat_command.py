"""``tfrtool cat``."""

import json
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from tfrtool.cli.damage import Damage
from tfrtool.cli.output import Outcome, binary_output, emit, note, warn
from tfrtool.cli.parameters import SHARDS, SKIP_OR_STOP, command, resolve_shards, resolve_sources
from tfrtool.cli.process import stdout_closed
from tfrtool.declare import option
from tfrtool.errors import ShardError, UsageError, human_bytes, printable
from tfrtool.inspection.inspect_options import CatOptions, ProtoOptions
from tfrtool.sources.formats.csv_options import CsvOptions

_HELD = 1000
"""Lines that wait for a record with each selected feature."""

_WORTH_AN_INDEX = 4 * 1024 * 1024
"""Bytes that are read to find records of shards in a store, from which on an index is suggested."""


@dataclass(frozen=True, kw_only=True)
class _CatOptions(ProtoOptions):
    on_error: Literal["skip", "stop"] = option("skip", SKIP_OR_STOP, group="Selection")
    select: str | None = option(
        None, "Print only these features, in this order.", metavar="A,B", group="Output"
    )
    format: Literal["jsonl", "csv", "text", "arrow"] = option(
        "jsonl",
        "JSON Lines, CSV, readable text with long values shortened, or an Arrow stream.",
        group="Output",
    )
    bytes: Literal["summary", "base64"] = option(
        "summary", "How to print binary values: a summary, or base64.", group="Output"
    )


@command(
    "tfrtool cat train.tfrecord --limit 3",
    "tfrtool cat train.tfrecord --records 0,7,100:110 --select label",
    "tfrtool cat 'data/*-train*' --where 'label = 1' --format csv",
    options=(CatOptions, _CatOptions, CsvOptions),
)
@SHARDS
def cat_command(
    shards: tuple[str, ...],
    select: str | None,
    on_error: str,
    proto: str | None,
    as_json: bool,
    **choices: Any,
) -> Outcome:
    """Print records as JSON Lines, CSV, text or Arrow.

    SHARDS are files, quoted globs and directories, or - for a shard on standard input. Reading
    stops after the last record to print.

    Exit code 3 means that damaged records, or features without a CSV column, were skipped.
    """
    from tfrtool.examples.stored_types import StoredTypes
    from tfrtool.inspection.rows.cat import cat
    from tfrtool.inspection.rows.payload_json import PayloadJson
    from tfrtool.inspection.verify.payload_check import unparseable
    from tfrtool.records.framing import LocatedFault
    from tfrtool.records.stream import Stream

    form, as_base64 = choices.pop("format"), choices.pop("bytes") == "base64"
    if as_json and form != "jsonl":
        raise UsageError(f"--json and --format {form} cannot be used together")
    style = CsvOptions.take(choices, form)
    names = select.split(",") if select else None
    message = None
    if proto is not None:
        from tfrtool.examples.arrow.messages import MessageColumns

        message = choices["proto"] = MessageColumns.read(proto)
    choices["sources"] = shards
    if form == "arrow":
        from tfrtool.inspection.rows.cat import write_arrow

        damage, output = Damage(on_error), binary_output()
        write_arrow(resolve_shards(shards), output, names, on_fault=damage, **choices)
        return damage.outcome()
    payloads = PayloadJson(select=names, as_base64=as_base64, proto=message)
    damage = Damage(on_error)
    line: Callable[[Mapping[str, Any]], str] = json.dumps
    skipped: set[str] = set()
    if form != "jsonl":
        from tfrtool.cli.rows_text import RecordCsv, record_text

        table = RecordCsv(names, style)
        line, skipped = (table.line, table.skipped) if form == "csv" else (record_text, skipped)
    pending = [table.head] if form == "csv" and table.head else []
    shown, sources, hops = 0, resolve_sources(shards), list[int]()
    choices |= {"on_fault": damage, "on_hop": hops.append}
    last = None
    for path, record in cat(sources, **choices):
        if path != last and sources and not isinstance(sources[0], Stream):
            last, payloads.types = path, StoredTypes.read([path])
        try:
            content = payloads.describe(record.payload)
        except ValueError as error:
            damage(LocatedFault(path=path, fault=unparseable(record, str(error))))
            continue
        pending.append(line({"shard": str(path), "record": record.index} | content))
        shown += 1
        if shown > _HELD or names is None or not payloads.unseen():
            for text in pending:
                emit(text)
                if stdout_closed():
                    return damage.outcome()
            pending.clear()
    payloads.check_selection()
    for text in pending:
        emit(text)
    if (passed := sum(hops)) >= _WORTH_AN_INDEX:
        index = printable(f"tfrtool index {shlex.join(shards)}")
        note(f"{human_bytes(passed)} before these records were read; to avoid this, run {index}")
    if unknown := payloads.unknown_note():
        note(unknown)
    outcome = damage.outcome()
    records = choices["records"]
    if records is not None and not shown and outcome is Outcome.FINE and not choices["where"]:
        raise ShardError(
            f"no record {records} in any of these shards", hint="records are numbered from 0"
        )
    if skipped:
        known = ", ".join(sorted(skipped)[:10])
        what = "skipped features that the first record doesn't have"
        warn(f"{what}: {known}; use --select to name all columns")
        return Outcome.DAMAGE
    return outcome
