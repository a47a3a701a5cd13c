"""A feature's value as a small picture: encoded images, raw pixels, pixels as text or numbers."""

from __future__ import annotations

import base64
import binascii
import math
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, replace

from PIL import Image

from tfrtool.images.audit import opaque, orientation_of
from tfrtool.images.decoder import RefusedImageError, decoder_reason, open_image, quiet_pillow
from tfrtool.images.encode import SIDEWAYS, UPRIGHTING
from tfrtool.images.tensor_proto import read_tensor
from tfrtool.storage.limits import MAX_IMAGE_PIXELS

_MODES = {1: "L", 2: "LA", 3: "RGB", 4: "RGBA"}
"""Pillow's modes by number of channels, of 8 bits each."""

_SCALABLE = ("L", "LA", "La", "RGB", "RGBA", "RGBa", "RGBX", "CMYK", "YCbCr")
"""Modes whose pixels can be averaged as they are."""

_CHECKS = ("#ffffff", "#cccccc")
_CHECK_SIZE = 8

_SMALLEST_GUESS = 8
"""The shortest side, in pixels, of a square that is guessed from a number of bytes alone."""

_TO_STANDARD = bytes.maketrans(b"-_", b"+/")


@dataclass(frozen=True, slots=True, kw_only=True)
class Dimensions:
    """What a record says of its image's size; nothing of it is trusted.

    Attributes:
        height: in pixels; None if unsaid, as for the others.
        width: in pixels.
        channels: values a pixel.
    """

    height: int | None = None
    width: int | None = None
    channels: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """An image made small, or why it can't be shown.

    Attributes:
        image: in mode RGB, no larger than was asked for; None where there is a problem.
        format: by Pillow's name ("JPEG"), or "raw", "base64", "tensor", "numbers"; None if unknown.
        width: of the whole image when upright, in pixels; 0 where it is not known.
        height: likewise.
        guessed: whether the size was guessed from the number of bytes.
        problem: why there is no image; None where there is one.
    """

    image: Image.Image | None = None
    format: str | None = None
    width: int = 0
    height: int = 0
    guessed: bool = False
    problem: str | None = None

    def __post_init__(self) -> None:
        if (self.image is None) == (self.problem is None):
            raise ValueError("a picture has either an image or a problem")

    @property
    def size(self) -> str:
        """The size for people: "28 x 28", with a question mark where it was guessed."""
        mark = "?" if self.guessed else ""
        return f"{self.width} x {self.height}{mark}" if self.width else ""


def decode_picture(data: bytes, box: int, dimensions: Dimensions = Dimensions()) -> Picture:
    """Decode a bytes value as an image, at most ``box`` pixels wide and high.

    Tried in turn: an encoded image; base64 of pixels or of an encoded image; pixels of 8 bits
    whose number is what ``dimensions`` says; a serialized tensor; and last a square of grey or RGB
    pixels, as a guess. No bytes make it raise.
    """
    if not data:
        return Picture(problem="no bytes")
    with quiet_pillow():
        picture = _encoded(data, box)
        if picture.problem is None:
            return picture
        is_text = all(32 <= value < 127 for value in data[:256])
        # Base64 of RGB has the length of RGBA, so that text is tried as such first.
        found = _base64(data, box, dimensions) if is_text else None
        shape = raw_shape(len(data), dimensions)
        if found is None and shape is not None:
            return _raw(data, shape, box)
        if picture.format is not None:
            return picture
        found = found or _tensor(data, box, dimensions)
        if found is not None:
            return found
        if is_text:
            return Picture(problem="text, not an image")
        if (square := _square(len(data))) is not None:
            return replace(_raw(data, square, box), guessed=True)
        sides = (dimensions.height, dimensions.width, dimensions.channels)
        if None in sides[:2]:
            return Picture(problem="not an image in a known format")
        size = " x ".join(str(side) for side in sides if side is not None)
        return Picture(problem=f"no known format, and {len(data):,} bytes are not {size} pixels")


def decode_numbers(
    values: Sequence[float], box: int, dimensions: Dimensions = Dimensions()
) -> Picture:
    """Draw numbers, channels last, as pixels: 0 to 255, 0 to 1 or -1 to 1, else their range."""
    said = raw_shape(len(values), dimensions)
    shape = said or _square(len(values))
    if shape is None:
        return Picture(problem=f"{len(values):,} numbers make no image of a known size")
    return replace(_raw(_as_bytes(values), shape, box), format="numbers", guessed=said is None)


def raw_shape(length: int, dimensions: Dimensions) -> tuple[int, int, int] | None:
    """Return the height, width and channels that pixels of ``length`` bytes have, if they fit.

    Channels that are not said are derived; where "depth" means bits, or is nonsense, likewise.
    """
    height, width = dimensions.height or 0, dimensions.width or 0
    if height < 1 or width < 1 or height * width > MAX_IMAGE_PIXELS:
        return None
    channels, rest = divmod(length, height * width)
    return (height, width, channels) if not rest and channels in _MODES else None


