"""In which form the records of a dataset hold images and labels."""

import enum
import math
from base64 import b64decode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from tfrtool.errors import DatasetError, os_reason
from tfrtool.examples.content import describe_bytes
from tfrtool.examples.example import DType, Feature
from tfrtool.examples.roles import CHANNELS, HEIGHTS, WIDTHS, said_size
from tfrtool.examples.tfds_metadata import FEATURES
from tfrtool.images.header import limit_problem
from tfrtool.records.wire import read_tensor
from tfrtool.storage.json_files import read_json, text_of, whole_number
from tfrtool.storage.limits import MAX_CLASSES, MAX_IMAGE_PIXELS

_DECODED = ("image/jpeg", "image/png", "image/gif", "image/bmp", "image/webp")
"""What ``tf.io.decode_image`` takes."""

_FEW = (1, 2, 3, 4)

_ELEMENTS = {1: "float32", 2: "float64", 4: "uint8", 19: "float16"}
"""Of tensors, by their numbers in tensorflow/core/framework/types.proto."""

_CONTENT = 4
"""The field of a TensorProto with all values, little-endian, as ``tf.io.serialize_tensor`` does."""

_RANGES = ((0.0, 1.0), (-1.0, 1.0), (0.0, 255.0))
"""What black and white are in floats; most images are in the first that they could be in."""

_FEWEST = 64
"""Numbers that may be an image whose shape is not known."""

_UNSIZED = ", or its height and width in int64 features or features.json"

_SLACK = 0.01
"""What floats may be beyond black and white, as a part of what is between."""


