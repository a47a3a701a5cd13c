"""The image files that a user means, before any of them is opened."""

import glob
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple, cast

from tfrtool.errors import SourceError
from tfrtool.records.shard_sets import natural_order
from tfrtool.sources.folders.listing import (
    Entry,
    is_clutter,
    is_image_name,
    is_pattern,
    list_directory,
)
from tfrtool.sources.folders.store_listing import StoreReader, list_store
from tfrtool.storage.locations import Paths, as_text
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
        location = os.fspath(argument)
        for image in _stored(location) if is_url(location) else _expand(location):
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
        images: list[ImageFile] = []
        # Path.glob takes neither an absolute pattern nor one that starts with "..".
        for match in sorted(glob.glob(argument, recursive=True), key=natural_order):  # noqa: PTH207
            if Path(match).is_dir():
                images += _below(match)
            elif is_image_name(match) and not is_clutter(Path(match).name):
                images.append(ImageFile(match))
        yield from images or [ImageFile(argument, "it matches no image")]


def _stored(url: str) -> list[ImageFile]:
    shown = as_text(url)  # without what is secret
    try:
        listing = list_store(url)
        if listing is None:
            return [ImageFile(shown)]
        base = cast(StoreReader, listing.reader).url
        images = [ImageFile(f"{base}/{one.key}", one.problem) for one in _images(listing.entries)]
    except SourceError as error:
        return [ImageFile(shown, error.what)]
    return images or [ImageFile(shown, "there are no images in it")]


def _below(directory: str) -> list[ImageFile]:
    try:
        entries = _images(list_directory(directory).entries)
    except SourceError as error:
        return [ImageFile(error.path or directory, error.what)]
    return [ImageFile(str(Path(directory, entry.key)), entry.problem) for entry in entries]


def _images(entries: Iterable[Entry]) -> list[Entry]:
    images = [entry for entry in entries if is_image_name(entry.key)]
    return sorted(images, key=lambda entry: natural_order(entry.key))
