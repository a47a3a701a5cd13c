"""The page of one record: its images, values, faults and bytes."""

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, NamedTuple
from urllib.parse import urlencode

from tfrtool.errors import TfrtoolError, UsageError, printable
from tfrtool.examples.arrow.columns import LISTS
from tfrtool.features.sequence_columns import SequenceColumns
from tfrtool.inspection.rows.payload_json import PayloadJson
from tfrtool.inspection.table.record_query import (
    Question,
    RecordKey,
    Row,
    answer,
    position_of,
    typed_values,
)
from tfrtool.view.damaged_bytes import damaged_bytes, faults_of
from tfrtool.view.live import Live
from tfrtool.view.page_address import PageAddress, number_of
from tfrtool.view.page_frame import render_page
from tfrtool.view.pieces import caption, record_name, short, shown_prediction
from tfrtool.view.record_media import media_shown, pictures_shown
from tfrtool.view.steps import is_camera, steps_of
from tfrtool.view.tag_bar import tags_of_record

_HEX, _FOLDED, _ROWS, _COLUMNS, _CELL = 4096, 200, 200, 50, 200
_LONGEST_LIST, _LONGEST_TEXT, _FEATURES = 1000, 20_000, 1000

_MORE = re.compile(r"\.\.\. ([0-9,]+) more")

_SUMMARY = {"bytes", "content"}
"""The keys of what `PayloadJson` has in place of bytes that are no text."""


def record_page(
    live: Live, asked: PageAddress, shard: int, record: int, start: int, step: int, camera: int
) -> str:
    """Render a record, with one of its steps, and bytes from ``start`` on in hexadecimal.

    A filmstrip of one camera leads to the other steps.
    """
    found = live.found
    row = live.ask(answer, Question(record=(shard, record)), 0, 1).rows[0]
    near = _find_neighbours(live, asked, (shard, record))
    item = live.reader.read(shard, row.offset)
    payload = b"" if item is None else item.payload
    faults = [fault for fault in faults_of(live, shard) if fault.record == record]
    wrong = [fault for fault in faults if fault.offset == row.offset]
    page, around = near.number // near.asked.count + 1, near.asked
    path, address_name = found.record_names.path, found.record_names.name(shard, record)
    here = around.url(path(shard, record), n=near.number)
    return render_page(
        live,
        "record",
        row=row,
        item=item,
        name=record_name(found, shard, record),
        caption=caption(found, row),
        prediction=shown_prediction(row),
        tags=tags_of_record(live, asked, row),
        path=found.paths[shard],
        split=found.splits[shard],
        faults=faults,
        number=near.number,
        total=near.total,
        near={n - near.number: around.url(path(*one), n=n) for one, n in near.rows.items()},
        back=f"{around.url(page=page if page > 1 else None)}#r{shard}-{record}",
        like=None if row.width is None else f"/?{urlencode({'like': address_name})}",
        here_url=here,
        hex_url=f"{here}{'&' if '?' in here else '?'}hex=",
        start=start,
        hex_step=_HEX,
        asked=asked,
        **_content(live, row, payload, step, camera),
        hex=_hex(payload, start),
        damage=damaged_bytes(live, shard, wrong[0]) if wrong and item is None else None,
    )


class _Neighbours(NamedTuple):
    """A record among those of a question, and the records before and after it.

    Attributes:
        asked: the question; that of all records if the record isn't one of its.
        number: which one the record is, from 0.
        total: number of records.
        rows: the numbers of the record and of those next to it.
    """

    asked: PageAddress
    number: int
    total: int
    rows: dict[RecordKey, int]


def _find_neighbours(live: Live, asked: PageAddress, key: RecordKey) -> _Neighbours:
    """Return where a record is; the number in the address is right unless records were added."""
    number = number_of(asked.parameters["n"]) if "n" in asked.parameters else None
    near = None if number is None else _neighbours(live, asked, number)
    if near is None or key not in near.rows:
        with suppress(UsageError):  # of the condition
            number = live.ask(position_of, asked.question, key)
        if number is None or (near is not None and key not in near.rows and number == near.number):
            asked = PageAddress({}, live.found)
            number = live.ask(position_of, asked.question, key)
        near = _neighbours(live, asked, number or 0)
    return near._replace(number=near.rows.get(key, near.number))


def _neighbours(live: Live, asked: PageAddress, number: int) -> _Neighbours:
    first = max(number - 1, 0)
    found = live.ask(answer, asked.question, first, 3)
    rows = {(one.shard, one.record): n for n, one in enumerate(found.rows, first)}
    return _Neighbours(asked, number, found.total, rows)


