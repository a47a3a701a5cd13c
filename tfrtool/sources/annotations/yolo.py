"""YOLO: a description of classes and splits, images, and a text file of labels for each image."""

import json
import os
import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

from tfrtool.errors import SourceError, printable, some_of
from tfrtool.records.shard_sets import SPLIT_NAMES
from tfrtool.sources.annotations.annotation_reader import (
    LINK_OUT,
    NO_BOX,
    AnnotationFolder,
    AnnotationReader,
    AnnotationRequest,
    ParsedImage,
    ParsedObject,
    number_classes,
    numbers_of,
    split_in_name,
    splits_of_folders,
)
from tfrtool.sources.folders.annotated import YAML_NAMES
from tfrtool.sources.folders.listing import is_image_name, list_directory
from tfrtool.sources.items import LeftOut, label_problem
from tfrtool.sources.tables.table_columns import TEXT_SHOWN
from tfrtool.storage.limits import (
    MAX_ANNOTATION_BYTES,
    MAX_CLASS_FILE_BYTES,
    MAX_CLASSES,
    MAX_IMAGE_OBJECTS,
    MAX_YAML_BYTES,
)
from tfrtool.storage.remote_path import AnyPath, RemotePath

_OUTSIDE = re.compile(r"/|[a-z][a-z0-9+.-]*:/|\.\.(?:/|$)", re.IGNORECASE)
_ABSOLUTE = re.compile(r"/|[a-z][a-z0-9+.-]*:/", re.IGNORECASE)
_CLASS = re.compile(r"([0-9]{1,9})(?:\.0*)?")
_POINTS = re.compile(r"([1-9][0-9]{0,2}) ([23])")
_CLASS_LIST = re.compile(r"(?:.*/)?(?:classes\.txt|[^/]+\.names)")
_NO_LABELS = re.compile(r"classes\.txt|readme.*", re.IGNORECASE)
_SPLITS = {"train": "train", "val": "val", "valid": "val", "test": "test"}
_LABEL_FOLDERS = {"images": ("labels",), "image": ("labels", "label")}
_MOST_ENTRIES = 1000
_DEEPEST = 64
"""Parts of a path by which it is looked for."""

_SHOWN = 5
_HINT = "use --root for labels in another folder"
_NO_IMAGE = "no image for this label file"


