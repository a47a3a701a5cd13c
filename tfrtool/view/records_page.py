"""The page of the records of a question, as a grid or a table."""

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any

from tfrtool.errors import TfrtoolError
from tfrtool.examples.content import describe_bytes
from tfrtool.inspection.table.record_query import Answer, Row, ShownColumns, answer, columns_of
from tfrtool.inspection.table.record_table import OBJECT_CLASSES
from tfrtool.view.column_heads import column_heads
from tfrtool.view.facets import list_conditions, list_facets
from tfrtool.view.live import Live
from tfrtool.view.page_address import THUMBS, PageAddress, picture_url
from tfrtool.view.page_frame import render_page
from tfrtool.view.pieces import caption, record_name, short, shown_prediction
from tfrtool.view.same_records import same_records
from tfrtool.view.tag_bar import list_tags, tag_commands

_COLUMNS, _LONGEST_CELL, _LONGEST_TEXT, _ONE_LINE = 24, 500, 300, 40


def records_page(live: Live, asked: PageAddress) -> str:
    """Render the records of a question. With an error, those of the last question that had none."""
    found, question, problem, result = live.found, asked.question, None, Answer()
    first = (asked.page - 1) * asked.count
    known = _columns(live)
    most = len(known.shown) if asked.parameters.get("all") == "columns" else _COLUMNS
    file_name, in_classes = found.roles(0).name, {found.label, *OBJECT_CLASSES}
    options: dict[str, Any] = {
        "columns": known.shown[:most] if asked.as_table else [file_name or ""],
        "facets": True,
        "value_facets": [name for name in known.facets if name not in in_classes],
    }
    for _ in range(2 * bool(found.table.pieces)):
        try:
            result = live.ask(answer, question, first, asked.count, **options)
            break
        except TfrtoolError as error:
            problem = problem or error
            before = asked.parameters.get("was", "")
            question = replace(question, where=before, sort="", values=(), ranges=())
    items = [
        _item(live, asked, row, first + n, _values(result, n, options["columns"]))
        for n, row in enumerate(result.rows)
    ]
    return render_page(
        live,
        "records",
        asked=asked,
        question=question,
        problem=problem,
        items=items,
        has_classes=any(one["caption"] for one in items),
        total=result.total,
        pages=max(1, -(-result.total // asked.count)),
        first=first,
        columns=known.names,
        heads=column_heads(found.statistics, known.shown[:most], known, found.label, asked),
        more_columns=len(known.shown) - most,
        examples=known.examples,
        facets=list_facets(live, asked, result),
        conditions=list_conditions(asked, result),
        same=None if problem or not result.total else same_records(live, asked),
        tags=list_tags(live, asked),
        commands=tag_commands(live, asked.tag),
    )


def _values(result: Answer, number: int, names: Sequence[str]) -> tuple[Any, ...]:
    """Return the values of a row, and what those are that the table has no room for."""
    long, values = result.rows[number].long or {}, result.values[number] if result.values else ()
    if len(values) != len(names):  # a column isn't there yet
        return values
    return tuple(
        long.get(name) if value is None else value
        for name, value in zip(names, values, strict=True)
    )


def _item(
    live: Live, asked: PageAddress, row: Row, number: int, values: tuple[Any, ...]
) -> dict[str, Any]:
    """Return what the grid or the table shows of a record, by its number in the question."""
    name = record_name(live.found, row.shard, row.record)
    file_name = values[0] if values and not asked.as_table else None
    file_name = PurePosixPath(file_name).name if isinstance(file_name, str) else ""
    classes = caption(live.found, row)
    lines = [classes, short(file_name), name if not (classes and file_name) else ""]
    return {
        "row": row,
        "key": asked.key(row),
        "is_tagged": asked.tag in row.tags,
        "prediction": shown_prediction(row),
        "id": f"r{row.shard}-{row.record}",
        "name": name,
        "caption": classes,
        "lines": [line for line in lines if line],
        "href": asked.url(live.found.record_names.path(row.shard, row.record), n=number),
        "src": picture_url(row, THUMBS["s" if asked.as_table else asked.thumb]),
        "cells": [
            {
                "text": text,
                "is_number": _is_number(value),
                "is_long": isinstance(value, str) and len(text) > _ONE_LINE,
            }
            for value in (values if asked.as_table else ())
            for text in [short(_cell(value), _LONGEST_CELL)]
        ],
    }


def _columns(live: Live) -> ShownColumns:
    """Return the columns; they are asked for again as rows double."""
    stage = -1 if live.found.table_done else live.found.table.rows.bit_length()
    if live.columns[0] != stage and live.found.table.pieces:
        with suppress(TfrtoolError):  # the next page tries again
            live.columns = stage, live.ask(columns_of)
    return live.columns[1]


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
        kind = describe_bytes(value)
        return f"{kind}, {len(value):,} bytes" if "/" in kind else f"{len(value):,} bytes"
    if isinstance(value, bool):
        return str(value).lower()
    return (
        f"{value:.6g}"
        if isinstance(value, float)
        else short(str("" if value is None else value), _LONGEST_TEXT)
    )


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
