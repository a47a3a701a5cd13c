"""Which features are the image, the label and the name: of a record, and of the first of shards."""

import contextlib
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

from tfrtool.errors import DatasetError
from tfrtool.examples.content import decode_text, describe_bytes
from tfrtool.examples.example import (
    DType,
    Example,
    Feature,
    PayloadKind,
    Value,
    classify_payload,
    decode_example,
)
from tfrtool.examples.objects.label_map import find_label_map, read_label_map
from tfrtool.examples.tfds_metadata import (
    DatasetInfo,
    info_beside,
    read_class_names,
)
from tfrtool.records.framing import Fault
from tfrtool.records.reader import read_shard
from tfrtool.storage.capped_list import CappedList
from tfrtool.storage.image_brand import BRAND_BYTES
from tfrtool.storage.limits import MAX_CLASSES
from tfrtool.storage.remote_path import AnyPath

# TFDS; TensorFlow's object detection and slim; tensorflow-recorder; the Keras and TFRecord guides.
IMAGES = ("image", "image/encoded", "image_raw", "image/data", "jpeg", "png", "img")
LABELS = ("label", "image/class/label", "labels", "class", "image/class/text", "target", "y")
_NAMES = ("image/filename", "filename", "image_name", "file_name", "image/source_id", "name", "id")
SAMPLE = 64
"""Records from whose features the roles are found. A few of them may lack an image or a label."""

_NO_CLASS = re.compile(
    r"(^|[/_.-])(id|index|height|width|depth|channels|rows|cols)$", re.IGNORECASE
)
"""Names of numbers that count or measure something, and aren't classes."""

_MAPPED = ("image/object/class/label", "image/class/label")
"""Features whose numbers are those of ``label_map.pbtxt``."""

_OBJECTS = ("image/object/", "objects/")
"""What the names of features start with that are of objects in an image, and not of the image."""

_BOXES = {
    "objects/bbox",
    *(f"image/object/bbox/{side}" for side in ("xmin", "ymin", "xmax", "ymax")),
}
"""Features of boxes in TFDS' layout, and in that of the TF Object Detection API."""

HEIGHTS, WIDTHS = ("height", "rows"), ("width", "cols", "columns")
CHANNELS = ("channels", "depth")
"""What the names of features end in that say the size of an image."""


class Roles(NamedTuple):
    """The names of the features that play a part in a dataset of images; None if none does."""

    image: str | None  # a string feature that holds an encoded image or its pixels
    label: str | None  # an int64 or string feature that says the class
    name: str | None  # a string feature that says which file the image came from
    guess: str | None = None  # the only int64 feature, where no label is known: no more than that


def find_roles(features: Mapping[str, Feature], info: DatasetInfo | None = None) -> Roles:
    """Find the roles of features from one record and the metadata of its dataset.

    The metadata next to the shards (``info``) comes first, then names in common use.
    An image may be the only feature of its sort, a label may not: that one is a guess. Where there
    is a doubt, the role is None.
    """
    single = {
        name: item.values[0]
        for name, item in features.items()
        if len(item.values) == 1 and not of_objects(name)
    }
    encoded = [name for name, value in single.items() if is_image(value)]
    strings = [name for name, value in single.items() if isinstance(value, bytes)]
    image = _choose(info.image_feature if info else None, IMAGES, encoded)
    if image is None and not encoded:  # pixels without a format, perhaps
        image = next((name for name in IMAGES if name in strings), None)
    numbers = [
        name for name in single if features[name].dtype is DType.INT64 and not measures(name)
    ]
    texts = [name for name in strings if name != image and _is_text(single[name])]
    known = (info.label_feature if info else None, *LABELS)
    found = (name for some in (numbers, texts) for name in known if name in some)
    label = next(found, None)
    guess = numbers[0] if label is None and len(numbers) == 1 else None
    name = next((name for name in _NAMES if name in texts), None)
    return Roles(image=image, label=label, name=name, guess=guess)


def with_first_steps(example: Example) -> dict[str, Feature]:
    """Return a record's features, and for a feature list without such a feature its first step."""
    lists = {name: steps[0] for name, steps in example.feature_lists.items() if steps}
    return {**lists, **example.features}


def of_objects(name: str) -> bool:
    """Return whether a feature is of the objects in an image, by its name."""
    return name.startswith(_OBJECTS)


def has_boxes(features: Collection[str]) -> bool:
    """Return whether these are features of a record with objects, in one of the two layouts."""
    return not _BOXES.isdisjoint(features)


def measures(name: str) -> bool:
    """Return whether numbers of a feature count or measure something, by its name."""
    return _NO_CLASS.search(name) is not None


def _choose(declared: str | None, usual: Iterable[str], candidates: Sequence[str]) -> str | None:
    for name in (declared, *usual):
        if name in candidates:
            return name
    return candidates[0] if len(candidates) == 1 else None


def is_image(value: Value) -> bool:
    """Return whether a value starts as an encoded image does."""
    return isinstance(value, bytes) and describe_bytes(value[:BRAND_BYTES]).startswith("image/")


def _is_text(value: Value) -> bool:
    return isinstance(value, bytes) and len(value) <= 4096 and decode_text(value) is not None


