"""COCO's annotations: instances and key points, in files of any size."""

import json
import math
import re
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby, islice
from operator import itemgetter
from pathlib import Path
from typing import Any

from tfrtool.errors import SourceError, human_count, os_errors_as, printable, some_of
from tfrtool.examples.objects.record_features import Masks
from tfrtool.images.masks import outline_points, run_lengths
from tfrtool.sources.annotations.annotation_folder import (
    LEADS_OUT,
    AnnotationFolder,
    number_classes,
)
from tfrtool.sources.annotations.found import AnnotationReader, FoundImage, FoundObject, is_number
from tfrtool.sources.annotations.json_parts import JsonParts
from tfrtool.sources.folders.listing import SPLIT_NAMES
from tfrtool.sources.items import LeftOut, label_problem
from tfrtool.sources.tables.table_columns import TEXT_SHOWN
from tfrtool.storage.limits import (
    MAX_IMAGE_OBJECTS,
    MAX_KEYPOINTS,
    MAX_OUTLINE_POINTS,
    MAX_PATH_LENGTH,
)
from tfrtool.storage.opening import open_regular
from tfrtool.storage.scratch.external_sort import ExternalSort

_WRITTEN = {
    "images": {"id", "file_name", "width", "height"},
    "annotations": {"id", "image_id", "category_id", "bbox", "segmentation", "area", "iscrowd"}
    | {"keypoints", "num_keypoints"},
    "categories": {"id", "name"},
}
_LONGEST_ID = 64
_SHOWN = 10
_POLYGONS = re.compile(r'"segmentation"\s*:\s*(\[[][\d\s.,eE+-]*\])')
_NOT_READ = {"segments_info": "panoptic segments", "caption": "captions"}
_ROBOFLOW = "_annotations.coco.json"
_EXPECTED = "COCO's instances or key points"

_Row = tuple[int, int, str, bool, int, tuple[Any, ...]]
"""The number of a file, the length of an image's id, this id, whether it tells of an object and
not of the image, a number, and what is told."""


class _OtherKindError(Exception):
    """A file holds something else; says what."""


