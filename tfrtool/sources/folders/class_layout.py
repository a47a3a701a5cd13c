"""What the places of files mean: classes and splits, told from folders or names.

One function for all trees, so that an archive means what the folder means that was packed.
"""

from __future__ import annotations

import enum
import os.path
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tfrtool.errors import SourceError, printable
from tfrtool.sources.folders.annotated import check_classes, check_masks
from tfrtool.sources.folders.listing import Entry, Listing, is_image_name, size_problem
from tfrtool.sources.folders.split_names import SPLIT_NAMES, SPLIT_ORDER
from tfrtool.sources.items import Item, LeftOut, Source

__all__ = ["LabelFrom", "arrange"]

_NUMBERED = re.compile(r"[ ._-]\(?[0-9]")
_SEPARATED = re.compile(r"[._-]")

_EXAMPLES = 3
"""Labels that a hint names."""


class LabelFrom(enum.Enum):
    """Where the label of a file comes from; the values are those of the CLI."""

    FOLDER = "folder"
    """The folder that it lies in: ``cat/1.jpg``."""
    NAME = "name"
    """The part of its name before the first number that a dot, hyphen, underscore or space sets
    apart: ``cat.1.jpg``, ``great_dane_1.jpg``, ``cat (1).jpg``. Without such a number, the part
    before the first dot, hyphen or underscore: ``cat-asleep.jpg``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Layout:
    """How a tree is to be read.

    Attributes:
        prefix: the folder that holds the classes or splits, with its slash; "" for the root.
        splits: the split that each folder in it is; none where they are no splits.
        label_from: where labels come from.
    """

    prefix: str
    splits: dict[str, str]
    label_from: LabelFrom


def arrange(listing: Listing, label_from: LabelFrom, where: str) -> Source:
    """Give each image of a tree its label and its split.

    Folders around everything are looked through: a tree with ``PetImages/Cat/1.jpg`` and
    ``PetImages/Dog/1.jpg`` has the classes Cat and Dog. A folder inside a class belongs to it.
    Where all of several folders have the names of splits, such as ``train`` and ``validation``,
    they are splits, and the classes are looked for in them; of a single one it isn't
    said which part of the whole it is, and so it is looked through.

    Args:
        listing: the tree. Its list of entries is used up, to save memory.
        label_from: where labels come from.
        where: the tree's path, for errors.

    Raises:
        SourceError: no image has a label, a label can't be written, or what would be classes are
            none.
    """
    entries = listing.entries
    entries.sort(key=_key)
    images = [entry.key for entry in entries if is_image_name(entry.key)]
    layout = _layout(images, label_from)
    labels: dict[str, str] = {}
    items: list[Item] = []
    rejected: list[LeftOut] = []
    ignored = list(listing.ignored)
    entries.reverse()
    while entries:
        entry = entries.pop()
        if entry.problem is not None:
            rejected.append(LeftOut(key=entry.key, reason=entry.problem))
        elif not is_image_name(entry.key):
            ignored.append(LeftOut(key=entry.key, reason="no image by its name"))
        elif problem := size_problem(entry.bytes):
            rejected.append(LeftOut(key=entry.key, reason=problem))
        else:
            label, split, reason = _meaning(entry.key, layout)
            if label is None:
                rejected.append(LeftOut(key=entry.key, reason=reason))
                continue
            known = labels.get(label)
            if known is None:
                known = labels[label] = _checked(label, entry.key, where)
            items.append(
                Item(key=entry.key, label=known, bytes=entry.bytes, place=entry.place, split=split)
            )
    check_masks(images, where)
    others = [entry.key for entry in ignored]
    if label_from is LabelFrom.FOLDER and (key := _without_class(items, others, where)):
        items, rejected = [], [LeftOut(key=key, reason="not in a class folder")]
    if not items:
        raise _nothing(images, rejected, others, layout, where)
    found = {item.split for item in items}
    return Source(
        items=tuple(items),
        labels=tuple(sorted(labels)),
        reader=listing.reader,
        splits=tuple(name for name in SPLIT_ORDER if name in found),
        rejected=tuple(rejected),
        ignored=tuple(sorted(ignored, key=_left_key)),
    )


def _without_class(items: Sequence[Item], others: Sequence[str], where: str) -> str | None:
    """Return the key of an image in a split whose labels are no classes; None if all have some.

    Raises:
        SourceError: the labels tell images from annotations.
    """
    classes: dict[str | None, set[str]] = {}
    for split, label in {(item.split, item.label) for item in items}:
        classes.setdefault(split, set()).add(label)
    odd = {split for split, names in classes.items() if not check_classes(names, others, where)}
    return next((item.key for item in items if item.split in odd), None) if odd else None


def _key(entry: Entry) -> str:
    return entry.key


def _left_key(entry: LeftOut) -> str:
    return entry.key


def _layout(images: Sequence[str], label_from: LabelFrom) -> _Layout:
    """Tell a tree's layout from the sorted keys of its images."""
    if label_from is LabelFrom.FOLDER:
        # Images beside the uppermost folders belong to no class, and say nothing of these.
        images = [key for key in images if "/" in key]
    prefix = _common_folder(images)
    tops = {key[len(prefix) :].partition("/")[0] for key in images if "/" in key[len(prefix) :]}
    splits = _as_splits(tops) if len(tops) > 1 else {}
    if label_from is LabelFrom.NAME:
        return _Layout(prefix=prefix, splits=splits, label_from=label_from)
    if prefix and any("/" not in key[len(prefix) :] for key in images):
        # The images' folder is itself a class, not what holds the classes.
        outer, slash, _ = prefix[:-1].rpartition("/")
        prefix = outer + slash
        tops = {images[0][len(prefix) :].partition("/")[0]}
        splits = {}
    if (
        not splits
        and _as_splits(tops)
        and not any(key.count("/", len(prefix)) > 1 for key in images)
    ):
        splits = _as_splits(tops)  # no classes in them: nothing will have a label
    return _Layout(prefix=prefix, splits=splits, label_from=label_from)


