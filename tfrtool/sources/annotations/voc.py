"""Pascal VOC: an XML file per image, and lists of the images of each split."""

import re
from collections.abc import Iterator, Sequence
from typing import Any
from unicodedata import normalize

from tfrtool.errors import SourceError, printable
from tfrtool.records.shard_sets import SPLIT_NAMES
from tfrtool.sources.annotations.annotation_reader import (
    FLAGS,
    ParsedImage,
    ParsedObject,
    numbers_of,
    pixels_of,
)
from tfrtool.sources.annotations.image_files import ImageFilesReader
from tfrtool.sources.folders.listing import is_image_name
from tfrtool.sources.items import LeftOut, label_problem

_SET = re.compile(r"((?:.*/)?)ImageSets/Main/(train|val|trainval|test)\.txt")
_LISTS = ("train", "trainval", "val", "test")
_FOLDER = re.compile(r"(?<![^/])Annotations(?=/)")
_SIDES = ("xmin", "ymin", "xmax", "ymax")
_READ = {"name", "bndbox", "pose", "difficult", "truncated"}
_UNKNOWN = ("", "unspecified", "unknown")


class VocReader(ImageFilesReader):
    """Reads Pascal VOC's XML files; see `ImageFilesReader`."""

    suffix = ".xml"
    expected = "Annotations/*.xml, or XML files next to the images"

    def image_stem(self, key: str) -> str:
        """Return the path of a file's image without its suffix, in the folder of images."""
        return _FOLDER.sub("JPEGImages", key)[: -len(self.suffix)]

    def splits(self, keys: Sequence[str], stems: set[str]) -> dict[str, dict[str, str]] | None:
        """Return the splits of each file, from lists or folders.

        ``trainval`` is all of ``train`` and ``val``, where these exist.
        """
        lists = {(match[2], match[1]): key for key in keys if (match := _SET.fullmatch(key))}
        splits: dict[str, dict[str, str]] = {}
        for (name, root), key in sorted(lists.items(), key=lambda entry: _LISTS.index(entry[0][0])):
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
        return splits if lists else super().splits(keys, stems)

    def parse(self, key: str, data: bytes) -> Iterator[ParsedImage]:
        """Yield the image of a file; none if the file is of another kind."""
        folder, slash, stem = self.image_stem(key).rpartition("/")
        image = ParsedImage(name=self._folder.name(folder + slash + stem), where=key)
        from defusedxml import ElementTree, common

        try:
            root = ElementTree.fromstring(data)
        except common.DefusedXmlException as error:
            what = "declares XML entities, which are not allowed"
            raise SourceError(what, path=self._folder.directory / key) from error
        except (SyntaxError, ValueError, LookupError) as error:
            yield image._replace(problem=f"invalid XML: {printable(str(error))[:200]}")
            return
        if root.tag != "annotation":
            self.ignored.add(LeftOut(key=key, reason="not a Pascal VOC annotation"))
            return
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
        yield ParsedImage(
            name, key, objects, width, height, other, named, problem=problem, stale_name=stale
        )

    def _object(self, where: str, element: Any) -> ParsedObject:
        """Return an object; its ``part`` elements are not read."""
        bndbox, name = element.find("bndbox"), _text(element, "name")
        problem = "no bndbox" if bndbox is None and not label_problem(name.strip()) else None
        box = None if bndbox is None else numbers_of(_text(bndbox, side) for side in _SIDES)
        flags = dict[str, Any]()
        for flag in ("difficult", "truncated"):
            text = _text(element, flag).lower()
            flags[flag] = FLAGS.get(text)
            if text not in FLAGS and text not in _UNKNOWN:
                self._unread[f"{flag}: {text}"[:40]] += 1
        others = [child for child in element if child.tag not in _READ]
        lines = [_outline(one) for one in others if one.tag == "polygon"]
        if all(lines):
            others = [one for one in others if one.tag != "polygon"]
        named = [*element.iterfind("attributes/attribute")]
        leaves = ({one.tag: text} for one in others if not len(one) and (text := _text(one, ".")))
        pairs = ({one.findtext("name") or "": one.findtext("value") or ""} for one in named)
        attributes = self.united(*leaves, *pairs)
        self._unread.update(one.tag[:40] for one in others if len(one) and one.tag != "attributes")
        if (occluded := attributes.get("occluded")) in FLAGS:
            attributes["occluded"] = FLAGS[occluded]
        pose = _text(element, "pose") or None
        known = {"attributes": attributes, "pose": pose, **flags}
        if lines and all(lines) and problem is None and box is not None:
            outlined = self.outlined(where, name, lines, **known)
            if outlined.problem:
                return outlined
            return outlined._replace(box=(box[0], box[1], box[2], box[3]))
        return self.parsed(where, name, box, problem, **known)


def _outline(polygon: Any) -> tuple[float, ...]:
    """Return the points of a polygon, which are elements x1, y1, x2, y2 ...; () for others."""
    names = [f"{axis}{at}" for at in range(1, len(polygon) // 2 + 1) for axis in "xy"]
    if len(names) < 6 or [one.tag for one in polygon] != names:
        return ()
    return numbers_of(_text(one, ".") for one in polygon) or ()


def _text(element: Any, path: str) -> str:
    return (element.findtext(path) or "").strip()
