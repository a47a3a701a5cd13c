"""The source of images that are packed in files, with the splits that the files' names say."""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from tfrtool.records.shard_sets import SPLIT_NAMES
from tfrtool.sources.item_rows import FoundItem, ItemRows
from tfrtool.sources.items import ItemReader, Source
from tfrtool.sources.tables.table_columns import TableColumns

_NO_ROLES = TableColumns(None, None, None)


def source_of(
    rows: ItemRows,
    files: Sequence[str],
    samples: Iterable[tuple[str, FoundItem]],
    reader: ItemReader,
    names: Sequence[str] | None = None,
    others: Sequence[str] = (),
) -> Source:
    """Make a source of samples, each given with its file, or with its split instead.

    Splits are those that the names of all files say. Labels are those ``names``, if there are any.
    The columns of a table are ``others``.
    """
    splits = {file: split_of_file(file) for file in files}
    has_splits = all(splits.values()) and len(files) > 1
    group_by = rows.options.group_by or ""
    for file, sample in samples:
        wanted = [] if rows.columns is None else rows.columns.of([*sample.cells], _NO_ROLES)[1]
        split = splits[file] if has_splits else ""
        rows.add(sample._replace(split=split, group=sample.cells.get(group_by), names=wanted))
    return rows.source(reader, names, others)


def split_of_file(file: str) -> str:
    """Return the split that the name of a file says, or that of its folder; "" for none."""
    for name in (Path(file).stem, Path(file).parent.name):
        words = re.split("[^a-z]+", name.lower())
        if splits := [SPLIT_NAMES[word] for word in words if word in SPLIT_NAMES]:
            return splits[-1]
    return ""
