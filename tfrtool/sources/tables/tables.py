"""Tables of images: a path, a label and perhaps a split in each row."""

import contextlib
import errno
import os
import posixpath
import re
import stat
import unicodedata
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from urllib.parse import unquote

from tfrtool.errors import SourceError, UsageError, os_reason, printable
from tfrtool.examples.objects.record_features import LabelKind, RecordFeatures
from tfrtool.records.shard_sets import check_split_name
from tfrtool.sources.folders.listing import SPLIT_NAMES, SPLIT_ORDER, FolderReader, size_problem
from tfrtool.sources.folders.store_listing import StoreFiles
from tfrtool.sources.grouping import alone_notice, group_number
from tfrtool.sources.items import Item, LeftOut, Source, label_problem
from tfrtool.sources.label_choice import SEVERAL, UnfitLabelError, several_labels
from tfrtool.sources.manifest import ManifestWriter
from tfrtool.sources.source_options import SourceOptions
from tfrtool.sources.tables.table_columns import (
    TEXT_SHOWN,
    number_notice,
    quoted,
    refused_label,
    sort_labels,
)
from tfrtool.sources.tables.table_rows import Row, read_rows
from tfrtool.sources.tables.table_values import UnfitCellError, ValueColumns
from tfrtool.storage.limits import MAX_LISTED, MAX_PATH_LENGTH, FirstOf
from tfrtool.storage.remote_path import RemotePath
from tfrtool.storage.scratch.external_sort import ExternalSort
from tfrtool.storage.scratch.packed_rows import PackedRows

_NO_SUCH_FILE = (errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.ELOOP, errno.ENAMETOOLONG)
"""What the system says of a path that may be wrong; anything else means that a disk fails."""

_MOST_COLUMNS = 1000
_OBJECTS = "objects"
"""Hugging Face's column of boxes."""

_SCHEME = re.compile(r"([a-z][a-z0-9+.-]*)://", re.IGNORECASE)
_MOST_FOLDERS = 32
"""Leading folders that are tried without; tables are moved with their images, not deep trees."""


_Usable = tuple[str, int, str, int, str, int, int]
"""A row with an image: its key, its number, its label, the bytes of the file, its split, what
stands for its group, and the number of its cells that become features."""

_USUAL = SourceOptions()
_ALONE: Mapping[str, Path] = {}

_ReadRows = Callable[[], Iterator[Row]]


class _RefusedRowError(Exception):
    """A row can't be an item; says why."""


