"""Tables with the pixels of an image in each row: in one cell, or in a cell each.

FER2013 has ``emotion,pixels,Usage``, Kaggle's MNIST ``label,pixel0,...,pixel783``, and other
copies of MNIST a label and 784 numbers without a header.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from math import isqrt
from pathlib import Path
from typing import NamedTuple

from tfrtool.errors import SourceError, UsageError, os_errors_as, printable, some_of
from tfrtool.records.shard_sets import SPLIT_NAMES, check_split_name
from tfrtool.sources.formats.csv_rows import csv_rows, detect_delimiter
from tfrtool.sources.formats.unpacked import open_unpacked
from tfrtool.sources.items import LeftOut, Source
from tfrtool.sources.packed.packed_source import split_of_file
from tfrtool.sources.packed.pixel_images import PixelColumns, PixelImage, Sides, pixel_source
from tfrtool.sources.source_options import SourceOptions
from tfrtool.sources.tables.table_columns import (
    TEXT_SHOWN,
    check_chosen_columns,
    find_columns,
    quoted,
)
from tfrtool.storage.arguments import as_path
from tfrtool.storage.limits import MAX_LISTED
from tfrtool.storage.opening import open_regular, size_of_file

TABLE_SUFFIXES = (".csv", ".tsv", ".csv.gz", ".tsv.gz")

_FEWEST_PIXELS = 16
_CELL_NAMES = {"pixels": 2, "pixel": 2, "pixel_values": 2, "image": 16, "img": 16}
"""Columns of all pixels of an image, and the fewest numbers that show that a cell has them."""

_PIXEL_NAME = re.compile(r"(?:pixel|pix|px|p)?[-_ ]?([0-9]+)(?:[-_x]([0-9]+))?", re.IGNORECASE)
_NUMBER = re.compile(r"-?[0-9][0-9.]*")
_LABELS = ("emotion",)
_SPLITS = ("usage",)
_FER_SPLITS = {"publictest": "validation", "privatetest": "test"}
_NUMBERS_OF_ROWS = frozenset({"", "id", "index", "image_id", "imageid", "unnamed: 0"})
_NUMBERED = tuple(bytes(range(first, first + _FEWEST_PIXELS)) for first in (0, 1))
_SHOWN = 5


class _PixelTable(NamedTuple):
    """Where the pixels of a table are, and what its other columns mean."""

    pixels: Sequence[int]  # columns of a pixel each, or the only one of all pixels
    others: Mapping[str, int]  # columns by name
    label: str | None
    split: str | None
    delimiter: str
    has_header: bool = True


@dataclass
class _Notes:
    """What a user should know of the rows, once all are read."""

    sides: set[Sides] = field(default_factory=set)
    splits: set[str] = field(default_factory=set)  # of FER2013, as they are written

    def texts(self) -> Iterator[str]:
        """Yield clauses."""
        for height, width, channels in sorted(self.sides):
            if channels == 3:
                what = f"{height * width * 3:,} values per row are read as {width} x {height} RGB"
                yield f"{what} pixels"
        for split in sorted(self.splits):
            yield f"{split} is written as split {_FER_SPLITS[split.lower()]}"


def read_pixel_tables(
    files: Sequence[str], where: str, scratch: Path, options: SourceOptions
) -> Source | None:
    """List the images in tables of pixels; None if there are none.

    Of several tables, those without pixels are listed as ignored, and those without labels as
    rejected.
    """
    forms, rejected = dict[str, _PixelTable](), list[LeftOut]()
    for path in files:
        if form := _form_of(path, options):
            forms[path] = form
    if not forms:
        return None
    names = [Path(path).name for path in files if path not in forms]
    ignored = [LeftOut(key=name, reason="not a table of pixels") for name in names[:MAX_LISTED]]
    if not options.writes_columns or options.about_labels:
        forms, rejected = _split_by_labels(forms, options)
    if len({(form.label, form.split, len(form.pixels)) for form in forms.values()}) > 1:
        shown = some_of([printable(Path(path).name) for path in forms], _SHOWN)
        what = "tables of pixels have different columns"
        raise SourceError(what, path=where, found=shown, hint="pass one of the tables")
    notes = _Notes()
    source = _source_of(forms, notes, where, scratch, options)
    notices = [*source.notices, *notes.texts()]
    if headless := [Path(path).name for path, form in forms.items() if not form.has_header]:
        shown = some_of([printable(name) for name in headless], _SHOWN)
        notices.append(f"no header: the first cell of each row is read as the label ({shown})")
    return replace(
        source,
        notices=tuple(notices),
        ignored=tuple(ignored),
        rejected=(*rejected, *source.rejected),
    )


def _split_by_labels(
    forms: Mapping[str, _PixelTable], options: SourceOptions
) -> tuple[dict[str, _PixelTable], list[LeftOut]]:
    """Return the tables with labels, and the others as rejected; an error if none has labels."""
    labelled = {path: form for path, form in forms.items() if form.label is not None}
    reason, unlabelled = "no label column", [path for path in forms if path not in labelled]
    if not labelled:
        names = [*forms[unlabelled[0]].others]
        check_chosen_columns(options, names, as_path(unlabelled[0]))
        hint = "use --label-column NAME to read the labels from a column of another name"
        found = quoted(names) or "pixels alone"
        raise SourceError(reason, path=unlabelled[0], found=found, hint=hint)
    return labelled, [LeftOut(key=Path(path).name, reason=reason) for path in unlabelled]


def _source_of(
    forms: Mapping[str, _PixelTable],
    notes: _Notes,
    where: str,
    scratch: Path,
    options: SourceOptions,
) -> Source:
    splits = {path: split_of_file(path) if len(forms) > 1 else "" for path in forms}
    splits = splits if all(splits.values()) else dict.fromkeys(forms, "")
    packed = 0
    for path in forms:
        with os_errors_as(SourceError, path), open_regular(path) as file:
            packed += size_of_file(file)
    images = (
        image
        for path, form in forms.items()
        for image in _images_of(path, form, splits[path], notes)
    )
    labels = {form.label for form in forms.values()}
    columns = PixelColumns(
        next(iter(labels)) if len(labels) == 1 else None,
        [*dict.fromkeys(name for form in forms.values() for name in _unused(form))],
        tabular=True,
    )
    return pixel_source(images, where, scratch, options, packed=packed, names=None, columns=columns)


def _unused(form: _PixelTable) -> Iterator[str]:
    return (name for name in form.others if name not in (form.label, form.split))


def _form_of(path: str, options: SourceOptions) -> _PixelTable | None:
    """Return the form of a table by its first rows; None if it has no pixels."""
    with suppress(SourceError, OSError), open_unpacked(as_path(path)) as file:
        delimiter = detect_delimiter(file, as_path(path))
        rows = filter(any, csv_rows(file, as_path(path), delimiter))
        head = [[cell.strip() for cell in row] for row in islice(rows, 2)]
        if not head:
            return None
        first = head[0]
        if _is_headless(first):
            pixels = range(1, len(first))
            return _PixelTable(pixels, {"label": 0}, "label", None, delimiter, has_header=False)
        found = _pixel_columns(first) or (_pixel_cell(first, head[1]) if len(head) > 1 else ())
        if not found:
            return None
        at = {name: number for number, name in enumerate(first) if number not in {*found}}
        roles = find_columns([*at], options.label_column)
        lower = {name.lower(): name for name in at}
        split = roles.split or next((lower[one] for one in _SPLITS if one in lower), None)
        label = roles.label
        if options.label_column is None and label is None:
            label = next((lower[one] for one in _LABELS if one in lower), None)
            likely = [one for one in at if one != split and one.lower() not in _NUMBERS_OF_ROWS]
            if label is None and len(likely) == 1 and not options.writes_columns:
                label = likely[0]
        return _PixelTable(found, at, label, split, delimiter)
    return None


def _is_headless(cells: Sequence[str]) -> bool:
    """Return whether a first row is a label and the pixels of an image, and not numbered names."""
    pixels = _pixels_in(cells[1:])
    if pixels is None or len(pixels) < _FEWEST_PIXELS or _sides_of(len(pixels)) is None:
        return False
    return bytes(pixels[:_FEWEST_PIXELS]) not in _NUMBERED


def _pixel_columns(names: Sequence[str]) -> Sequence[int]:
    """Return the columns of a pixel each, in the order of their numbers."""
    found = dict[tuple[int, int], int]()
    for number, name in enumerate(names):
        if match := _PIXEL_NAME.fullmatch(name):
            found[int(match[1]), int(match[2] or -1)] = number
    return [found[key] for key in sorted(found)] if len(found) >= _FEWEST_PIXELS else ()


def _pixel_cell(names: Sequence[str], cells: Sequence[str]) -> Sequence[int]:
    """Return the column that has all pixels in a cell."""
    for name, fewest in _CELL_NAMES.items():
        for number, (column, cell) in enumerate(zip(names, cells, strict=False)):
            if column.lower() == name:
                texts = _texts_in(cell)
                if len(texts) >= fewest and all(map(_NUMBER.fullmatch, texts)):
                    return (number,)
    return ()


def _texts_in(cell: str) -> list[str]:
    """Return the numbers in a cell of all pixels, as they are written."""
    return cell.strip("[] \t\n").replace(",", " ").split()


def _images_of(
    path: str, form: _PixelTable, file_split: str, notes: _Notes
) -> Iterator[PixelImage]:
    sides: Sides | None = None
    if len(form.pixels) > 1 and (sides := _sides_of(len(form.pixels))) is None:
        what = f"{len(form.pixels):,} columns of pixels don't make a square image"
        raise SourceError(what, path=path)
    start, number = f"{Path(path).name.partition('.')[0]}/", 0
    width = max(*form.pixels, *form.others.values(), 0) + 1
    problem: str | None
    table = as_path(path)
    with os_errors_as(SourceError, table), open_unpacked(table) as file:
        for row, cells in enumerate(csv_rows(file, table, form.delimiter), start=1):
            if not any(cells) or (form.has_header and row == 1):
                continue
            key, number = f"{start}{number:08d}.png", number + 1
            if len(cells) < width or any(cells[width:]):
                problem = f"{len(cells):,} cells, but the table has {width:,} columns"
                yield PixelImage(key, problem=problem, row=row)
                continue
            values, problem = _read_pixels(cells, form, sides)
            sides = sides or (None if values is None else _sides_of(len(values)))
            named = {name: cells[number].strip() for name, number in form.others.items()}
            split = named.get(form.split or "", "") or file_split
            if problem is None:
                split, problem = _split_name(split, notes)
            if problem is not None or values is None or sides is None:
                yield PixelImage(key, problem=problem, row=row)
                continue
            label = named.get(form.label or "", "")
            yield PixelImage(key, label, values, sides, split, named, row=row)
    if sides is not None:
        notes.sides.add(sides)


def _read_pixels(
    cells: Sequence[str], form: _PixelTable, sides: Sides | None
) -> tuple[bytes | None, str | None]:
    """Return the pixels of a row, and why it has none."""
    texts = [cells[number] for number in form.pixels]
    if len(texts) == 1:
        texts = _texts_in(texts[0])
    values = _pixels_in(texts)
    if values is None:
        wrong = next((text for text in texts if _pixels_in([text]) is None), "")
        shown = printable(wrong[:TEXT_SHOWN])
        return None, f"pixel '{shown}' is not an integer from 0 to 255"
    if sides is None:
        problem = None if _sides_of(len(values)) else "don't make a square image"
        return values, problem and f"{len(values):,} pixels {problem}"
    wanted = sides[0] * sides[1] * sides[2]
    if len(values) != wanted:
        return None, f"{len(values):,} pixels, but the rows above have {wanted:,}"
    return values, None


def _pixels_in(texts: Sequence[str]) -> bytes | None:
    """Return the pixels that texts are; None unless all are integers from 0 to 255."""
    texts = [text.strip() for text in texts]
    joined = "".join(texts)
    if not joined.isascii() or not joined.isdecimal():
        return None
    try:
        return bytes(map(int, texts))
    except ValueError:
        return None


def _sides_of(count: int) -> Sides | None:
    for channels in (1, 3):
        side = isqrt(count // channels)
        if side * side * channels == count and side > 1:
            return side, side, channels
    return None


def _split_name(text: str, notes: _Notes) -> tuple[str, str | None]:
    """Return the name of a split, and why a text isn't one."""
    lower = text.lower()
    if lower in _FER_SPLITS:
        notes.splits.add(text)
        return _FER_SPLITS[lower], None
    try:
        return check_split_name(SPLIT_NAMES.get(lower, lower)) if text else "", None
    except UsageError:
        return "", f"invalid split name '{printable(text[:TEXT_SHOWN])}'"
