"""Contact sheets, checked by their pixels."""

from __future__ import annotations

import re

import pytest
from PIL import Image

from tfrtool.images.letters import without_middle
from tfrtool.images.pixels import Picture
from tfrtool.images.sheet import NamedSheetLayout, SheetLayout, Tile, draw_sheet


def mean(sheet: Image.Image, box: tuple[int, int, int, int]) -> tuple[float, ...]:
    """Return the mean color of a part of a sheet."""
    part = sheet.crop(box).tobytes()
    return tuple(sum(part[band::3]) / (len(part) // 3) for band in range(3))


def caption(layout: SheetLayout, index: int, line: int) -> tuple[int, int, int, int]:
    """Return where a line of a tile's caption stands."""
    left, top = layout.corner(index)
    top += layout.thumb + 5 + line * (layout.letters + 4)
    return left, top, left + layout.thumb, top + layout.letters + 4


def colors(sheet: Image.Image, box: tuple[int, int, int, int]) -> int:
    """Return how many colors a part of a sheet has."""
    return len(sheet.crop(box).getcolors(1 << 16) or [])


def test_captions_are_written() -> None:
    """Label, size and number leave ink at their places, and nowhere else."""
    image = Image.new("RGB", (64, 64), "blue")
    picture, sized = Picture(image), Picture(image, 64, 64)
    tiles = [Tile(sized, "tabby", "#1"), Tile(picture), Tile(sized), Tile(picture, number="#3")]
    layout = SheetLayout(images=4, thumb=64)
    sheet = draw_sheet(tiles, layout)

    def inked(index: int, line: int) -> tuple[bool, bool]:
        left, top, right, bottom = caption(layout, index, line)
        middle = left + 44
        return (
            colors(sheet, (left, top, middle, bottom)) > 1,
            colors(sheet, (middle, top, right, bottom)) > 1,
        )

    assert inked(0, 0)[0]
    assert inked(0, 1) == (True, True)
    assert inked(1, 0) == inked(1, 1) == (False, False)
    assert inked(2, 1)[0]
    assert inked(3, 1) == (False, True)


def test_the_name_of_a_record_keeps_its_ends() -> None:
    """It has a line of its own; a long one lacks its middle, never the number of the record."""
    name = "pets-of-all-kinds-train.tfrecord-00003-of-00010:12345"
    layout = NamedSheetLayout(images=1, thumb=120)
    shown = without_middle(name, layout.letters, 120)
    assert re.fullmatch(r"pets-\S*\.\.\.\S*:12345", shown)
    assert without_middle("a.tfrecord:1", 10, 120) == "a.tfrecord:1"
    tile = Tile(Picture(Image.new("RGB", (64, 64), "blue")), record=name)
    sheet, plain = draw_sheet([tile], layout), draw_sheet([tile._replace(record=shown)], layout)
    assert colors(sheet, caption(layout, 0, 2)) > 1
    assert sheet.tobytes() == plain.tobytes()
    assert layout.height == SheetLayout(images=1, thumb=120).height + layout.letters + 4


@pytest.mark.parametrize("text", ["w" * 500, "Ünïcödé 日本語", "\x1b[31m\n\t\0", "\udcff", "  "])
def test_any_label_stays_in_its_column(text: str) -> None:
    """Long, foreign and hostile labels neither raise nor run into the next tile."""
    tile = Tile(Picture(problem=text), label=text, number=text)
    layout = SheetLayout(images=2, columns=2, thumb=64)
    sheet = draw_sheet([tile, tile], layout)
    width, height = layout.cell
    gap_left = layout.corner(0)[0] - (width - 64) // 2 + width
    gap_right = layout.corner(1)[0] - (width - 64) // 2
    top = layout.corner(0)[1]
    assert gap_right > gap_left
    # Letters may lean over their box by a pixel.
    assert colors(sheet, (gap_left + 2, top, gap_right - 2, top + height)) == 1


def test_small_pictures_keep_their_pixels() -> None:
    """A tiny picture grows by a whole factor, into sharp squares; a large one stays."""
    tiny = Image.new("RGB", (28, 20), "black")
    tiny.putpixel((0, 0), (255, 255, 255))
    large = Image.new("RGB", (65, 10), "black")
    layout = SheetLayout(images=2)
    sheet = draw_sheet([Tile(Picture(tiny)), Tile(Picture(large))], layout)
    left, top = layout.corner(0)
    grown = sheet.crop((left + 8, top + 24, left + 8 + 112, top + 24 + 80))
    assert len(grown.getcolors() or []) == 2
    assert mean(grown, (0, 0, 4, 4)) == (255, 255, 255)
    assert mean(grown, (108, 76, 112, 80)) == (0, 0, 0)
    left, top = layout.corner(1)
    square = sheet.crop((left, top, left + 128, top + 128))
    assert (65 * 10, (0, 0, 0)) in (square.getcolors() or [])
