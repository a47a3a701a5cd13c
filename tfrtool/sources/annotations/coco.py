"""COCO's annotations: instances and key points, in files of any size."""

import marshal
import os
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import islice, pairwise, repeat
from operator import itemgetter
from pathlib import Path
from typing import IO, Annotated, Any, NamedTuple

import msgspec
import numpy as np

from tfrtool.errors import SourceError, WriteError, human_count, os_errors_as, printable, some_of
from tfrtool.examples.objects.annotation import NOT_FINITE, Skeleton, attributes_text
from tfrtool.examples.objects.record_features import Masks
from tfrtool.images.masks import outline_points, run_lengths
from tfrtool.sources.annotations.annotation_reader import (
    NO_BOX,
    AnnotationFolder,
    AnnotationReader,
    AnnotationRequest,
    ParsedImage,
    ParsedObject,
    PlainObjects,
    check_splits,
    known_flags,
    number_classes,
    split_in_name,
)
from tfrtool.sources.formats.json_lists import JsonFile, JsonWindow
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
    "annotations": set[str](),
    "categories": {"id", "name", "keypoints", "skeleton"},
}
_LONGEST_ID, _ID_LIMIT = 64, 10**18
_NO_ID = -1
_FLAGS = frozenset({None, 0, 1})
_SHOWN = 10
_SAMPLE = 100
"""Elements of each window that are looked at for fields that are not written."""

_UNSUPPORTED = {"segments_info": "panoptic segments", "caption": "captions"}
_ROBOFLOW, _OWN_FOLDER = "_annotations.coco.json", "annotations"
_EXPECTED = "COCO instances or keypoints"
_BUCKET = 11
"""Images are taken from the scratch file 2,048 at a time, with 8 MB of COCO's annotations."""

_MOST_BUFFERED = 2**26
_NULL = msgspec.Raw(b"null")

_Float = Annotated[float, msgspec.Meta(gt=-1e9, lt=1e9)]
_Number = Annotated[int, msgspec.Meta(gt=-(10**9), lt=10**9)] | _Float
_Id = int | float | str | None


class _Image(msgspec.Struct, gc=False):
    id: Any = None
    file_name: Any = None
    coco_url: Any = None
    width: Any = None
    height: Any = None


class _Annotation(msgspec.Struct, gc=False):
    id: _Id = None
    image_id: _Id = None
    category_id: _Id = None
    bbox: tuple[_Float, _Float, _Float, _Float] | None = None
    segmentation: msgspec.Raw = _NULL
    area: Annotated[float, msgspec.Meta(ge=0, lt=1e9)] | None = None
    iscrowd: Annotated[float, msgspec.Meta(ge=0, le=1)] | bool | None = None
    keypoints: Annotated[list[_Float], msgspec.Meta(max_length=3 * MAX_KEYPOINTS)] | None = None


class _Standard(_Annotation, gc=False, forbid_unknown_fields=True):
    """An annotation without other members, as nearly all are."""

    num_keypoints: msgspec.Raw = _NULL


class _Invalid(_Annotation, gc=False):
    """An annotation with the members that are valid, and what is wrong with the others."""

    problem: str | None = None


_PROBLEMS = {
    "bbox": "bbox is not four numbers",
    "area": "area is not a positive number",
    "iscrowd": "iscrowd is not 0 or 1",
    "keypoints": "keypoints are not (x, y, visibility) with a visibility of 0, 1 or 2",
}
_ANYTHING = msgspec.json.Decoder()
_ZEROS, _TEN_DIGITS = bytes.maketrans(b"123456789", b"0" * 9), b"0" * 10
_ONE_POLYGON = frozenset(b"[[%b]]" % (b"," * (2 * points - 1)) for points in range(3, 256))
"""What is between the numbers of an outline in one part."""

_ANNOTATION = msgspec.json.Decoder(_Annotation)
_POLYGONS, _POLYGON = msgspec.json.Decoder(list[list[_Number]]), msgspec.json.Decoder(list[_Number])
_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

