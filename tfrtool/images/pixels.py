"""A feature's value as a small picture, and what the picture looks like in a few numbers."""

import base64
import binascii
import io
import math
import struct
from array import array
from collections.abc import Sequence
from itertools import islice
from operator import mul
from typing import TYPE_CHECKING, Any, NamedTuple

from PIL import Image

from tfrtool.images.audit import SIDEWAYS, UPRIGHTING, opaque
from tfrtool.images.decoder import (
    RefusedImageError,
    decode_usual,
    decoder_reason,
    open_image,
    orientation_of,
    quiet_pillow,
)
from tfrtool.images.header import is_jpeg, read_jpeg_header, read_jpeg_scans
from tfrtool.records import wire
from tfrtool.storage.limits import MAX_IMAGE_PIXELS

if TYPE_CHECKING:
    from numpy.typing import NDArray

_MODES = {1: "L", 2: "LA", 3: "RGB", 4: "RGBA"}
"""Pillow's modes by number of channels, of 8 bits each."""

PNG_CHANNELS = (*_MODES,)
"""Numbers of channels that a PNG can have."""

_SCALABLE = ("L", "LA", "La", "RGB", "RGBA", "RGBa", "RGBX", "CMYK", "YCbCr", "F")
"""Modes whose pixels can be averaged as they are."""

_SMALLEST_GUESS = 8
"""The shortest side, in pixels, of a square that is guessed from a number of bytes alone."""

_TO_STANDARD = bytes.maketrans(b"-_", b"+/")

# tensorflow/core/framework/tensor.proto and types.proto
_CONTENT = 4
_FORMATS = {1: "f", 2: "d", 3: "i", 4: "B", 5: "h", 6: "b", 9: "q", 10: "?", 17: "H", 19: "e"}

LOOK_BOX = 64
"""Pixels of the longer side that looks are taken from; a JPEG is decoded at a fraction for it."""

_SMALL_GAP, _GAP = 1.01, 2.0
"""How many times larger than wanted pixels are kept until the last step of shrinking.

Up to `LOOK_BOX`, what is averaged first is as good: a look moves by 0.002 of brightness and 0.1
bits of entropy at most, and hashes of similar images differ no more.
"""

_QUALITY = 80
_PIXELATED = 48
"""Pictures with no longer side are kept exactly: they are shown enlarged."""

_FEWEST_BITS = 16
"""Bits of a hash that are set, and that are not, at least: a figure on a plain ground has fewer."""

Sides = tuple[int, ...]
"""The height and width that a record says its image has, and perhaps the channels; not to be
trusted."""

_MOST_CHANNELS = 64
"""Maximum number of channels that are drawn next to each other."""


class Picture(NamedTuple):
    """An image made small, or why it can't be shown."""

    image: Image.Image | None = None  # in mode RGB, no larger than was asked for
    width: int = 0  # of the whole image when upright, in pixels; 0 where it is not known
    height: int = 0
    guessed: bool = False  # whether the size was guessed from the number of bytes
    problem: str | None = None  # why the value can't be shown
    orientation: int = 1  # by EXIF, if the image is shown as it is stored nevertheless
    channels: int = 0  # if each is drawn by itself, next to the others
    is_intact: bool = False  # whether it is known that `audit_image` finds nothing wrong, a JPEG

    @property
    def size(self) -> str:
        """The size for people: "28 x 28", with a question mark where it was guessed."""
        sizes = [self.width, self.height, *([self.channels] if self.channels else [])]
        return f"{' x '.join(map(str, sizes))}{'?' * self.guessed}" if self.width else ""


class Look(NamedTuple):
    """What a picture looks like.

    Attributes:
        brightness: the mean of its gray levels, 0 (black) to 1 (white).
        entropy: of its gray levels in bits, 0 (one color) to 8.
        hash: its difference hash, 64 bits: whether each of 8 x 8 places is brighter than the next
            one to its right (Krawetz, "Kind of Like That", 2013). Pictures that differ in a few
            bits look alike. None where hardly anything is seen: flat pictures are all alike.
    """

    brightness: float
    entropy: float
    hash: int | None


