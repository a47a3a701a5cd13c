"""Encoding an image anew: upright, opaque, of 8 bits, at the size and in the form asked for."""

from __future__ import annotations

import io
from typing import Any, NamedTuple

from PIL import Image

from tfrtool.errors import SourceError
from tfrtool.images.audit import opaque, orientation_of
from tfrtool.images.decoder import decoder_reason, open_image
from tfrtool.images.header import ORIENTATION
from tfrtool.images.recipe import DEFAULT_RECIPE, Encode, ImageRecipe

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


class RenderedImage(NamedTuple):
    """An image that was encoded anew, or uint8 pixels row by row; of 1 (grey) or 3 channels."""

    data: bytes
    height: int
    width: int
    channels: int


def render_image(data: bytes, recipe: ImageRecipe = DEFAULT_RECIPE) -> RenderedImage:
    """Encode a usable image anew; the same bytes and recipe always give the same bytes.

    Of an animation the first frame counts; what is transparent becomes white; 16 bits become 8;
    metadata and colour profiles are left out. ``Encode.KEEP`` makes a JPEG, as ``JPEG`` does:
    baseline, of one channel if the image is grey, else of three.

    Pixels are turned upright before they are scaled if ``recipe.orient``. If not, they stay as
    they are stored, and the new file has the EXIF orientation of the old one. (A TIFF is turned
    in any case: Pillow does that by itself.) An exact size stretches the image.

    It is a `SourceError` if the image can't be decoded after all; `audit_image` finds no problem
    with it under the same recipe.
    """
    try:
        with open_image(data) as stored:
            orientation, image = _pixels(stored, recipe)
    except Exception as error:  # decoders raise anything on hostile bytes
        reason = decoder_reason(error)
        raise SourceError("an image can't be encoded anew", found=reason) from error
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
    image = opaque(stored)
    if size is not None and (size != image.size or box not in (None, (0, 0, *image.size))):
        image = image.resize(size, Image.Resampling.LANCZOS, box, reducing_gap=_GAP)
    return orientation, image


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
