"""What a JPEG says of itself before its pixels: read without Pillow, in a few microseconds."""

from __future__ import annotations

import re
import struct
from typing import NamedTuple

__all__ = ["MAX_PIXELS", "MAX_SIDE", "JpegHeader", "is_jpeg", "jpeg_end", "read_jpeg_header"]

MAX_PIXELS = 89_478_485
"""The largest image, in pixels: Pillow's own threshold for a decompression bomb (2**28 / 3)."""

MAX_SIDE = 65_500
"""The longest side of a JPEG that libjpeg reads or writes: its JPEG_MAX_DIMENSION."""

_MAGIC = b"\xff\xd8\xff"

# Markers, from ITU-T T.81, table B.1.
_SOF0, _SOF1, _SOF2, _DHT, _JPG, _DAC, _EOI, _SOS, _APP1 = (
    *(0xC0, 0xC1, 0xC2, 0xC4, 0xC8, 0xCC),
    *(0xD9, 0xDA, 0xE1),
)
_PLAIN_FRAMES = frozenset({_SOF0, _SOF1, _SOF2})
_FRAMES = frozenset(range(_SOF0, 0xD0)) - {_DHT, _JPG, _DAC}
_UNKNOWN_FRAMES = frozenset({0xC5, 0xC6, 0xC7, 0xCB, 0xCD, 0xCE, 0xCF})
"""Hierarchical and arithmetic lossless coding: libjpeg-turbo refuses them all."""
_WITH_LENGTH = frozenset({*range(0xC0, 0xD0), *range(0xDA, 0xF0), 0xFE}) - {_JPG}

_MARKER = re.compile(rb"\xff[^\x00\xff]")
_AFTER_SCAN = re.compile(rb"\xff[^\x00\xd0-\xd7\xff]")
"""A marker that ends a scan: no stuffed byte, no restart marker."""

_MAX_SEGMENTS = 10_000
"""Segments before or between scans; an ICC profile takes up to 255, a photograph about ten."""

_MAX_SCANS = 500
"""The scans at which libjpeg-turbo's own fuzzers stop; usual progressive JPEGs have ten."""

_MAX_WORK = 32 * MAX_PIXELS
"""Scans times pixels: each scan goes over all coefficients, however few bytes it has."""

_TURNED_XMP = re.compile(rb'tiff:Orientation(?:="|>)[2-9]')
_ORIENTATION = 0x0112  # Exif 2.32, table 4
_UPRIGHT = (_ORIENTATION, 3, 1, 1)  # tag, type SHORT, one value, the value


class JpegHeader(NamedTuple):
    """What was found before the first scan of a JPEG.

    A named tuple, for it is made for every image.

    Attributes:
        width: in pixels; 0 if there is no frame header.
        height: in pixels.
        components: channels as stored: 1 grey, 3 colour, 4 CMYK.
        plain: whether it is of the everyday kind: baseline or progressive Huffman coding, grey or
            colour, no stray bytes, and an end of image somewhere.
        familiar: whether TensorFlow knows its coding process, arithmetic coding among them.
        turned: whether its metadata may turn it; if not, it is upright for sure.
        scan: where the entropy-coded data starts, in bytes.
        problem: why no decoder reads it; None where one may.
    """

    width: int
    height: int
    components: int
    plain: bool
    familiar: bool
    turned: bool
    scan: int
    problem: str | None


def is_jpeg(data: bytes) -> bool:
    """Tell a JPEG by its first three bytes, as Pillow and TensorFlow do."""
    return data.startswith(_MAGIC)


