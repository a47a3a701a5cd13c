"""Masks of objects: COCO's outlines and run lengths, as bitmaps and as PNG.

Every pixel is where pycocotools has it. That is written in C, and not for files that nobody trusts:
version 2.0.11 dies of a polygon with a corner at 1e9, and merges run lengths of 2**31 for minutes.
"""

import io
import json
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from tfrtool.errors import SourceError
from tfrtool.images.audit import UPRIGHTING
from tfrtool.images.decoder import decoder_reason, open_image
from tfrtool.storage.limits import MAX_HELD_PIXELS, MAX_IMAGE_PIXELS, MAX_OUTLINE_POINTS

Bitmap = npt.NDArray[np.uint8]
"""1 in an object, else 0: height x width."""

_SCALE = 5  # parts of a pixel that an outline is followed by, in pycocotools
_DIGITS = 7  # of a compressed run length, of 5 bits each


def run_lengths(mask: Any) -> tuple[npt.NDArray[np.int64], int, int]:
    """Return the run lengths of COCO's mask, column by column, and its width and height.

    `ValueError` if it is none: they must fill the size that it says.
    """
    size, counts = mask.get("size"), mask.get("counts")
    if not isinstance(size, list) or [type(side) for side in size] != [int, int] or min(size) < 1:
        raise ValueError("mask has no size")
    height, width = size
    if width * height > MAX_IMAGE_PIXELS:
        raise ValueError(f"mask of {width} x {height} pixels (limit {MAX_IMAGE_PIXELS:,})")
    if isinstance(counts, str):
        runs = _uncompressed(counts)
    elif isinstance(counts, list) and {*map(type, counts)} == {int}:
        # Numbers beyond 64 bits make objects of Python, or floats.
        runs = np.array(counts).clip(-1, 2**31).astype(np.int64)
    else:
        raise ValueError("mask has no run lengths")
    if runs.min() < 0 or runs.sum() != width * height:
        raise ValueError(f"run lengths of the mask don't fill {width} x {height} pixels")
    return runs, width, height


def _uncompressed(text: str) -> npt.NDArray[np.int64]:
    """Return the run lengths of pycocotools' ``rleToString``: differences, in digits of 6 bits."""
    digits = np.frombuffer(text.encode("utf-8", "replace"), np.uint8).astype(np.int64) - 48
    ends = np.flatnonzero((digits & 32) == 0)
    if not len(ends) or ends[-1] != len(digits) - 1 or digits.min() < 0 or digits.max() > 63:
        raise ValueError("run lengths of the mask are not valid COCO text")
    starts = np.concatenate(([0], ends[:-1] + 1))
    lengths = ends - starts + 1
    if lengths.max() > _DIGITS:
        raise ValueError("a run length of the mask has too many digits")
    places = 5 * (np.arange(len(digits)) - np.repeat(starts, lengths))
    runs = np.add.reduceat((digits & 31) << places, starts)
    runs -= np.where(digits[ends] & 16, 1 << 5 * lengths, 0)
    for alternate_runs in (runs[1::2], runs[2::2]):
        np.cumsum(alternate_runs, out=alternate_runs)
    return runs


def _compressed(runs: Sequence[int]) -> str:
    """Return what `_uncompressed` reads."""
    digits = bytearray()
    for at, run in enumerate(runs):
        rest = run - runs[at - 2] if at > 2 else run
        more = True
        while more:
            digit, rest = rest & 31, rest >> 5
            more = rest != (-1 if digit & 16 else 0)
            digits.append(48 + digit + 32 * more)
    return digits.decode()


def mask_bitmap(segmentation: str, width: int, height: int) -> Bitmap:
    """Return the mask of an object in an image of a size; it is empty where nothing is known.

    Args:
        segmentation: as `ObjectAnnotation` has it.
        width: of the image, in pixels.
        height: of the image, in pixels.
    """
    found = json.loads(segmentation or "[]")
    if isinstance(found, dict):
        bitmap = _unpacked(*run_lengths(found))
        return _transformed(bitmap, 1, width, height)
    bitmap = np.zeros((height, width), np.uint8)
    for outline in found:
        bitmap |= _filled(outline, width, height)
    return bitmap


