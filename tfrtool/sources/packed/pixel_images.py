"""Images that are arrays of pixels: encoded as PNG in a scratch file, as the items of a source."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from tfrtool.errors import SourceError
from tfrtool.images.pixels import png_of
from tfrtool.sources.archives import Spool
from tfrtool.sources.item_rows import FoundItem, ItemRows
from tfrtool.sources.items import Source
from tfrtool.sources.source_options import SourceOptions
from tfrtool.sources.tables.table_columns import TableColumns
from tfrtool.storage.limits import MAX_IMAGE_PIXELS

COPY_HINT = "download or copy it again"

Sides = tuple[int, int, int]
"""Height, width and channels."""


class PixelImage(NamedTuple):
    """An image as rows of pixels, and what is known of it."""

    key: str
    label: str = ""
    pixels: bytes = b""
    sides: Sides = (0, 0, 0)
    split: str = ""
    cells: Mapping[str, object] = {}  # what may become features, or says its group
    problem: str | None = None  # why it can't be used
    row: int = 0  # its number, if it is of a table


class PixelColumns(NamedTuple):
    """The columns of arrays or of a table, apart from pixels and splits."""

    label: str | None = None
    others: Sequence[str] = ()
    tabular: bool = False  # whether images are rows of a table


def pixel_source(
    images: Iterable[PixelImage],
    where: str,
    scratch: Path,
    options: SourceOptions,
    *,
    packed: int,
    names: Sequence[str] | None = None,
    columns: PixelColumns | None = None,
) -> Source:
    """Return the source of images, whose PNG files are kept in a scratch folder.

    Args:
        images: each of them once.
        where: the path of the source.
        scratch: a folder that the caller removes.
        options: how the source is understood.
        packed: bytes of its files, which limit what is unpacked.
        names: of the classes, in the order of their numbers.
        columns: what images have besides; None if ``--column`` doesn't apply.
    """
    if columns is None and (options.writes_columns or options.label_column is not None):
        what = "--column and --label-column don't apply: arrays have only labels"
        raise SourceError(what, path=where)
    columns = columns or PixelColumns()
    rows, wanted = ItemRows(where, options, scratch, columns.tabular), list[str]()
    if rows.columns is not None:
        roles = TableColumns(None, columns.label, None)
        roles, wanted = rows.columns.of([*columns.others, *filter(None, (columns.label,))], roles)
        columns = columns._replace(label=roles.label)
    others = [name for name in columns.others if name not in wanted]
    with Spool(scratch, where, packed) as spool:
        for image in images:
            group = image.cells.get(options.group_by or "")
            found = FoundItem(
                image.key,
                "" if rows.columns is not None and columns.label is None else image.label,
                problem=image.problem,
                cells=image.cells,
                split=image.split,
                group=group,
                names=wanted,
                typed=not columns.tabular,
                row=image.row,
            )
            if image.problem is None:
                height, width, channels = image.sides
                data = png_of(image.pixels, width, height, channels)
                found = found._replace(bytes=len(data), locator=spool.add(data))
            rows.add(found)
        source = rows.source(spool.reader, names, others)
    return replace(source, pixels=True)


def image_sides(shape: Sequence[int]) -> Sides | None:
    """Return the sides of an image of a shape, with or without an axis of channels; or None."""
    if len(shape) not in (2, 3) or (len(shape) == 3 and shape[2] not in (1, 3)):
        return None
    height, width, channels = (*shape, 1)[:3]
    return (height, width, channels) if 0 < height * width <= MAX_IMAGE_PIXELS else None
