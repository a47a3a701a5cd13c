"""MNIST's idx files: images in one file and their labels in another, compressed or not."""

import os
import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import BinaryIO, NamedTuple

from tfrtool.errors import SourceError, printable, some_of
from tfrtool.records.shard_sets import SPLIT_NAMES
from tfrtool.sources.formats.unpacked import open_unpacked
from tfrtool.sources.items import Source
from tfrtool.sources.packed.pixel_images import (
    COPY_HINT,
    PixelImage,
    Sides,
    image_sides,
    pixel_source,
)
from tfrtool.sources.source_options import SourceOptions
from tfrtool.storage.limits import MAX_CLASS_FILE_BYTES
from tfrtool.storage.opening import open_regular, read_bounded, size_of_file

IDX_NAME = re.compile(
    r"(?P<stem>.*?)(?P<role>images|labels)[-._]?idx[1-4][-._]u?(?:byte|short|int)(?:\.gz)?",
    re.IGNORECASE,
)
"""Names such as ``train-images-idx3-ubyte.gz``."""

_SPLIT_NAMES = {**SPLIT_NAMES, "t10k": "test"}
_TYPES = {8: "B", 9: "b", 11: "h", 12: "i"}
_UBYTE = 8
_LABELS_AT_ONCE = 4096
_SHOWN = 5


class _IdxPair(NamedTuple):
    """A file of images and that of their labels."""

    images: str
    labels: str
    dataset: str  # what their names start with, such as "emnist-letters"
    split: str


class _IdxArray(NamedTuple):
    path: str
    type: str  # as `struct` has it
    shape: tuple[int, ...]
    file: BinaryIO  # at its first value


def read_idx(
    files: Sequence[str], where: str, scratch: Path, options: SourceOptions
) -> Source | None:
    """List the images of idx files, with the labels in the files next to them."""
    pairs, unused = _find_pairs(_with_partners(files), where)
    datasets = sorted({pair.dataset for pair in pairs})
    splits = [pair.split for pair in pairs]
    if len(datasets) > 1 or len({*splits}) < len(splits):
        shown = some_of([printable(name) for name in datasets], _SHOWN)
        what = "files of several datasets" if len(datasets) > 1 else "several files of one split"
        hint = "pass a quoted pattern such as 'gzip/emnist-letters-*'"
        raise SourceError(what, path=where, found=shown or None, hint=hint)
    names = _read_mapping(pairs[0])
    has_splits, packed = len(pairs) > 1, 0
    for path in (path for pair in pairs for path in (pair.images, pair.labels)):
        with open_regular(path) as file:
            packed += size_of_file(file)
    images = (
        image._replace(split=pair.split if has_splits else "")
        for pair in pairs
        for image in _images_of(pair, names)
    )
    classes = [*names.values()] or None
    source = pixel_source(images, where, scratch, options, packed=packed, names=classes)
    if not unused:
        return source
    shown = some_of([printable(os.path.relpath(path, where)) for path in unused], _SHOWN)
    notice = f"files not read, because others are their copies by name: {shown}"
    return replace(source, notices=(*source.notices, notice))


def _with_partners(files: Sequence[str]) -> Sequence[str]:
    """Return files; with a single one, the one in its folder that belongs to it."""
    if len(files) > 1:
        return files
    folder, name = os.path.split(files[0])
    stem, role, _ = _parsed(name)
    with suppress(OSError), os.scandir(folder or ".") as entries:
        others = [
            entry.path
            for entry in entries
            if IDX_NAME.fullmatch(entry.name) and _parsed(entry.name)[0] == stem
        ]
        return [*files, *(path for path in sorted(others) if _parsed(path)[1] != role)]
    return files


def _parsed(path: str) -> tuple[str, str, str]:
    """Return what the names of a pair have in common, the role of a file, and its split."""
    match = IDX_NAME.fullmatch(os.path.basename(path))  # noqa: PTH119
    if match is None:
        return path, "images", ""  # known by its content
    stem = match["stem"].lower().strip("-._")
    words = re.split("[^a-z0-9]+", stem)
    split = next((_SPLIT_NAMES[word] for word in reversed(words) if word in _SPLIT_NAMES), "")
    return stem, match["role"].lower(), split


