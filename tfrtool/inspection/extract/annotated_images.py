"""The objects in records on their way to annotation files: all are written, or listed."""

import enum
import json
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from tfrtool.examples.example import Feature
from tfrtool.examples.objects.annotation import ImageAnnotation, ObjectAnnotation, Skeleton
from tfrtool.examples.objects.label_map import object_names, object_skeletons
from tfrtool.examples.objects.read_objects import RecordObjects, read_objects
from tfrtool.inspection.extract.extract_files import NewFiles
from tfrtool.inspection.extract.safe_names import stem_and_suffix
from tfrtool.records.shard_sets import group_shards
from tfrtool.storage.capped_list import CappedList
from tfrtool.storage.limits import (
    MAX_CLASSES,
)

_LISTED = 1000
_FAR = 1e9
"""No coordinate or run length is larger, and neither is what has no end."""

_UNNAMED = "object"
"""The class of objects whose class nobody says."""

MAX_ID = 2**53
"""Numbers below it are the same in every program that reads JSON."""

_MISSING = ObjectAnnotation._field_defaults

_TITLES = {
    "id": "ids",
    "area": "areas",
    "difficult": "difficult",
    "truncated": "truncated",
    "pose": "poses",
    "segmentation": "outlines",
    "keypoints": "key points",
}


class AnnotationFormat(enum.Enum):
    """Forms of annotation files that are written; the values are those of the CLI."""

    COCO = "coco"
    VOC = "voc"
    YOLO = "yolo"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtractedObjects:
    """What became of the objects in records; of what is listed the first, and how many in all."""

    format: AnnotationFormat
    files: tuple[str, ...]  # below the directory, those that are not of a single image
    images: int  # with objects or without
    objects: int  # in whole records
    written: int
    listed: tuple[str, ...]  # those that are not written, and why
    listed_count: int
    problems: tuple[str, ...]  # of what is written nevertheless
    problem_count: int
    lost: Mapping[str, int]  # what the format has no place for, and how many of the written had it
    renumbered: int  # images and objects whose numbers others had before

    @property
    def complete(self) -> bool:
        """Whether every object was written, and had no problem."""
        return not self.listed_count and not self.problem_count


class AnnotatedImage(NamedTuple):
    """An image of a record, and the objects in it that can be written."""

    split: str  # "" where nothing says one
    parts: Sequence[str]  # a safe name for it
    data: bytes
    orientation: int  # by its EXIF data
    depth: int  # how many values a pixel has; 0 where that is not known
    parsed: ImageAnnotation  # in pixels of the image as it is stored
    classes: Sequence[str]  # of each object
    outlines: Sequence[Any]  # of each: what `outline_of` makes of its segmentation


