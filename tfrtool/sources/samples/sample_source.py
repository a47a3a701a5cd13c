"""Files with many images and their labels in each, made a source."""

import glob
import os
import re
from array import array
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

from tfrtool.errors import SourceError, WriteError, os_errors_as
from tfrtool.examples.objects.record_features import LabelKind, RecordFeatures
from tfrtool.sources.archives.members import UNPACK_HINT, PartReader
from tfrtool.sources.archives.tar_archive import SPOOL
from tfrtool.sources.folders.listing import SPLIT_NAMES, SPLIT_ORDER, is_image_name, size_problem
from tfrtool.sources.grouping import alone_notice, group_number
from tfrtool.sources.items import Item, ItemReader, LeftOut, Source, label_problem
from tfrtool.sources.manifest import ManifestWriter
from tfrtool.sources.source_options import SourceOptions
from tfrtool.sources.tables.table_columns import (
    TableColumns,
    number_notice,
    quoted,
    sort_labels,
)
from tfrtool.sources.tables.table_values import UnfitCellError, ValueColumns
from tfrtool.storage.limits import MAX_LISTED, FirstOf, unpacked_limit
from tfrtool.storage.scratch.external_sort import ExternalSort
from tfrtool.storage.scratch.packed_rows import PackedRows


class FoundSample(NamedTuple):
    """An image that was found."""

    key: str
    label: str = ""
    bytes: int = 0
    place: int = 0
    problem: str | None = None  # why it can't be an item
    cells: Mapping[str, object] = {}  # what may become features, or says its group, by its name


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


class Spool:
    """Images that are unpacked into one file in the scratch folder, out of so many bytes."""

    def __init__(self, scratch: Path, where: str) -> None:
        self._target, self._where = scratch / SPOOL, where
        self._failure = f"can't be unpacked to {self._target}"
        self._end = self.packed = 0
        self.reader = PartReader(where, self._target)

    def __enter__(self) -> "Spool":
        with os_errors_as(WriteError, self._where, self._failure):
            self._target.unlink(missing_ok=True)  # what an interrupted write left
            self._out = self._target.open("xb")
        return self

    def __exit__(self, *_: object) -> None:
        with os_errors_as(WriteError, self._where, self._failure):
            self._out.close()

    def add(self, data: bytes) -> int:
        """Write an image, and return its place."""
        place, most = self._end, unpacked_limit(self.packed)
        self._end += len(data)
        if self._end > most:
            what = f"unpacks to more than {most:,} bytes"
            raise SourceError(what, path=self._where, hint=UNPACK_HINT)
        with os_errors_as(WriteError, self._where, self._failure):
            self._out.write(data)
        return place


def value_columns(options: SourceOptions, where: str, scratch: Path) -> ValueColumns | None:
    """Return what collects the columns that become features; None if there are none."""
    if not options.columns:
        return None
    return ValueColumns(options.columns, options.names, Path(where), scratch)


def source_of(
    files: Sequence[str],
    samples: Iterable[tuple[str, FoundSample]],
    reader: ItemReader,
    where: str,
    scratch: Path,
    options: SourceOptions,
    columns: ValueColumns | None = None,
    names: Sequence[str] | None = None,
    others: Sequence[str] = (),
) -> Source:
    """Make a source of samples, each given with its file, or with its split instead.

    Splits are those that the names of all files say. Labels are those ``names``, if there are any;
    with columns that become features there need be none. The columns of a table are ``others``.
    """
    splits = {file: _split_of(file) for file in files}
    has_splits = all(splits.values()) and len(files) > 1
    rows = ExternalSort[tuple[str, str, int, int, str, int, int]](scratch)
    rejected, items, used = FirstOf[LeftOut](MAX_LISTED), ManifestWriter(scratch), set[str]()
    group_by, grouped, labelled = options.group_by or "", False, False
    for file, (key, label, size, place, problem, cells) in samples:
        problem = problem or size_problem(size) or ("" if label or columns else "no label")
        if not problem and label and (unfit := label_problem(label)):
            problem = f"its label {unfit}"
        number, group = 0, cells.get(group_by)
        try:
            if columns is not None and not problem:
                _, mine = columns.of([*cells], _NO_ROLES)
                number = columns.add(cells, mine, typed=True)
        except UnfitCellError as error:
            problem = str(error)
        if problem:
            rejected.add(LeftOut(key=key, reason=problem))
            continue
        labelled, grouped = labelled or bool(label), grouped or group is not None
        said = group_number("" if group is None else str(group).strip())
        rows.add((key, label, size, place, splits[file] if has_splits else "", said, number))
    features, beside, groups = RecordFeatures(), PackedRows(scratch), array("Q")
    if columns is not None:
        columns.check()
        kind = LabelKind.CLASS if labelled else LabelKind.NONE
        features = RecordFeatures(label=kind, columns=columns.kinds())
    texts = dict[str, str]()  # one for each label and split
    for key, same in groupby(rows, key=itemgetter(0)):
        (_, label, size, place, split, said, number), *more = same
        label, split = texts.setdefault(label, label), texts.setdefault(split, split)
        for _ in more:
            rejected.add(LeftOut(key=key, reason="its name is there twice"))
        if labelled and not label:
            rejected.add(LeftOut(key=key, reason="no label"))
            continue
        items.add(Item(key=key, label=label, bytes=size, place=place, split=split or None))
        used.add(label)
        groups.append(said)
        if columns is not None:
            beside.add(columns.packed(number, features.columns))
    if not items.count:
        first = rejected.kept[0] if rejected.kept else None
        raise SourceError(
            "no image can be used",
            path=where,
            expected="images with a label each",
            found=f"{first.key}: {first.reason}" if first else None,
        )
    labels = sort_labels(used - {""}) if names is None else tuple(names)
    written = {column.name for column in features.columns}
    unused = [name for name in others if name not in (*written, group_by)]
    notices = (
        number_notice(labels) if names is None and options.labels is None else None,
        f"columns that are not written: {quoted(unused)}" if unused else None,
        alone_notice(groups.count(0), len(groups), group_by) if grouped else None,
        *(columns.notices() if columns is not None else ()),
    )
    return Source(
        items=items.close(),
        labels=labels if labelled else (),
        reader=reader,
        splits=tuple(one for one in SPLIT_ORDER if has_splits and one in splits.values()),
        rejected=tuple(rejected.kept),
        more_rejected=rejected.more,
        notices=tuple(filter(None, notices)),
        features=features,
        beside=beside if columns is not None else (),
        groups=groups if grouped else (),
    )
