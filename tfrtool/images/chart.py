"""Small line charts, drawn with Pillow."""

import io
import math
from collections.abc import Mapping, Sequence

from PIL import Image, ImageDraw, ImageFont

_WIDTH, _HEIGHT = 560, 400
_LEFT, _TOP, _RIGHT, _BOTTOM = 64, 48, 24, 48
_COLOURS = ("#1f6fb4", "#d95f02", "#2a9d5c", "#8a5fb0")
_INK, _GRID, _PAPER = "#333333", "#dddddd", "white"


Lines = Mapping[str, Sequence[float | None]]
"""The lines of a chart by their names: a value for each step on the x axis, from 1."""


def draw_charts(charts: Mapping[str, Lines], axis: str | None = None) -> bytes:
    """Draw charts side by side, each under its title, and return them as a PNG.

    Values that are None or not finite are left out, and lines without any value too. Below
    the x axis stands "epoch", and values begin where they do; or ``axis``, and they begin at 0.
    """
    canvas = Image.new("RGB", (_WIDTH * len(charts), _HEIGHT), _PAPER)
    draw = ImageDraw.Draw(canvas)
    for number, (title, lines) in enumerate(charts.items()):
        _draw_chart(draw, number * _WIDTH, title, lines, axis)
    output = io.BytesIO()
    canvas.save(output, "PNG")
    return output.getvalue()


def _draw_chart(
    draw: ImageDraw.ImageDraw, left: int, title: str, named: Lines, axis: str | None
) -> None:
    lines: dict[str, list[tuple[int, float]]] = {}
    for name, values in named.items():
        points = [(n, v) for n, v in enumerate(values, 1) if v is not None and math.isfinite(v)]
        lines |= {name: points} if points else {}
    font, small = ImageFont.load_default(18), ImageFont.load_default(13)
    draw.text((left + _LEFT, 12), title, _INK, font)
    if not lines:
        return
    found = [value for points in lines.values() for _, value in points]
    ticks = round_ticks(min(found) if axis is None else 0, max(found))
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
    draw.text(((x0 + x1) / 2, y0 + 26), axis or "epoch", _INK, small, anchor="mt")
    for number, (name, points) in enumerate(lines.items()):
        colour = _COLOURS[number % len(_COLOURS)]
        places = [place(step, value) for step, value in points]
        draw.line(places, colour, 3, joint="curve")
        for x, y in places:
            draw.ellipse([x - 3, y - 3, x + 3, y + 3], colour)
        draw.text((x1 - 90 * (len(lines) - number) + 10, 14), name, colour, small)


def round_ticks(low: float, high: float) -> list[float]:
    """Return about five round numbers that enclose both ends: steps of 1, 2 or 5 times 10**n."""
    span = (high - low) or abs(high) or 1.0
    rough = max(span / 4, 1e-300)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(m * power for m in (1, 2, 5, 10) if m * power >= rough)
    first, last = math.floor(low / step), math.ceil(high / step)
    return [number * step for number in range(first, max(last, first + 1) + 1)]
