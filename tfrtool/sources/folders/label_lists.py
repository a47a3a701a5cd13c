"""Lists of the labels of a split, as ImageNet, Tiny ImageNet and GTSRB have them."""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import BinaryIO

from tfrtool.errors import SourceError, UsageError, os_errors_as, printable
from tfrtool.records.shard_sets import SPLIT_NAMES, check_split_name
from tfrtool.sources.folders.listing import is_image_name
from tfrtool.sources.formats.csv_rows import csv_rows, detect_delimiter
from tfrtool.sources.formats.table_limits import raw_lines, text_of
from tfrtool.sources.formats.unpacked import open_unpacked
from tfrtool.storage.arguments import as_path
from tfrtool.storage.limits import MAX_ROW_BYTES
from tfrtool.storage.remote_path import AnyPath

_SPLIT = "|".join(SPLIT_NAMES)
_LIST_NAME = re.compile(
    rf"(?:(?P<a>{_SPLIT})_annotations\.txt|LOC_(?P<b>{_SPLIT})_solution\.csv"
    rf"|(?P<c>{_SPLIT})(?:_labels)?\.csv)(?:\.gz)?",
    re.IGNORECASE,
)
_PATHS = ("path", "filepath", "filename", "file", "imagepath", "image", "imageid", "id", "img")
_LABELS = ("label", "class", "classname", "classid", "category", "target", "wnid", "synset")
_BOXES = "predictionstring"
"""Columns as `_plain` has them. That of boxes has a class and four numbers for each box."""

_NUMBER = re.compile(r"-?[0-9]+(?:\.[0-9]+)?")
_MOST_ROWS = 5_000_000
_SHOWN = 40


def split_of_list(key: str) -> str | None:
    """Return the split whose labels a file has by its name, such as ``val_annotations.txt``."""
    match = _LIST_NAME.fullmatch(key.rpartition("/")[2])
    name = match and next(filter(None, match.groups()))
    return SPLIT_NAMES[name.lower()] if name else None


class LabelList:
    """The labels of images in a file, which are found by their paths or their names alone.

    Attributes:
        name: the name of the file.
        labels: the labels that images have.
    """

    def __init__(self, path: AnyPath) -> None:
        """Read a file; SourceError if it can't be read, or is no such list."""
        self.name = path.name
        self._by_path = dict[str, str]()
        self._by_name = dict[str, str | None]()  # None for several labels
        self._named = set[str]()  # that are names of images
        rows = 0
        with os_errors_as(SourceError, path), open_unpacked(path) as file:
            for image, label in _rows(file, path):
                if (rows := rows + 1) > _MOST_ROWS:
                    raise SourceError(f"more than {_MOST_ROWS:,} rows", path=path)
                name = image.replace("\\", "/").removeprefix("./")
                if self._by_path.setdefault(name, label) != label:
                    shown = printable(image[:_SHOWN])
                    raise SourceError(f"image {shown!r} has two labels", path=path)
                base = name.rpartition("/")[2]
                known = self._by_name.setdefault(base, label)
                self._by_name[base] = label if known == label else None
        if not rows:
            raise SourceError("no labels", path=path, expected="an image and its label per line")
        self.labels = frozenset(self._by_path.values())

    def label(self, key: str) -> str | None:
        """Return the label of an image; None if it isn't in the list."""
        for name in _ends(key):
            for spelled in (name, name.rpartition(".")[0]):
                if spelled in self._by_path:
                    self._named.add(spelled)
                    return self._by_path[spelled]
        base = key.rpartition("/")[2]
        for spelled in (base, base.rpartition(".")[0]):
            if (label := self._by_name.get(spelled)) is not None:
                self._named.add(spelled)
                return label
        return None

    @property
    def unused(self) -> int:
        """How many rows have named no image."""
        return max(0, len(self._by_path) - len(self._named))


def read_label_lists(arguments: Iterable[str]) -> dict[str, LabelList]:
    """Return the lists that ``--split-labels`` names, by split."""
    lists = dict[str, LabelList]()
    for argument in arguments:
        split, sign, file = argument.partition("=")
        if not sign or not file:
            what = f"invalid --split-labels {argument!r}"
            raise UsageError(what, expected="SPLIT=FILE, such as validation=val_annotations.txt")
        split = check_split_name(SPLIT_NAMES.get(split.lower(), split))
        if split in lists:
            raise UsageError(f"--split-labels has two lists for split {split!r}")
        lists[split] = LabelList(as_path(file))
    return lists


def _ends(key: str) -> Iterator[str]:
    while key:
        yield key
        key = key.partition("/")[2]


def _plain(name: str) -> str:
    return re.sub("[^a-z0-9]", "", name.lower())


def _rows(file: BinaryIO, path: AnyPath) -> Iterator[tuple[str, str]]:
    """Yield images and their labels."""
    _, first = next(raw_lines(file, path, MAX_ROW_BYTES, 0), (0, b""))
    line = text_of(first, 1, path).strip()
    if not re.search("[\t,;|]", line):
        yield from _spaced_rows(file, path)
        return
    rows: Iterator[list[str]] = filter(any, csv_rows(file, path, detect_delimiter(file, path)))
    names = [cell.strip() for cell in next(rows, [])]
    image, label = 0, 1
    is_header = bool({*map(_plain, names)}.intersection((*_PATHS, *_LABELS, _BOXES)))
    if is_image_name(names[0]) or (len(names) == 2 and not is_header):
        rows = chain([names], rows)
    else:
        image, label = _columns(names, path)
    is_boxes = _plain(names[label]) == _BOXES
    for number, cells in enumerate(rows, start=1):
        if max(image, label) >= len(cells) or not cells[image].strip():
            raise SourceError(f"row {number} has no image or no label", path=path)
        text = cells[label].strip()
        if is_boxes:
            classes = {*text.split()[::5]}
            if len(classes) > 1:
                raise SourceError(f"row {number} has boxes of several classes", path=path)
            text = "".join(classes)
        if text:
            yield cells[image].strip(), text


def _columns(names: Sequence[str], path: AnyPath) -> tuple[int, int]:
    """Return which columns are images and labels."""
    plain = [*map(_plain, names)]
    image = next((plain.index(one) for one in _PATHS if one in plain), None)
    label = next((plain.index(one) for one in (*_LABELS, _BOXES) if one in plain), None)
    if image is not None and label is None and len(names) == 2:
        label = 1 - image
    if image is None or label is None or image == label:
        shown = ", ".join(repr(printable(name[:_SHOWN])) for name in names[:8])
        expected = "columns such as 'path' and 'label', or an image and its label per line"
        raise SourceError("not a list of labels", path=path, expected=expected, found=shown)
    return image, label


def _spaced_rows(file: BinaryIO, path: AnyPath) -> Iterator[tuple[str, str]]:
    """Yield the rows of lines with blanks between an image and its label."""
    for number, raw in raw_lines(file, path, MAX_ROW_BYTES, 0):
        image, *label = text_of(raw, number, path).split() or [""]
        while len(label) > 1 and _NUMBER.fullmatch(label[-1]):  # a box
            label.pop()
        if image and not label:
            raise SourceError(f"line {number} has no label", path=path)
        if image:
            yield image, " ".join(label)
