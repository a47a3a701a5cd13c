"""Check whether an image is usable and its bytes can be kept, and re-encode it if not."""

import contextlib
import enum
import io
import re
from dataclasses import dataclass
from typing import Any, NamedTuple

from PIL import Image

from tfrtool.errors import SourceError
from tfrtool.images.decoder import (
    RefusedImageError,
    decode_jpeg,
    decode_usual,
    decoder_reason,
    open_image,
    orientation_of,
    quiet_pillow,
)
from tfrtool.images.header import (
    MAX_SIDE,
    ORIENTATION,
    JpegHeader,
    JpegScans,
    is_jpeg,
    limit_problem,
    read_jpeg_header,
    read_jpeg_scans,
)
from tfrtool.images.recipe import Check, Encode, ImageRecipe, Resize
from tfrtool.storage.limits import MAX_IMAGE_PIXELS

_TFDS_WINDOW = 512
"""What ``peek(10)`` gives on a member of a .zip, which is how TFDS reads cats_vs_dogs; on a plain
file it would be 4,096 bytes."""

_DEFAULT = ImageRecipe()
_UPRIGHT = 1
_SIXTEEN_BIT = ("I;16", "I;16L", "I;16B", "I;16N", "I")
_MAX_VALUE = 65535

_DARK = 64
"""Images whose brightest value of 8 bits is below this are nearly black: 14 bits used as 16."""

# PNG specification, 11.2.2: offset of the bit depth, before the color type.
_PNG_START, _PNG_DEPTH, _PNG_COLOR = b"\x89PNG\r\n\x1a\n", 24, 2
_DEEP_PPM = re.compile(
    rb"P6(?:\s|#[^\r\n]{0,80}[\r\n])+\d+\s+\d+\s+(?:\d{4,5}|25[6-9]|2[6-9]\d|[3-9]\d\d)\s"
)
_BITS_PER_SAMPLE = 258  # TIFF 6.0, section 8

UPRIGHTING = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
"""What undoes each EXIF orientation (Exif 2.32, table 6)."""

SIDEWAYS = 5
"""From this orientation on, width and height change places."""

_GAP = 3.0
"""How many times larger than wanted pixels are kept until the last step of shrinking.

Pillow calls 3 nearly the same as resampling in one step; its thumbnails take 2.
"""

_JPEGS = ("JPEG", "MPO")
_PNG_EFFORT = 6  # zlib's default level, named so that another Pillow can't change the bytes


