"""What annotation files hold before it is checked, and the folders that they lie in."""

import os
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from glob import glob
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from tfrtool.errors import SourceError, os_errors_as, os_reason
from tfrtool.examples.objects.annotation import ObjectAnnotation, Skeleton
from tfrtool.records.shard_sets import SPLIT_NAMES
from tfrtool.sources.folders.listing import is_pattern, list_directory
from tfrtool.sources.folders.store_listing import list_store
from tfrtool.sources.items import LeftOut
from tfrtool.sources.source_options import SourceOptions
from tfrtool.storage.arguments import as_path
from tfrtool.storage.capped_list import CappedList
from tfrtool.storage.limits import MAX_CLASSES, MAX_LISTED, MAX_MASK_PIXELS, MAX_METADATA_BYTES
from tfrtool.storage.opening import read_bounded
from tfrtool.storage.remote_path import AnyPath, RemotePath

FLAGS: dict[object, bool] = {
    **{flag: flag for flag in (False, True)},
    **dict.fromkeys(("1", "true", "yes"), True),
    **dict.fromkeys(("0", "false", "no"), False),
}
"""Values of flags such as ``truncated``, in lower case."""

Box = tuple[float, float, float, float]
NO_BOX: Box = (0.0, 0.0, 0.0, 0.0)
BAD_BOX = "box is not four numbers"


def known_flags(attributes: Mapping[str, Any]) -> dict[str, bool]:
    """Return the attributes that are fields of `ObjectAnnotation`, too."""
    flags = dict[str, bool]()
    for name, value in attributes.items():
        if name.lower() in ("difficult", "truncated") and isinstance(value, str | int):
            value = value.lower() if isinstance(value, str) else value
            flags |= {name.lower(): FLAGS[value]} if value in FLAGS else {}
    return flags


class ParsedObject(NamedTuple):
    """An object as its annotation file has it: numbers are finite, but may make no sense."""

    where: str  # the annotation, as messages call it: "annotation 17", "labels/1.txt, line 3"
    category: str  # the name of its class
    box: Box  # xmin, ymin, xmax, ymax, in any order
    fields: tuple[Any, ...]  # valid values of `ObjectAnnotation`, from its id on
    problem: str | None = None  # why the object can't be used
    is_relative: bool = False  # whether lengths are in shares of the image's sides, not in pixels
    mask_size: tuple[int, int] | None = None  # width and height of a mask of run lengths


class ParsedImage(NamedTuple):
    """An image as its annotation file has it; nothing of it is trusted."""

    name: str  # its path, mostly below the folder of images
    where: str  # the annotation, as messages call it: "labels/1.txt", "image 17"
    objects: Sequence[ParsedObject] = ()
    width: int | None = None  # in pixels; None where the file has none
    height: int | None = None
    other_name: str = ""  # tried after ``name``; both may lack a suffix
    source_id: str = ""
    split: str | None = None
    problem: str | None = None  # why none of its objects can be used
    upright: bool = False  # whether annotations are for the image as EXIF turns it, if in doubt
    stale_name: str = ""  # the name in its file that differs from ``name``, which is preferred
    group: str = ""  # images of one group are in one split


def masks_problem(masks: int, width: int, height: int) -> str | None:
    """Return why the masks of an image of this size exceed the limit, or None."""
    if masks * abs(width * height) > MAX_MASK_PIXELS:
        return f"masks have more than {MAX_MASK_PIXELS:,} pixels in total"
    return None


class AnnotationReader(ABC):
    """Reads annotation files.

    A reader that `KINDS` names has a class method ``open``, which returns the readers of an
    `AnnotationRequest` by their paths. They open their files when images are asked for. A file
    that can't be used at all is a `SourceError` with its path and the place in it.

    Attributes:
        notices: what a user should know, each a clause; complete once all images are read.
        ignored: files and fields that were not read.
        skeletons: names of key points and lines between them, by classes.
        optional: the fields of `ObjectAnnotation` that some objects have.
        used: annotation files that are images, by their paths below the folder of images.
    """

    def __init__(self) -> None:
        """Start with an empty account."""
        self.notices: list[str] = []
        self.ignored = CappedList[LeftOut](MAX_LISTED)
        self.skeletons: dict[str, Skeleton] = {}
        self.optional, self.used = set[str](), set[str]()

    @abstractmethod
    def images(self) -> Iterator[ParsedImage | LeftOut]:
        """Yield all images, also those with problems, and each object without an image."""

    @abstractmethod
    def classes(self) -> Mapping[str, int]:
        """Return, from the first image on, for each class its number in a label map, > 0."""

    def fields(self, **fields: Any) -> tuple[Any, ...]:
        """Return the fields of an object; those that are None are not known."""
        known = {name: value for name, value in fields.items() if value is not None}
        self.optional.update(known)
        return ObjectAnnotation(0, 0, 0, 0, 0, **known)[5:]


