"""The rows of a table, or the samples of archives and arrays, made the items of a source."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

from tfrtool.errors import SourceError, printable
from tfrtool.examples.objects.record_features import LabelKind, RecordFeatures
from tfrtool.sources.folders.listing import size_problem, splits_in_order
from tfrtool.sources.grouping import alone_notice, group_number
from tfrtool.sources.items import (
    Item,
    ItemReader,
    ItemTable,
    LeftOut,
    Source,
    UnfitError,
    label_problem,
)
from tfrtool.sources.label_choice import SEVERAL, several_labels
from tfrtool.sources.source_options import SourceOptions
from tfrtool.sources.tables.table_columns import (
    TEXT_SHOWN,
    number_notice,
    quoted,
    refused_label,
    sort_labels,
)
from tfrtool.sources.tables.table_values import ValueColumns
from tfrtool.storage.capped_list import CappedList
from tfrtool.storage.limits import MAX_LISTED
from tfrtool.storage.remote_path import AnyPath
from tfrtool.storage.sorted_rows import SortedRows

_Row = tuple[str, int, str, int, str, int, bytes, int]
"""An image: its key, the number of its row, its label, the bytes of the file, its split, what
stands for its group, its cells that become features, and its place."""

_NO_SPLIT = "no split, although others have one"


class FoundItem(NamedTuple):
    """An image, and what is known of it."""

    key: str
    label: str = ""
    bytes: int = 0
    locator: int = 0
    problem: str | None = None  # why it can't be an item
    cells: Mapping[str, object] = {}  # what may become features, or says its group, by its name
    split: str = ""
    group: object = None
    names: Sequence[str] = ()  # of the cells that become features
    typed: bool = True  # whether a text in these is one, and no number
    row: int = 0  # its number, if it is of a table
    others: Sequence[str] = ()  # the names of a table's columns that don't count


class ItemRows:
    """Images with what is known of them, in the order of their keys: kept, or refused and listed.

    They need labels, unless they have columns that become features. Either every one has a split
    or none. Many are kept in a scratch folder.
    """

    def __init__(
        self,
        where: str | AnyPath,
        options: SourceOptions,
        scratch: Path | None,
        tabular: bool = False,
    ) -> None:
        """Begin without any; if ``tabular``, they have rows."""
        self.options, self._where, self._scratch = options, where, scratch
        self._tabular = tabular
        self.columns: ValueColumns | None = None
        if options.writes_columns:
            self.columns = ValueColumns(options, where)
        self._features = RecordFeatures()
        self._multi = options.multi_label is not None or bool(options.label_columns)
        if self._multi:
            self._features = RecordFeatures(label=LabelKind.CLASSES, separator=SEVERAL)
        self._rows = SortedRows[_Row](scratch, by=2)
        self._refused = SortedRows[tuple[str, int, str]](scratch, by=2)
        self._firsts = dict[str, int]()  # the row of the first image of each label
        self._splits = set[str]()
        self._grouped = False
        self._why: str | None = None  # the first was refused

    def add(self, found: FoundItem) -> None:
        """Take an image, or list it if it can't be an item."""
        key, label, size, locator, problem, cells, split, group, names, typed, row, _ = found
        try:
            if problem := problem or size_problem(size):
                raise UnfitError(problem)
            if (separator := self.options.multi_label) is not None:
                label = several_labels(label, separator)
            elif not label and self.columns is None and not self._multi:
                raise UnfitError("no label")
            for name in self._features.names(label) if label not in self._firsts else ():
                if problem := label_problem(name):
                    raise UnfitError(f"label '{printable(name[:TEXT_SHOWN])}' {problem}")
            extra = b"" if self.columns is None else self.columns.add(cells, names, typed=typed)
        except UnfitError as error:
            self.refuse(key, str(error), row)
            return
        number = 0
        if group is not None:
            number, self._grouped = group_number(str(group).strip()), True
        self._firsts.setdefault(label, row)
        self._splits.add(split)
        self._rows.add((key, row, label, size, split, number, extra, locator))

    def refuse(self, key: str, reason: str, row: int = 0) -> None:
        """List an image that can't be an item."""
        reason = f"row {row}: {reason}" if self._tabular else reason
        known = reason.startswith(f"{key}: ")  # of a row without a path
        self._why = self._why or (reason if known else f"{printable(key)}: {reason}")
        self._refused.add((key, row, reason))

    def _nothing_usable(self, has_items: bool) -> SourceError:
        """Return the error that there is no image, or that no image has a label."""
        what = "no usable rows" if self._tabular else "no usable images"
        hint = None
        if has_items:
            what = "no image has a label"
            hint = "use --label-column NAME to read labels from another column"
        return SourceError(
            what + (f" ({self._why})" if self._why else ""),
            path=self._where,
            expected="images with a label each",
            hint=hint,
        )

    def source(
        self, reader: ItemReader, names: Sequence[str] | None = None, others: Iterable[str] = ()
    ) -> Source:
        """Return the source of all images; SourceError if none can be used.

        Labels are those ``names``, if there are any; columns that don't count are ``others``.
        """
        columns, features, options = self.columns, self._features, self.options
        if columns is not None:
            labelled = self._multi or any(self._firsts)
            features = columns.complete(features, labelled=labelled)
        refused = refused_label(self._firsts) if self._tabular else None
        if refused is not None and not self._multi:
            label, what, hint = refused
            shown = f"'{printable(label[:TEXT_SHOWN])}' in row {self._firsts[label]}"
            raise SourceError(what, path=self._where, found=shown, hint=hint)
        items, used, empty, alone = ItemTable(self._scratch), set[str](), 0, 0
        for item in self._without_repeated(features):
            if columns is not None:
                item = item._replace(extra=columns.packed(item.extra, features.columns))
            items.add(item)
            empty += not item.label
            alone += not item.group
            used.add(item.label)
        if not items or (features.label is LabelKind.CLASSES and empty == len(items)):
            raise self._nothing_usable(bool(items))
        rejected = CappedList[LeftOut](MAX_LISTED)
        for key, _, reason in self._refused:
            rejected.add(LeftOut(key=key, reason=reason))
        labels = sort_labels({name for label in used for name in features.names(label)})
        if labels and names is not None and options.multi_label is None:
            labels = (*names,)
        known = {options.group_by, *(column.name for column in features.columns)}
        unfit = () if columns is None else sorted(columns.unfit)
        known |= {name for name in others if not name.strip()}
        unused = [name for name in dict.fromkeys((*others, *unfit)) if name not in known]
        notices = [
            number_notice(labels) if names is None and options.labels is None else None,
            f"columns not written: {quoted(unused)}" if unused else None,
            f"images without a label: {empty:,} of {len(items):,}"
            if empty and features.label is LabelKind.CLASSES
            else None,
            alone_notice(alone, len(items), options.group_by or "") if self._grouped else None,
            "boxes in column 'objects' are not read; use --annotations for boxes"
            if "objects" in unused
            else None,
        ]
        return Source(
            items=items,
            labels=labels,
            reader=reader,
            splits=splits_in_order(self._splits - {""}),
            rejected=tuple(rejected.entries),
            more_rejected=rejected.more,
            notices=tuple(filter(None, notices)),
            grouped=self._grouped,
            features=features,
        )

    def _without_repeated(self, features: RecordFeatures) -> Iterator[Item]:
        """Yield items by key, with their cells.

        The first of several rows with the same key counts. Rows with the same key and different
        labels are all refused, as are those without a split or a label that others have.
        """
        needed = {_NO_SPLIT: 4} if any(self._splits) else {}
        if self.columns is not None and features.label is LabelKind.CLASS:
            needed["no label"] = 2
        for key, group in groupby(self._rows, key=itemgetter(0)):
            first, *more = group
            _, row, label, size, split, number, extra, locator = first
            other = next((one[1] for one in more if one[2] != label), None)
            lacks = [why for why, column in needed.items() if not first[column]]
            for one in (first, *more):
                if other is not None and self._tabular:
                    against = other if one[2] == label else row
                    self.refuse(key, f"label conflicts with row {against}", one[1])
                elif lacks:
                    self.refuse(key, lacks[0], one[1])
                elif one is not first:
                    known = f"already listed in row {row}" if self._tabular else "duplicate name"
                    self.refuse(key, known, one[1])
                else:
                    yield Item(key, label, size, locator, split or None, number, extra)