def _find_pairs(files: Sequence[str], where: str) -> tuple[list[_IdxPair], list[str]]:
    """Return the pairs of files, and files that others are copies of by their names.

    Of several files with one name, the shortest path counts, which is not compressed.
    """
    by_stem, unused = dict[str, dict[str, str]](), list[str]()
    for path in sorted(files, key=lambda path: (path.count(os.sep), len(path), path)):
        stem, role, _ = _parsed(path)
        if by_stem.setdefault(stem, {}).setdefault(role, path) != path:
            unused.append(path)
    pairs = list[_IdxPair]()
    for stem, paths in sorted(by_stem.items()):
        if lacking := {"images", "labels"} - paths.keys():
            what = f"no file of {lacking.pop()} for {printable(Path(*paths.values()).name)}"
            expected = "train-images-idx3-ubyte and train-labels-idx1-ubyte, or names like these"
            raise SourceError(what, path=where, expected=expected)
        words = [word for word in re.split("[-._]+", stem) if word not in _SPLIT_NAMES]
        split = _parsed(paths["images"])[2]
        pairs.append(_IdxPair(paths["images"], paths["labels"], "-".join(words), split))
    return pairs, unused


def _read_mapping(pair: _IdxPair) -> Mapping[int, str]:
    """Return the classes of EMNIST by number, from its file of characters; empty without one."""
    path = Path(pair.images).parent / f"{pair.dataset}-mapping.txt"
    if not path.is_file():
        return {}
    names = dict[int, str]()
    for number, line in enumerate(read_bounded(path, MAX_CLASS_FILE_BYTES).splitlines(), start=1):
        cells = line.split()
        try:
            label, code = int(cells[0]), int(cells[1])
            names[label] = chr(code) if chr(code).isprintable() else str(code)
        except (ValueError, IndexError, OverflowError) as error:
            what = f"line {number}: expected the number of a class and of its character"
            raise SourceError(what, path=path) from error
    return names


def _images_of(pair: _IdxPair, names: Mapping[int, str]) -> Iterator[PixelImage]:
    with (
        open_unpacked(Path(pair.images), copied=True) as image_file,
        open_unpacked(Path(pair.labels), copied=True) as label_file,
    ):
        images, labels = _open(image_file, pair.images), _open(label_file, pair.labels)
        count, *shape = images.shape
        sides = image_sides(shape)
        if sides is None or images.type != _TYPES[_UBYTE]:
            raise _refused(images, "N x H x W bytes")
        if labels.shape != (count,):
            raise _refused(labels, f"a label for each of {count:,} images")
        start = f"{pair.split}/" if pair.split else ""
        for first in range(0, count, _LABELS_AT_ONCE):
            batch = min(_LABELS_AT_ONCE, count - first)
            numbers = struct.unpack(f">{batch}{labels.type}", _read_values(labels, batch))
            for number, label in enumerate(numbers, first):
                yield _image(f"{start}{number:08d}.png", images, sides, label, names)


def _image(
    key: str, images: _IdxArray, sides: Sides, label: int, names: Mapping[int, str]
) -> PixelImage:
    pixels = _read_values(images, prod(sides))
    problem = f"label {label} has no name" if names and label not in names else None
    return PixelImage(key, names.get(label, str(label)), pixels, sides, problem=problem)


def _open(file: BinaryIO, path: str) -> _IdxArray:
    """Read the header of a file, whose size must be what it says."""
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    head = file.read(4)
    if len(head) < 4 or head[:2] != b"\0\0" or head[2] not in _TYPES or not 1 <= head[3] <= 4:
        expected = "an idx file of bytes or integers, with 1 to 4 axes"
        raise SourceError("invalid idx header", path=path, offset=0, expected=expected)
    axes = file.read(4 * head[3])
    if len(axes) < 4 * head[3]:
        raise SourceError("truncated idx header", path=path, offset=4, hint=COPY_HINT)
    array = _IdxArray(path, _TYPES[head[2]], struct.unpack(f">{head[3]}I", axes), file)
    values = prod(array.shape) * struct.calcsize(f">{array.type}")
    if values != size - file.tell():
        what = f"header declares {values:,} bytes of values"
        found = f"{size - file.tell():,}"
        raise SourceError(what, path=path, expected=found, offset=4, hint=COPY_HINT)
    return array


def _read_values(array: _IdxArray, count: int) -> bytes:
    size = count * struct.calcsize(f">{array.type}")
    if len(data := array.file.read(size)) != size:
        raise SourceError("file was truncated while it was read", path=array.path)
    return data


def _refused(array: _IdxArray, expected: str) -> SourceError:
    found = f"shape {array.shape}"
    return SourceError("unsupported idx file", path=array.path, expected=expected, found=found)