class ImageEncoding(enum.Enum):
    """What the bytes of an image feature are."""

    ENCODED = "encoded"  # a file of any format that ``tf.io.decode_image`` takes
    RAW = "raw"  # uint8 pixels, row by row, channels last
    BASE64 = "base64"  # the same as base64 with ``-`` and ``_``, as tensorflow-recorder does
    TENSOR = "tensor"  # what ``tf.io.serialize_tensor`` makes of a tensor of pixels
    VALUES = "values"  # no bytes, but a float32 or an int64 for each value of each pixel


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageForm:
    """The form of an image feature; for pixels also where their shape is said."""

    encoding: ImageEncoding = ImageEncoding.ENCODED
    height: int | None = None  # of all images, in pixels; None where each record says its own
    width: int | None = None
    channels: int | None = None  # values a pixel; None for encoded images
    height_feature: str | None = None  # int64, a record's height; None where all are alike
    width_feature: str | None = None
    element: str = "uint8"  # of TENSOR and VALUES: the dtype of a value
    is_flat: bool = False  # whether tensors have no dimension for channels
    black: float = 0.0  # what stands for no light, and for the most of it
    white: float = 255.0

    @property
    def notes(self) -> tuple[str, ...]:
        """What was made of the images, a clause each; nothing of files and of uint8 pixels."""
        kinds = {ImageEncoding.TENSOR: "serialized tensors", ImageEncoding.VALUES: "arrays"}
        kind = kinds.get(self.encoding)
        told = "" if self.element == "uint8" else f", {self.black:g} to {self.white:g}"
        return () if kind is None else (f"{kind} of {self.element}{told}",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """What features.json says of the image and the label."""

    connector: str | None = None  # the TFDS class of the image feature, "Image" or "Tensor"
    dtype: str = "uint8"  # of the image's values
    encoding: str = "none"  # how a tensor is stored: "none", "bytes" or "zlib"
    shape: tuple[int, ...] = ()  # of the image; -1 for what differs from record to record
    classes: int | None = None  # how many the label has
    listed: bool = False  # whether the label is a sequence


def read_features(directory: Path) -> Any:
    """Read features.json: JSON of any kind, or None where there is no such file.

    It is a `DatasetError` if it can't be read or is no JSON.
    """
    path = directory / FEATURES
    try:
        return read_json(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise DatasetError(f"can't be read: {os_reason(error)}", path=path) from error
    except ValueError as error:
        raise DatasetError(f"no JSON that can be read: {error}", path=path) from error


def describe(content: Any, directory: Path, image: str, label: str) -> Described:
    """Tell what features.json says; of what is of another TFDS' form, that is nothing.

    It is a `DatasetError` if it says that there are too many classes.
    """
    path = directory / FEATURES
    try:
        features = content["featuresDict"]["features"]
        held = features.get(image, {})
        pixels = held.get("image") or held.get("tensor") or {}
        shape = pixels.get("shape", {}).get("dimensions", ())
        target = features.get(label, {})
        listed = target.get("sequence", {}).get("feature")
        classes = (listed or target).get("classLabel", {}).get("numClasses")
        described = Described(
            connector=text_of(held.get("pythonClassName", "")).rpartition(".")[2] or None,
            dtype=text_of(pixels.get("dtype", "uint8")),
            encoding=text_of(pixels.get("encoding", "none")),
            shape=tuple(-1 if size in ("-1", -1) else whole_number(size) for size in shape),
            classes=None if classes is None else whole_number(classes),
            listed=listed is not None,
        )
    except (KeyError, TypeError, ValueError, AttributeError):
        return Described()
    if described.classes is not None and described.classes > MAX_CLASSES:
        many = f"{described.classes:,} classes, and at most {MAX_CLASSES:,} are read"
        raise DatasetError(f"the label {label!r} has {many}", path=path)
    return described


def find_image_form(
    features: Mapping[str, Feature], image: str, described: Described
) -> ImageForm | str:
    """Tell the form of the images from one record and what features.json says of them.

    Text is why they have none that can be trained on: what is there, and what is wanted.
    """
    item = features[image]
    if item.dtype is not DType.STRING:
        return _as_values(features, image, described)
    if len(item.values) != 1:
        return f"string, {len(item.values)} values; want one"
    value = item.values[0]
    data = value if isinstance(value, bytes) else b""
    content, found = describe_bytes(data), ""
    if content not in _DECODED:
        found = f"{len(data)} bytes of {content} data"
    if described.connector != "Image":
        sizes = {ImageEncoding.BASE64: _base64_size(data), ImageEncoding.RAW: len(data)}
        form = _as_described(described, data) or _as_said(features, image, sizes)
        form = form or _as_tensor(data)
        if form is not None:
            return form
    elif not described.dtype.startswith("uint"):
        found = f"{described.dtype} as the bytes of colours, as TFDS stores them"
    if not found:
        return ImageForm()
    return (
        f"{found}; want a JPEG, PNG, GIF, BMP or WebP file, a serialized tensor, or uint8 pixels "
        "of a height and width that each record or features.json says"
    )


def with_range(form: ImageForm, images: Iterable[Feature]) -> ImageForm | str:
    """Return the form with what black and white are in most of some images; text if in none."""
    if form.element in ("uint8", "int64"):
        return form
    held = [numbers for one in images if (numbers := _numbers(form, one)) is not None]
    ends = [(float(one.min()), float(one.max())) for one in held if one.size]
    for black, white in _RANGES:
        told = replace(form, black=black, white=white)
        low, high = range_of(told)
        if 2 * sum(low <= least and most <= high for least, most in ends) > len(ends):
            return told
    found = f"{ends[0][0]:g} to {ends[0][1]:g}" if ends else "nothing"
    return f"{form.element}, {found}; want 0 to 1, -1 to 1 or 0 to 255"


def range_of(form: ImageForm) -> tuple[float, float]:
    """Return between which numbers the values of images must be: a little beyond black and white.

    What computes floats may be a little beyond, too. Integers may not.
    """
    slack = 0.0 if form.element == "int64" else _SLACK * (form.white - form.black)
    return form.black - slack, form.white + slack


def image_problem(form: ImageForm, image: Feature, sides: Sequence[Feature]) -> str | None:
    """Return why a record's values can't be an image, as far as that shows without decoding it.

    Args:
        form: that of all images.
        image: the feature; without values where it is missing.
        sides: the features that say height and width, if there are any.
    """
    data = image.values[0] if len(image.values) == 1 else None
    numbers = form.encoding is ImageEncoding.VALUES
    if not numbers and not isinstance(data, bytes):
        return "is no image: expected one string value"
    if isinstance(data, bytes) and form.encoding is ImageEncoding.ENCODED:
        problem = limit_problem(data)
        return problem and f"does not decode: {problem}"
    if isinstance(data, bytes) and form.encoding is ImageEncoding.TENSOR:
        problem = tensor_problem(form, data)
        if problem is not None:
            return problem
    else:
        said: list[object] = [one.values[0] if len(one.values) == 1 else 0 for one in sides]
        said = said or [form.height, form.width]
        height, width = (side if isinstance(side, int) else 0 for side in said)
        if height < 1 or width < 1:
            return "is of unknown size: its record doesn't say how high and wide it is"
        held, what = len(image.values), "values"
        if isinstance(data, bytes) and not numbers:
            # Four characters of base64 stand for three bytes; padding may be there or not.
            packed = form.encoding is ImageEncoding.BASE64
            held, what = len(data.rstrip(b"=")) * 3 // 4 if packed else len(data), "bytes of pixels"
        size = math.prod((height, width, form.channels or 0))
        if held != size:
            shape = f"{height} x {width} x {form.channels}"
            return f"has a wrong size: expected {shape} = {size} {what}, found {held}"
    found, (low, high) = _numbers(form, image), range_of(form)
    if found is None:
        return f"is no image: expected {form.element} values"
    if not ((found >= low) & (found <= high)).all():
        return f"has other values than {form.black:g} to {form.white:g}"
    return None


def tensor_problem(form: ImageForm, data: bytes) -> str | None:
    """Return why bytes are no serialized tensor of an image; None if they are one.

    TensorFlow believes a shape, and sets memory aside for it, before it looks for values.
    """
    found = _as_tensor(data)
    if found is None:
        return "is no serialized tensor of an image"
    if (found.element, found.channels, found.is_flat) != (
        form.element,
        form.channels,
        form.is_flat,
    ):
        kinds = [f"{one.element} with {one.channels} channels" for one in (form, found)]
        return f"is another tensor: expected {kinds[0]}, found {kinds[1]}"
    return None


def _numbers(form: ImageForm, image: Feature) -> Any:
    """Return the numbers of an image whose range is to be told; None if they are of another type.

    There are none of uint8.
    """
    if form.encoding is ImageEncoding.VALUES:
        fits = getattr(image.dtype, "value", None) == form.element
        return np.array(image.values, form.element) if fits else None
    if form.encoding is not ImageEncoding.TENSOR or form.element == "uint8":
        return np.empty(0)
    try:
        element, _, content = _tensor_of(image.values[0] if len(image.values) == 1 else b"")
    except ValueError:
        return None
    return np.frombuffer(content, np.dtype(element).newbyteorder("<"))


def _tensor_of(data: Any) -> tuple[str, tuple[int, ...], bytes]:
    """Return the dtype, shape and content of a serialized tensor; `ValueError` if it is none."""
    number, shape, fields = read_tensor(data)
    held = list(islice(fields, 2))
    if number not in _ELEMENTS or len(held) != 1 or held[0][0] != _CONTENT:
        raise ValueError("no tensor of pixels")
    content = held[0][1]
    element = _ELEMENTS[number]
    size = math.prod(shape) * np.dtype(element).itemsize
    if not isinstance(content, bytes) or len(content) != size:
        raise ValueError("another number of values")
    return element, shape, content


def _as_tensor(data: bytes) -> ImageForm | None:
    """Return the form of a serialized tensor of an image; None of anything else."""
    try:
        element, shape, _ = _tensor_of(data)
    except ValueError:
        return None
    flat = len(shape) == 2
    shape = (*shape, 1) if flat else shape
    if not _is_image(shape):
        return None
    encoding = ImageEncoding.TENSOR
    return ImageForm(encoding=encoding, element=element, channels=shape[2], is_flat=flat)


def _is_image(shape: Sequence[int]) -> bool:
    if len(shape) != 3 or min(shape) < 1 or shape[2] not in _FEW:
        return False
    return shape[0] * shape[1] <= MAX_IMAGE_PIXELS


def _as_values(
    features: Mapping[str, Feature], image: str, described: Described
) -> ImageForm | str:
    """Return the form of numbers, one for each value of each pixel; text if they have no shape."""
    item, length = features[image], len(features[image].values)
    if item.dtype is None:
        return "no values; want string or float32"
    told, size = f"{item.dtype.value}, {length} value{'s' * (length != 1)}", described.shape
    shape = (*size, 1) if len(size) == 2 else size
    element = "int64" if item.dtype is DType.INT64 else "float32"
    form = _as_said(features, image, {ImageEncoding.VALUES: length})
    if _is_image(shape) and math.prod(shape) == length:
        encoding, (high, wide, channels) = ImageEncoding.VALUES, shape
        form = ImageForm(encoding=encoding, height=high, width=wide, channels=channels)
    if form is None:
        return f"{told}; want string" + _UNSIZED * (length >= _FEWEST)
    return replace(form, element=element)


def _as_described(described: Described, data: bytes) -> ImageForm | None:
    """Return the form of tensors of one shape, as TFDS stores them in bytes."""
    shape = (*described.shape, 1) if len(described.shape) == 2 else described.shape
    if described.dtype != "uint8" or described.encoding != "bytes":
        return None
    if not _is_image(shape) or math.prod(shape) != len(data):
        return None
    return ImageForm(encoding=ImageEncoding.RAW, height=shape[0], width=shape[1], channels=shape[2])


def _as_said(
    features: Mapping[str, Feature], image: str, sizes: Mapping[ImageEncoding, int]
) -> ImageForm | None:
    """Return the form of pixels whose number, by one encoding, is what their record says."""
    (height, high), (width, wide), (_, depth) = (
        said_size(features, image, endings) for endings in (HEIGHTS, WIDTHS, CHANNELS)
    )
    if height is None or width is None:
        return None
    area = high[0] * wide[0]
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
