"""WebDataset as a source: tars whose members that are called alike up to a dot are one sample."""

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from tfrtool.errors import SourceError, printable
from tfrtool.sources.archives.archive_files import Stamp, read_part
from tfrtool.sources.archives.tar_archive import read_headers
from tfrtool.sources.folders.listing import is_image_name
from tfrtool.sources.item_rows import FoundItem, ItemRows
from tfrtool.sources.items import Item, Source
from tfrtool.sources.samples.sample_source import source_of
from tfrtool.sources.source_options import SourceOptions
from tfrtool.sources.tables.table_columns import find_columns
from tfrtool.storage.limits import MAX_ROW_BYTES
from tfrtool.storage.opening import open_regular, stamp_of

MEMBER = re.compile(r"((?:.*/|)[^.]+)[.]([^/]*)", re.DOTALL)
"""A sample's key and a member's extension, as ``webdataset.tariterators`` parts them."""

SKIPPED = re.compile(r"__[^/]*__($|/)")
"""What the library skips."""

_LOOKED_AT = 100
"""Members that tell what a tar is."""

_OFFSET_BITS = 48

_Members = dict[str, tuple[str, int, int]]
"""Of a sample: the name, the place and the size of each, by its extension."""


@dataclass(frozen=True, slots=True)
class TarsReader:
    """Reads items from several tars; a place is the number of one, and an offset in it."""

    tars: tuple[str, ...]
    stamps: tuple[Stamp, ...]  # when they were listed

    def read(self, item: Item) -> bytes:
        """Return all bytes of an item."""
        number, offset = divmod(item.place, 1 << _OFFSET_BITS)
        return read_part(self.tars[number], item.bytes, offset, self.stamps[number])

    def describe(self, item: Item) -> str:
        """Return the path of the tar, and the item's key."""
        return f"{self.tars[item.place >> _OFFSET_BITS]}/{item.key}"


def read_web_dataset(
    files: Sequence[str], where: str, scratch: Path, options: SourceOptions
) -> Source | None:
    """List the images of tars with their labels; None for a tar of another kind, as of folders."""
    with open_regular(files[0]) as file, suppress(ValueError):
        if not any(_tells(members) for members in _sampled(file, _LOOKED_AT)):
            return None
        stamps = []
        for path in files:
            with open_regular(path) as one:
                stamps.append(stamp_of(one))
        samples = (
            (path, sample)
            for number, path in enumerate(files)
            for sample in _samples(path, number, options.label_column, several=len(files) > 1)
        )
        rows, reader = ItemRows(where, options, scratch), TarsReader((*files,), (*stamps,))
        return source_of(rows, files, samples, reader)
    return None


def _tells(members: _Members) -> bool:
    """Return whether a sample tells that a tar is WebDataset's.

    An image in a folder may have JSON or text beside it in a tar of class folders, too.
    """
    image = _image(members)
    if image is None:
        return False
    return "cls" in members or (not members.keys().isdisjoint(("json", "txt")) and "/" not in image)


def _image(members: _Members) -> str | None:
    images = (
        name for end, (name, *_) in members.items() if "." not in end and is_image_name(f".{end}")
    )
    return next(images, None)


def _sampled(file: BinaryIO, most: int | None = None) -> Iterator[_Members]:
    """Yield the members of each sample; of the first ``most`` members if it is given."""
    last, members = "", _Members()
    for number, member in enumerate(read_headers(file)):
        if number == most:
            break
        name = member.name.removeprefix("./")
        found = MEMBER.fullmatch(name)
        if not member.isreg() or found is None or SKIPPED.match(name):
            continue
        key, end = found[1], found[2].lower()
        if key != last and members:
            yield members
            members = {}
        last = key
        members.setdefault(end, (name, member.offset_data, member.size))
    if members:
        yield members


def _samples(
    path: str, number: int, label_column: str | None, *, several: bool
) -> Iterator[FoundItem]:
    """Yield the images of a tar; their keys start with its name where there are several."""
    start, last = f"{Path(path).stem}/" if several else "", ""
    with open_regular(path) as file, open_regular(path) as texts:
        try:
            for members in _sampled(file):
                last = next(iter(members.values()))[0]
                image = _image(members)
                if image is None:
                    yield FoundItem(start + last, problem="no image in the sample")
                    continue
                _, place, size = next(one for one in members.values() if one[0] == image)
                problem = None
                if ".." in image.split("/"):
                    problem = "path leads outside the archive"
                place |= number << _OFFSET_BITS
                label, cells = _told(members, texts, label_column)
                yield FoundItem(start + image, label, size, place, problem, cells)
        except ValueError as error:
            where = f" in or after {printable(last)}" if last else ""
            what = f"truncated or damaged tar archive{where}: {error}"
            raise SourceError(what, path=path, hint="download or copy it again") from error


def _told(
    members: _Members, file: BinaryIO, label_column: str | None
) -> tuple[str, dict[str, object]]:
    """Return the label of a sample, and what may be columns.

    It is the chosen member of ``.json``; or else ``.cls``, or what is called so in ``.json``. The
    rest of that may be columns, and ``.txt`` as ``text``.
    """
    texts, cells, label = dict[str, str](), dict[str, object](), ""
    for end in ("cls", "json", "txt"):
        _, place, size = members.get(end, ("", 0, 0))
        if 0 < size <= MAX_ROW_BYTES:
            file.seek(place)
            with suppress(ValueError):
                texts[end] = file.read(size).decode()
    with suppress(ValueError, RecursionError):
        told = json.loads(texts.get("json", "{}"))
        cells = told if isinstance(told, dict) else {}
        name = find_columns([*cells], label_column).label
        if name is not None and type(cells[name]) in (str, int, list):
            found = cells.pop(name)
            label = json.dumps(found) if isinstance(found, list) else str(found).strip()
    if "txt" in texts:
        cells["text"] = texts["txt"]
    if label_column is None:
        label = texts.get("cls", label).strip()
    return label, cells
