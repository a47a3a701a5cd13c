"""What the places of files mean: classes and splits, told from folders or names.

One function for all trees, so that an archive means what the folder means that was packed.
"""

import enum
import os.path
import re
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path

from tfrtool.errors import SourceError, printable
from tfrtool.sources.folders.annotated import MaskCheck, check_classes, is_annotation
from tfrtool.sources.folders.listing import (
    SPLIT_NAMES,
    SPLIT_ORDER,
    Entry,
    Listing,
    is_image_name,
    size_problem,
)
from tfrtool.sources.items import Item, LeftOut, Source, label_problem
from tfrtool.sources.manifest import ManifestWriter
from tfrtool.storage.external_sort import ExternalSort
from tfrtool.storage.limits import MAX_LISTED, FirstOf

_NUMBERED = re.compile(r"[ ._-]\(?[0-9]")
_SEPARATED = re.compile(r"[._-]")


class LabelFrom(enum.Enum):
    """Where the label of a file comes from; the values are those of the CLI."""

    FOLDER = "folder"
    """The folder that it lies in: ``cat/1.jpg``."""
    NAME = "name"
    """The part of its name before the first number that a dot, hyphen, underscore or space sets
    apart: ``cat.1.jpg``, ``great_dane_1.jpg``, ``cat (1).jpg``. Without such a number, the part
    before the first dot, hyphen or underscore: ``cat-asleep.jpg``."""


def arrange(
    listing: Listing, label_from: LabelFrom, where: str, scratch: Path | None = None
) -> Source:
    """Give each image of a tree, which lies at ``where``, its label and its split.

    Folders around everything are looked through: a tree with ``PetImages/Cat/1.jpg`` and
    ``PetImages/Dog/1.jpg`` has the classes Cat and Dog. A folder inside a class belongs to it.
    Where all of several folders have the names of splits, such as ``train`` and ``validation``,
    they are splits, and the classes are looked for in them; of a single one it isn't
    said which part of the whole it is, and so it is looked through. The listing is used up; many
    files are kept in a scratch folder. It is a SourceError if no image has a label, or what would
    be classes are none.
    """
    tree = _Tree(listing.entries, scratch)
    prefix, splits = _layout(tree, label_from)
    labels: dict[str, str] = {}
    classes: dict[str | None, set[str]] = {}
    items = ManifestWriter(scratch)
    rejected, ignored = FirstOf[LeftOut](MAX_LISTED), FirstOf[LeftOut](MAX_LISTED)
    masks, marks, folder = MaskCheck(), set[str](), ""
    for entry in tree:
        image = is_image_name(entry.key)
        if image:
            masks.add(entry.key)
        if entry.problem is None and not image:
            ignored.add(LeftOut(key=entry.key, reason="no image by its name"))
            if folder != (folder := entry.key.rpartition("/")[0]):
                marks.update(filter(is_annotation, folder.split("/")))
        elif problem := entry.problem or size_problem(entry.bytes):
            rejected.add(LeftOut(key=entry.key, reason=problem))
        else:
            label, split, reason = _meaning(entry.key, prefix, splits, label_from)
            if label is None:
                rejected.add(LeftOut(key=entry.key, reason=reason))
                continue
            if label not in labels:
                labels[label] = label
                if problem := label_problem(label):
                    path = os.path.join(where, entry.key)  # noqa: PTH118 - where may be a pattern
                    shown = f"'{printable(label)}'"
                    raise SourceError(f"a class's name {problem}", path=path, found=shown)
            label = labels[label]  # one text for all
            place, size = entry.place, entry.bytes
            items.add(Item(key=entry.key, label=label, bytes=size, place=place, split=split))
            classes.setdefault(split, set()).add(label)
    masks.end(tree.images, where)
    found = items.close()
    if label_from is LabelFrom.FOLDER:
        odd = {split for split, names in classes.items() if not check_classes(names, marks, where)}
        if odd:
            key = next(item.key for item in found if item.split in odd)
            found, rejected = (), FirstOf[LeftOut](MAX_LISTED)
            rejected.add(LeftOut(key=key, reason="not in a class folder"))
    if not found:
        raise _nothing(tree, rejected, marks, label_from, where)
    return Source(
        items=found,
        labels=tuple(sorted(labels)),
        reader=listing.reader,
        splits=tuple(name for name in SPLIT_ORDER if name in classes),
        rejected=tuple(rejected.kept),
        ignored=tuple(ignored.kept),
        more_rejected=rejected.count - len(rejected.kept),
        more_ignored=ignored.count - len(ignored.kept),
    )


