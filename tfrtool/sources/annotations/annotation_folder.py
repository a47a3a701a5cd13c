"""A folder of annotation files, here or in a store: what is in it, and what its files hold."""

import os
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path

from tfrtool.errors import SourceError, os_errors_as, os_reason
from tfrtool.sources.folders.listing import list_directory
from tfrtool.sources.folders.store_listing import list_store
from tfrtool.storage.limits import MAX_CLASSES, MAX_METADATA_BYTES
from tfrtool.storage.opening import read_bounded
from tfrtool.storage.remote_path import RemotePath

FLAGS = {
    **dict.fromkeys(("1", "true", "yes"), True),
    **dict.fromkeys(("0", "false", "no"), False),
}
"""What says, in lower case, whether an object is truncated and so on."""

LEADS_OUT = "link leads outside the folder"


def number_of(text: str) -> float | str:
    """Return the number that a text is, and the text itself where it is none."""
    try:
        return float(text) if text.isascii() and "_" not in text else text
    except ValueError:
        return text


def pixels_of(width: str = "", height: str = "") -> tuple[int | None, int | None, str | None]:
    """Return the sides of an image, None where they are 0 or not told, and what is wrong."""
    sides = [number_of(side or "0") for side in (width, height)]
    whole = (isinstance(s, float) and s.is_integer() and 0 <= s < 2**31 for s in sides)
    x, y = (int(s) if fits else None for s, fits in zip(sides, whole, strict=True))
    if x is None or y is None:
        return None, None, "image size is not two whole numbers"
    return (x, y, None) if x and y else (None, None, None)


def number_classes(names: Iterable[str], where: Path) -> Mapping[str, int]:
    """Return classes with numbers from 1, in their order; SourceError if they are too many."""
    numbers = {name: number for number, name in enumerate(islice(names, MAX_CLASSES + 1), start=1)}
    if len(numbers) > MAX_CLASSES:
        raise SourceError(f"more than {MAX_CLASSES:,} classes", path=where)
    return numbers


class AnnotationFolder:
    """Annotation files, and images perhaps; a file's key is its path, with "/" on all systems."""

    def __init__(self, place: Path, images: Path | None) -> None:
        """Say where it is, and in which folder images are looked for."""
        self.place = place
        local = not isinstance(place, RemotePath)
        self._images = images if local else None
        self._real = os.path.join(os.path.realpath(place), "") if local else None  # noqa: PTH118

    def keys(self) -> list[str]:
        """Return the keys of its files, sorted."""
        if isinstance(self.place, RemotePath):
            found = list_store(str(self.place))
        else:
            with os_errors_as(SourceError, self.place):
                os.listdir(self.place)  # noqa: PTH208 - says what is wrong of a file, too
            found = list_directory(str(self.place))
        return sorted(entry.key for entry in found.entries if not entry.problem) if found else []

    def leads_out(self, key: str) -> bool:
        """Return whether a link leads from a key to somewhere outside."""
        return self._real is not None and not os.path.realpath(self.place / key).startswith(
            self._real
        )

    def read(self, keys: Iterable[str], limit: int) -> Iterator[bytes | str]:
        """Yield what files hold; a text says why one can't be read, or has more bytes."""

        def read_one(key: str) -> bytes | str:
            if self.leads_out(key):
                return LEADS_OUT
            try:
                return read_bounded(self.place / key, limit)
            except OSError as error:
                return os_reason(error)

        ahead = isinstance(self.place, RemotePath) and self.place.store.ahead
        return ahead(read_one, keys) if ahead else map(read_one, keys)

    def text(self, key: str, limit: int) -> str:
        """Return the text of a file without which nothing can be understood."""
        (found,) = self.read([key], limit)
        try:
            if isinstance(found, bytes):
                return found.decode("utf-8-sig")
        except UnicodeDecodeError:
            found = "not valid UTF-8"
        raise SourceError(found, path=self.place / key)

    def lines(self, key: str) -> Iterator[tuple[str, str]]:
        """Yield the lines of a list that are not empty, each behind what messages call it."""
        for number, line in enumerate(self.text(key, MAX_METADATA_BYTES).split("\n"), start=1):
            if found := line.strip():
                yield f"{key}, line {number}", found

    def name(self, key: str) -> str:
        """Return an image's path below the folder of images, if it is in there."""
        if self._images is None:
            return key
        name = os.path.relpath(self.place / key, self._images)
        return key if name.startswith("..") else name.replace(os.sep, "/")