def _common_folder(keys: Sequence[str]) -> str:
    """Return the innermost folder that holds all of the sorted keys, with its slash."""
    if not keys:
        return ""
    # What the first and the last of sorted texts start with, all between them start with.
    common = ""
    for first, last in zip(keys[0].split("/")[:-1], keys[-1].split("/")[:-1], strict=False):
        if first != last:
            break
        common += f"{first}/"
    return common


def _as_splits(folders: Iterable[str]) -> dict[str, str]:
    """Return the split that each folder is; none at all if one of them isn't a split."""
    splits = {folder: SPLIT_NAMES.get(folder.lower()) for folder in folders}
    return (
        {folder: split for folder, split in splits.items() if split} if all(splits.values()) else {}
    )


def _meaning(key: str, layout: _Layout) -> tuple[str | None, str | None, str]:
    """Return an image's label and split, or why it has none."""
    below = key[len(layout.prefix) :] if key.startswith(layout.prefix) else ""
    split = None
    if layout.splits:
        top, slash, below = below.partition("/")
        split = layout.splits.get(top) if slash else None
        if split is None:
            return None, None, "not in the folder of a split"
    if layout.label_from is LabelFrom.NAME:
        label = _label_of_name(key)
        return label, split, "its name has no label before a dot, hyphen or underscore"
    label, slash, _ = below.partition("/")
    return label if slash else None, split, "not in a class folder"


def _label_of_name(key: str, *, numbered: bool = False) -> str | None:
    """Return the label that a file's name starts with.

    Args:
        key: the file.
        numbered: take only a label that a number follows.
    """
    stem = key[key.rfind("/") + 1 : key.rfind(".")]
    match = _NUMBERED.search(stem) or (None if numbered else _SEPARATED.search(stem))
    return (stem[: match.start()].rstrip(" ._-").strip() or None) if match else None


def _checked(label: str, key: str, where: str) -> str:
    """Return a class name that a line of UTF-8 text can hold."""
    try:
        label.encode("utf-8")
    except UnicodeEncodeError:
        problem = "a class's name is no UTF-8"
    else:
        if len(label.splitlines()) == 1 and label.strip() == label:
            return label
        problem = "a class's name can't stand on a line of its own"
    raise SourceError(problem, path=_join(where, key), found=f"'{printable(label)}'")


def _nothing(
    images: Sequence[str],
    rejected: Sequence[LeftOut],
    others: Sequence[str],
    layout: _Layout,
    where: str,
) -> SourceError:
    """Return the error for a tree without a labelled image."""
    if not images:
        found = f"{len(rejected)} that can't be read" if rejected else None
        return SourceError("holds no images", path=where, expected="image files", found=found)
    first = rejected[0]
    found = f"{printable(first.key)}: {first.reason}"
    if layout.label_from is LabelFrom.NAME:
        return SourceError(
            "none of its images has a label in its name",
            path=where,
            expected="names such as cat.0.jpg",
            found=found,
        )
    folders = {folder for key in images for folder in key.split("/")[-3:-1]}
    check_classes(folders, others, where)
    return SourceError(
        "no images in class folders",
        path=where,
        expected="folders such as cat/ and dog/ with images in them",
        found=found,
        hint=_flat_hint(images),
    )


def _flat_hint(images: Sequence[str]) -> str:
    """Say what to do about images that lie in no class folder."""
    labels = {_label_of_name(key, numbered=True) for key in images}
    names = sorted(label for label in labels if label and not label.isdigit())
    # Names that give each file, or all files, a label of its own say nothing.
    if len(names) == len(labels) and 1 < len(names) <= len(images) // 2:
        shown = ", ".join(printable(name) for name in names[:_EXAMPLES])
        more = ", ..." if len(names) > _EXAMPLES else ""
        return f"--label-from name takes the labels from the names ({shown}{more})"
    return "move them into one folder a class"


def _join(where: str, key: str) -> str:
    return os.path.join(where, key)  # noqa: PTH118 - where may be a pattern or an archive
