"""COCO's annotations: instances and key points, in files of any size."""

import json
import math
import re
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby, islice
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

from tfrtool.errors import SourceError, human_count, os_errors_as, printable, some_of
from tfrtool.examples.objects.annotation import Skeleton
from tfrtool.examples.objects.record_features import Masks
from tfrtool.images.masks import outline_points, run_lengths
from tfrtool.sources.annotations.annotation_folder import (
    LEADS_OUT,
    AnnotationFolder,
    number_classes,
)
from tfrtool.sources.annotations.found import (
    AnnotationReader,
    FoundImage,
    FoundObject,
    check_splits,
    is_number,
    split_in_name,
)
from tfrtool.sources.annotations.json_parts import JsonParts
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
    "categories": {"id", "name", "keypoints", "skeleton"},
}
_LONGEST_ID = 64
_SHOWN = 10
_POLYGONS = re.compile(r'"segmentation"\s*:\s*(\[[][\d\s.,eE+-]*\])')
_NOT_READ = {"segments_info": "panoptic segments", "caption": "captions"}
_ROBOFLOW = "_annotations.coco.json"
_EXPECTED = "COCO instances or keypoints"

_Row = tuple[int, int, str, bool, int, int, tuple[Any, ...]]
"""The number of a split, the length of an image's id, this id, whether the row is an object and not
the image, the number of a file, the place in its list, and the content."""


class _File(NamedTuple):
    """A file of annotations."""

    path: Path
    key: str = ""  # its path in the folder of such files
    folder: str = ""  # below "images/", where its images may be
    split: str | None = None
    required: bool = True  # whether it must hold instances or key points


class _OtherKindError(Exception):
    """A file holds something else; says what."""


