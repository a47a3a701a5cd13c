"""Drawings as inline SVG. Colors are classes (``c0`` ... ``c9``), which the style sheet fills."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from markupsafe import Markup, escape

COLORS = 10
"""Classes of colors; more series than that share them."""

_LETTER = 6.5
"""Pixels that a letter of 11 pixels takes, roughly."""


def histogram(counts: Sequence[float], edges: Sequence[float], *, height: int = 48) -> Markup:
    """Draw a histogram, labelled with its range and the count of its largest bar."""
    most = max(counts, default=0)
    if not most:
        return Markup("")
    label = f"histogram from {number(edges[0])} to {number(edges[-1])}, largest bar {number(most)}"
    return columns([ChartBar(count) for count in counts], label, height=height)


class ChartBar(NamedTuple):
    """A vertical bar.

    Attributes:
        height: how high it is; the highest one takes all of the drawing.
        title: what a pointer on it shows, and a screen reader reads.
        href: the address that a click opens; None for none.
        is_chosen: whether it stands for what is shown now.
    """

    height: float
    title: str = ""
    href: str | None = None
    is_chosen: bool = False


def columns(drawn: Sequence[ChartBar], label: str, *, height: int = 48) -> Markup:
    """Draw vertical bars, the first one on the left; what is clicked reaches to the top."""
    width, most = 160, max((one.height for one in drawn), default=0) or 1
    step, parts = width / max(len(drawn), 1), []
    for n, bar in enumerate(drawn):
        size = height * bar.height / most
        left, thick = n * step, max(step - 1.5, 1)
        if not size:
            continue
        if bar.href is None:
            parts.append(_rect(left, height - size, thick, size, title=bar.title))
            continue
        link = Markup('<a href="{}" aria-label="{}"{}>').format(
            bar.href, bar.title, Markup(' aria-current="true"') if bar.is_chosen else ""
        )
        target = _rect(left, 0, step, height, classes="target", title=bar.title)
        parts.append(link + target + _rect(left, height - size, thick, size) + Markup("</a>"))
    has_links = any(one.href for one in drawn)
    role = "group" if has_links else "img"
    return _svg(width, height, label, Markup("").join(parts), "histogram", stretch=True, role=role)


def bars(
    rows: Mapping[str, Mapping[str, float]], series: Sequence[str], *, width: int = 640
) -> Markup:
    """Draw horizontal bars: for each row one of each series, with its number behind it."""
    most = max((value for row in rows.values() for value in row.values()), default=0) or 1
    left = min(width / 3, _LETTER * max((len(name) for name in rows), default=0) + 12)
    line = 16
    several = len(series) > 1
    room = width - left - 70 - several * min(_LETTER * max(map(len, series)), 120)
    parts, y = [], 4
    for name, row in rows.items():
        text = _cut(name, left)
        parts.append(_text(left - 8, y + line * len(series) / 2 + 4, text, "end", title=name))
        for n, series_name in enumerate(series):
            value = row.get(series_name, 0)
            size = room * value / most
            title = f"{name}, {series_name}: {number(value)}" if several else ""
            value_text = f"{number(value)} {_cut(series_name, 120)}" if several else number(value)
            parts.append(_rect(left, y + 2, max(size, 0.5), line - 4, n, title=title))
            parts.append(_text(left + size + 6, y + 12, value_text, classes="n"))
            y += line
        y += 6
    label = "bar chart: " + "; ".join(
        f"{name} " + ", ".join(f"{one} {number(row.get(one, 0))}" for one in series)
        for name, row in list(rows.items())[:20]
    )
    return _svg(width, y, label, Markup("").join(parts), kind="bars")


def lines(series: Sequence[Sequence[float]], step: int, count: int) -> Markup:
    """Draw a line for each series of finite numbers, and where a step is."""
    width, height = 160, 28
    known = [value for values in series for value in values if math.isfinite(value)]
    if not known:
        return Markup("")
    low, high = min(known), max(known)
    scale, across = (height - 2) / ((high - low) or 1), width / max(count - 1, 1)
    parts = [_rect(max(step * across - 0.5, 0), 0, 1, height, classes="now")]
    for color, values in enumerate(series):
        points = " ".join(
            f"{n * across:.1f},{height - 1 - (value - low) * scale:.1f}"
            for n, value in enumerate(values)
            if math.isfinite(value)
        )
        line = Markup('<polyline class="c{}" points="{}"/>').format(color % COLORS, points)
        parts.append(line)
    label = f"chart from {number(low)} to {number(high)}"
    return _svg(width, height, label, Markup("").join(parts), kind="lines", stretch=True)


def strip(cells: Sequence[int | None], names: Sequence[str], title: str) -> Markup:
    """Draw the classes along a shard: a cell for some records each, by its commonest class.

    Each class has its own height, the first at the top: colors alone can be hard to distinguish.
    """
    width, height = 640, 28
    step, thick = width / max(len(cells), 1), max(height / max(len(names), 1), 5)
    parts, start = [], 0
    for n in range(1, len(cells) + 1):
        if n == len(cells) or cells[n] != cells[start]:
            code = cells[start]
            if code is not None:
                where = names[code] if code < len(names) else str(code)
                top = (height - thick) * min(code / max(len(names) - 1, 1), 1)
                parts.append(_rect(start * step, top, (n - start) * step, thick, code, title=where))
            start = n
    return _svg(width, height, title, Markup("").join(parts), kind="strip", stretch=True)


def number(value: float) -> str:
    """Return a number for people: 1,234 or 0.0123."""
    if isinstance(value, int) or (
        math.isfinite(value) and value == int(value) and abs(value) < 1e15
    ):
        return f"{int(value):,}"
    return f"{value:,.0f}" if 1e4 <= abs(value) < 1e15 else f"{value:,.4g}"


def _svg(
    width: float,
    height: float,
    label: str,
    content: Markup,
    kind: str,
    *,
    stretch: bool = False,
    role: str = "img",
) -> Markup:
    ratio = Markup(' preserveAspectRatio="none"') if stretch else Markup("")
    return Markup(
        '<svg class="{}" viewBox="0 0 {:.0f} {:.0f}" width="{:.0f}" height="{:.0f}" role="{}"'
        ' aria-label="{}"{}>{}</svg>'
    ).format(kind, width, height, width, height, role, label, ratio, content)


def _rect(
    x: float,
    y: float,
    width: float,
    height: float,
    color: int = 0,
    *,
    title: str = "",
    classes: str = "",
) -> Markup:
    content = Markup("<title>{}</title>").format(title) if title else Markup("")
    return Markup(
        '<rect class="{}" x="{:.2f}" y="{:.2f}" width="{:.2f}" height="{:.2f}">{}</rect>'
    ).format(classes or f"c{color % COLORS}", x, y, width, height, content)


def _text(
    x: float, y: float, text: str, anchor: str = "start", classes: str = "", *, title: str = ""
) -> Markup:
    content = escape(text)
    if title and title != text:
        content = Markup("<title>{}</title>{}").format(title, content)
    return Markup('<text class="{}" x="{:.1f}" y="{:.1f}" text-anchor="{}">{}</text>').format(
        classes, x, y, anchor, content
    )


def _cut(text: str, room: float) -> str:
    most = max(int(room / _LETTER) - 1, 3)
    return text if len(text) <= most else f"{text[: most - 1]}\N{HORIZONTAL ELLIPSIS}"
