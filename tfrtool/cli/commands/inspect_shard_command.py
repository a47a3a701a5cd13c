"""``tfrtool inspect shard``."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import TYPE_CHECKING, Any

from tfrtool.cli.damage import unreadable_shards, warn_of_unreadable
from tfrtool.cli.layout import page_width
from tfrtool.cli.output import Bars, Outcome, emit, emit_pieces, note
from tfrtool.cli.parameters import (
    SHARDS,
    command,
    description_options,
    resolve_sources,
)
from tfrtool.cli.process import stdout_closed
from tfrtool.cli.schema_text import feature_table
from tfrtool.declare import option
from tfrtool.errors import (
    ShardError,
    UsageError,
    human_bytes,
    human_count,
    os_errors_as,
    printable,
)
from tfrtool.examples.content import decode_text, describe_bytes
from tfrtool.examples.feature_text import name_text
from tfrtool.inspection.shard_options import ProtoOptions, ShardOptions
from tfrtool.inspection.summary.summary_json import shortest_float
from tfrtool.page import Bad, Good, Heading, Page, Prose, Table, facts, findings
from tfrtool.records.compression import Compression
from tfrtool.storage.progress import Progress

if TYPE_CHECKING:
    from tfrtool.examples.parsing import ParsedValue
    from tfrtool.examples.schema import Schema
    from tfrtool.examples.schema_fold import FeatureStatistics
    from tfrtool.inspection.rows.payload_json import PayloadJson
    from tfrtool.inspection.summary.shard_summary import Sample, ShardSummary
    from tfrtool.records.framing import Record
    from tfrtool.records.stream import Location

_INDICES_SHOWN = 8
_PIECE = 64 * 1024
_NAME_WIDTH = 36
"""Columns that are set aside for names; longer ones take more."""
_DOCUMENTS_SHOWN, _VALUES_SHOWN = 5, 10
"""Documents of a ranking list, and values of a feature in one, that are shown at most."""
_NARROWEST_VALUE = 20
"""Columns that a value has at least."""


@dataclass(frozen=True, kw_only=True)
class _InspectShardOptions(ProtoOptions):
    raw: bool = option(
        False, "Show payloads as Python bytes literals, with offset, length and CRCs."
    )
    feature: tuple[str, ...] = option(
        (),
        "Parse records with this feature. DTYPE is string, int64 or float32, or tf.string etc.; "
        "SHAPE is [] (the default), [3], [2,2] or [*]. Repeatable.",
        metavar="NAME:DTYPE[:SHAPE][=DEFAULT]",
        repeat=True,
    )
    description: str | None = option(
        None,
        "Parse records with the feature_description in a file: Python source (.py), which is not "
        'executed, or JSON such as {"label": {"dtype": "int64", "shape": []}}.',
        metavar="FILE",
        path="input",
    )


@command(
    "tfrtool inspect shard 'data/*.tfrecord*' --limit 1",
    "tfrtool inspect shard train.tfrecord --feature image:string= --feature label:int64=-1",
    "tfrtool inspect shard train.tfrecord --record 17 --raw",
    options=(ShardOptions, _InspectShardOptions),
)
@SHARDS
def inspect_shard_command(
    shards: tuple[str, ...],
    raw: bool,
    feature: tuple[str, ...],
    description: str | None,
    proto: str | None,
    as_json: bool,
    **words: Any,
) -> Outcome:
    """Show what TFRecord files contain, and their first records.

    SHARDS are files, quoted globs and directories, or - for a shard on standard input. For each
    shard, prints its size, compression, number of records, kind of payload, CRC check, features
    and first records. The features of several shards are printed once, before the shards.

    Exit code 3 means that a shard is damaged, or that records don't match --feature or
    --description.
    """
    schema, record = _schema(feature, description, proto), words["record"]
    messages = None if proto is None else _messages(proto)
    sources = resolve_sources(shards)
    outcome, shown, unreadable = Outcome.FINE, False, 0
    several = None if as_json or raw or len(sources) == 1 else _SeveralShards()
    for number, summary in enumerate(_summaries(sources, several is not None, schema, words)):
        if summary is None:
            unreadable += 1
            continue
        contents = [] if messages is None else _contents(summary.sample, messages)
        if as_json:
            emit(_json(summary, raw=raw, contents=contents))
        elif several is not None:
            several.add(summary, contents)
        else:
            if number:
                emit("")
            emit(_page(summary, raw=raw, contents=contents))
            for sample in summary.sample if raw else ():
                _emit_raw(sample.record)
        # --record may name a damaged record, which is reported.
        counted = summary.total if summary.counted_by is None else None
        shown |= record is None or counted is None or record < counted + summary.lost
        if summary.faults or any("misfits" in content for content in contents):
            outcome = Outcome.DAMAGE
        if stdout_closed():
            return outcome
    if several is not None:
        several.emit()
    if unreadable:
        raise unreadable_shards(unreadable, len(sources))
    if messages is not None and (unknown := messages.unknown_note()):
        note(unknown)
    if not shown:
        raise ShardError(
            f"no record {record} in any of these shards", hint="records are numbered from 0"
        )
    return outcome


def _summaries(
    sources: Sequence["Location"], together: bool, schema: "Schema | None", words: Mapping[str, Any]
) -> "Iterator[ShardSummary | None]":
    """Yield what each shard contains; None after a warning that it can't be read.

    A bar shows how many of them were read, if they are printed ``together``.
    """
    from tfrtool.inspection.summary.shard_summary import inspect_shard

    with Bars() as bars:
        for number, source in enumerate(sources):
            if together:
                bars(Progress(what="reading", done=number, total=len(sources), unit="shards"))
            try:
                yield inspect_shard(source, schema=schema, **words)
            except ShardError as error:
                warn_of_unreadable(error, len(sources))
                yield None


def _schema(
    features: tuple[str, ...], description: str | None, proto: str | None
) -> "Schema | None":
    from tfrtool.examples.schema import Schema

    if not features and description is None:
        return None
    if proto is not None:
        raise UsageError("--proto can't be used together with --feature or --description")
    if features and description is not None:
        raise UsageError("--feature and --description can't be used together")
    with description_options():
        if description is None:
            return Schema.from_notation(features)
        from tfrtool.examples.description_file import read_description

        with os_errors_as(UsageError, description):
            return read_description(description)


def _messages(proto: str) -> "PayloadJson":
    """Return what reads the messages of --proto."""
    from tfrtool.examples.arrow.messages import MessageColumns
    from tfrtool.inspection.rows.payload_json import PayloadJson

    return PayloadJson(proto=MessageColumns.read(proto))


def _contents(samples: "Iterable[Sample]", messages: "PayloadJson") -> list[dict[str, Any]]:
    """Return the fields of each record, or why it is not such a message."""
    contents = list[dict[str, Any]]()
    for sample in samples:
        try:
            contents.append(messages.describe(sample.record.payload))
        except ValueError as error:
            contents.append({"misfits": [str(error)]})
    return contents


def _json(
    summary: "ShardSummary", *, raw: bool, contents: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Return what ``inspect shard --json`` prints of a shard."""
    data = summary.to_json(raw=raw)
    for content, sample in zip(contents, data["sample"], strict=False):
        sample |= content
    return data