class CocoReader(AnnotationReader):
    """Reads files of COCO's instances or key points, and folders of such files.

    Objects and images come in any order, and are sorted in a scratch folder. Files of one split are
    merged: by the ids of images and of objects, which must not contradict each other.
    """

    def __init__(self, places: Sequence[Path], scratch: Path, masks: Masks) -> None:
        """Take the paths of files or folders, and what becomes of outlines."""
        super().__init__()
        self._places, self._masks = places, masks
        self._rows = ExternalSort[_Row](scratch)
        self._categories: dict[int, dict[str, str]] = {}  # of each file: names by ids
        self._repeated: dict[int, frozenset[int]] = {}  # by files: ids that several objects have
        self._files: dict[int, _File] = {}  # those that are read
        self._ids: dict[int, array[int]] = {}  # by files: of their objects
        self._shared: dict[int, dict[int, int]] = {}  # by splits: ids, and how many files have each
        self._merged = 0  # objects
        self._unwritten: dict[str, set[str]] = {}
        self._left = Counter[str]()  # what of objects is not written

    def images(self) -> Iterator[FoundImage | LeftOut]:
        """Yield all images, those with problems, too; and each object whose image is not there."""
        splits = dict[str | None, int]()
        for number, file in enumerate(self._listed()):
            try:
                self._read(number, splits.setdefault(file.split, len(splits)), file.path)
                self._files[number] = file
            except _OtherKindError as error:
                if file.required:
                    raise SourceError(str(error), path=file.path, expected=_EXPECTED) from error
                self.ignored.add(LeftOut(key=file.key, reason=str(error)))
        if not self._files:
            what = "no annotation files"
            raise SourceError(what, path=self._places[0], expected=_EXPECTED)
        check_splits({file.path: file.split for file in self._files.values()})
        self._compare_categories()
        for split, group in splits.items():
            files = [number for number, file in self._files.items() if file.split == split]
            self._shared[group] = _shared([self._ids[number] for number in files])
        for member, left in self._unwritten.items():
            if left:
                self.notices.append(f"fields of {member} not written: {', '.join(sorted(left))}")
        for what, count in self._left.items():
            self.notices.append(f"{what} not written: {human_count(count, 'object')}")
        for (group, _, name), rows in groupby(self._rows, itemgetter(0, 1, 2)):
            yield from self._images(name, rows, self._shared[group])
        if self._merged:
            merged = human_count(self._merged, "object")
            self.notices.append(f"merged from several files by id: {merged}")

    def _listed(self) -> Iterator[_File]:
        """Yield the files at all places; one file alone has no split."""
        for place in self._places:
            if not place.is_dir():
                folder = place.parent.name if place.name == _ROBOFLOW else _folder(place.name)
                split = split_in_name(folder if place.name == _ROBOFLOW else place.name)
                alone = len(self._places) == 1
                yield _File(place) if alone else _File(place, place.name, folder, split)
                continue
            inside = AnnotationFolder(place, None)
            keys = inside.keys()
            for key in keys:
                name, _, last = key.rpartition("/")
                if not key.endswith(".json") or (name and last != _ROBOFLOW):
                    continue
                if inside.leads_out(key):
                    raise SourceError(LEADS_OUT, path=place / key)
                split = split_in_name(name or last)
                yield _File(place / key, key, name or _folder(last), split, required=False)

    def _read(self, file: int, split: int, path: Path) -> None:
        told, members, ids = dict[str, str](), set[str](), array("q")
        with os_errors_as(SourceError, path), open_regular(path) as opened:
            for member, at, value, text in JsonParts(opened, str(path)):
                members.add(member)
                if member not in _WRITTEN or at < 0:
                    if member in _WRITTEN and value is not None:
                        raise SourceError(f"'{member}' is not a list", path=path)
                    self._leave("the file", (member,))
                elif not isinstance(value, dict):
                    raise SourceError(f"{member}[{at}] is not an object", path=path)
                else:
                    self._leave(member, value.keys() - _WRITTEN[member])
                    if member == "images":
                        self._rows.add((split, *_image_row(file, at, value)))
                    elif member == "annotations":
                        self._rows.add((split, *self._object_row(file, at, value, text)))
                        if _is_id(value.get("id")):
                            ids.append(value["id"])
                        elif value.get("id") is not None:
                            self._left["ids that are not numbers"] += 1
                    else:
                        self._add_category(told, value, path)
        if "images" not in members:
            raise _OtherKindError("no 'images' list")
        self._categories[file], self._ids[file] = told, ids
        if twice := _twice(ids):
            self._repeated[file] = twice
            what = f"ids not written, shared by several objects of {printable(path.name)}"
            self.notices.append(f"{what}: {some_of([*map(str, sorted(twice))], _SHOWN)}")

    def _add_category(self, told: dict[str, str], value: Mapping[str, Any], path: Path) -> None:
        name = _take_category(told, value, path)
        if not value.get("keypoints"):
            return
        skeleton = Skeleton.parse(value)
        if skeleton is None:
            self._leave("categories", ("keypoints", "skeleton"))
        elif self.skeletons.setdefault(name, skeleton) != skeleton:
            what = f"category '{printable(name)}' has two lists of keypoints"
            raise SourceError(what, path=path, expected="the same keypoints in every file")

    def _leave(self, member: str, keys: Iterable[str]) -> None:
        known = self._unwritten.setdefault(member, set())
        if len(known) < _SHOWN:
            known.update(printable(key[:40]) for key in islice(keys, _SHOWN))

    def _object_row(self, file: int, at: int, value: dict[str, Any], text: str) -> Any:
        """Return what is told of an object, checked but for its category."""
        if "bbox" not in value and "segmentation" not in value:
            for name, what in _NOT_READ.items():
                if name in value:
                    raise _OtherKindError(f"contains {what}")
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
        return len(key), key, True, file, at, told

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
            raise ValueError("segmentation is neither polygons nor run lengths")
        polygons = found if isinstance(found[0], list) else [found]
        for line in polygons:
            if not isinstance(line, list) or not {*map(type, line)} <= {int, float}:
                raise ValueError("segmentation is not a list of polygons")
            if line and not (math.isfinite(sum(line)) and min(line) > -1e9 and max(line) < 1e9):
                raise ValueError("segmentation has numbers out of range")
        lines = [line for line in polygons if len(line) >= 6 and len(line) % 2 == 0]
        if len(lines) < len(polygons):
            self._left["outlines of fewer than three points"] += 1
        if self._masks is Masks.PNG and sum(map(outline_points, lines)) > MAX_OUTLINE_POINTS:
            raise ValueError(f"outline has more than {MAX_OUTLINE_POINTS:,} points")
        if lines and self._masks is not Masks.NONE:
            # The file's own text, if it is plain, is there at once; numbers take long to write.
            own = [] if "\\" in text else _POLYGONS.findall(text)
            same = len(own) == 1 and lines == found
            more["segmentation"] = own[0] if same else json.dumps(lines, separators=(",", ":"))
        return None, lines

    def _images(
        self, key: str, rows: Iterable[_Row], shared: Mapping[int, int]
    ) -> Iterator[FoundImage | LeftOut]:
        """Yield the images that have an id, of which there should be one, with its objects."""
        images, objects = list[tuple[int, Any]](), list[FoundObject]()
        places = dict[int, tuple[int, list[int]]]()  # by shared ids: of the object, and its files
        for *_, is_object, file, _, content in rows:  # images come first
            if file not in self._files:
                continue
            if not is_object:
                self._add_image(key, images, file, content)
                continue
            told = [image for _, image in images]
            one, number = self._object(file, told, content), content[1]
            if number in places:
                at, files = places[number]
                files.append(file)
                objects[at] = self._one_object(number, objects[at], one, files)
            elif not told or len(objects) == MAX_IMAGE_OBJECTS:
                many = f"image has more than {MAX_IMAGE_OBJECTS:,} objects"
                why = one.problem or (many if told else "no image with this image_id")
                yield LeftOut(key=printable(f"image {key}"), reason=f"{one.what}: {why}")
            else:
                if number in shared:
                    places[number] = len(objects), [file]
                objects.append(one)
        for number, (_, files) in places.items():
            if len(files) < shared[number]:
                alike = [
                    n for n, f in self._files.items() if f.split == self._files[files[0]].split
                ]
                other = next(n for n in alike if n not in files and number in self._ids[n])
                raise self._contradiction(f"annotation {number}", "image_id", files[0], other)
        for file, (name, width, height, problem, where) in images:
            folder, split = self._files[file].folder, self._files[file].split
            if len({image[0] for _, image in images}) > 1:
                problem = problem or "several images share this id"
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

    def _add_image(self, key: str, images: list[tuple[int, Any]], file: int, entry: Any) -> None:
        """Add an entry to those of an id, unless another file says the same of the image."""
        first, known = images[0] if images else (file, entry)
        if file == first or entry[3] or known[3]:
            images.append((file, entry))
            return
        if entry[0] != known[0]:
            raise self._contradiction(f"image {key}", "file_name", file, first)
        sides = [*zip(known[1:3], entry[1:3], strict=True)]
        if any(None not in pair and pair[0] != pair[1] for pair in sides):
            raise self._contradiction(f"image {key}", "size", file, first)
        images[0] = first, (known[0], *(b if a is None else a for a, b in sides), *known[3:])

    def _one_object(
        self, number: int, entry: FoundObject, other: FoundObject, files: Sequence[int]
    ) -> FoundObject:
        """Return an object with all that two files say; a SourceError if they contradict."""
        *_, first, file = files
        pairs: dict[str, tuple[Any, Any]] = {
            "category": (entry.category, other.category),
            "content": (entry.problem, other.problem),
            "bbox": ([*entry.box], [*other.box]),
        }
        for name in entry.more.keys() & other.more.keys():
            pairs[name] = entry.more[name], other.more[name]
        if outlines := pairs.get("segmentation"):
            pairs["segmentation"] = json.loads(outlines[0]), json.loads(outlines[1])
        if file in files[:-1]:
            path = self._files[file].path
            what = f"annotation {number} occurs twice here and again in another file"
            raise SourceError(what, path=path)
        if differing := [name for name, (a, b) in pairs.items() if a != b]:
            raise self._contradiction(f"annotation {number}", differing[0], file, first)
        self._merged += len(files) == 2
        return replace(entry, more={**entry.more, **other.more})

    def _contradiction(self, what: str, member: str, file: int, other: int) -> SourceError:
        """Return the error for two files of a split that describe something differently."""
        return SourceError(
            f"{printable(what)}: its {member} differs from the one in {self._files[other].path}",
            path=self._files[file].path,
            hint="use unique ids for the images and annotations of a split, or write the files one "
            "by one",
        )

    def _compare_categories(self) -> None:
        """Raise a `SourceError` if files have different names for the id of a category."""
        known = dict[str, tuple[int, str]]()
        for file, names in self._categories.items():
            for key, name in names.items() if file in self._files else ():
                first, other = known.setdefault(key, (file, name))
                if name != other:
                    raise SourceError(
                        f"category {printable(key)} is '{printable(name)}', but "
                        f"'{printable(other)}' in {self._files[first].path}",
                        path=self._files[file].path,
                        hint="use the same id for a category in all files",
                    )

    def _object(self, file: int, told: list[Any], some: tuple[Any, ...]) -> FoundObject:
        what, number, category, box, more, size, problem = some
        name = self._categories[file].get(category)
        if problem is None and name is None:
            problem = f"unknown category_id {printable(str(category))}"
        if problem is None and told and size and None not in told[0][1:3] and size != told[0][1:3]:
            problem = f"mask size {size[0]} x {size[1]} differs from the image size"
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
            self.notices.append(f"categories merged with others of the same name: {clashes:,}")
        numbers = number_classes(found, self._places[0])
        ids = [int(key) if key.isascii() and key.isdecimal() else 0 for key in found.values()]
        if all(0 < one < 2**31 for one in ids) and len({*ids}) == len(ids):
            return dict(sorted(zip(found, ids, strict=True), key=itemgetter(1)))
        self.notices.append("category ids don't fit a label map, and are renumbered 1, 2, ...")
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


