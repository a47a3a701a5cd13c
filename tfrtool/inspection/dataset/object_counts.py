"""How many objects a split has: by class, by image, by size, and by place in the image."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate

from tfrtool.examples.example import PayloadKind, decode_example
from tfrtool.examples.objects.read_objects import read_objects
from tfrtool.storage.limits import MAX_CLASSES, MAX_OBJECTS_CHECKED

SMALL, MEDIUM, LARGE, UNKNOWN_SIZE = "small", "medium", "large", "unknown"
_BOUNDS = ((32**2, SMALL), (96**2, MEDIUM))
"""Square pixels below which objects are small and medium, in COCO's evaluation."""

_OTHERS = "(others)"
_GRID = 3
_LONGEST = 200  # letters of a class's name, which may be as long as its record


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectSummary:
    """The objects of a split.

    Attributes:
        objects: how many there are, those with unusable boxes included.
        object_classes: how many of each class, by its name or else its number.
        images_without_objects: records without any.
        objects_an_image: the least, the median and the most.
        object_sizes: how many are small (below 32 x 32 pixels), medium (below 96 x 96) and large,
            as COCO has it, by their area where it is recorded, else by their box; unknown where
            records don't say the size of their image.
        object_share: the mean share of the image that a box covers; None without boxes.
        object_places: how many have the centre of their box in each ninth of the image, by rows
            from the top.
        unusable_boxes: that are inverted, empty, outside, or no numbers; they have no size and
            place.
    """

    objects: int
    object_classes: Mapping[str, int]
    images_without_objects: int
    objects_an_image: tuple[int, float, int]
    object_sizes: Mapping[str, int]
    object_share: float | None
    object_places: tuple[tuple[int, ...], ...]
    unusable_boxes: int


class ObjectCounts:
    """A fold over the records of one shard; memory grows with the number of classes alone."""

    def __init__(self, names: Mapping[int, str] | None = None) -> None:
        self._names = names or {}
        self._classes: Counter[str] = Counter()
        self._images: Counter[int] = Counter()  # by their number of objects
        self._sizes: Counter[str] = Counter()
        self._places: Counter[tuple[int, int]] = Counter()
        self._shares, self._usable = 0.0, 0

    def add(self, payload: bytes) -> None:
        """Add a record that is an Example; `ValueError` if it isn't one."""
        features = decode_example(payload, PayloadKind.SEQUENCE_EXAMPLE).features
        found = read_objects(features, self._names, MAX_OBJECTS_CHECKED)
        area = found.size[0] * found.size[1] if found.size else None
        self._images[len(found.objects)] += 1
        for one in found.objects:
            title = one.title[:_LONGEST] or "(none)"
            known = title in self._classes or len(self._classes) < MAX_CLASSES
            self._classes[title if known else _OTHERS] += 1
            if one.is_inside:
                x0, y0, x1, y1 = (min(max(side, 0.0), 1.0) for side in one.box)
                share = (x1 - x0) * (y1 - y0)
                self._usable += 1
                self._shares += share
                row, column = (min(int(_GRID * c / 2), _GRID - 1) for c in (y0 + y1, x0 + x1))
                self._places[row, column] += 1
                pixels = one.more.get("area") or (None if area is None else area * share)
                self._sizes[_size(pixels)] += 1

    def merge(self, other: "ObjectCounts") -> None:
        """Take in the records of another shard."""
        self._classes.update(other._classes)
        self._images.update(other._images)
        self._sizes.update(other._sizes)
        self._places.update(other._places)
        self._shares += other._shares
        self._usable += other._usable

    def summary(self) -> ObjectSummary | None:
        """Return what was counted, or None without objects."""
        if not self._images.keys() - {0}:
            return None
        objects, counts = self._classes.total(), sorted(self._images.items())
        ends = [*accumulate(count for _, count in counts)]
        middle = (counts[bisect_right(ends, (ends[-1] - odd) // 2)][0] for odd in (0, 1))
        sizes = [SMALL, MEDIUM, LARGE] + ([UNKNOWN_SIZE] if self._sizes[UNKNOWN_SIZE] else [])
        grid = range(_GRID)
        return ObjectSummary(
            objects=objects,
            object_classes=dict(sorted(self._classes.items(), key=lambda kv: (-kv[1], kv[0]))),
            images_without_objects=self._images[0],
            objects_an_image=(counts[0][0], sum(middle) / 2, counts[-1][0]),
            object_sizes={size: self._sizes[size] for size in sizes},
            object_share=self._shares / self._usable if self._usable else None,
            object_places=tuple(tuple(self._places[row, at] for at in grid) for row in grid),
            unusable_boxes=objects - self._usable,
        )


def _size(pixels: float | None) -> str:
    if pixels is None:
        return UNKNOWN_SIZE
    return next((size for bound, size in _BOUNDS if pixels < bound), LARGE)
