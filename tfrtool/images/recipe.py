"""How images are checked and encoded: the options of everything that is done to one image."""

import enum
import re
from dataclasses import dataclass

from tfrtool.errors import UsageError
from tfrtool.storage.arguments import parse_enum_fields

LARGEST_SIDE = 16_384
"""libjpeg's own limit is 65,500 a side; a quarter of it is beyond any model's input."""


class Check(enum.Enum):
    """What makes an image bad; the values are those of the CLI."""

    DECODE = "decode"
    """It does not fully decode, or has less or more data than pixels."""
    HEADER = "header"
    """The header of a JPEG is wrong; or it needs encoding, and does not fully decode."""
    TFDS = "tfds"
    """TFDS' own rule for cats_vs_dogs, no "JFIF" among its first bytes; or that of `HEADER`."""


class Encode(enum.Enum):
    """What bytes are written; the values are those of the CLI."""

    KEEP = "keep"
    """The file's own where they are a good JPEG, else a JPEG made from them."""
    JPEG = "jpeg"
    PNG = "png"
    RAW = "raw"
    """Pixels, uint8, row by row, three channels."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resize:
    """A size to scale to, in pixels: an exact one, or that of the shorter side."""

    width: int | None = None
    height: int | None = None
    shorter: int | None = None

    def __post_init__(self) -> None:
        sides = (self.width, self.height) if self.shorter is None else (self.shorter,)
        if any(side is None or not 1 <= side <= LARGEST_SIDE for side in sides):
            what = f"invalid --resize {'x'.join(str(side) for side in sides)}"
            raise UsageError(what, expected=f"1 to {LARGEST_SIDE:,} pixels per side")

    @classmethod
    def of(cls, size: int | tuple[int, int] | None) -> "Resize | None":
        """Return what a caller means by the shorter side alone, or by width and height."""
        if size is None or isinstance(size, int):
            return None if size is None else cls(shorter=size)
        return cls(width=size[0], height=size[1])

    def fit(self, width: int, height: int) -> tuple[int, int]:
        """Return the width and height that an image of this size gets, in pixels.

        Scaling to a shorter side keeps the aspect ratio as nearly as whole pixels can; an exact
        size stretches.
        """
        if self.width is not None and self.height is not None:
            return self.width, self.height
        twice, least = 2 * (self.shorter or 1), min(width, height)
        # Rounded half up in whole numbers: the same on every machine, and never 0.
        return (twice * width + least) // (2 * least), (twice * height + least) // (2 * least)


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageRecipe:
    """What is done to every image."""

    check: Check = Check.DECODE
    encode: Encode = Encode.KEEP
    resize: Resize | None = None
    quality: int = 95  # of JPEGs that are made, 1 to 100; TFDS' cats_vs_dogs has 95
    orient: bool = True  # whether EXIF orientation is applied to pixels, or left to the file

    def __post_init__(self) -> None:
        parse_enum_fields(self, check=Check, encode=Encode)
        if not 1 <= self.quality <= 100:
            raise UsageError(f"--quality must be 1 to 100, got {self.quality}")

    @property
    def always(self) -> bool:
        """Whether every image is re-encoded."""
        return self.encode is not Encode.KEEP or self.resize is not None


def parse_size(text: str) -> int | tuple[int, int]:
    """Parse a size of images: 224 for the shorter side, 224x160 for width and height."""
    match = re.fullmatch(r"(\d{1,6})(?:x(\d{1,6}))?", text.strip(), re.ASCII | re.IGNORECASE)
    if match is None:
        raise UsageError(f"invalid image size {text!r}: expected N or WxH, such as 224 or 224x160")
    return int(match[1]) if match[2] is None else (int(match[1]), int(match[2]))
