"""Images in Parquet and Arrow files, as Hugging Face's ``datasets`` writes them.

They are unpacked once, because a row group is read from its start, and records are written in any
order.
"""

import posixpath
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tfrtool.errors import SourceError
from tfrtool.sources.archives import Spool
from tfrtool.sources.item_rows import FoundItem, ItemRows
from tfrtool.sources.items import Source
from tfrtool.sources.label_choice import KEEP
from tfrtool.sources.packed.packed_source import source_of
from tfrtool.sources.source_options import SourceOptions
from tfrtool.sources.tables.table_columns import (
    TableColumns,
    check_chosen_columns,
    find_columns,
    quoted,
)
from tfrtool.storage.limits import MAX_CLASSES
from tfrtool.storage.opening import open_regular, size_of_file

_IMAGES = ("image", "img", "jpg", "png", "image_bytes", "bytes", "content")
_LONGEST_NAME = 200


@dataclass(frozen=True, slots=True)
class ImageColumns:
    """The columns of a table of images."""

    image: str  # of bytes, or of structs of bytes and path
    label: str | None
    names: list[str] | None  # of the classes, if labels are numbers
    others: list[str]
    wanted: Sequence[str] = ()  # those of the others that become features or groups


def image_columns(path: str, label_column: str | None = None) -> ImageColumns | None:
    """Return the columns of a table of images; None if no column has bytes, or it isn't Parquet."""
    from tfrtool.sources.formats.parquet_reader import hugging_face_features, read_facts

    try:
        schema = read_facts(path).schema
    except SourceError:  # the reader of tables reports why, if it is one
        return None
    features = hugging_face_features(schema)
    types = {name: one.get("_type") for name, one in features.items()}
    paths = find_columns(schema.names).path
    images = [
        name
        for name in schema.names
        if _holds_bytes(schema.field(name).type)
        # Bytes next to paths are another feature.
        and (paths in (None, name) or name.lower() in _IMAGES)
    ]
    rank = {name: at for at, name in enumerate(reversed(_IMAGES), 1)}
    images.sort(key=lambda name: -rank.get(name.lower(), 0))
    if not images:
        return None
    image = next((name for name in images if types.get(name) == "Image"), images[0])
    classes = [name for name in schema.names if types.get(name) == "ClassLabel"]
    label = find_columns(schema.names, label_column).label
    if label_column is None and label not in classes and classes:
        label = classes[0]
    names: Any = features[label].get("names") if label and label in classes else None
    if isinstance(names, list) and 0 < len({*map(str, names)}) == len(names) <= MAX_CLASSES:
        names = [*map(str, names)]
    else:
        names = None
    others = [name for name in schema.names if name not in (image, label)]
    return ImageColumns(image, label, names, others)


def _holds_bytes(kind: Any) -> bool:
    import pyarrow.types as types

    if types.is_struct(kind) and kind.get_field_index("bytes") >= 0:
        kind = kind.field("bytes").type
    return bool(types.is_binary(kind) or types.is_large_binary(kind))


def read_parquet_images(
    files: Sequence[str], where: str, scratch: Path, options: SourceOptions
) -> Source | None:
    """List the images in Parquet files; None if they hold no images."""
    columns = image_columns(files[0], options.label_column)
    if columns is None:
        return None
    if columns.label is None:
        check_chosen_columns(options, columns.others, where)
    rows = ItemRows(where, options, scratch)
    wanted = [name for name in columns.others if name == options.group_by]
    if columns.label is None and (rows.columns is None or options.about_labels):
        what, expected = "no label column", "a column such as 'label'"
        hint = "use --label-column NAME to read the labels from a column of another name"
        raise SourceError(
            what, path=where, expected=expected, found=quoted(columns.others) or None, hint=hint
        )
    if rows.columns is not None:
        roles, mine = rows.columns.of(columns.others, TableColumns(None, columns.label, None))
        wanted = [*dict.fromkeys((*mine, *wanted))]
        columns = replace(columns, label=roles.label)
    if options.labels == KEEP:
        columns = replace(columns, names=None)
    columns = replace(columns, wanted=wanted)
    with Spool(scratch, where) as spool:
        stems = [Path(file).stem for file in files]
        if len({*stems}) < len(stems):
            stems = [f"{Path(file).parent.name}/{Path(file).stem}" for file in files]
        samples = (
            (file, one)
            for file, stem in zip(files, stems, strict=True)
            for one in _parquet_samples(file, stem, columns, spool)
        )
        return source_of(rows, files, samples, spool.reader, columns.names, columns.others)


def _parquet_samples(
    path: str, stem: str, columns: ImageColumns, spool: Spool
) -> Iterator[FoundItem]:
    from tfrtool.sources.formats.parquet_reader import read_cells

    with open_regular(path) as file:
        spool.packed += size_of_file(file)
    wanted = [columns.image, *columns.wanted, *filter(None, (columns.label,))]
    for number, (image, *cells) in enumerate(read_cells(path, wanted), start=1):
        label = cells.pop() if columns.label else None
        name = ""
        if isinstance(image, dict):
            name, image = image.get("path") or "", image.get("bytes")
        name = posixpath.basename(str(name).replace("\\", "/"))[:_LONGEST_NAME]
        suffix = f"/{name}" if name and name.isprintable() else ""
        key = f"{stem}/{number:08d}{suffix}"
        if isinstance(label, int) and not isinstance(label, bool) and columns.names is not None:
            label = columns.names[label] if 0 <= label < len(columns.names) else ""
        if not isinstance(image, bytes) or not image:
            yield FoundItem(key, problem=f"row {number}: no image bytes in the table")
        elif isinstance(label, float | bool | list | dict):
            yield FoundItem(key, problem=f"row {number}: label is not a string or an integer")
        else:
            text = "" if label is None else str(label).strip()
            found = dict(zip(columns.wanted, cells, strict=True))
            yield FoundItem(key, text, len(image), spool.add(image), cells=found)
