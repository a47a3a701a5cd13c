"""What a picture looks like, in a few numbers: how bright, how varied, and like which others."""

import io
import math
from typing import NamedTuple

from PIL import Image

from tfrtool.images.pixels import Picture

LOOK_BOX = 64
"""Pixels of the longer side that looks are taken from; a JPEG is decoded at a fraction for it."""

_QUALITY = 80
_PIXELATED = 48
"""Pictures with no longer side are kept exactly: they are shown enlarged."""

_FEWEST_BITS = 16
"""Bits of a hash that are set, and that are not, at least: a figure on a plain ground has fewer."""


class Look(NamedTuple):
    """What a picture looks like.

    Attributes:
        brightness: the mean of its grey levels, 0 (black) to 1 (white).
        entropy: of its grey levels in bits, 0 (one colour) to 8.
        hash: its difference hash, 64 bits: whether each of 8 x 8 places is brighter than the next
            one to its right (Krawetz, "Kind of Like That", 2013). Pictures that differ in a few
            bits look alike. None where hardly anything is seen: flat pictures are all alike.
    """

    brightness: float
    entropy: float
    hash: int | None


def look_at(picture: Picture) -> Look | None:
    """Return what a picture looks like; None if there is none."""
    if picture.image is None:
        return None
    grey = picture.image.convert("L")
    counts = grey.histogram()
    total = sum(counts)
    shares = [count / total for count in counts if count]
    small = grey.resize((9, 8), Image.Resampling.BOX).tobytes()
    bits = 0
    for row in range(0, 72, 9):
        for left, right in zip(small[row : row + 8], small[row + 1 : row + 9], strict=True):
            bits = bits << 1 | (left < right)
    return Look(
        brightness=sum(level * count for level, count in enumerate(counts)) / total / 255,
        entropy=max(0.0, -sum(share * math.log2(share) for share in shares)),
        hash=bits if _FEWEST_BITS <= bits.bit_count() <= 64 - _FEWEST_BITS else None,
    )


def encoded(picture: Picture, *, exact: bool = False) -> bytes | None:
    """Return a picture as a JPEG, or as a PNG where it is tiny or ``exact``; None if none.

    Nothing of the file that it came from is in it but the pixels.
    """
    if picture.image is None:
        return None
    output = io.BytesIO()
    if exact or max(picture.image.size) <= _PIXELATED:
        picture.image.save(output, "PNG")
    else:
        picture.image.save(output, "JPEG", quality=_QUALITY)
    return output.getvalue()
