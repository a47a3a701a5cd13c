"""COCO's annotations: instances and key points, in files of any size."""

import json
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice, pairwise
from operator import itemgetter
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec
import numpy as np

from tfrtool.errors import SourceError, human_count, printable, some_of
from tfrtool.examples.objects.annotation import Skeleton
from tfrtool.examples.objects.record_features import Masks
from tfrtool.images.masks import outline_points, run_lengths
from tfrtool.sources.annotations.annotation_reader import (
    LEADS_OUT,
    AnnotationFolder,
    AnnotationReader,
    Box,
    ParsedImage,
    ParsedObject,
    check_splits,
    is_number,
    number_classes,
    split_in_name,
)
from tfrtool.sources.annotations.json_elements import JsonFile, Members, parse_members
from tfrtool.sources.items import LeftOut, label_problem
from tfrtool.sources.tables.table_columns import TEXT_SHOWN
from tfrtool.storage.limits import (
    MAX_IMAGE_OBJECTS,
    MAX_KEYPOINTS,
    MAX_OUTLINE_POINTS,
    MAX_PATH_LENGTH,
)

_WRITTEN = {
    "images": {"id", "file_name", "width", "height"},
    "annotations": {"id", "image_id", "category_id", "bbox", "segmentation", "area", "iscrowd"}
    | {"keypoints", "num_keypoints"},
    "categories": {"id", "name", "keypoints", "skeleton"},
}
_LONGEST_ID = 64
_SHOWN = 10
_UNSUPPORTED = {"segments_info": "panoptic segments", "caption": "captions"}
_ROBOFLOW = "_annotations.coco.json"
_EXPECTED = "COCO instances or keypoints"
_NO_ID = -1
_CHUNK = 1024  # images whose rows are taken from the columns at once
_NULL = msgspec.Raw(b"null")
_NO_BOX = (0.0, 0.0, 0.0, 0.0)

_Float = Annotated[float, msgspec.Meta(gt=-1e9, lt=1e9)]
_Number = Annotated[int, msgspec.Meta(gt=-(10**9), lt=10**9)] | _Float
_Keypoints = Annotated[list[_Float], msgspec.Meta(max_length=3 * MAX_KEYPOINTS)]


class _Annotation(msgspec.Struct, gc=False):
    """An object in JSON."""

    category_id: object = None
    bbox: tuple[_Float, _Float, _Float, _Float] | None = None
    segmentation: msgspec.Raw = _NULL
    area: Annotated[float, msgspec.Meta(ge=0, lt=1e9)] | None = None
    iscrowd: object = None
    keypoints: _Keypoints | None = None


_PROBLEMS = {
    "bbox": "bbox is not four numbers",
    "area": "area is not a positive number",
    "iscrowd": "iscrowd is not 0 or 1",
    "keypoints": "keypoints are not (x, y, visibility) with a visibility of 0, 1 or 2",
}
_ANYTHING, _ANNOTATION = msgspec.json.Decoder(object), msgspec.json.Decoder(_Annotation)
_POLYGONS, _POLYGON = msgspec.json.Decoder(list[list[_Number]]), msgspec.json.Decoder(list[_Number])


_Row = tuple[int, int, int, int, int]
"""An element: the numbers of its file and in its list, its offset there, its length and its id."""


_WIDTH = 6


class _Elements:
    """The images or the annotations of all files: to which image each belongs, and where it is."""

    def __init__(self) -> None:
        self.table = array("q")

    def columns(self) -> Any:
        """Return the numbers of images, and then the fields of rows."""
        return np.frombuffer(self.table, np.int64).reshape(-1, _WIDTH).T

    def by_rank(self, ranks: Any) -> Iterator[list[_Row]]:
        """Yield the rows of each image, by the rank that its number has; in the order of files."""
        table = self.columns()
        ranked = ranks[table[0]]
        order = np.argsort(ranked, kind="stable")
        ends = np.searchsorted(ranked[order], np.arange(len(ranks) + 1))
        for start in range(0, len(ranks), _CHUNK):
            edges = ends[start : start + _CHUNK + 1].tolist()
            part = order[edges[0] : edges[-1]]
            rows = [*map(tuple, table[1:, part].T.tolist())]
            for first, end in pairwise(edges):
                yield rows[first - edges[0] : end - edges[0]]