class _SeveralShards:
    """The features of several shards as one schema, and a page for each shard."""

    def __init__(self) -> None:
        self._pages: list[Page] = []
        self._features: dict[tuple[bool, bytes], FeatureStatistics] = {}
        self._records = self._examples = 0

    def add(self, summary: "ShardSummary", contents: Sequence[Mapping[str, Any]]) -> None:
        self._pages.append(_page(summary, features=False, contents=contents))
        self._records += summary.records
        self._examples += summary.records if summary.features else 0
        for feature in summary.features:
            known = self._features.setdefault((feature.is_list, feature.key), feature)
            if known is not feature:
                known.merge(feature)

    def emit(self) -> None:
        records = human_count(self._records, "record")
        title = f"{human_count(len(self._pages), 'shard')}, {records} read"
        page: list[str | Table] = [Heading(title)]
        if self._features:
            features = [self._features[key] for key in sorted(self._features)]
            page.append(feature_table(features, self._examples))
        emit(page)
        for shard in self._pages:
            emit("")
            emit(shard)


def _page(
    summary: "ShardSummary",
    *,
    raw: bool = False,
    features: bool = True,
    contents: Sequence[Mapping[str, Any]] = (),
) -> Page:
    """Return what ``inspect shard`` shows of a shard; ``raw`` leaves its records to `_emit_raw`."""
    shard = summary.shard
    crcs: str = Good("all match")
    if damage := summary.fault_count - summary.misfit_count:
        crcs = Bad(f"{human_count(damage, 'fault')}, see below")
    elif not summary.whole:
        crcs = "all match in the records that were read"
    is_message = summary.content[:1].isupper()  # others are media types and such
    payload = summary.content if is_message else summary.payload.title
    packed = "uncompressed" if shard.compression is Compression.NONE else shard.compression.value
    about = facts(
        ("size", f"{human_bytes(shard.bytes)}, {packed}"),
        ("records", _records(summary)),
        ("payload", f"{payload}, {human_bytes(summary.payload_bytes)}"),
        ("checksums", crcs),
    )
    page: list[str | Table] = [Heading(printable(str(shard.path))), about]
    found = [(one.title, printable(one.message)) for one in summary.faults]
    page += findings(found, summary.fault_count)
    page += [Prose(one.cause, "likely: ") for one in summary.faults if one.cause is not None]
    if summary.features and features:
        page.append(feature_table(summary.features, summary.records))
    for name, indices in summary.hidden.items():
        listed = ", ".join(map(str, indices[:_INDICES_SHOWN]))
        listed += ", ..." * (len(indices) > _INDICES_SHOWN)
        count = human_count(len(indices), "record")
        page.append(f"default used for {name!r}, which is missing in {count} ({listed})")
    if not raw:
        for sample, content in zip(summary.sample, contents or repeat({}), strict=False):
            page += _sample(sample, content)
    return page


