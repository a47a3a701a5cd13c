"""Rows of tables, and what the names of their columns say."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tfrtool.errors import SourceError, printable

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
TEXT_SHOWN = 40
"""Characters of a cell that an error shows."""


class Row(NamedTuple):
    """One row of a table.

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


class Places(NamedTuple):
    """The positions of columns; None for those that aren't there."""

    path: int | None
    label: int | None
    split: int | None

    def others(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return the names of the columns that nothing is taken from."""
        return tuple(name for position, name in enumerate(names) if position not in self)


def find_columns(names: Sequence[str]) -> Places:
    """Find columns by their names, whatever the case; a ValueError if one is there twice."""
    known = [name.strip().lower() for name in names]
    places = Places(
        *(
            next((known.index(name) for name in usual if name in known), None)
            for usual in ((*_PATHS, *_FILES), _LABELS, _SPLITS)
        )
    )
    for place in places:
        if place is not None and known.count(known[place]) > 1:
            raise ValueError(f"'{known[place]}' is there twice")
    return places


def needed_columns(names: Sequence[str], table: Path) -> Places:
    """Find the columns of a table that must have paths and labels, and none of boxes."""
    try:
        places = find_columns(names)
    except ValueError as error:
        raise SourceError(f"its column {error}", path=table) from error
    if places.path is None or places.label is None:
        raise no_columns(names, table)
    check_no_boxes(names, table)
    return places


def check_no_boxes(names: Sequence[str], table: Path) -> None:
    """Raise a SourceError if the rows of a table are boxes or masks, and no images."""
    plain = {_PREFIX.sub("", re.sub("[^a-z0-9]", "", name.lower())): name for name in names}
    found = next((box for box in _BOXES if all(part in plain for part in box)), None)
    if found is not None:
        raise SourceError(
            "has boxes or masks, and not one label an image",
            path=table,
            found=quoted([plain[part] for part in found]),
            hint="annotations can't be written yet; a table without these columns, with one row "
            "an image, can",
        )


def quoted(names: Sequence[str]) -> str:
    """Return names of columns as an error lists them."""
    shown = ", ".join(
        f"'{printable(name.strip()[:TEXT_SHOWN])}'" for name in names[:_COLUMNS_SHOWN]
    )
    more = f" and {len(names) - _COLUMNS_SHOWN:,} more" if len(names) > _COLUMNS_SHOWN else ""
    return shown + more


def no_columns(found: Sequence[str], table: Path) -> SourceError:
    """Return the error for a table whose columns have none of the usual names."""
    return SourceError(
        "no columns of paths and labels",
        path=table,
        expected="columns such as 'path' and 'label'",
        found=quoted(found),
        hint=f"paths: {', '.join((*_PATHS, *_FILES))}; labels: {', '.join(_LABELS)}",
    )
