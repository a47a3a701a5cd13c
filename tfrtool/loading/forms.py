"""In which form the records of a dataset hold images."""

import contextlib
import enum
import math
from base64 import b64decode
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice, product
from pathlib import Path
from typing import Any

import numpy as np

from tfrtool.examples.content import describe_bytes
from tfrtool.examples.example import DType, Feature
from tfrtool.examples.roles import CHANNELS, HEIGHTS, WIDTHS, said_size
from tfrtool.examples.tfds_metadata import FEATURES
from tfrtool.images.header import limit_problem
from tfrtool.records.wire import read_tensor
from tfrtool.storage.json_files import read_json, reading_metadata, text_of, whole_number
from tfrtool.storage.limits import MAX_IMAGE_PIXELS

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

NOTHING = Feature(dtype=None, values=())
"""What stands for a feature that a record doesn't have."""


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
    size: tuple[int | str, ...] = ()  # RAW, BASE64, VALUES: height, width, or features with them
    channels: int | None = None  # values a pixel; None for encoded images
    element: str = "uint8"  # of TENSOR and VALUES: the dtype of a value
    is_flat: bool = False  # whether tensors have no dimension for channels
    black: float = 0.0  # what stands for no light, and for the most of it
    white: float = 255.0

    @property
    def size_features(self) -> tuple[str, ...]:
        """The int64 features that say a record's height and width."""
        return tuple(side for side in self.size if isinstance(side, str))

    @property
    def range(self) -> tuple[float, float]:
        """Between which numbers the values of images must be: a little beyond black and white.

        What computes floats may be a little beyond, too. Integers may not.
        """
        slack = 0.0 if self.element == "int64" else _SLACK * (self.white - self.black)
        return self.black - slack, self.white + slack

    @property
    def notes(self) -> tuple[str, ...]:
        """What was made of the images, a clause each; nothing of files and of uint8 pixels."""
        kinds = {ImageEncoding.TENSOR: "serialized tensors", ImageEncoding.VALUES: "arrays"}
        kind = kinds.get(self.encoding)
        told = "" if self.element == "uint8" else f", {self.black:g} to {self.white:g}"
        return () if kind is None else (f"{kind} of {self.element}{told}",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """What features.json says of a feature."""

    connector: str | None = None  # its TFDS class, "Image" or "Tensor"
    dtype: str = "uint8"  # of an image's values
    encoding: str = "none"  # how a tensor is stored: "none", "bytes" or "zlib"
    shape: tuple[int, ...] = ()  # of an image; -1 for what differs from record to record
    classes: int | None = None  # how many a label has
    listed: bool = False  # whether a label is a sequence


def read_features(directory: Path) -> Any:
    """Read features.json: JSON of any kind, or None where there is no such file.

    It is a `DatasetError` if it can't be read or is no JSON.
    """
    path = directory / FEATURES
    with contextlib.suppress(FileNotFoundError), reading_metadata(path, "TFDS"):
        return read_json(path)
    return None


def describe(content: Any, name: str) -> Described:
    """Tell what features.json says; of what is of another TFDS' form, that is nothing."""
    with contextlib.suppress(KeyError, TypeError, ValueError, AttributeError):
        held = content["featuresDict"]["features"].get(name, {})
        pixels = held.get("image") or held.get("tensor") or {}
        listed = held.get("sequence", {}).get("feature")
        classes = (listed or held).get("classLabel", {}).get("numClasses")
        shape = pixels.get("shape", {}).get("dimensions", ())
        return Described(
            connector=text_of(held.get("pythonClassName", "")).rpartition(".")[2] or None,
            dtype=text_of(pixels.get("dtype", "uint8")),
            encoding=text_of(pixels.get("encoding", "none")),
            shape=tuple(-1 if size in ("-1", -1) else whole_number(size) for size in shape),
            classes=None if classes is None else whole_number(classes),
            listed=listed is not None,
        )
    return Described()


def find_image_form(
    features: Mapping[str, Feature], image: str, described: Described
) -> ImageForm | str:
    """Tell the form of the images from one record and what features.json says of them.

    Text is why they have none that can be trained on: what is there, and what is wanted.
    """
    item, is_file = features[image], described.connector == "Image"
    if item.dtype is None:
        return "no values; needs string or float32"
    if item.dtype is DType.STRING and len(item.values) != 1:
        return f"string, {len(item.values)} values; needs one"
    if item.dtype is not DType.STRING or not is_file:
        for form in _pixel_forms(features, image, described):
            with contextlib.suppress(ValueError):
                stored_pixels(form, image, features)
                return form
    if item.dtype is not DType.STRING:
        return f"{told(item)}; needs string" + _UNSIZED * (len(item.values) >= _FEWEST)
    data = _only_bytes(item)
    content = describe_bytes(data)
    found = f"{len(data)} bytes of {content} data"
    if is_file and not described.dtype.startswith("uint"):
        found = f"{described.dtype} pixels that TFDS packs into an image file"
    elif content in _DECODED:
        return ImageForm()
    return (
        f"{found}; needs a JPEG, PNG, GIF, BMP or WebP file, a serialized tensor, or uint8 pixels "
        "with a height and width in each record or in features.json"
    )


def told(item: Feature) -> str:
    """Return the type of a feature, and how many values it has."""
    count, dtype = len(item.values), "no type" if item.dtype is None else item.dtype.value
    return f"{dtype}, {count:,} value{'s' * (count != 1)}"


def _pixel_forms(
    features: Mapping[str, Feature], image: str, described: Described
) -> Iterator[ImageForm]:
    """Yield the forms that pixels in a feature may have, by what is said of their shape."""
    dtype, element = features[image].dtype or DType.STRING, "uint8"
    described_as, said_as = [ImageEncoding.RAW], [ImageEncoding.BASE64, ImageEncoding.RAW]
    if dtype is not DType.STRING:
        element, described_as, said_as = dtype.value, [ImageEncoding.VALUES], [ImageEncoding.VALUES]
    elif (described.dtype, described.encoding) != ("uint8", "bytes"):
        described_as = []  # else it is as TFDS stores tensors of one shape
    (height, _), (width, _), (_, depth) = (
        said_size(features, image, endings) for endings in (HEIGHTS, WIDTHS, CHANNELS)
    )
    shapes: list[tuple[list[ImageEncoding], tuple[int | str, ...], tuple[int, ...]]] = []
    shape = described.shape if len(described.shape) == 3 else (*described.shape, 1)
    if _is_image(shape):
        shapes.append((described_as, shape[:2], shape[2:]))
    if height is not None and width is not None:
        shapes.append((said_as, (height, width), depth or _FEW))
    for encodings, size, depths in shapes:
        for encoding, channels in product(encodings, _FEW):
            if channels in depths:
                yield ImageForm(encoding=encoding, size=size, channels=channels, element=element)
    with contextlib.suppress(ValueError):
        yield _tensor_form(_tensor(_only_bytes(features[image])))


def with_range(
    form: ImageForm, image: str, records: Iterable[Mapping[str, Feature]]
) -> ImageForm | str:
    """Return the form with what black and white are in most of some images; text if in none."""
    if form.element in ("uint8", "int64"):
        return form
    ends: list[tuple[float, float]] = []
    for features in records:
        with contextlib.suppress(ValueError):
            pixels = stored_pixels(form, image, features)
            ends.append((float(pixels.min()), float(pixels.max())))
    for black, white in _RANGES:
        ranged = replace(form, black=black, white=white)
        low, high = ranged.range
        if 2 * sum(low <= least and most <= high for least, most in ends) > len(ends):
            return ranged
    found = f"{ends[0][0]:g} to {ends[0][1]:g}" if ends else "nothing"
    return f"{form.element}, {found}; needs 0 to 1, -1 to 1 or 0 to 255"


def image_problem(
    form: ImageForm, image: str, features: Mapping[str, Feature], *, ranged: bool = True
) -> str | None:
    """Return why a record's values can't be an image, as far as that shows without decoding it.

    Args:
        form: that of all images.
        image: the name of the feature.
        features: the record's, with those that say height and width, if there are any.
        ranged: whether it is a problem if values are beyond black and white.
    """
    try:
        if form.encoding is ImageEncoding.ENCODED:
            problem = limit_problem(_only_bytes(features.get(image, NOTHING)))
            return problem and f"can't be decoded: {problem}"
        pixels = stored_pixels(form, image, features)
    except ValueError as error:
        return str(error)
    low, high = form.range
    if ranged and not ((pixels >= low) & (pixels <= high)).all():
        return f"has values outside {form.black:g} to {form.white:g}"
    return None


def stored_pixels(form: ImageForm, image: str, features: Mapping[str, Feature]) -> Any:
    """Return an image that is no file: an array, [height, width, channels] or without channels.

    `ValueError` says why a record holds none of the form.
    """
    item, what = features.get(image, NOTHING), "values"
    if form.encoding is ImageEncoding.VALUES:
        if item.dtype is None or item.dtype.value != form.element:
            raise ValueError(f"is not an image: expected {form.element} values")
        data: Any = item.values
    else:
        data, what = _only_bytes(item), "bytes of pixels"
    if form.encoding is ImageEncoding.TENSOR:
        pixels = _tensor(data)
        found = replace(_tensor_form(pixels), black=form.black, white=form.white)
        if found != form:
            kinds = [f"{one.element} with {one.channels} channels" for one in (form, found)]
            raise ValueError(f"is a different tensor: expected {kinds[0]}, found {kinds[1]}")
        return pixels
    if form.encoding is ImageEncoding.BASE64:
        try:  # padding may be there or not
            data = b64decode(data + b"=" * (-len(data) % 4), altchars=b"-_", validate=True)
        except ValueError as error:  # or binascii.Error, which is one
            raise ValueError("is not base64-encoded pixels") from error
    sides = [_number(features.get(one)) if isinstance(one, str) else one for one in form.size]
    if min(sides) < 1:
        raise ValueError("is of unknown size: its record has no height and width")
    shape = (*sides, form.channels or 0)
    if len(data) != math.prod(shape):
        said = f"{' x '.join(map(str, shape))} = {math.prod(shape)} {what}"
        raise ValueError(f"has the wrong size: expected {said}, found {len(data)}")
    pixels = np.array(data, form.element) if what == "values" else np.frombuffer(data, np.uint8)
    return pixels.reshape(shape)


def _number(side: Feature | None) -> int:
    value = side.values[0] if side is not None and len(side.values) == 1 else 0
    return value if isinstance(value, int) else 0


def _only_bytes(item: Feature) -> bytes:
    value = item.values[0] if len(item.values) == 1 else None
    if not isinstance(value, bytes):
        raise ValueError("is not an image: expected one string value")
    return value


def _tensor(data: bytes) -> Any:
    """Return the array of a serialized tensor of an image; `ValueError` if it is none.

    TensorFlow believes a shape, and sets memory aside for it, before it looks for values.
    """
    try:
        number, shape, fields = read_tensor(data)
        ((field, content),) = islice(fields, 2)
        if field != _CONTENT or not isinstance(content, bytes) or number not in _ELEMENTS:
            raise ValueError("not a tensor of pixels")
        if not _is_image((*shape, 1) if len(shape) == 2 else shape):
            raise ValueError("another shape")
        element = np.dtype(_ELEMENTS[number]).newbyteorder("<")
        return np.frombuffer(content, element).reshape(shape)
    except ValueError as error:
        raise ValueError("is not a serialized tensor of an image") from error


def _tensor_form(pixels: Any) -> ImageForm:
    return ImageForm(
        encoding=ImageEncoding.TENSOR,
        element=pixels.dtype.name,
        channels=(*pixels.shape, 1)[2],
        is_flat=pixels.ndim == 2,
    )


def _is_image(shape: tuple[int, ...]) -> bool:
    if len(shape) != 3 or min(shape) < 1 or shape[2] not in _FEW:
        return False
    return shape[0] * shape[1] <= MAX_IMAGE_PIXELS
