"""Folders of annotation files that name their images, mostly one file per image."""

import json
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar

from tfrtool.errors import SourceError, printable, some_of
from tfrtool.examples.objects.annotation import attributes_text
from tfrtool.images.masks import outline_points
from tfrtool.records.shard_sets import SPLIT_NAMES
from tfrtool.sources.annotations.annotation_reader import (
    BAD_BOX,
    NO_BOX,
    AnnotationFolder,
    AnnotationReader,
    AnnotationRequest,
    Box,
    ParsedImage,
    ParsedObject,
    known_flags,
    number_classes,
    splits_of_folders,
)
from tfrtool.sources.items import label_problem
from tfrtool.sources.tables.table_columns import TEXT_SHOWN
from tfrtool.storage.limits import MAX_ANNOTATION_BYTES, MAX_IMAGE_OBJECTS, MAX_OUTLINE_POINTS
from tfrtool.storage.remote_path import AnyPath
from tfrtool.storage.sorted_rows import SortedRows

_SHOWN = 8


class ImageFilesReader(AnnotationReader):
    """Reads annotation files of a folder, at any depth; see `AnnotationReader`.

    Attributes:
        suffix: of the files, in lower case.
        expected: which files there should be.
        limit: bytes of a file.
    """

    suffix: ClassVar[str]
    expected: ClassVar[str]
    limit: ClassVar[int] = MAX_ANNOTATION_BYTES

    @classmethod
    def open(cls, request: AnnotationRequest) -> Mapping[AnyPath, AnnotationReader]:
        """Return a reader for each folder or file."""
        folders = request.folders([cls.suffix])
        return {path: cls(folder, name, request.scratch) for path, folder, name in folders}

    def __init__(self, folder: AnnotationFolder, name: str, scratch: Path) -> None:
        """Take files to read.

        Args:
            folder: of the files.
            name: of the only file to read; "" for all.
            scratch: a folder for what is too much for memory.
        """
        super().__init__()
        self._folder, self._name, self._classes = folder, name, set[str]()
        self._rows = SortedRows[Any](scratch)
        self._unread = Counter[str]()  # fields of objects
        self._keys: Sequence[str] = ()  # of all files

    def images(self) -> Iterator[ParsedImage]:
        """Yield the images of each file."""
        keys = self._folder.keys()
        suffixed = [key for key in keys if key.lower().endswith(self.suffix)]
        self._keys = keys
        files = [self._name] if self._name else [*self.files(suffixed)]
        if not files:
            what = f"no {self.suffix[1:].upper()} files"
            raise SourceError(what, path=self._folder.directory, expected=self.expected)
        at = 0
        for key, data in zip(files, self._folder.read(files, self.limit), strict=True):
            if isinstance(data, str):
                images: Iterable[ParsedImage] = [
                    ParsedImage(self._folder.name(self.image_stem(key)), key, problem=data)
                ]
            else:
                images = self.parse(key, data)
            for image in images:
                self.check_count(key, len(image.objects))
                objects = [tuple(one) for one in image.objects]
                stem = key[: -len(self.suffix)]
                self._rows.add((at, stem, objects, tuple(image._replace(objects=()))))
                at += 1
        if not at and (foreign := self.ignored.entries):
            path = self._folder.path(foreign[0].key)
            raise SourceError(foreign[0].reason, path=path, expected=self.expected)
        splits = self.splits(keys, {key[: -len(self.suffix)] for key in files})
        for _, stem, objects, fields in self._rows:
            image = ParsedImage(*fields)
            lists = {} if splits is None else splits.get(stem, {})
            split, *others = (*lists,) or (image.split,)
            problem = image.problem
            if splits is not None and split is None:
                problem = problem or "not in any list of images"
            chosen = self.chosen([ParsedObject(*one) for one in objects])
            yield image._replace(objects=chosen, split=split, problem=problem)
            for other in others:
                problem = f"already in split {split}, skipped in {other}"
                yield ParsedImage(name=image.name, where=lists[str(other)], problem=problem)
        unread = [f"{printable(tag)} ({count:,})" for tag, count in self._unread.most_common()]
        if unread:
            self.notices.append(f"fields of objects not written: {some_of(unread, _SHOWN)}")

    def classes(self) -> Mapping[str, int]:
        """Return the classes, sorted by name."""
        return number_classes(sorted(self._classes), self._folder.directory)

    @abstractmethod
    def parse(self, key: str, data: bytes) -> Iterable[ParsedImage]:
        """Return the images of a file; a `SourceError` if it is refused."""

    def files(self, keys: Sequence[str]) -> Sequence[str]:
        """Return which files with the right suffix are read."""
        return keys

    def image_stem(self, key: str) -> str:
        """Return the path of the image that a file is named like, without its suffix."""
        return key[: -len(self.suffix)]

    def chosen(self, objects: list[ParsedObject]) -> list[ParsedObject]:
        """Return which objects of an image count, once all are known."""
        return objects

    def splits(
        self,
        keys: Sequence[str],  # noqa: ARG002
        stems: set[str],
    ) -> dict[str, dict[str, str]] | None:
        """Return the splits of each file, without its suffix, and the place that names it there.

        None without splits. Folders are splits if all of them have such names.
        """
        folders = splits_of_folders(stems)
        return {stem: {SPLIT_NAMES[name.lower()]: name} for stem, name in folders.items()} or None

    def check_count(self, key: str, count: int) -> None:
        """Raise a `SourceError` if a file has too many objects of one image."""
        if count > MAX_IMAGE_OBJECTS:
            what = f"image has more than {MAX_IMAGE_OBJECTS:,} objects"
            raise SourceError(what, path=self._folder.path(key))

    def named_image(self, key: str, path: str, where: str | None = None) -> ParsedImage:
        """Return an image that a file names: it is next to it, or named like it."""
        stem, last = self.image_stem(key), path.replace("\\", "/").rpartition("/")[2]
        near = self._folder.name("/".join((*stem.split("/")[:-1], last)))
        return ParsedImage(near, where or key, other_name=self._folder.name(stem), upright=True)

    def parsed(
        self,
        where: str,
        category: object,
        box: Sequence[float] | None,
        problem: str | None = None,
        *,
        attributes: Mapping[str, Any] | None = None,
        **fields: Any,
    ) -> ParsedObject:
        """Return an object, whose class becomes known."""
        try:
            fields["attributes"] = attributes_text(attributes or {}) or None
        except ValueError as error:
            problem = problem or str(error)
        name = category.strip() if isinstance(category, str) else ""
        if problem is None and (unfit := label_problem(name)):
            problem = f"class {printable(name[:TEXT_SHOWN])!r} {unfit}" if name else "no class"
        elif problem is None and (box is None or not all(-1e9 < side < 1e9 for side in box)):
            problem = BAD_BOX
        if problem is None:
            self._classes.add(name)
        found: Box = NO_BOX if problem or box is None else (box[0], box[1], box[2], box[3])
        size = fields.pop("mask_size", None)
        object_fields = self.fields(**known_flags(attributes or {}) | fields)
        return ParsedObject(where, name, found, object_fields, problem, mask_size=size)

    def united(self, *parts: Mapping[str, Any]) -> dict[str, Any]:
        """Return all attributes; of equal names, the first counts."""
        found = dict[str, Any]()
        for name, value in chain.from_iterable(part.items() for part in parts):
            if found.setdefault(name, value) != value:
                self._unread[f"another {name[:40]}"] += 1
        return found

    def outlined(
        self, where: str, category: object, lines: Sequence[Sequence[float]], **fields: Any
    ) -> ParsedObject:
        """Return an object with polygons, and the box around them."""
        if not lines or any(len(line) < 6 or len(line) % 2 for line in lines):
            return self.parsed(where, category, None, "outline has fewer than three points")
        if not all(-1e9 < side < 1e9 for line in lines for side in line):
            return self.parsed(where, category, None, "outline has numbers out of range")
        x, y = ([side for line in lines for side in line[at::2]] for at in (0, 1))
        if sum(map(outline_points, lines)) > MAX_OUTLINE_POINTS:
            what = f"outline has more than {MAX_OUTLINE_POINTS:,} points"
            return self.parsed(where, category, None, what)
        text = json.dumps([[*line] for line in lines], separators=(",", ":"))
        box = min(x), min(y), max(x), max(y)
        return self.parsed(where, category, box, segmentation=text, **fields)
