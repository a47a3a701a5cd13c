"""What a user says of labels: their names and order, or that they are kept as they are."""

import json
import re
from collections import Counter
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from tfrtool.errors import SourceError, UsageError, os_errors_as, printable
from tfrtool.examples.objects.label_map import is_label_map, parse_label_items
from tfrtool.examples.objects.record_features import LabelKind, Layout
from tfrtool.sources.class_map import ClassMap
from tfrtool.sources.class_names import distinct_names, named_classes
from tfrtool.sources.items import ItemTable, LeftOut, Source, UnfitError, label_problem
from tfrtool.sources.source_options import SourceOptions
from tfrtool.storage.arguments import as_path, option_name
from tfrtool.storage.capped_list import CappedList
from tfrtool.storage.limits import (
    MAX_CLASS_FILE_BYTES,
    MAX_CLASSES,
    MAX_LISTED,
)
from tfrtool.storage.opening import read_bounded
from tfrtool.storage.remote_path import AnyPath

SEVERAL = "\x1f"
"""What stands between the labels of an item that may have several; no name has it."""

KEEP = "keep"
_BACKGROUND = "background"
_INTEGER = re.compile("[+-]?[0-9]{1,30}")


def several_labels(text: str, separator: str) -> str:
    """Return the labels in a cell, once each; a list of JSON, or of Python, is one."""
    parts: list[Any] = text.split(separator)
    if text.startswith("[") and text.endswith("]"):
        try:
            parts = json.loads(text if '"' in text else text.replace("'", '"'), parse_int=str)
        except (ValueError, RecursionError):
            parts = [None]
        if not all(isinstance(part, str) for part in parts):
            raise UnfitError("labels are not a list of names")
    return SEVERAL.join(dict.fromkeys(part.strip() for part in parts if part.strip()))


class ClassList(NamedTuple):
    """The classes that a user chose.

    Attributes:
        numbers: those of the classes, above 0, by their names.
        others: the names of classes by what a label map calls them besides.
    """

    numbers: dict[str, int]
    others: dict[str, str]


def read_class_list(path: AnyPath) -> ClassList:
    """Read the names of classes: one per line, or a label map, or names by those of folders.

    A class of a label map has the name that is displayed, and is known by its ``name``, too, unless
    several classes have that. A class of a file of `named_classes` is known by its folder, too.

    Raises:
        SourceError: the file can't be read, or can't be understood; the message has the line.
    """
    with os_errors_as(SourceError, path):
        data = read_bounded(path, MAX_CLASS_FILE_BYTES)
    try:
        text = data.decode("utf-8-sig")
        items = _items(text, is_map=path.suffix == ".pbtxt")
        if items:
            pairs = [("", number, names[0].strip()) for number, names in sorted(items.items())]
        else:
            lines = text.rstrip().split("\n") if text.strip() else []
            pairs = [(f"line {n}: ", n, line.strip()) for n, line in enumerate(lines, 1)]
        if not 0 < len(pairs) <= MAX_CLASSES:
            raise ValueError(f"{len(pairs):,} names, expected 1 to {MAX_CLASSES:,}")
        found, others = dict[str, int](), dict[str, str]()
        for where, number, name in pairs:
            problem = label_problem(name) if name else "is empty"
            problem = "is a duplicate" if name in found else problem
            if problem:
                raise ValueError(f"{where}name {_shown(name)!r} {problem}")
            found[name] = number
        repeated = Counter(name.strip() for _, name in items.values())
        for name, other in ((one.strip(), two.strip()) for one, two in items.values()):
            if other in found and other != name:
                raise ValueError(f"name {_shown(other)!r} is a duplicate")
            if other and repeated[other] == 1:
                others[other] = name
    except ValueError as error:
        reason = "not valid UTF-8" if isinstance(error, UnicodeError) else error
        raise SourceError(
            f"not a list of class names: {reason}",
            path=path,
            hint="use one name per line, or a label_map.pbtxt",
        ) from error
    return ClassList(found, others)


def _items(text: str, *, is_map: bool) -> dict[int, tuple[str, str]]:
    """Return both names of classes by number; {} for a list of names."""
    if is_map or is_label_map(text):
        items = parse_label_items(text)
        if _BACKGROUND in items.get(0, ()):
            del items[0]
        if 0 in items:
            raise ValueError(f"id 0 is reserved for {_BACKGROUND!r}")
        if not items:
            raise ValueError(f"0 names, expected 1 to {MAX_CLASSES:,}")
        return items
    named = named_classes(text)
    return dict(enumerate(zip(distinct_names(named).values(), named, strict=True), 1))