def read_table(
    table: Path,
    root: Path | None = None,
    scratch: Path | None = None,
    options: SourceOptions = _USUAL,
    tables: Mapping[str, Path] = _ALONE,
) -> Source:
    """List the images of a table in CSV, JSON Lines or Parquet; SourceError if none can be used.

    The columns are found by their names. CSV of two or three columns needs no header if the first
    row names an image file: a path, a label and perhaps a split, or AutoML's split, path and label.

    Paths may be absolute, or ``file://`` URIs. Others are relative to the table's folder; if not
    one row's file is there, to ``root``; if not there either, to the table's folder
    without the folders that all paths start with, so that a table which was moved along with its
    images is read. Keys are the paths as they are written. All files lie below the table's folder
    or below ``root``, wherever links lead. Either every row has a split or none. Many rows are kept
    in a scratch folder. With columns that become features it needs no labels, and a column that
    says groups says what belongs together.

    Where a table's folder has further folders with ``tables`` of their own, these are read instead,
    given by the folders' names, which are those of splits.
    """
    multi, columns, features = options.multi_label, None, RecordFeatures()
    if multi is not None:
        features = RecordFeatures(label=LabelKind.CLASSES, separator=SEVERAL)
    if options.columns:
        columns = ValueColumns(options.columns, options.names, table, scratch)
    read = partial(read_rows, table, options.group_by, columns)
    if tables:
        read = partial(_read, tables, options.group_by, columns)
    if isinstance(table, RemotePath):
        if root is not None:
            raise UsageError("the files of a table in a store lie below its folder", path=table)
        files: _Files | StoreFiles = StoreFiles(table)
    else:
        folder = os.path.abspath(table.parent)  # noqa: PTH100 - links stay
        other = None if root is None else os.path.abspath(root)  # noqa: PTH100
        files = _Files(table, folder, other, read)
    rows = ExternalSort[_Usable](scratch)
    refused = ExternalSort[tuple[str, int, int, str]](scratch)
    firsts, splits, why = dict[str, int](), set[str](), ""
    others: dict[str, None] = {}
    told: Sequence[str] | None = None
    groups, grouped = array("Q"), False
    for row in read():
        grouped = grouped or row.group is not None
        if row.others is not told and len(others) < _MOST_COLUMNS:
            others.update(dict.fromkeys(told := row.others))
        name = row.path[:MAX_PATH_LENGTH] or f"row {row.number}"
        try:
            if row.problem is not None:
                raise _RefusedRowError(row.problem)
            name = _plain_path(row.path)
            key, size = files.find(name, row.number)
            label = row.label
            if multi is not None:
                label = several_labels(label, multi)
            elif columns is None and not label:
                raise _RefusedRowError("no label")
            for one in (label,) if multi is None and label else features.names(label):
                if problem := label_problem(one):
                    raise _RefusedRowError(f"its label {problem}")
            split, cells = _split_name(row.split), 0
            if columns is not None:
                cells = columns.add(row.cells, row.columns, typed=row.typed)
        except (_RefusedRowError, UnfitCellError, UnfitLabelError, LookupError) as error:
            reason = f"row {row.number}: {error}"
            refused.add((name, 0, row.number, reason))
            why = why or f"{printable(name)}: {reason}"
        else:
            firsts.setdefault(label, row.number)
            splits.add(split)
            group = group_number(row.group) if row.group else 0
            rows.add((key, row.number, label, size, split, group, cells))
    if columns is not None:
        columns.check()
        kind = features.label if multi or any(firsts) else LabelKind.NONE
        features = replace(features, label=kind, columns=columns.kinds())
    if multi is None:
        _check_labels(firsts, table)
    items, used, beside = ManifestWriter(scratch), set[str](), PackedRows(scratch)
    needed = {"no split, while others have one": 4} if any(splits) else {}
    if columns is not None and features.label is LabelKind.CLASS:
        needed["no label"] = 2
    for item, group, cells in _without_repeated(rows, refused, needed):
        items.add(item)
        if grouped:
            groups.append(group)
        used.add(item.label)
        if columns is not None:
            beside.add(columns.packed(cells, features.columns))
    if not items.count:
        raise SourceError(
            "no row can be used",
            path=table,
            expected="rows with the path of an image and its label",
            found=why or None,
        )
    rejected = FirstOf[LeftOut](MAX_LISTED)
    for key, _, _, reason in refused:
        rejected.add(LeftOut(key=key, reason=reason))
    labels = sort_labels({name for label in used for name in features.names(label)})
    unfit = columns.unfit if columns is not None else {}
    unused = [name for name in others if name.strip() and name not in unfit]
    boxes = _OBJECTS in (*unused, *unfit)
    notices = [
        number_notice(labels) if options.labels is None else None,
        f"columns that are not written: {quoted(unused)}" if unused else None,
        alone_notice(groups.count(0), len(groups), options.group_by or "") if grouped else None,
        f"boxes are read by --annotations, and not from a column '{_OBJECTS}'" if boxes else None,
    ]
    return Source(
        items=items.close(),
        labels=labels,
        reader=files.reader,
        splits=tuple(sorted(filter(None, splits), key=_split_rank)),
        rejected=tuple(rejected.kept),
        more_rejected=rejected.more,
        notices=(*filter(None, notices), *(columns.notices() if columns else ())),
        groups=groups if grouped else (),
        features=features,
        beside=beside if columns is not None else (),
    )


