"""Classes and splits of images, from the names of folders or files.

One function serves all trees, so that an archive means the same as the folder that was packed.
"""

import os.path
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

from tfrtool.errors import SourceError, UsageError, printable, some_of
from tfrtool.records.shard_sets import UNLABELED_SPLITS, split_named
from tfrtool.sources.folders.annotated import (
    METADATA_TABLES,
    annotations_at,
    annotations_hint,
    check_classes,
    check_masks,
    find_shard,
    is_images_folder,
    shards_refusal,
    write_command,
)
from tfrtool.sources.folders.folder_layout import FolderLayout
from tfrtool.sources.folders.label_lists import LabelList, read_label_lists, split_of_list
from tfrtool.sources.folders.listing import (
    Entry,
    Listing,
    is_image_name,
    size_problem,
    splits_in_order,
)
from tfrtool.sources.folders.name_pattern import LabelFrom, NamePattern
from tfrtool.sources.folders.unread_images import why_unread
from tfrtool.sources.items import Item, ItemTable, LeftOut, Source, label_problem
from tfrtool.sources.tables.table_columns import sort_labels
from tfrtool.storage.capped_list import CappedList
from tfrtool.storage.limits import MAX_LISTED
from tfrtool.storage.sorted_rows import SortedRows

_SHOWN, _MOST_TRIED = 5, 1000
"""Names in a message, and images that are looked up to see whether a list is theirs."""

_NUMBERED = re.compile(r"[ ._-]\(?[0-9]")
_SEPARATED = re.compile(r"[._-]")


def arrange(
    listing: Listing,
    label_from: LabelFrom | NamePattern,
    where: str,
    scratch: Path | None = None,
    depth: int | None = None,
    split_labels: Sequence[str] = (),
) -> Source:
    """Assign a label and a split to each image of a tree.

    Folders around everything are skipped: a tree with ``PetImages/Cat/1.jpg`` and
    ``PetImages/Dog/1.jpg`` has the classes Cat and Dog. A folder inside a class belongs to it,
    which a notice reports; it is an error if it is named like a class. `FolderLayout` finds the
    splits. Images of a test split that has no class folders get no label.

    Args:
        listing: the files of the tree; it can't be read again.
        label_from: where labels come from.
        where: path of the tree, for errors.
        scratch: folder for the data of many files.
        depth: which folders of a path are the classes, from 1; None finds out.
        split_labels: lists of the labels of splits, as ``NAME=FILE``. Those of ImageNet and others
            are found in the tree, for splits without class folders.

    Raises:
        SourceError: no image has a label, or the folders aren't classes; or a list can't be read.
        UsageError: the depth is above the class folders, or the split of a list does not exist.
    """
    tree = _Tree(listing.entries, scratch)
    is_named = label_from is not LabelFrom.FOLDER
    layout = FolderLayout(tree.folders, is_named=is_named, depth=depth)
    if depth is not None and depth < (least := layout.least_depth(depth)):
        what = f"--label-depth must be at least {least}, got {depth}: the splits "
        what += f"{', '.join(sorted(layout.splits))} are above the class folders"
        raise UsageError(what, path=where)
    labels = _ImageLabels(layout, tree, where, split_labels, label_from)
    items = ItemTable(scratch)
    rejected, ignored = CappedList[LeftOut](MAX_LISTED), CappedList[LeftOut](MAX_LISTED)
    for key, size, locator, problem in tree.files():
        if problem is None and not is_image_name(key):
            if key in labels.list_keys:
                continue
            if unread := why_unread(key, listing.reader):
                rejected.add(LeftOut(key=key, reason=unread))
            else:
                ignored.add(LeftOut(key=key, reason="no image file extension"))
            continue
        split, label, reason = labels.find(key)
        problem = problem or size_problem(size)
        if label is None or problem:
            rejected.add(LeftOut(key=key, reason=problem or reason))
            continue
        items.add(Item(key, label, size, locator, split))
        labels.add(split, label)
    check_masks(tree.folders, where)
    unclassed = None if is_named else _without_class(items, labels.folder_classes(), tree, where)
    if unclassed:
        rejected = CappedList[LeftOut]()
        rejected.add(LeftOut(key=unclassed, reason="not in a class folder"))
    if unclassed or not items:
        raise _nothing(tree, rejected, label_from, where, depth)
    names, notices = labels.names, [*labels.notices()]
    if not is_named and depth is None:
        notices += _nested_notices(tree.folders, layout, names, where)
    return Source(
        items=items,
        labels=sort_labels(names) if isinstance(label_from, NamePattern) else tuple(sorted(names)),
        reader=listing.reader,
        notices=tuple(notices),
        splits=splits_in_order(split for split in labels.classes if split is not None),
        rejected=tuple(rejected.entries),
        ignored=tuple(ignored.entries),
        more_rejected=rejected.more,
        more_ignored=ignored.more,
    )