class Depth(enum.StrEnum):
    """What becomes of an image with more than 8 bits per channel."""

    KEPT = "kept"
    """A PNG keeps them."""
    REDUCED = "reduced"
    """The high 8 bits stay."""
    DARK = "dark"
    """The high 8 bits stay, and are nearly black."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageVerdict:
    """What was found about one image."""

    format: str | None = None  # the true one, by Pillow's name ("JPEG"); None where it has none
    problem: str | None = None  # why it can't be used
    conversion: str | None = None  # why its bytes can't be kept, where the recipe would keep them
    depth: Depth | None = None  # what becomes of its values, of an image with more than 8 bits
    size: tuple[int, int] | None = None  # width and height, of an image that opens


def audit_image(data: bytes, recipe: ImageRecipe = _DEFAULT) -> ImageVerdict:
    """Return what is wrong with an image, and whether its bytes can be kept.

    They are kept exactly where ``tf.io.decode_jpeg(channels=3)`` reads them right: a JPEG of any
    coding that TensorFlow knows, upright, its data complete. Color profiles stay in it, and
    TensorFlow ignores them.

    ``Check.DECODE`` decodes in full, and takes a JPEG with too little or too much data for damage,
    which decoders only warn of.
    ``Check.HEADER`` reads the header of a JPEG that can be kept, and no more; an image that will
    be re-encoded is always decoded in full, because otherwise it would fail too late.
    ``Check.TFDS`` first asks what TFDS' cats_vs_dogs asks, "JFIF" among the first bytes, and
    then does as ``HEADER``. (TFDS also has a rule for names, which a source knows, not an image.)
    """
    if not data:
        return ImageVerdict(problem="empty file")
    if recipe.check is Check.TFDS and data.find(b"JFIF", 0, _TFDS_WINDOW) < 0:
        problem = f"no JFIF in its first {_TFDS_WINDOW} bytes, which --check tfds requires"
        return ImageVerdict(problem=problem)
    header = read_jpeg_header(data) if is_jpeg(data) else None
    if (
        header is not None
        and header.problem is None
        and recipe.check is not Check.DECODE
        and header.plain
        and not recipe.always
        and not (recipe.orient and header.turned and _is_turned(data))
    ):
        return ImageVerdict(format="JPEG", size=(header.width, header.height))
    return _decoded(data, header, recipe)


def _decoded(data: bytes, header: JpegHeader | None, recipe: ImageRecipe) -> ImageVerdict:
    """Audit an image by decoding it.

    A JPEG is decoded at an eighth of its size: libjpeg then reads every Huffman code of every
    channel, and leaves out most of the arithmetic after it. What fails and what does not is the
    same, as a test shows on damaged JPEGs, in two thirds of the time and a sixty-fourth of the
    memory. Colors are not left out, for some of them can't be decoded where gray can.
    """
    scans = JpegScans()
    if header is not None and header.problem is None:
        scans = read_jpeg_scans(data, header)
        if not recipe.always and decode_usual(data, header, scans) is not None:
            return ImageVerdict(format="JPEG", size=(header.width, header.height))
    try:
        image = open_image(data, header, scans)
    except RefusedImageError as error:
        return ImageVerdict(format=error.format, problem=str(error))
    with image:
        size, encoded = image.size, header is None or recipe.always
        problem = _oversized(*image.size, recipe) if encoded else None
        conversion = depth = None
        if problem is None:
            try:
                if header is not None:
                    image.draft(None, (1, 1))
                if header is not None and header.huffman and scans.end >= 0:
                    decode_jpeg(image, data, scans)
                else:
                    image.load()
            except Exception as error:  # noqa: BLE001 - decoders raise anything on hostile bytes
                problem = f"can't be decoded: {decoder_reason(error)}"
        if problem is None:
            if image.mode == "F":
                problem = "floating-point pixels are not supported"
            elif header is None:
                problem, depth = _depth_of(image, data, recipe)
            if problem is None and not recipe.always:
                conversion = _conversion(image, header, scans.end, recipe)
        return ImageVerdict(
            format=image.format, problem=problem, conversion=conversion, depth=depth, size=size
        )


def _depth_of(
    image: Image.Image, data: bytes, recipe: ImageRecipe
) -> tuple[str | None, Depth | None]:
    """Return why the values of a decoded image can't be written, and what becomes of over 8 bits.

    Pillow keeps 16 bits of gray. Of colors it gives only the high 8 bits.
    """
    if image.mode not in _SIXTEEN_BIT or "transparency" in image.info:
        if not (_is_deep_png(data) or _DEEP_PPM.match(data) or max(_tiff_bits(image)) > 8):
            return None, None
        return None, Depth.KEPT if _is_copied(image, data, recipe) else Depth.REDUCED
    extrema: Any = image.convert("I").getextrema()
    low, high = extrema
    if low < 0 or high > _MAX_VALUE:
        return f"pixels of {low:,} to {high:,}, beyond the 16 bits that are supported", None
    if recipe.encode is Encode.PNG:
        return None, Depth.KEPT
    return None, Depth.DARK if high >> _excess_bits(image) < _DARK else Depth.REDUCED


def _is_deep_png(data: bytes) -> bool:
    return data.startswith(_PNG_START) and data[_PNG_DEPTH] == 16


def _tiff_bits(image: Image.Image) -> tuple[int, ...]:
    """Return the bits per channel that a TIFF declares; 0 for anything else."""
    bits = getattr(image, "tag_v2", {}).get(_BITS_PER_SAMPLE) if image.format == "TIFF" else None
    return bits if isinstance(bits, tuple) and bits else (0,)


def _excess_bits(image: Image.Image) -> int:
    """Return how many bits of gray values are beyond 8."""
    (bits, *_) = _tiff_bits(image)
    return bits - 8 if 8 < bits < 16 else 8


def _is_copied(image: Image.Image, data: bytes, recipe: ImageRecipe) -> bool:
    """Return whether a PNG of 16-bit colors, which Pillow can't write, is copied."""
    is_plain = recipe.encode is Encode.PNG and recipe.resize is None
    is_color = _is_deep_png(data) and data[_PNG_DEPTH + 1] == _PNG_COLOR
    if not (is_plain and is_color) or "transparency" in image.info:
        return False
    return orientation_of(image) == _UPRIGHT


