"""Files of a directory tree, before they get a meaning, and how one is read.

Links are followed, but never in circles, and nothing is opened to list it.
"""

import errno
import fnmatch
import os
import re
import stat
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

from tfrtool.errors import SourceError, os_reason
from tfrtool.records.shard_sets import FOLDER_SPLITS
from tfrtool.sources.items import Item, ItemReader
from tfrtool.storage.limits import MAX_IMAGE_BYTES
from tfrtool.storage.opening import open_descriptor
from tfrtool.storage.remote_path import is_url, remote_path

IMAGE_SUFFIXES = frozenset(
    {".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".gif", ".bmp", ".webp", ".tif", ".tiff"}
    | {".avif", ".pgm", ".ppm", ".heic", ".heics", ".heif", ".heifs", ".hif"}
)
"""Names that promise an image, in lower case. The audit checks what the bytes are."""

_CLUTTER = frozenset({"thumbs.db", "ehthumbs.db", "desktop.ini", "__macosx", "@eadir"})
"""What Windows, macOS and Synology's file servers leave in folders, in lower case."""

_MOST_VISITS = 100
"""Ways to one folder, through links. Folders that link to each other have endlessly many in
practice (a dozen of them: millions), folders that people make have a few."""

_ANY_DEPTH = "**"

_Pattern = Sequence[re.Pattern[str] | None]
"""The parts of a pattern; None for any number of folders."""


def splits_in_order(splits: Iterable[str]) -> tuple[str, ...]:
    """Return splits, each once: the usual ones in their order, and any others by name."""
    found = set(splits)
    usual = [split for split in FOLDER_SPLITS if split in found]
    return (*usual, *sorted(found.difference(usual)))


class Entry(NamedTuple):
    """A file of a tree, a link to one, or what should have been one."""

    key: str  # its path below the tree's root, with "/" between folders
    bytes: int = 0
    # Where its bytes are, for the reader; of a file of its own when it was changed.
    locator: int = 0
    problem: str | None = None  # why it can't be read


class Listing(NamedTuple):
    """All files of a tree but clutter, in any order; of equal keys the last one counts."""

    entries: Iterable[Entry]  # to be read once
    reader: ItemReader  # of those without a problem


@dataclass(frozen=True, slots=True)
class FolderReader:
    """Reads items whose keys are paths below folders, or below the URL of a store.

    Of several folders, the remainder of an item's place is the number.
    """

    folders: tuple[str, ...]
    moved: bool = False  # whether places say, too, how many leading folders of keys files lack

    def read(self, item: Item) -> bytes:
        """Return all bytes of an item's file."""
        path = self.describe(item)
        return read_object(path, item.bytes) if is_url(path) else read_file(path, item.bytes)

    def describe(self, item: Item) -> str:
        """Return the path or URL of an item's file."""
        dropped, number = divmod(item.locator, len(self.folders))
        key = item.key.split("/", dropped)[-1] if self.moved else item.key
        return os.path.join(self.folders[number], key)  # noqa: PTH118 - a Path costs as much


def read_object(url: str, size: int) -> bytes:
    """Return all bytes of an object that is expected to have ``size`` of them, or an OSError."""
    path = remote_path(url)
    data, status = path.store.get(path.key, 0, size + 1)
    if status.size != size:
        raise OSError(errno.ESTALE, "it was changed after it was listed", url)
    return data


def read_file(path: str, size: int) -> bytes:
    """Return all bytes of a file that is expected to have ``size`` of them.

    A tenth of what a buffered file object costs for a small file. An OSError, too, if it is no
    regular file, or larger than any image.
    """
    descriptor = open_descriptor(path)
    try:
        data = os.read(descriptor, size + 1) if size <= MAX_IMAGE_BYTES else b""
        if len(data) == size:
            return data
        # It was changed, or comes from a file system that gives it out in pieces.
        found = bytearray(data)
        while max(size, len(found)) <= MAX_IMAGE_BYTES and (part := os.read(descriptor, 1 << 20)):
            found += part
        if max(size, len(found)) > MAX_IMAGE_BYTES:
            raise OSError(errno.EFBIG, f"larger than {MAX_IMAGE_BYTES:,} bytes", path)
        return bytes(found)
    finally:
        os.close(descriptor)


def is_clutter(name: str) -> bool:
    """Return whether a file or folder of this name is hidden, or only the system's own."""
    return name.startswith(".") or name.lower() in _CLUTTER


def is_image_name(key: str) -> bool:
    """Return whether the name of a file promises an image."""
    dot = key.rfind(".")
    return dot >= 0 and key[dot:].lower() in IMAGE_SUFFIXES


def size_problem(size: int) -> str | None:
    """Return why a file of this size is read for no image; None where it can be one."""
    if size <= MAX_IMAGE_BYTES:
        return None
    return f"file too large for an image: {size:,} bytes (limit {MAX_IMAGE_BYTES:,})"


def list_directory(root: str, prefix: str = "", pattern: _Pattern = ()) -> Listing:
    """List all files below a directory that match a pattern, or lie in a folder which does.

    Keys start with the prefix. Depth is bounded by the longest path that the system takes, not by
    Python's stack. A folder that can't be read is a SourceError, when its entries are asked for.
    """
    return Listing(_walk(root, prefix, pattern), FolderReader((root,)))


def _walk(root: str, prefix: str, pattern: _Pattern) -> Iterator[Entry]:
    """Yield the files below a directory.

    With each folder goes a set: how many parts of the pattern its path may have matched.
    """
    pending: list[tuple[str, str, frozenset[int], frozenset[tuple[int, int]]]] = [
        (root, prefix, _skip_any_depth({0}, pattern) if pattern else frozenset({0}), frozenset())
    ]
    visits: Counter[tuple[int, int]] = Counter()
    while pending:
        path, start, matched, above = pending.pop()
        everything = len(pattern) in matched
        try:
            status = os.stat(path)  # noqa: PTH116 - a Path for each folder costs more than the call
            identity = (status.st_dev, status.st_ino)
            if identity in above:
                continue
            visits[identity] += 1
            if visits[identity] > _MOST_VISITS:
                raise SourceError(
                    "symbolic links lead back to this folder",
                    path=path,
                    hint="remove the circular links",
                )
            with os.scandir(path) as entries:
                for entry in entries:
                    if is_clutter(entry.name):
                        continue
                    key = start + entry.name
                    below = matched if everything else _match(entry.name, matched, pattern)
                    if not below:
                        continue
                    if _is(entry.is_dir):
                        pending.append((entry.path, f"{key}/", below, above | {identity}))
                    elif everything or len(pattern) in below:
                        image = is_image_name(key) or not _is(entry.is_file)
                        # The size of other files is of no interest.
                        yield file_entry(entry.path, key) if image else Entry(key)
        except OSError as error:
            reason = f"can't be read: {os_reason(error)}"
            raise SourceError(reason, path=error.filename or path) from error


def _is(test: Callable[[], bool]) -> bool:
    try:
        return test()
    except OSError:
        return False  # a link in a circle, or to where we may not look


def _match(name: str, matched: frozenset[int], pattern: _Pattern) -> frozenset[int]:
    """Return how many parts of a pattern may be matched after one more name."""
    after = set[int]()
    for count in matched:
        if (part := pattern[count]) is None:
            after.add(count)
        elif part.match(name):
            after.add(count + 1)
    return _skip_any_depth(after, pattern)


def _skip_any_depth(matched: set[int], pattern: _Pattern) -> frozenset[int]:
    """Add the counts that follow because ``**`` may match no folder at all."""
    for count, part in enumerate(pattern):
        if part is None and count in matched:
            matched.add(count + 1)
    return frozenset(matched)


def file_entry(path: str, key: str) -> Entry:
    """Return the entry of a path that is not a folder; links may be broken."""
    try:
        found = os.stat(path)  # noqa: PTH116
    except OSError as error:
        if not os.path.islink(path):  # noqa: PTH114
            raise
        if isinstance(error, FileNotFoundError):
            return Entry(key, problem="broken link")
        return Entry(key, problem=f"link can't be followed: {os_reason(error)}")
    if stat.S_ISREG(found.st_mode):
        return Entry(key, found.st_size, found.st_mtime_ns)
    return Entry(key, problem="not a regular file" if is_image_name(key) else None)


def is_pattern(path: str) -> bool:
    """Return whether a path has wildcards; a file of that very name may be meant all the same."""
    return any(character in path for character in "*?[")


def list_matches(pattern: str) -> Listing:
    """List the files that a pattern matches, and all files below the folders that it matches.

    ``*``, ``?`` and ``[...]`` stand for parts of a name, ``**`` for any number of folders.
    Keys start below the folder that the pattern names without wildcards; where it matches files
    in that folder itself, with the folder's name, so that it can be their class.
    """
    parts = pattern.replace(os.sep, "/").split("/")
    fixed = next(number for number, part in enumerate(parts) if is_pattern(part))
    base = os.path.abspath("/".join(parts[:fixed]) + "/" if fixed else ".")  # noqa: PTH100
    wanted = [
        None if part == _ANY_DEPTH else re.compile(fnmatch.translate(part))
        for part in parts[fixed:]
        if part
    ]
    folder, root = "", base
    if len(wanted) == 1 and None not in wanted:
        base, name = os.path.split(base)
        folder = f"{name}/" if name else ""
    entries = iter(list_directory(root, folder, wanted).entries)
    first = next(entries, None)
    if first is None:
        raise SourceError(
            "no files match", path=pattern, expected="a pattern such as 'photos/*/*.jpg'"
        )
    return Listing(entries=chain((first,), entries), reader=FolderReader((base,)))
