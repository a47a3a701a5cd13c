"""In which form the records of a dataset hold images and labels."""

import enum
import math
from base64 import b64decode
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tfrtool.errors import DatasetError, os_reason
from tfrtool.examples.content import describe_bytes
from tfrtool.examples.example import Feature
from tfrtool.examples.roles import CHANNELS, HEIGHTS, WIDTHS, said_size
from tfrtool.examples.tfds_metadata import FEATURES
from tfrtool.storage.json_files import read_json, text_of, whole_number
from tfrtool.storage.limits import MAX_CLASSES

_DECODED = ("image/jpeg", "image/png", "image/gif", "image/bmp", "image/webp")
"""What ``tf.io.decode_image`` takes."""

_FEW = (1, 2, 3, 4)


class ImageEncoding(enum.Enum):
    """What the bytes of an image feature are."""

    ENCODED = "encoded"  # a file of any format that ``tf.io.decode_image`` takes
    RAW = "raw"  # uint8 pixels, row by row, channels last
    BASE64 = "base64"  # the same as base64 with ``-`` and ``_``, as tensorflow-recorder does


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageForm:
    """The form of an image feature; for pixels also where their shape is said."""

    encoding: ImageEncoding = ImageEncoding.ENCODED
    height: int | None = None  # of all images, in pixels; None where each record says its own
    width: int | None = None
    channels: int | None = None  # values a pixel; None for encoded images
    height_feature: str | None = None  # int64, a record's height; None where all are alike
    width_feature: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """What features.json says of the image and the label."""

    connector: str | None = None  # the TFDS class of the image feature, "Image" or "Tensor"
    dtype: str = "uint8"  # of the image's values
    encoding: str = "none"  # how a tensor is stored: "none", "bytes" or "zlib"
    shape: tuple[int, ...] = ()  # of the image; -1 for what differs from record to record
    classes: int | None = None  # how many the label has


def read_described(directory: Path, image: str, label: str) -> Described:
    """Read features.json; where it is not there, or of another TFDS' form, nothing is said.

    It is a `DatasetError` if it can't be read, is no JSON, or says that there are too many classes.
    """
    path = directory / FEATURES
    try:
        content = read_json(path)
    except FileNotFoundError:
        return Described()
    except OSError as error:
        raise DatasetError(f"can't be read: {os_reason(error)}", path=path) from error
    except ValueError as error:
        raise DatasetError(f"no JSON that can be read: {error}", path=path) from error
    try:
        features = content["featuresDict"]["features"]
        held = features.get(image, {})
        pixels = held.get("image") or held.get("tensor") or {}
        shape = pixels.get("shape", {}).get("dimensions", ())
        classes = features.get(label, {}).get("classLabel", {}).get("numClasses")
        described = Described(
            connector=text_of(held.get("pythonClassName", "")).rpartition(".")[2] or None,
            dtype=text_of(pixels.get("dtype", "uint8")),
            encoding=text_of(pixels.get("encoding", "none")),
            shape=tuple(-1 if size in ("-1", -1) else whole_number(size) for size in shape),
            classes=None if classes is None else whole_number(classes),
        )
    except (KeyError, TypeError, ValueError, AttributeError):
        return Described()
    if described.classes is not None and described.classes > MAX_CLASSES:
        many = f"{described.classes:,} classes, and at most {MAX_CLASSES:,} are read"
        raise DatasetError(f"the label {label!r} has {many}", path=path)
    return described


def find_image_form(
    features: Mapping[str, Feature], image: str, described: Described, directory: Path
) -> ImageForm:
    """Tell the form of the images from one record and what features.json says of them.

    It is a `DatasetError` if they have a form that can't be trained on.
    """
    value = features[image].values[0]
    data = value if isinstance(value, bytes) else b""
    content, problem = describe_bytes(data), None
    if content not in _DECODED:
        problem = f"{len(data)} bytes of {content} data"
    if described.connector != "Image":
        form = _as_described(described, data) or _as_said(features, image, data)
        if form is not None:
            return form
    elif not described.dtype.startswith("uint"):
        problem = f"{described.dtype} as the bytes of colours, as TFDS stores them"
    if problem is None:
        return ImageForm()
    raise DatasetError(
        f"the images in the feature {image!r} can't be decoded",
        path=directory,
        expected="JPEG, PNG, GIF, BMP or WebP files, or uint8 pixels of a height and width that "
        "each record or features.json says",
        found=problem,
        hint="tfrtool write makes such a dataset of image files",
    )


def _as_described(described: Described, data: bytes) -> ImageForm | None:
    """Return the form of tensors of one shape, as TFDS stores them in bytes."""
    shape = (*described.shape, 1) if len(described.shape) == 2 else described.shape
    if described.dtype != "uint8" or described.encoding != "bytes" or len(shape) != 3:
        return None
    if min(shape) < 1 or shape[2] not in _FEW or math.prod(shape) != len(data):
        return None
    return ImageForm(encoding=ImageEncoding.RAW, height=shape[0], width=shape[1], channels=shape[2])


def _as_said(features: Mapping[str, Feature], image: str, data: bytes) -> ImageForm | None:
    """Return the form of pixels whose number is the product of what their record says."""
    (height, high), (width, wide), (_, depth) = (
        said_size(features, image, endings) for endings in (HEIGHTS, WIDTHS, CHANNELS)
    )
    if height is None or width is None:
        return None
    area = high[0] * wide[0]
    sizes = {ImageEncoding.BASE64: _base64_size(data), ImageEncoding.RAW: len(data)}
    for encoding, size in sizes.items():
        channels, rest = divmod(size, area)
        if channels in _FEW and not rest and depth in ((), (channels,)):
            return ImageForm(
                encoding=encoding, channels=channels, height_feature=height, width_feature=width
            )
    return None


def _base64_size(data: bytes) -> int:
    """Return how many bytes ``data`` stands for, if it is base64; else 0."""
    try:
        return len(b64decode(data, altchars=b"-_", validate=True))
    except ValueError:  # or binascii.Error, which is one
        return 0
