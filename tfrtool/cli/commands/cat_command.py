"""``tfrtool cat``."""

import json
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal

from tfrtool.cli.damage import Damage
from tfrtool.cli.output import LineBlocks, Outcome, binary_output, note, warn
from tfrtool.cli.parameters import SHARDS, SKIP_OR_STOP, command, resolve_shards, resolve_sources
from tfrtool.cli.process import stdout_closed
from tfrtool.declare import option
from tfrtool.errors import ShardError, UsageError, human_bytes, printable
from tfrtool.inspection.inspect_options import CatOptions
from tfrtool.inspection.shard_options import ProtoOptions
from tfrtool.inspection.summary.summary_json import as_json
from tfrtool.sources.formats.csv_options import CsvOptions

if TYPE_CHECKING:
    from tfrtool.examples.arrow.columns import Columns
    from tfrtool.features.feature_columns import FeatureColumns
    from tfrtool.inspection.rows.extra_columns import ExtraColumns
    from tfrtool.inspection.rows.payload_json import PayloadJson
    from tfrtool.records.framing import Record
    from tfrtool.records.stream import Stream
    from tfrtool.storage.remote_path import AnyPath

_BATCH_RECORDS, _BATCH_BYTES = 1024, 8 * 1024 * 1024
"""Records that are decoded together at most, and bytes from which on there are no more."""

_HELD = 1000
"""Lines that wait for a record with each selected feature."""

_WORTH_AN_INDEX = 4 * 1024 * 1024
"""Bytes that are read to find records of shards in a store, from which on an index is suggested."""


@dataclass(frozen=True, kw_only=True)
class _CatOptions(ProtoOptions):
    on_error: Literal["skip", "stop"] = option("skip", SKIP_OR_STOP, group="Selection", common=True)
    select: str | None = option(
        None,
        "Print only these features, in this order.",
        metavar="A,B",
        group="Output",
        common=True,
    )
    format: Literal["jsonl", "csv", "text", "arrow"] = option(
        "jsonl",
        "JSON Lines, CSV, readable text with long values shortened, or an Arrow stream.",
        group="Output",
        common=True,
    )
    bytes: Literal["summary", "base64"] = option(
        "summary", "How to print binary values: a summary, or base64.", group="Output", common=True
    )


def _declared_columns(
    sources: "Sequence[AnyPath | Stream]", types: Mapping[str, str] | None
) -> "FeatureColumns | None":
    """Return the columns that files or types describe, without importing Arrow if there are none.

    `UsageError` if there are types for a stream.
    """
    from tfrtool.features.metadata_types import has_metadata_types
    from tfrtool.features.schema_files import may_be_described
    from tfrtool.records.stream import Stream

    shards = [source for source in sources if not isinstance(source, Stream)]
    if types and len(shards) < len(sources):
        raise UsageError("can't read standard input, because --type needs two passes")
    folders = {shard.parent: shard for shard in reversed(shards)}
    is_described = may_be_described(shards) or any(map(has_metadata_types, folders.values()))
    if not (types or is_described):
        return None
    from tfrtool.inspection.rows.batches import declared_columns

    return declared_columns(shards, note, types=types)


def _extra_columns(
    sources: "Sequence[AnyPath | Stream]",
    columns: "Columns | None",
    names: Sequence[str] | None,
) -> "tuple[Sequence[str] | None, ExtraColumns | None]":
    """Return the selected features, and the columns that no record stores, if there are any.

    Without features.json, any selected name may be that of a feature.
    """
    from tfrtool.records.partitions import partition_columns
    from tfrtool.records.stream import Stream

    shards = [source for source in sources if not isinstance(source, Stream)]
    if "_index" not in (names or ()) and not partition_columns(shards):
        return names, None
    from tfrtool.inspection.rows.cat import extra_columns

    others, extra = extra_columns(shards, columns, names)
    return names if columns is None else others, extra


def _with_extra(
    content: dict[str, Any],
    extra: "ExtraColumns | None",
    location: "tuple[AnyPath, int]",
    names: Sequence[str] | None,
) -> dict[str, Any]:
    """Return what is printed of a record, with the columns that it doesn't store."""
    if extra is None:
        return content
    features = content.get("features", {})
    values = {
        name: as_json(value, nulls=True)
        for name, value in extra.values(*location).items()
        if names is None or name not in features
    }
    for name in features.keys() & values.keys():
        values[f"{name}_"] = values.pop(name)
    if "features" not in content:
        return content | values
    shown = features | values
    order = dict.fromkeys(name for name in names or () if name in shown)
    return content | {"features": {name: shown[name] for name in order | shown}}


def _described(
    records: "Iterator[tuple[AnyPath, Record]]", payloads: "PayloadJson", *, together: bool
) -> "Iterator[tuple[AnyPath, Record, dict[str, Any] | str]]":
    """Yield records with what is printed of each, or why it can't be.

    Where payloads are decoded ``together``, the first ones come at once, and more later.
    """
    size = 1
    while batch := list(islice(records, size)):
        contents = payloads.describe_all([record.payload for _, record in batch])
        for (path, record), content in zip(batch, contents, strict=True):
            yield path, record, content
        if together and sum(len(record.payload) for _, record in batch) < _BATCH_BYTES:
            size = min(2 * size, _BATCH_RECORDS)


