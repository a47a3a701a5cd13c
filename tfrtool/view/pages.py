"""The viewer's pages: the records of a question, one record, and an overview of all."""

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any
from urllib.parse import urlencode

from tfrtool.errors import TfrtoolError, UsageError, human_bytes, human_count, printable
from tfrtool.examples.example import Feature, PayloadKind, decode_example
from tfrtool.examples.objects.read_objects import read_objects
from tfrtool.inspection.pictures.objects import MAX_OBJECTS, hue_of, masks_of
from tfrtool.inspection.pictures.pictures import pictures_of
from tfrtool.inspection.rows.payload_json import PayloadJson
from tfrtool.inspection.table.record_query import (
    BYTES,
    PIXELS,
    Answer,
    Question,
    RecordKey,
    Row,
    answer,
    columns_of,
    typed_values,
)
from tfrtool.view.live import Live
from tfrtool.view.pieces import (
    NO_SPLIT,
    SECTIONS,
    Links,
    caption,
    environment,
    named_class,
    record_name,
    section,
    short,
)
from tfrtool.view.steps import is_camera, steps_of

THUMBS = {"s": 96, "m": 160, "l": 320}
"""Longest side of thumbnails, in pixels."""

LARGE = 2048
"""Longest side of the image of a record, in pixels."""

_PAGE = {"s": 120, "m": 60, "l": 24, "table": 100}
"""Records per page."""

_COLUMNS, _FACET, _HEX, _FOLDED, _MASKS = 12, 12, 4096, 200, 50
_LONGEST_LIST, _LONGEST_TEXT, _LONGEST_CELL, _FEATURES = 1000, 20_000, 500, 1000
_FACETS = {"split": "Split", "label": "Class", "shard": "Shard", "fault": "Faults",
           "copies": "Duplicates", "size": "Size", "marked": "Marks"}  # fmt: skip
_KNOWN = ("where", "was", "text", "split", "label", "shard", "fault", "size", "copies", "like",
          "marked", "sort", "descending", "page", "n", "thumb", "view", "all")  # fmt: skip


class PageAddress:
    """What an address asks for.

    Attributes:
        parameters: its query parameters, without unknown and empty ones.
        question: the same as a question.
        page: number of the page, from 1.
        thumb: size of thumbnails.
        count: records per page.
    """

    def __init__(self, query: Mapping[str, str], *, has_images: bool) -> None:
        """Read the parameters; `UsageError` if a number isn't one."""
        self.parameters = {
            name: query[name].replace("\0", "")
            for name in _KNOWN
            if name in query and (query[name].strip() or name == "split")
        }
        parameters = self.parameters
        copies = parameters.get("copies")
        self.page = max(1, min(number_of(parameters.get("page", "1")), 10**9))
        self.question = Question(
            where=parameters.get("where", ""),
            text=parameters.get("text", ""),
            split=parameters.get("split"),
            label=parameters.get("label"),
            shard=number_of(parameters["shard"]) if "shard" in parameters else None,
            fault=parameters.get("fault"),
            size=number_of(parameters["size"]) if "size" in parameters else None,
            copies=copies if copies in (None, "any") else parse_record_key(copies),
            like=parse_record_key(parameters["like"]) if "like" in parameters else None,
            marked={"1": True, "0": False}.get(parameters.get("marked", "")),
            sort=parameters.get("sort", ""),
            descending=parameters.get("descending") == "1",
        )
        self.thumb = parameters.get("thumb", "m") if parameters.get("thumb", "m") in THUMBS else "m"
        self.as_table = not has_images or parameters.get("view") == "table"
        self.count = _PAGE["table" if self.as_table else self.thumb]

    def url(self, path: str = "/", /, **changes: Any) -> str:
        """Return an address with some parameters changed; None removes one."""
        merged = self.parameters | {"page": None, "n": None, "was": None} | changes
        parameters = {name: value for name, value in merged.items() if value is not None}
        return f"{path}?{urlencode(parameters)}" if parameters else path


def number_of(text: str) -> int:
    """Return a number in an address; `UsageError` if it isn't one."""
    if re.fullmatch("[0-9]{1,18}", text) is None:
        raise UsageError("invalid number in the address")
    return int(text)


def parse_record_key(text: str) -> RecordKey:
    """Return the shard and the record that a text like "3/12" names."""
    shard, _, record = text.partition("/")
    return number_of(shard), number_of(record)


def progress(live: Live) -> str:
    """Return how far reading is, with counts."""
    step = live.found.progress
    if live.done or step is None:
        return ""
    share = f"{100 * step.done / step.total:.0f} %, " if step.total else ""
    so_far = "" if live.found.table_done else " so far"
    count = human_count(live.found.table.rows, "record")
    return f"{step.what.capitalize()}: {share}{count}{so_far}"


def _render(live: Live, template: str, **values: Any) -> str:
    """Return a page; ``here`` is its name without the ending."""
    errors = live.found.errors.items()
    quiet = ("schema", "statistics")  # of records that aren't Examples
    shown = [f"{step.removesuffix('_done')}: {why}" for step, why in errors if step not in quiet]
    page = environment().get_template(f"{template}.html")
    return page.render(  # type: ignore[no-any-return]
        f=live.found,
        heading=live.found.title,
        here=template,
        progress=progress(live),
        version=live.version,
        done=live.done,
        marks=live.marks,
        warnings=shown,
        **values,
    )


