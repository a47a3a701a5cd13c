"""The objects in records on their way to COCO, Pascal VOC and YOLO files: written or listed."""

import json
import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, count, islice
from typing import Any, ClassVar, NamedTuple
from xml.sax.saxutils import escape

from tfrtool.errors import named_record, printable
from tfrtool.examples.example import Feature
from tfrtool.examples.objects.annotation import (
    SIDEWAYS,
    ImageAnnotation,
    ObjectAnnotation,
    Skeleton,
    parse_attributes,
)
from tfrtool.examples.objects.label_map import object_names, object_skeletons
from tfrtool.examples.objects.read_objects import RecordObjects, read_objects
from tfrtool.examples.objects.record_features import SIDES
from tfrtool.inspection.extract.extract_files import NewFiles
from tfrtool.inspection.extract.safe_names import safe_part, stem_and_suffix
from tfrtool.inspection.summary.summary_json import shortest_float
from tfrtool.records.shard_sets import group_shards
from tfrtool.storage.capped_list import CappedList
from tfrtool.storage.limits import (
    MAX_CLASSES,
)
from tfrtool.storage.remote_path import AnyPath

_LISTED = 1000
_FAR = 1e9
"""No coordinate or run length is larger, and neither is what has no end."""

_UNNAMED = "object"
"""The class of objects whose class nobody says."""

MAX_ID = 2**53
"""Numbers below it are the same in every program that reads JSON."""

_NAMED = ("difficult", "truncated", "pose")
"""Fields that are attributes where a format has no other place for them."""

_MISSING = ObjectAnnotation._field_defaults

