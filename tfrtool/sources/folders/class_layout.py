"""Classes and splits of images, from the names of folders or files.

One function serves all trees, so that an archive means the same as the folder that was packed.
"""

import enum
import os.path
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from tfrtool.errors import SourceError, UsageError, printable
from tfrtool.sources.folders.annotated import (
    METADATA_TABLES,
    annotations_at,
    annotations_hint,
    check_classes,
    check_masks,
    write_command,
)
from tfrtool.sources.folders.listing import (
    SPLIT_NAMES,
    SPLIT_ORDER,
    Entry,
    Listing,
    is_image_name,
    size_problem,
)
from tfrtool.sources.folders.unread_images import why_unread
from tfrtool.sources.items import Item, ItemTable, LeftOut, Source, label_problem
from tfrtool.storage.capped_list import CappedList
from tfrtool.storage.limits import MAX_LISTED
from tfrtool.storage.sorted_rows import SortedRows

_NUMBERED = re.compile(r"[ ._-]\(?[0-9]")
_SEPARATED = re.compile(r"[._-]")


class LabelFrom(enum.Enum):
    """Where the label of a file comes from; the values are those of the CLI."""

    FOLDER = "folder"
    """The folder that it lies in: ``cat/1.jpg``."""
    FILENAME = "filename"
    """The part of its name before the first number that a dot, hyphen, underscore or space sets
    apart: ``cat.1.jpg``, ``great_dane_1.jpg``, ``cat (1).jpg``. Without such a number, the part
    before the first dot, hyphen or underscore: ``cat-asleep.jpg``."""


def arrange(
    listing: Listing,
    label_from: LabelFrom,
    where: str,
    scratch: Path | None = None,
    depth: int | None = None,
) -> Source:
    """Assign a label and a split to each image of a tree.

    Folders around everything are skipped: a tree with ``PetImages/Cat/1.jpg`` and
    ``PetImages/Dog/1.jpg`` has the classes Cat and Dog. A folder inside a class belongs to it,
    which a notice reports; it is an error if it is named like a class. Several folders are splits
    if all of them have the names of splits, such as ``train`` and ``validation``. A single one is
    skipped, since its share of the whole is unknown.

    Args:
        listing: the files of the tree; it can't be read again.
        label_from: where labels come from.
        where: path of the tree, for errors.
        scratch: folder for the data of many files.
        depth: which folders of a path are the classes, from 1; None finds out.

    Raises:
        SourceError: no image has a label, or the folders aren't classes.
        UsageError: the depth is above the class folders.
    """
    tree = _Tree(listing.entries, scratch)
    prefix, splits = _layout(tree, label_from)
    usual = prefix.count("/") + bool(splits) + 1
    if depth is not None and splits and depth < usual:
        what = f"--label-depth must be at least {usual}, got {depth}: the splits "
        what += f"{', '.join(sorted(splits))} are above the class folders"
        raise UsageError(what, path=where)
    classes: dict[str | None, set[str]] = {}
    items = ItemTable(scratch)
    rejected, ignored = CappedList[LeftOut](MAX_LISTED), CappedList[LeftOut](MAX_LISTED)
    known = dict[str, tuple[str | None, str | None, str]]()  # by folders
    for key, size, locator, problem in tree.files():
        if problem is None and not is_image_name(key):
            if unread := why_unread(key, listing.reader):
                rejected.add(LeftOut(key=key, reason=unread))
            else:
                ignored.add(LeftOut(key=key, reason="no image file extension"))
            continue
        folder = key[: key.rfind("/")] if label_from is LabelFrom.FOLDER else key
        if (meaning := known.get(folder)) is None:
            meaning = label, split, _ = _meaning(key, prefix, splits, label_from, depth)
            if label_from is LabelFrom.FOLDER:
                known[folder] = meaning
            if label is not None and (unfit := label_problem(label)):
                path = os.path.join(where, key)  # noqa: PTH118 - where may be a pattern
                raise SourceError(f"class name '{printable(label)}' {unfit}", path=path)
        label, split, reason = meaning
        problem = problem or size_problem(size)
        if label is None or problem:
            rejected.add(LeftOut(key=key, reason=problem or reason))
            continue
        items.add(Item(key, label, size, locator, split))
        classes.setdefault(split, set()).add(label)
    labels = set[str]().union(*classes.values())
    check_masks(tree.folders, where)
    unclassed = None
    if label_from is LabelFrom.FOLDER:
        unclassed = _without_class(items, classes, tree, where)
    if unclassed:
        rejected = CappedList[LeftOut]()
        rejected.add(LeftOut(key=unclassed, reason="not in a class folder"))
    if unclassed or not items:
        raise _nothing(tree, rejected, label_from, where, depth)
    notices: tuple[str, ...] = ()
    deep = (one for one in tree.folders if one.count("/") >= usual)
    nested = sorted(one for one in deep if one.split("/")[usual - 1] in labels)
    if label_from is LabelFrom.FOLDER and depth is None and nested:
        names = {label.casefold() for label in labels}
        for folder in nested:
            if names.intersection(folder.casefold().split("/")[usual:]):
                raise SourceError(
                    "class folders contain folders named like classes",
                    path=where,
                    found=f"{printable(folder)}/",
                    hint=f"move them out of SOURCE, or use --label-depth {usual} to make them part "
                    f"of the enclosing class, or --label-depth {usual + 1} for the folders inside",
                )
        notices = (
            f"labels are the folders at depth {usual}, such as "
            f"'{printable(nested[0].split('/')[usual - 1])}' for {printable(nested[0])}/; use "
            f"--label-depth {usual + 1} for the folders inside",
        )
    return Source(
        items=items,
        labels=tuple(sorted(labels)),
        reader=listing.reader,
        notices=notices,
        splits=tuple(name for name in SPLIT_ORDER if name in classes),
        rejected=tuple(rejected.entries),
        ignored=tuple(ignored.entries),
        more_rejected=rejected.more,
        more_ignored=ignored.more,
    )


