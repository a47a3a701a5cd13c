"""YOLO: ``data.yaml``, folders of images, and a text file of labels for each image."""

import json
import os
import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

from tfrtool.errors import SourceError, printable
from tfrtool.sources.annotations.annotation_reader import (
    NO_BOX,
    AnnotationFolder,
    AnnotationReader,
    ParsedImage,
    ParsedObject,
    number_classes,
    numbers_of,
)
from tfrtool.sources.folders.annotated import YAML_NAMES
from tfrtool.sources.folders.listing import SPLIT_NAMES, is_image_name
from tfrtool.sources.items import LeftOut, label_problem
from tfrtool.sources.tables.table_columns import TEXT_SHOWN
from tfrtool.storage.limits import (
    MAX_ANNOTATION_BYTES,
    MAX_CLASSES,
    MAX_IMAGE_OBJECTS,
    MAX_YAML_BYTES,
)
from tfrtool.storage.remote_path import RemotePath

_OUTSIDE = re.compile(r"/|[a-z][a-z0-9+.-]*:/|\.\.(?:/|$)", re.IGNORECASE)
_CLASS = re.compile(r"([0-9]{1,9})(?:\.0*)?")
_POINTS = re.compile(r"([1-9][0-9]{0,2}) ([23])")
_NO_LABELS = re.compile(r"classes\.txt|readme.*", re.IGNORECASE)
_SPLITS = ("train", "val", "test")
_MOST_ENTRIES = 1000
_NO_IMAGE = "no image for this label file"


