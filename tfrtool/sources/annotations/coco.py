"""COCO's annotations: instances and key points, in files of any size."""

import os
import tempfile
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import accumulate, groupby, islice
from operator import itemgetter
from pathlib import Path
from typing import IO, Annotated, Any

import msgspec
import numpy as np

from tfrtool.errors import SourceError, WriteError, human_count, os_errors_as, printable, some_of
from tfrtool.examples.objects.annotation import Skeleton
from tfrtool.examples.objects.record_features import Masks
from tfrtool.images.masks import outline_points, run_lengths
from tfrtool.sources.annotations.annotation_reader import (
    NO_BOX,
    AnnotationFolder,
    AnnotationReader,
    ParsedImage,
    ParsedObject,
    check_splits,
    number_classes,
    split_in_name,
)
from tfrtool.sources.formats.json_lists import JsonFile, JsonWindow, without_nan
from tfrtool.sources.items import LeftOut, label_problem
from tfrtool.sources.tables.table_columns import TEXT_SHOWN
from tfrtool.storage.limits import (
    MAX_IMAGE_OBJECTS,
    MAX_KEYPOINTS,
    MAX_OUTLINE_POINTS,
    MAX_PATH_LENGTH,
)
from tfrtool.storage.opening import open_regular
from tfrtool.storage.remote_path import AnyPath

_WRITTEN = {
    "images": {"id", "file_name", "width", "height"},
    "annotations": {"id", "image_id", "category_id", "bbox", "segmentation", "area", "iscrowd"}
    | {"keypoints", "num_keypoints"},
    "categories": {"id", "name", "keypoints", "skeleton"},
}
_LONGEST_ID = 64
_SHOWN = 10
_SAMPLE = 100
"""Elements of each window that are looked at for fields that are not written."""

_UNSUPPORTED = {"segments_info": "panoptic segments", "caption": "captions"}
_ROBOFLOW = "_annotations.coco.json"
_EXPECTED = "COCO instances or keypoints"
_NO_ID = -1
_BUCKET = 12
"""Images are taken from the scratch file 4,096 at a time, with 16 MB of COCO's annotations."""

_MOST_BUFFERED = 2**27
_NULL = msgspec.Raw(b"null")

_Float = Annotated[float, msgspec.Meta(gt=-1e9, lt=1e9)]
_Number = Annotated[int, msgspec.Meta(gt=-(10**9), lt=10**9)] | _Float
_Id = int | float | str | None


class _Ids(msgspec.Struct, gc=False):
    """The ids of an element, as they are written."""

    id: msgspec.Raw = _NULL
    image_id: msgspec.Raw = _NULL


class _Image(msgspec.Struct, gc=False):
    file_name: Any = None
    coco_url: Any = None
    width: Any = None
    height: Any = None


class _Annotation(msgspec.Struct, gc=False):
    category_id: _Id = None
    bbox: tuple[_Float, _Float, _Float, _Float] | None = None
    segmentation: msgspec.Raw = _NULL
    area: Annotated[float, msgspec.Meta(ge=0, lt=1e9)] | None = None
    iscrowd: Annotated[float, msgspec.Meta(ge=0, le=1)] | bool | None = None
    keypoints: Annotated[list[_Float], msgspec.Meta(max_length=3 * MAX_KEYPOINTS)] | None = None


_PROBLEMS = {
    "bbox": "bbox is not four numbers",
    "area": "area is not a positive number",
    "iscrowd": "iscrowd is not 0 or 1",
    "keypoints": "keypoints are not (x, y, visibility) with a visibility of 0, 1 or 2",
}
_ANYTHING = msgspec.json.Decoder()
_MEMBERS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ZEROS, _TEN_DIGITS = bytes.maketrans(b"123456789", b"0" * 9), b"0" * 10
_ONE_POLYGON = frozenset(b"[[%b]]" % (b"," * (2 * points - 1)) for points in range(3, 256))
"""What is between the numbers of an outline in one part."""

