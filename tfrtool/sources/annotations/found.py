"""What annotation files say, before it is checked; none of it is trusted."""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tfrtool.errors import SourceError
from tfrtool.examples.objects.annotation import Skeleton
from tfrtool.sources.folders.listing import SPLIT_NAMES
from tfrtool.sources.items import LeftOut
from tfrtool.storage.capped_list import CappedList
from tfrtool.storage.limits import (
    MAX_LISTED,
)


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
    stale: str = ""  # the name in its file that differs from ``name``, which is preferred


class AnnotationReader(ABC):
    """Reads annotation files.

    What can't be used at all is a `SourceError` that names the file, and the place in it. What
    else there is to say is known once all images are read.

    Attributes:
        notices: what a user should know, each a clause.
        ignored: what was not read.
        skeletons: names of key points and lines between them, by classes.
    """

    def __init__(self) -> None:
        """Start without anything to say."""
        self.notices: list[str] = []
        self.ignored = CappedList[LeftOut](MAX_LISTED)
        self.skeletons: dict[str, Skeleton] = {}

    @abstractmethod
    def images(self) -> Iterator[FoundImage | LeftOut]:
        """Yield all images, those with problems, too; and each object whose image is not there."""

    @abstractmethod
    def classes(self) -> Mapping[str, int]:
        """Return, after the images, the classes: for each name its number in a label map, > 0."""


def split_in_name(name: str) -> str | None:
    """Return the split in the name of a file or folder, such as ``instances_train2017.json``."""
    words = re.findall("[a-z]+", name.lower())
    return next((SPLIT_NAMES[word] for word in words if word in SPLIT_NAMES), None)


def check_splits(splits: Mapping[Path, str | None]) -> None:
    """Raise a `SourceError` if the names of some files, but not of all, have a split."""
    without = next((path for path, split in splits.items() if split is None), None)
    if without is not None and any(splits.values()):
        what = "file name has no split, although those of other annotation files have one"
        raise SourceError(what, path=without, expected="a name such as instances_train2017.json")


def is_number(value: object) -> bool:
    """Return whether a value is a number that a place in an image can be."""
    # Neither a bool nor NaN is one. (This is asked ten million times of COCO's instances.)
    return (type(value) is float or type(value) is int) and -1e9 < value < 1e9
