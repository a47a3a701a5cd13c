"""Whether what an image is made of keeps to the limits, by its bytes and before decoding."""

import re
import struct

from tfrtool.storage.limits import (
    MAX_CHUNKS,
    MAX_EXIF_BYTES,
    MAX_FRAMES,
    MAX_HELD_PIXELS,
    MAX_IMAGE_PIXELS,
    MAX_METADATA_CHUNKS,
    MAX_SLOW_BYTES,
    MAX_STRAY_BYTES,
    MAX_STRIPS,
    MAX_TAGS,
)

_SEGMENT = 64 * 1024
"""The largest Exif data of one JPEG segment: tags in there cost little, however many."""

# TIFF 6.0, section 2, and the tags 273, 322, 323 and 324 of its sections 8 and 15.
_SHORT = 3
_TYPE_SIZES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 1, 7: 1, 8: 2, 9: 4, 10: 8, 11: 4, 12: 8, 13: 4,
               16: 8, 17: 8, 18: 8}  # fmt: skip
_STRIP_OFFSETS, _TILE_WIDTH, _TILE_LENGTH, _TILE_OFFSETS = 273, 322, 323, 324

_TIFFS = (b"\0\x2a", b"\x2a\0", b"\0\x2b", b"\x2b\0")
"""What follows the byte order; Pillow takes classic TIFF and BigTIFF in either order."""

_COMMENT = re.compile(rb"#[^\r\n]*[\r\n]?")
_BMP_RUN_LENGTHS = (1, 2)  # BI_RLE8 and BI_RLE4


def structure_problem(data: bytes, *, held: bool = False) -> str | None:
    """Return why an image that is no JPEG must not be decoded; None where it may.

    No bytes make it raise, and those of an unknown format have no problem here. With ``held``, the
    decoder is one that holds all frames of a GIF, as TensorFlow's does.
    """
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        return _png_problem(data)
    if data.startswith((b"GIF87a", b"GIF89a")):
        return _gif_problem(data, held)
    if data.startswith((b"II", b"MM")) and data[2:4] in _TIFFS:
        return _directory_problem(data)
    if data[:1] == b"P" and data[1:2] in b"0123456fy":
        return _ppm_problem(data)
    if data.startswith(b"BM") and int.from_bytes(data[30:34], "little") in _BMP_RUN_LENGTHS:
        return _slow_problem(data, "run-length encoded BMP")
    return None


def pixels_problem(width: int, height: int) -> str | None:
    """Return why an image of this size must not be decoded; None where it may."""
    if width * height <= MAX_IMAGE_PIXELS:
        return None
    return f"{width} x {height} pixels (limit {MAX_IMAGE_PIXELS:,} in total)"


def exif_problem(exif: bytes) -> str | None:
    """Return why Exif data, which is a TIFF without pixels, must not be read; None if it may."""
    if len(exif) > MAX_EXIF_BYTES:
        return f"{len(exif):,} bytes of EXIF data (limit {MAX_EXIF_BYTES:,})"
    return _directory_problem(exif)


def _directory_problem(data: bytes) -> str | None:
    # Pillow takes a BigTIFF of the other byte order for a classic one, libtiff does not.
    kinds = {data[2:3] == b"\x2b", b"\x2b" in data[2:4]}
    return next(filter(None, (_tags_problem(data, big) for big in kinds)), None)


