"""Files with many images and their labels in each, made a source."""

import glob
import os
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

from tfrtool.errors import SourceError, WriteError, os_errors_as
from tfrtool.sources.archives.members import UNPACK_HINT, PartReader
from tfrtool.sources.archives.tar_archive import SPOOL
from tfrtool.sources.folders.listing import SPLIT_NAMES, SPLIT_ORDER, is_image_name, size_problem
from tfrtool.sources.items import Item, ItemReader, LeftOut, Source, label_problem
from tfrtool.sources.manifest import ManifestWriter
from tfrtool.sources.tables.table_columns import number_notice, sort_labels
from tfrtool.storage.limits import MAX_LISTED, FirstOf, unpacked_limit
from tfrtool.storage.scratch.external_sort import ExternalSort


class FoundSample(NamedTuple):
    """An image that was found."""

    key: str
    label: str = ""
    bytes: int = 0
    place: int = 0
    problem: str | None = None  # why it can't be an item


def sample_files(argument: str, suffix: str) -> list[str]:
    """Return the files of one kind that a pattern or a folder means, sorted; none for others.

    They are all that is in the folder, or in its folder ``data``, as Hugging Face has it, or in
    its folders of splits; but for texts about them.
    """
    if not os.path.isdir(argument):  # noqa: PTH112 - it may have any characters
        fits = argument.lower().endswith(suffix) and not os.path.lexists(argument)
        return sorted(glob.glob(argument, recursive=True)) if fits else []  # noqa: PTH207
    with suppress(OSError), os.scandir(argument) as found:
        entries = sorted(entry.path for entry in found if not entry.name.startswith("."))
        folders = [path for path in entries if Path(path).is_dir()]
        files = [path for path in entries if path.lower().endswith(suffix) and path not in folders]
        if any(map(is_image_name, entries)) or bool(files) == bool(folders):
            return []
        if all(Path(path).name.lower() in {"data", *SPLIT_NAMES} for path in folders):
            return files + [file for folder in folders for file in sample_files(folder, suffix)]
    return []


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


def source_of(
    files: Sequence[str],
    samples: Iterable[tuple[str, FoundSample]],
    reader: ItemReader,
    where: str,
    scratch: Path,
    names: Sequence[str] | None = None,
    notices: Iterable[str] = (),
) -> Source:
    """Make a source of samples, each given with its file or, where that is its own, its split.

    Splits are those that the names of all files say. Labels are those ``names``, if there are any.
    """
    splits = {file: _split_of(file) or (file if file in SPLIT_ORDER else "") for file in files}
    has_splits = all(splits.values()) and (len(files) > 1 or files[0] in SPLIT_ORDER)
    rows = ExternalSort[tuple[str, str, int, int, str]](scratch)
    rejected, items, used = FirstOf[LeftOut](MAX_LISTED), ManifestWriter(scratch), set[str]()
    for file, (key, label, size, place, problem) in samples:
        problem = problem or size_problem(size) or ("" if label else "no label")
        if problem or (unfit := label_problem(label)):
            rejected.add(LeftOut(key=key, reason=problem or f"its label {unfit}"))
        else:
            rows.add((key, label, size, place, splits[file] if has_splits else ""))
    texts = dict[str, str]()  # one for each label and split
    for key, group in groupby(rows, key=itemgetter(0)):
        (_, label, size, place, split), *more = group
        label, split = texts.setdefault(label, label), texts.setdefault(split, split)
        items.add(Item(key=key, label=label, bytes=size, place=place, split=split or None))
        used.add(label)
        for _ in more:
            rejected.add(LeftOut(key=key, reason="its name is there twice"))
    if not items.count:
        first = rejected.kept[0] if rejected.kept else None
        raise SourceError(
            "no image can be used",
            path=where,
            expected="images with a label each",
            found=f"{first.key}: {first.reason}" if first else None,
        )
    labels = sort_labels(used) if names is None else tuple(names)
    numbers = number_notice(labels) if names is None else None
    return Source(
        items=items.close(),
        labels=labels,
        reader=reader,
        splits=tuple(one for one in SPLIT_ORDER if has_splits and one in splits.values()),
        rejected=tuple(rejected.kept),
        more_rejected=rejected.more,
        notices=tuple(filter(None, (numbers, *notices))),
    )