def said_size(
    features: Mapping[str, Feature],
    image: str,
    endings: tuple[str, ...],
    lengths: tuple[int, ...] = (1,),
) -> tuple[str | None, tuple[int, ...]]:
    """Return the int64 feature that says a size of an image, and its numbers, all above 0.

    Of several with such an ending, and with as many numbers as one of the ``lengths``, it is the
    one whose name is most like the image's; None and no numbers where there is none.
    """
    sizes: dict[str, tuple[int, ...]] = {}
    for name, item in features.items():
        if item.dtype is DType.INT64 and len(item.values) in lengths:
            numbers = tuple(value for value in item.values if isinstance(value, int) and value > 0)
            if len(numbers) in lengths and name.lower().endswith(endings):
                sizes[name] = numbers
    alike = {name: len(os.path.commonprefix((name, image))) for name in sizes}  # noqa: RUF071
    found = max(sizes, key=lambda name: (alike[name], -len(name)), default=None)
    return found, () if found is None else sizes[found]


class LabelNames(NamedTuple):
    """The class names of a label feature, by class number; empty where none are known."""

    names: tuple[str, ...] = ()  # "" for numbers that a label map leaves out

    @classmethod
    def read(cls, directory: AnyPath | None, label: str | None) -> "LabelNames":
        """Read the names that TFDS keeps next to the shards, or else those of the label map.

        The label map is for the TF Object Detection API's features; unreadable files count as none.
        """
        if directory is not None and label is not None:
            with contextlib.suppress(DatasetError, FileNotFoundError):
                names = read_class_names(directory, label)
                if names is None and label in _MAPPED:
                    mapped = read_label_map(find_label_map(directory))
                    if max(mapped, default=0) <= MAX_CLASSES:
                        names = tuple(mapped.get(n, "") for n in range(max(mapped, default=-1) + 1))
                return cls(names or ())
        return cls()

    def text(self, values: Sequence[Value]) -> str | None:
        """Return a record's label as text: its class name, else its value; None without one."""
        value = values[0] if len(values) == 1 else None
        if isinstance(value, bytes):
            return decode_text(value)
        if isinstance(value, int) and 0 <= value < len(self.names):
            return self.names[value] or str(value)
        return None if value is None else str(value)


FindImage = Callable[[Mapping[str, Feature], DatasetInfo | None], str | None]
Label = int | bytes

_LONGEST_LABEL = 1024
"""Bytes of a string that can be a label; longer ones are captions or images."""

NO_ROLES = Roles(image=None, label=None, name=None)


def find_encoded(features: Mapping[str, Feature], info: DatasetInfo | None) -> str | None:
    """Return the feature that holds an encoded image, or else a list of them."""
    image = find_roles(features, info).image
    if image is not None:
        return image
    firsts = {
        name: Feature(dtype=item.dtype, values=item.values[:1])
        for name, item in features.items()
        if len(item.values) > 1 and is_image(item.values[0])
    }
    return find_roles(firsts, info).image if firsts else None


class FirstRecords:
    """What the first records of shards hold. A role is that of the first record with one.

    Attributes:
        payload: type of the first payload that isn't empty.
        roles: which features are the image, the label and the name.
        features: the first values of each feature; an image may be in one record only.
        images: features that hold encoded images.
        labels: features that could be the label.
        has_boxes: whether there are boxes of objects.
        records: number of Examples.
        faults: damage between them.
    """

    def __init__(self, find_image: FindImage = find_encoded) -> None:
        """Begin; ``find_image`` may find images of other forms, too."""
        self._find_image = find_image
        self.payload = PayloadKind.EMPTY
        self.roles = NO_ROLES
        self.features: dict[str, Feature] = {}
        self.images: dict[str, None] = {}
        self.labels: dict[str, None] = {}
        self.has_boxes = False
        self.records = 0
        self.faults = CappedList[Fault]()

    def read(
        self, shards: Iterable[AnyPath], most: int | None = SAMPLE
    ) -> Iterator[Mapping[str, Feature]]:
        """Add the first records of each shard, and yield the features of each Example."""
        for path in shards:
            info = info_beside(path.parent)
            for item in islice(read_shard(path), most):
                if isinstance(item, Fault):
                    self.faults.add(item)
                    continue
                kind = classify_payload(item.payload)
                if self.payload is PayloadKind.EMPTY:
                    self.payload = kind
                if kind in (PayloadKind.EXAMPLE, PayloadKind.SEQUENCE_EXAMPLE):
                    yield self.add(decode_example(item.payload, kind), info)

    def add(self, example: Example, info: DatasetInfo | None) -> Mapping[str, Feature]:
        """Add a record, and return its features; a feature list is its first step."""
        features, known = with_first_steps(example), self.roles
        found = find_roles(features, info)
        self.roles = Roles(
            image=known.image or found.image or self._find_image(features, info),
            label=known.label or found.label,
            name=known.name or found.name,
            guess=known.guess or found.guess,
        )
        self.records += 1
        self.has_boxes |= has_boxes(features)
        for name, item in features.items():
            if not self.features.setdefault(name, item).values and item.dtype:
                self.features[name] = item
            if any(map(is_image, item.values[:1])):
                self.images[name] = None
            elif len(item.values) == 1 and as_label(item.values[0]) is not None:
                self.labels[name] = None
        return features


def as_label(value: Value) -> Label | None:
    """Return an integer, or bytes no longer than a name."""
    if isinstance(value, bytes):
        return value if len(value) <= _LONGEST_LABEL else None
    return value if isinstance(value, int) else None