_TITLES = {
    "id": "ids",
    "area": "areas",
    "difficult": "difficult",
    "truncated": "truncated",
    "pose": "poses",
    "segmentation": "outlines",
    "keypoints": "key points",
    "attributes": "attributes",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtractedObjects:
    """What became of the objects in records; of what is listed the first, and how many in all."""

    format: str
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
    attributes: Sequence[Mapping[str, Any]]

    def each(self) -> Iterator[tuple[ObjectAnnotation, str, Any, Mapping[str, Any]]]:
        """Yield each object, its class, outline and attributes."""
        return zip(self.parsed.objects, self.classes, self.outlines, self.attributes, strict=True)


class _WrittenObject(NamedTuple):
    """An object as it is written."""

    annotation: ObjectAnnotation
    title: str
    outline: Any
    attributes: Mapping[str, Any]


class AnnotatedImages(ABC):
    """A fold over images and their objects, which become files of one format."""

    kind: ClassVar[str]  # its name in `KINDS`
    holds: ClassVar[frozenset[str]]  # the fields of `ObjectAnnotation` that it has a place for
    moves_images: ClassVar[bool] = True  # whether images are in folders that the format requires

    def __init__(self, files: NewFiles, shards: Sequence[AnyPath]) -> None:
        """Learn the splits of shards, and the class names in their folders."""
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
        shard: AnyPath,
        record: int,
        features: Mapping[str, Feature],
        parts: Sequence[str],
        data: bytes,
    ) -> list[str]:
        """Write a record's image under a name like the one that is given, and its objects."""
        where, found = self._found(shard, record, features)
        (width, height), orientation, depth, unknown = self._frame(where, found, data)
        written = [
            one
            for number in range(len(found.objects))
            if (one := self._object(where, found, number, (width, height), unknown)) is not None
        ]
        self._images += 1
        self._written += len(written)
        said_id = features.get("image/source_id")
        source_id = "".join(map(_text, said_id.values[:1])) if said_id else ""
        objects = tuple(one.annotation for one in written)
        return self.write(
            AnnotatedImage(
                self._of[shard],
                parts,
                data,
                orientation,
                depth,
                ImageAnnotation(width, height, objects, source_id),
                [one.title for one in written],
                [one.outline for one in written],
                [one.attributes for one in written],
            )
        )

    def _frame(
        self, where: str, found: RecordObjects, data: bytes
    ) -> tuple[tuple[int, int], int, int, str | None]:
        """Return an image's width and height in pixels, its orientation and its depth.

        The last is why the size is unknown, if it is. A recorded size that differs is a problem.
        """
        # Pillow's, of no use without objects
        from tfrtool.images.decoder import RefusedImageError, quiet_pillow, read_frame

        try:
            with quiet_pillow():
                frame = read_frame(data)
        except RefusedImageError as error:
            if found.size is not None:
                return found.size, 1, 0, None
            unknown = f"image size is unknown: {error}"
            self._problems.add(f"{where}: {unknown}")
            return (0, 0), 1, 0, unknown
        if found.size not in (None, (frame.width, frame.height)):
            recorded = " x ".join(map(str, found.size or ()))
            size = f"{frame.width} x {frame.height}"
            self._problems.add(
                f"{where}: recorded size is {recorded}, but the image is {size} pixels"
            )
        return (frame.width, frame.height), frame.orientation, frame.depth, None

    def _object(
        self,
        where: str,
        found: RecordObjects,
        number: int,
        sides: tuple[int, int],
        unknown: str | None,
    ) -> _WrittenObject | None:
        """Return how an object is written; None if it can't be, which is counted."""
        read = found.objects[number]
        name, what = read.title or _UNNAMED, f"{where}, object {number}"
        reason = unknown if read.is_inside else read.problem
        if read.more.get("crowd") and "crowd" not in self.holds:
            reason = reason or f"{self.kind} does not support crowd regions"
        if reason is None and not self._know(name, read.label):
            reason = f"more than {MAX_CLASSES:,} classes"
        if reason is not None:
            self._skipped.add(f"{what}: {reason}")
            return None
        if read.problem is not None:
            self._problems.add(f"{what}: {read.problem}; clipped")
        annotation = read.in_pixels(*sides)
        if found.masks:
            annotation = self._with_mask(annotation, what, found.masks[number], sides)
        outline = outline_of(annotation.segmentation) if annotation.segmentation else None
        if annotation.segmentation and outline is None:
            self._problems.add(f"{what}: invalid outline")
            annotation = annotation._replace(segmentation="")
        if (more := parse_attributes(annotation.attributes)) is None:
            self._problems.add(f"{what}: invalid attributes")
            annotation = annotation._replace(attributes="")
        others = {one: getattr(annotation, one) for one in _TITLES.keys() - self.holds}
        others = {one: value for one, value in others.items() if value != _MISSING[one]}
        named = _NAMED if "attributes" in self.holds else ()
        attributes = {one: others.pop(one) for one in named if one in others} | (more or {})
        self.lost.update(_TITLES[one] for one in others)
        return _WrittenObject(annotation, name, outline, attributes)

    def _with_mask(
        self, annotation: ObjectAnnotation, what: str, mask: bytes, sides: tuple[int, int]
    ) -> ObjectAnnotation:
        """Return an object with its mask, if the format has masks and this one can be read."""
        from tfrtool.images.masks import read_mask

        if "masks" not in self.holds:
            self.lost["masks"] += 1
            return annotation
        try:
            return annotation._replace(segmentation=read_mask(mask, *sides))
        except ValueError as error:
            self._problems.add(f"{what}: {error}")
            return annotation

    def write_pair(
        self, image: AnnotatedImage, images: Sequence[str], others: Sequence[str], suffix: str
    ) -> tuple[str, str]:
        """Write an image, and begin a file of another folder whose name differs in the suffix."""
        stem, image_suffix = stem_and_suffix(image.parts[-1])
        other = self.files.add((*others, stem + suffix), b"")  # which numbers it, if need be
        stem = other.rpartition("/")[2][: -len(suffix)]
        return self.files.add((*images, stem + image_suffix), image.data), other

    def leave_out(
        self, shard: AnyPath, record: int, features: Mapping[str, Feature], reason: str
    ) -> None:
        """List the objects of a record that no image is taken out of."""
        where, found = self._found(shard, record, features)
        for number in range(len(found.objects)):
            self._skipped.add(f"{where}, object {number}: {reason}")

    def report(self) -> ExtractedObjects:
        """Return what became of all objects."""
        return ExtractedObjects(
            format=self.kind,
            files=tuple(self.end()),
            images=self._images,
            objects=self._objects,
            written=self._written,
            listed=tuple(self._skipped.entries),
            listed_count=self._skipped.count,
            problems=tuple(self._problems.entries),
            problem_count=self._problems.count,
            lost=dict(sorted(self.lost.items())),
            renumbered=self.renumbered,
        )

    def _found(
        self, shard: AnyPath, record: int, features: Mapping[str, Feature]
    ) -> tuple[str, RecordObjects]:
        found = read_objects(features, self._names[shard.parent])
        where = named_record(shard.name, record)
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
    is_polygons = isinstance(found, list) and all(map(_are_numbers, found))
    return found if is_polygons and not any(len(line) % 2 for line in found) else None