@dataclass(frozen=True, slots=True, kw_only=True)
class AnnotationRequest:
    """What ``--annotations`` names of one kind.

    Attributes:
        paths: files, folders or patterns, as the user typed them.
        images: the folder of images, if SOURCE is one.
        scratch: a folder for what is too much for memory.
        options: how the source is understood.
        root: a second folder for files, if the kind takes one.
    """

    paths: Sequence[str]
    images: Path | None
    scratch: Path
    options: SourceOptions
    root: AnyPath | None = None

    def files(self) -> list[AnyPath]:
        """Return the paths, and the files that each pattern matches."""
        return [path for text in self.paths for path in _matching(text)]

    def folders(self, suffixes: Sequence[str]) -> "Iterator[tuple[AnyPath, AnnotationFolder, str]]":
        """Yield each path, its folder, and the name of the file if the path has such a suffix."""
        for path in map(as_path, self.paths):
            is_file = path.suffix.lower() in suffixes
            folder = AnnotationFolder(path.parent if is_file else path, self.images, self.root)
            yield path, folder, path.name if is_file else ""


def _matching(text: str) -> list[AnyPath]:
    """Return the path that a text is, or the files that it matches as a pattern."""
    path = as_path(text)
    if not is_pattern(text) or path.exists():
        return [path]
    if isinstance(path, RemotePath):
        with os_errors_as(SourceError, path):
            matches: list[AnyPath] = [*path.matching()]
    else:
        paths = map(Path, glob(text, recursive=True))  # noqa: PTH207 - of any folder
        matches = [path for path in paths if path.is_file()]
    if not matches:
        raise SourceError("no annotation files match", path=text)
    return sorted(matches, key=str)


LINK_OUT = "link leads outside the folder"


class AnnotationFolder:
    """Annotation files, and images perhaps; a file's key is its path, with "/" on all systems."""

    def __init__(
        self, directory: AnyPath, images: Path | None, root: AnyPath | None = None
    ) -> None:
        """Take the folder, and the one in which images are looked for.

        Files may also be in a second folder, ``root``; of equal keys, those in the first count.
        """
        self.directory, self.root = directory, root
        local = not isinstance(directory, RemotePath)
        self.images = images if local else None
        self._second = set[str]()  # keys of files in the second folder
        places = [one for one in (directory, root) if one and not isinstance(one, RemotePath)]
        self._real = tuple(os.path.join(os.path.realpath(one), "") for one in places)  # noqa: PTH118

    def keys(self) -> list[str]:
        """Return the keys of its files, sorted."""
        first = _keys_in(self.directory)
        self._second = {*_keys_in(self.root)}.difference(first) if self.root else set()
        return sorted([*first, *self._second])

    def path(self, key: str) -> AnyPath:
        """Return the path of a file."""
        return (self.root if self.root and key in self._second else self.directory) / key

    def files(self, is_wanted: Callable[[str], object]) -> Iterator[str]:
        """Yield the keys of files that are wanted; none of them may lead out of the folder."""
        for key in self.keys():
            if is_wanted(key):
                if self._leads_out(key):
                    raise SourceError(LINK_OUT, path=self.path(key))
                yield key

    def _leads_out(self, key: str) -> bool:
        path = self.path(key)
        if isinstance(path, RemotePath):
            return False
        return not os.path.realpath(path).startswith(self._real)

    def link_out(self, key: str) -> Path:
        """Return the part of a file's path that leads out of the folder, the file or a folder."""
        path = Path(self.path(key))
        links = [
            one for one in path.parents if one.is_relative_to(self.directory) and one.is_symlink()
        ]
        return links[-1] if links else path

    def read(self, keys: Iterable[str], limit: int) -> Iterator[bytes | str]:
        """Yield the contents of files; a text is the reason why one can't be read."""

        def read_one(key: str) -> bytes | str:
            if self._leads_out(key):
                return LINK_OUT
            try:
                return read_bounded(self.path(key), limit)
            except OSError as error:
                return os_reason(error)

        ahead = isinstance(self.directory, RemotePath) and self.directory.store.ahead
        return ahead(read_one, keys) if ahead else map(read_one, keys)

    def text(self, key: str, limit: int) -> str:
        """Return the text of a required file, or raise a `SourceError`."""
        (found,) = self.read([key], limit)
        try:
            if isinstance(found, bytes):
                return found.decode("utf-8-sig")
        except UnicodeDecodeError:
            found = "not valid UTF-8"
        raise SourceError(found, path=self.path(key))

    def lines(self, key: str) -> Iterator[tuple[str, str]]:
        """Yield the lines of a list that are not empty, each after its place for messages."""
        for number, line in enumerate(self.text(key, MAX_METADATA_BYTES).split("\n"), start=1):
            if found := line.strip():
                yield f"{key}, line {number}", found

    def is_within_images(self, key: str) -> bool:
        """Return whether a file is in the folder of images, too; true where that isn't known."""
        return self.images is None or self._below_images(key) is not None

    def name(self, key: str) -> str:
        """Return an image's path below the folder of images, if it is in there."""
        return self._below_images(key) or key

    def _below_images(self, key: str) -> str | None:
        if self.images is None:
            return None
        name = os.path.relpath(self.path(key), self.images).replace(os.sep, "/")
        return None if name == ".." or name.startswith("../") else name


