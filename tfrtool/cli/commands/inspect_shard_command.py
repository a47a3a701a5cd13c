"""``tfrtool inspect shard``."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tfrtool.cli.damage import UnreadableShards
from tfrtool.cli.output import Outcome, emit, emit_pieces
from tfrtool.cli.parameters import (
    SHARDS,
    command,
    description_options,
    resolve_sources,
)
from tfrtool.cli.process import stdout_closed
from tfrtool.declare import Options, option
from tfrtool.errors import SchemaError, ShardError, UsageError, os_errors_as
from tfrtool.storage.opening import read_bounded

if TYPE_CHECKING:
    from tfrtool.examples.schema import Schema


@dataclass(frozen=True, kw_only=True)
class _InspectShardOptions(Options):
    limit: int = option(3, "Number of records to show per shard.", metavar="N", least=0)
    record: int | None = option(
        None, "Show the record with this index, counted from 0.", metavar="I", least=0
    )
    raw: bool = option(
        False, "Show payloads as Python bytes literals, with offset, length and CRCs."
    )
    feature: tuple[str, ...] = option(
        (),
        "Parse records with this feature. DTYPE is string, int64 or float32; SHAPE is [] (the "
        "default), [3], [2,2] or [*]. Repeatable.",
        metavar="NAME:DTYPE[:SHAPE][=DEFAULT]",
        repeat=True,
    )
    description: str | None = option(
        None,
        "Parse records with the feature_description in a JSON file, such as "
        '{"label": {"dtype": "int64", "shape": []}}.',
        metavar="FILE",
        path="input",
    )
    all: bool = option(False, "Read remote shards completely, not only the records to show.")


@command(
    "tfrtool inspect shard 'data/*.tfrecord*' --limit 1",
    "tfrtool inspect shard train.tfrecord --feature image:string= --feature label:int64=-1",
    "tfrtool inspect shard train.tfrecord --record 17 --raw",
    options=_InspectShardOptions,
)
@SHARDS
def inspect_shard_command(
    shards: tuple[str, ...],
    limit: int,
    record: int | None,
    raw: bool,
    feature: tuple[str, ...],
    description: str | None,
    all: bool,  # noqa: A002 - the option's name
    as_json: bool,
) -> Outcome:
    """Show what TFRecord files contain, and their first records.

    SHARDS are files, quoted globs and directories, or - for a shard on standard input. For each
    shard, prints its size, compression, number of records, kind of payload, CRC check, features
    and first records.

    Exit code 3 means that a shard is damaged, or that records don't match --feature or
    --description.
    """
    from tfrtool.cli.render.summary_text import raw_page, raw_text, summary_page
    from tfrtool.inspection.summary.shard_summary import inspect_shard

    schema = _schema(feature, description)
    sources = resolve_sources(shards)
    outcome, shown, unreadable = Outcome.FINE, False, UnreadableShards(len(sources))
    for number, source in enumerate(sources):
        try:
            summary = inspect_shard(
                source,
                limit=limit,
                record=record,
                schema=schema,
                whole=all,
            )
        except ShardError as error:
            unreadable.add(error)
            continue
        if as_json:
            emit(summary.to_json(raw=raw))
        else:
            if number:
                emit("")
            emit(summary_page(summary, raw=raw))
            for sample in summary.sample if raw else ():
                emit("")
                emit(raw_page(sample.record))
                emit_pieces(raw_text(sample.record.payload))
        # --record may name a damaged record, which is reported.
        counted = summary.total if summary.counted_by is None else None
        shown |= record is None or counted is None or record < counted + summary.lost
        outcome = Outcome.DAMAGE if summary.faults else outcome
        if stdout_closed():
            return outcome
    unreadable.check()
    if not shown:
        raise ShardError(
            f"no record {record} in any of these shards", hint="records are numbered from 0"
        )
    return outcome


def _schema(features: tuple[str, ...], description: str | None) -> "Schema | None":
    from tfrtool.examples.schema import Schema

    if features and description is not None:
        raise UsageError("--feature and --description cannot be used together")
    with description_options():
        if features:
            return Schema.from_notation(features)
        if description is None:
            return None
        try:
            with os_errors_as(UsageError, description):
                return Schema.from_json(read_bounded(description))
        except SchemaError as error:
            error.path = description
            raise