_SIDES_AND_NAMES = _Image.__struct_fields__
_IMAGE, _ANNOTATION = msgspec.json.Decoder(_Image), msgspec.json.Decoder(_Annotation)
_ANNOTATIONS = msgspec.json.Decoder(list[_Annotation])
_POLYGONS, _POLYGON = msgspec.json.Decoder(list[list[_Number]]), msgspec.json.Decoder(list[_Number])
_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

_ROW = np.dtype(
    {
        "names": ["number", "start", "id", "file", "at", "size", "is_image"],
        "formats": ["i8", "i8", "i8", "i4", "i4", "i4", "?"],
    }
)
_Row = tuple[int, int, int, int, int, int, bool]
"""An element: the number of its image, where it is in its bucket, its id, the numbers of its file
and in its list, its length, and whether it is the image itself."""


class _Elements:
    """The texts of images and annotations in a scratch file, those of near images in a bucket."""

    def __init__(self, texts: IO[bytes], scratch: Path) -> None:
        self._texts, self._failure = texts, (scratch, "temporary files can't be written")
        self._rows, self._end = bytearray(), 0
        self._segments = defaultdict[int, list[tuple[int, int]]](list)  # offsets and sizes
        self._sizes = Counter[int]()  # of buckets

    def add(
        self, numbers: Sequence[int], file: int, part: JsonWindow, ids: Sequence[int] | None
    ) -> None:
        """Add the annotations of a window, which have ids, or its images."""
        rows = np.zeros(len(numbers), _ROW)
        rows["number"], rows["file"], rows["size"] = numbers, file, part.sizes
        rows["at"], rows["start"] = np.arange(len(rows)) + part.first, part.starts - part.at
        rows["id"], rows["is_image"] = _NO_ID if ids is None else ids, ids is None
        rows = rows[np.argsort(rows["number"] >> _BUCKET, kind="stable")]
        stops = (rows["start"] + rows["size"]).tolist()
        spans = zip(rows["start"].tolist(), stops, strict=True)
        with os_errors_as(WriteError, *self._failure):
            self._texts.write(b"".join([part.text[start:stop] for start, stop in spans]))
        buckets, ends = rows["number"] >> _BUCKET, np.cumsum(rows["size"], dtype=np.int64)
        rows["start"] = ends - rows["size"]
        for some in np.split(np.arange(len(rows)), np.flatnonzero(np.diff(buckets)) + 1):
            if len(some):
                bucket, start, end = (
                    int(n) for n in (buckets[some[0]], rows["start"][some[0]], ends[some[-1]])
                )
                rows["start"][some] += self._sizes[bucket] - start
                self._segments[bucket].append((self._end + start, end - start))
                self._sizes[bucket] += end - start
        self._end += int(ends[-1]) if len(rows) else 0
        self._rows += rows.tobytes()

    def forget(self, file: int) -> None:
        """Remove the elements of the last file."""
        self._rows = bytearray(self.rows()[self.rows()["file"] != file].tobytes())

    def rows(self) -> Any:
        """Return all elements as an array."""
        return np.frombuffer(self._rows, _ROW)

    def by_image(self) -> Iterator[tuple[int, list[_Row], list[bytes]]]:
        """Yield the number of each image, and its elements in the order of files, with texts."""
        self._texts.flush()
        table = self.rows()
        order = np.argsort(table["number"], kind="stable")
        ordered = table["number"][order]
        for bucket in sorted(self._segments):
            edges = np.searchsorted(ordered, np.array((bucket, bucket + 1)) << _BUCKET)
            rows: list[_Row] = table[order[slice(*edges)]].tolist()
            read = self._reader(bucket)
            for number, some in groupby(rows, itemgetter(0)):
                own = [*some]
                yield number, own, [read(row[1], row[5]) for row in own]

    def _reader(self, bucket: int) -> Callable[[int, int], bytes]:
        """Return what gives a text in a bucket, which is in memory if it isn't large."""
        file, segments = self._texts.fileno(), self._segments[bucket]
        if self._sizes[bucket] <= _MOST_BUFFERED:
            text = b"".join(os.pread(file, size, offset) for offset, size in segments)
            return lambda start, size: text[start : start + size]
        starts = [*accumulate((size for _, size in segments), initial=0)]

        def read(start: int, size: int) -> bytes:
            at = bisect_right(starts, start) - 1
            return os.pread(file, size, segments[at][0] + start - starts[at])

        return read