class _ImageLabels:
    """Finds the split and the label of each image, and knows which labels there are.

    Attributes:
        list_keys: the files of the tree whose labels are used.
        classes: the labels of the images that are written, by split.
    """

    def __init__(
        self,
        layout: FolderLayout,
        tree: "_Tree",
        where: str,
        split_labels: Sequence[str],
        label_from: LabelFrom | NamePattern,
    ) -> None:
        self._layout, self._where, self._label_from = layout, where, label_from
        self._meaning = cache(layout.meaning)  # of a folder
        self.classes = dict[str | None, set[str]]()
        self._counts = Counter[str]()  # of images without labels, by split
        self._lists = read_label_lists(split_labels) if split_labels else {}
        self.list_keys = set[str]()
        for split in self._lists:
            if layout.splits and split not in layout.splits:
                expected = some_of(sorted(layout.splits), _SHOWN)
                what = f"no split {printable(split)!r} for --split-labels"
                raise UsageError(what, path=where, expected=expected)
        for split, key in tree.lists.items() if Path(where).is_dir() else ():
            if split in layout.classless and split not in self._lists:
                with suppress(SourceError):  # it is another file of this name
                    labels = LabelList(Path(where) / key)
                    images = (
                        one
                        for one in tree.images()
                        if self._meaning(one.rpartition("/")[0]).split == split
                    )
                    if any(labels.label(one) is not None for one in islice(images, _MOST_TRIED)):
                        self._lists[split] = labels
                        self.list_keys.add(key)
        self._unlabeled = layout.unlabeled
        if self._lists:
            self._unlabeled = layout.classless.intersection(UNLABELED_SPLITS) - {*self._lists}

    def find(self, key: str) -> tuple[str | None, str | None, str]:
        """Return the split and the label of an image, or why it has none."""
        split, label, _, reason = self._meaning(key.rpartition("/")[0])
        if self._lists and (split in self._lists or not self._layout.splits):
            lists = self._lists if split is None else {split: self._lists[split]}
            for name, labels in lists.items():
                if (label := labels.label(key)) is not None:
                    split = name
                    break
            reason = f"not in {some_of([one.name for one in lists.values()], _SHOWN)}"
        elif self._label_from is not LabelFrom.FOLDER and (
            split is not None or not self._layout.splits
        ):
            label, reason = _label_in_name(key, self._label_from)
        elif split in self._unlabeled:
            label = ""
        if label and label not in self.classes.get(split, ()) and (unfit := label_problem(label)):
            path = os.path.join(self._where, key)  # noqa: PTH118 - it may be a pattern
            raise SourceError(f"class name '{printable(label)}' {unfit}", path=path)
        return split, label, reason

    def add(self, split: str | None, label: str) -> None:
        """Note that an image with this label is written."""
        self.classes.setdefault(split, set()).add(label)
        if not label and split is not None:
            self._counts[split] += 1

    @property
    def names(self) -> set[str]:
        """The labels that images have."""
        return set[str]().union(*self.classes.values()) - {""}

    def folder_classes(self) -> dict[str | None, set[str]]:
        """Return the labels that are names of folders, by split."""
        listed = {*self._counts, *self._lists}
        return {split: names for split, names in self.classes.items() if split not in listed}

    def notices(self) -> Iterator[str]:
        """Yield what to know of images without labels, and of lists."""
        for split, labels in sorted(self._lists.items()):
            yield f"labels of split {split} are read from {printable(labels.name)}"
            if labels.unused:
                yield f"rows of {printable(labels.name)} without an image: {labels.unused:,}"
            classes = set[str]().union(*self.folder_classes().values())
            if classes and not labels.labels & classes:
                shown = some_of([repr(printable(one)) for one in sorted(labels.labels)], _SHOWN)
                yield f"no class folder is named like a label of {printable(labels.name)}: {shown}"
        likely = [one for one in sorted(self.names) if split_named(one)]
        if likely and not self._layout.splits and self._label_from is LabelFrom.FOLDER:
            shown = some_of([repr(printable(one)) for one in likely], _SHOWN)
            yield f"class folders named like splits: {shown}"
        for split in sorted(self._layout.classless - self._unlabeled - {*self._lists}):
            what = f"split {split} has no class folders; use --split-labels {split}=FILE for a list"
            yield f"{what} of its labels"
        for split, count in sorted(self._counts.items()):
            yield f"split {split} has no class folders; its images get no label (-1): {count:,}"


def _label_in_name(key: str, label_from: LabelFrom | NamePattern) -> tuple[str | None, str]:
    """Return the label in a path, and why there may be none."""
    if isinstance(label_from, NamePattern):
        return label_from.label(key), "its path doesn't match --label-from"
    stem = key[key.rfind("/") + 1 : key.rfind(".")]
    match = _NUMBERED.search(stem) or _SEPARATED.search(stem)
    label = stem[: match.start()].rstrip(" ._-").strip() if match else ""
    return label or None, "no label in the file name before a dot, hyphen or underscore"