def _shared(ids: Sequence["array[int]"]) -> dict[int, int]:
    """Return the ids that several files have, and how many have each."""
    import numpy

    if len(ids) < 2:
        return {}
    each = numpy.concatenate([numpy.unique(numpy.frombuffer(one, "q")) for one in ids])
    found, counts = numpy.unique(each, return_counts=True)
    return dict(zip(found[counts > 1].tolist(), counts[counts > 1].tolist(), strict=True))


def _folder(name: str) -> str:
    """Return the folder of images that COCO's own files have theirs in."""
    return name.removesuffix(".json").partition("_")[2]


def _image_row(file: int, at: int, value: Mapping[str, Any]) -> Any:
    key, name = _key(value.get("id")), value.get("file_name", value.get("coco_url"))
    where = f"images[{at}]" if key is None else f"image {printable(key)}"
    problem = "id is not a number or a short string" if key is None else None
    if not isinstance(name, str) or not 0 < len(name) <= MAX_PATH_LENGTH:
        name, problem = where, "no file_name"
    sides = []
    for side in (value.get("width"), value.get("height")):
        if not (side is None or (is_number(side) and side == int(side))):
            problem = "width and height are not whole numbers"
        sides.append(None if side is None or problem else int(side))
    told = (name, *sides, problem, where)
    size, key = (-1, f"{file} {at}") if key is None else (len(key), key)
    return size, key, False, file, at, told