_ROW = np.dtype(
    {
        "names": ["number", "id", "at", "size", "area", "category", "file", "kind", "box"],
        "formats": ["i8", "i8", "i8", "i8", "f8", "i4", "i4", "i1", "4f8"],
    }
)
"""An image or an object: the number of its image, its id and place in its list, the bytes of its
text, and the numbers of its file and category."""

_PLAIN, _FULL, _OTHER, _IMAGE = range(4)
"""Kinds of rows. The text of a plain object is its outline. Of a full one, it is all else that is
valid, its outline, key points, attributes and flags. Of another one, it is its box, fields, problem
and the size of its mask. The box of an image holds its sides."""

_VISIBLE = frozenset((0, 1, 2))
_NO_OUTLINES = (b"null", b"[]", b"")

_IDS = np.dtype([("id", "i8"), ("number", "i8"), ("file", "i4")])
_UNKNOWN = (None, "", ())
_LATE = ((1, "area"), (6, "segmentation"), (7, "keypoints"), (8, "attributes"))
_FORMAT = 2  # of marshal: later ones look up each value among those that were written before


class _Elements:
    """Images and annotations in a scratch file, those of near images in a bucket."""

    def __init__(self, file: IO[bytes], scratch: Path) -> None:
        self._file, self._failure = file, (scratch, "temporary files can't be written")
        self._ids, self._end = bytearray(), 0
        self._segments = defaultdict[int, list[tuple[int, int, int, int]]](list)

    def add(self, file: int, table: Any, texts: list[bytes]) -> None:
        """Add the images or annotations of a window."""
        table["file"], table["size"] = file, [*map(len, texts)]
        buckets = table["number"] >> _BUCKET
        order = np.argsort(buckets, kind="stable")
        table, buckets, texts = table[order], buckets[order], [texts[at] for at in order.tolist()]
        edges = [*(np.flatnonzero(np.diff(buckets, prepend=-1))).tolist(), len(table)]
        with os_errors_as(WriteError, *self._failure):
            for start, stop in pairwise(edges):
                text = table[start:stop].tobytes() + b"".join(texts[start:stop])
                segment = self._end, stop - start, len(text), file
                self._segments[int(buckets[start])].append(segment)
                self._end += self._file.write(text)
        self._ids += table[["id", "number", "file"]][table["id"] != _NO_ID].astype(_IDS).tobytes()

    def forget(self, file: int) -> None:
        """Remove the elements of the last file."""
        for bucket, segments in self._segments.items():
            self._segments[bucket] = [one for one in segments if one[3] != file]
        self._ids = bytearray(self.ids()[self.ids()["file"] != file].tobytes())

    def ids(self) -> Any:
        """Return the ids of all objects that have one, as an array."""
        return np.frombuffer(self._ids, _IDS)

    def buckets(self) -> Iterator["_Bucket"]:
        """Yield all elements, those of an image together and in the order of files.

        A bucket that is large is read several times, for some of its images each.
        """
        self._file.flush()
        for bucket, segments in sorted(self._segments.items()):
            times = 1 + sum(size for _, _, size, _ in segments) // _MOST_BUFFERED
            step = max(1, 2**_BUCKET // times)
            for start in range(bucket << _BUCKET, (bucket + 1) << _BUCKET, step):
                tables, texts = list[Any](), list[bytes]()
                for offset, count_, size, _ in segments:
                    data = os.pread(self._file.fileno(), size, offset)
                    table, text = np.frombuffer(data, _ROW, count_), data[count_ * _ROW.itemsize :]
                    if times > 1:
                        ends = np.cumsum(table["size"])
                        wanted = (start <= table["number"]) & (table["number"] < start + step)
                        table, ends = table[wanted], ends[wanted]
                        spans = zip((ends - table["size"]).tolist(), ends.tolist(), strict=True)
                        text = b"".join([text[one:end] for one, end in spans])
                    tables.append(table)
                    texts.append(text)
                if any(map(len, tables)):
                    yield _Bucket.sorted(np.concatenate(tables), b"".join(texts))


class _Bucket(NamedTuple):
    """Rows sorted by images, and where the text of each is."""

    table: Any
    spans: list[tuple[int, int]]
    text: bytes

    @classmethod
    def sorted(cls, table: Any, text: bytes) -> "_Bucket":
        order, ends = np.argsort(table["number"], kind="stable"), np.cumsum(table["size"])
        spans = zip((ends - table["size"])[order].tolist(), ends[order].tolist(), strict=True)
        return cls(table[order], [*spans], text)

    def value(self, at: int) -> Any:
        """Return what `marshal` made the text of a row of."""
        return marshal.loads(self.text[slice(*self.spans[at])])


@dataclass(eq=False)
class _CocoFile:
    path: AnyPath
    key: str = ""  # its path in the folder of such files
    folder: str = ""  # below "images/", where its images may be
    split: str | None = None
    required: bool = True  # whether it must hold instances or key points
    group: int = 0  # the number of its split
    optional: set[str] = field(default_factory=set)  # fields that some of its objects have
    counts: Counter[str] = field(default_factory=Counter)


class _OtherKindError(Exception):
    """A file holds something else; the text says what."""


class CocoReader(AnnotationReader):
    """Reads files of COCO's instances or key points, and folders of such files.

    Files are read twice: first for the ids of images, which elements are then sorted by, and then
    image by image. Files of one split are merged by the ids of images and of objects.
    """

    @classmethod
    def open(cls, request: AnnotationRequest) -> Mapping[AnyPath, AnnotationReader]:
        """Return one reader of all files."""
        paths, options = request.files(), request.options
        reader = cls(paths, request.scratch, Masks(options.masks), options.group_by)
        return {paths[0]: reader}

    def __init__(
        self, places: Sequence[AnyPath], scratch: Path, masks: Masks, group_by: str | None = None
    ) -> None:
        """Take paths of files or folders, what becomes of outlines, and a member of images.

        Images with the same value of that member are a group.
        """
        super().__init__()
        self._group_by = group_by or ""
        self._places, self._scratch, self._masks = places, scratch, masks
        self._files = list[_CocoFile]()
        self._categories = dict[str, tuple[str, AnyPath]]()  # names by ids, and where they are from
        self._names = dict[object, str]()  # the same by ids as JSON has them
        self._category_ids: dict[_Id, int] = {None: 0}  # of objects, with numbers
        self._classes: Mapping[str, int] = {}
        self._labels = dict[str, int]()
        self._ids = list[str]()  # of images, by their numbers; "" for one without
        self._numbers = list[dict[_Id, int]]()  # of images, by split and id in JSON
        self._repeated = frozenset[tuple[int, int]]()  # splits and ids that several objects have
        self._unwritten: dict[str, set[str]] = {}
        self._counts = Counter[str]()  # what of objects is not written, or merged

    def images(self) -> Iterator[ParsedImage | LeftOut]:
        """Yield all images, also those with problems, and each object without an image."""
        failure = self._scratch, "temporary files can't be written"
        with os_errors_as(WriteError, *failure):
            scratch = tempfile.TemporaryFile(dir=self._scratch)  # noqa: SIM115
        with scratch:
            elements = _Elements(scratch, self._scratch)
            self._read_files(elements)
            for bucket in elements.buckets():
                yield from self._images(bucket)
        for what, number in self._counts.items():
            self.notices.append(f"{what}: {human_count(number, 'object')}")

    def _read_files(self, elements: _Elements) -> None:
        """Find out which images there are, and which elements belong to each."""
        splits = dict[str | None, int]()
        for file in self._listed():
            try:
                file.group = splits.setdefault(file.split, len(splits))
                self._numbers += [{}] * (file.group == len(self._numbers))
                self._scan(file, elements)
                self._files.append(file)
                self._counts.update(file.counts)
                self.optional |= file.optional
            except _OtherKindError as error:
                if file.required:
                    raise SourceError(str(error), path=file.path, expected=_EXPECTED) from error
                self.ignored.add(LeftOut(key=file.key, reason=str(error)))
                elements.forget(len(self._files))
        if not self._files:
            what = "no annotation files"
            raise SourceError(what, path=self._places[0], expected=_EXPECTED)
        check_splits({file.path: file.split for file in self._files})
        self._find_repeated(elements.ids())
        self._classes = self._number_classes()
        self._labels = {name: at for at, name in enumerate(self._classes)}
        for member, left in self._unwritten.items():
            if left:
                self.notices.append(f"fields of {member} not written: {', '.join(sorted(left))}")

    def classes(self) -> Mapping[str, int]:
        """Return, from the first image on, for each class its number in a label map, > 0."""
        return self._classes

    def _number_classes(self) -> Mapping[str, int]:
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
        for path in self._places:
            if not path.is_dir():
                folder = path.parent.name if path.name == _ROBOFLOW else _folder(path.name)
                split = split_in_name(folder if path.name == _ROBOFLOW else path.name)
                alone = len(self._places) == 1
                yield _CocoFile(path) if alone else _CocoFile(path, path.name, folder, split)
                continue
            for key in AnnotationFolder(path, None).files(_is_in_folder):
                name, _, last = key.rpartition("/")
                if name == _OWN_FOLDER:
                    name = ""
                split = split_in_name(name or last)
                yield _CocoFile(path / key, key, name or _folder(last), split, required=False)

    def _scan(self, file: _CocoFile, elements: _Elements) -> None:
        names, categories = set[str](), list[dict[str, Any]]()
        with os_errors_as(SourceError, file.path), open_regular(file.path) as opened:
            for name, part in JsonFile(opened, file.path).parts(_WRITTEN):
                names.add(name)
                if part is None:
                    continue
                self._sample(name, part)
                if name == "categories":
                    categories += part.decode(dict[str, Any], _loose_members)
                else:
                    add = self._add_images if name == "images" else self._add_objects
                    elements.add(len(self._files), *add(file, part))
        if "images" not in names:
            raise _OtherKindError("no 'images' list")
        self._leave("the file", names - _WRITTEN.keys())
        for one in categories:
            self._add_category(file.path, one)

    def _sample(self, name: str, part: JsonWindow) -> None:
        """Look at some elements for what is not written."""
        for element in part.head(_SAMPLE).decode(dict[str, msgspec.Raw]):
            members = element.keys()
            for other in members & _UNSUPPORTED.keys():
                if name == "annotations" and not members & {"bbox", "segmentation"}:
                    raise _OtherKindError(f"contains {_UNSUPPORTED[other]}")
            if name != "annotations":
                self._leave(name, members - _WRITTEN[name])

    def _add_images(self, file: _CocoFile, part: JsonWindow) -> tuple[Any, list[bytes]]:
        """Number the images of a window; return rows and texts."""
        known, texts = self._numbers[file.group], list[bytes]()
        found = part.decode(_Image, _loose_image)
        table = np.zeros(len(found), _ROW)
        table["kind"], table["id"] = _IMAGE, _NO_ID
        numbers, sides, groups = [], [], [""] * len(found)
        if self._group_by:
            members = part.decode(dict[str, Any], _loose_members)
            groups = [_key(one.get(self._group_by)) or "" for one in members]
        for at, (entry, group) in enumerate(zip(found, groups, strict=True), part.first):
            number = self._image_number(entry.id, known, new=True)
            image = _parse_image(self._ids[number], at, entry)
            numbers.append(number)
            sides.append(image[2:4])
            texts.append(marshal.dumps((*image, group), _FORMAT))
        table["number"] = numbers
        table["box"][:, 2:] = np.array(sides, float).reshape(-1, 2)
        return table, texts

    def _image_number(self, value: Any, known: dict[_Id, int], *, new: bool = False) -> int:
        """Return the number of the image with an id; an image without one is a new one."""
        key = _key(value)
        if key is None and new:
            self._ids.append("")
            return len(self._ids) - 1
        number = known.setdefault(key or "", len(self._ids))
        if number == len(self._ids):
            self._ids.append(key or "")
        if key is not None:
            known[value] = number
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
        if len(np.unique(rows["id"])) == len(rows):
            return
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

    def _images(self, bucket: _Bucket) -> Iterator[ParsedImage | LeftOut]:
        """Yield the images of a bucket, each with its objects.

        Nearly all images have plain objects alone, with boxes inside of them: these are checked and
        made column by column.
        """
        table, spans, text = bucket
        is_image, ids, areas = table["kind"] == _IMAGE, table["id"], table["area"]
        starts = np.flatnonzero(np.diff(table["number"], prepend=-1))
        counts = np.diff(starts, append=len(table))
        sides = np.add.reduceat(np.where(is_image[:, None], table["box"][:, 2:], 0), starts)
        (x0, y0, x1, y1), (width, height) = table["box"].T, np.repeat(sides, counts, axis=0).T
        labels = np.array([self._label(one) for one in self._category_ids])[table["category"]]
        is_plain = (table["kind"] <= _FULL) & (labels >= 0)
        is_plain &= (x0 >= 0) & (x0 < x1) & (x1 <= width) & (y0 >= 0) & (y0 < y1) & (y1 <= height)
        if self._repeated:
            ids = np.where(self._are_repeated(table), _NO_ID, ids)
        is_fast = np.logical_and.reduceat(is_plain | is_image, starts)
        is_fast &= np.add.reduceat(is_image.astype(int), starts) == 1
        is_fast &= is_image[starts] | is_image[starts + counts - 1]
        is_fast &= table["file"][starts] == table["file"][starts + counts - 1]
        is_fast &= counts <= MAX_IMAGE_OBJECTS + 1
        objects = table["kind"] <= _FULL
        for name, has_one in (
            ("id", (ids != _NO_ID) & ~is_image),
            ("area", objects & ~np.isnan(areas)),
            ("segmentation", (table["kind"] == _PLAIN) & (table["size"] > 0)),
        ):
            if has_one.any():
                self.optional.add(name)
        latin, no = text.decode("latin-1"), repeat(False)
        fields = [
            *zip(
                *table["box"].T.tolist(),
                labels.tolist(),
                [None if one == _NO_ID else one for one in ids.tolist()],
                [None if one != one else one for one in areas.tolist()],
                no,
                no,
                no,
                repeat(""),
                [latin[start:stop] for start, stop in spans],
                repeat(()),
                repeat(""),
                strict=False,
            )
        ]
        for at in np.flatnonzero(table["kind"] == _FULL).tolist():
            outline, points, text_, *flags = bucket.value(at)
            fields[at] = (*fields[at][:8], *flags, "", outline, points, text_)
        for start, stop, fast in zip(
            starts.tolist(), (starts + counts).tolist(), is_fast.tolist(), strict=True
        ):
            parse = partial(self._objects, bucket, start, stop)
            if not fast:
                yield from self._image(bucket, start, stop, parse())
                continue
            at = start if is_image[start] else stop - 1
            plain = fields[start + 1 : stop] if at == start else fields[start:at]
            yield self._placed(table["file"][start], bucket.value(at), PlainObjects(plain, parse))

    def _placed(
        self, file: int, image: tuple[Any, ...], objects: Sequence[ParsedObject]
    ) -> ParsedImage:
        name, where, width, height, key, problem, group = image
        folder, split = self._files[file].folder, self._files[file].split
        other = f"images/{folder}/{name}" if folder else ""
        return ParsedImage(
            name, where, objects, width, height, other, key, split, problem, group=group
        )

    def _image(
        self, bucket: _Bucket, start: int, stop: int, objects: list[ParsedObject]
    ) -> Iterator[ParsedImage | LeftOut]:
        """Yield the images that have an id, normally one, with its objects."""
        entries = list[tuple[int, ParsedImage]]()
        rows = bucket.table[start:stop]
        for at in (np.flatnonzero(rows["kind"] == _IMAGE) + start).tolist():
            file = int(bucket.table["file"][at])
            self._add_entry(entries, file, self._placed(file, bucket.value(at), ()))
        key = self._ids[rows["number"][0]]
        for one in objects[MAX_IMAGE_OBJECTS * bool(entries) :]:
            many = f"image has more than {MAX_IMAGE_OBJECTS:,} objects"
            why = one.problem or (many if entries else "no image with this image_id")
            yield LeftOut(key=printable(f"image {key}"), reason=f"{one.where}: {why}")
        del objects[MAX_IMAGE_OBJECTS:]
        if len(self._files) > 1 and len(np.unique(rows["file"][rows["kind"] != _IMAGE])) > 1:
            objects = self._merged(objects)
        several = len({image.name for _, image in entries}) > 1
        for _, image in entries:
            problem = "several images share this id" if several else image.problem
            yield image._replace(objects=objects, problem=problem)
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

    def _add_objects(self, file: _CocoFile, part: JsonWindow) -> tuple[Any, list[bytes]]:
        """Return rows and texts of the objects in a window; nearly all are plain."""
        extras: Sequence[Mapping[str, Any]]
        try:
            found = part.decode(_Standard)
            extras = [{}] * len(found)
        except SourceError:
            found = part.decode(_Annotation, _loose_annotation)
            extras = [self._attributes(file, one) for one in part.decode(dict[str, msgspec.Raw])]
        if not found:
            return np.zeros(0, _ROW), []
        outlines = b"\0".join([one.segmentation for one in found])
        texts, table = outlines.split(b"\0"), np.zeros(len(found), _ROW)
        known, categories = self._numbers[file.group], self._category_ids
        numbers = [known.get(one.image_id) for one in found]
        if None in numbers:
            numbers = [self._image_number(one.image_id, known) for one in found]
        ids = [
            one.id if type(one.id) is int and 0 <= one.id < _ID_LIMIT else _NO_ID for one in found
        ]
        if _NO_ID in ids:
            pairs = zip(ids, found, strict=True)
            if others := sum(id_ == _NO_ID and one.id is not None for id_, one in pairs):
                file.counts["ids that are not numbers not written"] += others
        table["number"], table["id"], table["at"] = numbers, ids, np.arange(len(found)) + part.first
        table["category"] = [
            categories.setdefault(one.category_id, len(categories)) for one in found
        ]
        table["area"] = np.array([one.area for one in found], float)
        table["box"] = np.array([one.bbox or NO_BOX for one in found], float).reshape(-1, 4)
        table["box"][:, 2:] += table["box"][:, :2]
        if any(one.iscrowd is not None for one in found):
            file.optional.add("crowd")
        are_polygons, kinds = _are_polygons(outlines), list[int]()
        has_any_outline = False
        for at, (entry, more, is_polygons) in enumerate(
            zip(found, extras, are_polygons, strict=True)
        ):
            kind, has_outline = _OTHER, texts[at] not in _NO_OUTLINES
            if (
                (is_polygons or not has_outline)
                and entry.bbox is not None
                and not entry.iscrowd
                and type(entry) is not _Invalid
                and self._masks is not Masks.PNG
            ):
                if self._masks is Masks.NONE or not has_outline:
                    texts[at] = b""
                kind = _FULL if entry.keypoints or more else _PLAIN
            if kind != _PLAIN:
                rest, problem = self._rest(file, entry, more)
                if kind == _FULL and problem is None:
                    has_any_outline |= bool(texts[at])
                    texts[at] = marshal.dumps((texts[at].decode(), *rest), _FORMAT)
                else:
                    kind = _OTHER
                    values = self._other_object(file, entry, rest, problem, ids[at])
                    texts[at] = marshal.dumps(values, _FORMAT)
            kinds.append(kind)
        if has_any_outline:
            file.optional.add("segmentation")
        table["kind"] = kinds
        return table, texts

    def _rest(
        self, file: _CocoFile, entry: _Annotation, attributes: Mapping[str, Any]
    ) -> tuple[tuple[tuple[float, ...], str, bool, bool], str | None]:
        """Return key points, attributes and flags of an object, and its problem, if any."""
        problem = entry.problem if isinstance(entry, _Invalid) else None
        points, text, flags = tuple(entry.keypoints or ()), "", dict[str, bool]()
        if attributes:
            flags = known_flags(attributes)
            try:
                text = attributes_text(attributes)
            except ValueError as error:
                problem = problem or str(error)
            file.optional.update(flags, ("attributes",))
        if points:
            file.optional.add("keypoints")
        if entry.iscrowd not in _FLAGS:
            problem = problem or _PROBLEMS["iscrowd"]
        if points and (len(points) % 3 or not _VISIBLE.issuperset(points[2::3])):
            problem = problem or _PROBLEMS["keypoints"]
        return (points, text, flags.get("difficult", False), flags.get("truncated", False)), problem

    def _attributes(self, file: _CocoFile, members: Mapping[str, msgspec.Raw]) -> dict[str, Any]:
        """Return the ``attributes`` of an object, and its members that COCO doesn't have."""
        others = members.keys() - _Standard.__struct_fields__
        values = {name: _any(members[name]) for name in sorted(others)}
        inner = values.pop("attributes") if isinstance(values.get("attributes"), dict) else {}
        clash = "members with the name of an attribute not written"
        file.counts += Counter({clash: len(inner.keys() & values)})
        return values | inner

    def _other_object(
        self, file: _CocoFile, entry: _Annotation, rest: Any, problem: str | None, id_: int
    ) -> tuple[Any, ...]:
        """Return the box, the fields, the problem and the size of the mask of an object."""
        box, outline, size = NO_BOX, "", None
        try:
            polygons, outline, size = self._outline(bytes(entry.segmentation), file.counts)
            if entry.bbox is not None:
                x, y, width, height = entry.bbox
                box = x, y, x + width, y + height
            elif polygons:
                xs, ys = ([v for line in polygons for v in line[at::2]] for at in (0, 1))
                box = float(min(xs)), float(min(ys)), float(max(xs)), float(max(ys))
            else:
                problem = problem or "no bbox"
        except ValueError as error:
            problem = problem or str(error)
        known = None if id_ == _NO_ID else id_
        fields = known, entry.area, bool(entry.iscrowd), *rest[2:], "", outline, *rest[:2]
        return box, fields, problem, size

    def _label(self, category: object) -> int:
        """Return the number of a category's class, from 0; -1 for an unknown one."""
        name = self._names.get(category) or self._names.get(_key(category))
        return -1 if name is None else self._labels[name]

    def _are_repeated(self, table: Any) -> list[bool]:
        groups = [file.group for file in self._files]
        pairs = zip(table["file"].tolist(), table["id"].tolist(), strict=True)
        return [(groups[file], id_) in self._repeated for file, id_ in pairs]

    def _objects(self, bucket: _Bucket, start: int, stop: int) -> list[ParsedObject]:
        """Return the objects in some rows."""
        rows, objects = bucket.table[start:stop], list[ParsedObject]()
        categories = [*self._category_ids]
        for at, ((_, id_, position, _, area, category, _, kind, box), is_repeated) in enumerate(
            zip(rows.tolist(), self._are_repeated(rows), strict=True), start
        ):
            if kind == _IMAGE:
                continue
            known, problem, size = None if id_ == _NO_ID else id_, None, None
            if kind <= _FULL:
                box, area = box.tolist(), None if area != area else area
                if kind == _FULL:
                    outline, points, text, *flags = bucket.value(at)
                else:
                    outline = bucket.text[slice(*bucket.spans[at])].decode()
                    points, text, flags = (), "", [False, False]
                fields = known, area, False, *flags, "", outline, points, text
            else:
                box, fields, problem, size = bucket.value(at)
                for field_index, name in _LATE:
                    if fields[field_index] not in _UNKNOWN:
                        self.optional.add(name)
            if is_repeated:
                fields = (None, *fields[1:])
            key = _key(categories[category])
            name = self._names.get(categories[category]) or self._names.get(key, "")
            if not name:
                problem = problem or f"unknown category_id {printable(str(key))}"
            where = f"annotations[{position}]" if known is None else f"annotation {known}"
            objects.append(ParsedObject(where, name, tuple(box), fields, problem, False, size))
        return objects

    def _outline(
        self, text: bytes, counts: Counter[str]
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
                counts["outlines of fewer than three points not written"] += 1
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
        counts_text = "" if self._masks is Masks.NONE else msgspec.json.encode(mask).decode()
        return (), counts_text, (width, height)

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


def _are_polygons(outlines: bytes) -> list[bool]:
    """Return which JSON is plainly polygons, as nearly all is: a fraction of the time to read it.

    Outlines are separated by a zero. Numbers of ten digits may be out of range.
    """
    if _TEN_DIGITS in (zeros := outlines.translate(_ZEROS)):
        outlines = zeros.replace(_TEN_DIGITS, b"x")
    marks = outlines.translate(None, b"0123456789. -\n\r\t").split(b"\0")
    return [one in _ONE_POLYGON or _are_several(one) for one in marks]


def _are_several(marks: bytes) -> bool:
    parts = marks[2:-2].split(b"],[")
    return marks.startswith(b"[[") and all(
        len(one) % 2 and len(one) >= 5 and not one.strip(b",") for one in parts
    )


def _is_in_folder(key: str) -> bool:
    """Return whether a file of a folder is read.

    COCO's own may be in its folder ``annotations``, Roboflow's in folders of splits.
    """
    name, _, last = key.rpartition("/")
    return key.endswith(".json") and (name in ("", _OWN_FOLDER) or last == _ROBOFLOW)


def _folder(name: str) -> str:
    """Return the folder of images that COCO's own files have theirs in."""
    return name.removesuffix(".json").partition("_")[2]


def _key(value: object) -> str | None:
    """Return the id of an image or a category, a number or a short text; None for others."""
    if type(value) is float and value.is_integer():
        value = int(value)
    if type(value) is not int and not isinstance(value, str):
        return None
    return key if len(key := str(value)) <= _LONGEST_ID and key.isprintable() else None


def _any(text: msgspec.Raw) -> Any:
    """Return a value, or what stands for one that can't be one."""
    try:
        return msgspec.json.decode(text)
    except _ERRORS:
        return float(NOT_FINITE)


def _loose_members(text: bytes) -> dict[str, Any]:
    """Return the members of an object that are valid."""
    found = dict[str, Any]()
    for name, value in msgspec.json.decode(text, type=dict[str, msgspec.Raw]).items():
        with suppress(*_ERRORS):
            found[name] = msgspec.json.decode(value)
    return found


def _loose_image(text: bytes) -> _Image:
    found = _loose_members(text)
    return _Image(*map(found.get, _Image.__struct_fields__))


def _parse_image(key: str, at: int, found: _Image) -> tuple[Any, ...]:
    """Return the name, what messages call it, the sides, the id and the problem of an image."""
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
    return name, where, width, height, key, problem


def _loose_annotation(text: bytes) -> _Annotation:
    """Return what is valid of an object in JSON, and what is wrong with it."""
    with suppress(*_ERRORS):
        return _ANNOTATION.decode(text)
    found = _Invalid()
    for name, value in msgspec.json.decode(text, type=dict[str, msgspec.Raw]).items():
        if name in _Annotation.__struct_fields__:
            try:
                part = _ANNOTATION.decode(msgspec.json.encode({name: value}))
                setattr(found, name, getattr(part, name))
            except _ERRORS:
                found.problem = found.problem or _PROBLEMS.get(name)
                if name == "id":
                    found.id = ""  # which isn't a number either
    return found
