"""Small image files that tests make."""

from __future__ import annotations

import io
from pathlib import Path

from PIL import Image

__all__ = ["image_bytes", "many_scans", "write_class_folders"]

_ORIENTATION = 0x0112


def image_bytes(
    format_: str = "JPEG",
    *,
    mode: str = "RGB",
    size: tuple[int, int] = (16, 12),
    tint: int = 0,
    orientation: int | None = None,
) -> bytes:
    """Return an encoded image whose left half differs from its right half."""
    grey = Image.linear_gradient("L").resize(size).rotate(90)
    grey = grey.point([min(255, value // 2 + tint) for value in range(256)])
    image = grey.convert(mode)
    output = io.BytesIO()
    if orientation is None:
        image.save(output, format_)
    else:
        exif = Image.Exif()
        exif[_ORIENTATION] = orientation
        image.save(output, format_, exif=exif)
    return output.getvalue()


def many_scans(count: int) -> bytes:
    """Return a progressive JPEG with this number of scans, nearly all of them equal."""
    output = io.BytesIO()
    Image.linear_gradient("L").save(output, "JPEG", progressive=True)
    data = output.getvalue()
    first = data.index(b"\xff\xda")
    scan = data[first : data.index(b"\xff\xc4", first)]
    return data[:first] + scan * (count - data.count(b"\xff\xda")) + data[first:]


def write_class_folders(
    root: Path, classes: tuple[str, ...] = ("cat", "dog"), count: int = 6
) -> Path:
    """Write ``count`` numbered JPEGs for each class below ``root``, and return ``root``."""
    for number, name in enumerate(classes):
        folder = root / name
        folder.mkdir(parents=True)
        for index in range(count):
            data = image_bytes(size=(16 + index, 12), tint=40 * number + index)
            (folder / f"{name}.{index}.jpg").write_bytes(data)
    return root