def _keys_in(directory: AnyPath) -> list[str]:
    if isinstance(directory, RemotePath):
        found = list_store(str(directory))
    else:
        with os_errors_as(SourceError, directory):
            os.listdir(directory)  # noqa: PTH208 - fails for a file, too
        found = list_directory(str(directory))
    return [entry.key for entry in found.entries if not entry.problem] if found else []


def splits_of_folders(keys: Iterable[str]) -> dict[str, str]:
    """Return the folder that names the split of each file, if all are in folders of splits."""
    found = dict[str, str]()
    for key in keys:
        folders = key.split("/")[:-1]
        split = next((one for one in folders if one.lower() in SPLIT_NAMES), None)
        if split is None:
            return {}
        found[key] = split
    return found


def split_in_name(name: str) -> str | None:
    """Return the split in the name of a file or folder, such as ``instances_train2017.json``."""
    words = re.findall("[a-z]+", name.lower())
    return next((SPLIT_NAMES[word] for word in words if word in SPLIT_NAMES), None)


def check_splits(splits: Mapping[AnyPath, str | None]) -> None:
    """Raise a `SourceError` if the names of some files, but not of all, have a split."""
    without = next((path for path, split in splits.items() if split is None), None)
    if without is not None and any(splits.values()):
        what = "file name has no split, although the names of other annotation files have one"
        raise SourceError(what, path=without, expected="a name such as instances_train2017.json")


def numbers_of(texts: Iterable[str]) -> tuple[float, ...] | None:
    """Return the numbers that texts are; None unless all may be positions in an image."""
    try:
        found = tuple(float(one) if one.isascii() and "_" not in one else 1e9 for one in texts)
    except ValueError:
        return None
    return found if all(-1e9 < one < 1e9 for one in found) else None


def pixels_of(width: str = "", height: str = "") -> tuple[int | None, int | None, str | None]:
    """Return the sides of an image, None where they are 0 or missing, and what is wrong."""
    sides = numbers_of((width or "0", height or "0"))
    if sides is None or not all(side.is_integer() and side >= 0 for side in sides):
        return None, None, "image size is not two whole numbers"
    return (*map(int, sides), None) if all(sides) else (None, None, None)  # type: ignore[return-value]


def number_classes(names: Iterable[str], where: AnyPath) -> Mapping[str, int]:
    """Return classes with numbers from 1, in their order; SourceError if they are too many."""
    numbers = {name: number for number, name in enumerate(islice(names, MAX_CLASSES + 1), start=1)}
    if len(numbers) > MAX_CLASSES:
        raise SourceError(f"more than {MAX_CLASSES:,} classes", path=where)
    return numbers