@dataclass(eq=False)
class _CocoFile:
    """A file of annotations."""

    path: Path
    key: str = ""  # its path in the folder of such files
    folder: str = ""  # below "images/", where its images may be
    split: str | None = None
    required: bool = True  # whether it must hold instances or key points
    categories: dict[str, str] = field(default_factory=dict)  # names by ids
    views: dict[str, memoryview] = field(default_factory=dict)  # texts of its lists
    group: int = 0  # the number of its split


class _ImageEntry(NamedTuple):
    """An image as one file has it."""

    file: int
    name: str
    width: int | None
    height: int | None
    problem: str | None
    where: str


class _OtherKindError(Exception):
    """A file holds something else; the text says what."""


class CocoReader(AnnotationReader):
    """Reads files of COCO's instances or key points, and folders of such files.

    Files are read twice: first for the ids of images, which elements are then sorted by, and then
    image by image. Files of one split are merged by the ids of images and of objects, which must
    not contradict each other.
    """

    def __init__(self, places: Sequence[Path], scratch: Path, masks: Masks) -> None:
        """Take the paths of files or folders, and what becomes of outlines."""
        super().__init__()
        self._places, self._scratch, self._masks = places, scratch, masks
        self._files = list[_CocoFile]()
        self._numbers = dict[tuple[int, int, str], int]()  # of images, by split and id
        self._image_by_text = dict[tuple[int, bytes], int]()  # the same, by the id in JSON
        self._images, self._objects = _Elements(), _Elements()
        self._shared = frozenset[tuple[int, int]]()  # images and ids that several files have
        self._repeated = frozenset[tuple[int, int]]()  # files and ids that several objects have
        self._merged = 0  # objects
        self._unwritten: dict[str, set[str]] = {}
        self._left = Counter[str]()  # what of objects is not written

    def images(self) -> Iterator[ParsedImage | LeftOut]:
        """Yield all images, also those with problems, and each object without an image."""
        splits = dict[str | None, int]()
        for file in self._listed():
            try:
                file.group = splits.setdefault(file.split, len(splits))
                self._scan(file)
                self._files.append(file)
            except _OtherKindError as error:
                if file.required:
                    raise SourceError(str(error), path=file.path, expected=_EXPECTED) from error
                self.ignored.add(LeftOut(key=file.key, reason=str(error)))
        if not self._files:
            what = "no annotation files"
            raise SourceError(what, path=self._places[0], expected=_EXPECTED)
        check_splits({file.path: file.split for file in self._files})
        self._compare_categories()
        self._compare_ids()
        for member, left in self._unwritten.items():
            if left:
                self.notices.append(f"fields of {member} not written: {', '.join(sorted(left))}")
        yield from self._by_image()
        for what, count in self._left.items():
            self.notices.append(f"{what} not written: {human_count(count, 'object')}")
        if self._merged:
            merged = human_count(self._merged, "object")
            self.notices.append(f"merged from several files by id: {merged}")

    def classes(self) -> Mapping[str, int]:
        """Return, after the images, the classes: for each name its number in a label map, > 0."""
        found: dict[str, str] = {}
        clashes = 0
        for file in self._files:
            for key, name in file.categories.items():
                clashes += found.setdefault(name, key) != key
        if clashes:
            self.notices.append(f"categories merged with others of the same name: {clashes:,}")
        numbers = number_classes(found, self._places[0])
        ids = [int(key) if key.isascii() and key.isdecimal() else 0 for key in found.values()]
        if all(0 < number < 2**31 for number in ids) and len({*ids}) == len(ids):
            return dict(sorted(zip(found, ids, strict=True), key=itemgetter(1)))
        self.notices.append("category ids don't fit a label map, and are renumbered 1, 2, ...")
        return numbers

    def _listed(self) -> Iterator[_CocoFile]:
        """Yield the files at all places; a single file has no split."""
        for place in self._places:
            if not place.is_dir():
                folder = place.parent.name if place.name == _ROBOFLOW else _folder(place.name)
                split = split_in_name(folder if place.name == _ROBOFLOW else place.name)
                alone = len(self._places) == 1
                yield _CocoFile(place) if alone else _CocoFile(place, place.name, folder, split)
                continue
            inside = AnnotationFolder(place, None)
            for key in inside.keys():  # noqa: SIM118 - not a mapping
                name, _, last = key.rpartition("/")
                if not key.endswith(".json") or (name and last != _ROBOFLOW):
                    continue
                if inside.leads_out(key):
                    raise SourceError(LEADS_OUT, path=place / key)
                split = split_in_name(name or last)
                yield _CocoFile(place / key, key, name or _folder(last), split, required=False)

    # First pass: which images there are, and which elements belong to each.

    def _scan(self, file: _CocoFile) -> None:
        content = JsonFile(file.path, self._scratch)
        if "images" not in content.members:
            raise _OtherKindError("no 'images' list")
        if content.members.get("annotations", _NULL) != _NULL:
            for _, _, members in islice(content.elements("annotations"), 1):
                for name in members.keys() & _UNSUPPORTED.keys():
                    if not members.keys() & {"bbox", "segmentation"}:
                        raise _OtherKindError(f"contains {_UNSUPPORTED[name]}")
        self._leave("the file", [name for name in content.members if name not in _WRITTEN])
        for name in filter(_WRITTEN.__contains__, content.members):
            file.views[name] = memoryview(content.members[name])
            if content.members[name] == _NULL:
                continue
            for number, (offset, text, members) in enumerate(content.elements(name)):
                if not members.keys() <= _WRITTEN[name]:
                    self._leave(name, [key for key in members if key not in _WRITTEN[name]])
                if name == "categories":
                    self._add_category(file, text)
                else:
                    self._add_element(file, name, number, (offset, len(text)), members)

    def _add_element(
        self, file: _CocoFile, name: str, number: int, span: tuple[int, int], members: Members
    ) -> None:
        rows, reference, number_id = self._images, "id", _NO_ID
        if name == "annotations":
            rows, reference, value = self._objects, "image_id", _value(members, "id")
            if type(value) is int and 0 <= value < 2**63:
                number_id = value
            elif value is not None:
                self._left["ids that are not numbers"] += 1
        text = file.group, bytes(members.get(reference, _NULL))
        if (image := self._image_by_text.get(text)) is None:
            image = self._image_number(file, name, number, _key(_value(members, reference)), text)
        rows.table.extend((image, len(self._files), number, *span, number_id))

    def _image_number(
        self, file: _CocoFile, name: str, number: int, key: str | None, text: tuple[int, bytes]
    ) -> int:
        """Return the number of an image by its id; without one, it is an image of its own."""
        image = file.group, len(key or ""), key or ""
        if key is None and name == "images":
            image = file.group, -1, f"{len(self._files)} {number}"
        found = self._numbers.setdefault(image, len(self._numbers))
        if key is not None:
            self._image_by_text[text] = found
        return found

    def _add_category(self, file: _CocoFile, text: bytes) -> None:
        try:
            value: Any = _ANYTHING.decode(text)
        except msgspec.DecodeError:
            value = {}
        key, name = _key(value.get("id")), value.get("name")
        if key is None or not isinstance(name, str):
            raise SourceError("a category has no id or name", path=file.path)
        name = name.strip()
        if unfit := label_problem(name):
            raise SourceError(f"category name {name[:TEXT_SHOWN]!r} {unfit}", path=file.path)
        if (known := file.categories.setdefault(key, name)) != name:
            found = f"{printable(known)!r} and {printable(name)!r}"
            what = f"two categories share the id {printable(key)}"
            raise SourceError(what, path=file.path, found=found)
        if not value.get("keypoints"):
            return
        skeleton = Skeleton.parse(value)
        if skeleton is None:
            self._leave("categories", ("keypoints", "skeleton"))
        elif self.skeletons.setdefault(name, skeleton) != skeleton:
            what = f"category '{printable(name)}' has two lists of keypoints"
            raise SourceError(what, path=file.path, expected="the same keypoints in every file")

    def _leave(self, member: str, keys: Iterable[str]) -> None:
        known = self._unwritten.setdefault(member, set())
        if len(known) < _SHOWN:
            known.update(printable(key[:40]) for key in islice(keys, _SHOWN))

    def _compare_categories(self) -> None:
        """Raise a `SourceError` if files have different names for the id of a category."""
        known = dict[str, tuple[_CocoFile, str]]()
        for file in self._files:
            for key, name in file.categories.items():
                first, other = known.setdefault(key, (file, name))
                if name != other:
                    raise SourceError(
                        f"category {printable(key)} is '{printable(name)}', but "
                        f"'{printable(other)}' in {first.path}",
                        path=file.path,
                        hint="use the same id for a category in all files",
                    )

    def _compare_ids(self) -> None:
        """Find the ids of objects that repeat in a file, and those that files of a split share."""
        images, files, _, _, _, ids = self._objects.columns()
        groups = np.array([file.group for file in self._files])[files]
        known = np.flatnonzero(ids != _NO_ID)
        order = known[np.lexsort((files[known], ids[known], groups[known]))]
        same = (np.diff(ids[order]) == 0) & (np.diff(groups[order]) == 0)
        first, second = order[:-1][same], order[1:][same]
        inside = files[first] == files[second]
        repeated = zip(files[first[inside]].tolist(), ids[first[inside]].tolist(), strict=True)
        self._repeated = frozenset(repeated)
        shared = set[tuple[int, int]]()
        for a, b in zip(first[~inside].tolist(), second[~inside].tolist(), strict=True):
            what, number = f"annotation {ids[a]}", int(files[b])
            if images[a] != images[b]:
                raise self._contradiction(what, "image_id", number, int(files[a]))
            if twice := {int(files[a]), number} & {f for f, i in self._repeated if i == ids[a]}:
                what += " occurs twice here and again in another file"
                raise SourceError(what, path=self._files[min(twice)].path)
            shared.add((int(images[a]), int(ids[a])))
        self._shared = frozenset(shared)
        for number, file in enumerate(self._files):
            if ids_here := [str(id_) for at, id_ in sorted(self._repeated) if at == number]:
                what = f"ids not written, shared by several objects of {printable(file.path.name)}"
                self.notices.append(f"{what}: {some_of(ids_here, _SHOWN)}")

    # Second pass: image by image.

    def _by_image(self) -> Iterator[ParsedImage | LeftOut]:
        """Yield each image with its objects, in the order of ids."""
        keys = sorted(self._numbers)
        ranks = np.empty(len(keys), np.int64)
        ranks[[self._numbers[key] for key in keys]] = np.arange(len(keys))
        images, objects = (rows.by_rank(ranks) for rows in (self._images, self._objects))
        for image in keys:
            yield from self._image(image, next(images), next(objects))

    def _text(self, name: str, file: int, offset: int, length: int) -> bytes:
        return bytes(self._files[file].views[name][offset : offset + length])

    def _image(
        self, image: tuple[int, int, str], images: Sequence[_Row], rows: Sequence[_Row]
    ) -> Iterator[ParsedImage | LeftOut]:
        """Yield the images that have an id, of which there should be one, with its objects."""
        key = image[2]
        entries = list[_ImageEntry]()
        for file, number, offset, length, _ in images:
            text = self._text("images", file, offset, length)
            self._add_entry(key, entries, _parse_image(file, number, text))
        objects, places = list[ParsedObject](), dict[int, tuple[int, list[int]]]()
        image_number = self._numbers[image]
        for file, number, offset, length, id_ in rows:
            text = self._text("annotations", file, offset, length)
            one = self._object(file, number, id_, text)
            if id_ in places:
                at, files = places[id_]
                objects[at] = self._merge(id_, objects[at], one, files[-1], file)
                self._merged += len(files) == 1
                files.append(file)
            elif not entries or len(objects) == MAX_IMAGE_OBJECTS:
                many = f"image has more than {MAX_IMAGE_OBJECTS:,} objects"
                why = one.problem or (many if entries else "no image with this image_id")
                yield LeftOut(key=printable(f"image {key}"), reason=f"{one.where}: {why}")
            else:
                if (image_number, id_) in self._shared:
                    places[id_] = len(objects), [file]
                objects.append(one)
        several = len({entry.name for entry in entries}) > 1
        for entry in entries:
            folder = self._files[entry.file].folder
            yield ParsedImage(
                name=entry.name,
                where=entry.where,
                other_name=f"images/{folder}/{entry.name}" if folder else "",
                width=entry.width,
                height=entry.height,
                objects=objects,
                source_id=key,
                split=self._files[entry.file].split,
                problem="several images share this id" if several else entry.problem,
            )
            objects = []

    def _add_entry(self, key: str, entries: list[_ImageEntry], entry: _ImageEntry) -> None:
        """Add an entry to those of an id, unless another file has the same image."""
        first = entries[0] if entries else entry
        if entry.file == first.file or entry.problem or first.problem:
            entries.append(entry)
            return
        if entry.name != first.name:
            raise self._contradiction(f"image {key}", "file_name", entry.file, first.file)
        sides = [(first.width, entry.width), (first.height, entry.height)]
        if any(None not in pair and pair[0] != pair[1] for pair in sides):
            raise self._contradiction(f"image {key}", "size", entry.file, first.file)
        width, height = (b if a is None else a for a, b in sides)
        entries[0] = first._replace(width=width, height=height)

    def _object(self, file: int, number: int, id_: int, text: bytes) -> ParsedObject:
        """Return an object with what is valid of it, or with what is wrong."""
        where = f"annotations[{number}]" if id_ == _NO_ID else f"annotation {id_}"
        found, problem = _parse_annotation(text)
        fields: dict[str, object] = {}
        box, size = _NO_BOX, None
        try:
            if problem is None:
                polygons, size = self._outline(found.segmentation, fields)
                box = _box(found.bbox, polygons)
                _add_fields(found, fields)
        except ValueError as error:
            problem = str(error)
        key = _key(found.category_id)
        name = None if key is None else self._files[file].categories.get(key)
        if name is None and problem is None:
            problem = f"unknown category_id {printable(str(key))}"
        if id_ != _NO_ID and (not self._repeated or (file, id_) not in self._repeated):
            fields["id"] = id_
        return ParsedObject(
            where=where,
            category=name or "",
            box=box,
            fields=fields,
            mask_size=size,
            problem=problem,
        )

    def _outline(
        self, raw: msgspec.Raw, fields: dict[str, object]
    ) -> tuple[Sequence[Sequence[float]], tuple[int, int] | None]:
        """Take an outline; return its polygons, or the width and height of its mask."""
        text = bytes(raw)
        if not text.startswith(b"["):
            return (), self._take_mask(text, fields)
        polygons, whole = [[0.0]], True
        try:
            polygons = _POLYGONS.decode(text)
        except msgspec.DecodeError:
            try:
                polygons, whole = [_POLYGON.decode(text)], False
            except msgspec.DecodeError as error:
                what = "segmentation is not a list of polygons, or has numbers out of range"
                raise ValueError(what) from error
        lines = [line for line in polygons if len(line) >= 6 and len(line) % 2 == 0]
        if len(lines) < len(polygons):
            self._left["outlines of fewer than three points"] += 1
            whole = False
        if self._masks is Masks.PNG and sum(map(outline_points, lines)) > MAX_OUTLINE_POINTS:
            raise ValueError(f"outline has more than {MAX_OUTLINE_POINTS:,} points")
        if lines and self._masks is not Masks.NONE:
            same = text.decode() if whole else json.dumps(lines, separators=(",", ":"))
            fields["segmentation"] = same
        return lines, None

    def _take_mask(self, text: bytes, fields: dict[str, object]) -> tuple[int, int] | None:
        """Take a mask of run lengths, if there is one; return its width and height."""
        try:
            mask: Any = _ANYTHING.decode(text)
        except msgspec.DecodeError as error:
            raise ValueError("mask has no run lengths") from error
        if not mask:
            return None
        if not isinstance(mask, dict):
            raise ValueError("segmentation is neither polygons nor run lengths")
        _, width, height = run_lengths(mask)
        if self._masks is not Masks.NONE:
            mask = {"size": mask["size"], "counts": mask["counts"]}
            fields["segmentation"] = json.dumps(mask, separators=(",", ":"))
        return width, height

    def _merge(
        self, number: int, one: ParsedObject, other: ParsedObject, first: int, file: int
    ) -> ParsedObject:
        """Return an object with the fields of two files; a SourceError if they differ."""
        pairs: dict[str, tuple[Any, Any]] = {
            "category": (one.category, other.category),
            "content": (one.problem, other.problem),
            "bbox": ([*one.box], [*other.box]),
        }
        for name in one.fields.keys() & other.fields.keys():
            pairs[name] = one.fields[name], other.fields[name]
        if outlines := pairs.get("segmentation"):
            pairs["segmentation"] = json.loads(outlines[0]), json.loads(outlines[1])
        if differing := [name for name, (a, b) in pairs.items() if a != b]:
            raise self._contradiction(f"annotation {number}", differing[0], file, first)
        size = one.mask_size or other.mask_size
        return msgspec.structs.replace(one, fields={**one.fields, **other.fields}, mask_size=size)

    def _contradiction(self, what: str, member: str, file: int, other: int) -> SourceError:
        """Return the error for two files of a split that describe something differently."""
        return SourceError(
            f"{printable(what)}: its {member} differs from the one in {self._files[other].path}",
            path=self._files[file].path,
            hint="use unique ids for the images and annotations of a split, or write the files one "
            "by one",
        )


