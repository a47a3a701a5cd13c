"""Small line charts, drawn with Pillow."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from dataclasses import dataclass

from PIL import Image, ImageDraw, ImageFont

_WIDTH, _HEIGHT = 560, 400
_LEFT, _TOP, _RIGHT, _BOTTOM = 64, 48, 24, 48
_COLOURS = ("#1f6fb4", "#d95f02", "#2a9d5c", "#8a5fb0")
_INK, _GRID, _PAPER = "#333333", "#dddddd", "white"


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """A line of a chart.

    Attributes:
        name: what the legend calls it.
        values: one for each step on the x axis, from 1; None where there is none.
    """

    name: str
    values: tuple[float | None, ...]


def draw_charts(charts: Sequence[tuple[str, Sequence[Series]]]) -> bytes:
    """Draw charts side by side, each with its title, by epoch, and return them as a PNG.

    Values that are None or not finite are left out, and lines without any value too.
    """
    canvas = Image.new("RGB", (_WIDTH * len(charts), _HEIGHT), _PAPER)
    draw = ImageDraw.Draw(canvas)
    for number, (title, series) in enumerate(charts):
        _draw_chart(draw, number * _WIDTH, title, series)
    output = io.BytesIO()
    canvas.save(output, "PNG")
    return output.getvalue()


def _draw_chart(draw: ImageDraw.ImageDraw, left: int, title: str, series: Sequence[Series]) -> None:
    lines = {line.name: _points(line) for line in series}
    lines = {name: points for name, points in lines.items() if points}
    font, small = ImageFont.load_default(18), ImageFont.load_default(13)
    draw.text((left + _LEFT, 12), title, _INK, font)
    values = [value for points in lines.values() for _, value in points]
    if not values:
        return
    ticks = _ticks(min(values), max(values))
    steps = max(step for points in lines.values() for step, _ in points)
    x0, x1 = left + _LEFT, left + _WIDTH - _RIGHT
    y0, y1 = _HEIGHT - _BOTTOM, _TOP

    def place(step: int, value: float) -> tuple[float, float]:
        x = (x0 + x1) / 2 if steps == 1 else x0 + (x1 - x0) * (step - 1) / (steps - 1)
        return x, y0 + (y1 - y0) * (value - ticks[0]) / (ticks[-1] - ticks[0])

    for tick in ticks:
        y = place(1, tick)[1]
        draw.line([(x0, y), (x1, y)], _GRID)
        draw.text((x0 - 8, y), f"{tick:g}", _INK, small, anchor="rm")
    for step in {1, *range(max(steps // 8, 1), steps + 1, max(steps // 8, 1))}:
        draw.text((place(step, ticks[0])[0], y0 + 6), str(step), _INK, small, anchor="mt")
    draw.text(((x0 + x1) / 2, y0 + 26), "epoch", _INK, small, anchor="mt")
    for number, (name, points) in enumerate(lines.items()):
        colour = _COLOURS[number % len(_COLOURS)]
        places = [place(step, value) for step, value in points]
        draw.line(places, colour, 3, joint="curve")
        for x, y in places:
            draw.ellipse([x - 3, y - 3, x + 3, y + 3], colour)
        draw.text((x1 - 90 * (len(lines) - number) + 10, 14), name, colour, small)


def _points(series: Series) -> list[tuple[int, float]]:
    return [
        (step, value)
        for step, value in enumerate(series.values, 1)
        if value is not None and math.isfinite(value)
    ]


def _ticks(low: float, high: float) -> list[float]:
    """Return about five round numbers that enclose both ends: steps of 1, 2 or 5 times 10**n."""
    span = (high - low) or abs(high) or 1.0
    rough = max(span / 4, 1e-300)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(m * power for m in (1, 2, 5, 10) if m * power >= rough)
    first, last = math.floor(low / step), math.ceil(high / step)
    return [number * step for number in range(first, max(last, first + 1) + 1)]