class YoloReader(AnnotationReader):
    """Reads the labels of images that ``data.yaml``, darknet's files or a list of classes describe.

    See `AnnotationReader`.
    """

    @classmethod
    def open(cls, request: AnnotationRequest) -> Mapping[AnyPath, AnnotationReader]:
        """Return a reader for each folder, or file like ``data.yaml``."""
        folders = request.folders([".yaml", ".yml"])
        return {path: cls(folder, name) for path, folder, name in folders}

    def __init__(self, folder: AnnotationFolder, name: str) -> None:
        """Take the folder, and the name of ``data.yaml`` where it has another."""
        super().__init__()
        self._folder, self._config_name, self._path = folder, name, folder.directory
        self._names: dict[int, str] = {}
        self._used = set[int]()  # classes of labels
        self._points = 0, 0  # of an object, and numbers of each
        self._known = {"."}  # what may be named
        self._lists = set[str]()  # of images
        self._tried = list[str]()  # paths at which no images are
        self._in_source = False  # whether images are in another folder than labels: in SOURCE

    def images(self) -> Iterator[ParsedImage | LeftOut]:
        """Yield the images of each split, with labels or not; and each label without an image."""
        keys = self._folder.keys()
        config, images = self._config(keys), [*filter(is_image_name, keys)]
        if not images and self._folder.images is not None:
            listed = (entry.key for entry in list_directory(str(self._folder.images)).entries)
            images, self._in_source = sorted(filter(is_image_name, listed)), True
        self._known.update(keys, images)
        for folder in {key.rpartition("/")[0] for key in self._known}:
            self._known.update(map("/".join, accumulate([part] for part in folder.split("/"))))
        splits = dict[str, str | None]()
        for key, first, other in self._in_splits(config, images, splits):
            where, problem = f"{self._config_name}, {other}", f"already in split {first}"
            problem = f"{problem}, skipped in {other}"
            yield ParsedImage(name=self._name(key), where=where, problem=problem)
        labels = {key for key in keys if key.endswith(".txt")} - self._lists
        texts = {key: self._labels_of(key, labels) for key in splits}
        used = labels & {*texts.values()}
        if not used:
            key = next(iter(splits))
            tried = some_of([*self._label_keys(key)], _SHOWN)
            what = f"no label files for {len(splits):,} images"
            raise SourceError(
                what,
                path=self._folder.directory,
                expected=f"for {printable(key)} one of {printable(tried)}",
                hint=_HINT,
            )
        contents = self._read(text for text in texts.values() if text in used)
        for key, text in texts.items():
            content, split = next(contents) if text in used else b"", splits[key]
            yield ParsedImage(
                name=self._name(key),
                where=text,
                objects=[self._object(where, cells) for where, cells in _lines(text, content)],
                upright=True,
                split=split and SPLIT_NAMES[split.lower()],
                problem=_problem(content),
            )
        if background := sum(text not in used for text in texts.values()):
            self.notices.append(f"images without a label file, kept as background: {background:,}")
        if self._used - self._names.keys():
            what = f"{self._config_name} names {len(self._names):,} classes"
            self.notices.insert(0, f"{what}, labels use {min(self._used)} to {max(self._used)}")
        folders, unused = {text.rpartition("/")[0] for text in used}, list[str]()
        for key in sorted(labels - used):
            folder, _, name = key.rpartition("/")
            if (folder in folders or "labels" in folder.split("/")) and not _NO_LABELS.match(name):
                unused.append(key)
        for key, content in zip(unused, self._read(unused), strict=True):
            self.ignored.add(LeftOut(key=key, reason=_problem(content) or _NO_IMAGE))
            for where, _ in _lines(key, content):
                yield LeftOut(key=key, reason=f"{where}: {_NO_IMAGE}")

    def _name(self, key: str) -> str:
        return key if self._in_source else self._folder.name(key)

    def _read(self, keys: Iterable[str]) -> Iterator[bytes | str]:
        """Yield the contents of labels; a link that leads out of their folder is a SourceError."""
        wanted = [*keys]
        contents = self._folder.read(wanted, MAX_ANNOTATION_BYTES)
        for key, content in zip(wanted, contents, strict=True):
            if content == LINK_OUT:
                link = self._folder.link_out(key)
                raise SourceError(LINK_OUT, path=link, found=os.path.realpath(link), hint=_HINT)
            yield content

    def _label_keys(self, key: str) -> Iterator[str]:
        """Yield where the labels of an image may be.

        The last folder ``images`` is then ``labels``, or they are next to the image. In a folder of
        their own they may also lack the folder ``images``.
        """
        *folders, name = key[: key.rfind(".")].split("/")
        for at in reversed(range(len(folders))):
            if (others := _LABEL_FOLDERS.get(folders[at])) is not None:
                for other in others:
                    yield "/".join((*folders[:at], other, *folders[at + 1 :], f"{name}.txt"))
                without_images = (*folders[:at], *folders[at + 1 :])
                break
        else:
            without_images = (*folders,)
        yield "/".join((*folders, f"{name}.txt"))
        if self._in_source or self._folder.root is not None:
            yield "/".join((*without_images, f"{name}.txt"))
            yield "/".join(("labels", *without_images, f"{name}.txt"))

    def _labels_of(self, key: str, labels: set[str]) -> str:
        tried = [*self._label_keys(key)]
        return next((one for one in tried if one in labels), tried[0])

    def _in_splits(
        self, config: Mapping[str, Any], images: Sequence[str], splits: dict[str, str | None]
    ) -> Iterator[tuple[str, str | None, str]]:
        """Fill in the split of each image, None for none.

        Yields:
            Each image that is in a second split, with its first and the second.
        """
        base, places = next(iter(_several(config.get("path"))), ""), dict[str, list[str]]()
        entries = [(one, split) for split in _SPLITS for one in _several(config.get(split))]
        for entry, key in entries:
            if (listed := self._find_key(entry, base, key)) is not None:
                places.setdefault(listed, []).append(_SPLITS[key])
        for listed, named_splits in places.items():
            matching = [one for one in named_splits if SPLIT_NAMES[one] == split_in_name(listed)]
            split = (*matching, *named_splits)[0]
            if same := " and ".join(dict.fromkeys(one for one in named_splits if one != split)):
                what = f"{same} has the same images as {split}, and is not written"
                self.notices.append(f"{self._config_name}: {what}")
            for image in self._images_of(listed, images):
                if (known := splits.setdefault(image, split)) != split:
                    yield image, known, split
        if not any(map(config.get, _SPLITS)):  # supervision writes names alone
            splits |= splits_of_folders(images) or dict.fromkeys(images)
        if not splits:
            tried = f"no images in {printable(some_of(self._tried, _SHOWN))}"
            raise SourceError(
                "no images found",
                path=self._path,
                expected="train, val or test with images" if config else "images next to labels",
                found=tried if self._tried else None,
            )

    def classes(self) -> Mapping[str, int]:
        """Return the classes: numbers from 1, where YOLO counts from 0."""
        return {name: number + 1 for number, name in sorted(self._names.items())}

    def _config(self, keys: Sequence[str]) -> Mapping[str, Any]:
        """Return what describes the images, all of it texts, and take the classes from it."""
        top = [key for key in keys if "/" not in key]
        yamls = [key for key in top if key.endswith((".yaml", ".yml"))]
        only = yamls if len(yamls) == 1 else []
        known = next((one for one in (*YAML_NAMES, *only) if one in yamls), "")
        self._config_name = self._config_name or known
        if self._config_name:
            self._path = self._folder.directory / self._config_name
            return self._yaml(self._folder.text(self._config_name, MAX_YAML_BYTES))
        return self._darknet(keys, top)

    def _darknet(self, keys: Sequence[str], top: Sequence[str]) -> Mapping[str, Any]:
        """Return the lists of images next to a list of classes, or those that ``.data`` names."""
        named = [key for key in keys if _CLASS_LIST.fullmatch(key)]
        depth = min((key.count("/") for key in named), default=0)
        lists = [key for key in named if key.count("/") == depth]
        if not lists:
            expected = "a data.yaml, or a classes.txt or obj.names with one class per line"
            raise SourceError("no list of classes", path=self._folder.directory, expected=expected)
        texts = {
            key: self._folder.text(key, MAX_CLASS_FILE_BYTES).rstrip().split("\n") for key in lists
        }
        self._config_name, self._path = lists[0], self._folder.path(lists[0])
        other = next((key for key, names in texts.items() if names != texts[lists[0]]), None)
        if other is not None:
            raise SourceError(f"has other classes than {printable(other)}", path=self._path)
        self._name_classes(dict(enumerate(texts[lists[0]])))
        stems = {key[: key.rfind(".")] for key in top if is_image_name(key)}
        config = {split: f"{split}.txt" for split in _SPLITS if f"{split}.txt" in top}
        config = {split: name for split, name in config.items() if split not in stems}
        for key in [one for one in top if one.endswith(".data")][:1]:
            for line in self._folder.text(key, MAX_YAML_BYTES).splitlines():
                split, _, name = map(str.strip, line.partition("="))
                if split in _SPLITS and name:  # below the folder in which darknet runs
                    config[split] = next((e for e in _ends(name) if e in top), name)
        return config

    def _name_classes(self, names: Mapping[Any, Any]) -> None:
        for number, name in names.items():
            if not (isinstance(name, str) and _CLASS.fullmatch(str(number))):
                raise SourceError("'names' is not a list of class names", path=self._path)
            name = self._names[int(number)] = name.strip()
            if unfit := label_problem(name):
                raise SourceError(f"class name {name[:TEXT_SHOWN]!r} {unfit}", path=self._path)
        if len(number_classes(self._names.values(), self._path)) < len(names):
            raise SourceError("class names have duplicates", path=self._path)

    def _yaml(self, text: str) -> Mapping[str, Any]:
        import yaml

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
        self._name_classes(names)
        if count not in (None, str(len(names))):
            what = f"nc is {printable(str(count)[:TEXT_SHOWN])}, but there are {len(names)} names"
            raise SourceError(what, path=self._path)
        if shape := config.get("kpt_shape"):
            if (match := _POINTS.fullmatch(" ".join(map(str, shape)))) is None:
                raise SourceError("kpt_shape is not [number of points, 2 or 3]", path=self._path)
            self._points = int(match[1]), int(match[2])
        return config

    def _images_of(self, listed: str, images: Sequence[str]) -> Iterable[str]:
        """Return the keys of the images in a folder, or in a list."""
        if not listed.endswith(".txt"):
            return [key for key in images if listed == "." or key.startswith(f"{listed}/")]
        self._lists.add(listed)
        found, known = list[str](), set(images)
        for where, line in self._folder.lines(listed):
            path = line.replace("\\", "/")
            near = posixpath.normpath(posixpath.join(posixpath.dirname(listed), path))
            key = next((one for one in (near, *_ends(path)) if one in known), None)
            if key is not None:
                found.append(key)
            else:
                reason = f"{where}: no such image"
                self.ignored.add(LeftOut(key=line[:255], reason=reason))
        return found

    def _find_key(self, entry: str, base: str, split: str) -> str | None:
        """Return the key of what a path names; None if it is not there.

        Roboflow's ``../train/images`` is ``train/images``. Of an absolute path that this machine
        doesn't have, the end counts. One that leads out of the folder, also by a link, is a
        SourceError.
        """
        folder = self._folder.directory
        here = None if isinstance(folder, RemotePath) else folder
        joined = posixpath.join(base, entry)
        near = posixpath.join(base, entry.removeprefix("../"))
        tried = [_below(one, here) for one in (joined, near, entry)]
        found_key = next((one for one in tried if one in self._known), None)
        resolved = _real(found_key or tried[0], here) if here and not self._in_source else ""
        if here and _OUTSIDE.match(resolved) and os.path.lexists(here / (found_key or tried[0])):
            found = printable((base if _OUTSIDE.match(_below(base, here)) else entry)[:255])
            what = "path leads outside the dataset folder"
            raise SourceError(what, path=self._path, found=found, hint=_HINT)
        if found_key is None and _ABSOLUTE.match(joined):
            found_key = next((one for one in _ends(joined) if one in self._known), None)
            tried += _ends(joined)
        if found_key is None:
            self._tried += dict.fromkeys(tried)
            reason = f"named as {split} in {self._config_name}, but not found"
            self.ignored.add(LeftOut(key=entry[:255], reason=reason))
        elif found_key not in tried[:2]:
            self.notices.append(f"{printable(joined[:255])} is read as {printable(found_key)}")
        return found_key

    def _object(self, where: str, cells: Sequence[str]) -> ParsedObject:
        """Return the object of a line: a box, perhaps with key points, or a polygon."""
        number = _CLASS.fullmatch(cells[0])
        category = ""
        if number:
            self._used.add(int(number[1]))
            category = self._names.get(int(number[1]), "")
        sides = numbers_of(cells[1:]) or ()
        count, each = self._points
        box, points, outline, problem = NO_BOX, None, None, None
        if not category:
            where = f"{where}, class {printable(cells[0][:20])}"
            problem = f"class is not in {self._config_name}"
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


def _ends(path: str) -> list[str]:
    """Return the ends of a path, the longest first."""
    parts = [one for one in path.split("/")[-_DEEPEST:] if one not in ("", ".", "..")]
    return ["/".join(parts[at:]) for at in range(len(parts))]


def _several(entry: object) -> list[str]:
    entries = entry if isinstance(entry, list) else [entry]
    texts = [one for one in entries if isinstance(one, str) and one not in ("", "null", "~")]
    return [one.replace("\\", "/") for one in dict.fromkeys(texts[:_MOST_ENTRIES])]


def _below(path: str, folder: Path | None) -> str:
    """Return a path in its simplest form, an absolute one relative to a local folder."""
    if folder is None or not posixpath.isabs(path):
        return posixpath.normpath(path)
    return _real(path, folder)


def _real(path: str, folder: Path) -> str:
    """Return where a path really leads, relative to where a folder really is."""
    return os.path.relpath(os.path.realpath(folder / path), os.path.realpath(folder))
