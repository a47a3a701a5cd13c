"""Whether an image can be used, and whether its bytes can be kept: told by decoding all of it."""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from PIL import Image, ImageOps, UnidentifiedImageError

__all__ = [
    "MAX_JPEG_SIDE",
    "MAX_PIXELS",
    "ImageVerdict",
    "audit_image",
    "decoder_reason",
    "opaque",
    "open_image",
    "orientation_of",
    "quiet_pillow",
    "to_jpeg",
]

FORMATS = ("JPEG", "PNG", "GIF", "BMP", "WEBP", "TIFF", "AVIF", "PPM")
"""What is opened. Pillow knows more, among them formats that start other programs (EPS)."""

MAX_PIXELS = 89_478_485
"""The largest image, in pixels: Pillow's own threshold for a decompression bomb (2**28 / 3)."""

MAX_JPEG_SIDE = 65_500
"""The longest side, in pixels, that libjpeg encodes: ``JPEG_MAX_DIMENSION`` in its jmorecfg.h."""

JPEG_QUALITY = 95
"""The quality that TFDS' cats_vs_dogs encodes with."""

_ORIENTATION = 0x0112  # Exif 2.32, table 4
_UPRIGHT = 1
_SIXTEEN_BIT = ("I;16", "I;16L", "I;16B", "I;16N", "I")


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageVerdict:
    """What was found about one image.

    Attributes:
        format: its true format, by Pillow's name ("JPEG"); None where it has none.
        width: in pixels, as stored; 0 where it could not be opened.
        height: in pixels, as stored.
        problem: why it can't be used; None where it can.
        conversion: why its bytes can't be kept as they are; None where they can.
    """

    format: str | None = None
    width: int = 0
    height: int = 0
    problem: str | None = None
    conversion: str | None = None


@contextmanager
def quiet_pillow() -> Iterator[None]:
    """Silence Pillow's warnings, for the whole process: what they tell is in the verdicts."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module="PIL")
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)
        yield


def audit_image(data: bytes) -> ImageVerdict:
    """Decode an image in full, and tell what is wrong with it.

    A look at the header is not enough: Pillow's ``verify`` passes a JPEG that is cut at 70 %.
    """
    if not data:
        return ImageVerdict(problem="the file is empty")
    try:
        image = open_image(data)
    except Image.DecompressionBombError:
        return ImageVerdict(problem=f"it claims more than {2 * MAX_PIXELS:,} pixels")
    except UnidentifiedImageError:
        return ImageVerdict(problem="not an image in a known format")
    except Exception as error:  # noqa: BLE001 - decoders raise anything on hostile bytes
        return ImageVerdict(problem=f"it can't be opened: {decoder_reason(error)}")
    with image:
        verdict = ImageVerdict(format=image.format, width=image.width, height=image.height)
        if image.width * image.height > MAX_PIXELS:
            problem = f"it has {image.width} x {image.height} pixels, more than {MAX_PIXELS:,}"
            return replace(verdict, problem=problem)
        try:
            image.load()
        except Exception as error:  # noqa: BLE001 - decoders raise anything on hostile bytes
            return replace(verdict, problem=f"it does not decode: {decoder_reason(error)}")
        if image.mode == "F":
            return replace(verdict, problem="its pixels are floating-point numbers")
        return replace(verdict, conversion=_conversion(image))


def open_image(data: bytes) -> Image.Image:
    """Read the header of an image, whose pixels are decoded later.

    Raises:
        UnidentifiedImageError: no format of `FORMATS` knows these bytes.
        Image.DecompressionBombError: it claims more than twice `MAX_PIXELS`.
    """
    Image.init()  # registers all formats that this Pillow was built with, the first time only
    return Image.open(io.BytesIO(data), formats=[name for name in FORMATS if name in Image.OPEN])


def _conversion(image: Image.Image) -> str | None:
    if image.format not in ("JPEG", "MPO"):
        return f"not a JPEG but {image.format}"
    orientation = orientation_of(image)
    if orientation != _UPRIGHT:
        return f"EXIF orientation {orientation}"
    return None


def orientation_of(image: Image.Image) -> int:
    """Return the EXIF orientation, 1 to 8; 1 (upright) where there is none that makes sense."""
    try:
        value = image.getexif().get(_ORIENTATION, _UPRIGHT)
    except Exception:  # noqa: BLE001 - broken EXIF is common, and no reason to refuse the image
        return _UPRIGHT
    return value if isinstance(value, int) and 2 <= value <= 8 else _UPRIGHT


def to_jpeg(data: bytes, quality: int = JPEG_QUALITY) -> bytes:
    """Encode any usable image as an upright baseline JPEG of 1 or 3 channels.

    Of an animation the first frame counts; what is transparent becomes white; 16 bits become 8.

    Args:
        data: an image that `audit_image` finds no problem with, of at most `MAX_JPEG_SIDE` pixels
            a side.
        quality: the JPEG quality, 1 to 95.
    """
    with open_image(data) as image:
        image.load()
        upright = image if orientation_of(image) == _UPRIGHT else ImageOps.exif_transpose(image)
        output = io.BytesIO()
        opaque(upright).save(output, "JPEG", quality=quality)
        return output.getvalue()


def opaque(image: Image.Image) -> Image.Image:
    """Return an image of any mode in mode L or RGB: what is transparent is white, 16 bits are 8."""
    if image.mode in ("L", "RGB"):
        return image
    if image.mode in _SIXTEEN_BIT:
        return image.convert("I").point([value >> 8 for value in range(65536)], "L")
    if image.mode in ("1", "CMYK", "YCbCr", "LAB", "HSV"):
        return image.convert("L" if image.mode == "1" else "RGB")
    rgba = image.convert("RGBA")
    canvas = Image.new("RGB", rgba.size, "white")
    canvas.paste(rgba, mask=rgba.getchannel("A"))
    return canvas


def decoder_reason(error: Exception) -> str:
    """Return what a decoder said, on one line of bounded length."""
    return " ".join(str(error).split())[:200] or type(error).__name__
