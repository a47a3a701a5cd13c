"""What a JPEG says of itself before its pixels: read without Pillow, in a few microseconds."""

import contextlib
import re
import struct
from typing import NamedTuple

from tfrtool.images.structure import exif_problem, structure_problem
from tfrtool.storage.limits import (
    MAX_IMAGE_BYTES,
    MAX_IMAGE_PIXELS,
    MAX_SCAN_PIXELS,
    MAX_SCANS,
    MAX_SEGMENTS,
    MAX_STRAY_BYTES,
)

MAX_SIDE = 65_500
"""The longest side of a JPEG that libjpeg reads or writes: its JPEG_MAX_DIMENSION."""

# Markers, from ITU-T T.81, table B.1.
_SOF0, _SOF1, _SOF2, _DHT, _JPG, _DAC, _EOI, _SOS, _APP1 = (
    *(0xC0, 0xC1, 0xC2, 0xC4, 0xC8, 0xCC),
    *(0xD9, 0xDA, 0xE1),
)
_TABLES_AND_COMMENTS = frozenset({_DHT, 0xDB, 0xDD, 0xFE})
_JFIF, _ADOBE, _MARKED_BYTES = 0xE0, 0xEE, 14
"""Segments whose metadata parsers take as it is, if they are no shorter than this."""
_PLAIN_FRAMES = frozenset({_SOF0, _SOF1, _SOF2})
_FRAMES = frozenset(range(_SOF0, 0xD0)) - {_DHT, _JPG, _DAC}
_UNKNOWN_FRAMES = frozenset({0xC5, 0xC6, 0xC7, 0xCB, 0xCD, 0xCE, 0xCF})
"""Hierarchical and arithmetic lossless coding: libjpeg-turbo refuses them all."""
_WITH_LENGTH = frozenset({*range(0xC0, 0xD0), *range(0xDA, 0xF0), 0xFE}) - {_JPG}

_MARKER = re.compile(rb"\xff[^\x00\xff]")
_AFTER_SCAN = re.compile(rb"\xff[^\x00\xd0-\xd7\xff]")
"""A marker that ends a scan: no stuffed byte, no restart marker."""

_TURNED_XMP = re.compile(rb'tiff:Orientation(?:="|>)[2-9]')
ORIENTATION = 0x0112
"""The tag of Exif data that says how an image is turned (Exif 2.32, table 4)."""

_UPRIGHT = (ORIENTATION, 3, 1, 1)  # tag, type SHORT, one value, the value


class JpegHeader(NamedTuple):
    """What was found before the first scan of a JPEG; a named tuple, because each image has one."""

    width: int  # in pixels; 0 without a frame header
    height: int
    components: int  # channels as stored: 1 gray, 3 color, 4 CMYK
    plain: bool  # baseline or progressive Huffman coding, gray or color, no stray bytes
    huffman: bool  # baseline or progressive with Huffman codes, as nearly all are
    familiar: bool  # TensorFlow knows its coding process, arithmetic coding among them
    turned: bool  # its metadata may turn it; if not, it is upright for sure
    scan: int  # where the entropy-coded data starts, in bytes
    single: bool  # libjpeg reads one scan of it, and refuses more: baseline, all components at once
    usual: bool  # plain and single, and without metadata that parsers could stumble over
    problem: str | None  # why no decoder reads it; None where one may


def is_jpeg(data: bytes) -> bool:
    """Return whether the first three bytes are those of a JPEG, as Pillow and TensorFlow do."""
    return data.startswith(b"\xff\xd8\xff")


def read_jpeg_header(data: bytes) -> JpegHeader:
    """Walk the markers of a whole JPEG file up to its first scan; no bytes make it raise.

    Stray bytes between segments are passed over as libjpeg and Pillow do.
    """
    width = height = components = bits = frame = frames = stray = 0
    plain, turned, bare, exif = True, False, True, bytearray()
    position = 2
    try:
        for _ in range(MAX_SEGMENTS):
            marker = data[position + 1]
            if data[position] != 0xFF or marker not in _WITH_LENGTH:
                plain = plain and marker == 0xFF and data[position] == 0xFF  # fill bytes
                found = _MARKER.search(data, position)
                if found is None:
                    raise IndexError
                stray += found.start() - position
                if stray > MAX_STRAY_BYTES:
                    return _broken(f"{stray:,} stray bytes (limit {MAX_STRAY_BYTES:,})")
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
                bare = False
                if data.startswith(b"Exif\0\0", position + 4):
                    # Pillow joins several of them.
                    turned = turned or bool(exif) or _may_turn(data, position + 10)
                    exif += data[position + 10 : position + length + 2]
                    if (problem := exif_problem(bytes(exif))) is not None:
                        return _broken(problem)
                elif _TURNED_XMP.search(data, position, position + length + 2):
                    turned = True
            elif marker not in _TABLES_AND_COMMENTS:
                bare = bare and marker in (_JFIF, _ADOBE) and length >= _MARKED_BYTES
            if length < 2:
                plain, length = False, 2
            position += 2 + length
        else:
            return _broken(f"more than {MAX_SEGMENTS:,} segments before the image data")
    except IndexError:
        return _broken("truncated before the image data")
    scan = position + 2 + length
    if frames == 0:
        problem = "no frame header"
    elif frame in _UNKNOWN_FRAMES:
        problem = f"unsupported JPEG coding process (SOF{frame - _SOF0})"
    elif bits != 8 or components not in (1, 3, 4):
        problem = f"unsupported JPEG: {components} components of {bits} bits"
    else:
        problem = _size_problem(width, height)
    huffman = frame in _PLAIN_FRAMES
    plain = plain and frames == 1 and huffman and components != 4
    familiar = huffman or frame in (0xC9, 0xCA)
    # jdinput.c, has_multiple_scans. Behind "start of scan" and its length stands how many it is of.
    together = data[position + 4 : position + 5] == bytes([components & 0xFF])
    single = frames == 1 and frame in (_SOF0, _SOF1) and together
    usual = plain and single and bare
    return JpegHeader(
        width, height, components, plain, huffman, familiar, turned, scan, single, usual, problem
    )


