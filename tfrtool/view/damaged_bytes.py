"""The bytes of a damaged part of a shard, in hexadecimal, with what is wrong marked."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from tfrtool.inspection.verify.causes import Causes
from tfrtool.records.framing import FOOTER_SIZE, HEADER_SIZE, LENGTH, Fault, FaultKind
from tfrtool.view.live import Live
from tfrtool.view.page_frame import render_page

_LINE, _BEFORE, _AFTER, _FIRST = 16, 64, 256, 64
"""Bytes of a line, and those that are shown before and after a mark, and of a record's start."""

_TO_THE_END = frozenset({FaultKind.TRUNCATED, FaultKind.TRAILING_BYTES, FaultKind.DECOMPRESSION})


class _Region(NamedTuple):
    """Some bytes of a shard, and what they are."""

    start: int
    end: int
    kind: str


def damage_page(live: Live, shard: int, offset: int) -> str:
    """Render the page of a fault at an offset of a shard.

    `IndexError` if there is none.
    """
    found = live.found
    faults = faults_of(live, shard)
    number = next((n for n, fault in enumerate(faults) if fault.offset == offset), None)
    if number is None:
        raise IndexError("no such fault")
    near = {
        step: f"/damage/{shard}/{faults[number + step].offset}"
        for step in (-1, 1)
        if 0 <= number + step < len(faults)
    }
    return render_page(
        live,
        "damage",
        fault=faults[number],
        number=number,
        total=len(faults),
        near=near,
        path=found.paths[shard],
        damage=damaged_bytes(live, shard, faults[number]),
    )


def faults_of(live: Live, shard: int) -> Sequence[Fault]:
    """Return the faults of a shard, in file order."""
    found, verdict = live.found, live.found.verdict
    shards = () if verdict is None else verdict.shards
    return [fault for one in shards if one.path == found.paths[shard] for fault in one.faults]


def damaged_bytes(live: Live, shard: int, fault: Fault) -> dict[str, Any]:
    """Return lines of bytes around a fault, with the parts of the record and the marked bytes."""
    regions = _regions(live, shard, fault)
    marked = [one for one in regions if one.kind == "marked"]
    starts = [(fault.offset, _FIRST), *((one.start, _AFTER) for one in marked)]
    lines, end = list[dict[str, Any]](), -1
    for start, size in sorted(starts):
        first = max(start - (_BEFORE if start != fault.offset else 0), 0) // _LINE * _LINE
        first = max(first, end)
        stop = -(-(start + size) // _LINE) * _LINE
        data = live.reader.read_bytes(shard, first, max(stop - first, 0))
        if lines and first > end and data:
            lines.append({"gap": first - end})
        lines += _lines(data, first, regions)
        end = max(end, first + len(data))
    return {"lines": lines, "has_mark": bool(marked)}


def _regions(live: Live, shard: int, fault: Fault) -> list[_Region]:
    """Return what the bytes of a record are, and those that are wrong."""
    start = fault.offset
    header = live.reader.read_bytes(shard, start, HEADER_SIZE)
    if len(header) < HEADER_SIZE or fault.kind in _TO_THE_END:
        return [_Region(start, start + _AFTER, "marked")]
    length_end, header_end = start + LENGTH.size, start + HEADER_SIZE
    found = [_Region(start, length_end, "length"), _Region(length_end, header_end, "crc")]
    flip = _flipped_byte(live, shard, fault)
    if fault.kind is FaultKind.PAYLOAD_CRC:
        (length,) = LENGTH.unpack_from(header)
        crc = _Region(header_end + length, header_end + length + FOOTER_SIZE, "crc")
        found.append(crc)
        marked = crc._replace(kind="marked") if flip is None else _Region(flip, flip + 1, "marked")
    elif flip is not None:
        marked = _Region(flip, flip + 1, "marked")
    else:
        end = length_end if fault.kind is FaultKind.OVERSIZED_LENGTH else header_end
        marked = _Region(start, end, "marked")
    return [marked, *found]


def _flipped_byte(live: Live, shard: int, fault: Fault) -> int | None:
    """Return the offset of the byte with the one bit that is wrong, if it is a single one."""
    verdict, path = live.found.verdict, live.found.paths[shard]
    profiles = () if verdict is None else verdict.shards
    profile = next((one for one in profiles if one.path == path), None)
    if profile is None or profile.shard is None:
        return None
    flip = Causes(profile.shard, profile.records, path).flipped_bit(fault)
    return None if flip is None else flip[0]


def _lines(data: bytes, first: int, regions: Sequence[_Region]) -> list[dict[str, Any]]:
    """Return lines like those of ``hexdump -C``, each in parts of one kind."""
    lines = []
    for start in range(0, len(data), _LINE):
        parts = list[dict[str, str]]()
        part = data[start : start + _LINE]
        for at, byte in enumerate(part, first + start):
            kind = next((one.kind for one in regions if one.start <= at < one.end), "")
            if not parts or parts[-1]["kind"] != kind:
                parts.append({"kind": kind, "text": ""})
            parts[-1]["text"] += f"{byte:02x} "
        texts = [{"kind": one["kind"], "text": one["text"].strip()} for one in parts]
        shown = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in part)
        padding = " " * (3 * (_LINE - len(part)))
        line = {"offset": f"{first + start:08x}", "parts": texts, "padding": padding}
        lines.append({"gap": 0, "text": shown, **line})
    return lines