def _copy_pixels(data: bytes) -> bytes:
    """Return a PNG with only its size and its pixels; it was decoded before."""
    output, start = bytearray(_PNG_START), len(_PNG_START)
    while start < len(data):
        end = start + 12 + int.from_bytes(data[start : start + 4], "big")
        if data[start + 4 : start + 8] in (b"IHDR", b"IDAT", b"IEND"):
            output += data[start:end]
        start = len(data) if data[start + 4 : start + 8] == b"IEND" else end
    return bytes(output)


def _oversized(width: int, height: int, recipe: ImageRecipe) -> str | None:
    """Return why an image is too large to encode."""
    if recipe.resize is not None:
        width, height = recipe.resize.fit(width, height)
    if width * height > MAX_IMAGE_PIXELS:
        return f"resizing gives {width} x {height} pixels (limit {MAX_IMAGE_PIXELS:,})"
    if recipe.encode in (Encode.KEEP, Encode.JPEG) and max(width, height) > MAX_SIDE:
        return f"{width} x {height} pixels, too large for a JPEG (limit {MAX_SIDE:,} per side)"
    return None


def _conversion(
    image: Image.Image, header: JpegHeader | None, end: int, recipe: ImageRecipe
) -> str | None:
    """Return why TensorFlow would not read these bytes as the image that they are."""
    if header is None:
        return f"not a JPEG but {image.format}"
    if recipe.orient and header.turned:
        orientation = orientation_of(image)
        if orientation != _UPRIGHT:
            return f"EXIF orientation {orientation}"
    if header.components == 4 and "adobe_transform" not in image.info:
        # TensorFlow takes such inks as they are, Pillow and most others as inverted.
        return "CMYK without an Adobe marker"
    if not header.familiar:
        return "a JPEG coding process that TensorFlow may not support"
    if end < 0:
        return "no end-of-image marker"
    return None


def _is_turned(data: bytes) -> bool:
    try:
        with open_image(data) as image:
            return orientation_of(image) != _UPRIGHT
    except Exception:  # noqa: BLE001 - decoders raise anything; decoding will say what is wrong
        return True


def opaque(image: Image.Image) -> Image.Image:
    """Return an image of any mode in mode L or RGB: what is transparent is white, 16 bits are 8."""
    if "transparency" not in image.info:
        if image.mode in ("L", "RGB"):
            return image
        if image.mode in ("1", "CMYK", "YCbCr", "LAB", "HSV"):
            return image.convert("L" if image.mode == "1" else "RGB")
    if image.mode in _SIXTEEN_BIT:
        bits = _excess_bits(image)
        values = [min(value >> bits, 255) for value in range(_MAX_VALUE + 1)]
        return image.convert("I").point(values, "L")
    rgba = (image.convert("LA") if image.mode == "La" else image).convert("RGBA")
    canvas = Image.new("RGB", rgba.size, "white")
    canvas.paste(rgba, mask=rgba.getchannel("A"))
    return canvas


class RenderedImage(NamedTuple):
    """A re-encoded image, or uint8 pixels row by row; of 1 (gray) or 3 channels."""

    data: bytes
    height: int
    width: int
    channels: int


def render_image(data: bytes, recipe: ImageRecipe = _DEFAULT) -> RenderedImage:
    """Re-encode a usable image; the same bytes and recipe always give the same bytes.

    Of an animation the first frame counts; what is transparent becomes white; 16 bits become 8,
    but for `Depth.KEPT`; metadata and color profiles are left out. ``Encode.KEEP`` makes a JPEG,
    as ``JPEG`` does: baseline, of one channel if the image is gray, else of three.

    Pixels are turned upright before they are scaled if ``recipe.orient``. If not, they stay as
    they are stored, and the new file has the EXIF orientation of the old one. (A TIFF is turned
    in any case: Pillow does that by itself.) An exact size stretches the image.

    It is a `SourceError` if the image can't be decoded after all; `audit_image` finds no problem
    with it under the same recipe.
    """
    try:
        with open_image(data) as stored:
            if _is_copied(stored, data, recipe):
                return RenderedImage(_copy_pixels(data), stored.height, stored.width, 3)
            orientation, image = _pixels(stored, recipe)
    except Exception as error:  # decoders raise anything on hostile bytes
        reason = decoder_reason(error)
        raise SourceError("an image can't be re-encoded", found=reason) from error
    if recipe.orient and orientation in UPRIGHTING:
        image, orientation = image.transpose(UPRIGHTING[orientation]), 1
    return _encoded(image, orientation, recipe)


