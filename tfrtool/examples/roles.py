"""Which features of a record are its image, its label and its name."""

import contextlib
import os
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from tfrtool.errors import DatasetError
from tfrtool.examples.content import decode_text, describe_bytes
from tfrtool.examples.example import DType, Example, Feature, Value
from tfrtool.examples.objects.label_map import find_label_map, read_label_map
from tfrtool.examples.tfds_metadata import (
    DatasetInfo,
    read_class_names,
)
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
