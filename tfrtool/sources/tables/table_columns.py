"""What the columns of a table are by their names, and what its labels are: one class an image."""

import enum
import re
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import NamedTuple

from tfrtool.errors import SourceError, UsageError, nearest, printable, some_of
from tfrtool.examples.dtypes import NUMBER
from tfrtool.sources.folders.annotated import annotations_at, write_command
from tfrtool.storage.remote_path import RemotePath

# TensorFlow Recorder and AutoML; torchvision's, Keras' and Hugging Face's tables; Kaggle's.
_PATHS = (
    *("path", "image_path", "filepath", "file_path", "image_uri", "uri", "image"),
    *("file_name", "filename", "file"),
)
_LABELS = ("label", "class", "class_name", "category", "target")
_SPLITS = ("split", "subset", "set", "partition")

_PREFIX = re.compile("^(?:boundingbox|bbox|bndbox|box)(?=.)")


class BoxKind(enum.Enum):
    """What the four numbers of a box are."""

    CORNERS = "left, upper, right and lower side"
    SIZE = "left and upper side, width and height"
    CENTRE = "centre, width and height"


_SIDES = {
    "xmin ymin xmax ymax": BoxKind.CORNERS,
    "x1 y1 x2 y2": BoxKind.CORNERS,
    "x0 y0 x1 y1": BoxKind.CORNERS,
    "left top right bottom": BoxKind.CORNERS,
    "left top width height": BoxKind.SIZE,
    "x y w h": BoxKind.SIZE,
    "x y width height": BoxKind.SIZE,
    "cx cy w h": BoxKind.CENTRE,
    "xcenter ycenter width height": BoxKind.CENTRE,
}
_OTHERS = (
    *("bbox", "bboxes", "boundingbox", "boundingboxes", "bndbox"),
    *("boxes", "encodedpixels", "segmentation", "polygon", "mask", "maskpath"),
)
"""Columns of annotations, as `plain_name` has them."""

_INTEGER = re.compile(r"-?[0-9]{1,18}")
_DIGITS = re.compile(r"[+-]?[0-9]+")
_SHOWN = 10
TEXT_SHOWN = 40
"""Characters of a cell that an error shows."""


class TableColumns(NamedTuple):
    """The names of the columns that count; None for those that aren't there."""

    path: str | None
    label: str | None
    split: str | None


def find_columns(names: Sequence[str], label: str | None = None) -> TableColumns:
    """Find columns by their names, whatever the case; that of labels may be chosen."""
    known = {name.strip().lower(): name for name in reversed(names)}
    usual = (_PATHS, _LABELS, _SPLITS)
    found = TableColumns(
        *(next((known[one] for one in names if one in known), None) for names in usual)
    )
    return found if label is None else found._replace(label=label if label in names else None)


def check_label_column(label: str | None, names: Sequence[str], where: str | Path) -> None:
    """Raise a `UsageError` if a column of labels was chosen that is not there."""
    if label is not None and label not in names:
        shown = printable(label[:TEXT_SHOWN])
        what = f"no column '{shown}' for --label-column; columns include "
        raise UsageError(what + quoted(nearest(label, names)), path=where)


def check_columns(
    names: Sequence[str],
    table: Path,
    *,
    labels: bool = True,
    wanted: Collection[str] = (),
    label: str | None = None,
) -> TableColumns:
    """Find columns; a SourceError if paths or labels lack, are there twice, or are of boxes.

    Some tables need no ``labels``, and boxes that are ``wanted`` as they are don't count. The
    column of labels may be chosen by its name, ``label``.
    """
    columns = find_columns(names, label)
    is_local = not isinstance(table, RemotePath)
    if columns.path is not None:
        check_label_column(label, names, table)
    if columns.path is None or (labels and columns.label is None):
        hint = "use --label-column NAME to read the labels from a column of another name"
        if columns.path is None:
            hint = f"name the path column one of {', '.join(_PATHS)}; the label column one of "
            hint += ", ".join(_LABELS)
        if is_local and (found := annotations_at(table)) is not None:
            hint = f"run {write_command('IMAGES', found)} to write the boxes"
        what = "no path column" if columns.path is None else "no label column"
        expected = "columns such as 'path' and 'label'"
        raise SourceError(what, path=table, expected=expected, found=quoted(names), hint=hint)
    known = [name.strip().lower() for name in names]
    for name in (column.strip().lower() for column in columns if column is not None):
        if known.count(name) > 1:
            raise SourceError(f"duplicate column '{name}'", path=table)
    kind, boxes = box_columns(names) or (None, [])
    if not {*boxes} <= {*wanted}:
        hint = "remove these columns, and keep one row per image"
        if kind is not None:
            hint = f"run {write_command('IMAGES', f'csv:{table}')} to write the boxes"
        what = "has columns of boxes or masks instead of one label per image"
        raise SourceError(what, path=table, found=quoted(boxes), hint=hint)
    return columns


def plain_name(name: str) -> str:
    """Return the letters and digits of a column's name, in lower case."""
    return re.sub("[^a-z0-9]", "", name.lower())


def box_columns(names: Sequence[str]) -> tuple[BoxKind | None, list[str]] | None:
    """Return the columns of boxes, or of masks, and what these hold if it is four numbers."""
    plain = {plain_name(name): name for name in names}
    plain |= {_PREFIX.sub("", one): name for one, name in plain.items() if _PREFIX.match(one)}
    for columns in (*_SIDES, *_OTHERS):
        if plain.keys() >= {*columns.split()}:
            return _SIDES.get(columns), [plain[one] for one in columns.split()]
    return None


def quoted(names: Sequence[str]) -> str:
    """Return names of columns as an error lists them."""
    return some_of([f"'{printable(name.strip()[:TEXT_SHOWN])}'" for name in names], _SHOWN)


def sort_labels(labels: Collection[str]) -> tuple[str, ...]:
    """Return labels in the order of their numbers: by value if all are integers, else as text."""
    numeric = all(map(_INTEGER.fullmatch, labels))
    return tuple(sorted(labels, key=lambda label: (int(label) if numeric else 0, label)))


def number_notice(labels: Sequence[str]) -> str | None:
    """Return what became of labels that are integers; None if they are what they were."""
    changed = [(label, number) for number, label in enumerate(labels) if label != str(number)]
    if not changed or not all(map(_INTEGER.fullmatch, labels)):
        return None
    examples = some_of([f"{label} becomes {number}" for label, number in changed], _SHOWN)
    return f"labels are renumbered from 0 ({examples}); use --labels keep to keep their values"


def refused_label(labels: Collection[str]) -> tuple[str, str, str] | None:
    """Return a label that isn't a class, what labels are instead, and what to do."""
    fraction = next((label for label in labels if not _DIGITS.fullmatch(label)), None)
    if fraction and all(map(NUMBER.fullmatch, labels)):
        what = "labels are numbers with fractions, not classes"
        hint = "use names or integers as labels, or --column NAME:float32 to write the numbers"
        return fraction, what, hint
    for label in labels:
        is_list = label.startswith("[") and label.endswith("]") and re.search("[\"',]", label)
        if is_list or ("|" in label and all(label.split("|"))):
            hint = "use --multi-label '|' to write several labels per image"
            return label, "a cell has several labels", hint
    return None
