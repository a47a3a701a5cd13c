"""Masks: an image per image, whose pixels are classes."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tfrtool.errors import SourceError, printable
from tfrtool.images.masks import class_pixels, mask_text
from tfrtool.sources.annotations.annotation_reader import ParsedImage, ParsedObject, number_classes
from tfrtool.sources.annotations.image_files import ImageFilesReader
from tfrtool.sources.folders.annotated import CLASSES_CSV, is_annotation, without_roles
from tfrtool.sources.folders.listing import is_image_name
from tfrtool.sources.items import LeftOut
from tfrtool.storage.limits import MAX_CLASS_FILE_BYTES, MAX_IMAGE_BYTES

_ENDING = re.compile(
    r"[_-](?:mask|masks|seg|segmentation|label|labels|labelids|gt|(?-i:L))$", re.IGNORECASE
)
_COLORS = {"labelmap.txt": "name:r,g,b", "label_colors.txt": "r g b name"}
"""What the lines of lists of colors are."""
_BACKGROUND, _VOID = 0, "255"
_MOST_VALUES = 256


class MaskReader(ImageFilesReader):
    """Reads PNGs whose values, or colors, are classes; each class of an image is one object.

    See `ImageFilesReader`.
    """

    suffix = ".png"
    expected = "a PNG mask for each image"
    limit = MAX_IMAGE_BYTES

    def __init__(self, *args: Any) -> None:
        """Take files to read, as `ImageFilesReader` does."""
        super().__init__(*args)
        self._names = dict[int | tuple[int, ...], str]()
        self._images = dict[str, str]()  # next to masks, by what `without_roles` returns

    def files(self, keys: Sequence[str]) -> Sequence[str]:
        """Return the files in folders of masks, or else all; and learn the names of classes."""
        for key in self._keys:
            name = key.rpartition("/")[2]
            if name in (*_COLORS, CLASSES_CSV, "classes.txt") and not self._names:
                text = self._folder.text(key, MAX_CLASS_FILE_BYTES)
                try:
                    if name == CLASSES_CSV:
                        self._names = _pixel_values(text)
                    else:
                        self._names = _class_names(text, _COLORS.get(name))
                except ValueError as error:
                    hint = "put names without colors into classes.txt, the name of 0 first"
                    path = self._folder.path(key)
                    raise SourceError(str(error), path=path, hint=hint) from error
        inner = [key for key in keys if any(map(is_annotation, key.split("/")[:-1]))]
        others = {*self._keys}.difference(inner or keys)
        self._images = {without_roles(key): key for key in filter(is_image_name, others)}
        classes = [key for key in inner if "SegmentationClass" in key.split("/")]
        for key in {*inner}.difference(classes) if classes else ():  # VOC's SegmentationObject
            self.ignored.add(LeftOut(key=key, reason="not in SegmentationClass"))
            if self._folder.is_within_images(key):
                self.used.add(self._folder.name(key))
        return classes or inner or keys

    def image_stem(self, key: str) -> str:
        """Return the path of an image: next to masks, or in a folder ``images`` for theirs."""
        stem = _ENDING.sub("", key[: -len(self.suffix)])
        if (known := self._images.get(without_roles(f"{stem}{self.suffix}"))) is not None:
            return self._folder.name(known)
        *folders, name = self._folder.name(stem).split("/")
        return "/".join((*("images" if is_annotation(one) else one for one in folders), name))

    def classes(self) -> Mapping[str, int]:
        """Return the classes in the order of the list, or of their values."""
        names = [name for name in self._names.values() if name] or sorted(self._classes, key=int)
        if not self._names and len(names) > 1:
            names = [name for name in names if name != _VOID]
        return number_classes(dict.fromkeys(names), self._folder.directory)

    def parse(self, key: str, data: bytes) -> Iterator[ParsedImage]:
        """Yield the image of a mask."""
        if self._folder.is_within_images(key):
            self.used.add(self._folder.name(key))
        stem = self.image_stem(key)
        image = ParsedImage(stem, key, other_name=stem.rpartition("/")[2])
        try:
            by_color = any(isinstance(one, tuple) for one in self._names)
            pixels = class_pixels(data, by_color=by_color)
            values = np.unique(pixels)
            if len(values) > _MOST_VALUES:
                raise ValueError(f"mask has {len(values):,} values (limit {_MOST_VALUES})")
        except ValueError as error:
            yield image._replace(problem=str(error))
            return
        height, width = pixels.shape
        objects = list[ParsedObject]()
        for value in values.tolist():
            color = value >> 16, value >> 8 & 255, value & 255
            name = self._names.get(color if by_color else value)
            if value == _BACKGROUND or name == "":
                continue
            if self._names and name is None and (by_color or str(value) != _VOID):
                what = f"{f'color {color}' if by_color else f'value {value}'} has no class"
                objects.append(self.parsed(key, "", None, what))
            elif self._names and name is None:
                self._unread["regions of value 255"] += 1
            else:
                name = name or str(value)
                objects.append(self._object(f"{key}, {name}", name, pixels == value))
        yield image._replace(objects=objects, width=width, height=height)

    def _object(self, where: str, name: str, bitmap: Any) -> ParsedObject:
        xs, ys = np.flatnonzero(bitmap.any(0)), np.flatnonzero(bitmap.any(1))
        box = int(xs[0]), int(ys[0]), int(xs[-1]) + 1, int(ys[-1]) + 1
        high, wide = bitmap.shape
        return self.parsed(
            where,
            name,
            box,
            segmentation=mask_text(bitmap.astype(np.uint8)),
            area=float(bitmap.sum()),
            mask_size=(wide, high),
        )

    def chosen(self, objects: list[ParsedObject]) -> list[ParsedObject]:
        """Drop the value 255, which is "void" next to other values without names."""
        if self._names or self._classes == {_VOID}:
            return objects
        not_void = [one for one in objects if one.category != _VOID]
        self._unread["regions of value 255"] += len(objects) - len(not_void)
        self._unread = +self._unread
        return not_void


def _pixel_values(text: str) -> dict[int | tuple[int, ...], str]:
    """Return the classes by values, of lines with both; that of 0 is the background.

    None if the header is another one: Roboflow's labels of images have the same file name.
    """
    header, *lines = text.removeprefix("\ufeff").rstrip().split("\n")
    names = dict[int | tuple[int, ...], str]()
    if header.partition(",")[0].strip().casefold() != "pixel value":
        return names
    for number, line in enumerate(lines, start=2):
        value, _, name = (part.strip() for part in line.partition(","))
        if not value.isdecimal() or len(value) > 3 or not name or int(value) in names:
            raise ValueError(
                f"line {number} is not a pixel value and a class: {printable(line[:40])}"
            )
        names[int(value)] = name if int(value) else ""
    return names


def _class_names(text: str, form: str | None) -> dict[int | tuple[int, ...], str]:
    """Return the classes by colors, of lines in a form of `_COLORS`, or by values from 0.

    The line of a value is its name; that of 0 is the background.
    """
    names = dict[int | tuple[int, ...], str]()
    for number, line in enumerate(text.rstrip().split("\n")):
        if form is None:
            names[number] = line.strip() if number else ""  # the background
        elif line.strip() and not line.startswith("#"):
            if ":" in form:
                name, color, *_ = (*line.split(":"), "")
                cells = [one.strip() for one in color.split(",")]
            else:
                *cells, name = line.split(None, 3)
            sides = (*(int(one) for one in cells if one.isdecimal() and len(one) < 4),)
            if len(sides) != 3 or len(cells) != 3 or max(sides) > 255:
                raise ValueError(f"line {number + 1} is not {form}: {printable(line[:40])}")
            name = name.strip()
            names[sides] = name if any(sides) and name.lower() != "background" else ""
    return names