def decode_picture(
    data: bytes, box: int, sides: Sides | None = None, *, as_said: bool = False
) -> Picture:
    """Decode a bytes value as an image, at most ``box`` pixels wide and high.

    It is turned upright as its EXIF says. With ``as_said`` only if that gives it its ``sides``:
    boxes of objects are else for the pixels as stored, which TensorFlow doesn't turn.

    Tried in turn: an encoded image; base64 of pixels or of an encoded image; pixels of 8 bits
    whose number is what ``sides`` say; a serialized tensor; and last a square of gray or RGB
    pixels, as a guess. No bytes make it raise.
    """
    if not data:
        return Picture(problem="empty value")
    with quiet_pillow():
        encoded = _encoded(data, box, sides, as_said=as_said)
        if encoded is not None and encoded.image is not None:
            return encoded
        # Base64 of RGB has the length of RGBA, so that text is tried as such first.
        is_text = all(32 <= value < 127 for value in data[:256])
        found = _base64(data, box, sides) if is_text else None
        if found is None and (shape := raw_shape(len(data), sides)) is not None:
            return draw_pixels(data, shape, box)
        found = found or encoded or _tensor(data, box, sides)
        if found is not None:
            return found
        if is_text:
            return Picture(problem="text, not an image")
        if (square := _square(len(data))) is not None:
            return draw_pixels(data, square, box, guessed=True)
        sizes = " x ".join(map(str, sides or ()))
        or_pixels = f", or {sizes} pixels" if sizes else ""
        return Picture(problem=f"not an image in a known format{or_pixels}")


def decode_numbers(values: Sequence[float], box: int, sides: Sides | None = None) -> Picture:
    """Draw numbers, channels last, as pixels: 0 to 255, 0 to 1 or -1 to 1, else their range."""
    stored_shape = raw_shape(len(values), sides)
    shape = stored_shape or _square(len(values))
    if shape is None:
        return Picture(problem=f"{len(values):,} numbers don't match an image size")
    return draw_pixels(_as_bytes(values), shape, box, guessed=stored_shape is None)


def raw_shape(length: int, sides: Sides | None) -> tuple[int, int, int] | None:
    """Return the height, width and channels that pixels of ``length`` bytes have, if they fit."""
    height, width, *known = sides or (0, 0)
    if height < 1 or width < 1 or height * width > MAX_IMAGE_PIXELS:
        return None
    channels, rest = divmod(length, height * width)
    is_known = channels in _MODES or [channels] == known
    return (height, width, channels) if not rest and is_known else None


