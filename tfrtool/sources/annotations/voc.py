"""Pascal VOC: an XML file per image, and lists of the images of each split."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from unicodedata import normalize

from tfrtool.errors import SourceError, printable, some_of
from tfrtool.sources.annotations.annotation_reader import (
    FLAGS,
    NO_BOX,
    AnnotationFolder,
    AnnotationReader,
    ParsedImage,
    ParsedObject,
    box_of,
    number_classes,
    number_of,
    pixels_of,
)
from tfrtool.sources.folders.listing import SPLIT_NAMES, is_image_name
from tfrtool.sources.items import LeftOut, label_problem
from tfrtool.sources.tables.table_columns import TEXT_SHOWN
from tfrtool.storage.limits import MAX_ANNOTATION_BYTES

_SET = re.compile(r"((?:.*/)?)ImageSets/Main/(train|val|trainval|test)\.txt")
_LISTS = ("train", "trainval", "val", "test")
_FOLDER = re.compile(r"(?<![^/])Annotations(?=/)")
_SIDES = ("xmin", "ymin", "xmax", "ymax")
_READ = {"name", "bndbox", "pose", "difficult", "truncated"}
_UNKNOWN = ("", "unspecified", "unknown")
_SHOWN = 8


class VocReader(AnnotationReader):
    """Reads the XML files of a folder, at any depth; see `AnnotationReader`."""

    def __init__(self, folder: AnnotationFolder) -> None:
        """Take the folder of the files."""
        super().__init__()
        self._folder, self._classes = folder, set[str]()
        self._unread = Counter[str]()  # elements of objects

    def images(self) -> Iterator[ParsedImage]:
        """Yield the image of each file."""
        keys = self._folder.keys()
        files = [key for key in keys if key.lower().endswith(".xml")]
        if not files:
            expected = "Annotations/*.xml, or XML files next to the images"
            raise SourceError("no XML files", path=self._folder.place, expected=expected)
        splits = self._splits(keys, {key[:-4] for key in files})
        for key, data in zip(files, self._folder.read(files, MAX_ANNOTATION_BYTES), strict=True):
            if (image := self._image(key, data)) is None:
                continue
            lists = {} if splits is None else splits.get(key[:-4], {})
            image.split, *others = (*lists,) or (None,)
            if splits is not None and image.split is None:
                image.problem = image.problem or "not listed in ImageSets/Main"
            yield image
            for split in others:
                problem = f"already in split {image.split}, skipped in {split}"
                yield ParsedImage(name=image.name, where=lists[split], problem=problem)
        unread = [f"{printable(tag)} ({count:,})" for tag, count in self._unread.most_common()]
        if unread:
            self.notices.append(f"fields of objects not written: {some_of(unread, _SHOWN)}")

    def classes(self) -> Mapping[str, int]:
        """Return the classes, sorted by name."""
        return number_classes(sorted(self._classes), self._folder.place)

    def _splits(self, keys: Sequence[str], stems: set[str]) -> dict[str, dict[str, str]] | None:
        """Return the splits of each file, without its suffix, and the line that names it there.

        None where there are no splits. ``trainval`` is all of ``train`` and ``val``, where these
        exist.
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
        folders = {stem: stem.partition("/")[0] for stem in stems}
        if not all(name.lower() in SPLIT_NAMES for name in folders.values()):
            return None
        return {stem: {SPLIT_NAMES[name.lower()]: name} for stem, name in folders.items()}

    def _image(self, key: str, data: bytes | str) -> ParsedImage | None:
        """Return the image of a file; None where the file is of another kind."""
        folder, slash, stem = _FOLDER.sub("JPEGImages", key)[:-4].rpartition("/")
        image = ParsedImage(name=self._folder.name(folder + slash + stem), where=key)
        if isinstance(data, str):
            image.problem = data
            return image
        from defusedxml import ElementTree, common

        try:
            root = ElementTree.fromstring(data)
        except common.DefusedXmlException as error:
            what = "declares XML entities, which are not allowed"
            raise SourceError(what, path=self._folder.place / key) from error
        except (SyntaxError, ValueError, LookupError) as error:
            image.problem = f"invalid XML: {printable(str(error))[:200]}"
            return image
        if root.tag != "annotation":
            self.ignored.add(LeftOut(key=key, reason="not a Pascal VOC annotation"))
            return None
        image.objects = [
            self._object(f"{key}, object {number}", element)
            for number, element in enumerate(root.findall("object"), start=1)
        ]
        image.source_id = _text(root, "filename")
        image.width, image.height, image.problem = pixels_of(
            _text(root, "size/width"), _text(root, "size/height")
        )
        if last := image.source_id.replace("\\", "/").rpartition("/")[2]:
            image.other_name, image.name = image.name, self._folder.name(folder + slash + last)
            if normalize("NFC", stem) not in {
                normalize("NFC", name) for name in (last, last.rpartition(".")[0])
            }:
                # The files were renamed, but not the names in them.
                image.name, image.other_name = image.other_name, image.name
                image.stale_name = last
        return image

    def _object(self, where: str, element: Any) -> ParsedObject:
        """Return an object; its ``part`` elements are not read."""
        name, box, problem = _text(element, "name"), element.find("bndbox"), None
        if unfit := label_problem(name):
            problem = f"name {name[:TEXT_SHOWN]!r} {unfit}" if name else "no name"
        elif box is None:
            problem = "no bndbox"
        else:
            self._classes.add(name)
        fields: dict[str, object] = {"pose": _text(element, "pose") or None}
        for flag in ("difficult", "truncated"):
            text = _text(element, flag).lower()
            fields[flag] = FLAGS.get(text)
            if text not in FLAGS and text not in _UNKNOWN:
                self._unread[f"{flag}: {text}"[:40]] += 1
        self._unread.update(child.tag[:40] for child in element if child.tag not in _READ)
        one = ParsedObject(where=where, category=name, fields=fields, problem=problem)
        if box is not None:
            sides = box_of([number_of(_text(box, side)) for side in _SIDES])
            one.box, one.problem = sides or one.box, problem or (None if sides else NO_BOX)
        return one


def _text(element: Any, path: str) -> str:
    return (element.findtext(path) or "").strip()