class YoloReader(AnnotationReader):
    """Reads the folders of images that a ``data.yaml`` names; see `AnnotationReader`."""

    def __init__(self, folder: AnnotationFolder, name: str | None) -> None:
        """Take the folder, and the name of ``data.yaml`` where it has another."""
        super().__init__()
        self._folder, self._yaml, self._path = folder, name, folder.place
        self._names: dict[int, str] = {}
        self._points = 0, 0  # of an object, and numbers of each
        self._known = {"."}  # what may be named
        self._lists = set[str]()  # of images

    def images(self) -> Iterator[ParsedImage | LeftOut]:
        """Yield the images of each split, with labels or not; and each label without an image."""
        keys = self._folder.keys()
        config = self._config(keys)
        images, splits = [*filter(is_image_name, keys)], dict[str, str]()
        self._known.update(keys)
        for folder in {key.rpartition("/")[0] for key in keys}:
            self._known.update(map("/".join, accumulate([part] for part in folder.split("/"))))
        base = next(iter(_several(config.get("path"))), "")
        entries = [(one, split) for split in _SPLITS for one in _several(config.get(split))]
        for entry, split in entries:
            for key in self._images_of(entry, split, base, images):
                if (first := splits.setdefault(key, split)) != split:
                    where = f"{self._yaml}, {split}"
                    problem = f"already in split {first}, skipped in {split}"
                    yield ParsedImage(name=self._folder.name(key), where=where, problem=problem)
        if not splits:
            expected = "train, val or test with images"
            raise SourceError("no images found", path=self._path, expected=expected)
        labels = {key for key in keys if key.endswith(".txt")} - self._lists
        texts = {key: _labels_of(key) for key in splits}
        used = labels & {*texts.values()}
        present = (text for text in texts.values() if text in used)
        contents = self._folder.read(present, MAX_ANNOTATION_BYTES)
        for key, text in texts.items():
            content = next(contents) if text in used else b""
            yield ParsedImage(
                name=self._folder.name(key),
                where=text,
                objects=[self._object(where, cells) for where, cells in _lines(text, content)],
                upright=True,
                split=SPLIT_NAMES[splits[key]],
                problem=_problem(content),
            )
        if background := sum(text not in used for text in texts.values()):
            self.notices.append(f"images without a label file, kept as background: {background:,}")
        folders, unused = {text.rpartition("/")[0] for text in used}, list[str]()
        for key in sorted(labels - used):
            folder, _, name = key.rpartition("/")
            if (folder in folders or "labels" in folder.split("/")) and not _NO_LABELS.match(name):
                unused.append(key)
        contents = self._folder.read(unused, MAX_ANNOTATION_BYTES)
        for key, content in zip(unused, contents, strict=True):
            self.ignored.add(LeftOut(key=key, reason=_problem(content) or _NO_IMAGE))
            for where, _ in _lines(key, content):
                yield LeftOut(key=key, reason=f"{where}: {_NO_IMAGE}")

    def classes(self) -> Mapping[str, int]:
        """Return the classes: numbers from 1, where YOLO counts from 0."""
        return {name: number + 1 for number, name in sorted(self._names.items())}

    def _config(self, keys: Sequence[str]) -> Mapping[str, Any]:
        """Return what ``data.yaml`` holds, all of it texts, and take the classes from it."""
        top = [key for key in keys if "/" not in key and key.endswith((".yaml", ".yml"))]
        only = top if len(top) == 1 else []
        self._yaml = self._yaml or next((one for one in (*YAML_NAMES, *only) if one in top), None)
        if self._yaml is None:
            expected = "a data.yaml that lists the classes and the image folders"
            raise SourceError("no data.yaml", path=self._folder.place, expected=expected)
        self._path = self._folder.place / self._yaml
        import yaml

        text = self._folder.text(self._yaml, MAX_YAML_BYTES)
        try:
            # Texts alone, so that a class may be called `no`; and no copies of what has an alias.
            found = yaml.load(text, Loader=yaml.BaseLoader)
        except (yaml.YAMLError, ValueError, RecursionError) as error:
            mark = getattr(error, "problem_mark", None)
            reason = f"line {mark.line + 1}: {error.problem}" if mark else str(error)  # type: ignore[union-attr]
            reason = printable(" ".join(reason.split()))[:200]
            raise SourceError(f"invalid YAML: {reason}", path=self._path) from error
        config = found if isinstance(found, dict) else {}
        names, count = config.get("names"), config.get("nc")
        if isinstance(names, list):
            names = dict(enumerate(names))
        if names is None and isinstance(count, str) and _CLASS.fullmatch(count):
            names = {number: f"class{number}" for number in range(min(int(count), MAX_CLASSES + 1))}
        if not isinstance(names, dict) or not names:
            raise SourceError("no classes", path=self._path, expected="a list called names")
        for number, name in names.items():
            if not (isinstance(name, str) and _CLASS.fullmatch(str(number))):
                raise SourceError("'names' is not a list of class names", path=self._path)
            name = self._names[int(number)] = name.strip()
            if unfit := label_problem(name):
                raise SourceError(f"class name {name[:TEXT_SHOWN]!r} {unfit}", path=self._path)
        if len(number_classes(self._names.values(), self._path)) < len(names):
            raise SourceError("'names' has duplicates", path=self._path)
        if count not in (None, str(len(names))):
            what = f"nc is {printable(str(count)[:TEXT_SHOWN])}, but there are {len(names)} names"
            raise SourceError(what, path=self._path)
        if shape := config.get("kpt_shape"):
            if (match := _POINTS.fullmatch(" ".join(map(str, shape)))) is None:
                raise SourceError("kpt_shape is not [number of points, 2 or 3]", path=self._path)
            self._points = int(match[1]), int(match[2])
        return config

    def _images_of(self, entry: str, split: str, base: str, images: Sequence[str]) -> Iterable[str]:
        """Return the keys of the images that an entry of a split means."""
        place = self._inside(entry, base)
        if place is None:
            reason = f"named as {split} in {self._yaml}, but not found"
            self.ignored.add(LeftOut(key=entry, reason=reason))
            return ()
        if not place.endswith(".txt"):
            return [key for key in images if place == "." or key.startswith(f"{place}/")]
        self._lists.add(place)
        found, known = list[str](), set(images)
        for where, line in self._folder.lines(place):
            near = posixpath.normpath(posixpath.join(posixpath.dirname(place), line))
            key = next((one for one in (near, posixpath.normpath(line)) if one in known), None)
            if key is not None:
                found.append(key)
            else:
                reason = f"{where}: no such image"
                self.ignored.add(LeftOut(key=line[:255], reason=reason))
        return found

    def _inside(self, entry: str, base: str) -> str | None:
        """Return the key of what a path names; None if it is not there.

        It is a SourceError if it leads out of the folder, also by a link, but for Roboflow's
        ``../train/images`` for ``train/images``.
        """
        folder = self._folder.place
        here = None if isinstance(folder, RemotePath) else folder
        start, alone, near = (_below(one, here) for one in (base, entry, entry.removeprefix("../")))
        joined, sibling = (posixpath.normpath(posixpath.join(start, one)) for one in (alone, near))
        place = next((one for one in (joined, sibling, alone) if one in self._known), None)
        led = [start, place or sibling]  # Roboflow names folders of splits that it doesn't export
        if here is not None and os.path.lexists(here / (place or joined)):
            led.append(_real(place or joined, here))
        if any(map(_OUTSIDE.match, led)):
            what = "path leads outside the dataset folder"
            found = printable((base if _OUTSIDE.match(start) else entry)[:255])
            hint = f"make its paths relative to {folder}, and remove path:"
            raise SourceError(what, path=self._path, found=found, hint=hint)
        return place

    def _object(self, where: str, cells: Sequence[str]) -> ParsedObject:
        """Return the object of a line: a box, perhaps with key points, or a polygon."""
        number = _CLASS.fullmatch(cells[0])
        category = self._names.get(int(number[1]), "") if number else ""
        sides = numbers_of(cells[1:]) or ()
        count, each = self._points
        box, points, outline, problem = NO_BOX, None, None, None
        if not category:
            problem = f"unknown class {printable(cells[0][:20])}"
        elif len(sides) < len(cells) - 1:
            problem = "a coordinate is not a number"
        elif len(sides) == 4 or (count and len(sides) == 4 + count * each):
            x, y, width, height, *points = sides
            box = x - width / 2, y - height / 2, x + width / 2, y + height / 2
            if each == 2:
                pairs = zip(points[::2], points[1::2], strict=True)
                points = [one for x, y in pairs for one in (x, y, 2.0 if x > 0 or y > 0 else 0.0)]
            if not {*points[2::3]} <= {0, 1, 2}:
                problem = "visibility of a keypoint is not 0, 1 or 2"
        elif not count and len(sides) >= 6 and not len(sides) % 2:
            (x0, y0), (x1, y1) = map(min, ends := (sides[::2], sides[1::2])), map(max, ends)
            box, outline = (x0, y0, x1, y1), json.dumps([sides])
        else:
            problem = f"{len(cells)} columns are neither a box nor a polygon"
        fields = self.fields(keypoints=points and tuple(points), segmentation=outline)
        return ParsedObject(where, category, box, fields, problem, is_relative=True)