def _square(length: int) -> tuple[int, int, int] | None:
    for channels in (1, 3):
        side = math.isqrt(length // channels)
        if side >= _SMALLEST_GUESS and side * side * channels == length:
            return raw_shape(length, (side, side))
    return None


def _encoded(
    data: bytes, box: int, sides: Sides | None = None, *, as_said: bool = False
) -> Picture | None:
    if (usual := _usual(data, box)) is not None:
        return usual
    try:
        image = open_image(data)
    except RefusedImageError as error:
        width, height = error.size
        return Picture(None, width, height, problem=str(error)) if error.known else None
    with image:
        width, height = image.size
        try:
            if image.format not in ("JPEG", "MPO"):  # they may be decoded at a smaller scale, later
                # Before EXIF is asked for: that loads a PNG, and hides how it failed.
                image.load()
            orientation, left = orientation_of(image), 1
            if as_said and (
                orientation < SIDEWAYS or width == height or (sides or ())[:2] != (width, height)
            ):
                orientation, left = 1, orientation
            small = _small(image, box)
            if orientation in UPRIGHTING:
                small = small.transpose(UPRIGHTING[orientation])
        except Exception as error:  # noqa: BLE001 - decoders raise anything on hostile bytes
            problem = f"can't be decoded: {decoder_reason(error)}"
            return Picture(None, width, height, problem=problem)
    if orientation >= SIDEWAYS:
        width, height = height, width
    return Picture(small, width, height, orientation=left)


def _usual(data: bytes, box: int) -> Picture | None:
    """Draw a usual JPEG if nothing is wrong with it: one decoding for the picture and the check."""
    header = read_jpeg_header(data) if is_jpeg(data) else None
    if header is None or not header.usual:
        return None
    width, height, gap = header.width, header.height, _gap_of(box)
    ratio = min(width, height) // int(box * gap)
    shrink = next((number for number in (8, 4, 2) if ratio >= number), 1)
    image = decode_usual(data, header, read_jpeg_scans(data, header), shrink)
    if image is None:
        return None
    size = _fitted(width, height, box)
    if size != image.size:
        part = (0, 0, width / shrink, height / shrink)
        image = image.resize(size, Image.Resampling.LANCZOS, part, reducing_gap=gap)
    return Picture(image.convert("RGB"), width, height, is_intact=True)


def _fitted(width: int, height: int, box: int) -> tuple[int, int]:
    """Return the size that Pillow's thumbnails have."""
    if max(width, height) <= box:
        return width, height
    aspect = width / height
    exact = box * aspect if aspect <= 1 else box / aspect

    def error(side: int) -> float:
        if aspect <= 1:
            return abs(aspect - side / box)
        return abs(aspect - box / side) if side else 0

    side = max(1, min(math.floor(exact), math.ceil(exact), key=error))
    return (side, box) if aspect <= 1 else (box, side)


def _gap_of(box: int) -> float:
    return _SMALL_GAP if box <= LOOK_BOX else _GAP


def _small(image: Image.Image, box: int) -> Image.Image:
    """Return an image no larger than the box, in RGB; what is transparent is white."""
    if image.mode not in _SCALABLE or "transparency" in image.info:
        image = opaque(image)
    gap = _gap_of(box)
    image.thumbnail((box, box), Image.Resampling.LANCZOS, reducing_gap=gap)
    if image.mode == "F":
        pixels = memoryview(image.tobytes()).cast("f")
        image = Image.frombytes("L", image.size, _as_bytes(pixels))
    return opaque(image).convert("RGB")


def draw_pixels(
    data: bytes, shape: tuple[int, int, int], box: int, *, guessed: bool = False
) -> Picture:
    """Draw pixels of a height, width and channels, row by row, at most ``box`` wide and high."""
    height, width, channels = shape
    if channels not in _MODES:
        image = _channels_in_grid(data, shape)
        return Picture(_small(image, box), width, height, guessed, channels=channels)
    image = Image.frombytes(_MODES[channels], (width, height), data)
    return Picture(_small(image, box), width, height, guessed)


def _channels_in_grid(data: bytes, shape: tuple[int, int, int]) -> Image.Image:
    """Return the first channels of an image next to each other, in gray, roughly as a square."""
    height, width, channels = shape
    count = min(channels, _MOST_CHANNELS)

    def longer_side(columns: int) -> int:
        return max(columns * (width + 1), -(-count // columns) * (height + 1))

    columns = min(range(1, count + 1), key=longer_side)
    rows = -(-count // columns)
    grid = Image.new("L", (columns * (width + 1) - 1, rows * (height + 1) - 1), 255)
    for channel in range(count):
        row, column = divmod(channel, columns)
        plane = Image.frombytes("L", (width, height), data[channel::channels])
        grid.paste(plane, (column * (width + 1), row * (height + 1)))
    return grid


def draw_array(numbers: "NDArray[Any]", box: int) -> Picture:
    """Draw an array of two sizes, or three of which the smaller one of the outer is the channels.

    Numbers of 8 bits are pixels; others are scaled as by `decode_numbers`.
    """
    sizes = numbers.shape
    while len(numbers.shape) > 3 and numbers.shape[0] == 1:
        numbers = numbers[0]
    if numbers.ndim == 2:
        numbers = numbers[:, :, None]
    if numbers.ndim != 3 or not numbers.size:
        shape = " x ".join(map(str, sizes))
        return Picture(problem=f"an array of {shape or 'one number'} is not an image")
    if numbers.shape[2] not in _MODES and numbers.shape[0] < numbers.shape[2]:
        numbers = numbers.transpose(1, 2, 0)
    height, width, channels = numbers.shape
    if height * width > MAX_IMAGE_PIXELS:
        return Picture(None, width, height, problem=f"more than {MAX_IMAGE_PIXELS:,} pixels")
    is_pixels = numbers.dtype == "uint8"
    data = numbers.tobytes() if is_pixels else _as_bytes(numbers.reshape(-1).tolist())
    return draw_pixels(data, (height, width, channels), box)


def png_of(pixels: bytes, width: int, height: int, channels: int) -> bytes:
    """Return a PNG of pixels, row by row, with one of `PNG_CHANNELS`."""
    output = io.BytesIO()
    image = Image.frombytes(_MODES[channels], (width, height), pixels)
    image.save(output, "PNG", compress_level=1)  # that of its record is made by itself
    return output.getvalue()


def _base64(data: bytes, box: int, sides: Sides | None) -> Picture | None:
    """Decode base64 of pixels, which tensorflow-recorder writes, or of an encoded image."""
    bare = data.rstrip(b"=\n").translate(_TO_STANDARD)
    try:
        decoded = base64.b64decode(bare + b"=" * (-len(bare) % 4), validate=True)
    except (binascii.Error, ValueError):
        return None
    shape = raw_shape(len(decoded), sides)
    return _encoded(decoded, box) if shape is None else draw_pixels(decoded, shape, box)


def _tensor(data: bytes, box: int, sides: Sides | None) -> Picture | None:
    """Decode what tf.io.serialize_tensor made of an image."""
    tensor = read_tensor(data)
    if tensor is None:
        return None
    shape, values = tensor
    inner = shape[-3:] if math.prod(shape[:-3]) == 1 else ()
    found = raw_shape(len(values), (inner[0], inner[1]) if len(inner) > 1 else sides)
    if found is None:
        return Picture(problem=f"tensor of shape {list(shape)} is not an image")
    return draw_pixels(values if isinstance(values, bytes) else _as_bytes(values), found, box)


def read_tensor(data: bytes) -> tuple[tuple[int, ...], Sequence[float]] | None:
    """Read the shape and the values of a TensorProto of numbers; None where it is none.

    Only what ``tf.io.serialize_tensor`` writes is taken: a type, a shape, and the elements in one
    piece that fills the shape exactly. Anything else is too likely to be something else. The values
    are bytes for uint8, else not objects of Python, which would take eight times as much memory.
    """
    try:
        dtype, shape, fields = wire.read_tensor(data)
        ((number, content),) = islice(fields, 2)
        code: Any = _FORMATS.get(dtype)
        if code is None or number != _CONTENT or not isinstance(content, bytes) or not content:
            return None
        values: Sequence[float] = content
        if code == "e":  # which neither arrays nor views know
            values = array("f", (value for (value,) in struct.iter_unpack("<e", content)))
        elif code != "B":  # TensorFlow, too, runs on machines with little-endian numbers alone
            values = memoryview(content).cast(code)
    except (ValueError, TypeError, struct.error):  # TypeError: half a number is left over
        return None
    return (shape, values) if math.prod(shape) == len(values) else None


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


def look_at(picture: Picture) -> Look | None:
    """Return what a picture looks like; None if there is none."""
    if picture.image is None:
        return None
    gray = picture.image.convert("L")
    counts = gray.histogram()
    small = gray.resize((9, 8), Image.Resampling.BOX).tobytes()
    bits = 0
    for row in range(0, 72, 9):
        for left, right in zip(small[row : row + 8], small[row + 1 : row + 9], strict=True):
            bits = bits << 1 | (left < right)
    return Look(
        brightness=sum(map(mul, counts, range(256))) / sum(counts) / 255,
        entropy=max(0.0, gray.entropy()),
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
