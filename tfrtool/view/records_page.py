"""The page of the records of a question, as a grid or a table."""

import json
from contextlib import suppress
from dataclasses import replace
from typing import Any

from tfrtool.errors import TfrtoolError
from tfrtool.inspection.table.record_query import Answer, answer, columns_of
from tfrtool.view.facets import list_facets
from tfrtool.view.live import Live
from tfrtool.view.page_address import THUMBS, PageAddress, picture_url
from tfrtool.view.page_frame import render_page
from tfrtool.view.pieces import caption, record_name, short

_COLUMNS, _LONGEST_CELL = 12, 500


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
    return render_page(
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
        facets=list_facets(live, asked, result),
    )


def _columns(live: Live) -> tuple[list[str], list[str], list[str]]:
    """Return features, columns and example conditions; they are asked for again as rows double."""
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
