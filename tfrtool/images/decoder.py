"""The one way to a decoder: what costs more than the limits allow never gets there."""

import io
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, BinaryIO, NamedTuple

from PIL import Image, ImageFile, UnidentifiedImageError

from tfrtool.errors import reason_of
from tfrtool.images.header import (
    ORIENTATION,
    JpegHeader,
    JpegScans,
    is_jpeg,
    pixels_problem,
    read_jpeg_header,
    read_jpeg_scans,
)
from tfrtool.images.structure import exif_problem, structure_problem
from tfrtool.storage.image_brand import image_brand
from tfrtool.storage.limits import MAX_FRAMES, MAX_IMAGE_BYTES, MAX_IMAGE_PIXELS

_UPRIGHT = 1
_FORMATS = ("PNG", "GIF", "BMP", "WEBP", "TIFF", "AVIF", "PPM")
"""What is opened besides JPEG. Pillow knows more, among it what starts other programs (EPS)."""

_COUNTED = ("PNG", "WEBP", "AVIF", "HEIF")
"""Formats whose number of frames Pillow knows when they are open."""

_SPARE = 16
"""Bytes before the end of a scan. A decoder that has all pixels without them never needs them."""

_RESTART = re.compile(rb"\xff[\xd0-\xd7]")

_LOOKAHEAD = b"\xff\x00" * 8
"""64 bits to read behind a scan, as far as libjpeg looks ahead. They are not Huffman codes."""

_MODES = {1: "L", 3: "RGB"}
"""Pillow's modes of usual JPEGs, by number of components."""


_REASONS = {
    "max_text_chunk": "a text in the PNG file is too large",
    "truncat": "the image data is truncated",
    "data stream": "the image data is damaged",
    "decoder error": "the image data is damaged",
    "image file": "the image file is damaged",
    "broken png": "the PNG file is damaged",
}
"""What is wrong with an image, by words in the messages of Pillow."""


@dataclass(eq=False)
class RefusedImageError(Exception):
    """An image that can't be opened, or must not be; the text is a clause that says why."""

    problem: str
    known: bool = True  # whether it is in a known format
    format: str | None = None  # which, by Pillow's name
    size: tuple[int, int] = (0, 0)  # in pixels; 0 where it is not known


def decoder_reason(error: Exception) -> str:
    """Return what an error of Pillow means for its image."""
    text = reason_of(error)
    return next((ours for words, ours in _REASONS.items() if words in text.lower()), text)


@contextmanager
def quiet_pillow() -> Iterator[None]:
    """Silence Pillow's warnings, for the whole process: verdicts report the same."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module="PIL")
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)
        yield


def open_image(
    data: bytes, header: JpegHeader | None = None, scans: JpegScans | None = None
) -> ImageFile.ImageFile:
    """Read the header of an image, whose pixels are decoded later; or `RefusedImageError`.

    Of a JPEG, what was read of it before need not be read again.
    """
    if header is None and is_jpeg(data):
        header = read_jpeg_header(data)
    opener: Callable[[BinaryIO], ImageFile.ImageFile]
    if header is None:
        opener, size = _opener_of(data), (0, 0)
        problem = structure_problem(data)
    else:
        opener, size = partial(Image.open, formats=["JPEG"]), (header.width, header.height)
        problem = header.problem or (scans or read_jpeg_scans(data, header)).problem
    if problem is not None:
        known = None if header is None else "JPEG"
        raise RefusedImageError(problem, format=known, size=size)
    if len(data) > MAX_IMAGE_BYTES:
        raise RefusedImageError(f"{len(data):,} bytes (limit {MAX_IMAGE_BYTES:,})")
    try:
        image = opener(io.BytesIO(data))
    except Image.DecompressionBombError as error:
        reason = f"claims more than {2 * MAX_IMAGE_PIXELS:,} pixels"
        raise RefusedImageError(reason) from error
    except UnidentifiedImageError as error:
        raise RefusedImageError("not an image in a known format", known=False) from error
    except Exception as error:  # decoders raise anything on hostile bytes
        raise RefusedImageError(f"can't be opened: {decoder_reason(error)}") from error
    problem = pixels_problem(*image.size)
    exif = None if header is not None else image.info.get("exif")  # a JPEG's is checked already
    frames = getattr(image, "n_frames", 1) if image.format in _COUNTED else 1
    if problem is None and frames > MAX_FRAMES:
        problem = f"{frames:,} frames (limit {MAX_FRAMES:,})"
    elif problem is None and isinstance(exif, bytes):
        problem = exif_problem(exif.removeprefix(b"Exif\0\0"))
    if problem is not None:
        image.close()
        raise RefusedImageError(problem, format=image.format, size=image.size)
    return image


def _opener_of(data: bytes) -> Callable[[BinaryIO], ImageFile.ImageFile]:
    """Return what opens an image other than a JPEG; `RefusedImageError` if it isn't installed."""
    Image.init()  # registers all formats that this Pillow was built with, the first time only
    brand = image_brand(data)
    if brand in ("HEIC", "HEIF"):
        try:
            # Not the module: threads can see one whose import has failed.
            from pillow_heif import HeifImageFile
        except ImportError as error:
            raise RefusedImageError(f"{brand}; install tfrtool[heic]", format="HEIF") from error
        return partial(HeifImageFile)
    if brand == "AVIF" and brand not in Image.OPEN:
        raise RefusedImageError("AVIF; install Pillow 11.3 or later", format=brand)
    return partial(Image.open, formats=[name for name in _FORMATS if name in Image.OPEN])


def orientation_of(image: Image.Image) -> int:
    """Return the EXIF orientation, 1 to 8; 1 (upright) where there is none that makes sense."""
    try:
        value = image.getexif().get(ORIENTATION, _UPRIGHT)
    except Exception:  # noqa: BLE001 - broken EXIF is common, and no reason to refuse the image
        return _UPRIGHT
    return value if isinstance(value, int) and 2 <= value <= 8 else _UPRIGHT