def _encoded(data: bytes, box: int) -> Picture:
    try:
        image = open_image(data)
    except RefusedImageError as error:
        format_ = error.format or ("unknown" if error.known else None)
        width, height = error.size
        return Picture(format=format_, width=width, height=height, problem=str(error))
    with image:
        format_, (width, height) = image.format, image.size
        try:
            if format_ not in ("JPEG", "MPO"):  # they may be decoded at a smaller scale, later
                # Before EXIF is asked for: that loads a PNG, and hides how it failed.
                image.load()
            orientation = orientation_of(image)
            small = _small(image, box)
            if orientation in UPRIGHTING:
                small = small.transpose(UPRIGHTING[orientation])
        except Exception as error:  # noqa: BLE001 - decoders raise anything on hostile bytes
            problem = f"it does not decode: {decoder_reason(error)}"
            return Picture(format=format_, width=width, height=height, problem=problem)
    if orientation >= SIDEWAYS:
        width, height = height, width
    return Picture(image=small, format=format_, width=width, height=height)


def _small(image: Image.Image, box: int) -> Image.Image:
    if image.mode == "F":
        image = _stretched(image)
    elif "transparency" in image.info or image.mode in ("P", "PA"):
        image = image.convert("RGBA")
    elif image.mode not in _SCALABLE:
        image = opaque(image)
    image.thumbnail((box, box), Image.Resampling.LANCZOS)
    if image.mode in ("LA", "La", "RGBA", "RGBa"):
        return _over_checks(image.convert("RGBA"))
    return opaque(image).convert("RGB")


def _stretched(image: Image.Image) -> Image.Image:
    """Return floating-point pixels as grey, from their least value to their greatest."""
    low, high = image.getextrema()
    if not isinstance(low, float) or not isinstance(high, float) or not high - low < math.inf:
        raise ValueError("its pixels are not finite")
    scale = 255 / (high - low) if high > low else 1.0
    return image.point(lambda value: value * scale - low * scale).convert("L")


def _over_checks(image: Image.Image) -> Image.Image:
    """Lay a picture over a chessboard, so that what is transparent can be seen."""
    canvas = Image.new("RGB", image.size, _CHECKS[0])
    for top in range(0, image.height, _CHECK_SIZE):
        for left in range((top + _CHECK_SIZE) % (2 * _CHECK_SIZE), image.width, 2 * _CHECK_SIZE):
            canvas.paste(_CHECKS[1], (left, top, left + _CHECK_SIZE, top + _CHECK_SIZE))
    canvas.paste(image, mask=image.getchannel("A"))
    return canvas


def _raw(data: bytes, shape: tuple[int, int, int], box: int) -> Picture:
    height, width, channels = shape
    image = Image.frombytes(_MODES[channels], (width, height), data)
    return Picture(image=_small(image, box), format="raw", width=width, height=height)


def _tensor(data: bytes, box: int, dimensions: Dimensions) -> Picture | None:
    """Decode what tf.io.serialize_tensor made of an image."""
    tensor = read_tensor(data)
    if tensor is None:
        return None
    shape = tensor.shape
    while len(shape) > 3 and shape[0] == 1:
        shape = shape[1:]
    if len(shape) in (2, 3):
        dimensions = Dimensions(height=shape[0], width=shape[1])
    found = raw_shape(len(tensor.values), dimensions)
    if found is None:
        return Picture(format="tensor", problem=f"a tensor of shape {list(tensor.shape)}")
    values = tensor.values
    pixels = values if isinstance(values, bytes) else _as_bytes(values)
    return replace(_raw(pixels, found, box), format="tensor")


def _base64(data: bytes, box: int, dimensions: Dimensions) -> Picture | None:
    """Decode base64 of pixels, which tensorflow-recorder writes, or of an encoded image."""
    bare = data.rstrip(b"=\n").translate(_TO_STANDARD)
    try:
        decoded = base64.b64decode(bare + b"=" * (-len(bare) % 4), validate=True)
    except (binascii.Error, ValueError):
        return None
    shape = raw_shape(len(decoded), dimensions)
    picture = _raw(decoded, shape, box) if shape is not None else _encoded(decoded, box)
    return None if picture.format is None else replace(picture, format="base64")


def _square(length: int) -> tuple[int, int, int] | None:
    for channels in (1, 3):
        side = math.isqrt(length // channels)
        if side >= _SMALLEST_GUESS and side * side * channels == length:
            return (side, side, channels) if side * side <= MAX_IMAGE_PIXELS else None
    return None


def _as_bytes(values: Sequence[float]) -> bytes:
    # An array: objects of Python would take four times as much memory.
    finite = array("d", (value if math.isfinite(value) else 0.0 for value in values))
    low, high = min(finite), max(finite)
    for known in ((0.0, 1.0), (-1.0, 1.0), (0.0, 255.0)):
        if known[0] <= low and high <= known[1]:
            low, high = known
            break
    scale = 255 / (high - low) if 0 < high - low < math.inf else 0.0
    return bytes(min(255, max(0, round((value - low) * scale))) for value in finite)