class AnnotatedImages(ABC):
    """A fold over images and their objects, which become files of one format."""

    form: ClassVar[AnnotationFormat]
    holds: ClassVar[frozenset[str]]  # the fields of `ObjectAnnotation` that it has a place for

    def __init__(self, files: NewFiles, shards: Sequence[Path]) -> None:
        """Learn the splits of shards, and the classes that are named beside them."""
        self.files, self.lost = files, Counter[str]()
        self.renumbered = 0
        self.classes: dict[str, tuple[int, int]] = {}  # by name a place from 0, and a number
        self._numbers, self._images, self._objects, self._written = set[int](), 0, 0, 0
        self._skipped, self._problems = CappedList[str](_LISTED), CappedList[str](_LISTED)
        self._of = {path: one.split or "" for one in group_shards(shards) for path in one.paths}
        self.splits = sorted({*self._of.values()})
        self._names = {folder: object_names(folder) for folder in {one.parent for one in shards}}
        self.skeletons = dict[str, Skeleton]()
        for folder in self._names:
            self.skeletons = object_skeletons(folder) | self.skeletons
        for names in self._names.values():
            for number, name in sorted(names.items()):
                self._know(name, number + (0 in names))

    @abstractmethod
    def write(self, image: AnnotatedImage) -> list[str]:
        """Write an image and its objects; return its file, and that of its objects if any."""

    @abstractmethod
    def end(self) -> Sequence[str]:
        """Write what is known at the end; return all files that are not of a single image."""

    def add(
        self,
        shard: Path,
        record: int,
        features: Mapping[str, Feature],
        parts: Sequence[str],
        data: bytes,
    ) -> list[str]:
        """Write a record's image under a name like the one that is given, and its objects."""
        # Pillow's, of no use without objects
        from tfrtool.images.decoder import RefusedImageError, quiet_pillow, read_frame
        from tfrtool.images.masks import read_mask

        where, found = self._found(shard, record, features)
        width = height = 0
        orientation, depth, unknown = 1, 0, None
        try:
            with quiet_pillow():
                frame = read_frame(data)
            width, height, orientation = frame.width, frame.height, frame.orientation
            depth = frame.depth
        except RefusedImageError as error:
            width, height = found.size or (0, 0)
            if found.size is None:
                unknown = f"image size is unknown: {error}"
                self._problems.add(f"{where}: {unknown}")
        if found.size not in (None, (width, height)):
            said = " x ".join(map(str, found.size or ()))
            self._problems.add(
                f"{where}: recorded size is {said}, but the image is {width} x {height} pixels"
            )
        objects, classes, outlines = [], [], []
        for number, one in enumerate(found.objects):
            name, what = one.title or _UNNAMED, f"{where}, object {number}"
            reason = unknown if one.is_inside else one.problem
            if one.more.get("crowd") and "crowd" not in self.holds:
                reason = reason or f"{self.form.value} does not support crowd regions"
            if reason is None and not self._know(name, one.label):
                reason = f"more than {MAX_CLASSES:,} classes"
            if reason is not None:
                self._skipped.add(f"{what}: {reason}")
                continue
            if one.problem is not None:
                self._problems.add(f"{what}: {one.problem}; clipped")
            made = one.in_pixels(width, height)
            if found.masks and "crowd" not in self.holds:
                self.lost["masks"] += 1
            elif found.masks:
                try:
                    made = made._replace(segmentation=read_mask(found.masks[number], width, height))
                except ValueError as error:
                    self._problems.add(f"{what}: {error}")
            outlines.append(outline_of(made.segmentation) if made.segmentation else None)
            if made.segmentation and outlines[-1] is None:
                self._problems.add(f"{what}: invalid outline")
                made = made._replace(segmentation="")
            for field, title in _TITLES.items():
                if field not in self.holds and getattr(made, field) != _MISSING[field]:
                    self.lost[title] += 1
            objects.append(made)
            classes.append(name)
        self._images += 1
        self._written += len(objects)
        said_id = features.get("image/source_id")
        source_id = "".join(map(_text, said_id.values[:1])) if said_id else ""
        parsed = ImageAnnotation(width, height, tuple(objects), source_id)
        split = self._of[shard]
        return self.write(
            AnnotatedImage(split, parts, data, orientation, depth, parsed, classes, outlines)
        )

    def write_pair(
        self, image: AnnotatedImage, images: Sequence[str], others: Sequence[str], suffix: str
    ) -> tuple[str, str]:
        """Write an image, and begin a file of another folder whose name differs in the suffix."""
        stem, own = stem_and_suffix(image.parts[-1])
        beside = self.files.add((*others, stem + suffix), b"")  # which numbers it, if need be
        stem = beside.rpartition("/")[2][: -len(suffix)]
        return self.files.add((*images, stem + own), image.data), beside

    def leave_out(
        self, shard: Path, record: int, features: Mapping[str, Feature], reason: str
    ) -> None:
        """List the objects of a record that no image is taken out of."""
        where, found = self._found(shard, record, features)
        for number in range(len(found.objects)):
            self._skipped.add(f"{where}, object {number}: {reason}")

    def report(self) -> ExtractedObjects:
        """Return what became of all objects."""
        return ExtractedObjects(
            format=self.form,
            files=tuple(self.end()),
            images=self._images,
            objects=self._objects,
            written=self._written,
            listed=tuple(self._skipped.kept),
            listed_count=self._skipped.count,
            problems=tuple(self._problems.kept),
            problem_count=self._problems.count,
            lost=dict(sorted(self.lost.items())),
            renumbered=self.renumbered,
        )

    def _found(
        self, shard: Path, record: int, features: Mapping[str, Feature]
    ) -> tuple[str, RecordObjects]:
        found = read_objects(features, self._names[shard.parent])
        where = f"{shard.name}, record {record}"
        self._objects += len(found.objects)
        for problem in found.problems:
            self._problems.add(f"{where}: {problem}")
        return where, found

    def _know(self, name: str, number: int | None) -> bool:
        """Give a class its numbers, and return whether there is room for it."""
        if name not in self.classes and len(self.classes) < MAX_CLASSES:
            if number is None or number in self._numbers or not 0 <= number < MAX_ID:
                number = max(self._numbers, default=0) + 1
            self._numbers.add(number)
            self.classes[name] = len(self.classes), number
        return name in self.classes


def _text(value: object) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def outline_of(text: str) -> Any:
    """Return COCO's polygons, lists of numbers, or its run lengths, an object; None for others."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if isinstance(found, dict):
        size, counts = found.get("size"), found.get("counts")
        runs = isinstance(counts, str) or _are_numbers(counts)
        return {"size": size, "counts": counts} if runs and _are_numbers(size) else None
    whole = isinstance(found, list) and all(map(_are_numbers, found))
    return found if whole and not any(len(line) % 2 for line in found) else None


def _are_numbers(found: object) -> bool:
    return isinstance(found, list) and all(
        isinstance(one, int | float) and abs(one) < _FAR for one in found
    )
