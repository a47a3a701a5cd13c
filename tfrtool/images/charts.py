"""Charts as PNG: lines over epochs, and a confusion matrix (right in blue, mistaken in orange)."""

import io
import math
from collections.abc import Mapping, Sequence

from PIL import Image, ImageDraw, ImageFont

from tfrtool.errors import UsageError, printable
from tfrtool.images.letters import Font, fitted

_CHART_WIDTH, _CHART_HEIGHT = 560, 400
_CHART_LEFT, _CHART_TOP, _CHART_RIGHT, _CHART_BOTTOM = 64, 48, 24, 48
_COLORS = ("#1f6fb4", "#d95f02", "#2a9d5c", "#8a5fb0")
_PAPER, _INK, _GRID = "#ffffff", "#333333", "#dddddd"

MOST_CHARTED = 1000
"""Classes of the largest chart, which has 3 pixels for each."""

_SIDE, _WIDEST_CELL, _NARROWEST_CELL, _COUNTED = 1400, 96, 3, 26
"""Pixels: about a matrix of many classes, the largest and the smallest cell, one with a number."""

_LONGEST = 24
"""Letters of a class name that are shown."""

_MARGIN, _GAP, _LETTER = 16, 8, 12
_RIGHT, _WRONG = (31, 111, 180), (217, 95, 2)

Confusion = Mapping[tuple[int, int], int]
"""How many images of a class (the first number) were taken for a class (the second)."""

Lines = Mapping[str, Sequence[float | None]]
"""The lines of a chart by their names: a value for each step on the x axis, from 1."""