def _are_numbers(found: object) -> bool:
    return isinstance(found, list) and all(
        isinstance(one, int | float) and abs(one) < _FAR for one in found
    )


_SHORT = {"": "train", "validation": "val", "valid": "val"}
"""How VOC and YOLO call splits."""

_NOT_XML = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_NUMBER = re.compile("0|[1-9][0-9]{0,15}")
_TOGETHER = 10_000
"""Entries of a JSON file that are written at once."""


def unique_numbers(wanted: Sequence[int | None]) -> list[int]:
    """Return each wanted number where it is free, and new ones, above all of these, elsewhere."""
    free, taken = [], set[int]()
    for number in wanted:
        free.append(number is not None and 0 <= number < MAX_ID and number not in taken)
        if free[-1] and number is not None:
            taken.add(number)
    new = count(max(taken, default=0) + 1)
    return [n if ok and n is not None else next(new) for n, ok in zip(wanted, free, strict=True)]


class _CocoJson:
    """The COCO file of a split, written at the end, when all ids that records have are known."""

    def __init__(self, files: NewFiles, name: str) -> None:
        self.images: list[tuple[int | None, str]] = []  # wanted id, and the rest as JSON
        self.objects: list[tuple[int | None, int, str]] = []  # also the place of the image
        self.renumbered = 0
        self._files, self.file = files, files.add((name,), b"")

    def end(self, categories: Sequence[Mapping[str, Any]]) -> str:
        images = unique_numbers([wanted for wanted, _ in self.images])
        objects = unique_numbers([wanted for wanted, *_ in self.objects])
        pairs = chain(
            zip((wanted for wanted, _ in self.images), images, strict=True),
            zip((wanted for wanted, *_ in self.objects), objects, strict=True),
        )
        self.renumbered = sum(wanted not in (None, number) for wanted, number in pairs)
        lines = (
            f'{{"id": {n}, {text[1:]}' for n, (_, text) in zip(images, self.images, strict=True)
        )
        self._write('{"images": [', lines)
        lines = (
            f'{{"id": {number}, "image_id": {images[image]}, {text[1:]}'
            for number, (_, image, text) in zip(objects, self.objects, strict=True)
        )
        self._write('],\n"annotations": [', lines)
        self._write('],\n"categories": [', map(json.dumps, categories))
        self._files.append(self.file, b"]}\n")
        return self.file

    def _write(self, head: str, lines: Iterable[str]) -> None:
        self._files.append(self.file, head.encode())
        separator = "\n"
        for part in iter(lambda: list(islice(lines, _TOGETHER)), []):
            self._files.append(self.file, (separator + ",\n".join(part)).encode())
            separator = ",\n"