def mask_picture(mask: Any) -> Image.Image:
    """Return COCO's mask of run lengths as a picture of mode L, 255 in the object; `ValueError`."""
    return Image.fromarray(_unpacked(*run_lengths(mask)) * 255)


def _unpacked(runs: npt.NDArray[np.int64], width: int, height: int) -> Bitmap:
    is_inside = np.arange(len(runs)) % 2
    bitmap: Bitmap = np.repeat(is_inside.astype(np.uint8), runs).reshape((width, height)).T
    return bitmap


def outline_points(outline: Sequence[float]) -> float:
    """Return about how many points are looked at to fill an outline."""
    x, y = (np.abs(np.diff(np.array(some, float))) for some in (outline[::2], outline[1::2]))
    return float(2 * _SCALE * np.maximum(x, y).sum())  # with the way back to its start


def _filled(outline: Sequence[float], width: int, height: int) -> Bitmap:
    """Fill a polygon as pycocotools' ``rleFrPoly`` does."""
    if outline_points(outline) > MAX_OUTLINE_POINTS:
        raise SourceError(f"an outline has more than {MAX_OUTLINE_POINTS:,} points")
    x, y = (np.trunc(_SCALE * np.array(some) + 0.5) for some in (outline[::2], outline[1::2]))
    (x0, y0), (x1, y1) = (x, y), (np.roll(x, -1), np.roll(y, -1))
    steep = abs(x1 - x0) < abs(y1 - y0)
    back = np.where(steep, y0 > y1, x0 > x1)
    x0, x1 = np.where(back, x1, x0), np.where(back, x0, x1)
    y0, y1 = np.where(back, y1, y0), np.where(back, y0, y1)
    steps = np.maximum(abs(x1 - x0), abs(y1 - y0)).astype(np.int64)
    counts = steps + 1
    of = np.repeat(np.arange(len(counts)), counts)
    step = np.arange(len(of)) - np.repeat(np.cumsum(counts) - counts, counts)
    step = np.where(back[of], steps[of] - step, step)
    slope = np.where(steep, x1 - x0, y1 - y0) / np.maximum(steps, 1)
    across = np.trunc(np.where(steep, x0, y0)[of] + slope[of] * step + 0.5)
    along = np.where(steep, y0, x0)[of] + step
    u, v = np.where(steep[of], across, along), np.where(steep[of], along, across)
    column = np.where(u[1:] < u[:-1], u[1:], u[1:] - 1)
    column = (column + 0.5) / _SCALE - 0.5
    met = (u[1:] != u[:-1]) & (column == np.floor(column)) & (column >= 0) & (column < width)
    row = (np.minimum(v[1:], v[:-1])[met] + 0.5) / _SCALE - 0.5
    edges = column[met] * height + np.ceil(np.clip(row, 0, height))
    places, often = np.unique(edges.astype(np.int64), return_counts=True)
    changes = np.zeros(width * height + 1, np.uint8)
    changes[places[often % 2 == 1]] = 1
    filled: Bitmap = np.bitwise_xor.accumulate(changes[:-1]).reshape((width, height)).T
    return filled


def _transformed(bitmap: Bitmap, turn: int, width: int, height: int) -> Bitmap:
    image = Image.fromarray(np.ascontiguousarray(bitmap))
    if turn in UPRIGHTING:
        image = image.transpose(UPRIGHTING[turn])
    return np.asarray(image.resize((width, height), Image.Resampling.NEAREST))


def moved_mask(segmentation: str, turn: int, width: int, height: int) -> str:
    """Return the run lengths of a mask, turned as `ImageAnnotation.moved` does, and scaled."""
    runs, wide, high = run_lengths(json.loads(segmentation))
    return mask_text(_transformed(_unpacked(runs, wide, high), turn, width, height))


def mask_text(bitmap: Bitmap) -> str:
    """Return a mask as run lengths, in JSON as COCO has it."""
    flat = bitmap.T.ravel()
    changes = np.flatnonzero(flat[1:] != flat[:-1]) + 1
    ends = [*([0] if flat[0] else []), *changes.tolist(), len(flat)]
    runs = np.diff([0, *ends]).tolist()
    mask = {"size": [*bitmap.shape], "counts": _compressed(runs)}
    return json.dumps(mask, separators=(",", ":"))


