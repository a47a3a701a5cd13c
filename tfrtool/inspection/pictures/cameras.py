"""The images of the steps of an episode: of each item of a list of structs."""

from collections.abc import Iterator
from typing import NamedTuple

from tfrtool.examples.example import PayloadKind, decode_example
from tfrtool.features.types import Encoding, Field, Kind, ListOf, Struct, leaves_of
from tfrtool.images.pixels import Picture, decode_picture

_NO_STEP = Picture(problem="no such step")


class StepCameras(NamedTuple):
    """A list of structs that have images.

    Attributes:
        path: the names that lead to the list.
        images: the stored features with the images of all steps, by their paths.
        others: the paths of what else a step has.
    """

    path: tuple[str, ...]
    images: tuple[str, ...]
    others: tuple[str, ...]

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
            leaves = list(leaves_of(item, name))
            images = tuple(
                leaf.path
                for leaf in leaves
                if leaf.values.kind is Kind.IMAGE
                and not leaf.level
                and leaf.values.encoding is Encoding.NONE
            )
            if images:
                return cls(path, images, tuple(x.path for x in leaves if x.path not in images))
        return None

    def count(self, payload: bytes) -> int:
        """Return the number of steps of a record; `ValueError` if it is no Example."""
        features = decode_example(payload, PayloadKind.EXAMPLE).features
        image = features.get(self.images[0])
        return 0 if image is None else len(image.values)

    def picture(self, payload: bytes, camera: int, step: int, box: int) -> Picture:
        """Return an image of a step, at most ``box`` pixels wide and high.

        `IndexError` if there is no such camera.
        """
        try:
            features = decode_example(payload, PayloadKind.EXAMPLE).features
        except ValueError:
            return _NO_STEP
        image = features.get(self.images[camera])
        value = image.values[step] if image is not None and step < len(image.values) else None
        return decode_picture(value, box) if isinstance(value, bytes) else _NO_STEP


def _lists(root: Struct, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Field]]:
    """Yield the structs of which there are lists, in order."""
    for name, item in root.fields.items():
        if isinstance(item, Struct):
            yield from _lists(item, (*path, name))
        elif isinstance(item, ListOf) and isinstance(item.item, Struct):
            yield (*path, name), item.item