def _problem(content: bytes | str) -> str | None:
    if isinstance(content, str):
        return content
    lines = content.count(b"\n")
    return f"{lines:,} lines (limit {MAX_IMAGE_OBJECTS:,})" if lines > MAX_IMAGE_OBJECTS else None


def _lines(key: str, content: bytes | str) -> Iterator[tuple[str, list[str]]]:
    if isinstance(content, str) or _problem(content):
        return
    for number, line in enumerate(content.decode("utf-8-sig", "replace").split("\n"), start=1):
        if cells := line.split():
            yield f"{key}, line {number}", cells


def _labels_of(key: str) -> str:
    """Return the key of an image's labels: the last folder ``images`` is then ``labels``."""
    head, images, tail = f"/{key}".rpartition("/images/")
    stem = f"{head}/labels/{tail}" if images else f"/{key}"
    return f"{stem[1:].rpartition('.')[0]}.txt"


def _several(entry: object) -> list[str]:
    some = entry if isinstance(entry, list) else [entry]
    texts = [one for one in some if isinstance(one, str) and one not in ("", "null", "~")]
    return [one.replace("\\", "/") for one in dict.fromkeys(texts[:_MOST_ENTRIES])]


def _below(path: str, folder: Path | None) -> str:
    """Return a path in its simplest form, an absolute one relative to a local folder."""
    if folder is None or not posixpath.isabs(path):
        return posixpath.normpath(path)
    return _real(path, folder)


def _real(place: str, folder: Path) -> str:
    """Return where a path really leads, relative to where a folder really is."""
    return os.path.relpath(os.path.realpath(folder / place), os.path.realpath(folder))
