"""Contact sheets: many small pictures on one, each with its label and size below."""

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import IO, Any, ClassVar, NamedTuple

from PIL import Image, ImageDraw

from tfrtool.errors import UsageError, printable
from tfrtool.images.letters import fitted, without_middle, write
from tfrtool.images.overlay import DrawnObject, draw_marks
from tfrtool.images.pixels import Picture, draw_pixels

SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".gif", ".bmp", ".tif", ".tiff")
"""The ends of a sheet's name, in lower case; each says its format."""

MAX_SHEET_PIXELS = 40_000_000
"""The largest sheet: 120 MB of memory while it is drawn, and what viewers still open with ease."""

MAX_SIDE = 16_383
"""The longest side of a sheet in pixels, WebP's limit; that of JPEG is 65,535."""

MIN_THUMB, MAX_THUMB = 32, 1024

_PIXELS = 160
"""Largest side of pixels on a sheet of their own; smaller ones are enlarged by whole factors."""

_MARGIN, _GAP = 20, 14
_NARROWEST = 72  # room for "640 x 480" in the smallest letters
_LONGEST_TEXT = 200
_PAPER, _MAT, _INK, _FAINT = "#f7f7f5", "#e7e7e4", "#222222", "#76766f"
_BAD, _BAD_MAT = "#c62828", "#fbe5e3"


class Tile(NamedTuple):
    """One picture of a sheet, and what stands below it: its label, number ("#17") and record."""

    picture: Picture
    label: str = ""
    number: str = ""
    marks: Sequence[DrawnObject] = ()  # objects that are drawn on it
    note: str = ""  # printed next to its number instead of its size
    record: str = ""  # the name of its record, on a line of its own, without its middle if long