class CocoFiles(AnnotatedImages):
    """COCO's instances: a JSON file per split, which names images by their paths."""

    kind, moves_images = "coco", False
    holds = frozenset(ObjectAnnotation._fields).difference(_NAMED) | {"masks"}

    def __init__(self, files: NewFiles, shards: Sequence[AnyPath]) -> None:
        """Begin the file of each split."""
        super().__init__(files, shards)
        names = {split: f"instances_{safe_part(split) or 'other'}.json" for split in self.splits}
        alone = {split: "annotations.json" for split in self.splits if len(names) == 1}
        self._jsons = {split: _CocoJson(files, name) for split, name in (names | alone).items()}

    def write(self, image: AnnotatedImage) -> list[str]:
        """Write an image, and what is known of the objects in it."""
        file, parsed = self.files.add(image.parts, image.data), image.parsed
        wanted = int(parsed.source_id) if _NUMBER.fullmatch(parsed.source_id) else None
        target = self._jsons[image.split]
        image_index = len(target.images)
        sides = {"width": parsed.width, "height": parsed.height}
        target.images.append((wanted, json.dumps({"file_name": file, **sides})))
        for annotation, name, outline, attributes in image.each():
            wide = round(annotation.xmax - annotation.xmin, 6)
            high = round(annotation.ymax - annotation.ymin, 6)
            entry: dict[str, Any] = {
                "category_id": self.classes[name][1],
                "bbox": [*map(_plain_number, (annotation.xmin, annotation.ymin, wide, high))],
                "area": _plain_number(
                    wide * high if annotation.area is None else shortest_float(annotation.area)
                ),
                "iscrowd": int(annotation.crowd),
            }
            if annotation.keypoints:
                entry["keypoints"] = [*map(_plain_number, annotation.keypoints)]
                entry["num_keypoints"] = sum(v > 0 for v in annotation.keypoints[2::3])
            if outline is not None:
                entry["segmentation"] = outline
            if attributes:
                entry["attributes"] = {**attributes}
            target.objects.append((annotation.id, image_index, json.dumps(entry)))
        return [file]

    def end(self) -> list[str]:
        """Write the objects, and then the classes."""
        categories = list[dict[str, Any]]()
        for name, (_, number) in self.classes.items():
            skeleton = self.skeletons.get(name)
            more = skeleton.to_json() if skeleton else {}
            categories.append({"id": number, "name": name} | more)
        files = [target.end(categories) for target in self._jsons.values()]
        self.renumbered = sum(target.renumbered for target in self._jsons.values())
        return files


class VocFiles(AnnotatedImages):
    """Pascal VOC: an XML file of each image, and a list of the images of each split."""

    kind = "voc"
    holds = frozenset(("difficult", "truncated", "pose", "attributes"))

    def __init__(self, files: NewFiles, shards: Sequence[AnyPath]) -> None:
        """Begin the list of each split."""
        super().__init__(files, shards)
        shorts = {_SHORT.get(split, safe_part(split)) for split in self.splits}
        lists = ((short, ("ImageSets", "Main", f"{short}.txt")) for short in sorted(shorts))
        self._lists = {short: files.add(parts, b"") for short, parts in lists}

    def write(self, image: AnnotatedImage) -> list[str]:
        """Write an image, and its XML."""
        file, other = self.write_pair(image, ("JPEGImages",), ("Annotations",), ".xml")
        parsed, stem = image.parsed, other.rpartition("/")[2][: -len(".xml")]
        short = _SHORT.get(image.split, safe_part(image.split))
        depth = f"<depth>{image.depth}</depth>" if image.depth else ""
        self.files.append(self._lists[short], f"{stem}\n".encode())
        lines = [
            "<annotation>",
            "\t<folder>JPEGImages</folder>",
            f"\t<filename>{_xml(file.rpartition('/')[2])}</filename>",
            f"\t<size><width>{parsed.width}</width><height>{parsed.height}</height>{depth}</size>",
        ]
        for annotation, name, _, attributes in image.each():
            sides = zip(SIDES, map(_plain_number, annotation[:4]), strict=True)
            lines += [
                "\t<object>",
                f"\t\t<name>{_xml(name)}</name>",
                f"\t\t<pose>{_xml(annotation.pose) or 'Unspecified'}</pose>",
                f"\t\t<truncated>{annotation.truncated:d}</truncated>",
                f"\t\t<difficult>{annotation.difficult:d}</difficult>",
                f"\t\t<bndbox>{''.join(f'<{side}>{v}</{side}>' for side, v in sides)}</bndbox>",
            ]
            named = (
                f"<attribute><name>{_xml(name)}</name><value>{_xml(_text_of(value))}</value></attribute>"
                for name, value in attributes.items()
            )
            lines += ["\t\t<attributes>", *named, "\t\t</attributes>"] if attributes else []
            lines += ["\t</object>"]
        self.files.append(other, "\n".join((*lines, "</annotation>\n")).encode())
        return [file, other]

    def end(self) -> list[str]:
        """Return the lists, which are written."""
        return [*self._lists.values()]


