"""What annotation files say, before it is checked; none of it is trusted."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from tfrtool.sources.items import LeftOut


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundObject:
    """An object as its annotation file has it."""

    what: str  # the annotation, as messages call it: "annotation 17", "line 3"
    box: Sequence[object]  # xmin, ymin, xmax, ymax; anything, where the file holds anything
    category: str  # the name of its class
    relative: bool = False  # whether the box is in shares of the image's sides, and not in pixels
    more: Mapping[str, object] = field(default_factory=dict)
    """Checked values of further fields of `ObjectAnnotation`, in pixels; for a relative box they
    are in shares as well."""
    problem: str | None = None  # why the object can't be used


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundImage:
    """An image as its annotation file has it."""

    name: str  # its path, mostly below the folder of images
    where: str  # what tells of it, as messages call it: "labels/1.txt", "image 17"
    other: str = ""  # what it may be called besides; in both names the suffix may lack
    width: int | None = None  # in pixels; None where the file says none
    height: int | None = None
    objects: Sequence[FoundObject] = ()
    source_id: str = ""
    upright: bool = False  # whether annotations are for the image as EXIF turns it, if in doubt
    split: str | None = None
    problem: str | None = None  # why none of its objects can be used


class AnnotationReader(Protocol):
    """Reads annotation files.

    What can't be used at all is a `SourceError` that names the file, and the place in it.
    """

    def images(self) -> Iterator[FoundImage]:
        """Yield all images, one after another; those with problems, too."""

    def stray(self) -> Iterator[tuple[str, FoundObject]]:
        """Yield, after the images, objects of images that are not there, with the image's name."""

    def classes(self) -> Mapping[str, int]:
        """Return, after the images, the classes: for each name its number in a label map, > 0."""

    def splits(self) -> tuple[str, ...]:
        """Return, after the images, the splits that they are in; none if there are none."""

    def notices(self) -> Sequence[str]:
        """Return, after the images, what a user should know, each a clause."""

    def ignored(self) -> Sequence[LeftOut]:
        """Return, after the images, files that were not read."""


def is_number(value: object) -> bool:
    """Return whether a value is a number that a place in an image can be."""
    # Neither a bool nor NaN is one. (This is asked ten million times of COCO's instances.)
    return (type(value) is float or type(value) is int) and -1e9 < value < 1e9