@dataclass(frozen=True, slots=True, kw_only=True)
class SheetLayout:
    """Where things go on a sheet, in pixels; a `UsageError` if there is no such sheet."""

    lines: ClassVar[int] = 2
    """Lines of a caption."""

    images: int
    columns: int = 0  # 0 takes about a square
    thumb: int = 128  # the side of the square that a picture fits into
    rows: int = field(init=False)
    width: int = field(init=False)
    height: int = field(init=False)

    def __post_init__(self) -> None:
        if self.images < 1 or self.columns < 0:
            raise UsageError("a contact sheet requires at least one image and one column")
        if not MIN_THUMB <= self.thumb <= MAX_THUMB:
            raise UsageError(f"--thumb must be {MIN_THUMB} to {MAX_THUMB}, got {self.thumb}")
        # A tile is higher than wide, and screens are wider than high.
        columns = self.columns or max(4, math.ceil(math.sqrt(1.5 * self.images)))
        object.__setattr__(self, "columns", min(columns, self.images))
        object.__setattr__(self, "rows", -(-self.images // self.columns))
        width = 2 * _MARGIN + self.columns * (self.cell[0] + _GAP) - _GAP
        height = self.corner(self.rows * self.columns)[1] - _GAP + _MARGIN
        object.__setattr__(self, "width", width)
        object.__setattr__(self, "height", height)
        if max(width, height) > MAX_SIDE or width * height > MAX_SHEET_PIXELS:
            raise UsageError(
                f"a sheet of {self.images:,} images would have {width:,} x {height:,} pixels",
                hint="use a lower --limit or --thumb",
            )

    @property
    def letters(self) -> int:
        """The size of the captions' letters; a line is 4 pixels higher."""
        return max(10, min(16, self.thumb // 10))

    @property
    def cell(self) -> tuple[int, int]:
        """The width and height of a tile with its caption."""
        height = self.thumb + 6 + self.lines * (self.letters + 4)
        return max(self.thumb, _NARROWEST), height

    def corner(self, index: int) -> tuple[int, int]:
        """Return the left and top of a tile's thumbnail; tiles go row by row, from 0."""
        row, column = divmod(index, self.columns)
        width, height = self.cell
        left = _MARGIN + column * (width + _GAP) + (width - self.thumb) // 2
        return left, _MARGIN + self.letters + 18 + row * (height + _GAP)


class NamedSheetLayout(SheetLayout):
    """The layout of a sheet whose captions have a line for the name of a record."""

    lines: ClassVar[int] = 3


def draw_sheet(tiles: Sequence[Tile], layout: SheetLayout, title: str = "") -> Image.Image:
    """Draw as many tiles as the layout has as a contact sheet, in mode RGB.

    Small pictures are enlarged by a whole factor, so that their pixels stay squares.
    """
    sheet = Image.new("RGB", (layout.width, layout.height), _PAPER)
    draw = ImageDraw.Draw(sheet)
    letters, side, (room, _) = layout.letters, layout.thumb, layout.cell
    width = layout.width - 2 * _MARGIN
    write(draw, (_MARGIN, _MARGIN - 4), _shown(title), letters + 3, _INK, room=width)
    for index, (picture, label, number, marks, note, record) in enumerate(tiles):
        left, top = layout.corner(index)
        square = Image.new("RGB", (side, side), _MAT)
        if picture.image is None:
            square = _problem(picture.problem or "no image", side, letters)
        else:
            factor = max(side // max(picture.image.size), 1)
            width, height = picture.image.width * factor, picture.image.height * factor
            enlarged = picture.image.resize((width, height), Image.Resampling.NEAREST)
            if marks:
                enlarged = draw_marks(enlarged, marks, letters)
            square.paste(enlarged, ((side - width) // 2, (side - height) // 2))
        sheet.paste(square, (left, top))
        left, top = left - (room - side) // 2, top + side + 5
        write(draw, (left, top), _shown(label), letters, _INK, room=room)
        top += letters + 4
        end = (left + room, top)
        wide = write(draw, end, _shown(number), letters, _FAINT, room=room, anchor="ra")
        write(draw, (left, top), note or picture.size, letters, _FAINT, room=room - wide - 4)
        name = without_middle(_shown(record), letters, room)
        write(draw, (left, top + letters + 4), name, letters, _FAINT, room=room)
    return sheet


def draw_pixel_sheet(images: Sequence[tuple[Any, str, str, str]], title: str) -> Image.Image:
    """Draw pixels, uint8 [height, width, channels] of one shape, with label, number and note."""
    tiles = [
        Tile(Picture(small_picture(pixels).image), label, number, note=note)
        for pixels, label, number, note in images
    ]
    return draw_large_tiles(tiles, title)


def small_picture(pixels: Any) -> Picture:
    """Return pixels, uint8 [height, width, channels], as a picture for `draw_large_tiles`."""
    return draw_pixels(pixels.tobytes(), pixels.shape, _PIXELS)


def draw_large_tiles(tiles: Sequence[Tile], title: str) -> Image.Image:
    """Draw pictures larger than on other sheets; they are those of `small_picture`."""
    side = max(max(tile.picture.image.size) for tile in tiles if tile.picture.image)
    thumb = max(_PIXELS // side * side, MIN_THUMB)
    layout = NamedSheetLayout if any(tile.record for tile in tiles) else SheetLayout
    return draw_sheet(tiles, layout(images=len(tiles), thumb=thumb), title)


def save_sheet(sheet: Image.Image, file: IO[bytes], suffix: str) -> None:
    """Write a sheet in the format that one of the `SUFFIXES` stands for."""
    sheet.save(file, Image.registered_extensions()[suffix.lower()], quality=92)


def _problem(problem: str, side: int, letters: int) -> Image.Image:
    """Return a red cross above what is wrong."""
    square = Image.new("RGB", (side, side), _BAD_MAT)
    draw = ImageDraw.Draw(square)
    draw.rectangle((0, 0, side - 1, side - 1), outline=_BAD)
    reach, middle, height = side // 7, side // 2, side // 4
    for turn in (-1, 1):
        ends = (middle - reach, height - turn * reach, middle + reach, height + turn * reach)
        draw.line(ends, _BAD, max(2, side // 24))
    text, font = fitted(_shown(problem), letters)
    top, line = height + reach + 4, int(font.getbbox("Ag")[3]) + 2
    text = textwrap.fill(
        text,
        max(int((side - 8) / font.getlength("n")), 4),
        max_lines=max(int((side - top) / line), 1),
        placeholder="...",
    )
    draw.multiline_text((middle, top), text, _BAD, font, anchor="ma", spacing=2, align="center")
    return square


def _shown(text: str) -> str:
    """Return as much of a text as can stand on a sheet."""
    return printable(text[:_LONGEST_TEXT])[:_LONGEST_TEXT]