class CocoReader(AnnotationReader):
    """Reads a file of COCO's instances or key points, or a folder of such files.

    What tells of objects, and of images, comes in any order, and is sorted in a scratch folder.
    """

    def __init__(self, path: Path, scratch: Path, masks: Masks) -> None:
        """Say where the file is, or the folder of files, and what becomes of outlines."""
        super().__init__()
        self._path, self._masks = path, masks
        self._rows = ExternalSort[_Row](scratch)
        self._categories: dict[int, dict[str, str]] = {}  # of each file: names by ids
        self._repeated: dict[int, frozenset[int]] = {}  # by files: ids that several objects have
        self._files: dict[int, tuple[str, str | None]] = {}  # where images may be, and splits
        self._unwritten: dict[str, set[str]] = {}
        self._left = Counter[str]()  # what of objects is not written

    def images(self) -> Iterator[FoundImage | LeftOut]:
        """Yield all images, those with problems, too; and each object whose image is not there."""
        inside = AnnotationFolder(self._path, None) if (folder := self._path.is_dir()) else None
        keys = inside.keys() if inside else [""]
        for file, key in enumerate(keys):
            name, _, last = key.rpartition("/")
            if folder and (not key.endswith(".json") or (name and last != _ROBOFLOW)):
                continue
            words = re.findall("[a-z]+", (name or last).lower())
            split = next((SPLIT_NAMES[word] for word in words if word in SPLIT_NAMES), None)
            if inside and inside.leads_out(key):
                raise SourceError(LEADS_OUT, path=self._path / key)
            try:
                self._read(file, self._path / key if key else self._path)
                self._files[file] = name or last[:-5].partition("_")[2], split
            except _OtherKindError as error:
                if not folder:
                    raise SourceError(str(error), path=self._path, expected=_EXPECTED) from error
                self.ignored.add(LeftOut(key=key, reason=str(error)))
        splits = {split for _, split in self._files.values()}
        if not splits:
            raise SourceError("has no files of annotations", path=self._path, expected=_EXPECTED)
        if None in splits and len(splits) > 1:
            what = "a file's name tells no split, and those of others do"
            raise SourceError(what, path=self._path, expected="as instances_train2017.json does")
        for member, left in self._unwritten.items():
            if left:
                self.notices.append(f"not written of {member}: {', '.join(sorted(left))}")
        for what, count in self._left.items():
            self.notices.append(f"not written: {what}, of {human_count(count, 'object')}")
        for (file, _, key), rows in groupby(self._rows, itemgetter(0, 1, 2)):
            if file in self._files:
                yield from self._images(file, key, rows)

    def _read(self, file: int, path: Path) -> None:
        told, members, ids = dict[str, str](), set[str](), array("q")
        with os_errors_as(SourceError, path), open_regular(path) as opened:
            for member, at, value, text in JsonParts(opened, str(path)):
                members.add(member)
                if member not in _WRITTEN or at < 0:
                    if member in _WRITTEN and value is not None:
                        raise SourceError(f"its {member} are no list", path=path)
                    self._leave("the file", (member,))
                elif not isinstance(value, dict):
                    raise SourceError(f"{member}[{at}] is no object", path=path)
                else:
                    self._leave(member, value.keys() - _WRITTEN[member])
                    if member == "images":
                        self._rows.add((file, *_image_row(at, value)))
                    elif member == "annotations":
                        self._rows.add((file, *self._object_row(at, value, text)))
                        if _is_id(value.get("id")):
                            ids.append(value["id"])
                        else:
                            self._left["ids that are no numbers"] += 1
                    else:
                        _add_category(told, value, path)
        if "images" not in members:
            raise _OtherKindError("it lists no images")
        self._categories[file] = told
        if twice := _twice(ids):
            self._repeated[file] = twice
            what = f"several objects of {printable(path.name)} have one id, which is not written"
            self.notices.append(f"{what}: {some_of([*map(str, sorted(twice))], _SHOWN)}")

    def _leave(self, member: str, keys: Iterable[str]) -> None:
        known = self._unwritten.setdefault(member, set())
        if len(known) < _SHOWN:
            known.update(printable(key[:40]) for key in islice(keys, _SHOWN))

    def _object_row(self, at: int, value: dict[str, Any], text: str) -> Any:
        """Return what is told of an object, checked but for its category."""
        if "bbox" not in value and "segmentation" not in value:
            for name, what in _NOT_READ.items():
                if name in value:
                    raise _OtherKindError(f"it holds {what}")
        number = value["id"] if _is_id(value.get("id")) else None
        what = f"annotations[{at}]" if number is None else f"annotation {number}"
        more: dict[str, object] = {}
        box: Sequence[object] = ()
        problem = size = None
        try:
            size, polygons = self._outline(value.get("segmentation"), text, more)
            box = _box(value.get("bbox"), polygons)
            _take_more(value, more)
        except ValueError as error:
            problem = str(error)
        key = _key(value.get("image_id")) or ""
        told = (what, number, _key(value.get("category_id")), box, more, size, problem)
        return len(key), key, True, at, told

    def _outline(self, found: Any, text: str, more: dict[str, object]) -> Any:
        """Take an outline; return the size of a mask of run lengths, or else the polygons."""
        if not found:
            return None, None
        if isinstance(found, dict):
            _, width, height = run_lengths(found)
            if self._masks is not Masks.NONE:
                mask = {"size": found["size"], "counts": found["counts"]}
                more["segmentation"] = json.dumps(mask, separators=(",", ":"))
            return (width, height), None
        if not isinstance(found, list):
            raise ValueError("its segmentation is neither polygons nor run lengths")
        polygons = found if isinstance(found[0], list) else [found]
        for line in polygons:
            if not isinstance(line, list) or not {*map(type, line)} <= {int, float}:
                raise ValueError("its segmentation is no list of polygons")
            if line and not (math.isfinite(sum(line)) and min(line) > -1e9 and max(line) < 1e9):
                raise ValueError("its segmentation has impossible numbers")
        lines = [line for line in polygons if len(line) >= 6 and len(line) % 2 == 0]
        if len(lines) < len(polygons):
            self._left["outlines of less than three points"] += 1
        if self._masks is Masks.PNG and sum(map(outline_points, lines)) > MAX_OUTLINE_POINTS:
            raise ValueError(f"its outline has more than {MAX_OUTLINE_POINTS:,} points")
        if lines and self._masks is not Masks.NONE:
            # The file's own text, if it is plain, is there at once; numbers take long to write.
            own = [] if "\\" in text else _POLYGONS.findall(text)
            same = len(own) == 1 and lines == found
            more["segmentation"] = own[0] if same else json.dumps(lines, separators=(",", ":"))
        return None, lines

    def _images(self, file: int, key: str, rows: Iterable[_Row]) -> Iterator[FoundImage | LeftOut]:
        """Yield the images that have an id, of which there should be one, with its objects."""
        told, objects, (folder, split) = [], list[FoundObject](), self._files[file]
        for *_, is_object, _, some in rows:
            if not is_object:
                told.append(some)
                continue
            one = self._object(file, told, some)
            if not told or len(objects) == MAX_IMAGE_OBJECTS:
                many = f"its image has more than {MAX_IMAGE_OBJECTS:,} objects"
                why = one.problem or (many if told else "no image has its image_id")
                yield LeftOut(key=printable(f"image {key}"), reason=f"{one.what}: {why}")
            else:
                objects.append(one)
        for name, width, height, problem, where in told:
            if len({some[0] for some in told}) > 1:
                problem = "several images have its id"
            yield FoundImage(
                name=name,
                where=where,
                other=f"images/{folder}/{name}" if folder else "",
                width=width,
                height=height,
                objects=objects,
                source_id=key,
                split=split,
                problem=problem,
            )
            objects = []

    def _object(self, file: int, told: list[Any], some: tuple[Any, ...]) -> FoundObject:
        what, number, category, box, more, size, problem = some
        name = self._categories[file].get(category)
        if problem is None and name is None:
            problem = f"no category has its category_id {printable(str(category))}"
        if problem is None and told and size and None not in told[0][1:3] and size != told[0][1:3]:
            problem = f"its mask has {size[0]} x {size[1]} pixels, and its image has not"
        if number is not None and number not in self._repeated.get(file, ()):
            more["id"] = number
        return FoundObject(what=what, box=box, category=name or "", more=more, problem=problem)

    def classes(self) -> Mapping[str, int]:
        """Return, after the images, the classes: for each name its number in a label map, > 0."""
        found: dict[str, str] = {}
        clashes = 0
        for told in self._categories.values():
            for key, name in told.items():
                clashes += found.setdefault(name, key) != key
        if clashes:
            self.notices.append(f"categories that are one class with another: {clashes:,}")
        numbers = number_classes(found, self._path)
        ids = [int(key) if key.isdecimal() else 0 for key in found.values()]
        if all(0 < one < 2**31 for one in ids) and len({*ids}) == len(ids):
            return dict(sorted(zip(found, ids, strict=True), key=itemgetter(1)))
        self.notices.append("ids of categories that no label map has: they are numbered 1, 2, ...")
        return numbers