def _folder(name: str) -> str:
    """Return the folder of images that COCO's own files have theirs in."""
    return name.removesuffix(".json").partition("_")[2]


def _value(members: Members, name: str) -> Any:
    """Return the value of a member; None where it is missing, or no JSON that is read."""
    try:
        return _ANYTHING.decode(members[name]) if name in members else None
    except (msgspec.DecodeError, RecursionError):
        return None


def _key(value: object) -> str | None:
    """Return the id of an image or a category, a number or a short text; None for others."""
    if type(value) is float and value.is_integer():
        value = int(value)
    if type(value) is not int and not isinstance(value, str):
        return None
    return key if len(key := str(value)) <= _LONGEST_ID and key.isprintable() else None


def _parse_image(file: int, number: int, text: bytes) -> _ImageEntry:
    members = parse_members(text)
    key = _key(_value(members, "id"))
    name = _value(members, "file_name" if "file_name" in members else "coco_url")
    where = f"images[{number}]" if key is None else f"image {printable(key)}"
    problem = "id is not a number or a short string" if key is None else None
    if not isinstance(name, str) or not 0 < len(name) <= MAX_PATH_LENGTH:
        name, problem = where, "no file_name"
    sides: dict[str, int | None] = {}
    for side in ("width", "height"):
        value = _value(members, side)
        is_whole = is_number(value) and value == int(value)
        if not is_whole and members.get(side, _NULL) != _NULL:
            problem = "width and height are not whole numbers"
        sides[side] = int(value) if is_whole and not problem else None
    return _ImageEntry(file, name, **sides, problem=problem, where=where)