def records_page(live: Live, asked: PageAddress) -> str:
    """Render the records of a question. With an error, those of the last question that had none."""
    found, question, problem, result = live.found, asked.question, None, Answer()
    first = (asked.page - 1) * asked.count
    words = {"features": _COLUMNS * asked.as_table, "facets": True}
    for _ in range(2 * bool(found.table.pieces)):
        try:
            result = live.ask(answer, question, first, asked.count, **words)
            break
        except TfrtoolError as error:
            problem = problem or error
            question = replace(question, where=asked.parameters.get("was", ""), sort="")
    features, columns, examples = _columns(live)
    items = [
        {
            "row": row,
            "key": f"{row.shard}/{row.record}",
            "name": record_name(found, row.shard, row.record),
            "caption": caption(found, row),
            "href": asked.url(f"/record/{row.shard}/{row.record}", n=first + n),
            "src": picture_url(row, THUMBS["s" if asked.as_table else asked.thumb]),
            "cells": [
                {"text": short(_cell(value), _LONGEST_CELL), "is_number": _is_number(value)}
                for value in (result.values[n] if result.values else ())
            ],
        }
        for n, row in enumerate(result.rows)
    ]
    return _render(
        live,
        "records",
        asked=asked,
        question=question,
        problem=problem,
        items=items,
        total=result.total,
        pages=max(1, -(-result.total // asked.count)),
        first=first,
        columns=columns,
        features=features[:_COLUMNS],
        more_columns=len(features) - _COLUMNS,
        examples=examples,
        facets=_facets(live, asked, result),
    )


def picture_url(row: Row, box: int) -> str:
    """Return the address of an image."""
    return f"/image/{row.shard}/{row.offset}?box={box}"


def _columns(live: Live) -> tuple[list[str], list[str], list[str]]:
    """Return features, columns and example conditions; they are asked for again as rows double."""
    stage = -1 if live.found.table_done else live.found.table.rows.bit_length()
    if live.columns[0] != stage and live.found.table.pieces:
        with suppress(TfrtoolError):  # the next page tries again
            live.columns = stage, live.ask(columns_of)
    return live.columns[1]


def _facets(live: Live, asked: PageAddress, result: Answer) -> list[dict[str, Any]]:
    """Return the filters with their counts; those with one value only if it is chosen."""
    shown = []
    for name, title in _FACETS.items():
        chosen = asked.parameters.get(name)
        counts = {str(value): count for value, count in result.facets.get(name, ()) if count}
        if name == "fault" and counts:
            counts = {"any": sum(counts.values()), **counts}
        elif name == "marked":
            counts = {"1": counts["True"]} if "True" in counts else {}
        elif name in ("shard", "size"):
            counts = dict(
                sorted(counts.items(), key=lambda entry: int(entry[0]) or 10**9 * (name == "size"))
            )
        if name not in ("fault", "copies", "marked") and len(counts) < 2 and chosen is None:
            continue
        most = None if asked.parameters.get("all") == name else _FACET
        listed = [*counts][:most]
        if chosen is not None and chosen not in listed:
            listed.append(chosen)
        items = [
            {
                "name": _facet_value(live, name, value),
                "count": counts.get(value),
                "chosen": value == chosen,
                "href": asked.url(**{name: None if value == chosen else value}),
            }
            for value in listed
        ]
        left = len(counts) - len(listed)
        if items:
            more = asked.url(all=name)
            shown.append({"title": title, "items": items, "left": left, "more": more})
    return shown


def _facet_value(live: Live, name: str, value: str) -> str:
    names = live.found.names
    if name == "label":
        return short(named_class(live.found, value))
    if name == "shard":
        return names[int(value)] if int(value) < len(names) else value
    if name == "size":
        bounds = PIXELS if live.found.has_images else BYTES
        bound = int(value) or bounds[-1]
        text = f"{bound} px" if live.found.has_images else human_bytes(bound)
        return f"{'up to' if int(value) else 'over'} {text}"
    if name == "copies":
        return "same image more than once" if value == "any" else f"same image as {short(value)}"
    known = {"split": {"": NO_SPLIT}, "marked": {"1": "marked"}}
    return known.get(name, {"any": "all with a fault"}).get(value) or short(value)


def _cell(value: Any, *, in_struct: bool = False) -> str:
    """Return a value for a table; texts in structs are in quotes."""
    if isinstance(value, list | tuple):
        items = [_cell(one, in_struct=in_struct) for one in value[:8]]
        return f"[{', '.join(items)}{', ...' * (len(value) > 8)}]"
    if isinstance(value, dict):
        fields = {name: one for name, one in value.items() if one is not None}
        items = [f'"{short(name)}": {_cell(one, in_struct=True)}' for name, one in fields.items()]
        return f"{{{', '.join(items)}}}"
    if in_struct and isinstance(value, str):
        return json.dumps(short(value, 60), ensure_ascii=False)
    if isinstance(value, bytes):
        return f"{len(value):,} bytes"
    if isinstance(value, bool):
        return str(value).lower()
    return (
        f"{value:.6g}"
        if isinstance(value, float)
        else short(str("" if value is None else value), 60)
    )


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


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
    return _render(
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


def overview_page(live: Live) -> str:
    """Render the sections of the report, with links to the records."""
    asked = PageAddress({}, has_images=live.found.has_images)
    if live.overview[0] != live.version:
        links = Links(
            lambda row: picture_url(row, THUMBS["s"]),
            lambda shard, record: f"/record/{shard}/{record}",
            lambda **filters: asked.url(**filters),
        )
        shown = {name: section(name, live.found, links) for name in SECTIONS}
        live.overview = live.version, {name: html for name, html in shown.items() if html}
    return _render(live, "overview", sections=live.overview[1], titles=SECTIONS)
