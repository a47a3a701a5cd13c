"""Pascal VOC: an XML file per image, and lists of the images of each split."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from unicodedata import normalize

from tfrtool.errors import SourceError, printable, some_of
from tfrtool.sources.annotations.annotation_reader import (
    BAD_BOX,
    FLAGS,
    NO_BOX,
    AnnotationFolder,
    AnnotationReader,
    ParsedImage,
    ParsedObject,
    number_classes,
    numbers_of,
    pixels_of,
    splits_of_folders,
)
from tfrtool.sources.folders.listing import SPLIT_NAMES, is_image_name
from tfrtool.sources.items import LeftOut, label_problem
from tfrtool.sources.tables.table_columns import TEXT_SHOWN
from tfrtool.storage.limits import MAX_ANNOTATION_BYTES
from tfrtool.storage.sorted_rows import SortedRows

_SET = re.compile(r"((?:.*/)?)ImageSets/Main/(train|val|trainval|test)\.txt")
_LISTS = ("train", "trainval", "val", "test")
_FOLDER = re.compile(r"(?<![^/])Annotations(?=/)")
_SIDES = ("xmin", "ymin", "xmax", "ymax")
_READ = {"name", "bndbox", "pose", "difficult", "truncated"}
_UNKNOWN = ("", "unspecified", "unknown")
_SHOWN = 8


class VocReader(AnnotationReader):
    """Reads the XML files of a folder, at any depth; see `AnnotationReader`."""

    def __init__(self, folder: AnnotationFolder, scratch: Path) -> None:
        """Take the folder of the files, and one for what is too much for memory."""
        super().__init__()
        self._folder, self._classes = folder, set[str]()
        self._rows = SortedRows[Any](scratch)
        self._unread = Counter[str]()  # elements of objects

    def images(self) -> Iterator[ParsedImage]:
        """Yield the image of each file."""
        keys = self._folder.keys()
        files = [key for key in keys if key.lower().endswith(".xml")]
        if not files:
            expected = "Annotations/*.xml, or XML files next to the images"
            raise SourceError("no XML files", path=self._folder.place, expected=expected)
        contents = self._folder.read(files, MAX_ANNOTATION_BYTES)
        for at, (key, data) in enumerate(zip(files, contents, strict=True)):
            if (image := self._image(key, data)) is not None:
                objects = [tuple(one) for one in image.objects]
                self._rows.add((at, key[:-4], objects, tuple(image._replace(objects=()))))
        splits = self._splits(keys, {key[:-4] for key in files})
        for _, stem, objects, fields in self._rows:
            image = ParsedImage(*fields)
            lists = {} if splits is None else splits.get(stem, {})
            split, *others = (*lists,) or (None,)
            problem = image.problem
            if splits is not None and split is None:
                problem = problem or "not listed in ImageSets/Main"
            made = [ParsedObject(*one) for one in objects]
            yield image._replace(objects=made, split=split, problem=problem)
            for other in others:
                problem = f"already in split {split}, skipped in {other}"
                yield ParsedImage(name=image.name, where=lists[other], problem=problem)
        unread = [f"{printable(tag)} ({count:,})" for tag, count in self._unread.most_common()]
        if unread:
            self.notices.append(f"fields of objects not written: {some_of(unread, _SHOWN)}")

    def classes(self) -> Mapping[str, int]:
        """Return the classes, sorted by name."""
        return number_classes(sorted(self._classes), self._folder.place)

    def _splits(self, keys: Sequence[str], stems: set[str]) -> dict[str, dict[str, str]] | None:
        """Return the splits of each file, without its suffix, and the line that names it there.

        None without splits. ``trainval`` is all of ``train`` and ``val``, where these exist.
        """
        lists = {(match[2], match[1]): key for key in keys if (match := _SET.fullmatch(key))}
        splits: dict[str, dict[str, str]] = {}
        for (name, root), key in sorted(lists.items(), key=lambda one: _LISTS.index(one[0][0])):
            if name == "trainval" and {("train", root), ("val", root)} & lists.keys():
                continue
            for where, line in self._folder.lines(key):
                stem = f"{root}Annotations/{line}"
                if stem not in stems and is_image_name(stem):
                    stem = stem[: stem.rfind(".")]
                if stem in stems:
                    splits.setdefault(stem, {}).setdefault(SPLIT_NAMES.get(name, "train"), where)
                else:
                    reason = f"{where}: no XML file"
                    self.ignored.add(LeftOut(key=line[:255], reason=reason))
        if lists:
            return splits
        folders = splits_of_folders(stems)
        return {stem: {SPLIT_NAMES[name.lower()]: name} for stem, name in folders.items()} or None

    def _image(self, key: str, data: bytes | str) -> ParsedImage | None:
        """Return the image of a file; None where the file is of another kind."""
        folder, slash, stem = _FOLDER.sub("JPEGImages", key)[:-4].rpartition("/")
        image = ParsedImage(name=self._folder.name(folder + slash + stem), where=key)
        if isinstance(data, str):
            return image._replace(problem=data)
        from defusedxml import ElementTree, common

        try:
            root = ElementTree.fromstring(data)
        except common.DefusedXmlException as error:
            what = "declares XML entities, which are not allowed"
            raise SourceError(what, path=self._folder.place / key) from error
        except (SyntaxError, ValueError, LookupError) as error:
            return image._replace(problem=f"invalid XML: {printable(str(error))[:200]}")
        if root.tag != "annotation":
            self.ignored.add(LeftOut(key=key, reason="not a Pascal VOC annotation"))
            return None
        objects = [
            self._object(f"{key}, object {number}", element)
            for number, element in enumerate(root.findall("object"), start=1)
        ]
        named = _text(root, "filename")
        width, height, problem = pixels_of(_text(root, "size/width"), _text(root, "size/height"))
        name, other, stale = image.name, "", ""
        if last := named.replace("\\", "/").rpartition("/")[2]:
            name, other = self._folder.name(folder + slash + last), name
            stems = {normalize("NFC", one) for one in (last, last.rpartition(".")[0])}
            if normalize("NFC", stem) not in stems:
                # The files were renamed, but not the names in them.
                name, other, stale = other, name, last
        return ParsedImage(
            name, key, objects, width, height, other, named, problem=problem, stale_name=stale
        )

    def _object(self, where: str, element: Any) -> ParsedObject:
        """Return an object; its ``part`` elements are not read."""
        name, bndbox, problem, box = _text(element, "name"), element.find("bndbox"), None, None
        if unfit := label_problem(name):
            problem = f"name {name[:TEXT_SHOWN]!r} {unfit}" if name else "no name"
        elif bndbox is None:
            problem = "no bndbox"
        else:
            self._classes.add(name)
            if (box := numbers_of(_text(bndbox, side) for side in _SIDES)) is None:
                problem = BAD_BOX
        flags = dict[str, bool | None]()
        for flag in ("difficult", "truncated"):
            text = _text(element, flag).lower()
            flags[flag] = FLAGS.get(text)
            if text not in FLAGS and text not in _UNKNOWN:
                self._unread[f"{flag}: {text}"[:40]] += 1
        self._unread.update(child.tag[:40] for child in element if child.tag not in _READ)
        fields = self.fields(pose=_text(element, "pose") or None, **flags)
        return ParsedObject(where, name, box or NO_BOX, fields, problem)  # type: ignore[arg-type]


def _text(element: Any, path: str) -> str:
    return (element.findtext(path) or "").strip()