@dataclass(eq=False)
class _CocoFile:
    path: AnyPath
    key: str = ""  # its path in the folder of such files
    folder: str = ""  # below "images/", where its images may be
    split: str | None = None
    required: bool = True  # whether it must hold instances or key points
    group: int = 0  # the number of its split


class _OtherKindError(Exception):
    """A file holds something else; the text says what."""


class CocoReader(AnnotationReader):
    """Reads files of COCO's instances or key points, and folders of such files.

    Files are read twice: first for the ids of images, which elements are then sorted by, and then
    image by image. Files of one split are merged by the ids of images and of objects.
    """

    def __init__(self, places: Sequence[AnyPath], scratch: Path, masks: Masks) -> None:
        """Take the paths of files or folders, and what becomes of outlines."""
        super().__init__()
        self._places, self._scratch, self._masks = places, scratch, masks
        self._files = list[_CocoFile]()
        self._categories = dict[str, tuple[str, AnyPath]]()  # names by ids, and where they are from
        self._names = dict[object, str]()  # the same by ids as JSON has them
        self._ids = list[str]()  # of images, by their numbers; "" for one without
        self._numbers = list[dict[bytes, int]]()  # of images, by split and id in JSON
        self._repeated = frozenset[tuple[int, int]]()  # splits and ids that several objects have
        self._unwritten: dict[str, set[str]] = {}
        self._counts = Counter[str]()  # what of objects is not written, or merged

    def images(self) -> Iterator[ParsedImage | LeftOut]:
        """Yield all images, also those with problems, and each object without an image."""
        failure = self._scratch, "temporary files can't be written"
        with os_errors_as(WriteError, *failure):
            texts = tempfile.TemporaryFile(dir=self._scratch)  # noqa: SIM115
        with texts:
            elements = _Elements(texts, self._scratch)
            self._read_files(elements)
            for number, rows, contents in elements.by_image():
                yield from self._image(self._ids[number], rows, contents)
        for what, count in self._counts.items():
            self.notices.append(f"{what}: {human_count(count, 'object')}")

    def _read_files(self, elements: _Elements) -> None:
        """Find out which images there are, and which elements belong to each."""
        splits = dict[str | None, int]()
        for file in self._listed():
            try:
                file.group = splits.setdefault(file.split, len(splits))
                self._numbers += [{}] * (file.group == len(self._numbers))
                self._scan(file, elements)
                self._files.append(file)
            except _OtherKindError as error:
                if file.required:
                    raise SourceError(str(error), path=file.path, expected=_EXPECTED) from error
                self.ignored.add(LeftOut(key=file.key, reason=str(error)))
                elements.forget(len(self._files))
        if not self._files:
            what = "no annotation files"
            raise SourceError(what, path=self._places[0], expected=_EXPECTED)
        check_splits({file.path: file.split for file in self._files})
        self._find_repeated(elements.rows())
        for member, left in self._unwritten.items():
            if left:
                self.notices.append(f"fields of {member} not written: {', '.join(sorted(left))}")

    def classes(self) -> Mapping[str, int]:
        """Return, from the first image on, for each class its number in a label map, > 0."""
        found: dict[str, str] = {}
        for key, (name, _) in self._categories.items():
            found.setdefault(name, key)
        if clashes := len(self._categories) - len(found):
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
            for key in AnnotationFolder(place, None).files(_is_in_folder):
                name, _, last = key.rpartition("/")
                split = split_in_name(name or last)
                yield _CocoFile(place / key, key, name or _folder(last), split, required=False)

    def _scan(self, file: _CocoFile, elements: _Elements) -> None:
        names, categories = set[str](), list[dict[str, msgspec.Raw]]()
        with os_errors_as(SourceError, file.path), open_regular(file.path) as opened:
            for name, part in JsonFile(opened, file.path).parts(_WRITTEN):
                names.add(name)
                if part is None:
                    continue
                self._sample(name, part)
                if name == "categories":
                    categories += part.decode(dict[str, msgspec.Raw])
                else:
                    self._add_elements(file, part, elements)
        if "images" not in names:
            raise _OtherKindError("no 'images' list")
        self._leave("the file", names - _WRITTEN.keys())
        for one in categories:
            self._add_category(file.path, {key: _value(bytes(raw)) for key, raw in one.items()})

    def _sample(self, name: str, part: JsonWindow) -> None:
        """Look at some elements for what is not written."""
        for start, size in islice(zip(part.starts - part.at, part.sizes, strict=True), _SAMPLE):
            members = _members(part.text[start : start + size]).keys()
            for other in members & _UNSUPPORTED.keys():
                if name == "annotations" and not members & {"bbox", "segmentation"}:
                    raise _OtherKindError(f"contains {_UNSUPPORTED[other]}")
            self._leave(name, members - _WRITTEN[name])

    def _add_elements(self, file: _CocoFile, part: JsonWindow, elements: _Elements) -> None:
        """Number the images of a window, or of its annotations, and keep the texts."""
        rows, known = part.decode(_Ids), self._numbers[file.group]
        ids, numbers = None, list[Any]()
        if part.name == "images":
            numbers = [self._image_number(bytes(row.id), known, new=True) for row in rows]
        else:
            images = [bytes(row.image_id) for row in rows]
            numbers = [*map(known.get, images)]
            if None in numbers:
                numbers = [self._image_number(image, known) for image in images]
            texts = [bytes(row.id) for row in rows]
            ids = [int(text) if len(text) < 19 and text.isdigit() else _NO_ID for text in texts]
            if others := sum(
                text != b"null" for text, id_ in zip(texts, ids, strict=True) if id_ < 0
            ):
                self._counts["ids that are not numbers not written"] += others
        elements.add(numbers, len(self._files), part, ids)

    def _image_number(self, text: bytes, known: dict[bytes, int], *, new: bool = False) -> int:
        """Return the number of the image with an id in JSON; an image without one is a new one."""
        if (number := known.get(text)) is not None:
            return number
        key = _key(_value(text))
        if key is None and new:
            self._ids.append("")
            return len(self._ids) - 1
        number = known.setdefault((key or "").encode(), len(self._ids))
        if number == len(self._ids):
            self._ids.append(key or "")
        if len(text) <= _LONGEST_ID:
            known[text] = number
        return number

    def _add_category(self, path: AnyPath, value: dict[str, Any]) -> None:
        key, name = _key(value.get("id")), value.get("name")
        if key is None or not isinstance(name, str):
            raise SourceError("a category has no id or name", path=path)
        name = name.strip()
        if unfit := label_problem(name):
            raise SourceError(f"category name {name[:TEXT_SHOWN]!r} {unfit}", path=path)
        known, where = self._categories.setdefault(key, (name, path))
        if known != name:
            what = f"category {printable(key)} is '{printable(name)}', but '{printable(known)}' in "
            hint = "use the same id for a category in all files"
            raise SourceError(f"{what}{where}", path=path, hint=hint)
        self._names[value["id"]] = self._names[key] = name
        skeleton = Skeleton.parse(value)
        if skeleton is not None:
            self.skeletons.setdefault(name, skeleton)
        elif value.get("keypoints"):
            self._leave("categories", ("keypoints", "skeleton"))

    def _leave(self, member: str, keys: Iterable[str]) -> None:
        known = self._unwritten.setdefault(member, set())
        if len(known) < _SHOWN:
            known.update(printable(key[:40]) for key in islice(keys, _SHOWN))

    def _find_repeated(self, rows: Any) -> None:
        """Find the ids that several objects have, but for those of one image in several files."""
        known = rows["id"] != _NO_ID
        if len(np.unique(rows["id"][known])) == np.count_nonzero(known):
            return
        rows = rows[known]
        groups = np.array([file.group for file in self._files])[rows["file"]]
        order = np.lexsort((rows["file"], rows["number"], rows["id"], groups))
        rows, groups = rows[order], groups[order]
        first, second = rows[:-1], rows[1:]
        same = (first["id"] == second["id"]) & (groups[:-1] == groups[1:])
        same &= (first["number"] != second["number"]) | (first["file"] == second["file"])
        repeated = {*zip(groups[:-1][same].tolist(), first["id"][same].tolist(), strict=True)}
        self._repeated = frozenset(repeated)
        if repeated:
            shown = some_of([str(number) for _, number in sorted(repeated)], _SHOWN)
            self.notices.append(f"ids not written, shared by several objects: {shown}")

    def _image(
        self, key: str, rows: list[_Row], texts: list[bytes]
    ) -> Iterator[ParsedImage | LeftOut]:
        """Yield the images that have an id, normally one, with its objects."""
        entries = list[tuple[int, ParsedImage]]()
        while at := next((at for at, row in enumerate(rows, 1) if row[6]), 0):
            row = rows.pop(at - 1)
            self._add_entry(entries, row[3], _parse_image(key, row[4], texts.pop(at - 1)))
        objects = [*map(self._object, _parse_annotations(texts), rows)]
        for one in objects[MAX_IMAGE_OBJECTS * bool(entries) :]:
            many = f"image has more than {MAX_IMAGE_OBJECTS:,} objects"
            why = one.problem or (many if entries else "no image with this image_id")
            yield LeftOut(key=printable(f"image {key}"), reason=f"{one.where}: {why}")
        del objects[MAX_IMAGE_OBJECTS:]
        if len(self._files) > 1 and len({row[3] for row in rows}) > 1:
            objects = self._merged(objects)
        several = len({image.name for _, image in entries}) > 1
        for number, image in entries:
            file = self._files[number]
            yield image._replace(
                other_name=f"images/{file.folder}/{image.name}" if file.folder else "",
                objects=objects,
                split=file.split,
                problem="several images share this id" if several else image.problem,
            )
            objects = []

    def _add_entry(
        self, entries: list[tuple[int, ParsedImage]], file: int, image: ParsedImage
    ) -> None:
        """Add an image to those with its id, unless another file has the same one."""
        number, first = entries[0] if entries else (file, image)
        if file == number or image.problem or first.problem:
            entries.append((file, image))
        elif image.name == first.name:
            width, height = first.width or image.width, first.height or image.height
            entries[0] = number, first._replace(width=width, height=height)
        else:
            raise SourceError(
                f"{image.where} is {printable(image.name)}, but {printable(first.name)} in "
                f"{self._files[number].path}",
                path=self._files[file].path,
                hint="use unique ids for the images of a split, or write the files one by one",
            )

    def _object(self, parsed: tuple[_Annotation, str | None], row: _Row) -> ParsedObject:
        """Return an object with what is valid of it, or with what is wrong."""
        (found, problem), (_, _, id_, number, at, _, _) = parsed, row
        optional, (box, size, outline) = self.optional, (NO_BOX, None, "")
        points = tuple(found.keypoints or ())
        try:
            text, bbox = bytes(found.segmentation), found.bbox
            if bbox is not None and self._masks is not Masks.PNG and _are_polygons(text):
                outline = "" if self._masks is Masks.NONE else text.decode()
            else:
                polygons, outline, size = self._outline(text)
            if bbox is not None:
                x, y, width, height = bbox
                box = x, y, x + width, y + height
            elif polygons:
                xs, ys = ([v for line in polygons for v in line[at::2]] for at in (0, 1))
                box = float(min(xs)), float(min(ys)), float(max(xs)), float(max(ys))
            else:
                problem = problem or "no bbox"
        except ValueError as error:
            problem = problem or str(error)
        if found.iscrowd is not None:
            optional.add("crowd")
            if found.iscrowd not in (0, 1):
                problem = problem or _PROBLEMS["iscrowd"]
        if points:
            optional.add("keypoints")
            if len(points) % 3 or not {*points[2::3]} <= {0, 1, 2}:
                problem = problem or _PROBLEMS["keypoints"]
        if (name := self._names.get(found.category_id)) is None:
            key = _key(found.category_id)
            name = self._names.get(key)
            if name is None:
                problem = problem or f"unknown category_id {printable(str(key))}"
        if found.area is not None:
            optional.add("area")
        if outline:
            optional.add("segmentation")
        where, known = f"annotations[{at}]", None
        if id_ != _NO_ID:
            where = f"annotation {id_}"
            if not self._repeated or (self._files[number].group, id_) not in self._repeated:
                known = id_
                optional.add("id")
        fields = known, found.area, bool(found.iscrowd), False, False, "", outline, points
        return ParsedObject(where, name or "", box, fields, problem, False, size)

    def _outline(
        self, text: bytes
    ) -> tuple[Sequence[Sequence[float]], str, tuple[int, int] | None]:
        """Return the polygons of an outline, what is kept of it, and the size of its mask."""
        if not text.startswith(b"["):
            return self._mask(text)
        try:
            polygons = _POLYGONS.decode(text)
        except _ERRORS:
            try:
                polygons = [_POLYGON.decode(text)]
            except _ERRORS as error:
                what = "segmentation is not a list of polygons, or has numbers out of range"
                raise ValueError(what) from error
            text = msgspec.json.encode(polygons)
        lines = polygons
        for line in polygons:
            if len(line) < 6 or len(line) % 2:
                self._counts["outlines of fewer than three points not written"] += 1
                lines = [line for line in polygons if len(line) >= 6 and len(line) % 2 == 0]
                text = msgspec.json.encode(lines)
                break
        if self._masks is Masks.PNG and sum(map(outline_points, lines)) > MAX_OUTLINE_POINTS:
            raise ValueError(f"outline has more than {MAX_OUTLINE_POINTS:,} points")
        if not lines or self._masks is Masks.NONE:
            return lines, "", None
        return lines, text.decode(), None

    def _mask(self, text: bytes) -> tuple[Sequence[Any], str, tuple[int, int] | None]:
        """Return the same of a mask of run lengths."""
        try:
            mask: Any = _ANYTHING.decode(text)
        except _ERRORS as error:
            raise ValueError("mask has no run lengths") from error
        if not mask:
            return (), "", None
        if not isinstance(mask, dict):
            raise ValueError("segmentation is neither polygons nor run lengths")
        _, width, height = run_lengths(mask)
        mask = {"size": mask["size"], "counts": mask["counts"]}
        kept = "" if self._masks is Masks.NONE else msgspec.json.encode(mask).decode()
        return (), kept, (width, height)

    def _merged(self, objects: Sequence[ParsedObject]) -> list[ParsedObject]:
        """Return objects of several files; those with the same id, class and box become one.

        The values of the first file count where both have some.
        """
        found, places = list[ParsedObject](), dict[int, int]()
        for one in objects:
            if (id_ := one.fields[0]) is None or places.setdefault(id_, len(found)) == len(found):
                found.append(one)
                continue
            first = found[places[id_]]
            if one[1:3] == first[1:3] and one.problem == first.problem:
                fields = tuple(a or b for a, b in zip(first.fields, one.fields, strict=True))
                size = first.mask_size if first.fields[6] else one.mask_size
                found[places[id_]] = first._replace(fields=fields, mask_size=size)
                self._counts["merged from several files by id"] += 1
            else:
                self._counts["ids of different objects in several files not written"] += 2
                found[places[id_]] = first._replace(fields=(None, *first.fields[1:]))
                found.append(one._replace(fields=(None, *one.fields[1:])))
        return found


