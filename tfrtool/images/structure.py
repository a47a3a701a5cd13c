"""Whether the structure of an image keeps to the limits, by its bytes and before decoding."""

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
_TYPE_SIZES = (0, 1, 1, 2, 4, 8, 1, 1, 2, 4, 8, 4, 8, 4)
_STRIP_OFFSETS, _TILE_WIDTH, _TILE_LENGTH, _TILE_OFFSETS, _SHORT = 273, 322, 323, 324, 3

_BIG_TIFFS = (b"II\x2b\0", b"MM\0\x2b", b"II\0\x2b", b"MM\x2b\0")
_FAST_PPM = re.compile(
    rb"(?:P4|P[56](?=(?:\s+|#[^\r\n]*[\r\n])+\d+(?:\s+|#[^\r\n]*[\r\n])+\d+"
    rb"(?:\s+|#[^\r\n]*[\r\n])+(?:255|65535)\s)|Pf)\s"
)
"""What Pillow doesn't decode in Python, about a million bytes per second."""


def structure_problem(data: bytes, *, all_frames: bool = False) -> str | None:
    """Return why an image other than a JPEG must not be decoded, or None.

    Bytes of an unknown format have no problem here. With ``all_frames``, the decoder keeps all
    frames of a GIF, as TensorFlow's does.
    """
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        return _png_problem(data)
    if data.startswith((b"GIF87a", b"GIF89a")):
        return _gif_problem(data, all_frames)
    if data.startswith(_BIG_TIFFS):
        return "BigTIFF is not supported"
    if data.startswith((b"II\x2a\0", b"MM\0\x2a", b"II\0\x2a", b"MM\x2a\0")):
        return _tags_problem(data)
    slow = re.match(rb"P[0-9fy]\s", data) and not _FAST_PPM.match(data[:MAX_STRAY_BYTES])
    if slow or (data.startswith(b"BM") and data[30:34] in (b"\1\0\0\0", b"\2\0\0\0")):
        kind = "PPM in text or of unusual depth" if slow else "run-length encoded BMP"
        if len(data) > MAX_SLOW_BYTES:
            return f"{kind} of {len(data):,} bytes (limit {MAX_SLOW_BYTES:,})"
    return None


def exif_problem(exif: bytes) -> str | None:
    """Return why Exif data, which is a TIFF without pixels, must not be read, or None."""
    if len(exif) > MAX_EXIF_BYTES:
        return f"{len(exif):,} bytes of EXIF data (limit {MAX_EXIF_BYTES:,})"
    if exif.startswith(_BIG_TIFFS):
        return "EXIF data as BigTIFF is not supported"
    return _tags_problem(exif)


def _tags_problem(data: bytes) -> str | None:
    """Check the first directory of a TIFF or of Exif data, as far as it goes."""
    order = "<" if data.startswith(b"II") else ">"
    try:
        (position,) = struct.unpack_from(order + "I", data, 4)
        (tags,) = struct.unpack_from(order + "H", data, position)
    except struct.error:
        return None
    position += 2
    room = (len(data) - position) // 12
    if tags > MAX_TAGS and (tags <= room or len(data) > _SEGMENT):
        return f"{tags:,} tags (limit {MAX_TAGS:,})"
    claimed, tile = 0, {}
    entries = data[position : position + 12 * min(tags, room)]
    for tag, kind, values, value in struct.iter_unpack(order + "HHII", entries):
        if tag in (_STRIP_OFFSETS, _TILE_OFFSETS) and values > MAX_STRIPS:
            return f"{values:,} strips or tiles (limit {MAX_STRIPS:,})"
        if tag in (_TILE_WIDTH, _TILE_LENGTH):
            tile[tag] = value >> 16 if kind == _SHORT and order == ">" else value
            tile[tag] &= 0xFFFF if kind == _SHORT else 0xFFFFFFFF
        size = _TYPE_SIZES[kind] if kind < len(_TYPE_SIZES) else 0
        claimed += min(values * size, len(data))
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


def _gif_problem(data: bytes, all_frames: bool) -> str | None:
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
        if all_frames and pixels > MAX_HELD_PIXELS:
            return f"more than {MAX_HELD_PIXELS:,} pixels in all frames together"
        if blocks > MAX_CHUNKS:
            return f"more than {MAX_CHUNKS:,} metadata blocks"
    return None


def _table(data: bytes, flags: int) -> int:
    """Return the size in bytes of the color table that the byte at ``flags`` announces."""
    if flags >= len(data) or not data[flags] & 0x80:
        return 0
    return 6 << (data[flags] & 7)
