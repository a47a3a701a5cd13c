"""The images of the steps of an episode: of each item of a list of structs."""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from tfrtool.examples.arrow.columns import LISTS
from tfrtool.examples.example import DType, Feature, PayloadKind, decode_example
from tfrtool.examples.fields import Encoding, Field, Kind, ListOf, Struct, Values, leaves_of
from tfrtool.images.pixels import Picture, decode_picture, draw_pixels

_NO_STEP = Picture(problem="no such step")
_NO_FEATURE = Feature(dtype=None, values=())
_CHANNELS = (1, 3, 4)
_BRIGHTEST = 255


class StepCameras(NamedTuple):
    """A list of structs that have images, or the feature lists of a SequenceExample.

    Attributes:
        path: the names that lead to the list.
        images: the stored features with the images of all steps, by their paths.
        shapes: the height, width and channels of those that are pixels, by the same paths.
        others: the paths of what else a step has.
        is_sequence: whether the records are SequenceExamples.
    """

    path: tuple[str, ...]
    images: tuple[str, ...]
    shapes: Mapping[str, tuple[int, int, int]]
    others: tuple[str, ...]
    is_sequence: bool = False

    @property
    def name(self) -> str:
        """What the list is called."""
        return "/".join(self.path)

    @property
    def image_names(self) -> tuple[str, ...]:
        """What the images are called in a step."""
        return tuple(path.removeprefix(f"{self.name}/") for path in self.images)

    @classmethod
    def of(cls, root: Struct) -> "StepCameras | None":
        """Return the first such list in a tree; None if there is none."""
        for path, item in _lists(root):
            name = "/".join(path)
            leaves, images = list(leaves_of(item, name)), list[str]()
            shapes = dict[str, tuple[int, int, int]]()
            for leaf in leaves:
                shape = _pixel_shape(leaf.values)
                if not leaf.level and (shape or _is_image(leaf.values)):
                    images.append(leaf.path)
                    shapes |= {leaf.path: shape} if shape else {}
            if images:
                others = tuple(leaf.path for leaf in leaves if leaf.path not in images)
                return cls(path, tuple(images), shapes, others)
        return None

    @classmethod
    def of_feature_lists(cls, root: Struct, images: Collection[str]) -> "StepCameras | None":
        """Return the feature lists in a tree, some of which are images; None without any."""
        lists = root.fields.get(LISTS)
        names = [*lists.fields] if isinstance(lists, Struct) else []
        cameras = tuple(f"{LISTS}/{name}" for name in names if name in images)
        others = tuple(f"{LISTS}/{name}" for name in names if name not in images)
        return cls((LISTS,), cameras, {}, others, is_sequence=True) if cameras else None

    def count(self, payload: bytes) -> int:
        """Return the number of steps of a record; `ValueError` if it is of another kind."""
        if self.is_sequence:
            return max(len(self._frames(payload, path)) for path in self.images)
        features = decode_example(payload, PayloadKind.EXAMPLE).features
        image = features.get(self.images[0])
        size = math.prod(self.shapes.get(self.images[0], ()))
        return 0 if image is None else len(image.values) // size

    def picture(self, payload: bytes, camera: int, step: int, box: int) -> Picture:
        """Return an image of a step, at most ``box`` pixels wide and high.

        `IndexError` if there is no such camera.
        """
        path = self.images[camera]
        try:
            if self.is_sequence:
                frames = self._frames(payload, path)[step : step + 1]
                first = frames[0].values[:1] if frames else ()
                encoded = next(iter(first), None)
                return decode_picture(encoded, box) if isinstance(encoded, bytes) else _NO_STEP
            features = decode_example(payload, PayloadKind.EXAMPLE).features
        except ValueError:
            return _NO_STEP
        image = features.get(path, _NO_FEATURE)
        if (shape := self.shapes.get(path)) is not None:
            size = math.prod(shape)
            pixels = image.values[step * size : (step + 1) * size]
            is_whole = len(pixels) == size and image.dtype is DType.INT64
            if not is_whole or min(pixels) < 0 or max(pixels) > _BRIGHTEST:  # type: ignore[operator]
                return _NO_STEP
            return draw_pixels(bytes(pixels), shape, box)  # type: ignore[arg-type]
        value = image.values[step] if step < len(image.values) else None
        return decode_picture(value, box) if isinstance(value, bytes) else _NO_STEP

    def _frames(self, payload: bytes, path: str) -> Sequence[Feature]:
        example = decode_example(payload, PayloadKind.SEQUENCE_EXAMPLE)
        return example.feature_lists.get(path.removeprefix(f"{LISTS}/"), ())


def _is_image(values: Values) -> bool:
    is_encoded = values.kind is Kind.IMAGE and not values.shape
    return is_encoded and values.encoding is Encoding.NONE


def _pixel_shape(values: Values) -> tuple[int, int, int] | None:
    """Return the shape of pixels that are stored one by one; None for other values."""
    if values.dtype != "uint8" or values.encoding is not Encoding.NONE or len(values.shape) != 3:
        return None
    height, width, channels = values.shape
    if height is None or width is None or channels not in _CHANNELS or 1 in (height, width):
        return None
    return (height, width, channels) if height and width else None


def _lists(root: Struct, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Field]]:
    """Yield the structs of which there are lists, in order."""
    for name, item in root.fields.items():
        if isinstance(item, Struct):
            yield from _lists(item, (*path, name))
        elif isinstance(item, ListOf) and isinstance(item.item, Struct):
            yield (*path, name), item.item