class JpegScans(NamedTuple):
    """Where the entropy-coded data of a JPEG ends."""

    spans: tuple[tuple[int, int], ...] = ()  # start and end of each scan's data, without fill bytes
    end: int = -1  # where the end-of-image marker is; -1 if there is none
    problem: str | None = None  # why it must not be decoded: its scans would cost too much


def read_jpeg_scans(data: bytes, header: JpegHeader) -> JpegScans:
    """Follow the scans of a JPEG to its end of image.

    libjpeg looks for that marker after the last scan, and TensorFlow refuses an image whose data
    stops before it. Pillow passes one if all its rows have come by then. The header has no problem.
    """
    pixels = header.width * header.height
    position, start, spans = header.scan, header.scan, []
    for _ in range(MAX_SEGMENTS):
        found = _AFTER_SCAN.search(data, position)
        if found is None:
            break
        marker, position = data[found.end() - 1], found.end()
        if start:
            end = found.start()
            if data[end - 1] == 0xFF:
                end = start + len(data[start:end].rstrip(b"\xff"))
            spans.append((start, end))
        if marker == _EOI:
            return JpegScans(tuple(spans), found.start())
        if marker in _WITH_LENGTH:
            position += max(2, int.from_bytes(data[position : position + 2], "big"))
        start = position if marker == _SOS else 0
        scans = len(spans) + bool(start)
        if scans > MAX_SCANS or (scans > 1 and scans * pixels > MAX_SCAN_PIXELS):
            problem = f"too many scans: {scans} or more of {header.width} x {header.height} pixels"
            return JpegScans(problem=problem)
    else:
        return JpegScans(problem=f"more than {MAX_SEGMENTS:,} segments after the image data")
    return JpegScans()


def limit_problem(data: bytes) -> str | None:
    """Return why an image of any format must not be given to a decoder; None where it may."""
    if len(data) > MAX_IMAGE_BYTES:
        return f"{len(data):,} bytes (limit {MAX_IMAGE_BYTES:,})"
    if not is_jpeg(data):
        return structure_problem(data, all_frames=True) or pixels_problem(*claimed_sides(data))
    header = read_jpeg_header(data)
    # To look for scans takes longer than all the rest.
    return header.problem or (None if header.single else read_jpeg_scans(data, header).problem)


def claimed_sides(data: bytes) -> tuple[int, int]:
    """Return the width and height that another image than a JPEG says of itself; 0 if unknown."""
    sides = (0, 0)
    with contextlib.suppress(struct.error):  # it is cut, and no decoder gets far
        if data.startswith(b"\x89PNG"):
            sides = struct.unpack_from(">II", data, 16)
        elif data.startswith(b"GIF8"):
            sides = struct.unpack_from("<HH", data, 6)
        elif data.startswith(b"BM"):
            sides = struct.unpack_from("<ii", data, 18)
        elif data[12:16] == b"VP8X":  # WebP; without it, a side has 14 bits
            bits = int.from_bytes(data[24:30], "little")
            sides = (bits & 0xFFFFFF) + 1, (bits >> 24) + 1
        elif data[12:16] == b"VP8 ":
            (bits,) = struct.unpack_from("<I", data, 26)
            sides = bits & 0x3FFF, bits >> 16 & 0x3FFF
        elif data[12:16] == b"VP8L":
            (bits,) = struct.unpack_from("<I", data, 21)
            sides = (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    return abs(sides[0]), abs(sides[1])


def pixels_problem(width: int, height: int) -> str | None:
    """Return why an image of this size must not be decoded, or None."""
    if width * height <= MAX_IMAGE_PIXELS:
        return None
    return f"{width} x {height} pixels (limit {MAX_IMAGE_PIXELS:,} in total)"


def _size_problem(width: int, height: int) -> str | None:
    if not width or not height:
        return f"empty image: {width} x {height} pixels"
    if width > MAX_SIDE or height > MAX_SIDE:
        return f"{width} x {height} pixels (limit {MAX_SIDE:,} per side)"
    return pixels_problem(width, height)


def _broken(problem: str) -> JpegHeader:
    return JpegHeader(0, 0, 0, False, False, False, False, 0, False, False, problem)


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
            entry[0] == ORIENTATION and entry != _UPRIGHT
            for entry in struct.iter_unpack(order + "HHIH2x", entries)
        )
    except struct.error:
        return True
