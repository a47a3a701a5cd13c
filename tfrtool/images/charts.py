"""Charts as PNG: lines over epochs, and a confusion matrix (right in blue, mistaken in orange)."""

import io
import math
from collections.abc import Mapping, Sequence

from PIL import Image, ImageDraw, ImageFont

from tfrtool.errors import UsageError, printable
from tfrtool.images.letters import Font, fitted

_CHART_WIDTH, _CHART_HEIGHT = 560, 400
_CHART_LEFT, _CHART_TOP, _CHART_RIGHT, _CHART_BOTTOM = 64, 48, 24, 48
_COLOURS = ("#1f6fb4", "#d95f02", "#2a9d5c", "#8a5fb0")
_CHART_INK, _GRID = "#333333", "#dddddd"

MOST_CHARTED = 1000
"""Classes of the largest chart, which has 3 pixels for each."""

_SIDE = 1400
"""About how wide a matrix of many classes is, in pixels; with few, cells have 96 at most."""

_WIDEST_CELL, _NARROWEST_CELL = 96, 3
_COUNTED = 26
"""Pixels of a cell that has room for a number of three digits."""

_DARK = 0.85
"""The depth of colour from which on white letters are read better than black ones: at a share of
0.72 both have a contrast of about 4 on blue. On orange black always has more."""

_LONGEST = 24
"""Letters of a class name that are shown."""

_MARGIN, _GAP, _LETTER = 16, 8, 12
_RIGHT, _WRONG, _PAPER, _INK, _LINE = (31, 111, 180), (217, 95, 2), (255, 255, 255), "#222", "#ddd"

Confusion = Mapping[tuple[int, int], int]
"""How many images of a class (the first number) were taken for a class (the second)."""


Lines = Mapping[str, Sequence[float | None]]
"""The lines of a chart by their names: a value for each step on the x axis, from 1."""


