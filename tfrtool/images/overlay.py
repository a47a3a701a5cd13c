"""Objects drawn on a picture: boxes in a color for each class, names, masks, key points."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from PIL import Image, ImageDraw

from tfrtool.images.letters import fitted, write

_COLORS = (
    *("#ffd400", "#00c8ff", "#ff4d6d", "#5ee05e", "#ff9f1c", "#c77dff"),
    *("#00e0b0", "#ff7edb", "#b8e600", "#7aa7ff", "#ff8a65", "#e0c3a0"),
)
"""Of classes, in turn; all are light, so that black letters are read on them, and seen on black."""

_VEIL = 0.4  # of a mask's color over what is below
_FEWEST_LETTERS = 3
_PAD = 2


class DrawnObject(NamedTuple):
    """What is drawn of an object; places are in shares of the picture's sides, from its left top.

    Nothing of it is trusted but that its numbers are finite.
    """

    box: tuple[float, float, float, float]  # left, top, right, bottom; in any order
    kind: int = 0  # objects of one kind have one color
    name: str = ""
    outlines: Sequence[Sequence[float]] = ()  # x, y, x, y ... of each
    mask: Image.Image | None = None  # of mode L, over the whole picture; not 0 is the object
    points: Sequence[tuple[float, float]] = ()


def draw_marks(image: Image.Image, marks: Iterable[DrawnObject], letters: int = 10) -> Image.Image:
    """Return a picture in RGB with objects drawn on it, small ones over large ones.

    Names are drawn in letters of this size where they fit into their boxes.
    """
    ordered = [(_within(image, mark.box), mark) for mark in marks]
    ordered.sort(key=lambda entry: -_area(entry[0]))
    image = image.copy()
    for _, mark in ordered:
        _draw_mask(image, mark)
    draw = ImageDraw.Draw(image)
    for sides, mark in ordered:
        left, top, right, bottom = sides
        color = color_of(mark.kind)
        for inset, ink in enumerate(("black", color, color)):  # seen on any ground
            if min(right - left, bottom - top) > 2 * inset**2:
                outline = (left + inset, top + inset, right - inset, bottom - inset)
                draw.rectangle(outline, outline=ink)
    taken: list[tuple[int, ...]] = []
    for (left, top, right, bottom), mark in ordered if image.height >= 4 * letters else ():
        text, font = fitted(mark.name, letters, right - left - 2 * _PAD - 2)
        label_box = (left, top, left + round(font.getlength(text)) + 2 * _PAD, top + letters + 3)
        if len(text) < min(_FEWEST_LETTERS, len(mark.name)) or not text or label_box[3] > bottom:
            continue
        if not any(_meet(label_box, one) for one in taken):
            taken.append(label_box)
            draw.rectangle(label_box, color_of(mark.kind))
            write(draw, (left + _PAD, top), text, letters, "black")
    for _, mark in ordered:
        for x, y in (_to_pixel(image, *point) for point in mark.points):
            draw.ellipse((x - 2, y - 2, x + 2, y + 2), color_of(mark.kind), "black")
    return image


def color_of(kind: int) -> str:
    """Return the color of a kind of objects."""
    return _COLORS[kind % len(_COLORS)]


def colored(mask: Image.Image, color: str) -> Image.Image:
    """Return a mask as a picture to lay over another: 0 is transparent."""
    layer = Image.new("RGBA", mask.size, color)
    layer.putalpha(mask.convert("L").point([0, *[255] * 255]))
    return layer


def _draw_mask(image: Image.Image, mark: DrawnObject) -> None:
    if mark.mask is not None or mark.outlines:
        veil = mask_of_mark(image, mark, round(255 * _VEIL))
        image.paste(color_of(mark.kind), (0, 0), veil)


def mask_of_mark(image: Image.Image, mark: DrawnObject, value: int = 255) -> Image.Image:
    """Return a mask in mode L, as large as a picture: a value where the object is."""
    veil = Image.new("L", image.size)
    if mark.mask is not None:
        found = mark.mask.resize(image.size, Image.Resampling.NEAREST)
        veil = found.point([0, *[value] * 255])
    for outline in mark.outlines:
        corners = [
            _to_pixel(image, *pair) for pair in zip(outline[::2], outline[1::2], strict=False)
        ]
        if len(corners) > 1:
            ImageDraw.Draw(veil).polygon(corners, value)
    return veil


def _to_pixel(image: Image.Image, x: float, y: float) -> tuple[int, int]:
    x, y = (min(max(share, 0.0), 1.0) for share in (x, y))
    return round(x * (image.width - 1)), round(y * (image.height - 1))


def _within(image: Image.Image, box: Sequence[float]) -> tuple[int, int, int, int]:
    (x0, y0), (x1, y1) = _to_pixel(image, *box[:2]), _to_pixel(image, *box[2:])
    return min(x0, x1), min(y0, y1), max(x0, x1), max(y0, y1)


def _area(sides: Sequence[int]) -> int:
    return (sides[2] - sides[0]) * (sides[3] - sides[1])


def _meet(box: Sequence[int], other: Sequence[int]) -> bool:
    return box[0] <= other[2] and other[0] <= box[2] and box[1] <= other[3] and other[1] <= box[3]
