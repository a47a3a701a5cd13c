"""Whether an image can be used, and whether its bytes can be kept."""

from __future__ import annotations

from dataclasses import dataclass

from PIL import Image

from tfrtool.images.decoder import (
    RefusedImageError,
    decode_jpeg,
    decoder_reason,
    open_image,
    open_jpeg,
)
from tfrtool.images.header import (
    MAX_SIDE,
    ORIENTATION,
    JpegHeader,
    JpegScans,
    is_jpeg,
    read_jpeg_header,
)
from tfrtool.images.recipe import DEFAULT_RECIPE, Check, Encode, ImageRecipe
from tfrtool.storage.limits import MAX_IMAGE_PIXELS

_TFDS_WINDOW = 512
"""What ``peek(10)`` gives on a member of a .zip, which is how TFDS reads cats_vs_dogs; on a plain
file it would be 4,096 bytes."""

_UPRIGHT = 1
_SIXTEEN_BIT = ("I;16", "I;16L", "I;16B", "I;16N", "I")


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageVerdict:
    """What was found about one image."""

    format: str | None = None  # the true one, by Pillow's name ("JPEG"); None where it has none
    width: int = 0  # in pixels, as stored; 0 where it could not be opened
    height: int = 0
    problem: str | None = None  # why it can't be used
    conversion: str | None = None  # why its bytes can't be kept, where the recipe would keep them


def audit_image(data: bytes, recipe: ImageRecipe = DEFAULT_RECIPE) -> ImageVerdict:
    """Tell what is wrong with an image, and whether its bytes can be kept.

    They are kept exactly where ``tf.io.decode_jpeg(channels=3)`` reads them right: a JPEG of any
    coding that TensorFlow knows, upright, its data complete. Colour profiles stay in it, and
    TensorFlow ignores them.

    ``Check.DECODE`` decodes in full, and takes a JPEG with too little or too much data for damage,
    which decoders only warn of.
    ``Check.HEADER`` reads the header of a JPEG that can be kept, and no more; an image that will
    be encoded anew is decoded in full in any case, for else it would fail when it is too late.
    ``Check.TFDS`` first asks what TFDS' cats_vs_dogs asks, "JFIF" among the first bytes, and
    then does as ``HEADER``. (TFDS also has a rule for names, which a source knows, not an image.)
    """
    if not data:
        return ImageVerdict(problem="the file is empty")
    if recipe.check is Check.TFDS and data.find(b"JFIF", 0, _TFDS_WINDOW) < 0:
        problem = f"no JFIF among its first {_TFDS_WINDOW} bytes, which TFDS asks for"
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
        return ImageVerdict(format="JPEG", width=header.width, height=header.height)
    return _decoded(data, header, recipe)


def _decoded(data: bytes, header: JpegHeader | None, recipe: ImageRecipe) -> ImageVerdict:
    """Audit an image by decoding it.

    A JPEG is decoded at an eighth of its size: libjpeg then reads every Huffman code of every
    channel, and leaves out most of the arithmetic after it. What fails and what does not is the
    same, as a test shows on damaged JPEGs, in two thirds of the time and a sixty-fourth of the
    memory. Colours are not left out, for some of them can't be decoded where grey can.
    """
    try:
        if header is None:
            image, scans = open_image(data), JpegScans()
        else:
            image, scans = open_jpeg(data, header)
    except RefusedImageError as error:
        width, height = error.size
        return ImageVerdict(format=error.format, width=width, height=height, problem=str(error))
    with image:
        width, height = image.size
        conversion = None
        problem = _oversized((width, height), recipe if header is None or recipe.always else None)
        if problem is None:
            try:
                if header is not None:
                    image.draft(None, (1, 1))
                if header is not None and header.huffman and scans.end >= 0:
                    decode_jpeg(image, data, scans)
                else:
                    image.load()
            except Exception as error:  # noqa: BLE001 - decoders raise anything on hostile bytes
                problem = f"it does not decode: {decoder_reason(error)}"
        if problem is None:
            if image.mode == "F":
                problem = "its pixels are floating-point numbers"
            elif not recipe.always:
                conversion = _conversion(image, header, scans.end, recipe)
        return ImageVerdict(
            format=image.format,
            width=width,
            height=height,
            problem=problem,
            conversion=conversion,
        )


def _oversized(size: tuple[int, int], recipe: ImageRecipe | None) -> str | None:
    """Return why an image is too large to encode, if there is a recipe for that."""
    width, height = size
    if recipe is None:
        return None
    if recipe.resize is not None:
        width, height = recipe.resize.fit(width, height)
    if width * height > MAX_IMAGE_PIXELS:
        return f"it would get {width} x {height} pixels, more than {MAX_IMAGE_PIXELS:,}"
    if recipe.encode in (Encode.KEEP, Encode.JPEG) and max(width, height) > MAX_SIDE:
        return f"it is {width} x {height} pixels, and a JPEG has at most {MAX_SIDE:,} a side"
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
        return "a coding process that TensorFlow may not know"
    if end < 0:
        return "no end-of-image marker after its data"
    return None


def orientation_of(image: Image.Image) -> int:
    """Return the EXIF orientation, 1 to 8; 1 (upright) where there is none that makes sense."""
    try:
        value = image.getexif().get(ORIENTATION, _UPRIGHT)
    except Exception:  # noqa: BLE001 - broken EXIF is common, and no reason to refuse the image
        return _UPRIGHT
    return value if isinstance(value, int) and 2 <= value <= 8 else _UPRIGHT


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
        return image.convert("I").point([value >> 8 for value in range(65536)], "L")
    rgba = (image.convert("LA") if image.mode == "La" else image).convert("RGBA")
    canvas = Image.new("RGB", rgba.size, "white")
    canvas.paste(rgba, mask=rgba.getchannel("A"))
    return canvas
