"""Pascal VOC: an XML file an image, and lists of the images of each split."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any
from unicodedata import normalize

from tfrtool.errors import SourceError, printable, some_of
from tfrtool.sources.annotations.annotation_folder import (
    FLAGS,
    AnnotationFolder,
    number_classes,
    number_of,
    pixels_of,
)
from tfrtool.sources.annotations.found import AnnotationReader, FoundImage, FoundObject
from tfrtool.sources.folders.listing import SPLIT_NAMES, is_image_name
from tfrtool.sources.items import LeftOut, label_problem
from tfrtool.sources.tables.table_columns import TEXT_SHOWN
from tfrtool.storage.limits import MAX_ANNOTATION_BYTES

_SET = re.compile(r"((?:.*/)?)ImageSets/Main/(train|val|trainval|test)\.txt")
_LISTS = ("train", "trainval", "val", "test")
_FOLDER = re.compile(r"(?<![^/])Annotations(?=/)")
_SIZE = ("width", "height")
_SIDES = ("xmin", "ymin", "xmax", "ymax")
_READ = {"name", "bndbox", "pose", "difficult", "truncated"}
_UNTOLD = ("", "unspecified", "unknown")
_SHOWN = 8


class VocReader(AnnotationReader):
    """Reads the XML files of a folder, wherever in it they lie; see `AnnotationReader`."""

    def __init__(self, folder: AnnotationFolder) -> None:
        """Say where the files are."""
        super().__init__()
        self._folder, self._classes = folder, set[str]()
        self._unread = Counter[str]()  # elements of objects

    def images(self) -> Iterator[FoundImage]:
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
            told = {} if splits is None else splits.get(key[:-4], {})
            first, *others = (*told,) or (None,)
            problem = image.problem
            if splits is not None and first is None:
                problem = problem or "not listed in ImageSets/Main"
            yield replace(image, split=first, problem=problem)
            for split in others:
                problem = f"already in split {first}, skipped in {split}"
                yield FoundImage(name=image.name, where=told[split], problem=problem)
        unread = [f"{printable(tag)} ({count:,})" for tag, count in self._unread.most_common()]
        if unread:
            self.notices.append(f"fields of objects not written: {some_of(unread, _SHOWN)}")

    def classes(self) -> Mapping[str, int]:
        """Return the classes, sorted by name."""
        return number_classes(sorted(self._classes), self._folder.place)

    def _splits(self, keys: Sequence[str], stems: set[str]) -> dict[str, dict[str, str]] | None:
        """Return the splits of each file, without its suffix, and what says so; None without any.

        ``trainval`` is all of ``train`` and ``val``, where these are there.
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
                    told = splits.setdefault(stem, {})
                    told.setdefault(SPLIT_NAMES.get(name, "train"), where)
                else:
                    reason = f"{where}: no XML file"
                    self.ignored.add(LeftOut(key=line[:255], reason=reason))
        if lists:
            return splits
        folders = {stem: stem.partition("/")[0] for stem in stems}
        if not all(name.lower() in SPLIT_NAMES for name in folders.values()):
            return None
        return {stem: {SPLIT_NAMES[name.lower()]: name} for stem, name in folders.items()}

    def _image(self, key: str, data: bytes | str) -> FoundImage | None:
        """Return the image of a file; None where the file is of another kind."""
        folder, slash, own = _FOLDER.sub("JPEGImages", key)[:-4].rpartition("/")
        other = self._folder.name(folder + slash + own)
        unusable = FoundImage(name=other, where=key)
        if isinstance(data, str):
            return replace(unusable, problem=data)
        from defusedxml import ElementTree, common

        try:
            root = ElementTree.fromstring(data)
        except common.DefusedXmlException as error:
            what = "declares XML entities, which are not allowed"
            raise SourceError(what, path=self._folder.place / key) from error
        except (SyntaxError, ValueError, LookupError) as error:
            return replace(unusable, problem=f"invalid XML: {printable(str(error))[:200]}")
        if root.tag != "annotation":
            self.ignored.add(LeftOut(key=key, reason="not a Pascal VOC annotation"))
            return None
        objects = [
            self._object(f"{key}, object {number}", one)
            for number, one in enumerate(root.findall("object"), start=1)
        ]
        said = _text(root, "filename")
        last = said.replace("\\", "/").rpartition("/")[2]
        name = self._folder.name(folder + slash + last) if last else other
        width, height, problem = pixels_of(*(_text(root, f"size/{one}") for one in _SIZE))
        image = FoundImage(name=name, other=other, where=key, source_id=said, problem=problem)
        stems = {normalize("NFC", stem) for stem in (last, last.rpartition(".")[0])}
        if (
            last and normalize("NFC", own) not in stems
        ):  # files are renamed, and what is in them not
            image = replace(image, name=other, other=name, stale=last)
        return replace(image, width=width, height=height, objects=objects)

    def _object(self, what: str, one: Any) -> FoundObject:
        """Return an object; what it says of its parts is not looked at."""
        name, box, problem = _text(one, "name"), one.find("bndbox"), None
        if unfit := label_problem(name):
            problem = f"name {name[:TEXT_SHOWN]!r} {unfit}" if name else "no name"
        elif box is None:
            problem = "no bndbox"
        else:
            self._classes.add(name)
        more: dict[str, object] = {"pose": _text(one, "pose") or None}
        for flag in ("difficult", "truncated"):
            text = _text(one, flag).lower()
            more[flag] = FLAGS.get(text)
            if text not in FLAGS and text not in _UNTOLD:
                self._unread[f"{flag}: {text}"[:40]] += 1
        self._unread.update(child.tag[:40] for child in one if child.tag not in _READ)
        sides = () if box is None else [number_of(_text(box, side)) for side in _SIDES]
        return FoundObject(what=what, box=sides, category=name, more=more, problem=problem)


def _text(element: Any, path: str) -> str:
    return (element.findtext(path) or "").strip()