class YoloFiles(AnnotatedImages):
    """YOLO: a text file of labels for each image, in shares of its sides, and ``data.yaml``.

    A line is a polygon where any object of the image has one: those without get the corners of
    their boxes. Key points are written, if the first record with objects has some, and no outlines.
    """

    kind = "yolo"
    holds = frozenset(("segmentation", "keypoints"))

    def __init__(self, files: NewFiles, shards: Sequence[AnyPath]) -> None:
        """Start without key points."""
        super().__init__(files, shards)
        self._points: int | None = None  # of each object; None before any object
        self._used: dict[str, None] = {}

    def write(self, image: AnnotatedImage) -> list[str]:
        """Write an image, and the labels of its objects."""
        short = _SHORT.get(image.split, safe_part(image.split))
        self._used[short] = None
        file, other = self.write_pair(image, ("images", short), ("labels", short), ".txt")
        width, height = image.parsed[:2]
        if image.orientation >= SIDEWAYS:
            width, height = height, width
        objects = image.parsed.moved(image.orientation, width, height).objects  # as readers turn it
        outlines = [outline_of(one.segmentation) if one.segmentation else None for one in objects]
        if self._points is None and objects:
            self._points = 0 if any(outlines) else len(objects[0].keypoints) // 3
        polygons = not self._points and any(isinstance(one, list) for one in outlines)
        lines = []
        for annotation, outline, name in zip(objects, outlines, image.classes, strict=True):
            if outline and not (polygons and isinstance(outline, list)):
                self.lost["outlines"] += 1
            points = list(annotation.keypoints)
            if points and len(points) != 3 * (self._points or 0):
                self.lost["key points"] += 1
                points = []
            x0, y0, x1, y1 = annotation[:4]
            if polygons:
                parts = outline if isinstance(outline, list) and outline else None
                line = _joined(parts or [[x0, y0, x1, y0, x1, y1, x0, y1]])
                sides = (width, height) * (len(line) // 2)
                numbers = [
                    min(max(v / side, 0.0), 1.0) for v, side in zip(line, sides, strict=True)
                ]
            else:
                numbers = [(x0 + x1) / 2 / width, (y0 + y1) / 2 / height]
                numbers += [(x1 - x0) / width, (y1 - y0) / height]
                threes = (width, height, 1) * (len(points) // 3)
                numbers += [v / side for v, side in zip(points, threes, strict=True)]
            lines.append(" ".join((str(self.classes[name][0]), *map(_share, numbers))) + "\n")
        self.files.append(other, "".join(lines).encode())
        return [file, other]

    def end(self) -> list[str]:
        """Write ``data.yaml``, which names the folders of images and the classes."""
        used, lines = [*self._used], [f"{short}: images/{short}" for short in self._used]
        # Trainers require both. Without a validation split, they validate on what they train on.
        lines += [
            f"{one}: images/{used[0]}" for one in ("train", "val") if used and one not in used
        ]
        lines += [f"kpt_shape: [{self._points}, 3]"] if self._points else []
        lines += ["names:"]
        lines += [f"  {place}: {_yaml(name)}" for name, (place, _) in self.classes.items()]
        return [self.files.add(("data.yaml",), "\n".join((*lines, "")).encode())]


def _joined(parts: Sequence[Sequence[float]]) -> list[float]:
    """Return one polygon of the same area as several: lines to their first points and back."""
    first = parts[0][:2]
    rest = chain.from_iterable((*part, *part[:2], *first) for part in parts[1:])
    return [*parts[0], *(first if parts[1:] else ()), *rest]


def _plain_number(value: float) -> float:
    """Return a number without a needless fraction."""
    return int(value) if value == int(value) else value


def _share(value: float) -> str:
    return f"{value:.7f}".rstrip("0").rstrip(".")


def _text_of(value: Any) -> str:
    """Return a text as it is, and anything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _xml(text: str) -> str:
    """Return text as XML; what XML can't hold becomes an escape sequence."""
    text = _NOT_XML.sub(lambda match: printable(match[0]), text)
    return escape(text, {"\r": "&#13;"})


def _yaml(text: str) -> str:
    signs = (c if c.isprintable() and c not in '"\\' else f"\\U{ord(c):08X}" for c in text)
    return f'"{"".join(signs)}"'
