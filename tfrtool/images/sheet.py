"""Contact sheets: many small pictures on one, each with its label and size below."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from dataclasses import dataclass

from PIL import Image, ImageDraw, ImageFont

from tfrtool.errors import printable

__all__ = [
    "FORMAT_BY_SUFFIX",
    "MAX_SHEET_PIXELS",
    "SheetLayout",
    "Tile",
    "draw_sheet",
    "encode_sheet",
    "enlarged",
]

FORMAT_BY_SUFFIX = {
    ".png": "PNG",
    ".jpg": "JPEG",
    ".jpeg": "JPEG",
    ".webp": "WEBP",
    ".gif": "GIF",
    ".bmp": "BMP",
    ".tif": "TIFF",
    ".tiff": "TIFF",
}
"""The formats of sheets, by the end of the file's name in lower case."""

MAX_SHEET_PIXELS = 40_000_000
"""The largest sheet: 120 MB of memory while it is drawn, and what viewers still open with ease."""

MAX_SIDE = 16_383
"""The longest side of a sheet in pixels, WebP's limit; that of JPEG is 65,535."""

MIN_THUMB, MAX_THUMB = 32, 1024

_JPEG_QUALITY = 92
_MARGIN, _GAP = 20, 14
_NARROWEST = 72  # room for "640 x 480" in the smallest letters
_LONGEST_TEXT = 200
_PAPER, _MAT, _INK, _FAINT = "#f7f7f5", "#e7e7e4", "#222222", "#76766f"
_BAD, _BAD_MAT = "#c62828", "#fbe5e3"

_Font = ImageFont.FreeTypeFont | ImageFont.ImageFont


