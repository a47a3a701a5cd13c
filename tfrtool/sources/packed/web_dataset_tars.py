"""Images in WebDataset's tars, which are read in place."""

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from tfrtool.errors import SourceError
from tfrtool.sources.archives import OFFSET_BITS, PartReader
from tfrtool.sources.formats.json_rows import parse_json
from tfrtool.sources.formats.tar_samples import TarSample, TarSamples
from tfrtool.sources.item_rows import FoundItem, ItemRows
from tfrtool.sources.items import Source
from tfrtool.sources.packed.packed_source import source_of
from tfrtool.sources.source_options import SourceOptions
from tfrtool.sources.tables.table_columns import find_columns
from tfrtool.storage.limits import MAX_ROW_BYTES
from tfrtool.storage.opening import open_regular, stamp_of

_COPY_HINT = "download or copy it again"
_LOOKED_AT = 100
"""Members that show what kind of tar a file is."""


def read_web_dataset(
    files: Sequence[str], where: str, scratch: Path, options: SourceOptions
) -> Source | None:
    """List the images of tars with their labels; None for another kind of tar, as of folders."""
    with open_regular(files[0]) as file, suppress(ValueError):
        if not any(map(_is_web_dataset, TarSamples(file, _LOOKED_AT))):
            return None
        stamps = []
        for path in files:
            with open_regular(path) as other:
                stamps.append(stamp_of(other))
        samples = (
            (path, one)
            for number, path in enumerate(files)
            for one in _tar_samples(path, number, options.label_column, several=len(files) > 1)
        )
        rows, reader = ItemRows(where, options, scratch), PartReader((*files,), (*stamps,))
        return source_of(rows, files, samples, reader)
    return None


def _is_web_dataset(sample: TarSample) -> bool:
    """Return whether a sample is WebDataset's.

    An image in a folder may have JSON or text next to it in a tar of class folders, too.
    """
    names = [sample.members[one][0].removeprefix("./") for one in sample.images[:1]]
    return bool(names) and (
        "cls" in sample.members
        or (not sample.members.keys().isdisjoint(("json", "txt")) and "/" not in names[0])
    )


def _tar_samples(
    path: str, number: int, label_column: str | None, *, several: bool
) -> Iterator[FoundItem]:
    """Yield the images of a tar; their keys start with its name if there are several tars."""
    start = f"{Path(path).stem}/" if several else ""
    with open_regular(path) as file:
        samples = TarSamples(file)
        try:
            for sample in samples:
                name, locator, size = sample.members[next(iter(sample.images or sample.members))]
                key = start + name.removeprefix("./")
                if not sample.images:
                    yield FoundItem(key, problem="no image in the sample")
                    continue
                outside = ".." in name.split("/")
                problem = "path leads outside the archive" if outside else None
                label, cells = _label_and_cells(sample, file, label_column)
                locator |= number << OFFSET_BITS
                yield FoundItem(key, label, size, locator, problem, cells)
        except ValueError as error:
            what = f"truncated or damaged tar archive{samples.where}: {error}"
            raise SourceError(what, path=path, hint=_COPY_HINT) from error


def _label_and_cells(
    sample: TarSample, file: BinaryIO, label_column: str | None
) -> tuple[str, dict[str, object]]:
    """Return the label of a sample, and the cells that may be columns.

    The label is the chosen key of ``.json``; otherwise ``.cls``, or a key of ``.json`` with a usual
    name. The other keys may be columns, and ``.txt`` as ``text``.
    """
    texts, cells, label = dict[str, bytes](), dict[str, object](), ""
    for extension in ("cls", "json", "txt"):
        if 0 < sample.members.get(extension, ("", 0, 0))[2] <= MAX_ROW_BYTES:
            texts[extension] = sample.read(file, extension)
    with suppress(ValueError, RecursionError):
        fields = parse_json(texts.get("json", b"{}"))
        cells = fields if isinstance(fields, dict) else {}
        name = find_columns([*cells], label_column).label
        if name is not None and type(cells[name]) in (str, int, list):
            found = cells.pop(name)
            label = json.dumps(found) if isinstance(found, list) else str(found).strip()
    with suppress(UnicodeDecodeError):
        if "txt" in texts:
            cells["text"] = texts["txt"].decode()
    with suppress(UnicodeDecodeError):
        if label_column is None and "cls" in texts:
            label = texts["cls"].decode().strip()
    return label, cells
