"""The image files that a user means, before any of them is opened."""

import os
from pathlib import Path
from typing import NamedTuple

from tfrtool.errors import SourceError
from tfrtool.records.shard_sets import natural_order
from tfrtool.sources.folders.listing import (
    is_image_name,
    is_pattern,
    list_directory,
    list_matches,
)
from tfrtool.sources.folders.store_listing import list_store
from tfrtool.sources.items import Item
from tfrtool.storage.arguments import Paths, as_text
from tfrtool.storage.remote_path import is_url


class ImageFile(NamedTuple):
    """A file that should be an image, and why it can't be read, if that is known already."""

    path: str
    problem: str | None = None


def find_images(arguments: Paths) -> tuple[ImageFile, ...]:
    """Find the images that a mix of files, directories, patterns and URLs of such means.

    A file is taken as it is, whatever its name. A directory means all files below it whose names
    promise an image, and a pattern those that it matches, and those below the directories that it
    matches. Each path comes once, in the order of the arguments, those of a directory or a pattern
    in natural order. An argument that means nothing stands for itself, with the reason.
    """
    found: dict[str, ImageFile] = {}
    for argument in (arguments,) if isinstance(arguments, str | os.PathLike) else arguments:
        for image in _expand(os.fspath(argument)):
            found.setdefault(image.path, image)
    return tuple(found.values())


def _expand(argument: str) -> list[ImageFile]:
    shown = as_text(argument) if is_url(argument) else argument  # without what is secret
    if not argument:  # Path would make the current directory of it
        return [ImageFile(argument, "the path is empty")]
    try:
        if is_url(argument):
            listing = list_store(argument)
        elif Path(argument).is_dir():
            listing = list_directory(argument)
        else:
            named = os.path.lexists(argument) or not is_pattern(argument)
            listing = None if named else list_matches(argument)
        if listing is None:
            return [ImageFile(shown)]
        images = []
        for entry in listing.entries:
            if is_image_name(entry.key):
                path = listing.reader.describe(Item(key=entry.key, label="-", bytes=entry.bytes))
                images.append(ImageFile(_as_given(path, argument), entry.problem))
    except SourceError as error:
        return [ImageFile(shown if is_url(argument) else error.path or shown, error.what)]
    images.sort(key=lambda image: natural_order(image.path))
    return images or [ImageFile(shown, "no images found")]


def _as_given(path: str, argument: str) -> str:
    """Return the path of a listed file, relative where the argument is: patterns' are absolute."""
    if is_url(path):
        return path
    relative = is_pattern(argument) and not Path(argument).is_absolute()
    return str(Path(os.path.relpath(path) if relative else path))