def _take_category(told: dict[str, str], value: Mapping[str, Any], path: Path) -> str:
    key, name = _key(value.get("id")), value.get("name")
    if key is None or not isinstance(name, str):
        raise SourceError("a category has no id or name", path=path)
    name = name.strip()
    if unfit := label_problem(name):
        raise SourceError(f"category name {name[:TEXT_SHOWN]!r} {unfit}", path=path)
    if told.setdefault(key, name) != name:
        found = f"{printable(told[key])!r} and {printable(name)!r}"
        raise SourceError(f"two categories share the id {printable(key)}", path=path, found=found)
    return name


def _box(box: Any, polygons: Any) -> Sequence[object]:
    if box is None and polygons:
        x, y = ([v for line in polygons for v in line[at::2]] for at in (0, 1))
        return min(x), min(y), max(x), max(y)
    if box is None:
        raise ValueError("no bbox")
    if not isinstance(box, list) or len(box) != 4 or not all(map(is_number, box)):
        raise ValueError("bbox is not four numbers")
    x, y, width, height = box
    return x, y, x + width, y + height


def _take_more(value: Mapping[str, Any], more: dict[str, object]) -> None:
    """Take what else is told of an object."""
    if (area := value.get("area")) is not None:
        if not is_number(area) or area < 0:
            raise ValueError("area is not a positive number")
        more["area"] = float(area)
    if (crowd := value.get("iscrowd")) is not None:
        if crowd not in (0, 1):
            raise ValueError("iscrowd is not 0 or 1")
        more["crowd"] = bool(crowd)
    if points := value.get("keypoints"):
        if (
            not isinstance(points, list)
            or len(points) % 3
            or len(points) > 3 * MAX_KEYPOINTS
            or not all(map(is_number, points))
            or not {*points[2::3]} <= {0, 1, 2}
        ):
            raise ValueError("keypoints are not (x, y, visibility) with a visibility of 0, 1 or 2")
        more["keypoints"] = tuple(map(float, points))