class ImageFrame(NamedTuple):
    """The header of an image, as it is stored."""

    format: str  # by Pillow's name: "JPEG"
    width: int
    height: int
    orientation: int  # by EXIF, 1 to 8
    depth: int  # how many values a pixel has, 3 for one of a palette


def read_frame(data: bytes) -> ImageFrame:
    """Read the header of an image; a `RefusedImageError` if it must not be decoded."""
    with open_image(data) as image:
        depth = 3 if image.mode in ("P", "PA") else len(image.getbands())
        sides = image.width, image.height
        return ImageFrame(image.format or "", *sides, orientation_of(image), depth)


def decode_jpeg(image: ImageFile.ImageFile, data: bytes, scans: JpegScans) -> None:
    """Decode a JPEG of Huffman codes, and find the damage that Pillow says nothing of.

    Where data is missing, libjpeg fills up the picture with gray, and where there is too much it
    leaves that out. It warns of both, but Pillow keeps its warnings to itself. Here the decoder
    gets each scan without the marker behind it, at which it would stop to ask for more. So it is
    seen whether it has the scan's last pixel before the scan's last bytes, and whether it has it
    behind them: to within about 16 bytes.

    The scans have an end and no problem. `RefusedImageError` says that there is too little data, or
    too much; an `OSError`, that it can't be decoded.
    """
    image.load_prepare()
    view, fed, many = memoryview(data), 0, len(scans.spans) > 1
    if not many and data[scans.spans[0][1] : scans.end].strip(b"\xff"):
        # Nothing behind an only scan is fed below, but a decoder reads on to the end of the image.
        with closing(_Decoder(image)) as decoder:
            decoder.give(view)
    with closing(_Decoder(image)) as decoder:
        for start, end in scans.spans:
            spare = max(end - _SPARE, fed)
            early = decoder.give(
                view[fed:spare], view[spare : spare + 1], view[spare + 1 : spare + 2]
            )
            if early and end - start > 2 * _SPARE:
                raise RefusedImageError("extra data after the last pixel")
            wants_more = decoder.give(view[spare + 2 : end], _LOOKAHEAD, b"\0", b"\0")
            if many and wants_more:
                # A decoder that waits for a restart gets it, and wants its data then.
                restarts = len(_RESTART.findall(view[start:end]))
                wants_more = decoder.give(bytes((0xFF, 0xD0 + restarts % 8)), b"\0", b"\0")
            if not (decoder.finished or (many and wants_more)):
                raise RefusedImageError("the data ends before the last pixel")
            fed = end
        early = many and decoder.finished
        decoder.give(view[fed:])
        if not decoder.finished:
            raise RefusedImageError("the data ends before the last pixel")
    if early:
        # Again: it had all pixels before the last scan, and needed no more.
        with closing(_Decoder(image)) as decoder:
            decoder.give(view)


def decode_usual(
    data: bytes, header: JpegHeader, scans: JpegScans, shrink: int = 8
) -> Image.Image | None:
    """Do what `decode_jpeg` does for a JPEG as most are, if nothing is wrong with it.

    It saves Pillow's parser of headers, which is in Python and takes a fifth of the time of a small
    photograph. The picture is ``shrink`` times smaller than stored, which is 1, 2, 4 or 8; less for
    an image with a shorter side.

    None if the JPEG is not a usual one, or anything is wrong with it.
    """
    if not header.usual or header.problem or scans.end < 0 or len(scans.spans) != 1:
        return None
    _, end = scans.spans[0]
    if len(data) > MAX_IMAGE_BYTES or data[end : scans.end].strip(b"\xff"):
        return None
    while shrink > min(header.width, header.height):
        shrink //= 2
    mode, size = (
        _MODES[header.components],
        (-(-header.width // shrink), -(-header.height // shrink)),
    )
    image, spare = Image.new(mode, size, None), max(end - _SPARE, 0) + 2
    decoder = Image._getdecoder(mode, "jpeg", (mode, ""), (shrink, 0))
    try:
        decoder.setimage(image.im, (0, 0, *size))
        taken, _ = decoder.decode(memoryview(data)[:spare])
        if taken < 0:  # it is damaged, or has its last pixel too early
            return None
        taken, status = decoder.decode(b"".join((data[taken:end], _LOOKAHEAD, b"\0\0")))
    finally:
        decoder.cleanup()
    return image if taken < 0 <= status else None


class _Decoder:
    """What a decoder has been given of a JPEG; once finished, it has all pixels."""

    def __init__(self, image: ImageFile.ImageFile) -> None:
        codec, extents, _, args = image.tile[0]
        # What `image.load` does, too; no public function returns what a decoder has left over.
        self._decoder: Any = Image._getdecoder(image.mode, codec, args, image.decoderconfig)
        self._decoder.setimage(image.im, extents)
        self._left = b""
        self.finished = False

    def close(self) -> None:
        """Let go of the decoder."""
        self._decoder.cleanup()

    def give(self, *pieces: bytes | memoryview) -> bool:
        """Give it more, and return whether it has the last pixel of the scan.

        Then it skips everything but markers. Before that it takes several bytes at a time,
        so that of two single bytes one is left at least.
        """
        passed = False
        for piece in pieces:
            if self.finished:
                return True
            passed = not self._left
            rest = self._left + piece if self._left else piece
            taken, status = self._decoder.decode(rest)
            if status < 0:
                raise OSError("the image data is damaged")
            self.finished = taken < 0
            self._left = bytes(rest[taken:]) if taken >= 0 else b""
        return self.finished or (passed and not self._left)