def _are_polygons(text: bytes) -> bool:
    """Return whether JSON is plainly polygons, as nearly all are: a third of the time to read it.

    Numbers of ten digits may be out of range.
    """
    plain = text.translate(_ZEROS)
    if _TEN_DIGITS in plain:
        return False
    marks = plain.translate(None, b"0. -")
    if marks in _ONE_POLYGON:
        return True
    commas = marks[2:-2].split(b"],[")
    return marks.startswith(b"[[") and all(
        len(one) % 2 and len(one) >= 5 and not one.strip(b",") for one in commas
    )


def _is_in_folder(key: str) -> bool:
    """Return whether a file of a folder is read: Roboflow's may lie in folders of splits."""
    name, _, last = key.rpartition("/")
    return key.endswith(".json") and (not name or last == _ROBOFLOW)


def _folder(name: str) -> str:
    """Return the folder of images that COCO's own files have theirs in."""
    return name.removesuffix(".json").partition("_")[2]


def _value(text: bytes) -> Any:
    try:
        return _ANYTHING.decode(text)
    except _ERRORS:
        return None


def _members(text: bytes) -> dict[str, msgspec.Raw]:
    for one in (text, without_nan(text)):
        with suppress(*_ERRORS):
            return _MEMBERS.decode(one)
    return {}


