"""Classes and splits of images, from the names of folders or files.

One function serves all trees, so that an archive means the same as the folder that was packed.
"""

import enum
import os.path
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from tfrtool.errors import SourceError, UsageError, printable
from tfrtool.records.split_names import FOLDER_SPLITS
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
from tfrtool.sources.folders.folder_layout import (
    FolderLayout,
    FolderMeaning,
)
from tfrtool.sources.folders.listing import (
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
_NO_LABEL_IN_NAME = "no label in the file name before a dot, hyphen or underscore"
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
    which a notice reports; it is an error if it is named like a class. `FolderLayout` finds the
    splits. Images of a test split that has no class folders get no label.

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
    is_named = label_from is LabelFrom.FILENAME
    layout = FolderLayout(tree.folders, is_named=is_named, depth=depth)
    if depth is not None and depth < (least := layout.least_depth(depth)):
        what = f"--label-depth must be at least {least}, got {depth}: the splits "
        what += f"{', '.join(sorted(layout.splits))} are above the class folders"
        raise UsageError(what, path=where)
    classes: dict[str | None, set[str]] = {}
    counts = Counter[str]()  # of images without labels, by split
    items = ItemTable(scratch)
    rejected, ignored = CappedList[LeftOut](MAX_LISTED), CappedList[LeftOut](MAX_LISTED)
    meanings = dict[str, FolderMeaning]()  # by folders
    for key, size, locator, problem in tree.files():
        if problem is None and not is_image_name(key):
            if unread := why_unread(key, listing.reader):
                rejected.add(LeftOut(key=key, reason=unread))
            else:
                ignored.add(LeftOut(key=key, reason="no image file extension"))
            continue
        folder = key.rpartition("/")[0]
        if (meaning := meanings.get(folder)) is None:
            meanings[folder] = meaning = layout.meaning(folder)
        split, label, _, reason = meaning
        if is_named and (split is not None or not layout.splits):
            label, reason = _label_in_name(key), _NO_LABEL_IN_NAME
        if label is not None and label not in classes.get(split, ()):
            _check_label(label, key, where)
        if split in layout.unlabeled:
            label = ""
            counts[split] += problem is None
        problem = problem or size_problem(size)
        if label is None or problem:
            rejected.add(LeftOut(key=key, reason=problem or reason))
            continue
        items.add(Item(key, label, size, locator, split))
        classes.setdefault(split, set()).add(label)
    labels = set[str]().union(*classes.values()) - {""}
    check_masks(tree.folders, where)
    labelled = {split: names for split, names in classes.items() if split not in counts}
    unclassed = None if is_named else _without_class(items, labelled, tree, where)
    if unclassed:
        rejected = CappedList[LeftOut]()
        rejected.add(LeftOut(key=unclassed, reason="not in a class folder"))
    if unclassed or not items:
        raise _nothing(tree, rejected, label_from, where, depth)
    notices = [
        f"split {split} has no class folders; its images get no label (-1): {count:,}"
        for split, count in sorted(counts.items())
    ]
    if not is_named and depth is None:
        notices += _nested_notices(tree.folders, layout, labels, where)
    return Source(
        items=items,
        labels=tuple(sorted(labels)),
        reader=listing.reader,
        notices=tuple(notices),
        splits=tuple(name for name in FOLDER_SPLITS if name in classes),
        rejected=tuple(rejected.entries),
        ignored=tuple(ignored.entries),
        more_rejected=rejected.more,
        more_ignored=ignored.more,
    )


def _check_label(label: str, key: str, where: str) -> None:
    if unfit := label_problem(label):
        path = os.path.join(where, key)  # noqa: PTH118 - where may be a pattern
        raise SourceError(f"class name '{printable(label)}' {unfit}", path=path)


def _label_in_name(key: str) -> str | None:
    stem = key[key.rfind("/") + 1 : key.rfind(".")]
    match = _NUMBERED.search(stem) or _SEPARATED.search(stem)
    label = stem[: match.start()].rstrip(" ._-").strip() if match else ""
    return label or None


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
            if len(depths) == 1:
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


def _nothing(
    tree: _Tree,
    rejected: CappedList[LeftOut],
    label_from: LabelFrom,
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
