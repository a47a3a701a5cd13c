"""What the header of an image says: its format, its size, and how it is to be turned."""

from typing import NamedTuple

from tfrtool.images.audit import orientation_of
from tfrtool.images.decoder import open_image


class ImageFrame(NamedTuple):
    """An image as it is stored."""

    format: str  # by Pillow's name: "JPEG"
    width: int
    height: int
    orientation: int  # by EXIF, 1 to 8
    depth: int  # how many values a pixel has, 3 for one of a palette


def read_frame(data: bytes) -> ImageFrame:
    """Read the header of an image; a `RefusedImageError` if it is none, or must not be decoded."""
    with open_image(data) as image:
        depth = 3 if image.mode in ("P", "PA") else len(image.getbands())
        sides = image.width, image.height
        return ImageFrame(image.format or "", *sides, orientation_of(image), depth)
