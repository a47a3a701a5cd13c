"""JSON values as HTML tables, for notebooks: a value on each line, long ones shortened."""

import html
from collections.abc import Mapping, Sequence
from typing import Any

from tfrtool.errors import human_count

_LONGEST, _ROWS, _COLUMNS = 100, 100, 16
"""Characters of a value, and rows and columns of a table, that are shown."""

_LEFT, _RIGHT = (f' style="text-align:{side};vertical-align:top"' for side in ("left", "right"))


def html_of(value: Any) -> str:
    """Return values as a table, followed by tables for the objects in them."""
    if not isinstance(value, Mapping):
        return html_table(("value",), [(value,)])
    if value and _are_all_objects(value):
        rows, names = _rows_of(value)
        return html_table(names, rows)
    simple = {name: item for name, item in value.items() if not _is_nested(item)}
    simple = {name: item for name, item in simple.items() if not _is_nothing(item)}
    parts = [html_table((), simple.items())] if simple else []
    for name, item in value.items():
        if _is_nested(item):
            if isinstance(item, Mapping) and not _are_all_objects(item):
                table = html_table((), item.items())
            else:
                rows, names = _rows_of(item)
                table = html_table(names, rows)
            parts.append(f"<p><strong>{_escaped(name)}</strong></p>{table}")
    return "".join(parts) or html_table((), ())


def html_table(head: Sequence[str], rows: Any) -> str:
    """Return a table; without a head the first column has the names of the values."""
    rows = list(rows)
    lines = ['<div style="overflow-x:auto"><table>']
    if head:
        cells = "".join(f"<th{_LEFT}>{_escaped(name)}</th>" for name in head)
        lines.append(f"<thead><tr>{cells}</tr></thead>")
    lines.append("<tbody>")
    for first, *others in rows[:_ROWS]:
        cells = "".join(
            f"<td{_side_of(one) if head else _LEFT}>{_escaped(one)}</td>" for one in others
        )
        lines.append(f"<tr><th{_LEFT}>{_escaped(first)}</th>{cells}</tr>")
    lines.append("</tbody></table></div>")
    if len(rows) > _ROWS:
        lines.append(f"<p>{len(rows) - _ROWS:,} more</p>")
    return "".join(lines)


def one_line(value: Any) -> str:
    """Return a value as text on one line, its beginning if it is long."""
    if isinstance(value, Mapping):
        items = list(value.items())[:_LONGEST]
        text = ", ".join(f"{name}: {one_line(item)}" for name, item in items)
    elif isinstance(value, list | tuple):
        is_short = len(value) <= _LONGEST and not any(isinstance(one, Mapping) for one in value)
        text = (
            f"[{', '.join(map(one_line, value))}]" if is_short else human_count(len(value), "item")
        )
    elif value is None or isinstance(value, bool):
        text = "" if value is None else str(value).lower()
    elif isinstance(value, int | float):
        text = f"{value:,}" if isinstance(value, int) else f"{value:.6g}"
    else:
        text = str(value)[: _LONGEST + 1]
    text = " ".join(text.split())
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


def _are_all_objects(value: Mapping[str, Any]) -> bool:
    return all(isinstance(item, Mapping) for item in value.values())


def _is_nothing(value: Any) -> bool:
    return value is None or (isinstance(value, Mapping | list | tuple) and not value)


def _is_nested(value: Any) -> bool:
    items = value.values() if isinstance(value, Mapping) else value
    return isinstance(items, list | tuple | type({}.values())) and any(
        isinstance(one, Mapping) for one in items
    )


def _rows_of(value: Any) -> tuple[list[tuple[Any, ...]], tuple[str, ...]]:
    """Return the rows of objects that have the same keys, more or less, and the columns."""
    named = isinstance(value, Mapping)
    pairs = list(value.items()) if named else list(enumerate(value))
    columns: dict[str, None] = {}
    for _, item in pairs:
        columns |= dict.fromkeys(item if isinstance(item, Mapping) else ("value",))
    items = [item for _, item in pairs if isinstance(item, Mapping)]
    shown = [
        name for name in columns if not items or any(item.get(name) is not None for item in items)
    ][:_COLUMNS]
    rows = []
    for name, item in pairs:
        cells = item if isinstance(item, Mapping) else {"value": item}
        rows.append(
            (name, *(cells.get(column) for column in shown))
            if named
            else tuple(cells.get(column) for column in shown)
        )
    return rows, ("", *shown) if named else tuple(shown)


def _escaped(value: Any) -> str:
    return html.escape(one_line(value))


def _side_of(value: Any) -> str:
    return _RIGHT if isinstance(value, int | float) and not isinstance(value, bool) else _LEFT