def _key(value: object) -> str | None:
    """Return the id of an image or a category, a number or a short text; None for others."""
    if type(value) is float and value.is_integer():
        value = int(value)
    if type(value) is not int and not isinstance(value, str):
        return None
    return key if len(key := str(value)) <= _LONGEST_ID and key.isprintable() else None


def _parse_image(key: str, at: int, text: bytes) -> ParsedImage:
    try:
        found = _IMAGE.decode(text)
    except _ERRORS:
        members = _members(text)
        found = _Image(*(_value(bytes(members.get(one, _NULL))) for one in _SIDES_AND_NAMES))
    name = found.file_name if found.file_name is not None else found.coco_url
    where = f"image {printable(key)}" if key else f"images[{at}]"
    problem = None if key else "id is not a number or a short string"
    if not isinstance(name, str) or not 0 < len(name) <= MAX_PATH_LENGTH:
        name, problem = where, "no file_name"
    sides: list[Any] = [found.width, found.height]
    for number, value in enumerate(sides):
        is_number = type(value) in (int, float) and -1e9 < value < 1e9
        if is_number and value == int(value):
            sides[number] = int(value)
        elif value is not None:
            sides, problem = [None, None], problem or "width and height are not whole numbers"
            break
    width, height = sides
    return ParsedImage(name, where, (), width, height, "", key, None, problem)


def _parse_annotations(texts: Sequence[bytes]) -> list[tuple[_Annotation, str | None]]:
    """Return objects in JSON, each with what is wrong with it."""
    try:
        return [(one, None) for one in _ANNOTATIONS.decode(b"[%b]" % b",".join(texts))]
    except _ERRORS:
        return [*map(_parse_annotation, texts)]


def _parse_annotation(text: bytes) -> tuple[_Annotation, str | None]:
    """Return what is valid of an object in JSON, and what is wrong with it."""
    found, problem = _Annotation(), None
    for name, value in _members(without_nan(text)).items():
        if name in _Annotation.__struct_fields__:
            try:
                part = _ANNOTATION.decode(msgspec.json.encode({name: value}))
                setattr(found, name, getattr(part, name))
            except _ERRORS:
                problem = problem or _PROBLEMS.get(name)
    return found, problem