def draw_confusion(confusion: Confusion, names: Sequence[str], title: str) -> bytes:
    """Draw a confusion matrix as a PNG: a row a class, a column a prediction.

    The darker a cell, the larger its share of the row: the square root of the share is drawn, so
    that one image of a hundred can be seen. Cells that have room show the count, and names are
    left out where letters would overlap.

    Raises:
        UsageError: there are more than `MOST_CHARTED` classes.
    """
    count = len(names)
    if count > MOST_CHARTED:
        raise UsageError(f"a chart shows at most {MOST_CHARTED:,} classes, got {count:,}")
    cell = max(min(_SIDE // count, _WIDEST_CELL), _NARROWEST_CELL)
    letters = max(min(cell - 2, 16), _LETTER)
    large = ImageFont.load_default(18)
    labels = [fitted(shortened_name(name), letters) for name in names]
    every = math.ceil((letters + 2) / cell)
    room = math.ceil(max(font.getlength(text) for text, font in labels)) + 2 * _GAP
    left, top = _MARGIN + letters + _GAP + room, _MARGIN + 40 + letters + _GAP + room
    side = cell * count
    width = max(left + side, math.ceil(_MARGIN + large.getlength(title))) + _MARGIN
    canvas = Image.new("RGB", (width, top + side + _MARGIN), _PAPER)
    draw = ImageDraw.Draw(canvas)
    draw.text((_MARGIN, _MARGIN), title, _INK, large)
    totals = [0] * count
    for (truth, _), images in confusion.items():
        totals[truth] += images
    if cell > 2 * _NARROWEST_CELL:
        for number in range(count + 1):
            at = number * cell
            draw.line([(left, top + at), (left + side, top + at)], _LINE)
            draw.line([(left + at, top), (left + at, top + side)], _LINE)
    for (truth, guess), images in confusion.items():
        if images:
            share = images / totals[truth]
            corner = left + guess * cell, top + truth * cell
            _draw_cell(draw, corner, cell, images, share, truth == guess)
    for number in range(0, count, every):
        middle = number * cell + cell // 2
        text, font = labels[number]
        draw.text((left - _GAP, top + middle), text, _INK, font, anchor="rm")
        _turned(canvas, (left + middle, top - _GAP), text, font)
    font = ImageFont.load_default(letters)
    draw.text((left + side // 2, top - room - _GAP), "prediction", _INK, font, anchor="mb")
    _turned(canvas, (left - room - letters // 2, top + side // 2), "true label", font, middle=True)
    output = io.BytesIO()
    canvas.save(output, "PNG")
    return output.getvalue()


def _draw_cell(
    draw: ImageDraw.ImageDraw,
    corner: tuple[int, int],
    cell: int,
    images: int,
    share: float,
    right: bool,
) -> None:
    depth, (left, top) = math.sqrt(share), corner
    strong = _RIGHT if right else _WRONG
    colour = tuple(
        round(paper + (ink - paper) * depth) for paper, ink in zip(_PAPER, strong, strict=True)
    )
    gap = cell > 2 * _NARROWEST_CELL
    draw.rectangle((left + gap, top + gap, left + cell - 1, top + cell - 1), colour)
    if cell < _COUNTED:
        return
    # White is only told well from dark blue.
    ink = "white" if right and depth > _DARK else _INK
    middle = left + cell // 2, top + cell // 2
    font = ImageFont.load_default(max(min(cell // 4, 18), 10))
    text = f"{images:,}"
    if font.getlength(text) > cell - 4:
        text = f"{images / 1000:.0f}k"
    percent = f"{share:.1%}" if share >= 0.001 else "< 0.1%"
    lines = f"{text}\n{percent}" if cell >= 2 * _COUNTED else text
    draw.multiline_text(middle, lines, ink, font, anchor="mm", align="center")


def _turned(
    canvas: Image.Image,
    foot: tuple[int, int],
    text: str,
    font: Font,
    *,
    middle: bool = False,
) -> None:
    """Write a text upwards from a point, or around it."""
    box = font.getbbox(text)
    width, height = math.ceil(box[2]) + 2, math.ceil(box[3]) + 2
    line = Image.new("RGB", (width, height), _PAPER)
    ImageDraw.Draw(line).text((0, 0), text, _INK, font)
    line = line.transpose(Image.Transpose.ROTATE_90)
    left, bottom = foot[0] - height // 2, foot[1] + (width // 2 if middle else 0)
    canvas.paste(line, (left, bottom - width))


def shortened_name(name: str, longest: int = _LONGEST) -> str:
    """Return a class name of so many letters, without its middle: names often differ at the end."""
    text, half = printable(name), longest // 2 - 1
    return text if len(text) <= longest else f"{text[: half - 1]}...{text[-half:]}"


def draw_charts(charts: Mapping[str, Lines], axis: str | None = None) -> bytes:
    """Draw charts side by side, each under its title, and return them as a PNG.

    Values that are None or not finite are left out, and lines without any value too. Below
    the x axis stands "epoch", and values begin where they do; or ``axis``, and they begin at 0.
    """
    canvas = Image.new("RGB", (_CHART_WIDTH * len(charts), _CHART_HEIGHT), "white")
    draw = ImageDraw.Draw(canvas)
    for number, (title, lines) in enumerate(charts.items()):
        _draw_chart(draw, number * _CHART_WIDTH, title, lines, axis)
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
    draw.text((left + _CHART_LEFT, 12), title, _CHART_INK, font)
    if not lines:
        return
    found = [value for points in lines.values() for _, value in points]
    ticks = round_ticks(min(found) if axis is None else 0, max(found))
    steps = max(step for points in lines.values() for step, _ in points)
    x0, x1 = left + _CHART_LEFT, left + _CHART_WIDTH - _CHART_RIGHT
    y0, y1 = _CHART_HEIGHT - _CHART_BOTTOM, _CHART_TOP

    def place(step: int, value: float) -> tuple[float, float]:
        x = (x0 + x1) / 2 if steps == 1 else x0 + (x1 - x0) * (step - 1) / (steps - 1)
        return x, y0 + (y1 - y0) * (value - ticks[0]) / (ticks[-1] - ticks[0])

    for tick in ticks:
        y = place(1, tick)[1]
        draw.line([(x0, y), (x1, y)], _GRID)
        draw.text((x0 - 8, y), f"{tick:g}", _CHART_INK, small, anchor="rm")
    for step in {1, *range(max(steps // 8, 1), steps + 1, max(steps // 8, 1))}:
        draw.text((place(step, ticks[0])[0], y0 + 6), str(step), _CHART_INK, small, anchor="mt")
    draw.text(((x0 + x1) / 2, y0 + 26), axis or "epoch", _CHART_INK, small, anchor="mt")
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
