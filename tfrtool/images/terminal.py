"""Pictures as escape sequences, for terminals that can show them."""

from __future__ import annotations

import base64
import enum
import io
from collections.abc import Iterator
from itertools import groupby

from PIL import Image

__all__ = ["Protocol", "escape_sequence"]

_KITTY_CHUNK = 4096  # https://sw.kovidgoyal.net/kitty/graphics-protocol/
_BAND = 6  # a sixel is a column of six pixels
_COLOURS = 256  # colour registers of a VT340; other terminals have as many or more
_RUN = 4  # "!4x" is no longer than "xxx"; from here on a run is shorter


class Protocol(enum.Enum):
    """The ways in which terminals take pictures; the values are the command line's words."""

    KITTY = "kitty"
    ITERM2 = "iterm2"
    SIXEL = "sixel"


def escape_sequence(image: Image.Image, protocol: Protocol) -> str:
    """Return what shows a picture at the cursor, a pixel for each of its pixels.

    The text is ASCII without a line break; the cursor is left where the protocol leaves it.

    Args:
        image: in mode RGB.
        protocol: what the terminal understands.
    """
    match protocol:
        case Protocol.KITTY:
            return "".join(_kitty(image))
        case Protocol.ITERM2:
            return _iterm2(image)
        case Protocol.SIXEL:
            return _sixel(image)


def _png(image: Image.Image) -> bytes:
    output = io.BytesIO()
    image.save(output, "PNG")
    return output.getvalue()


def _kitty(image: Image.Image) -> Iterator[str]:
    text = base64.b64encode(_png(image)).decode("ascii")
    for start in range(0, len(text), _KITTY_CHUNK):
        more = int(start + _KITTY_CHUNK < len(text))
        # a=T: transmit and show; f=100: a PNG; q=2: the terminal answers nothing, even on failure.
        keys = f"m={more}" if start else f"a=T,f=100,q=2,m={more}"
        yield f"\x1b_G{keys};{text[start : start + _KITTY_CHUNK]}\x1b\\"


def _iterm2(image: Image.Image) -> str:
    data = _png(image)
    keys = (
        f"inline=1;size={len(data)};width={image.width}px;height={image.height}px;"
        "preserveAspectRatio=1"
    )
    return f"\x1b]1337;File={keys}:{base64.b64encode(data).decode('ascii')}\x07"


def _sixel(image: Image.Image) -> str:
    """Encode as DEC sixels (VT330/VT340 Programmer Reference Manual, chapter 14)."""
    width, height = image.size
    # 24-bit colours: the exact palette where it is small enough, else the median cut.
    indexed = image.quantize(_COLOURS, method=Image.Quantize.MEDIANCUT)
    palette = indexed.getpalette("RGB") or []
    pixels = indexed.tobytes()
    # Square pixels; those that are not painted stay as they are.
    head = f'\x1bP0;1;0q"1;1;{width};{height}'
    registers = []
    for number in sorted(set(pixels)):
        red, green, blue = (
            round(value * 100 / 255) for value in palette[3 * number : 3 * number + 3]
        )
        registers.append(f"#{number};2;{red};{green};{blue}")
    bands = []
    for top in range(0, height, _BAND):
        rows = [pixels[row * width : (row + 1) * width] for row in range(top, top + _BAND)]
        bands.append("$".join(_band(rows, width)))
    return "".join([head, *registers, "-".join(bands), "\x1b\\"])


def _band(rows: list[bytes], width: int) -> Iterator[str]:
    """Yield six rows as one line for each of their colours; rows below the last are empty."""
    columns: dict[int, bytearray] = {}
    for bit, row in enumerate(rows):
        for x, number in enumerate(row):
            columns.setdefault(number, bytearray(width))[x] |= 1 << bit
    for number, line in sorted(columns.items()):
        yield f"#{number}{_runs(line)}"


def _runs(line: bytearray) -> str:
    """Return a line of sixels, with runs as a count and a sixel; nothing for a blank end."""
    parts = []
    for sixel, group in groupby(line.rstrip(b"\0")):
        length = sum(1 for _ in group)
        character = chr(0x3F + sixel)
        parts.append(f"!{length}{character}" if length >= _RUN else character * length)
    return "".join(parts)
