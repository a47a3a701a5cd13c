"""From records to pictures: which feature is the image, how large it is, and what it shows."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

from tfrtool.examples.content import describe_bytes
from tfrtool.examples.example import DType, Example, Feature, PayloadKind, decode_example
from tfrtool.examples.objects.label_map import object_names
from tfrtool.examples.roles import (
    HEIGHTS,
    WIDTHS,
    FirstRecords,
    LabelNames,
    said_size,
    with_first_steps,
)
from tfrtool.examples.tfds_metadata import DatasetInfo
from tfrtool.images.pixels import (
    Picture,
    Sides,
    decode_numbers,
    decode_picture,
    raw_shape,
    read_tensor,
)
from tfrtool.inspection.verify.image_check import string_values
from tfrtool.records.framing import Fault
from tfrtool.storage.remote_path import AnyPath

if TYPE_CHECKING:
    from tfrtool.examples.fields import Struct
    from tfrtool.inspection.pictures.array_images import ArrayImages

_NUMBER_IMAGES = ("image", "image_raw", "img", "pixels", "image/pixels", "image/data", "x")
_NUMBERS = (DType.INT64, DType.FLOAT32)
_FEWEST_NUMBERS = 64
_LABELS_SHOWN = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageRoles:
    """Which features of a shard play which part, by its first records."""

    image: str | None = None  # the feature that holds an image
    array: "ArrayImages | None" = None  # draws that feature, if it is an array of numbers
    label: str | None = None
    name: str | None = None  # the feature that says which file it came from
    others: tuple[str, ...] = ()  # further features that hold encoded images
    label_names: LabelNames = field(default_factory=LabelNames)
    object_names: Mapping[int, str] = field(default_factory=dict)  # of the objects' classes
    has_boxes: bool = False  # whether there are features of objects in images
    features: tuple[str, ...] = ()  # all names that were seen
    faults: tuple[Fault, ...] = ()  # damage that was met before an image was found


def image_roles(
    path: AnyPath,
    image: str | None = None,
    label: str | None = None,
    root: "Struct | None" = None,
) -> ImageRoles:
    """Find the features that are the image, the label and the name in a shard, if not named.

    ``root`` has the types of the features; those that are arrays of numbers can be images.
    """
    first = FirstRecords(_image)
    for features in first.read([path]):
        if (image or first.roles.image) in features:
            break
    image = image if image in first.features else None if image else first.roles.image
    array = None
    if root is not None:
        from tfrtool.inspection.pictures import array_images

        image = image or array_images.find_array_image(root)
        if image is not None and array_images.is_array_image(root, image):
            array = array_images.ArrayImages(root, image)
    label = label or first.roles.label
    label = None if label == image else label
    return ImageRoles(
        image=image,
        array=array,
        label=label,
        name=first.roles.name,
        others=tuple(name for name in first.images if name != image),
        label_names=LabelNames.read(path.parent, label),
        object_names=object_names(path.parent) if first.has_boxes else {},
        has_boxes=first.has_boxes,
        features=tuple(first.features),
        faults=tuple(first.faults.entries),
    )


def pictures_of(payload: bytes, roles: ImageRoles, box: int) -> Iterator[tuple[str, str, Picture]]:
    """Draw a record's images, at least one, each at most ``box`` pixels wide and high.

    Yields the label, the index ("[2]") if there are several, and the picture, or why there is none.
    """
    try:
        example = decode_example(payload, PayloadKind.SEQUENCE_EXAMPLE)
    except ValueError:
        yield "", "", Picture(problem="not a tf.train.Example")
    else:
        yield from pictures_in(example, payload, roles, box)


def pictures_in(
    example: Example, payload: bytes, roles: ImageRoles, box: int
) -> Iterator[tuple[str, str, Picture]]:
    """Do what `pictures_of` does for a parsed record."""
    features, name, found = with_first_steps(example), roles.image or "", False
    label, sides = _label(features, roles), _sides(features, name)
    if roles.array is not None:
        yield from ((label, *drawn) for drawn in roles.array.pictures(payload, box))
        return
    joined = joined_bytes(example.features.get(name))
    if joined is not None:
        yield label, "", decode_picture(joined, box, sides)
        return
    for feature, list_index, value in string_values(example):
        if feature == name:
            found = True
            picture = decode_picture(value, box, sides, as_said=roles.has_boxes)
            yield label, list_index, picture
    lists = {f"[{step}]": item for step, item in enumerate(example.feature_lists.get(name, ()))}
    if name in example.features:
        lists = {"": example.features[name]}
    for list_index, item in lists.items():
        if item.dtype in _NUMBERS and len(item.values):
            found = True
            yield label, list_index, decode_numbers(cast("list[float]", item.values), box, sides)
    if not found:
        yield label, "", Picture(problem=f"no {name!r} in this record")


def _image(features: Mapping[str, Feature], _: DatasetInfo | None) -> str | None:
    """Return the feature that holds an image in a list, as numbers or as bare pixels."""
    for name, item in features.items():  # a list of encoded images
        if _holds(item, "image/"):
            return name

    def has_shape(name: str, length: int) -> bool:
        return raw_shape(length, _sides(features, name)) is not None

    for name in _NUMBER_IMAGES:
        item = features.get(name, Feature(dtype=None, values=()))
        length = len(item.values)
        if joined_bytes(item) is not None:
            return name
        if item.dtype in _NUMBERS and (length >= _FEWEST_NUMBERS or has_shape(name, length)):
            return name
    pixels = [
        name
        for name, item in features.items()
        if _holds(item, "binary")
        and isinstance(value := item.values[0], bytes)
        and (has_shape(name, len(value)) or read_tensor(value) is not None)
    ]
    return pixels[0] if len(pixels) == 1 else None


def _holds(item: Feature, content: str) -> bool:
    value = item.values[0] if len(item.values) else None
    return isinstance(value, bytes) and describe_bytes(value).startswith(content)


def _sides(features: Mapping[str, Feature], image: str) -> Sides | None:
    """Return the height and width of an image that other features say."""
    _, sides = said_size(features, image, ("shape",), (2, 3))
    if not sides:
        sides = said_size(features, image, HEIGHTS)[1] + said_size(features, image, WIDTHS)[1]
    return sides if len(sides) > 1 else None


def joined_bytes(feature: Feature | None) -> bytes | None:
    """Return the bytes of a feature with a string for each; None if it is something else."""
    values = () if feature is None else feature.values
    if len(values) < _FEWEST_NUMBERS or feature is None or feature.dtype is not DType.STRING:
        return None
    strings = [value for value in values if isinstance(value, bytes)]
    return b"".join(strings) if {*map(len, strings)} == {1} else None


def _label(features: Mapping[str, Feature], roles: ImageRoles) -> str:
    for name, names in ((roles.label, roles.label_names), (roles.name, LabelNames())):
        item = features.get(name or "")
        if item is not None and len(item.values):
            texts = [names.text([value]) or "?" for value in item.values[:_LABELS_SHOWN]]
            return ", ".join(texts + ["..."] * (len(item.values) > _LABELS_SHOWN))
    return ""