def read_jpeg_header(data: bytes) -> JpegHeader:
    """Walk the markers of a JPEG up to its first scan; no bytes make it raise.

    Stray bytes between segments are passed over as libjpeg and Pillow do.

    Args:
        data: a whole file that `is_jpeg`.
    """
    width = height = components = bits = frame = frames = 0
    plain, turned, exif = True, False, False
    position = 2
    try:
        for _ in range(_MAX_SEGMENTS):
            marker = data[position + 1]
            if data[position] != 0xFF or marker not in _WITH_LENGTH:
                plain = plain and marker == 0xFF and data[position] == 0xFF  # fill bytes
                found = _MARKER.search(data, position)
                if found is None:
                    raise IndexError
                position = found.start()
                if data[position + 1] not in _WITH_LENGTH:
                    plain = False
                    position += 2
                continue
            length = data[position + 2] << 8 | data[position + 3]
            if marker == _SOS:
                break
            if marker in _FRAMES:
                frame, frames = marker, frames + 1
                bits = data[position + 4]
                height = data[position + 5] << 8 | data[position + 6]
                width = data[position + 7] << 8 | data[position + 8]
                components = data[position + 9]
            elif marker == _APP1:
                if data.startswith(b"Exif\0\0", position + 4):
                    # Pillow joins several of them.
                    turned = turned or exif or _may_turn(data, position + 10)
                    exif = True
                elif _TURNED_XMP.search(data, position, position + length + 2):
                    turned = True
            if length < 2:
                plain, length = False, 2
            position += 2 + length
        else:
            return _broken(f"it has more than {_MAX_SEGMENTS:,} segments before its image data")
    except IndexError:
        return _broken("it is truncated before its image data")
    scan = position + 2 + length
    problem: str | None
    if frames == 0:
        problem = "it has no frame header"
    elif frame in _UNKNOWN_FRAMES:
        problem = f"its coding process (SOF{frame - _SOF0}) is one that no decoder here knows"
    elif bits != 8 or components not in (1, 3, 4):
        problem = f"it has {components} components of {bits} bits, which no decoder here knows"
    else:
        problem = _size_problem(width, height)
    plain = (
        plain
        and frames == 1
        and frame in _PLAIN_FRAMES
        and components != 4
        and data.rfind(b"\xff\xd9", scan) >= 0
    )
    familiar = frame in _PLAIN_FRAMES or frame in (0xC9, 0xCA)
    return JpegHeader(width, height, components, plain, familiar, turned, scan, problem)


def jpeg_end(data: bytes, header: JpegHeader) -> tuple[int, str | None]:
    """Follow the scans of a JPEG to its end of image.

    libjpeg looks for that marker after the last scan, and TensorFlow refuses an image whose data
    stops before it. Pillow passes one if all its rows have come by then.

    Args:
        data: the whole file.
        header: what `read_jpeg_header` says of it, without a problem.

    Returns:
        Where the end-of-image marker is, in bytes, or -1 if there is none; and why the image must
        not be decoded (its scans would cost too much), or None.
    """
    pixels = header.width * header.height
    position, scans = header.scan, 1
    for _ in range(_MAX_SEGMENTS):
        found = _AFTER_SCAN.search(data, position)
        if found is None:
            return -1, None
        marker, position = data[found.end() - 1], found.end()
        if marker == _EOI:
            return found.start(), None
        if marker in _WITH_LENGTH:
            position += max(2, int.from_bytes(data[position : position + 2], "big"))
        scans += marker == _SOS
        if scans > _MAX_SCANS or (scans > 1 and scans * pixels > _MAX_WORK):
            return -1, f"it has {scans} scans or more of {header.width} x {header.height} pixels"
    return -1, f"it has more than {_MAX_SEGMENTS:,} segments after its image data"


def _size_problem(width: int, height: int) -> str | None:
    if not width or not height:
        return f"it has {width} x {height} pixels"
    if width > MAX_SIDE or height > MAX_SIDE:
        return f"it has {width} x {height} pixels, more than {MAX_SIDE:,} a side"
    if width * height > MAX_PIXELS:
        return f"it has {width} x {height} pixels, more than {MAX_PIXELS:,}"
    return None


def _broken(problem: str) -> JpegHeader:
    return JpegHeader(0, 0, 0, False, False, False, 0, problem)


def _may_turn(data: bytes, start: int) -> bool:
    """Whether Exif data may hold an orientation other than upright, in doubt too."""
    order = {b"II*\0": "<", b"MM\0*": ">"}.get(data[start : start + 4])
    if order is None:
        return True
    try:
        (offset,) = struct.unpack_from(order + "I", data, start + 4)
        (count,) = struct.unpack_from(order + "H", data, start + offset)
        entries = data[start + offset + 2 : start + offset + 2 + 12 * count]
        return any(
            entry[0] == _ORIENTATION and entry != _UPRIGHT
            for entry in struct.iter_unpack(order + "HHIH2x", entries)
        )
    except struct.error:
        return True
