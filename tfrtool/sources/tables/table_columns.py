"""What the columns of a table are by their names, and what its labels are: one class an image."""

import enum
import re
from collections.abc import Collection, Sequence
from typing import NamedTuple

from tfrtool.errors import SourceError, UsageError, nearest, printable, some_of
from tfrtool.examples.dtypes import NUMBER
from tfrtool.sources.folders.annotated import annotations_at, write_command
from tfrtool.sources.source_options import SourceOptions
from tfrtool.storage.remote_path import AnyPath, RemotePath

# TensorFlow Recorder and AutoML; torchvision's, Keras' and Hugging Face's tables; Kaggle's.
_PATHS = (
    *("path", "image_path", "filepath", "file_path", "image_uri", "uri", "image"),
    *("file_name", "filename", "file"),
)
_IDS = (
    *("img", "images", "filepaths", "filenames", "fname", "photo", "picture", "imagepath"),
    *("imgpath", "imagename", "imgname", "imagefile", "imagefilename", "imageindex", "imageid"),
    *("imgid", "id", "name"),
)
"""Columns, as `plain_name` has them, that are of paths where their values name files."""

_LABELS = ("label", "class", "class_name", "category", "target", "classid", "class_id")
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


def find_columns(
    names: Sequence[str], label: str | None = None, path: str | None = None
) -> TableColumns:
    """Find columns by their names, whatever the case; those of labels and paths may be chosen."""
    known = {name.strip().lower(): name for name in reversed(names)}
    usual = (_PATHS, _LABELS, _SPLITS)
    found = TableColumns(
        *(next((known[one] for one in names if one in known), None) for names in usual)
    )
    if path is not None:
        found = found._replace(path=column_named(path, names))
    return found if label is None else found._replace(label=column_named(label, names))


def column_named(name: str, names: Sequence[str]) -> str | None:
    """Return the column of a name, which may have spaces around it; None if there is none."""
    if name in names:
        return name
    return next((one for one in names if one.strip() == name.strip()), None)


def path_candidates(names: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return columns that are of paths by their names, and those that may be."""
    known, plain = dict[str, str](), dict[str, str]()
    for name in reversed(names):
        known[name.strip().lower()] = name
        plain[plain_name(name)] = name
    sure = [known[name] for name in _PATHS if name in known]
    return sure, [plain[one] for one in _IDS if one in plain and plain[one] not in sure]


def check_chosen_columns(
    options: SourceOptions, names: Sequence[str], where: str | AnyPath
) -> None:
    """Raise a `UsageError` if a column of paths or labels was chosen that is not there."""
    for option, chosen in (
        ("--path-column", (options.path_column,)),
        ("--label-column", (options.label_column,)),
        ("--label-columns", options.label_columns),
    ):
        for name in chosen:
            if name is not None and column_named(name, names) is None:
                shown = printable(name[:TEXT_SHOWN])
                what = f"no column '{shown}' for {option}; columns include "
                raise UsageError(what + quoted(nearest(name, names)), path=where)


def check_columns(
    names: Sequence[str],
    table: AnyPath,
    options: SourceOptions,
    *,
    labels: bool = True,
    wanted: Collection[str] = (),
) -> TableColumns:
    """Find columns; a SourceError if paths or labels lack, are there twice, or are of boxes.

    Some tables need no ``labels``, and boxes that are ``wanted`` as they are don't count. The
    columns of paths and labels may be chosen by the ``options``.
    """
    columns = find_columns(names, options.label_column, options.path_column)
    if columns.path is not None or options.path_column is not None:
        check_chosen_columns(options, names, table)
    if columns.path is None or (labels and columns.label is None):
        hint = "use --label-column NAME to read the labels from a column of another name, or "
        hint += "--label-columns A,B for columns of 0 and 1"
        if columns.path is None:
            hint = "use --path-column NAME to read the paths from a column of another name"
        found = None if isinstance(table, RemotePath) else annotations_at(table)
        if found is not None:
            hint = f"run {write_command('IMAGES', found)} to write the boxes"
        what = "no path column" if columns.path is None else "no label column"
        expected = "columns such as 'path' and 'label'"
        raise SourceError(what, path=table, expected=expected, found=quoted(names), hint=hint)
    known = [name.strip().lower() for name in names]
    flags = [column_named(one, names) for one in options.label_columns]
    for name in (one.strip().lower() for one in (*columns, *flags) if one is not None):
        if known.count(name) > 1:
            raise SourceError(f"duplicate column '{name}'", path=table)
    kind, boxes = box_columns(names) or (None, [])
    if not {*boxes} <= {*wanted, *flags}:
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