def _key(value: object) -> str | None:
    """Return what identifies an image or a category, a number or a short text; None for others."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int | str):
        return None
    return key if len(key := str(value)) <= _LONGEST_ID and key.isprintable() else None


def _is_id(value: object) -> bool:
    return type(value) is int and 0 <= value < 2**63


def _twice(ids: "array[int]") -> frozenset[int]:
    import numpy

    found = numpy.sort(numpy.frombuffer(ids, "q"))
    return frozenset(found[1:][found[1:] == found[:-1]].tolist())


def _image_row(at: int, value: Mapping[str, Any]) -> Any:
    key, name = _key(value.get("id")), value.get("file_name", value.get("coco_url"))
    where = f"images[{at}]" if key is None else f"image {printable(key)}"
    problem = "its id is neither a number nor a short text" if key is None else None
    if not isinstance(name, str) or not 0 < len(name) <= MAX_PATH_LENGTH:
        name, problem = where, "it has no file_name"
    sides = []
    for side in (value.get("width"), value.get("height")):
        if not (side is None or (is_number(side) and side == int(side))):
            problem = "its width and height are no whole numbers"
        sides.append(None if side is None or problem else int(side))
    told = (name, *sides, problem, where)
    return (-1, str(at), False, at, told) if key is None else (len(key), key, False, at, told)


def _add_category(told: dict[str, str], value: Mapping[str, Any], path: Path) -> None:
    key, name = _key(value.get("id")), value.get("name")
    if key is None or not isinstance(name, str):
        raise SourceError("a category has no id or no name", path=path)
    if unfit := label_problem(name):
        shown = repr(name[:TEXT_SHOWN])
        raise SourceError(f"a category's name {unfit}", path=path, found=shown)
    if told.setdefault(key, name) != name:
        found = f"{printable(told[key])!r} and {printable(name)!r}"
        raise SourceError(f"two categories have the id {printable(key)}", path=path, found=found)


def _box(box: Any, polygons: Any) -> Sequence[object]:
    if box is None and polygons:
        x, y = ([v for line in polygons for v in line[at::2]] for at in (0, 1))
        return min(x), min(y), max(x), max(y)
    if box is None:
        raise ValueError("it has no bbox")
    if not isinstance(box, list) or len(box) != 4 or not all(map(is_number, box)):
        raise ValueError("its bbox is not four numbers")
    x, y, width, height = box
    return x, y, x + width, y + height


def _take_more(value: Mapping[str, Any], more: dict[str, object]) -> None:
    """Take what else is told of an object."""
    if (area := value.get("area")) is not None:
        if not is_number(area) or area < 0:
            raise ValueError("its area is no number")
        more["area"] = float(area)
    if (crowd := value.get("iscrowd")) is not None:
        if crowd not in (0, 1):
            raise ValueError("its iscrowd is neither 0 nor 1")
        more["crowd"] = bool(crowd)
    if points := value.get("keypoints"):
        if (
            not isinstance(points, list)
            or len(points) % 3
            or len(points) > 3 * MAX_KEYPOINTS
            or not all(map(is_number, points))
            or not {*points[2::3]} <= {0, 1, 2}
        ):
            raise ValueError("its keypoints are no places with a visibility of 0, 1 or 2")
        more["keypoints"] = tuple(map(float, points))