@dataclass(frozen=True, slots=True, kw_only=True)
class Tile:
    """One picture of a sheet and what stands below it.

    Attributes:
        image: the picture, no larger than the layout's `thumb`; None where there is a problem.
        label: the first line of the caption, cut where it is too long.
        size: the second line at the left, such as "28 x 28".
        number: the second line at the right, such as "#17".
        problem: what is drawn in red where there is no picture.
    """

    image: Image.Image | None
    label: str = ""
    size: str = ""
    number: str = ""
    problem: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SheetLayout:
    """Where things go on a sheet; all measures are in pixels.

    Attributes:
        count: how many tiles there are, at least 1.
        columns: how many of them stand side by side; None for about a square.
        thumb: the side of the square that a picture fits into.
        title: a line at the top.
    """

    count: int
    columns: int | None = None
    thumb: int = 128
    title: str = ""

    def __post_init__(self) -> None:
        if self.count < 1 or (self.columns is not None and self.columns < 1):
            raise ValueError("a sheet has at least one tile and one column")
        if not MIN_THUMB <= self.thumb <= MAX_THUMB:
            raise ValueError(f"thumb is {MIN_THUMB} to {MAX_THUMB} pixels, not {self.thumb}")

    @property
    def across(self) -> int:
        """The number of columns."""
        if self.columns is not None:
            return min(self.columns, self.count)
        # A tile is higher than wide, and screens are wider than high.
        return min(self.count, max(4, math.ceil(math.sqrt(1.5 * self.count))))

    @property
    def down(self) -> int:
        """The number of rows."""
        return -(-self.count // self.across)

    @property
    def letters(self) -> int:
        """The size of the captions' letters."""
        return max(10, min(16, self.thumb // 10))

    @property
    def line(self) -> int:
        """The height of a line of a caption."""
        return self.letters + 4

    @property
    def cell(self) -> tuple[int, int]:
        """The width and height of a tile with its caption."""
        return max(self.thumb, _NARROWEST), self.thumb + 6 + 2 * self.line

    @property
    def top(self) -> int:
        """Where the first row starts."""
        return _MARGIN + (self.letters + 18 if self.title else 0)

    @property
    def size(self) -> tuple[int, int]:
        """The width and height of the sheet."""
        width, height = self.cell
        return (
            2 * _MARGIN + self.across * width + (self.across - 1) * _GAP,
            self.top + self.down * height + (self.down - 1) * _GAP + _MARGIN,
        )

    @property
    def fits(self) -> bool:
        """Whether the sheet is small enough to be drawn."""
        width, height = self.size
        return max(width, height) <= MAX_SIDE and width * height <= MAX_SHEET_PIXELS

    def corner(self, index: int) -> tuple[int, int]:
        """Return the left and top of a tile's thumbnail; tiles go row by row, from 0."""
        row, column = divmod(index, self.across)
        width, height = self.cell
        left = _MARGIN + column * (width + _GAP) + (width - self.thumb) // 2
        return left, self.top + row * (height + _GAP)


def draw_sheet(tiles: Sequence[Tile], layout: SheetLayout) -> Image.Image:
    """Draw tiles as a contact sheet, in mode RGB.

    Small pictures are enlarged by a whole factor, so that their pixels stay squares.

    Raises:
        ValueError: the layout is for another number of tiles, or too large.
    """
    if len(tiles) != layout.count or not layout.fits:
        raise ValueError(f"{len(tiles)} tiles don't go into {layout}")
    sheet = Image.new("RGB", layout.size, _PAPER)
    draw = ImageDraw.Draw(sheet)
    font = ImageFont.load_default(layout.letters)
    if layout.title:
        title_font = ImageFont.load_default(layout.letters + 3)
        text = _cut(layout.title, title_font, layout.size[0] - 2 * _MARGIN)
        draw.text((_MARGIN, _MARGIN - 4), text, _INK, title_font)
    for index, tile in enumerate(tiles):
        left, top = layout.corner(index)
        side = layout.thumb
        square = (left, top, left + side - 1, top + side - 1)
        if tile.image is None:
            _draw_problem(draw, square, tile.problem or "no image", font)
        else:
            draw.rectangle(square, _MAT)
            picture = enlarged(tile.image, side)
            at = left + (side - picture.width) // 2, top + (side - picture.height) // 2
            sheet.paste(picture, at)
        _draw_caption(draw, (left, top + side + 5), tile, layout, font)
    return sheet


def enlarged(image: Image.Image, box: int) -> Image.Image:
    """Return a picture as many whole times larger as fits into a square of ``box`` pixels."""
    factor = box // max(image.size)
    if factor < 2:
        return image
    size = (image.width * factor, image.height * factor)
    return image.resize(size, Image.Resampling.NEAREST)


def encode_sheet(sheet: Image.Image, format_: str) -> bytes:
    """Return a sheet as a file in a format of `FORMAT_BY_SUFFIX`."""
    output = io.BytesIO()
    quality = {"quality": _JPEG_QUALITY} if format_ in ("JPEG", "WEBP") else {}
    sheet.save(output, format_, **quality)
    return output.getvalue()


def _draw_problem(
    draw: ImageDraw.ImageDraw, square: tuple[int, int, int, int], problem: str, font: _Font
) -> None:
    left, top, right, bottom = square
    draw.rectangle(square, _BAD_MAT, _BAD)
    side = right - left
    reach, middle = side // 7, (left + right) // 2
    height = top + side // 4
    for turn in (-1, 1):
        ends = (middle - reach, height - turn * reach, middle + reach, height + turn * reach)
        draw.line(ends, _BAD, max(2, side // 24))
    line = round(font.size * 1.15) if isinstance(font, ImageFont.FreeTypeFont) else 11
    room = (bottom - (height + reach)) // line - 1
    y = height + reach + line // 2
    for text in _wrapped(problem, font, side - 8, max(room, 0)):
        draw.text((middle, y), text, _BAD, font, anchor="ma")
        y += line


def _draw_caption(
    draw: ImageDraw.ImageDraw,
    corner: tuple[int, int],
    tile: Tile,
    layout: SheetLayout,
    font: _Font,
) -> None:
    (left, top), room = corner, layout.cell[0]
    left -= (room - layout.thumb) // 2
    draw.text((left, top), _cut(tile.label, font, room), _INK, font)
    number = _cut(tile.number, font, room)
    width = font.getlength(number)
    draw.text((left + room - width, top + layout.line), number, _FAINT, font)
    size = _cut(tile.size, font, room - width - 4)
    draw.text((left, top + layout.line), size, _FAINT, font)


def _cut(text: str, font: _Font, room: float) -> str:
    """Return a text that is no wider than ``room``, with "..." where something was cut off."""
    text = printable(text[:_LONGEST_TEXT])[:_LONGEST_TEXT]
    if font.getlength(text) <= room:
        return text
    low, high = 0, len(text)
    while low < high:
        middle = (low + high + 1) // 2
        fits = font.getlength(text[:middle] + "...") <= room
        low, high = (middle, high) if fits else (low, middle - 1)
    return text[:low].rstrip() + "..." if low else ""


def _wrapped(text: str, font: _Font, room: float, lines: int) -> list[str]:
    """Return a text in at most so many lines, of which the last is cut."""
    words = printable(text[:_LONGEST_TEXT])[:_LONGEST_TEXT].split()
    found: list[str] = []
    while words and len(found) < lines:
        taken = [words.pop(0)]
        last = len(found) == lines - 1
        while words and (last or font.getlength(" ".join([*taken, words[0]])) <= room):
            taken.append(words.pop(0))
        found.append(_cut(" ".join(taken), font, room))
    return found
