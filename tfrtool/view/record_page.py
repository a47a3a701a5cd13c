"""The page of one record: its images, values, faults and bytes."""

import json
from contextlib import suppress
from typing import Any

from tfrtool.errors import TfrtoolError, printable
from tfrtool.examples.example import Feature, PayloadKind, decode_example
from tfrtool.examples.objects.read_objects import read_objects
from tfrtool.inspection.pictures.objects import MAX_OBJECTS, hue_of, masks_of
from tfrtool.inspection.pictures.pictures import pictures_of
from tfrtool.inspection.rows.payload_json import PayloadJson
from tfrtool.inspection.table.record_query import Answer, Question, Row, answer, typed_values
from tfrtool.view.live import Live
from tfrtool.view.page_address import PageAddress, number_of, picture_url
from tfrtool.view.page_frame import render_page
from tfrtool.view.pieces import caption, record_name, short
from tfrtool.view.steps import is_camera, steps_of

LARGE = 2048
"""Longest side of the image of a record, in pixels."""

_HEX, _FOLDED, _MASKS = 4096, 200, 50
_LONGEST_LIST, _LONGEST_TEXT, _FEATURES = 1000, 20_000, 1000


def record_page(
    live: Live, asked: PageAddress, shard: int, record: int, start: int, step: int
) -> str:
    """Render a record, with one of its steps, and bytes from ``start`` on in hexadecimal."""
    found = live.found
    row = live.ask(answer, Question(record=(shard, record)), 0, 1).rows[0]
    number, near = number_of(asked.parameters.get("n", "0")), Answer()
    if "n" in asked.parameters:
        near = live.ask(answer, asked.question, max(number - 1, 0), 3)
    rows = {(one.shard, one.record): n for n, one in enumerate(near.rows, max(number - 1, 0))}
    item = live.reader.read(shard, row.offset)
    verdicts = () if found.verdict is None else found.verdict.shards
    number = rows.get((shard, record), number)
    page = number // asked.count + 1
    here = asked.url(f"/record/{shard}/{record}", n=asked.parameters.get("n"))
    return render_page(
        live,
        "record",
        row=row,
        item=item,
        name=record_name(found, shard, record),
        caption=caption(found, row),
        path=found.paths[shard],
        split=found.splits[shard],
        faults=[
            fault
            for one in verdicts
            if one.path == found.paths[shard]
            for fault in one.faults
            if fault.record == record
        ],
        number=number if (shard, record) in rows else None,
        total=near.total,
        near={n - number: asked.url(f"/record/{one[0]}/{one[1]}", n=n) for one, n in rows.items()},
        back=asked.url(page=page if page > 1 else None),
        like=None if row.width is None else f"/?like={shard}/{record}",
        here_url=here,
        hex_url=f"{here}{'&' if '?' in here else '?'}hex=",
        start=start,
        hex_step=_HEX,
        asked=asked,
        **_content(live, row, b"" if item is None else item.payload, step),
        hex=_hex(b"" if item is None else item.payload, start),
    )


def _content(live: Live, row: Row, payload: bytes, step: int) -> dict[str, Any]:
    """Return the images and the features of a record, and one of its steps."""
    roles, features = live.found.roles(row.shard), dict[str, Feature]()
    with suppress(ValueError):  # of another kind
        features = dict(decode_example(payload, PayloadKind.SEQUENCE_EXAMPLE).features)
    objects = read_objects(features, roles.object_names, MAX_OBJECTS)
    parts, misfit = _typed_parts(live, payload)
    steps = None if parts is None else steps_of(live, row, payload, step)
    if parts is None:
        parts = _stored_parts(payload)
    has_pictures = bool(roles.image and payload) and (steps is None or not is_camera(live, roles))
    pictures = list(pictures_of(payload, roles, 1)) if has_pictures else []
    return {
        "misfit": misfit,
        "steps": steps,
        "pictures": [
            {
                "picture": one,
                "src": f"{picture_url(row, LARGE)}&image={number}",
                "label": " ".join(map(printable, filter(None, (label, where, one.size)))),
                "font": one.width / (16 if one.width < 256 else 48),
                "boxes": [] if number else _boxes(objects.objects, one.width, one.height),
                "masks": [
                    f"/mask/{row.shard}/{row.offset}/{n}"
                    for n in range(0 if number else min(len(masks_of(objects)), _MASKS))
                ],
            }
            for number, (label, where, one) in enumerate(pictures)
        ],
        "features": [
            _feature(live, name, value, is_label=name == roles.label)
            for name, value in list(parts.items() if payload else ())[:_FEATURES]
        ],
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


def _boxes(objects: Any, width: int, height: int) -> list[dict[str, Any]]:
    """Return the boxes of objects, in pixels."""
    return [
        {"x": x0 * width, "y": y0 * height, "width": (x1 - x0) * width, "colour": hue_of(one),
         "height": (y1 - y0) * height, "text": printable(one.title) or str(number)}
        for number, one in enumerate(objects, 1)
        if one.can_be_drawn
        for x0, y0, x1, y1 in [one.box]
        if x0 < x1 and y0 < y1
    ]  # fmt: skip


def _feature(live: Live, name: str, value: Any, *, is_label: bool) -> dict[str, Any]:
    """Return a feature's name, the beginning of its value, and all of it if that is longer."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    if isinstance(value, dict) and set(value) == {"bytes", "content"}:
        text = f"{value['bytes']:,} bytes of {value['content']}"
    names = live.found.table.class_names
    if is_label and isinstance(value, int) and 0 <= value < len(names):
        text = f"{value} {names[value]}"
    count = f"{len(value):,} values" if isinstance(value, list) else f"{len(text):,} characters"
    cut = f" ... {len(text) - _LONGEST_TEXT:,} more characters" * (len(text) > _LONGEST_TEXT)
    long_text = text[:_LONGEST_TEXT] + cut if len(text) > _FOLDED else None
    return {
        "name": short(name, 400),
        "text": printable(text[:_FOLDED]),
        "long_text": long_text,
        "count": count,
    }


def _hex(payload: bytes, start: int) -> list[str]:
    """Return lines like those of ``hexdump -C``."""
    return [
        f"{at:08x}  {part.hex(' '):47}  {''.join(chr(b) if 32 <= b < 127 else '.' for b in part)}"
        for at in range(start, min(start + _HEX, len(payload)), 16)
        for part in [payload[at : at + 16]]
    ]