def _tags_problem(data: bytes, big: bool) -> str | None:
    """Look at the first directory of a TIFF, or of Exif data.

    One that reaches beyond its data is broken, as many are: it is read as far as it goes.
    """
    order = "<" if data.startswith(b"II") else ">"
    start, count, entry = ("Q", "Q", "HHQQ") if big else ("I", "H", "HHII")
    try:
        (place,) = struct.unpack_from(order + start, data, 8 if big else 4)
        (tags,) = struct.unpack_from(order + count, data, place)
    except (struct.error, OverflowError):
        return None
    place += struct.calcsize(order + count)
    size = struct.calcsize(order + entry)
    room = (len(data) - place) // size
    if tags > MAX_TAGS and (tags <= room or len(data) > _SEGMENT):
        return f"{tags:,} tags (limit {MAX_TAGS:,})"
    claimed, tile = 0, {}
    entries = data[place : place + size * min(tags, room)]
    for tag, type_, values, value in struct.iter_unpack(order + entry, entries):
        if tag in (_STRIP_OFFSETS, _TILE_OFFSETS) and values > MAX_STRIPS:
            return f"{values:,} strips or tiles (limit {MAX_STRIPS:,})"
        if tag in (_TILE_WIDTH, _TILE_LENGTH):
            # The first number of 16 bits is in the upper half of its field, or in the lower.
            short = value >> (8 * struct.calcsize(start) - 16 if order == ">" else 0) & 0xFFFF
            tile[tag] = short if type_ == _SHORT else value
        claimed += min(values * _TYPE_SIZES.get(type_, 0), len(data))
    pixels = tile.get(_TILE_WIDTH, 0) * tile.get(_TILE_LENGTH, 0)
    if pixels > MAX_IMAGE_PIXELS:
        return f"tiles of {pixels:,} pixels (limit {MAX_IMAGE_PIXELS:,})"
    if claimed > len(data) + 64 * MAX_EXIF_BYTES:
        return f"tags claim {claimed:,} bytes in a file of {len(data):,}"
    return None


def _png_problem(data: bytes) -> str | None:
    position, others = 8, 0
    for _ in range(MAX_CHUNKS):
        kind = data[position + 4 : position + 8]
        if kind in (b"IEND", b""):
            return None
        others += kind not in (b"IDAT", b"fdAT", b"fcTL")
        if others > MAX_METADATA_CHUNKS:
            return f"more than {MAX_METADATA_CHUNKS:,} metadata chunks"
        position += 12 + int.from_bytes(data[position : position + 4], "big")
    return f"more than {MAX_CHUNKS:,} chunks"


def _gif_problem(data: bytes, held: bool) -> str | None:
    """Walk through the blocks of a GIF (GIF89a specification, appendix A)."""
    frames = pixels = blocks = stray = 0
    position = 13 + _table(data, 10)
    while position < len(data) and data[position] != 0x3B:
        kind = data[position]
        if kind == 0x2C:
            frames += 1
            sides = data[position + 5 : position + 9]
            pixels += int.from_bytes(sides[:2], "little") * int.from_bytes(sides[2:], "little")
            position += 11 + _table(data, position + 9)
        elif kind == 0x21:
            position += 2
        else:
            stray += 1
            position += 1
            if stray > MAX_STRAY_BYTES:
                return f"more than {MAX_STRAY_BYTES:,} stray bytes"
            continue
        while position < len(data) and data[position]:
            position += 1 + data[position]
            blocks += kind == 0x21
        position += 1
        blocks += kind == 0x21
        if frames > MAX_FRAMES:
            return f"more than {MAX_FRAMES:,} frames"
        if held and pixels > MAX_HELD_PIXELS:
            return f"more than {MAX_HELD_PIXELS:,} pixels in all frames together"
        if blocks > MAX_CHUNKS:
            return f"more than {MAX_CHUNKS:,} metadata blocks"
    return None


def _table(data: bytes, flags: int) -> int:
    """Return the size in bytes of the colour table that the byte at ``flags`` tells of."""
    if flags >= len(data) or not data[flags] & 0x80:
        return 0
    return 6 << (data[flags] & 7)


def _ppm_problem(data: bytes) -> str | None:
    words = _COMMENT.sub(b"", data[:MAX_STRAY_BYTES]).split(None, 4)
    if len(words) < (4 if words[0] in (b"P1", b"P4") else 5) and len(data) > MAX_STRAY_BYTES:
        return f"header of more than {MAX_STRAY_BYTES:,} bytes"
    plain = words[0] in (b"P1", b"P2", b"P3")
    if not plain and (words[0] in (b"P4", b"Pf") or words[3:4] in ([b"255"], [b"65535"])):
        return None
    return _slow_problem(data, "PPM in text or of unusual depth")


def _slow_problem(data: bytes, kind: str) -> str | None:
    if len(data) <= MAX_SLOW_BYTES:
        return None
    return f"{kind} of {len(data):,} bytes (limit {MAX_SLOW_BYTES:,})"
