"""From records to pictures: which feature is the image, how large it is, and what it shows."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from tfrtool.examples.content import describe_bytes
from tfrtool.examples.example import DType, Example, Feature, PayloadKind, decode_example
from tfrtool.examples.roles import LabelNames, find_roles, info_beside
from tfrtool.examples.tfds_metadata import DatasetInfo
from tfrtool.images.pixels import Dimensions, Picture, decode_numbers, decode_picture, raw_shape
from tfrtool.images.tensor_proto import read_tensor
from tfrtool.inspection.verify.image_check import string_values
from tfrtool.records.framing import Fault, Record
from tfrtool.records.reader import read_records
from tfrtool.records.stream import open_shard

__all__ = [
    "Casting",
    "LabelledPicture",
    "PictureOptions",
    "cast_shard",
    "pictures_of",
]

_PROBE = 64
"""Records that are searched for an image before a shard is said to have none."""

_HEIGHTS = ("height", "rows")
_WIDTHS = ("width", "cols", "columns")
_CHANNELS = ("channels", "depth")
_SHAPES = ("shape",)
_NUMBER_IMAGES = ("image", "image_raw", "img", "pixels", "image/pixels", "image/data", "x")
_FEWEST_NUMBERS = 64
_LABELS_SHOWN = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class PictureOptions:
    """What is drawn of each record.

    Attributes:
        box: the side of the square that a picture must fit into, in pixels.
        image: the feature that holds it; None finds out.
        label: the feature that labels it; None finds out.
    """

    box: int = 128
    image: str | None = None
    label: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Casting:
    """Which features of a shard play which part, told from its first records.

    Attributes:
        image: the feature that holds an image; None where none was found.
        label: the feature that labels it; None where there is none.
        name: the feature that says which file it came from; None where there is none.
        others: further features that hold encoded images.
        label_names: the classes' names.
        features: the names that were seen, for saying what else there is.
        faults: damage that was met before an image was found.
    """

    image: str | None = None
    label: str | None = None
    name: str | None = None
    others: tuple[str, ...] = ()
    label_names: LabelNames = field(default_factory=LabelNames)
    features: tuple[str, ...] = ()
    faults: tuple[Fault, ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelledPicture:
    """What is shown of one image of a record.

    Attributes:
        record: its index in its shard, from 0.
        offset: where its header starts in the uncompressed stream, in bytes.
        label: its class, or else the name of its file; empty where it has neither.
        picture: its image, or why there is none.
        place: where the image is among those of its record: "[2]"; empty if it is the only one.
    """

    record: int
    offset: int
    label: str
    picture: Picture
    place: str = ""

    @property
    def size(self) -> str:
        """The image's size for people: "28 x 28", with a question mark where it was guessed."""
        if not self.picture.width:
            return ""
        size = f"{self.picture.width} x {self.picture.height}"
        return size + ("?" if self.picture.guessed else "")


def cast_shard(path: Path, options: PictureOptions) -> Casting:
    """Find the features that are the image, the label and the name in a shard.

    Raises:
        ShardError: the file can't be read.
    """
    with open_shard(path) as file:
        return _cast(read_records(file), path.parent, options)


def pictures_of(
    record: Record, casting: Casting, options: PictureOptions
) -> Iterator[LabelledPicture]:
    """Draw a record's images, at least one; where that can't be done, the picture says why."""
    name, box = casting.image or "", options.box
    try:
        example = decode_example(record.payload, PayloadKind.SEQUENCE_EXAMPLE)
    except ValueError:
        features: Mapping[str, Feature] = {}
        pictures = iter([("", Picture(problem="not a tf.train.Example"))])
    else:
        features = _features(example)
        pictures = _pictures(example, name, box, _dimensions(features, name))
    label = _label(features, casting)
    for place, picture in pictures:
        yield LabelledPicture(
            record=record.index, offset=record.offset, label=label, picture=picture, place=place
        )


def _pictures(
    example: Example, name: str, box: int, dimensions: Dimensions
) -> Iterator[tuple[str, Picture]]:
    """Yield the images of a feature or feature list, each with its place."""
    found = False
    for held, place, value in string_values(example):
        if held == name:
            found = True
            yield place, decode_picture(value, box, dimensions)
    steps = example.feature_lists.get(name, ())
    lists = {f"[{number}]": step for number, step in enumerate(steps)}
    if name in example.features:
        lists = {"": example.features[name]}
    for place, item in lists.items():
        if item.dtype in (DType.INT64, DType.FLOAT32) and len(item.values):
            found = True
            yield place, decode_numbers(cast("Sequence[float]", item.values), box, dimensions)
    if not found:
        yield "", Picture(problem=f"no {name!r} in this record")


