"""What is to be told apart, and what came of it."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from tfrtool.errors import SourceError, UsageError
from tfrtool.records.shard_sets import natural_order
from tfrtool.sources.folders.listing import Entry, is_clutter, is_image_name
from tfrtool.sources.folders.walk import is_pattern, list_directory
from tfrtool.storage.locations import check_no_url

__all__ = ["ImageFile", "Images", "PredictOptions", "Prediction", "Unreadable", "find_images"]


class ImageFile(NamedTuple):
    """A file that should be an image.

    Attributes:
        path: where it is, as it was asked for.
        problem: why it can't be read, if that is known already.
    """

    path: str
    problem: str | None = None


Images = str | os.PathLike[str] | Iterable[str | os.PathLike[str] | ImageFile]
"""Files, directories and patterns, one or several, and what was found by them before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictOptions:
    """How images are told apart.

    Attributes:
        top: how many classes are told of each image, the most probable first.
        batch_size: images that go through the model at a time.
    """

    top: int = 1
    batch_size: int = 32

    def __post_init__(self) -> None:
        for name in ("top", "batch_size"):
            if getattr(self, name) < 1:
                raise UsageError(
                    f"impossible {name.replace('_', ' ')}",
                    expected="at least 1",
                    found=getattr(self, name),
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """What a model says of an image.

    Attributes:
        path: of the image.
        classes: probabilities by class name, the highest first; as many as were asked for.
    """

    path: str
    classes: Mapping[str, float]

    def __post_init__(self) -> None:
        if not self.classes:
            raise ValueError("a prediction has at least one class")

    @property
    def label(self) -> str:
        """The most probable class."""
        return next(iter(self.classes))

    @property
    def probability(self) -> float:
        """Its probability, 0 to 1."""
        return self.classes[self.label]

    def to_json(self) -> Mapping[str, Any]:
        """Return the object that ``predict --json`` prints."""
        classes = {name: round(value, 6) for name, value in self.classes.items()}
        return {
            "path": self.path,
            "label": self.label,
            "probability": classes[self.label],
            "classes": classes,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Unreadable:
    """An image that can't be read.

    Attributes:
        path: where it is, or should be.
        reason: why, in a clause.
    """

    path: str
    reason: str


def find_images(
    arguments: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
) -> tuple[ImageFile, ...]:
    """Find the images that a mix of files, directories and patterns means.

    A file is taken as it is, whatever its name. A directory means all files below it whose names
    promise an image, and a pattern those that it matches, and those below the directories that it
    matches. Each path comes once, in the order of the arguments, those of a directory or a pattern
    in natural order. An argument that means nothing stands for itself, with the reason.
    """
    found: dict[str, ImageFile] = {}
    for argument in (arguments,) if isinstance(arguments, str | os.PathLike) else arguments:
        location = os.fspath(argument)
        check_no_url(location)
        for image in _expand(location):
            found.setdefault(image.path, image)
    return tuple(found.values())


def _expand(argument: str) -> Iterator[ImageFile]:
    if not argument:  # Path would make the current directory of it
        yield ImageFile(argument, "an empty name is no file")
    elif Path(argument).is_dir():
        yield from _below(argument) or [ImageFile(argument, "there are no images in it")]
    elif os.path.lexists(argument) or not is_pattern(argument):
        yield ImageFile(argument)
    else:
        # Path.glob takes neither an absolute pattern nor one that starts with "..".
        matches = sorted(glob.glob(argument, recursive=True), key=natural_order)  # noqa: PTH207
        images = list(_matched(matches))
        yield from images or [ImageFile(argument, "it matches no image")]


def _matched(matches: Iterable[str]) -> Iterator[ImageFile]:
    for match in matches:
        if Path(match).is_dir():
            yield from _below(match)
        elif is_image_name(match) and not is_clutter(Path(match).name):
            yield ImageFile(match)


def _below(directory: str) -> list[ImageFile]:
    try:
        entries = list_directory(directory).entries
    except SourceError as error:
        return [ImageFile(error.path or directory, error.what)]
    files = [entry for entry in entries if isinstance(entry, Entry)]
    images = [entry for entry in files if is_image_name(entry.key)]
    images.sort(key=lambda entry: natural_order(entry.key))
    return [ImageFile(str(Path(directory, entry.key)), entry.problem) for entry in images]
