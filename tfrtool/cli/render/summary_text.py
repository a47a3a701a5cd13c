"""A shard's summary as a page for people, in 80 columns."""

from collections.abc import Iterator

from tfrtool.cli.render.page import Bad, Good, Heading, Page, Table, facts, findings, page_width
from tfrtool.cli.render.schema_text import feature_table
from tfrtool.errors import human_bytes, human_count, printable
from tfrtool.examples.content import decode_text, describe_bytes
from tfrtool.examples.feature_text import name_text
from tfrtool.examples.parsing import ParsedValue
from tfrtool.inspection.summary.shard_summary import Sample, ShardSummary
from tfrtool.inspection.summary.summary_json import shortest_float
from tfrtool.records.compression import Compression
from tfrtool.records.framing import Record

_INDICES_SHOWN = 8
_PIECE = 64 * 1024
_NAME_WIDTH = 36
"""Columns that are set aside for names; longer ones take more."""


def summary_page(summary: ShardSummary, *, raw: bool = False) -> Page:
    """Return what ``inspect shard`` shows of a shard; ``raw`` leaves its records to `raw_page`."""
    shard = summary.shard
    crcs: str = Good("all match")
    if damage := summary.fault_count - summary.misfit_count:
        crcs = Bad(f"{human_count(damage, 'fault')}, see below")
    elif not summary.whole:
        crcs = "all match in the records that were read"
    packed = "uncompressed" if shard.compression is Compression.NONE else shard.compression.value
    about = facts(
        ("size", f"{human_bytes(shard.bytes)}, {packed}"),
        ("records", _records(summary)),
        ("payload", f"{summary.payload.title}, {human_bytes(summary.payload_bytes)}"),
        ("checksums", crcs),
    )
    page: list[str | Table] = [Heading(printable(str(shard.path))), about]
    found = [(one.title, printable(one.message)) for one in summary.faults]
    page += findings(found, summary.fault_count)
    if summary.features:
        page.append(feature_table(summary.features, summary.records))
    for name, indices in summary.hidden.items():
        listed = ", ".join(map(str, indices[:_INDICES_SHOWN]))
        listed += ", ..." * (len(indices) > _INDICES_SHOWN)
        count = human_count(len(indices), "record")
        page.append(f"default used for {name!r}, which is missing in {count} ({listed})")
    return page if raw else [*page, *(line for one in summary.sample for line in _sample(one))]


def _records(summary: ShardSummary) -> str:
    if summary.whole:
        return f"{summary.records:,}"
    read = f"{summary.records:,} read" if summary.records else "none read"
    if summary.total is None:
        return f"{read}; use --all to read the rest, or tfrtool count to count them"
    source = f" (from {printable(summary.counted_by)})" if summary.counted_by else ""
    return f"{summary.total:,}{source}; {read}, use --all to read the rest"


def raw_page(record: Record) -> Page:
    """Return what stands above a record's serialized bytes."""
    crcs = f"length CRC {record.length_crc:08x}, payload CRC {record.payload_crc:08x}"
    return [Heading(f"{_title(record)}, {crcs}")]


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
    size = human_count(len(record.payload), "byte")
    return f"record {record.index} at offset {record.offset}, {size}"


def _sample(sample: Sample) -> Iterator[str]:
    record, parsed = sample
    yield Heading(_title(record))
    if parsed is None:
        yield _value(record.payload, page_width() - 2)
        return
    names = [*parsed.values, *(misfit.name for misfit in parsed.misfits)]
    width = min(max((len(name_text(name)) for name in names), default=0), _NAME_WIDTH)
    for name, value in parsed.values.items():
        note = "  (default)" if name in parsed.defaulted else ""
        room = page_width() - width - 4 - len(note)
        yield f"{name_text(name):{width}}  {_value(value, room)}{note}"
    for misfit in parsed.misfits:
        text = f"expected {misfit.expected}, found {misfit.found}"
        yield Bad(f"{name_text(misfit.name):{width}}  {text}")


def _value(value: ParsedValue, room: int) -> str:
    """Return a value as text in at most ``room`` columns."""
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
        part = _value(item, max(room // 2, 20))
        used += len(part) + 2
        if parts and used + len(rest) > room:
            parts.append(rest)
            break
        parts.append(part)
    return f"[{', '.join(parts)}]"
