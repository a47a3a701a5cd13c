"""Rows of tables, and the names of their columns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tfrtool.errors import SourceError, printable

__all__ = ["LONGEST_ROW", "Places", "Row", "find_columns", "no_columns"]

# TensorFlow Recorder and AutoML; torchvision's, Keras' and Hugging Face's tables; Kaggle's.
_PATHS = ("path", "image_path", "filepath", "file_path", "image_uri", "uri", "image")
_FILES = ("file_name", "filename", "file")
_LABELS = ("label", "class", "class_name", "category", "target")
_SPLITS = ("split", "subset", "set", "partition")

LONGEST_ROW = 1024 * 1024
"""Bytes. A path and a label take a hundred, columns of captions and boxes some thousand."""

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
    """

    where: str
    path: str = ""
    label: str = ""
    split: str = ""
    problem: str | None = None

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