def draw_confusion(confusion: Confusion, names: Sequence[str], title: str) -> bytes:
    """Draw a confusion matrix as a PNG: a row per class, a column per prediction.

    The darker a cell, the larger the square root of its share of the row. Cells that have room show
    the count, and names are left out where letters would overlap.

    Raises:
        UsageError: there are more than `MOST_CHARTED` classes.
    """
    count = len(names)
    if count > MOST_CHARTED:
        raise UsageError(f"a chart shows at most {MOST_CHARTED:,} classes, got {count:,}")
    cell = max(min(_SIDE // count, _WIDEST_CELL), _NARROWEST_CELL)
    letters = max(min(cell - 2, 16), _LETTER)
    labels = [fitted(shortened_name(name), letters) for name in names]
    room = math.ceil(max(font.getlength(text) for text, font in labels)) + 2 * _GAP
    left, top, side = (
        _MARGIN + letters + _GAP + room,
        40 + 2 * _MARGIN + letters + room,
        cell * count,
    )
    large, font = ImageFont.load_default(18), ImageFont.load_default(letters)
    width = max(left + side, math.ceil(_MARGIN + large.getlength(title))) + _MARGIN
    canvas = Image.new("RGB", (width, top + side + _MARGIN), _PAPER)
    draw = ImageDraw.Draw(canvas)
    draw.text((_MARGIN, _MARGIN), title, _INK, large)
    draw.rectangle((left - 1, top - 1, left + side, top + side), outline=_GRID)
    totals = [0] * count
    for (truth, _), images in confusion.items():
        totals[truth] += images
    for (truth, guess), images in confusion.items():
        if images:
            depth, strong = math.sqrt(images / totals[truth]), _RIGHT if truth == guess else _WRONG
            color = tuple(round(255 + (ink - 255) * depth) for ink in strong)
            x, y = left + guess * cell, top + truth * cell
            draw.rectangle((x, y, x + cell - 1, y + cell - 1), color)
            if cell >= _COUNTED:
                text = f"{images:,}" if images < 10_000 else f"{images / 1000:.0f}k"
                ink = "white" if truth == guess and depth > 0.85 else _INK  # by contrast
                small = ImageFont.load_default(max(min(cell // 4, 18), 10))
                draw.text((x + cell // 2, y + cell // 2), text, ink, small, anchor="mm")
    for number in range(0, count, math.ceil((letters + 2) / cell)):
        middle = number * cell + cell // 2
        text, label_font = labels[number]
        draw.text((left - _GAP, top + middle), text, _INK, label_font, anchor="rm")
        _write_upwards(canvas, (left + middle, top - _GAP), text, label_font)
    draw.text((left + side // 2, top - room - _GAP), "prediction", _INK, font, anchor="mb")
    _write_upwards(canvas, (_MARGIN + letters // 2, top + side), "true label", font)
    return _png(canvas)


def _write_upwards(canvas: Image.Image, foot: tuple[int, int], text: str, font: Font) -> None:
    box = font.getbbox(text)
    width, height = math.ceil(box[2]) + 2, math.ceil(box[3]) + 2
    line = Image.new("RGB", (width, height), _PAPER)
    ImageDraw.Draw(line).text((0, 0), text, _INK, font)
    turned = line.transpose(Image.Transpose.ROTATE_90)
    canvas.paste(turned, (foot[0] - height // 2, foot[1] - width))


def shortened_name(name: str, longest: int = _LONGEST) -> str:
    """Return a class name without its middle if it is longer: names often differ at the end."""
    text, half = printable(name), longest // 2 - 1
    return text if len(text) <= longest else f"{text[: half - 1]}...{text[-half:]}"


def draw_charts(charts: Mapping[str, Lines]) -> bytes:
    """Draw charts side by side, each under its title, and return them as a PNG.

    Values that are None or not finite are left out, and lines without any value too. Below
    the x axis stands "epoch".
    """
    canvas = Image.new("RGB", (_CHART_WIDTH * len(charts), _CHART_HEIGHT), _PAPER)
    draw = ImageDraw.Draw(canvas)
    for number, (title, lines) in enumerate(charts.items()):
        _draw_chart(draw, number * _CHART_WIDTH, title, lines)
    return _png(canvas)


def _draw_chart(draw: ImageDraw.ImageDraw, left: int, title: str, named: Lines) -> None:
    lines: dict[str, list[tuple[int, float]]] = {}
    for name, values in named.items():
        points = [(n, v) for n, v in enumerate(values, 1) if v is not None and math.isfinite(v)]
        lines |= {name: points} if points else {}
    font, small = ImageFont.load_default(18), ImageFont.load_default(13)
    draw.text((left + _CHART_LEFT, 12), title, _INK, font)
    if not lines:
        return
    found = [value for points in lines.values() for _, value in points]
    ticks = _round_ticks(min(found), max(found))
    steps = max(step for points in lines.values() for step, _ in points)
    x0, x1 = left + _CHART_LEFT, left + _CHART_WIDTH - _CHART_RIGHT
    y0, y1 = _CHART_HEIGHT - _CHART_BOTTOM, _CHART_TOP

    def to_pixels(step: int, value: float) -> tuple[float, float]:
        x = (x0 + x1) / 2 if steps == 1 else x0 + (x1 - x0) * (step - 1) / (steps - 1)
        return x, y0 + (y1 - y0) * (value - ticks[0]) / (ticks[-1] - ticks[0])

    for tick in ticks:
        y = to_pixels(1, tick)[1]
        draw.line([(x0, y), (x1, y)], _GRID)
        draw.text((x0 - 8, y), f"{tick:g}", _INK, small, anchor="rm")
    for step in {1, *range(max(steps // 8, 1), steps + 1, max(steps // 8, 1))}:
        draw.text((to_pixels(step, ticks[0])[0], y0 + 6), str(step), _INK, small, anchor="mt")
    draw.text(((x0 + x1) / 2, y0 + 26), "epoch", _INK, small, anchor="mt")
    for number, (name, points) in enumerate(lines.items()):
        color = _COLORS[number % len(_COLORS)]
        places = [to_pixels(step, value) for step, value in points]
        draw.line(places, color, 3, joint="curve")
        for x, y in places:
            draw.ellipse([x - 3, y - 3, x + 3, y + 3], color)
        draw.text((x1 - 90 * (len(lines) - number) + 10, 14), name, color, small)


def _round_ticks(low: float, high: float) -> list[float]:
    """Return about five round numbers that enclose both ends: steps of 1, 2 or 5 times 10**n."""
    span = (high - low) or abs(high) or 1.0
    rough = max(span / 4, 1e-300)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(m * power for m in (1, 2, 5, 10) if m * power >= rough)
    first, last = math.floor(low / step), math.ceil(high / step)
    return [number * step for number in range(first, max(last, first + 1) + 1)]


def _png(canvas: Image.Image) -> bytes:
    output = io.BytesIO()
    canvas.save(output, "PNG")
    return output.getvalue()