def read_mask(data: bytes, width: int, height: int) -> str:
    """Return an encoded mask as run lengths, as `mask_text`; the errors are those of `mask_of`."""
    return mask_text(mask_of(data, width, height))


def mask_of(data: bytes, width: int, height: int) -> Bitmap:
    """Return an encoded mask; what is not 0 is in the object.

    `ValueError` if it is not an image, or has another size.
    """
    bitmap = read_bitmap(data)
    if bitmap.shape != (height, width):
        high, wide = bitmap.shape
        what = f"its size is {wide} x {high}, not {width} x {height}"
        raise ValueError(f"mask can't be used: {what}")
    return bitmap


def mask_size(data: bytes) -> tuple[int, int]:
    """Return the width and height of an encoded mask; `ValueError` if it is not an image."""
    try:
        with open_image(data) as image:
            return image.width, image.height
    except Exception as error:  # decoders raise anything on hostile bytes
        raise ValueError(f"mask can't be used: {decoder_reason(error)}") from error


def read_bitmap(data: bytes) -> Bitmap:
    """Return a mask, 1 in the object; `ValueError` if it is not an image."""
    return (class_pixels(data) > 0).astype(np.uint8)


def class_pixels(data: bytes, *, by_color: bool = False) -> npt.NDArray[Any]:
    """Return the pixels of a mask: values, or numbers in a palette; or 24 bits of each color.

    `ValueError` if it is not an image, or has colors where values are expected.
    """
    try:
        with open_image(data) as image:
            if by_color:
                red, green, blue = np.moveaxis(np.asarray(image.convert("RGB"), np.int32), 2, 0)
                colors: npt.NDArray[Any] = (red << 16) + (green << 8) + blue
                return colors
            is_plain = image.mode in ("1", "L", "P", "I;16")
            values: npt.NDArray[Any] = np.asarray(image if is_plain else image.convert("RGB"))
    except Exception as error:  # decoders raise anything on hostile bytes
        raise ValueError(f"mask can't be used: {decoder_reason(error)}") from error
    if is_plain:
        return values
    if (values != values[..., :1]).any():
        raise ValueError(
            "mask has colors; their classes must be in a labelmap.txt next to the masks, in lines "
            "such as cat:128,0,0"
        )
    return values[..., 0]


def object_masks(
    masks: Sequence[bytes | str], size: tuple[int, int], target: tuple[int, int]
) -> Bitmap:
    """Return the masks of objects in an image of a size, scaled to another: [n, height, width].

    Each is an encoded mask, or a segmentation as `ObjectAnnotation` has it; or `ValueError`.
    """
    if len(masks) * max(math.prod(size), math.prod(target)) > MAX_HELD_PIXELS:
        raise ValueError(f"{len(masks):,} masks of {size[0]} x {size[1]} pixels are too large")
    scaled = np.zeros((len(masks), *target[::-1]), np.uint8)
    for number, mask in enumerate(masks):
        try:
            bitmap = mask_of(mask, *size) if isinstance(mask, bytes) else mask_bitmap(mask, *size)
        except (ValueError, SourceError) as error:
            raise ValueError(f"object {number}: {error}") from error
        scaled[number] = bitmap if size == target else _transformed(bitmap, 1, *target)
    return scaled


def pasted_mask(bitmap: Bitmap, left: int, top: int, width: int, height: int) -> str:
    """Return the mask of an image that has a part of it at a place, as `mask_text`.

    `ValueError` if it reaches out of the image, or that is too large.
    """
    high, wide = bitmap.shape
    if not 0 < width * height <= MAX_IMAGE_PIXELS:
        raise ValueError(f"mask of {width} x {height} pixels (limit {MAX_IMAGE_PIXELS:,})")
    if not (0 <= left <= width - wide and 0 <= top <= height - high):
        raise ValueError("mask reaches out of the image")
    full_mask = np.zeros((height, width), np.uint8)
    full_mask[top : top + high, left : left + wide] = bitmap
    return mask_text(full_mask)


def mask_png(bitmap: Bitmap) -> bytes:
    """Return a mask as a PNG of one channel, of 0 and 1, as the TF Object Detection API has it."""
    output = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(bitmap)).save(output, "PNG")
    return output.getvalue()
