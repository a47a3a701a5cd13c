"""Text on pictures: in Pillow's own font, or in a system font for texts beyond ASCII."""

import math
from collections.abc import Iterable
from contextlib import suppress
from functools import cache

from PIL import ImageDraw, ImageFont

from tfrtool.errors import printable

Font = ImageFont.FreeTypeFont | ImageFont.ImageFont

ADVICE = (
    "install a font that has them, such as Noto Sans CJK for Chinese, Japanese and Korean "
    "(on Debian and Ubuntu: apt install fonts-noto-cjk) or DejaVu Sans for Cyrillic and Greek"
)

_FONTS = (
    *("NotoSansCJK-Regular.ttc", "Arial Unicode.ttf", "PingFang.ttc", "msyh.ttc", "malgun.ttf"),
    *("wqy-zenhei.ttc", "DroidSansFallback.ttf", "DejaVuSans.ttf", "NotoSans-Regular.ttf"),
    *("LiberationSans-Regular.ttf", "Arial.ttf", "arial.ttf"),
)
"""System fonts, those with most characters first; Pillow knows their folders."""


def write(
    draw: ImageDraw.ImageDraw,
    at: tuple[float, float],
    text: str,
    size: int,
    ink: str,
    *,
    room: float = math.inf,
    anchor: str = "la",
) -> float:
    """Write one line, cut to ``room`` pixels, and return its width in pixels.

    Lines at the same height have the same base line, whatever their fonts.
    """
    text, font = fitted(text, size, room)
    x, y = at
    if anchor[1] == "a":
        y += _ascent(_font("", size)) - _ascent(font)
    draw.text((x, y), text, ink, font, anchor=anchor)
    return font.getlength(text)


def fitted(text: str, size: int, room: float = math.inf) -> tuple[str, Font]:
    """Return a text as `write` writes it, and the font; without a font, as escapes."""
    text = printable(text)
    name = "" if text.isascii() else _installed()
    if not name:
        text = text.encode("ascii", "backslashreplace").decode()
    font, end = _font(name, size), ""
    while text and font.getlength(text + end) > room:
        text, end = text[: -1 - len(text) // 16], "..."
    if end:
        text = text.rstrip() + end if text else ""
    return text, font


def without_middle(text: str, size: int, room: float) -> str:
    """Return a text without its middle if it is longer than ``room`` pixels."""
    shown, font = fitted(text, size)
    half, left_out = len(shown) // 2, ""
    start, end = shown[:half], shown[half:]
    while start and font.getlength(start + left_out + end) > room:
        start, end, left_out = start[:-1], end[1:], "..."
    return start + left_out + end


def undrawn(texts: Iterable[str]) -> str:
    """Return the characters of texts that are written as escapes, in order."""
    characters = {*"".join(map(printable, texts))}
    return "".join(sorted(one for one in characters if not one.isascii() and not _installed()))


@cache
def _installed() -> str:
    """Return the name of the first font that is installed, or ""."""
    for name in _FONTS:
        with suppress(OSError):
            ImageFont.truetype(name)
            return name
    return ""


@cache
def _font(name: str, size: int) -> Font:
    return ImageFont.truetype(name, size) if name else ImageFont.load_default(size)


def _ascent(font: Font) -> int:
    return font.getmetrics()[0] if isinstance(font, ImageFont.FreeTypeFont) else 0