class _Files:
    """The files that a table names; links don't lead out of its folder or the root either.

    A table comes with its images, and whoever wrote it may not know whose machine it is read on.
    """

    def __init__(self, table: Path, folder: str, root: str | None, read: _ReadRows) -> None:
        """Allow the table's own folder, and another one that the user gave; both are absolute."""
        self._table = table
        self.reader = _find_reader(read, folder, root)
        self._bounds = tuple(_real_folder(place) for place in (folder, root) if place is not None)
        self._outside: dict[str, bool] = {}  # by folder: there are fewer than files

    def find(self, name: str, row: int) -> tuple[str, int]:
        """Return the key of the file that a row names, and its size."""
        problem = "no such file"
        for key in _spellings(name, self.reader):
            path = self.reader.path_of(key)
            try:
                status = self._look(path, row)
            except OSError as error:
                if error.errno not in _NO_SUCH_FILE:
                    raise SourceError(f"can't be read: {os_reason(error)}", path=path) from error
                if error.errno != errno.ENOENT:
                    problem = os_reason(error)
            else:
                if too_large := size_problem(status.st_size):
                    raise _RefusedRowError(too_large)
                if stat.S_ISREG(status.st_mode):
                    return key, status.st_size
                problem = "not a file"
        raise _RefusedRowError(problem)

    def _look(self, path: str, row: int) -> os.stat_result:
        """Return the status of a file; a SourceError if it is really out of bounds."""
        folder = path[: max(path.rfind("/"), path.rfind(os.sep)) + 1]
        if folder not in self._outside:
            self._outside[folder] = not _real_folder(folder).startswith(self._bounds)
        if not self._outside[folder]:
            status = os.lstat(path)  # a Path costs twice as much
            if not stat.S_ISLNK(status.st_mode):
                return status
            if os.path.realpath(path).startswith(self._bounds):
                return os.stat(path)  # noqa: PTH116
        raise SourceError(
            f"row {row} names a file outside of the table's folder",
            path=self._table,
            found=printable(os.path.realpath(path)),
            hint="--root DIR lets it name the files below DIR",
        )


def _real_folder(folder: str) -> str:
    return os.path.join(os.path.realpath(folder), "")  # noqa: PTH118 - with a slash at its end


def _read(
    tables: Mapping[str, Path], group_by: str | None, columns: ValueColumns | None
) -> Iterator[Row]:
    """Read the rows of tables; paths are below the folders that these are in."""
    for folder, table in tables.items():
        rows = read_rows(table, group_by, columns)
        if not folder:
            yield from rows
        for row in rows:
            split = row.split or folder.lower()
            yield row._replace(path=row.path and posixpath.join(folder, row.path), split=split)


def _find_reader(read: _ReadRows, folder: str, root: str | None) -> FolderReader:
    """Find out what the relative paths of a table are relative to: its folder, or else ``root``.

    If neither, it is the folder without the folders that all paths start with. The table is read
    from its start twice at most, and seldom to its end.
    """
    beside, other = FolderReader(folder), FolderReader(root or folder)
    from_root = False
    common: str | None = None
    for name in _relative_paths(read):
        if _is_there(name, beside):
            return beside
        from_root = from_root or _is_there(name, other)
        common = name if common is None else os.path.commonprefix([common, name])  # noqa: RUF071
    if from_root:
        return other
    common = common or ""
    ends = [end for end, character in enumerate(common, start=1) if character == "/"]
    moved = [FolderReader(folder, common[:end]) for end in ends[:_MOST_FOLDERS]]
    found = (
        reader for name in _relative_paths(read) for reader in moved if _is_there(name, reader)
    )
    return next(found, beside)


def _relative_paths(read: _ReadRows) -> Iterator[str]:
    for row in read():
        with contextlib.suppress(_RefusedRowError):
            if not posixpath.isabs(name := _plain_path(row.path)):
                yield name


