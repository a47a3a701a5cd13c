"""Letters of any script on pictures: Pillow's own font where it has them, else one of the system.

Pillow's font has ASCII and little else. Which letters another has is told by what it draws, as the
names of fonts say nothing reliable about it. None is downloaded.
"""

import math
import os
import sys
from collections.abc import Iterable, Iterator
from functools import cache, lru_cache
from itertools import chain, islice
from pathlib import Path
from typing import NamedTuple

from PIL import ImageDraw, ImageFont

from tfrtool.errors import printable
from tfrtool.storage.limits import MAX_FONTS

Font = ImageFont.FreeTypeFont | ImageFont.ImageFont

ADVICE = (
    "install a font that has them, such as Noto Sans CJK for Chinese, Japanese and Korean "
    "(on Debian and Ubuntu: apt install fonts-noto-cjk) or DejaVu Sans for Cyrillic and Greek"
)

_PREFERRED = (
    *("DejaVuSans", "NotoSans-", "LiberationSans-", "Arial", "HelveticaNeue", "segoeui"),
    *("NotoSansCJK-", "SourceHanSans", "PingFang", "Hiragino Sans", "STHeiti", "AppleSDGothic"),
    *("msyh", "YuGoth", "malgun", "wqy-", "DroidSansFallback", "NotoSans"),
)
_LESS = ("bold", "italic", "oblique", "mono", "serif", "condensed", "light", "thin", "black")
_NO_FONTS = ("lastresort", "adobeblank")  # they have a sign for every letter, which is no letter
_ENDS = (".ttf", ".ttc", ".otf")
_NOTHING = "\U0010fffd"
"""For private use, in Unicode's last plane: what a font draws for it is what it draws for any
letter that it has not."""

_PROBE = 16  # the size at which letters are compared


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
    """Write one line in a font that has its letters, cut to ``room``; return its width in pixels.

    A letter that no font has is written as its escape. Lines at the same height have the same base
    line, whatever their fonts.
    """
    text, font = fitted(text, size, room)
    x, y = at
    if anchor[1] == "a":
        y += _ascent(ImageFont.load_default(size)) - _ascent(font)
    draw.text((x, y), text, ink, font, anchor=anchor)
    return font.getlength(text)


def fitted(text: str, size: int, room: float = math.inf) -> tuple[str, Font]:
    """Return a text as `write` writes it, and the font."""
    text, path = _readable(printable(text))
    font, end = _font(path, size), ""
    while text and font.getlength(text + end) > room:
        text, end = text[: -1 - len(text) // 16], "..."
    if end:
        text = text.rstrip() + end if text else ""
    return text, font


def undrawn(texts: Iterable[str]) -> str:
    """Return the letters of texts that are written as their escapes, in order."""
    lost: dict[str, None] = {}
    for text in texts:
        if not text.isascii():
            text = printable(text)
            readable, path = _readable(text)
            if readable != text:
                lost |= dict.fromkeys(letter for letter in text if not _has(path, letter))
    return "".join(sorted(lost))


@lru_cache(maxsize=4096)
def _readable(text: str) -> tuple[str, Path | None]:
    """Return a text of letters that a font has, and the font; None for Pillow's own."""
    letters = dict.fromkeys(text)
    best, most = None, sum(_has(None, letter) for letter in letters)
    for path in _fonts() if most < len(letters) else ():
        count = sum(_has(path, letter) for letter in letters)
        if count > most:
            best, most = path, count
            if count == len(letters):
                break
    if most < len(letters):
        text = "".join(
            letter if _has(best, letter) else letter.encode("unicode_escape").decode()
            for letter in text
        )
    return text, best


class _Glyph(NamedTuple):
    size: tuple[int, int]
    pixels: bytes


@lru_cache(maxsize=65_536)
def _has(path: Path | None, letter: str) -> bool:
    if path is None and letter.isascii():
        return True
    try:
        glyph = _glyph(path, letter)
    except (OSError, ValueError):  # of bitmaps of other sizes alone, or no font at all
        return False
    return any(glyph.pixels) and glyph != _glyph(path, _NOTHING) if letter != " " else True


def _glyph(path: Path | None, letter: str) -> _Glyph:
    mask = _font(path, _PROBE).getmask(letter)
    return _Glyph(mask.size, bytes(mask))


@lru_cache(maxsize=64)
def _font(path: Path | None, size: int) -> Font:
    return ImageFont.load_default(size) if path is None else ImageFont.truetype(path, size)


def _ascent(font: Font) -> int:
    return font.getmetrics()[0] if isinstance(font, ImageFont.FreeTypeFont) else 0


@cache
def _fonts() -> tuple[Path, ...]:
    """Return the fonts of the system, those first that have much and are read well."""
    found = islice(chain.from_iterable(map(_files, _folders())), MAX_FONTS)
    return tuple(sorted(found, key=_rank))


def _rank(path: Path) -> tuple[int, int, str]:
    name = path.stem.lower()
    known = (place for place, start in enumerate(_PREFERRED) if name.startswith(start.lower()))
    return next(known, len(_PREFERRED)), sum(word in name for word in _LESS), str(path)


def _files(folder: Path) -> Iterator[Path]:
    for where, _, names in os.walk(folder):
        for name in sorted(names):
            lower = name.lower()
            if lower.endswith(_ENDS) and not lower.replace("-", "").startswith(_NO_FONTS):
                yield Path(where, name)


def _folders() -> list[Path]:
    """Return where the platform keeps fonts, the user's own last."""
    home, given = Path("~").expanduser(), os.environ.get
    if sys.platform == "darwin":
        return [Path("/System/Library/Fonts"), Path("/Library/Fonts"), home / "Library/Fonts"]
    if sys.platform == "win32":
        own = Path(given("LOCALAPPDATA") or home / "AppData/Local")
        return [Path(given("WINDIR") or "C:/Windows", "Fonts"), own / "Microsoft/Windows/Fonts"]
    shared = (given("XDG_DATA_DIRS") or "/usr/local/share:/usr/share").split(":")
    data = Path(given("XDG_DATA_HOME") or home / ".local/share")
    places = [*map(Path, filter(os.path.isabs, shared)), Path("/usr/share"), data]
    return [*dict.fromkeys(place / "fonts" for place in places), home / ".fonts"]