def _records(summary: "ShardSummary") -> str:
    if summary.whole:
        return f"{summary.records:,}"
    read = f"{summary.records:,} read" if summary.records else "none read"
    if summary.total is None:
        return f"{read}; use --all to read the rest, or tfrtool count to count them"
    source = f" (from {printable(summary.counted_by)})" if summary.counted_by else ""
    return f"{summary.total:,}{source}; {read}, use --all to read the rest"


def _emit_raw(record: "Record") -> None:
    """Print a record's serialized bytes under its title and CRCs."""
    crcs = f"length CRC {record.length_crc:08x}, payload CRC {record.payload_crc:08x}"
    emit("")
    emit([Heading(f"{_title(record)}, {crcs}")])
    emit_pieces(_raw_text(record.payload))


def _raw_text(payload: bytes) -> Iterator[str]:
    """Yield bytes as Python prints them, in pieces: all of it may be four times as long."""
    quote = b'"' if b"'" in payload and b'"' not in payload else b"'"
    other = b"'" if quote == b'"' else b"'\""  # with them, each piece has that quote around it
    yield f"b{quote.decode()}"
    for start in range(0, len(payload), _PIECE):
        text = repr(payload[start : start + _PIECE] + other)
        yield text[2 : -1 - len(repr(other)[2:-1])]
    yield quote.decode()


def _title(record: "Record") -> str:
    size = human_count(len(record.payload), "byte")
    return f"record {record.index} at offset {record.offset}, {size}"


def _sample(sample: "Sample", content: Mapping[str, Any]) -> Iterator[str]:
    record, parsed = sample
    yield Heading(_title(record))
    if content:
        yield from map(Bad, content.get("misfits", ()))
        yield from _fields(content.get("message", {}))
        return
    if parsed is None:
        yield from _fields(_parts(record.payload)) or [_value(record.payload, page_width() - 2)]
        return
    names = [*parsed.values, *(misfit.name for misfit in parsed.misfits)]
    width = min(max((len(name_text(name)) for name in names), default=0), _NAME_WIDTH)
    for name, value in parsed.values.items():
        note = "  (default)" if name in parsed.defaulted else ""
        room = page_width() - width - len(note) - 4
        yield f"{name_text(name):{width}}  {_value(value, room)}{note}"
    for misfit in parsed.misfits:
        text = f"expected {misfit.expected}, found {misfit.found}"
        yield Bad(f"{name_text(misfit.name):{width}}  {text}")


def _fields(fields: Mapping[str, Any]) -> list[str]:
    """Return a line for each field of a message."""
    width = min(max(map(len, fields), default=0), _NAME_WIDTH)
    lines = list[str]()
    for name, value in fields.items():
        text, room = json.dumps(value), max(page_width() - width - 4, _NARROWEST_VALUE)
        text = text if len(text) <= room else f"{text[: room - 3]}..."
        lines.append(f"{printable(name):{width}}  {printable(text)}")
    return lines


def _parts(payload: bytes) -> dict[str, Any]:
    """Return the fields of an event, and the context and first documents of a ranking list."""
    from tfrtool.inspection.rows.payload_json import PayloadJson

    content = PayloadJson(most=_VALUES_SHOWN).describe(payload)
    if "event" in content:
        return dict(content["event"])
    parts = {"context": content["context"]["features"]} if "context" in content else {}
    documents = content.get("examples", [])
    for number, document in enumerate(documents[:_DOCUMENTS_SHOWN]):
        parts[f"examples[{number}]"] = document["features"]
    if len(documents) > _DOCUMENTS_SHOWN:
        parts["examples"] = f"... {len(documents):,} in all"
    return parts


def _value(value: "ParsedValue", room: int) -> str:
    """Return a value as text in at most ``room`` columns, but 20 at least."""
    room = max(room, _NARROWEST_VALUE)
    if isinstance(value, float):
        return str(shortest_float(value))
    if isinstance(value, int):
        return str(value)
    if isinstance(value, bytes):
        content, note = describe_bytes(value), f"... {len(value):,} bytes"
        if content not in ("text", "binary", "empty"):
            return f"<{content}, {len(value):,} bytes>"
        # A text is cut before it is made printable: it may be as long as the file.
        text = decode_text(value[: 4 * room]) if content == "text" else None
        shown = repr(value[:room]) if text is None else repr(text[:room])
        cut = len(shown) > room or len(value) > room
        return shown[: max(room - len(note) - 1, 8)] + note if cut else shown
    parts: list[str] = []
    rest, used = f"... {len(value):,} in all", 2
    for item in value:
        part = _value(item, room // 2)
        used += len(part) + 2
        if parts and used + len(rest) > room:
            parts.append(rest)
            break
        parts.append(part)
    return f"[{', '.join(parts)}]"
