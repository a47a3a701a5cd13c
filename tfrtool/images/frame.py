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


def read_frame(data: bytes) -> ImageFrame:
    """Read the header of an image; a `RefusedImageError` if it is none, or must not be decoded."""
    with open_image(data) as image:
        return ImageFrame(image.format or "", image.width, image.height, orientation_of(image))