def _content(live: Live, row: Row, payload: bytes, step: int, camera: int) -> dict[str, Any]:
    """Return the images, sounds, videos and values of a record, and one of its steps."""
    roles = live.found.roles(row.shard)
    parts, misfit = _typed_parts(live, payload)
    steps = None if parts is None else steps_of(live, row, payload, step, camera, parts)
    if parts is None:
        parts = _stored_parts(payload)
    has_pictures = bool(roles.image and payload) and (steps is None or not is_camera(live, roles))
    values, tables = dict[str, Any](), list[dict[str, Any]]()
    if isinstance(live.found.declared, SequenceColumns) and misfit == "":
        parts = {**parts, LISTS: _rows_of_lists(parts.get(LISTS, {}))}
    for name, value in _flat_parts(parts if payload else {}):
        if _is_table(value):
            tables.append(_table(name, value))
        else:
            values[name] = value
    return {
        "misfit": misfit,
        "steps": steps,
        "step_url": live.found.record_names.path(row.shard, row.record),
        "pictures": pictures_shown(live, row, payload) if has_pictures else [],
        "media": media_shown(live, row, payload),
        "tables": tables,
        "features": [
            _feature(live, name, value, is_label=name == roles.label)
            for name, value in list(values.items())[:_FEATURES]
        ],
    }


def _flat_parts(parts: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the values of a record with their paths, as the table of records has them."""
    for name, value in parts.items():
        if isinstance(value, dict) and value and set(value) != _SUMMARY:
            yield from _flat_parts(value, f"{path}{name}/")
        else:
            yield f"{path}{name}", value


def _rows_of_lists(lists: Mapping[str, list[Any]]) -> list[dict[str, Any]]:
    """Return the steps of feature lists, with the values that each of them has."""
    count = max(map(len, lists.values()), default=0)
    return [
        {name: values[step] for name, values in lists.items() if step < len(values)}
        for step in range(count)
    ]


def _is_table(value: Any) -> bool:
    """Return whether a value is a list of structs; a last text says how many more there are."""
    is_list = isinstance(value, list) and len(value) > 0 and isinstance(value[0], dict)
    return is_list and set(value[0]) != _SUMMARY


def _table(name: str, items: list[Any]) -> dict[str, Any]:
    """Return a list of structs as a table with a row for each."""
    rows = [dict(_flat_parts(one)) for one in items[:_ROWS] if isinstance(one, dict)]
    heads = list(dict.fromkeys(name for row in rows for name in row))[:_COLUMNS]
    notes = [one for one in items if isinstance(one, str)]
    left = len(items) - len(notes) - len(rows)
    return {
        "name": short(name, 400),
        "count": len(items) - len(notes),
        "heads": [short(head) for head in heads],
        "rows": [
            [
                {
                    "text": "" if row.get(head) is None else short(_text_of(row[head]), _CELL),
                    "is_number": isinstance(row.get(head), int | float),
                }
                for head in heads
            ]
            for row in rows
        ],
        "note": notes[0] if notes else f"... {left:,} more" if left > 0 else "",
    }


def _typed_parts(live: Live, payload: bytes) -> tuple[dict[str, Any] | None, str]:
    """Return the values that features.json describes, or why a record hasn't those."""
    if live.found.declared is None or not payload:
        return None, ""
    try:
        found = live.ask(typed_values, payload, live.found.declared, _LONGEST_LIST)
    except TfrtoolError as error:  # such as too little memory
        return None, str(error)
    return (None, found) if isinstance(found, str) else (found, "")


def _stored_parts(payload: bytes) -> dict[str, Any]:
    """Return the values of features as a record stores them."""
    parts: dict[str, Any] = {}
    described = PayloadJson(most=_LONGEST_LIST).describe(payload)
    for part, values in described.items():
        if part in ("features", "context", "feature_lists"):
            parts |= {f"{part}.{name}" if name in parts else name: v for name, v in values.items()}
        else:
            parts[part] = values
    return parts


def _feature(live: Live, name: str, value: Any, *, is_label: bool) -> dict[str, Any]:
    """Return a feature's name, the beginning of its value, and all of it if that is longer."""
    text = _text_of(value)
    names = live.found.table.class_names
    if is_label and isinstance(value, int) and 0 <= value < len(names):
        text = f"{value} {names[value]}"
    count = f"{len(text):,} characters"
    if isinstance(value, list):
        count = f"{_count_of(value):,} values"
    cut = f" ... {len(text) - _LONGEST_TEXT:,} more characters" * (len(text) > _LONGEST_TEXT)
    long_text = text[:_LONGEST_TEXT] + cut if len(text) > _FOLDED else None
    return {
        "name": short(name, 400),
        "text": printable(text[:_FOLDED]),
        "long_text": long_text,
        "count": count,
    }


def _count_of(values: list[Any]) -> int:
    """Return how many values a list has; if it is cut, a last text says how many more."""
    is_cut = len(values) == _LONGEST_LIST + 1 and isinstance(values[-1], str)
    found = _MORE.fullmatch(values[-1]) if is_cut else None
    return len(values) if found is None else _LONGEST_LIST + int(found[1].replace(",", ""))


def _text_of(value: Any) -> str:
    """Return a value as text, or what it is if it is bytes."""
    if isinstance(value, dict) and set(value) == _SUMMARY:
        return f"{value['bytes']:,} bytes of {value['content']}"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _hex(payload: bytes, start: int) -> list[str]:
    """Return lines like those of ``hexdump -C``."""
    return [
        f"{at:08x}  {part.hex(' '):47}  {''.join(chr(b) if 32 <= b < 127 else '.' for b in part)}"
        for at in range(start, min(start + _HEX, len(payload)), 16)
        for part in [payload[at : at + 16]]
    ]