class _Tree:
    """The files of a listing, sorted by key; they can be gone through again and again."""

    def __init__(self, entries: Iterable[Entry], scratch: Path | None) -> None:
        self._rows = ExternalSort[tuple[str, int, int, int, str | None]](scratch)
        for number, entry in enumerate(entries):  # of the same key the first comes first
            self._rows.add((entry.key, number, entry.bytes, entry.place, entry.problem))
        self._rows.settle()

    def __iter__(self) -> Iterator[Entry]:
        for key, _, size, place, problem in self._rows:
            yield Entry(key, size, place, problem)

    def images(self) -> Iterator[str]:
        """Yield the keys of the images."""
        return (row[0] for row in self._rows if is_image_name(row[0]))


def _layout(tree: _Tree, label_from: LabelFrom) -> tuple[str, dict[str, str]]:
    """Tell from the images of a tree which folder holds classes or splits, and these.

    The folder comes with its slash.
    """

    def images() -> Iterator[str]:
        # Images beside the uppermost folders belong to no class, and say nothing of these.
        return (key for key in tree.images() if label_from is LabelFrom.NAME or "/" in key)

    # What the first and the last of sorted texts start with, all between them start with.
    first, last = next(images(), ""), "".join(deque(images(), maxlen=1))
    start = os.path.commonprefix([first, last])  # noqa: RUF071
    prefix = start[: start.rfind("/") + 1]
    tops, beside, deep = set[str](), False, False
    for key in images():
        top, slash, below = key[len(prefix) :].partition("/")
        if slash:
            tops.add(top)
            deep = deep or "/" in below
        else:
            beside = True
    splits = _as_splits(tops) if len(tops) > 1 else {}
    if label_from is LabelFrom.NAME:
        return prefix, splits
    if prefix and beside:
        # The images' folder is itself a class, not what holds the classes.
        outer, slash, _ = prefix[:-1].rpartition("/")
        prefix = outer + slash
        deep = bool(tops)
        tops = {first[len(prefix) :].partition("/")[0]}
        splits = {}
    if not splits and not deep:
        splits = _as_splits(tops)  # no classes in them: nothing will have a label
    return prefix, splits


def _as_splits(folders: Iterable[str]) -> dict[str, str]:
    """Return the split that each folder is; none at all if one of them isn't a split."""
    splits = {folder: SPLIT_NAMES.get(folder.lower(), "") for folder in folders}
    return splits if all(splits.values()) else {}


def _meaning(
    key: str, prefix: str, splits: Mapping[str, str], label_from: LabelFrom
) -> tuple[str | None, str | None, str]:
    """Return an image's label and split, or why it has none."""
    below = key[len(prefix) :] if key.startswith(prefix) else ""
    split = None
    if splits:
        top, slash, below = below.partition("/")
        split = splits.get(top) if slash else None
        if split is None:
            return None, None, "not in the folder of a split"
    if label_from is LabelFrom.NAME:
        stem = key[key.rfind("/") + 1 : key.rfind(".")]
        match = _NUMBERED.search(stem) or _SEPARATED.search(stem)
        label = stem[: match.start()].rstrip(" ._-").strip() if match else ""
        return label or None, split, "its name has no label before a dot, hyphen or underscore"
    label, slash, _ = below.partition("/")
    return label if slash else None, split, "not in a class folder"


def _nothing(
    tree: _Tree,
    rejected: FirstOf[LeftOut],
    marks: Collection[str],
    label_from: LabelFrom,
    where: str,
) -> SourceError:
    """Return the error for a tree without a labelled image."""
    if not any(True for _ in tree.images()):
        what, expected = "holds no images", "image files"
        found = f"{rejected.count} that can't be read" if rejected.count else None
        return SourceError(what, path=where, expected=expected, found=found)
    found = f"{printable(rejected.kept[0].key)}: {rejected.kept[0].reason}"
    hint = None
    if label_from is LabelFrom.NAME:
        what, expected = "none of its images has a label in its name", "names such as cat.0.jpg"
    else:
        folders = {folder for key in tree.images() for folder in key.split("/")[-3:-1]}
        check_classes(folders, marks, where)
        what = "no images in class folders"
        expected = "folders such as cat/ and dog/ with images in them"
        hint = (
            "move them into one folder a class; --label-from name takes the labels from names such "
            "as cat.0.jpg"
        )
    return SourceError(what, path=where, expected=expected, found=found, hint=hint)
