"""A shard's summary as a page for people, in 80 columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tfrtool.cli.output import human_bytes, human_count
from tfrtool.cli.render.page import (
    Block,
    Facts,
    Heading,
    Lines,
    Page,
    Table,
    Tone,
    Toned,
    findings,
)
from tfrtool.errors import printable
from tfrtool.examples.content import decode_text, describe_bytes
from tfrtool.examples.parsing import ParsedValue
from tfrtool.examples.statistics import FeatureStatistics
from tfrtool.examples.wording import lengths_text, name_text
from tfrtool.inspection.summary.shard_summary import Sample, ShardSummary
from tfrtool.inspection.summary.summary_json import shortest_float
from tfrtool.records.compression import Compression
from tfrtool.records.framing import Fault, FaultKind, Record

_WIDTH = 80
_INDICES_SHOWN = 8
_PIECE = 64 * 1024
_NAME_WIDTH = 36
"""Columns that are set aside for names; longer ones take more."""


def summary_page(summary: ShardSummary, *, raw: bool = False) -> Page:
    """Return what ``inspect shard`` shows of a shard; ``raw`` leaves its records to `raw_page`."""
    page: list[Block] = [Heading(printable(str(summary.shard.path))), Facts(_facts(summary))]
    if summary.faults:
        page.append(findings(list(map(_fault, summary.faults))))
    if summary.features:
        rows = [_feature_row(feature, summary.records) for feature in summary.features]
        head = ("feature", "dtype", "present", "values", "content")
        page.append(Table(head=head, rows=rows))
    if summary.hidden:
        page.append(Lines([_hidden(name, indices) for name, indices in summary.hidden.items()]))
    if not raw:
        page.extend(map(_sample, summary.sample))
    return page


def raw_page(sample: Sample) -> Page:
    """Return what stands above a record's serialized bytes."""
    record = sample.record
    crcs = f"length CRC {record.length_crc:08x}, payload CRC {record.payload_crc:08x}"
    return [Lines([Toned(f"{_title(record)}, {crcs}", Tone.TITLE)])]


def raw_text(payload: bytes) -> Iterator[str]:
    """Yield bytes as Python prints them, in pieces: all of it may be four times as long."""
    quote = b'"' if b"'" in payload and b'"' not in payload else b"'"
    other = b"'" if quote == b'"' else b"'\""  # with them, each piece has that quote around it
    yield f"b{quote.decode()}"
    for start in range(0, len(payload), _PIECE):
        text = repr(payload[start : start + _PIECE] + other)
        yield text[2 : -1 - len(repr(other)[2:-1])]
    yield quote.decode()


def _title(record: Record) -> str:
    return f"record {record.index} at offset {record.offset}, {len(record.payload):,} bytes"


def _facts(summary: ShardSummary) -> list[tuple[str, str]]:
    shard = summary.shard
    packed = "not compressed" if shard.compression is Compression.NONE else shard.compression.value
    return [
        ("size", f"{human_bytes(shard.bytes)}, {packed}"),
        ("records", f"{summary.records:,}"),
        ("payload", f"{summary.payload.title}, {human_bytes(summary.payload_bytes)}"),
        ("CRCs", _crcs(summary)),
    ]


def _crcs(summary: ShardSummary) -> str:
    parse = sum(fault.kind is FaultKind.PARSE for fault in summary.faults)
    damage = len(summary.faults) - parse
    if damage:
        return Toned(f"{human_count(damage, 'fault')}, see below", Tone.BAD)
    if not summary.verified:
        return "those of the lengths hold; those of the payloads were not checked"
    return Toned("all hold", Tone.GOOD)


def _fault(fault: Fault) -> tuple[str, str]:
    record = "" if fault.record is None else f" (record {fault.record})"
    return f"{fault.kind.value} at offset {fault.offset}{record}", printable(fault.message)


def _hidden(name: str, indices: Sequence[int]) -> str:
    listed = ", ".join(map(str, indices[:_INDICES_SHOWN]))
    listed += ", ..." * (len(indices) > _INDICES_SHOWN)
    count = human_count(len(indices), "record")
    return f"default hides: {name!r} is missing in {count} ({listed})"


def _feature_row(feature: FeatureStatistics, records: int) -> tuple[str, str, str, str, str]:
    if feature.dtype is None:
        dtype = "never set"
    else:
        dtype = feature.dtype.value + (" (mixed)" if len(feature.dtypes) > 1 else "")
    present = "all" if feature.present == records else f"{feature.present:,} of {records:,}"
    content = feature.described_content or ""
    return name_text(feature.name), dtype, present, lengths_text(feature), content


def _sample(sample: Sample) -> Lines:
    lines: list[str] = [Toned(_title(sample.record), Tone.TITLE)]
    if sample.parsed is None:
        return Lines([*lines, f"  {_value(sample.record.payload, _WIDTH - 4)}"])
    names = [*sample.parsed.values, *(misfit.name for misfit in sample.parsed.misfits)]
    width = min(max((len(name_text(name)) for name in names), default=0), _NAME_WIDTH)
    for name, value in sample.parsed.values.items():
        note = "  (default)" if name in sample.parsed.defaulted else ""
        room = _WIDTH - width - 6 - len(note)
        lines.append(f"  {name_text(name):{width}}  {_value(value, room)}{note}")
    for misfit in sample.parsed.misfits:
        text = f"expected {misfit.expected}, found {misfit.found}"
        lines.append(Toned(f"  {name_text(misfit.name):{width}}  {text}", Tone.BAD))
    return Lines(lines)


def _value(value: ParsedValue, room: int) -> str:
    """Return a value as text in at most ``room`` columns."""
    if isinstance(value, bytes):
        return _bytes(value, room)
    if isinstance(value, float):
        return str(shortest_float(value))
    if isinstance(value, int):
        return str(value)
    parts: list[str] = []
    used = 2
    for number, item in enumerate(value):
        part = _value(item, max(room // 2, 20))
        rest = f"... {len(value):,} in all"
        if number and used + len(part) + 2 + len(rest) > room:
            parts.append(rest)
            break
        parts.append(part)
        used += len(part) + 2
    return f"[{', '.join(parts)}]"


def _bytes(value: bytes, room: int) -> str:
    content = describe_bytes(value)
    if content not in ("text", "binary", "empty"):
        return f"<{content}, {len(value):,} bytes>"
    # A text is cut before it is made printable: it may be as long as the file.
    text = decode_text(value[: 4 * room]) if content == "text" else None
    shown = repr(value[:room]) if text is None else repr(text[:room])
    if len(shown) <= room and len(value) <= room:
        return shown
    note = f"... {len(value):,} bytes"
    return shown[: max(room - len(note) - 1, 8)] + note
