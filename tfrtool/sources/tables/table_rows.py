"""Rows of tables, and the names of their columns."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tfrtool.errors import SourceError, printable

__all__ = [
    "Places",
    "Row",
    "check_no_boxes",
    "find_columns",
    "no_columns",
    "other_columns",
]

# TensorFlow Recorder and AutoML; torchvision's, Keras' and Hugging Face's tables; Kaggle's.
_PATHS = ("path", "image_path", "filepath", "file_path", "image_uri", "uri", "image")
_FILES = ("file_name", "filename", "file")
_LABELS = ("label", "class", "class_name", "category", "target")
_SPLITS = ("split", "subset", "set", "partition")

_PREFIX = re.compile("^(?:boundingbox|bbox|bndbox|box)(?=.)")
_BOXES = (
    *(tuple(corners.split()) for corners in ("xmin ymin xmax ymax", "x1 y1 x2 y2", "x0 y0 x1 y1")),
    *(tuple(sides.split()) for sides in ("left top right bottom", "left top width height")),
    *(tuple(sides.split()) for sides in ("x y w h", "x y width height", "cx cy w h")),
    ("xcenter", "ycenter", "width", "height"),
    *((name,) for name in ("bbox", "bboxes", "boundingbox", "boundingboxes", "bndbox", "boxes")),
    *((name,) for name in ("encodedpixels", "segmentation", "polygon", "mask", "maskpath")),
)
"""Columns of annotations, without what is no letter or digit in their names."""

_COLUMNS_SHOWN = 10
_TEXT_SHOWN = 40

Places = tuple[int | None, int | None, int | None]
"""The positions of the path, the label and the split among names; None where it isn't there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row of a table; it lives only until its item is made.

    Attributes:
        where: its number as a user would say it: "row 17", counted with the header and with empty
            rows, or "line 17" of JSON Lines.
        path: the path, as it is written; "" where there is none.
        label: the label, without blanks around it; "" where there is none.
        split: the split, likewise, in lower case.
        problem: why it is no row of this table; None where it is one.
        dropped: the names of its other columns.
    """

    where: str
    path: str = ""
    label: str = ""
    split: str = ""
    problem: str | None = None
    dropped: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.where:
            raise ValueError("a row has a number")


def find_columns(names: Sequence[str]) -> Places:
    """Find the columns of paths, labels and splits by their names, whatever the case.

    Raises:
        ValueError: a name that counts is there twice.
    """
    known = [name.strip().lower() for name in names]
    places = (
        _find(known, (*_PATHS, *_FILES)),
        _find(known, _LABELS),
        _find(known, _SPLITS),
    )
    for place in places:
        if place is not None and known.count(known[place]) > 1:
            raise ValueError(f"'{known[place]}' is there twice")
    return places


def other_columns(names: Sequence[str], places: Places) -> tuple[str, ...]:
    """Return the names of the columns that nothing is taken from."""
    return tuple(name for position, name in enumerate(names) if position not in places)


def check_no_boxes(names: Sequence[str], table: Path) -> None:
    """Raise if a table has columns of boxes or masks.

    Raises:
        SourceError: it has; its rows are objects in images, and no images.
    """
    plain = {_PREFIX.sub("", re.sub("[^a-z0-9]", "", name.lower())): name for name in names}
    found = next((box for box in _BOXES if all(part in plain for part in box)), None)
    if found is not None:
        raise SourceError(
            "has boxes or masks, and not one label an image",
            path=table,
            found=", ".join(f"'{printable(plain[part][:_TEXT_SHOWN])}'" for part in found),
            hint="annotations can't be written yet; a table without these columns, with one row "
            "an image, can",
        )


def _find(names: Sequence[str], usual: Iterable[str]) -> int | None:
    return next((names.index(name) for name in usual if name in names), None)


def no_columns(found: Sequence[str], table: Path) -> SourceError:
    """Return the error for a table whose columns have none of the usual names."""
    shown = [f"'{printable(name.strip()[:_TEXT_SHOWN])}'" for name in found[:_COLUMNS_SHOWN]]
    more = f" and {len(found) - _COLUMNS_SHOWN} more" if len(found) > _COLUMNS_SHOWN else ""
    return SourceError(
        "no columns of paths and labels",
        path=table,
        expected="columns such as 'path' and 'label'",
        found=", ".join(shown) + more,
        hint=f"paths: {', '.join((*_PATHS, *_FILES))}; labels: {', '.join(_LABELS)}",
    )
