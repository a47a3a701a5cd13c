"""COCO's annotations: instances and key points, in files of any size."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby, islice
from operator import itemgetter
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from tfrtool.errors import SourceError, human_count, os_errors_as, printable, some_of
from tfrtool.examples.objects.annotation import Skeleton
from tfrtool.examples.objects.record_features import Masks
from tfrtool.sources.annotations.annotation_reader import (
    AnnotationFolder,
    AnnotationReader,
    AnnotationRequest,
    ParsedImage,
    ParsedObject,
    check_splits,
    number_classes,
    split_in_name,
)
from tfrtool.sources.annotations.coco_entries import (
    CocoAccount,
    Id,
    checked_objects,
    decode_images,
    decode_members,
    id_text,
    parse_image,
)
from tfrtool.sources.formats.json_lists import JsonFile, JsonWindow
from tfrtool.sources.items import LeftOut, label_problem
from tfrtool.sources.tables.table_columns import TEXT_SHOWN
from tfrtool.storage.limits import MAX_IMAGE_OBJECTS
from tfrtool.storage.opening import open_regular
from tfrtool.storage.remote_path import AnyPath
from tfrtool.storage.sorted_rows import SortedRows

_WRITTEN = {
    "images": {"id", "file_name", "width", "height"},
    "annotations": set[str](),
    "categories": {"id", "name", "keypoints", "skeleton"},
}
_SHOWN = 10
_SAMPLE = 100
"""Elements of each window that are looked at for fields that are not written."""

_UNSUPPORTED = {"segments_info": "panoptic segments", "caption": "captions"}
_ROBOFLOW, _OWN_FOLDER = "_annotations.coco.json", "annotations"
_EXPECTED = "COCO instances or keypoints"
_IMAGE, _OBJECT = range(2)
"""What follows twice the number of an image in the order of rows: images before their objects."""


@dataclass(eq=False)
class _CocoFile:
    path: AnyPath
    key: str = ""  # its path in the folder of such files
    folder: str = ""  # below "images/", where its images may be
    split: str | None = None
    required: bool = True  # whether it must hold instances or key points
    account: CocoAccount = field(default_factory=CocoAccount)


class _OtherKindError(Exception):
    """A file holds something else; the text says what."""


class CocoReader(AnnotationReader):
    """Reads files of COCO's instances or key points, and folders of such files.

    Images and objects are sorted by the numbers of their images, and then read image by image.
    Files of one split are merged by the ids of images and of objects.
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
        self._files = dict[int, _CocoFile]()  # by their numbers, without those of another kind
        self._categories = dict[str, tuple[str, AnyPath]]()  # names by ids, and where they are from
        self._names = dict[object, str]()  # the same by ids as JSON has them
        self._classes: Mapping[str, int] = {}
        self._ids = list[str]()  # of images, by their numbers; "" for one without
        self._numbers = defaultdict[str | None, dict[Id, int]](dict)  # by split and id in JSON
        self._object_ids = list[Any]()  # arrays of ids, and the numbers of images and files
        self._repeated = frozenset[tuple[str | None, int]]()  # splits and ids of several objects
        self._unwritten: dict[str, set[str]] = {}
        self._counts = Counter[str]()  # what of objects is not written, or merged

    def images(self) -> Iterator[ParsedImage | LeftOut]:
        """Yield all images, also those with problems, and each object without an image."""
        rows = SortedRows[tuple[Any, ...]](self._scratch)
        self._read_files(rows)
        for image, group in groupby(rows.drain(), key=_image_of):
            yield from self._image(self._ids[image], group)
        for what, count in self._counts.items():
            self.notices.append(f"{what}: {human_count(count, 'object')}")

    def _read_files(self, rows: SortedRows[tuple[Any, ...]]) -> None:
        """Add all images and objects to the rows, and find the classes."""
        for number, file in enumerate(self._listed()):
            try:
                self._scan(file, number, rows)
            except _OtherKindError as error:
                if file.required:
                    raise SourceError(str(error), path=file.path, expected=_EXPECTED) from error
                self.ignored.add(LeftOut(key=file.key, reason=str(error)))
                continue
            self._files[number] = file
            self._counts.update(file.account.counts)
            self.optional |= file.account.optional
        if not self._files:
            what = "no annotation files"
            raise SourceError(what, path=self._places[0], expected=_EXPECTED)
        check_splits({file.path: file.split for file in self._files.values()})
        self._find_repeated()
        self._classes = self._number_classes()
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

    def _scan(self, file: _CocoFile, number: int, rows: SortedRows[tuple[Any, ...]]) -> None:
        names, categories = set[str](), list[dict[str, Any]]()
        with os_errors_as(SourceError, file.path), open_regular(file.path) as opened:
            for name, part in JsonFile(opened, file.path).parts(_WRITTEN):
                names.add(name)
                if part is None:
                    continue
                self._sample(name, part)
                if name == "categories":
                    categories += decode_members(part)
                elif name == "images":
                    self._add_images(file, number, part, rows)
                else:
                    self._add_objects(file, number, part, rows)
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

    def _add_images(
        self, file: _CocoFile, number: int, part: JsonWindow, rows: SortedRows[tuple[Any, ...]]
    ) -> None:
        known, found = self._numbers[file.split], decode_images(part)
        groups = [""] * len(found)
        if self._group_by:
            groups = [id_text(one.get(self._group_by)) or "" for one in decode_members(part)]
        for position, (entry, group) in enumerate(zip(found, groups, strict=True), part.first):
            image = self._image_number(entry.id, known, new=True)
            fields = parse_image(self._ids[image], position, entry)
            rows.add((2 * image + _IMAGE, number, *fields, group))

    def _add_objects(
        self, file: _CocoFile, number: int, part: JsonWindow, rows: SortedRows[tuple[Any, ...]]
    ) -> None:
        known = self._numbers[file.split]
        ids, images = list[int](), list[int]()
        objects = checked_objects(part, self._masks, file.account)
        for position, (image_id, checked) in enumerate(objects, part.first):
            image = known.get(image_id)
            if image is None:
                image = self._image_number(image_id, known)
            rows.add((2 * image + _OBJECT, number, position, *checked))
            if (id_ := checked[2][0]) is not None:
                ids.append(id_)
                images.append(image)
        self._object_ids.append(np.array([ids, images, [number] * len(ids)], np.int64))

    def _image_number(self, value: Any, known: dict[Id, int], *, new: bool = False) -> int:
        """Return the number of the image with an id; an image without one is a new one."""
        key = id_text(value)
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
        key, name = id_text(value.get("id")), value.get("name")
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

    def _find_repeated(self) -> None:
        """Find the ids that several objects have, but for those of one image in several files."""
        ids, images, files = np.concatenate(self._object_ids or [np.zeros((3, 0), np.int64)], 1)
        self._object_ids.clear()
        if np.diff(np.sort(ids)).all():
            return
        splits = {file.split: at for at, file in enumerate(self._files.values())}
        codes = np.full(max(self._files) + 1, -1)
        for number, file in self._files.items():
            codes[number] = splits[file.split]
        groups = codes[files]
        order = np.lexsort((files, images, ids, groups))
        ids, images, files, groups = (array[order] for array in (ids, images, files, groups))
        same = (ids[1:] == ids[:-1]) & (groups[1:] == groups[:-1]) & (groups[1:] >= 0)
        same &= (images[1:] != images[:-1]) | (files[1:] == files[:-1])
        names = {at: split for split, at in splits.items()}
        pairs = zip(groups[1:][same].tolist(), ids[1:][same].tolist(), strict=True)
        repeated = {(group, id_) for group, id_ in pairs}
        self._repeated = frozenset((names[group], id_) for group, id_ in repeated)
        if repeated:
            shown = some_of([str(id_) for _, id_ in sorted(repeated)], _SHOWN)
            self.notices.append(f"ids not written, shared by several objects: {shown}")

    def _image(self, key: str, rows: Iterable[tuple[Any, ...]]) -> Iterator[ParsedImage | LeftOut]:
        """Yield the images that have an id, normally one, with its objects."""
        entries, objects = list[tuple[int, ParsedImage]](), list[ParsedObject]()
        files = set[int]()
        for row in rows:
            order, number = row[:2]
            if (file := self._files.get(number)) is None:
                continue
            if order % 2 == _IMAGE:
                self._add_entry(entries, number, _parsed_image(file, *row[2:]))
                continue
            parsed = self._object(file, row)
            if entries and len(objects) < MAX_IMAGE_OBJECTS:
                objects.append(parsed)
                files.add(number)
                continue
            many = f"image has more than {MAX_IMAGE_OBJECTS:,} objects"
            why = parsed.problem or (many if entries else "no image with this image_id")
            yield LeftOut(key=printable(f"image {key}"), reason=f"{parsed.where}: {why}")
        if len(files) > 1:
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

    def _object(self, file: _CocoFile, row: tuple[Any, ...]) -> ParsedObject:
        _, _, position, category, box, fields, problem, mask_size = row
        id_ = fields[0]
        where = f"annotations[{position}]" if id_ is None else f"annotation {id_}"
        if id_ is not None and (file.split, id_) in self._repeated:
            fields = (None, *fields[1:])
        elif id_ is not None:
            self.optional.add("id")
        name = self._names.get(category) or self._names.get(key := id_text(category), "")
        if not name:
            problem = problem or f"unknown category_id {printable(str(key))}"
        return ParsedObject(where, name, box, fields, problem, False, mask_size)

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


def _image_of(row: tuple[Any, ...]) -> int:
    order: int = row[0]
    return order // 2


def _parsed_image(
    file: _CocoFile,
    name: str,
    where: str,
    width: int | None,
    height: int | None,
    key: str,
    problem: str | None,
    group: str,
) -> ParsedImage:
    other = f"images/{file.folder}/{name}" if file.folder else ""
    return ParsedImage(name, where, (), width, height, other, key, file.split, problem, group=group)


def _is_in_folder(key: str) -> bool:
    """Return whether a file of a folder is read.

    COCO's own may be in its folder ``annotations``, Roboflow's in folders of splits.
    """
    name, _, last = key.rpartition("/")
    return key.endswith(".json") and (name in ("", _OWN_FOLDER) or last == _ROBOFLOW)


def _folder(name: str) -> str:
    """Return the folder of images that COCO's own files have theirs in."""
    return name.removesuffix(".json").partition("_")[2]
