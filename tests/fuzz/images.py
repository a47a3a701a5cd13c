"""Fuzzing images: the audit, conversion, small pictures, and what is read from headers."""

from __future__ import annotations

import base64
import io
import random
import struct
import zlib
from collections.abc import Iterator

from PIL import Image

from tests.fuzz.target import Scramble, Target, fixture_files
from tests.photos import image_bytes
from tfrtool.examples.content import describe_bytes, png_form
from tfrtool.images.audit import ImageVerdict, audit_image, render_image
from tfrtool.images.decoder import RefusedImageError, open_image, quiet_pillow
from tfrtool.images.header import is_jpeg, read_jpeg_header
from tfrtool.images.pixels import Sides, decode_numbers, decode_picture, read_tensor
from tfrtool.images.recipe import Check, Encode, ImageRecipe, Resize
from tfrtool.records.framing import crc32c
from tfrtool.storage.limits import MAX_IMAGE_PIXELS

__all__ = ["TARGET"]

_BOX = 24
_CONVERTED = 1 << 20
"""Larger images, in pixels, are decoded but not converted: that takes long, and is no different."""

_RECIPES = (
    ImageRecipe(),
    ImageRecipe(encode=Encode.JPEG, quality=50),
    ImageRecipe(check=Check.HEADER),
    ImageRecipe(check=Check.TFDS, orient=False),
    ImageRecipe(encode=Encode.RAW, resize=Resize(width=7, height=5)),
    ImageRecipe(encode=Encode.PNG, resize=Resize(shorter=9)),
)

_FORMATS = ("JPEG", "PNG", "GIF", "BMP", "WEBP", "TIFF", "PPM", "AVIF")
_PNG = b"\x89PNG\r\n\x1a\n"
_PNG_NUMBERS = (0, 1, 2, 3, 4, 6, 8, 16, 17, 255, 9000, 100_000, 2**31 - 1, 2**32 - 1)


def seeds() -> Iterator[bytes]:
    """Yield images of every format and mode, and pixels without a format."""
    Image.init()
    for format_ in _FORMATS:
        if format_ in Image.SAVE:
            yield image_bytes(format_)
    yield from (image_bytes("PNG", mode=mode) for mode in ("1", "L", "LA", "P", "RGBA", "I;16"))
    yield from (image_bytes("TIFF", mode=mode) for mode in ("1", "CMYK", "F", "I", "P"))
    yield from (image_bytes("JPEG", mode=mode, orientation=6) for mode in ("L", "RGB"))
    yield image_bytes("JPEG", mode="CMYK")
    yield next(fixture_files("pets", 1100))
    yield bytes(range(192))
    yield base64.b64encode(image_bytes("PNG", size=(4, 4)))
    # A serialized uint8 tensor of the shape 2 x 2.
    yield b"\x08\x04\x12\x08\x12\x02\x08\x02\x12\x02\x08\x02\x22\x04abcd"


def check(data: bytes) -> None:
    """No bytes make anything raise; what passes the audit can be used, and says its true size."""
    with quiet_pillow():
        verdict = audit_image(data)
    for recipe in _RECIPES:
        _check_recipe(data, recipe)
    assert describe_bytes(data)
    assert png_form(data) is None or describe_bytes(data) == "image/png"
    tensor = read_tensor(data)
    assert tensor is None or tensor[1]
    seed = crc32c(data)
    sides = (seed % 16, seed // 16 % 16)
    if _pixels(data) <= _CONVERTED:
        for size in (None, sides):
            _check_picture(data, verdict, size)
    if data:
        numbers = struct.unpack(f"<{len(data) // 4}f", data[: len(data) // 4 * 4])
        for values in (numbers, data):
            picture = decode_numbers(values, _BOX, sides)
            assert (picture.problem is None) == (picture.image is not None)


def _pixels(data: bytes) -> int:
    if is_jpeg(data):  # its header may be good where Pillow fails
        header = read_jpeg_header(data)
        return header.width * header.height
    try:
        with quiet_pillow(), open_image(data) as image:
            width, height = image.size
    except RefusedImageError as error:
        width, height = error.size
    return int(width * height)


def _check_recipe(data: bytes, recipe: ImageRecipe) -> None:
    with quiet_pillow():
        verdict = audit_image(data, recipe)
    for text in (verdict.problem, verdict.conversion):
        assert text is None or (text and text.isprintable() and len(text) < 300)
    if verdict.problem is not None:
        assert verdict.conversion is None
        return
    assert verdict.format is not None
    assert 0 < _pixels(data) <= MAX_IMAGE_PIXELS
    if _pixels(data) > _CONVERTED:
        return
    if verdict.conversion is None and not recipe.always:
        return
    with quiet_pillow():
        image = render_image(data, recipe)
        if recipe.encode is Encode.RAW:
            assert len(image.data) == image.height * image.width * image.channels
            return
        made = audit_image(image.data, ImageRecipe(orient=recipe.orient))
    assert made.problem is None
    assert _pixels(image.data) == image.width * image.height
    assert (made.conversion is None) == (recipe.encode is not Encode.PNG)


def _check_picture(data: bytes, verdict: ImageVerdict, sides: Sides | None) -> None:
    picture = decode_picture(data, _BOX, sides)
    if picture.image is None:
        assert verdict.problem is not None, picture.problem
        return
    assert picture.image.mode == "RGB"
    assert 1 <= min(picture.image.size) <= max(picture.image.size) <= _BOX
    assert picture.width * picture.height <= MAX_IMAGE_PIXELS


def mutate(data: bytes, rng: random.Random, scramble: Scramble) -> bytes:
    """Change bytes; in a PNG, whose chunks have CRCs, change a chunk and mend its CRC."""
    if not data.startswith(_PNG) or rng.randrange(4) == 0:
        return scramble(data)
    chunks = _chunks(data)
    if not chunks:
        return scramble(data)
    at = rng.randrange(len(chunks))
    kind, body = chunks[at]
    match rng.randrange(5):
        case 0:
            chunks.insert(rng.randrange(len(chunks)), (kind, body))
        case 1:
            del chunks[at]
        case 2 if kind == b"IHDR":
            number = struct.pack(">I", rng.choice(_PNG_NUMBERS))
            where = rng.choice((0, 4))
            chunks[at] = kind, body[:where] + number + body[where + 4 :]
        case 3 if kind == b"IDAT":
            try:
                pixels = zlib.decompress(body)
            except zlib.error:
                pixels = body
            chunks[at] = kind, zlib.compress(scramble(pixels[:65536]))
        case _:
            chunks[at] = kind, scramble(body)
    return _PNG + b"".join(
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        for kind, body in chunks
    )


def _chunks(data: bytes) -> list[tuple[bytes, bytes]]:
    """Return the kinds and contents of a PNG's chunks, as far as they are there."""
    chunks = []
    file = io.BytesIO(data[len(_PNG) :])
    while len(head := file.read(8)) == 8:
        length, kind = struct.unpack(">I4s", head)
        chunks.append((kind, file.read(min(length, len(data)))))
        file.read(4)
    return chunks


TARGET = Target(check=check, seeds=seeds, mutate=mutate, memory=1024)