def _cast(items: Iterable[Record | Fault], directory: Path, options: PictureOptions) -> Casting:
    info = info_beside(directory)
    names: dict[str, None] = {}
    faults: list[Fault] = []
    for number, item in enumerate(items):
        if number == _PROBE:
            break
        if isinstance(item, Fault):
            faults.append(item)
            continue
        try:
            features = _features(decode_example(item.payload, PayloadKind.SEQUENCE_EXAMPLE))
        except ValueError:
            continue
        names.update(dict.fromkeys(features))
        image = _image(features, info, options)
        if image is None:
            continue
        roles = find_roles(features, info)
        label = options.label or roles.label
        return Casting(
            image=image,
            label=None if label == image else label,
            name=roles.name,
            others=tuple(
                name for name in features if name != image and _holds(features[name], "image/")
            ),
            label_names=LabelNames.beside(directory, label),
            features=tuple(names),
            faults=tuple(faults),
        )
    return Casting(features=tuple(names), faults=tuple(faults))


def _features(example: Example) -> dict[str, Feature]:
    """Return a record's features, lists by their first step."""
    lists = {name: steps[0] for name, steps in example.feature_lists.items() if steps}
    return {**lists, **example.features}


def _image(
    features: Mapping[str, Feature], info: DatasetInfo | None, options: PictureOptions
) -> str | None:
    if options.image is not None:
        return options.image if options.image in features else None
    return (
        find_roles(features, info).image
        or _several(features)
        or _numbers(features)
        or _pixels(features)
    )


def _several(features: Mapping[str, Feature]) -> str | None:
    """Return the feature that holds several encoded images, if there is one."""
    return next((name for name, item in features.items() if _holds(item, "image/")), None)


def _numbers(features: Mapping[str, Feature]) -> str | None:
    """Return the feature that holds an image as a list of numbers, by its name."""
    for name in _NUMBER_IMAGES:
        item = features.get(name)
        if item is not None and item.dtype in (DType.INT64, DType.FLOAT32):
            shape = raw_shape(len(item.values), _dimensions(features, name))
            if shape is not None or len(item.values) >= _FEWEST_NUMBERS:
                return name
    return None


def _pixels(features: Mapping[str, Feature]) -> str | None:
    """Return the only feature whose bytes are as many as the pixels that the record speaks of."""
    found = [
        name
        for name, item in features.items()
        if _holds(item, "binary")
        and isinstance(item.values[0], bytes)
        and (
            raw_shape(len(item.values[0]), _dimensions(features, name)) is not None
            or read_tensor(item.values[0]) is not None
        )
    ]
    return found[0] if len(found) == 1 else None


def _holds(item: Feature, content: str) -> bool:
    value = item.values[0] if len(item.values) else None
    return isinstance(value, bytes) and describe_bytes(value).startswith(content)


def _dimensions(features: Mapping[str, Feature], image: str) -> Dimensions:
    shape = _said(features, image, _SHAPES, (2, 3))
    if shape is not None:
        return Dimensions(
            height=shape[0], width=shape[1], channels=shape[2] if len(shape) == 3 else None
        )
    height, width, channels = (
        _said(features, image, names, (1,)) for names in (_HEIGHTS, _WIDTHS, _CHANNELS)
    )
    return Dimensions(
        height=None if height is None else height[0],
        width=None if width is None else width[0],
        channels=None if channels is None else channels[0],
    )


def _said(
    features: Mapping[str, Feature], image: str, suffixes: tuple[str, ...], lengths: tuple[int, ...]
) -> list[int] | None:
    """Return the integers of the feature of such a name that is nearest to the image's name."""
    found = [
        name
        for name, item in features.items()
        if item.dtype is DType.INT64
        and len(item.values) in lengths
        and name.lower().endswith(suffixes)
    ]
    if not found:
        return None

    def likeness(name: str) -> tuple[int, int]:
        return len(os.path.commonprefix((name, image))), -len(name)  # noqa: RUF071 - no paths

    nearest = max(found, key=likeness)
    return [value for value in features[nearest].values if isinstance(value, int)]


def _label(features: Mapping[str, Feature], casting: Casting) -> str:
    item = features.get(casting.label or "")
    if item is not None and len(item.values):
        texts = [casting.label_names.text([value]) for value in item.values[:_LABELS_SHOWN]]
        more = ", ..." if len(item.values) > _LABELS_SHOWN else ""
        return ", ".join(text or "?" for text in texts) + more
    item = features.get(casting.name or "")
    if item is not None and len(item.values):
        return LabelNames().text(item.values[:1]) or ""
    return ""