def _parse_annotation(text: bytes) -> tuple[_Annotation, str | None]:
    """Return an object in JSON, and what is wrong with it."""
    try:
        return _ANNOTATION.decode(text), None
    except msgspec.DecodeError:
        members = parse_members(text)
    for name, problem in _PROBLEMS.items():
        one = msgspec.json.encode({name: members.get(name, _NULL)})
        try:
            _ANNOTATION.decode(one)
        except msgspec.DecodeError:
            return _Annotation(_value(members, "category_id")), problem
    return _Annotation(), None


def _box(box: Box | None, polygons: Sequence[Sequence[float]]) -> Box:
    """Return a box, or else that around polygons; `ValueError` if there is none."""
    if box is not None:
        x, y, width, height = box
        return x, y, x + width, y + height
    if not polygons:
        raise ValueError("no bbox")
    xs, ys = ([v for line in polygons for v in line[at::2]] for at in (0, 1))
    return float(min(xs)), float(min(ys)), float(max(xs)), float(max(ys))


def _add_fields(found: _Annotation, fields: dict[str, object]) -> None:
    """Add the further fields of an object; `ValueError` if one is not valid."""
    if found.area is not None:
        fields["area"] = found.area
    if found.iscrowd is not None:
        if found.iscrowd not in (0, 1):
            raise ValueError(_PROBLEMS["iscrowd"])
        fields["crowd"] = bool(found.iscrowd)
    if points := found.keypoints:
        if len(points) % 3 or not {*points[2::3]} <= {0, 1, 2}:
            raise ValueError(_PROBLEMS["keypoints"])
        fields["keypoints"] = tuple(points)