def with_labels(source: Source, options: SourceOptions, where: str, scratch: Path) -> Source:
    """Return a source with the labels and the layout that a user chose.

    An image is left out and listed if a label is missing in the file, or isn't an integer to keep.
    """
    if source.features.label is LabelKind.NONE:
        for name in ("labels", "class_map", "only_classes"):
            if getattr(options, name):
                option = option_name(name)
                raise UsageError(f"{option} doesn't apply: the source has no labels", path=where)
        return replace(source, features=replace(source.features, layout=options.names))
    choice = _LabelChoice(source, options)
    features = choice.features
    if choice.keeps_all:
        return replace(source, features=features)
    items, used, dropped = ItemTable(scratch), set[str](), 0
    rejected = CappedList[LeftOut](MAX_LISTED)
    for entry in source.rejected:
        rejected.add(entry)
    for item in source.items:
        try:
            label = choice.fit(item.label)
        except UnfitError as error:
            rejected.add(LeftOut(key=item.key, reason=str(error)))
            continue
        if choice.new and not label and item.label:
            dropped += 1
            continue
        items.add(item._replace(label=label))
        used.update(features.names(label))
        if len(used) > MAX_CLASSES:
            raise SourceError(
                "too many different labels",
                path=where,
                expected=f"at most {MAX_CLASSES:,}",
                hint="use --column NAME:int64 to write a table's numbers as they are",
            )
    if not items:
        first = rejected.entries[min(len(source.rejected), len(rejected.entries) - 1)]
        raise SourceError(
            f"no image has a usable label ({printable(first.key)}: {first.reason})",
            path=where,
        )
    numeric = features.label is LabelKind.NUMBER
    notice = [f"images of classes that are dropped: {dropped:,}"] if dropped else []
    return replace(
        source,
        items=items,
        labels=choice.names or tuple(sorted(used, key=int if numeric else None)),
        notices=(*source.notices, *notice),
        features=features,
        rejected=tuple(rejected.entries),
        more_rejected=rejected.more + source.more_rejected,
    )


class _LabelChoice:
    """The labels that a user chose, and what each label of a source becomes.

    Attributes:
        features: the features of the source, with labels of the kind that they become.
        new: the new names of classes, empty for those that are dropped; {} without a class map.
        keeps_all: whether all labels stay as they are.
    """

    def __init__(self, source: Source, options: SourceOptions) -> None:
        self._options, features = options, replace(source.features, layout=options.names)
        self._splits = options.multi_label is not None and features.label is LabelKind.CLASS
        if self._splits:
            features = replace(features, label=LabelKind.CLASSES, separator=SEVERAL)
        self.new = dict[str, str]()
        if chosen := ClassMap.parse(options.class_map, options.only_classes):
            texts = [self._split(one) for one in source.labels]
            classes = dict.fromkeys(one for text in texts for one in text.split(SEVERAL))
            chosen.check_files(classes)
            self.new = chosen.new_names(classes)
        self._known, self._others = dict[str, int](), dict[str, str]()
        if options.labels == KEEP:
            features = replace(features, label=LabelKind.NUMBER)
        elif options.labels is not None:
            self._known, self._others = read_class_list(as_path(options.labels))
            ids = tuple(self._known.values())
            if features.layout is Layout.TFOD and ids != (*range(1, len(ids) + 1),):
                features = replace(features, class_ids=ids)
        self.keeps_all = options.labels is None and not self._splits and not self.new
        self.features = features
        self.fit = lru_cache(maxsize=4096)(self._fit)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the classes, if they are known before the images are."""
        return (*self._known,) or (*dict.fromkeys(filter(None, self.new.values())),)

    def _split(self, label: str) -> str:
        return several_labels(label, self._options.multi_label or "") if self._splits else label

    def _fit(self, label: str) -> str:
        """Return what a label becomes; `UnfitError` if it is not one of the chosen labels."""
        features, label = self.features, self._split(label)
        if self._others:
            names = [self._others.get(one, one) for one in label.split(SEVERAL)]
            label = SEVERAL.join(dict.fromkeys(names))
        if self.new and label:
            names = [self.new.get(one, one) for one in features.names(label)]
            label = features.separator.join(filter(None, names))
        for name in features.names(label):
            if self._known and name not in self._known:
                raise UnfitError(f"label '{_shown(name)}' is not in {self._options.labels}")
        return _integer(label) if features.label is LabelKind.NUMBER else label


def with_splits_merged(source: Source, scratch: Path) -> Source:
    """Return a source without splits; images of a split without labels are left out and listed."""
    source = replace(source, splits=())
    if source.features.label is not LabelKind.CLASS or all(item.label for item in source.items):
        return source
    items, rejected = ItemTable(scratch), CappedList[LeftOut](MAX_LISTED)
    for entry in source.rejected:
        rejected.add(entry)
    for item in source.items:
        if item.label:
            items.add(item)
        else:
            rejected.add(LeftOut(key=item.key, reason="no label"))
    more = rejected.more + source.more_rejected
    return replace(source, items=items, rejected=tuple(rejected.entries), more_rejected=more)


def _integer(label: str) -> str:
    if not _INTEGER.fullmatch(label) or not -(2**63) <= int(label) < 2**63:
        raise UnfitError(f"label '{_shown(label)}' is not a 64-bit integer")
    return str(int(label))


def _shown(label: str) -> str:
    return printable(label[:40])