def _is_there(name: str, reader: FolderReader) -> bool:
    return any(os.path.isfile(reader.path_of(key)) for key in _spellings(name, reader))  # noqa: PTH113


def _spellings(name: str, reader: FolderReader) -> Iterator[str]:
    """Yield the keys that a path may mean."""
    if posixpath.isabs(name) and not reader.dropped:
        # The same file has the same key, however the table is written and wherever it lies.
        yield name.removeprefix(reader.root.rstrip("/") + "/")
        return
    yield name
    if "\\" in name and os.sep == "/":  # the table was made on Windows
        yield posixpath.normpath(name.replace("\\", "/"))


def _plain_path(path: str) -> str:
    """Return a path of a table in its simplest form; that of a local file may be a URI."""
    if not path:
        raise _RefusedRowError("no path")
    if len(path) > MAX_PATH_LENGTH:
        raise _RefusedRowError(f"its path is longer than {MAX_PATH_LENGTH:,} characters")
    if match := _SCHEME.match(path):
        if (scheme := match[1].lower()) != "file":
            raise _RefusedRowError(f"{scheme}:// can't be read; download it first")
        host, slash, below = path[match.end() :].partition("/")
        if host not in ("", "localhost") or not slash:
            raise _RefusedRowError("not the URI of a local file")
        path = "/" + unquote(below, errors="surrogateescape")
    if any(unicodedata.category(c) in ("Cc", "Cs") for c in path):
        raise _RefusedRowError("its path can't be printed")
    path = posixpath.normpath(path)
    return "/" + path.lstrip("/") if path.startswith("//") else path


def _split_name(split: str) -> str:
    """Return a split as it is called here; "" where there is none."""
    try:
        return check_split_name(SPLIT_NAMES.get(split, split)) if split else ""
    except UsageError:
        name = printable(split[:TEXT_SHOWN])
        raise _RefusedRowError(f"no split can be called '{name}'") from None


def _split_rank(split: str) -> tuple[int, str]:
    return SPLIT_ORDER.index(split) if split in SPLIT_ORDER else len(SPLIT_ORDER), split


def _check_labels(firsts: Mapping[str, int], table: Path) -> None:
    """Check labels, given with the first row of each."""
    refused = refused_label(firsts)
    if refused is not None:
        label, what, hint = refused
        found = f"'{printable(label[:TEXT_SHOWN])}' in row {firsts[label]}"
        raise SourceError(what, path=table, found=found, hint=hint)


def _without_repeated(
    rows: ExternalSort[_Usable],
    refused: ExternalSort[tuple[str, int, int, str]],
    needed: Mapping[str, int],
) -> Iterator[tuple[Item, int, int]]:
    """Yield items by key, with groups and the numbers of their cells.

    Those that repeat or contradict others are refused, and those without what is ``needed``: for
    what is said of them then, where it is in a row.
    """
    names = dict[str, str]()  # one text for each label and split
    for key, group in groupby(rows, key=itemgetter(0)):
        first, *more = group
        _, place, label, size, split, number, cells = first
        other = next((one[1] for one in more if one[2] != label), None)
        lacks = next((why for why, at in needed.items() if not first[at]), None) if needed else None
        if other is not None:
            reasons = [
                (one[1], f"its label is contradicted by row {other if one[2] == label else place}")
                for one in (first, *more)
            ]
        elif lacks is not None:
            reasons = [(one[1], lacks) for one in (first, *more)]
        else:
            reasons = [(one[1], f"listed before, in row {place}") for one in more]
            label, split = names.setdefault(label, label), names.setdefault(split, split)
            item = Item(key=key, label=label, bytes=size, place=place, split=split or None)
            yield item, number, cells
        for row, reason in reasons:
            refused.add((key, 1, row, f"row {row}: {reason}"))