class _Tree:
    """The files of a listing, sorted by key, and the folders that they are in."""

    def __init__(self, entries: Iterable[Entry], scratch: Path | None) -> None:
        self.folders: set[str] = set()  # that images are in
        self.others: set[str] = set()  # that files without the name of an image are in
        self.table = ""  # of images, such as Roboflow's
        self._rows = SortedRows[Entry](scratch)
        for entry in entries:
            self._rows.add(entry)
            folder = entry.key.rpartition("/")[0]
            if is_image_name(entry.key):
                self.folders.add(folder)
            elif entry.problem is None:
                self.others.add(folder)
                if entry.key.rpartition("/")[2] in METADATA_TABLES:
                    self.table = min(self.table or entry.key, entry.key)

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


def _layout(tree: _Tree, label_from: LabelFrom) -> tuple[str, dict[str, str]]:
    """Return the folder of a tree that holds classes or splits, and the splits.

    The folder comes with its slash.
    """
    # Images next to the uppermost folders belong to no class, and don't count.
    named = label_from is LabelFrom.FILENAME
    paths = {folder and f"{folder}/" for folder in tree.folders if folder or named}
    start = os.path.commonprefix([*paths])  # noqa: RUF071
    prefix = start[: start.rfind("/") + 1]
    below = {path[len(prefix) :] for path in paths}
    tops = {path.partition("/")[0] for path in below if path}
    splits = _as_splits(tops) if len(tops) > 1 else {}
    if named:
        return prefix, splits
    deep = any(path.count("/") > 1 for path in below)
    if prefix and "" in below:
        # The images' folder is itself a class, not what holds the classes.
        outer, slash, last = prefix[:-1].rpartition("/")
        prefix, deep = outer + slash, len(below) > 1
        tops, splits = {last}, {}
    if not splits and not deep:
        splits = _as_splits(tops)  # no classes in them: nothing will have a label
    return prefix, splits


def _as_splits(folders: Iterable[str]) -> dict[str, str]:
    splits = {folder: SPLIT_NAMES.get(folder.lower(), "") for folder in folders}
    return splits if all(splits.values()) else {}


def _meaning(
    key: str, prefix: str, splits: Mapping[str, str], label_from: LabelFrom, depth: int | None
) -> tuple[str | None, str | None, str]:
    """Return an image's label and split, or why it has none."""
    below = key[len(prefix) :] if key.startswith(prefix) else ""
    split = None
    if splits:
        top, slash, below = below.partition("/")
        split = splits.get(top) if slash else None
        if split is None:
            return None, None, "not in a split folder"
    if label_from is LabelFrom.FILENAME:
        stem = key[key.rfind("/") + 1 : key.rfind(".")]
        match = _NUMBERED.search(stem) or _SEPARATED.search(stem)
        label = stem[: match.start()].rstrip(" ._-").strip() if match else ""
        return label or None, split, "no label in the file name before a dot, hyphen or underscore"
    if depth is not None:
        folders = key.split("/")[:-1]
        if len(folders) < depth:
            return None, split, f"not in a folder at depth {depth}"
        return folders[depth - 1], split, ""
    label, slash, _ = below.partition("/")
    return label if slash else None, split, "not in a class folder"


def _nothing(
    tree: _Tree,
    rejected: CappedList[LeftOut],
    label_from: LabelFrom,
    where: str,
    depth: int | None,
) -> SourceError:
    if not tree.folders:
        what = "no images found"
        what += f" ({rejected.count:,} can't be read)" if rejected.count else ""
        known = annotations_at(Path(where))
        hint = known and f"run {write_command('IMAGES', known)} to write the boxes"
        first = next(iter(rejected.entries), None)
        found = first and f"{printable(first.key)}: {first.reason}"
        return SourceError(what, path=where, found=found, hint=hint)
    found = f"{printable(rejected.entries[0].key)}: {rejected.entries[0].reason}"
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
        "cat.0.jpg"
    )
    if tree.table and not Path(where).is_dir():
        hint = f"unpack it, and pass the folder: {printable(tree.table)} has the labels"
    elif (command := annotations_hint(where)) is not None:
        hint = f"run {command} to write both"
    expected = "folders such as cat/ and dog/ with images in them"
    return SourceError(
        "no images in class folders", path=where, expected=expected, found=found, hint=hint
    )