def _nested_notices(
    folders: Collection[str], layout: FolderLayout, labels: Collection[str], where: str
) -> Iterator[str]:
    """Yield what to know of folders in classes; SourceError if one is named like a class."""
    names, first = {label.casefold() for label in labels}, None
    found = {folder: layout.meaning(folder) for folder in sorted(folders)}
    depths = {one.depth for one in found.values() if one.label in labels}
    for folder, (split, label, depth, _) in found.items():
        inner = [one for one in folder.split("/")[depth:] if not is_images_folder(one)]
        if label is None or label not in labels or not inner or split in layout.unlabeled:
            continue
        first = first or (folder, label, depth)
        if names.intersection(map(str.casefold, inner)):
            hint = "move them out of SOURCE"
            if len(depths) == 1 and not any(map(split_named, folder.split("/"))):
                hint += f", or use --label-depth {depth} to make them part of the enclosing class, "
                hint += f"or --label-depth {depth + 1} for the folders inside"
            raise SourceError(
                "class folders contain folders named like classes",
                path=where,
                found=f"{printable(folder)}/",
                hint=hint,
            )
    if first is not None:
        folder, label, depth = first
        yield (
            f"labels are the folders at depth {depth}, such as '{printable(label)}' for "
            f"{printable(folder)}/; use --label-depth {depth + 1} for the folders inside"
        )


class _Tree:
    """The files of a listing, sorted by key, and the folders that they are in."""

    def __init__(self, entries: Iterable[Entry], scratch: Path | None) -> None:
        self.folders: set[str] = set()  # that images are in
        self.others: set[str] = set()  # that files without the name of an image are in
        self.table = ""  # of images, such as Roboflow's
        self.lists = dict[str, str]()  # that may have the labels of splits
        self._rows = SortedRows[Entry](scratch)
        for entry in entries:
            self._rows.add(entry)
            folder = entry.key.rpartition("/")[0]
            if is_image_name(entry.key):
                if ".." not in folder.split("/"):  # a member that leads out of its archive
                    self.folders.add(folder)
            elif entry.problem is None:
                self.others.add(folder)
                if (split := split_of_list(entry.key)) is not None:
                    self.lists[split] = min(self.lists.get(split, entry.key), entry.key)
                if entry.key.rpartition("/")[2] in METADATA_TABLES:
                    self.table = min(self.table or entry.key, entry.key)

    def images(self) -> Iterator[str]:
        """Yield the keys of images."""
        return (key for key, *_ in self.files() if is_image_name(key))

    def files(self) -> Iterator[tuple[Any, ...]]:
        """Yield the fields of the files; of several with the same key the last one."""
        before: tuple[Any, ...] | None = None
        for row in self._rows:
            if before is not None and before[0] != row[0]:
                yield before
            before = row
        if before is not None:
            yield before


def _without_class(
    items: Iterable[Item], classes: Mapping[str | None, set[str]], tree: _Tree, where: str
) -> str | None:
    """Return the key of an image in a split whose labels are not classes; None without any."""
    splits = {one for one, names in classes.items() if not check_classes(names, tree.others, where)}
    return next((item.key for item in items if item.split in splits), None) if splits else None


def _nothing(
    tree: _Tree,
    rejected: CappedList[LeftOut],
    label_from: LabelFrom | NamePattern,
    where: str,
    depth: int | None,
) -> SourceError:
    if not tree.folders:
        if shard := find_shard((str(row[0]) for row in tree.files()), where):
            return shards_refusal(shard, where)
        what = "no images found"
        what += f" ({rejected.count:,} can't be read)" if rejected.count else ""
        known = annotations_at(Path(where))
        hint = known and f"run {write_command('IMAGES', known)} to write the boxes"
        first = next(iter(rejected.entries), None)
        found = first and f"{printable(first.key)}: {first.reason}"
        return SourceError(what, path=where, found=found, hint=hint)
    found = f"{printable(rejected.entries[0].key)}: {rejected.entries[0].reason}"
    if isinstance(label_from, NamePattern):
        what = f"no image path matches --label-from '{printable(label_from.pattern[:80])}'"
        return SourceError(what, path=where, found=found)
    if label_from is LabelFrom.FILENAME:
        what, expected = "no file name contains a label", "names such as cat.0.jpg"
        return SourceError(what, path=where, expected=expected, found=found)
    if depth is not None and all(folder.count("/") + 1 < depth for folder in tree.folders):
        what, hint = f"no images in folders at depth {depth}", "use a lower --label-depth"
        return SourceError(what, path=where, hint=hint)
    folders = {name for folder in tree.folders for name in folder.split("/")[-2:] if name}
    check_classes(folders, tree.others, where)
    hint = (
        "move them into one folder per class; or use --label-from filename for names such as "
        "cat.0.jpg, or --split-labels NAME=FILE for lists"
    )
    table = tree.table or min(tree.lists.values(), default="")
    if table and not Path(where).is_dir():
        hint = f"unpack it, and pass the folder: {printable(table)} has the labels"
    elif (command := annotations_hint(where)) is not None:
        hint = f"run {command} to write both"
    expected = "folders such as cat/ and dog/ with images in them"
    return SourceError(
        "no images in class folders", path=where, expected=expected, found=found, hint=hint
    )
