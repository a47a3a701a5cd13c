"""Text on pictures: in Pillow's own font, or in a common system font for other characters.

Pillow's font has ASCII and little else. Whether a font has a character is found by drawing it.
"""

import math
from collections.abc import Iterable
from contextlib import suppress
from functools import cache, lru_cache

from PIL import ImageDraw, ImageFont

from tfrtool.errors import printable

Font = ImageFont.FreeTypeFont | ImageFont.ImageFont

ADVICE = (
    "install a font that has them, such as Noto Sans CJK for Chinese, Japanese and Korean "
    "(on Debian and Ubuntu: apt install fonts-noto-cjk) or DejaVu Sans for Cyrillic and Greek"
)

_FONTS = (
    *("DejaVuSans.ttf", "NotoSans-Regular.ttf", "LiberationSans-Regular.ttf", "Arial.ttf"),
    *("arial.ttf", "NotoSansCJK-Regular.ttc", "Arial Unicode.ttf", "PingFang.ttc", "msyh.ttc"),
    *("malgun.ttf", "wqy-zenhei.ttc", "DroidSansFallback.ttf"),
)
"""System fonts that are tried, those with Latin letters first; Pillow knows their folders."""

_MISSING = "\U0010fffd"
"""For private use, in Unicode's last plane: drawn as any character that a font lacks."""


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

    Characters that no font has are written as their escapes. Lines at the same height have the
    same base line, whatever their fonts.
    """
    text, font = fitted(text, size, room)
    x, y = at
    if anchor[1] == "a":
        y += _ascent(_font("", size)) - _ascent(font)
    draw.text((x, y), text, ink, font, anchor=anchor)
    return font.getlength(text)


def fitted(text: str, size: int, room: float = math.inf) -> tuple[str, Font]:
    """Return a text as `write` writes it, and the font."""
    text, name = _readable(printable(text))
    font, end = _font(name, size), ""
    while text and font.getlength(text + end) > room:
        text, end = text[: -1 - len(text) // 16], "..."
    if end:
        text = text.rstrip() + end if text else ""
    return text, font


def undrawn(texts: Iterable[str]) -> str:
    """Return the characters of texts that are written as their escapes, in order."""
    lost = set[str]()
    for text in map(printable, texts):
        readable, name = _readable(text)
        if readable != text:
            lost.update(letter for letter in text if not _has(name, letter))
    return "".join(sorted(lost))


@lru_cache(maxsize=4096)
def _readable(text: str) -> tuple[str, str]:
    """Return a text of characters that a font has, and its name; "" for Pillow's own."""
    if text.isascii():
        return text, ""
    letters = {*text}
    best = max(_installed(), key=lambda name: sum(_has(name, letter) for letter in letters))
    return "".join(
        letter if _has(best, letter) else letter.encode("unicode_escape").decode()
        for letter in text
    ), best


@lru_cache(maxsize=65_536)
def _has(name: str, letter: str) -> bool:
    if letter == " " or (not name and letter.isascii()):
        return True
    with suppress(OSError, ValueError):  # a font of bitmaps in other sizes
        masks = [_font(name, 16).getmask(one) for one in (letter, _MISSING)]
        glyph, missing = ((mask.size, bytes(mask)) for mask in masks)
        return glyph != missing and any(glyph[1])
    return False


@cache
def _installed() -> tuple[str, ...]:
    """Return the names of the fonts that are there, Pillow's own first."""
    names = [""]
    for name in _FONTS:
        with suppress(OSError):
            ImageFont.truetype(name)
            names.append(name)
    return tuple(names)


@lru_cache(maxsize=64)
def _font(name: str, size: int) -> Font:
    return ImageFont.truetype(name, size) if name else ImageFont.load_default(size)


def _ascent(font: Font) -> int:
    return font.getmetrics()[0] if isinstance(font, ImageFont.FreeTypeFont) else 0