def _pixels(stored: Image.Image, recipe: ImageRecipe) -> tuple[int, Image.Image]:
    """Return the EXIF orientation, and pixels of the size asked for that are not yet turned."""
    is_jpeg = stored.format in _JPEGS
    if not is_jpeg:
        # Before EXIF is asked for: a TIFF is turned while it loads.
        stored.load()
    orientation = orientation_of(stored)
    size = box = None
    if recipe.resize is not None:
        size = recipe.resize.fit(*stored.size)
        if recipe.orient and orientation >= SIDEWAYS:
            size = recipe.resize.fit(*stored.size[::-1])[::-1]
    if is_jpeg:
        if size is not None:
            # libjpeg decodes at a half, a quarter or an eighth of the size, which costs less.
            drafted = stored.draft(None, (int(size[0] * _GAP), int(size[1] * _GAP)))
            box = None if drafted is None else drafted[1]
        stored.load()
    is_deep = recipe.encode is Encode.PNG and stored.mode in _SIXTEEN_BIT
    is_deep = is_deep and "transparency" not in stored.info
    image = stored.convert("I") if is_deep else opaque(stored)
    if size is not None and (size != image.size or box not in (None, (0, 0, *image.size))):
        image = image.resize(size, Image.Resampling.LANCZOS, box, reducing_gap=_GAP)
    return orientation, image.convert("I;16") if is_deep else image


def rgb_image(data: bytes, resize: Resize | None = None) -> tuple[Image.Image, tuple[int, int]]:
    """Decode an image as it is stored, in RGB, scaled as by `render_image`; or `ValueError`.

    A plain JPEG goes to the decoder at once: ``Image.open`` takes a third of the time of a small
    one for its header. The width and height before it is scaled are returned, too.
    """
    header = read_jpeg_header(data) if is_jpeg(data) else None
    if header is not None and header.plain and limit_problem(data) is None:
        sides, mode = (header.width, header.height), "L" if header.components == 1 else "RGB"
        size = sides if resize is None else resize.fit(*sides)
        if min(sides[0] // size[0], sides[1] // size[1]) < 2 * _GAP:  # no smaller scale will do
            with contextlib.suppress(ValueError):  # what is damaged gets its reason below
                image = Image.frombytes(mode, sides, data, "jpeg", mode, "")
                if size != sides:
                    image = image.resize(size, Image.Resampling.LANCZOS, reducing_gap=_GAP)
                return image if mode == "RGB" else image.convert("RGB"), sides
    try:
        with quiet_pillow(), open_image(data, header) as stored:
            sides = stored.size
            recipe = ImageRecipe(resize=resize, orient=False)
            return _pixels(stored, recipe)[1].convert("RGB"), sides
    except RefusedImageError as error:
        raise ValueError(f"image: {error.problem}") from error
    except Exception as error:  # decoders raise anything on hostile bytes
        raise ValueError(f"image can't be decoded: {decoder_reason(error)}") from error


def _encoded(image: Image.Image, orientation: int, recipe: ImageRecipe) -> RenderedImage:
    if recipe.encode is Encode.RAW:
        image = image.convert("RGB")
        data = image.tobytes()
    else:
        png = recipe.encode is Encode.PNG
        options: dict[str, Any]
        options = {"compress_level": _PNG_EFFORT} if png else {"quality": recipe.quality}
        if orientation in UPRIGHTING:
            options["exif"] = Image.Exif()
            options["exif"][ORIENTATION] = orientation
        # What Pillow would carry over: comments, profiles, resolution, transparency.
        image.info = {}
        output = io.BytesIO()
        image.save(output, "PNG" if png else "JPEG", **options)
        data = output.getvalue()
    return RenderedImage(data, image.height, image.width, len(image.getbands()))
