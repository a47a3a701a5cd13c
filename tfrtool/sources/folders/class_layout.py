"""What the places of files mean: classes and splits, told from folders or names.

One function for all trees, so that an archive means what the folder means that was packed.
"""

import enum
import os.path
import re
from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter

from tfrtool.errors import SourceError, printable
from tfrtool.sources.folders.annotated import check_classes, check_masks
from tfrtool.sources.folders.listing import (
    SPLIT_NAMES,
    SPLIT_ORDER,
    Listing,
    is_image_name,
    size_problem,
)
from tfrtool.sources.items import Item, LeftOut, Source, label_problem

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


def arrange(listing: Listing, label_from: LabelFrom, where: str) -> Source:
    """Give each image of a tree, which lies at ``where``, its label and its split.

    Folders around everything are looked through: a tree with ``PetImages/Cat/1.jpg`` and
    ``PetImages/Dog/1.jpg`` has the classes Cat and Dog. A folder inside a class belongs to it.
    Where all of several folders have the names of splits, such as ``train`` and ``validation``,
    they are splits, and the classes are looked for in them; of a single one it isn't
    said which part of the whole it is, and so it is looked through. The listing is used up. It is a
    SourceError if no image has a label, or what would be classes are none.
    """
    entries = listing.entries
    entries.sort(key=attrgetter("key"))
    images = [entry.key for entry in entries if is_image_name(entry.key)]
    prefix, splits = _layout(images, label_from)
    labels: dict[str, str] = {}
    items: list[Item] = []
    rejected: list[LeftOut] = []
    ignored: list[LeftOut] = []
    entries.reverse()
    while entries:
        entry = entries.pop()
        if entry.problem is None and not is_image_name(entry.key):
            ignored.append(LeftOut(key=entry.key, reason="no image by its name"))
        elif problem := entry.problem or size_problem(entry.bytes):
            rejected.append(LeftOut(key=entry.key, reason=problem))
        else:
            label, split, reason = _meaning(entry.key, prefix, splits, label_from)
            if label is None:
                rejected.append(LeftOut(key=entry.key, reason=reason))
                continue
            if label not in labels:
                labels[label] = label
                if problem := label_problem(label):
                    path = os.path.join(where, entry.key)  # noqa: PTH118 - where may be a pattern
                    shown = f"'{printable(label)}'"
                    raise SourceError(f"a class's name {problem}", path=path, found=shown)
            label = labels[label]  # one text for all
            place, size = entry.place, entry.bytes
            items.append(Item(key=entry.key, label=label, bytes=size, place=place, split=split))
    check_masks(images, where)
    others = [entry.key for entry in ignored]
    if label_from is LabelFrom.FOLDER and (key := _without_class(items, others, where)):
        items, rejected = [], [LeftOut(key=key, reason="not in a class folder")]
    if not items:
        raise _nothing(images, rejected, others, label_from, where)
    found = {item.split for item in items}
    return Source(
        items=tuple(items),
        labels=tuple(sorted(labels)),
        reader=listing.reader,
        splits=tuple(name for name in SPLIT_ORDER if name in found),
        rejected=tuple(rejected),
        ignored=tuple(ignored),
    )


def _without_class(items: Sequence[Item], others: Sequence[str], where: str) -> str | None:
    """Return the key of an image in a split whose labels are no classes; None if all have some."""
    classes: dict[str | None, set[str]] = {}
    for split, label in {(item.split, item.label) for item in items}:
        classes.setdefault(split, set()).add(label)
    odd = {split for split, names in classes.items() if not check_classes(names, others, where)}
    return next((item.key for item in items if item.split in odd), None) if odd else None


def _layout(images: Sequence[str], label_from: LabelFrom) -> tuple[str, dict[str, str]]:
    """Tell from the sorted keys of a tree's images which folder holds classes or splits, and these.

    The folder comes with its slash.
    """
    if label_from is LabelFrom.FOLDER:
        # Images beside the uppermost folders belong to no class, and say nothing of these.
        images = [key for key in images if "/" in key]
    # What the first and the last of sorted texts start with, all between them start with.
    start = os.path.commonprefix([images[0], images[-1]]) if images else ""  # noqa: RUF071
    prefix = start[: start.rfind("/") + 1]
    tops = {key[len(prefix) :].partition("/")[0] for key in images if "/" in key[len(prefix) :]}
    splits = _as_splits(tops) if len(tops) > 1 else {}
    if label_from is LabelFrom.NAME:
        return prefix, splits
    if prefix and any("/" not in key[len(prefix) :] for key in images):
        # The images' folder is itself a class, not what holds the classes.
        outer, slash, _ = prefix[:-1].rpartition("/")
        prefix = outer + slash
        tops = {images[0][len(prefix) :].partition("/")[0]}
        splits = {}
    if not splits and not any(key.count("/", len(prefix)) > 1 for key in images):
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
    images: Sequence[str],
    rejected: Sequence[LeftOut],
    others: Sequence[str],
    label_from: LabelFrom,
    where: str,
) -> SourceError:
    """Return the error for a tree without a labelled image."""
    if not images:
        what, expected = "holds no images", "image files"
        found = f"{len(rejected)} that can't be read" if rejected else None
        return SourceError(what, path=where, expected=expected, found=found)
    found = f"{printable(rejected[0].key)}: {rejected[0].reason}"
    hint = None
    if label_from is LabelFrom.NAME:
        what, expected = "none of its images has a label in its name", "names such as cat.0.jpg"
    else:
        folders = {folder for key in images for folder in key.split("/")[-3:-1]}
        check_classes(folders, others, where)
        what = "no images in class folders"
        expected = "folders such as cat/ and dog/ with images in them"
        hint = (
            "move them into one folder a class; --label-from name takes the labels from names such "
            "as cat.0.jpg"
        )
    return SourceError(what, path=where, expected=expected, found=found, hint=hint)