def _print_as_stored(
    pieces: "Iterator[tuple[AnyPath, Sequence[Record]]]",
    payloads: "PayloadJson",
    damage: Damage,
    lines: LineBlocks,
) -> int:
    """Print all features of records as JSON Lines, and return how many were printed."""
    from tfrtool.inspection.rows.record_lines import record_lines

    shown = 0
    for path, records in pieces:
        for line in record_lines(path, records, payloads, partial(_reject, damage, path)):
            lines.add(line)
            shown += 1
        if stdout_closed():
            break
    return shown


def _print_described(
    described: "Iterator[tuple[AnyPath, Record, dict[str, Any] | str]]",
    payloads: "PayloadJson",
    line: "Callable[[AnyPath, Record, dict[str, Any]], str]",
    damage: Damage,
    lines: LineBlocks,
    pending: list[str],
) -> int:
    """Print a line for each record, and return how many there were.

    Lines are ``pending`` until each selected feature was seen in a record, as far as they are few.
    """
    shown = 0
    for path, record, content in described:
        if isinstance(content, str):
            _reject(damage, path, record, content)
            continue
        pending.append(line(path, record, content))
        shown += 1
        if shown > _HELD or not payloads.unseen():
            for text in pending:
                lines.add(text)
            pending.clear()
            if stdout_closed():
                break
    return shown


def _reject(damage: Damage, path: "AnyPath", record: "Record", reason: str) -> None:
    """Report a record that can't be described."""
    from tfrtool.inspection.verify.payload_check import unparseable
    from tfrtool.records.framing import LocatedFault

    damage(LocatedFault(path=path, fault=unparseable(record, reason)))


def _print_items(
    shards: "Sequence[AnyPath]",
    explode: Sequence[str],
    select: Sequence[str] | None,
    form: str,
    style: CsvOptions,
    payloads: "PayloadJson",
    lines: LineBlocks,
    choices: Mapping[str, Any],
) -> None:
    """Print a row for each item of lists."""
    from tfrtool.cli.rows_text import RecordCsv, record_text
    from tfrtool.inspection.rows.cat import exploded_batches

    schema, batches = exploded_batches(shards, explode, select, **choices)
    line: Callable[[Mapping[str, Any]], str] = json.dumps if form == "jsonl" else record_text
    if form == "csv":
        table = RecordCsv(schema.names[:-3], style, items=True)
        line = table.line
        if table.head:
            lines.add(table.head)
    for batch in batches:
        for row in payloads.rows(batch):
            position = {name: row.pop(f"_{name}") for name in ("shard", "record", "item")}
            lines.add(line(position | {"features": row}))
            if stdout_closed():
                return


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
    from tfrtool.inspection.rows.cat import cat, cat_pieces
    from tfrtool.inspection.rows.payload_json import PayloadJson

    form, as_base64 = choices.pop("format"), choices.pop("bytes") == "base64"
    if as_json and form != "jsonl":
        raise UsageError(f"--json and --format {form} can't be used together")
    style = CsvOptions.take(choices, form)
    names = select.split(",") if select else None
    message = None
    if proto is not None:
        from tfrtool.examples.arrow.messages import MessageColumns

        message = choices["proto"] = MessageColumns.read(proto)
    choices["sources"] = shards
    lines = LineBlocks()
    damage = Damage(on_error, before=lines.flush)
    if "-" in shards and (form == "arrow" or choices["explode"] is not None):
        cause = "--format arrow" if form == "arrow" else "--explode"
        raise UsageError(f"can't read standard input, because {cause} needs two passes")
    if form == "arrow":
        from tfrtool.inspection.rows.cat import write_arrow

        choices |= {"on_note": note, "on_fault": damage}
        write_arrow(resolve_shards(shards), binary_output(), names, **choices)
        return damage.outcome()
    explode = choices.pop("explode")
    if explode is not None:
        choices |= {"on_note": note, "on_fault": damage}
        payloads = PayloadJson(as_base64=as_base64)
        with lines:
            _print_items(
                resolve_shards(shards), explode, names, form, style, payloads, lines, choices
            )
        return damage.outcome()
    sources = resolve_sources(shards, before_read=lines.flush)
    columns = None
    if not choices["as_stored"] and proto is None:
        columns = _declared_columns(sources, choices["types"])
    chosen, extra = _extra_columns(sources, columns or message, names)
    payloads = PayloadJson(
        select=chosen,
        as_base64=as_base64,
        proto=message,
        columns=columns,
        extra=[] if extra is None else [one.name for one in extra.columns],
    )
    line: Callable[[Mapping[str, Any]], str] = json.dumps
    skipped: set[str] = set()
    if form != "jsonl":
        from tfrtool.cli.rows_text import RecordCsv, record_text

        table = RecordCsv(names, style)
        line, skipped = (table.line, table.skipped) if form == "csv" else (record_text, skipped)
    pending = [table.head] if form == "csv" and table.head else []
    hops = list[int]()
    choices |= {"on_fault": damage, "on_hop": hops.append}
    with lines:
        if form == "jsonl" and all(one is None for one in (names, columns, message, extra)):
            shown = _print_as_stored(cat_pieces(sources, **choices), payloads, damage, lines)
        else:
            described = _described(cat(sources, **choices), payloads, together=columns is not None)

            def shown_line(path: "AnyPath", record: "Record", content: dict[str, Any]) -> str:
                content = _with_extra(content, extra, (path, record.index), names)
                return line({"shard": str(path), "record": record.index} | content)

            shown = _print_described(described, payloads, shown_line, damage, lines, pending)
        if stdout_closed():
            return damage.outcome()
        payloads.check_selection()
        for text in pending:
            lines.add(text)
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
