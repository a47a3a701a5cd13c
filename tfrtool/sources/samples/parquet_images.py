"""Parquet with the images themselves in a column, as Hugging Face's ``datasets`` writes it.

A row group is read from its start, and records are written in no order: images are unpacked once.
"""

import json
import posixpath
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from tfrtool.errors import SourceError
from tfrtool.sources.archives.archive_files import Spool
from tfrtool.sources.item_rows import FoundItem, ItemRows
from tfrtool.sources.items import Source
from tfrtool.sources.label_choice import KEEP
from tfrtool.sources.samples.sample_source import source_of
from tfrtool.sources.source_options import SourceOptions
from tfrtool.sources.tables.table_columns import (
    TableColumns,
    check_label_column,
    find_columns,
    quoted,
)
from tfrtool.sources.tables.table_rows import rows_of_parquet
from tfrtool.storage.limits import MAX_CLASSES
from tfrtool.storage.opening import open_regular, size_of_file

_IMAGES = ("image", "img", "jpg", "png", "image_bytes", "bytes", "content")
_LONGEST_NAME = 200


class _ImageColumns(NamedTuple):
    image: str
    label: str | None
    names: list[str] | None  # of the classes, where labels are their numbers
    others: list[str]
    wanted: Sequence[str] = ()  # those of the others whose cells count


def image_columns(path: str, wanted: str | None = None) -> _ImageColumns | None:
    """Return the columns of a table of images; None if none has bytes, or it is no Parquet.

    The column of labels is the ``wanted`` one, if any.
    """
    from tfrtool.examples.arrow.parquet_reader import read_facts

    try:
        schema = read_facts(path).schema
    except SourceError:  # the table's reader says why, if it is one
        return None
    features: dict[str, Any] = {}
    with suppress(
        ValueError, RecursionError, AttributeError, TypeError, LookupError
    ):  # what makes no sense
        told = json.loads((schema.metadata or {})[b"huggingface"])["info"]["features"]
        features = dict(told.items())
    paths = find_columns(schema.names).path
    images = [
        name
        for name in schema.names
        if _holds_bytes(schema.field(name).type)
        # Next to paths, other bytes are another feature.
        and (paths in (None, name) or name.lower() in _IMAGES)
    ]
    rank = {name: at for at, name in enumerate(reversed(_IMAGES), 1)}
    images.sort(key=lambda name: -rank.get(name.lower(), 0))
    if not images:
        return None
    image = next((name for name in images if _type(features, name) == "Image"), "")
    classes = [name for name in schema.names if _type(features, name) == "ClassLabel"]
    label = find_columns(schema.names, wanted).label
    label = label if wanted or label in classes or not classes else classes[0]
    names = features[label or ""].get("names") if label in classes else None
    if not isinstance(names, list) or not 0 < len({*map(str, names)}) == len(names) <= MAX_CLASSES:
        names = None
    others = [name for name in schema.names if name not in (image or images[0], label)]
    return _ImageColumns(image or images[0], label, names and [*map(str, names)], others)


def _type(features: Mapping[str, Any], name: str) -> object:
    one = features.get(name)
    return one.get("_type") if isinstance(one, dict) else None


def _holds_bytes(kind: Any) -> bool:
    import pyarrow.types as types

    if types.is_struct(kind) and kind.get_field_index("bytes") >= 0:
        kind = kind.field("bytes").type
    return bool(types.is_binary(kind) or types.is_large_binary(kind))


def read_parquet_images(
    files: Sequence[str], where: str, scratch: Path, options: SourceOptions
) -> Source | None:
    """List the images in files of Parquet; None if they hold none themselves."""
    columns = image_columns(files[0], options.label_column)
    if columns is None:
        return None
    if columns.label is None:
        check_label_column(options.label_column, columns.others, where)
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
        columns = columns._replace(label=roles.label)
    if options.labels == KEEP:
        columns = columns._replace(names=None)
    with Spool(scratch, where) as spool:
        columns = columns._replace(wanted=wanted)
        samples = ((file, one) for file in files for one in _samples(file, columns, spool))
        return source_of(rows, files, samples, spool.reader, columns.names, columns.others)


def _samples(path: str, columns: _ImageColumns, spool: Spool) -> Iterator[FoundItem]:
    with open_regular(path) as file:
        spool.packed += size_of_file(file)
    wanted = [columns.image, *columns.wanted, *filter(None, (columns.label,))]
    for number, (image, *cells) in enumerate(rows_of_parquet(path, wanted), start=1):
        label = cells.pop() if columns.label else None
        sample = _sample(path, number, image, label, columns.names, spool)
        yield sample._replace(cells=dict(zip(columns.wanted, cells, strict=True)))


def _sample(
    path: str, number: int, image: Any, label: Any, names: list[str] | None, spool: Spool
) -> FoundItem:
    name = ""
    if isinstance(image, dict):
        name, image = image.get("path") or "", image.get("bytes")
    name = posixpath.basename(str(name).replace("\\", "/"))[:_LONGEST_NAME]
    key = f"{Path(path).stem}/{number:08d}" + (f"/{name}" if name.isprintable() and name else "")
    if not isinstance(image, bytes) or not image:
        why = f"row {number}: no image bytes in the table"
        return FoundItem(key, problem=why)
    if isinstance(label, int) and names is not None:
        label = names[label] if 0 <= label < len(names) else ""
    if isinstance(label, float | bool | list | dict):
        return FoundItem(key, problem=f"row {number}: label is not a string or an integer")
    text = "" if label is None else str(label).strip()
    return FoundItem(key, text, len(image), spool.add(image))
