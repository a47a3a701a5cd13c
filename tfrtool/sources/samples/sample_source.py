"""Files with many images and their labels in each, made a source."""

import glob
import os
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from tfrtool.sources.folders.listing import SPLIT_NAMES, is_image_name
from tfrtool.sources.item_rows import FoundItem, ItemRows
from tfrtool.sources.items import ItemReader, Source
from tfrtool.sources.tables.table_columns import (
    TableColumns,
)

_NO_ROLES = TableColumns(None, None, None)


def sample_files(argument: str, suffix: str) -> list[str]:
    """Return the files of one kind that a pattern or a folder means, sorted; none for others.

    They are all that is in the folder, or in its folder ``data``, as Hugging Face has it, or in
    its folders of splits; but for texts about them.
    """
    if not os.path.isdir(argument):  # noqa: PTH112 - it may have any characters
        fits = argument.lower().endswith(suffix) and not os.path.lexists(argument)
        return sorted(glob.glob(argument, recursive=True)) if fits else []  # noqa: PTH207
    files, folders = list[str](), list[str]()
    with suppress(OSError), os.scandir(argument) as found:
        for entry in found:
            if entry.name.startswith("."):
                continue
            if entry.is_dir():
                if entry.name.lower() not in ("data", *SPLIT_NAMES):
                    return []  # of class folders, one tells
                folders.append(entry.path)
            elif is_image_name(entry.name):
                return []
            elif entry.name.lower().endswith(suffix):
                files.append(entry.path)
    if files and folders:
        return []
    return sorted(files) + [file for one in sorted(folders) for file in sample_files(one, suffix)]


def _split_of(file: str) -> str:
    """Return the split that the name of a file says, or that of its folder; "" for none."""
    for name in (Path(file).stem, Path(file).parent.name):
        words = re.split("[^a-z]+", name.lower())
        if said := [SPLIT_NAMES[word] for word in words if word in SPLIT_NAMES]:
            return said[-1]
    return ""


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
    splits = {file: _split_of(file) for file in files}
    has_splits = all(splits.values()) and len(files) > 1
    group_by = rows.options.group_by or ""
    for file, one in samples:
        wanted = [] if rows.columns is None else rows.columns.of([*one.cells], _NO_ROLES)[1]
        split = splits[file] if has_splits else ""
        rows.add(one._replace(split=split, group=one.cells.get(group_by), names=wanted))
    return rows.source(reader, names, others)
