"""What a source gives: items, how to read them, and an account of everything that is none."""

import builtins
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from tfrtool.errors import SourceError
from tfrtool.examples.objects.record_features import RecordFeatures
from tfrtool.storage.limits import MAX_CLASS_NAME
from tfrtool.storage.sorted_rows import SortedRows

_CONTROL = re.compile("[\0-\x08\x0b-\x1f\x7f-\x9f]")  # but for tabs
_USUAL = RecordFeatures()
Starting = Callable[[], AbstractContextManager[None]]
"""Gives a context in which TensorFlow is loaded: the command line holds its chatter back there."""


class Item(NamedTuple):
    """One labelled image of a source.

    There may be millions: an item holds no more than is needed to find and to describe its bytes.

    Attributes:
        key: its path below the source, with "/" between folders; unique in the source.
        label: name of its class; "" where it has none.
        bytes: size of its file.
        locator: where the bytes are, for the source's reader: an offset, or the row of a table;
            of a file in a folder when it was changed last, in nanoseconds.
        split: the split that the source itself puts it in.
        group: 64 bits that stand for the group it belongs to; 0 where it is alone.
        extra: a packed `ExtraFeatures`; b"" where there is none.
    """

    key: str
    label: str
    bytes: int
    locator: int = 0
    split: str | None = None
    group: int = 0
    extra: builtins.bytes = b""


class ItemTable(SortedRows[Item]):
    """The items of a source, sorted by key: few in memory, many in a file.

    Items are added in any order, before the first look at them; each key once. Several threads may
    read at once. Iterate where you can: a look-up by position takes milliseconds.
    """

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and [*self] == [*other]

    __hash__ = None  # type: ignore[assignment]

    def read(self, start: int = 0, stop: int | None = None) -> Iterator[Item]:
        """Yield the items from one place in the order to another."""
        return map(Item._make, super().read(start, stop))


def label_problem(label: str) -> str | None:
    """Return why a class can't have a name, for files hold one a line; None if it can."""
    try:
        label.encode("utf-8")
    except UnicodeEncodeError:
        return "is not valid UTF-8"
    if len(label) > MAX_CLASS_NAME:
        return f"is longer than {MAX_CLASS_NAME:,} characters"
    if label.splitlines() != [label.strip()]:
        return "is blank, spans several lines, or starts or ends with a space"
    return "contains a control character" if _CONTROL.search(label) else None


class UnfitError(Exception):
    """An image can't be an item; says why."""


class DamagedItemError(SourceError):
    """An item was damaged before it was listed, as a checksum shows: it is a bad image."""


class ItemReader(Protocol):
    """Reads the items of a source; picklable, and used by several threads at once."""

    def read(self, item: Item) -> bytes:
        """Return all bytes of an item.

        What can't be read is an OSError, what isn't any more what was listed a SourceError, and
        what never was an image, as an archive's checksum shows, a DamagedItemError.
        """

    def describe(self, item: Item) -> str:
        """Return where an item is, for an error: a path, and the member of an archive."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """Something that is not written."""

    key: str  # its path below the source
    reason: str  # in a clause


@dataclass(frozen=True, slots=True, kw_only=True)
class AnnotationAccount:
    """What became of the annotations of a source: they are written, or listed here.

    The key of each that is listed is its image's.
    """

    read: int  # how many objects the annotations have
    rejected: tuple[LeftOut, ...] = ()  # those that are left out: the first by their images' keys
    clipped: tuple[LeftOut, ...] = ()  # those clipped to their images, in the same order
    more_rejected: int = 0  # how many there are besides, where they are too many to list
    more_clipped: int = 0
    dropped: int = 0  # how many are dropped because the user wants it


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Everything that was found in a source."""

    items: Sequence[Item]  # the images, sorted by key: a tuple, or an `ItemTable`
    labels: tuple[str, ...]  # names of classes, in the order of their numbers
    reader: ItemReader
    splits: tuple[str, ...] = ()  # that the source itself has, in its order; then each item has one
    rejected: tuple[LeftOut, ...] = ()  # images that can't be items: the first by their keys
    ignored: tuple[LeftOut, ...] = ()  # files without names of images, in the same order
    more_rejected: int = 0  # how many there are besides, where they are too many to list
    more_ignored: int = 0
    notices: tuple[str, ...] = ()  # what a user should know of how it was understood, each a clause
    features: RecordFeatures = _USUAL  # that records have
    annotations: AnnotationAccount | None = None
    pixels: bool = False  # whether the images were made of pixels, which PNG keeps and JPEG doesn't
    grouped: bool = False  # whether items belong to groups

    def __post_init__(self) -> None:
        if not self.splits or not isinstance(self.items, tuple):
            return
        if any(item.split not in self.splits for item in self.items):
            raise ValueError("each item of a source with splits has one of them")
