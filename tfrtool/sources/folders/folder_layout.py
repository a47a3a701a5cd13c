"""Which folders of a tree are splits and which are classes, by their names and what is in them."""

import os.path
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from tfrtool.records.shard_sets import SPLIT_ORDER, UNLABELED_SPLITS, split_named
from tfrtool.sources.folders.annotated import is_images_folder

TRAIN = SPLIT_ORDER[0]
"""The split whose share of a whole is unknown if there is no other."""


class FolderMeaning(NamedTuple):
    """What a folder says of the images in it.

    Attributes:
        split: their split, if the tree has splits.
        label: their class.
        depth: that of the folder which is the class, from 1; where it would be, if there is none.
        reason: why they have no class.
    """

    split: str | None = None
    label: str | None = None
    depth: int = 1
    reason: str = "not in a class folder"


class FolderLayout:
    """The meanings of the folders of a tree.

    Folders around everything are skipped. Folders next to each other are splits if all of them have
    the names of splits, or two of them and no image is directly in that of training. Classes are
    below splits, or else above them. A single split for training is none, since its share of the
    whole is unknown.

    Attributes:
        splits: names of the splits.
        classless: names of the splits that have no class folders.
        unlabeled: those of them whose images may lack labels, if others have class folders.
    """

    def __init__(self, folders: Collection[str], *, is_named: bool, depth: int | None) -> None:
        """Find the meanings.

        Args:
            folders: paths of the folders that images are in.
            is_named: whether labels are in the names of files, and not in those of folders.
            depth: that of class folders, from 1; None finds out.
        """
        self._folders, self._depth = {*folders}, depth
        self._children = dict[str, set[str]]()
        for folder in folders:
            while folder:
                folder, _, name = folder.rpartition("/")
                self._children.setdefault(folder, set()).add(name)
        # Images next to the uppermost folders belong to no class, and don't count.
        paths = {folder and f"{folder}/" for folder in folders if folder or is_named}
        prefix = os.path.commonprefix([*paths])  # noqa: RUF071
        prefix = prefix[: prefix.rfind("/") + 1]
        # Where images are in the last one, it is itself a class, not what holds the classes.
        is_class = bool(prefix) and prefix in paths and not is_named
        self._around = prefix.count("/") - is_class  # how many folders are around all others
        self._split_folders = {outer: self._splits_in(outer) for outer in self._children}
        self._spans = self._find_spans(is_named=is_named)
        self.splits = frozenset(split for split, _, _ in self._spans.values())
        self._are_below = any(
            end < len(folder.split("/")) for folder, (_, _, end) in self._spans.items()
        )
        meanings = map(self.meaning, folders if self.splits and not is_named else ())
        labelled = {one.split for one in meanings if self._is_class(one.label)}
        self.classless = frozenset() if is_named else self.splits - labelled
        self.unlabeled = self.classless.intersection(UNLABELED_SPLITS if labelled - {None} else ())

    def meaning(self, folder: str) -> FolderMeaning:
        """Return what a folder says of the images that are directly in it."""
        parts = folder.split("/") if folder else []
        split, start, end = self._spans.get(folder, (None, 0, 0))
        if self.splits and split is None:
            return FolderMeaning(reason="not in a split folder")
        if self._depth is not None:
            at = self._depth - 1
        elif split is None:
            at = self._around
        elif not self._are_below and start > self._around:
            at = start - 1
        else:
            at = end
            while len(parts) > at + 1 and self._holds_classes(parts, at):
                at += 1
        if len(parts) > at:
            return FolderMeaning(split, parts[at], at + 1)
        if self._depth is not None:
            return FolderMeaning(split, None, at + 1, f"not in a folder at depth {self._depth}")
        return FolderMeaning(split, None, at + 1)

    def least_depth(self, depth: int) -> int:
        """Return the lowest depth of classes that is right instead of a depth; 1 if that is."""
        spans = [(start, end) for _, start, end in self._spans.values()]
        is_around = depth <= self._around
        return 1 + max(
            (end for start, end in spans if is_around or start < depth <= end), default=0
        )

    def _is_class(self, label: str | None) -> bool:
        return label is not None and (self._depth is not None or not is_images_folder(label))

    def _holds_classes(self, parts: Sequence[str], at: int) -> bool:
        """Return whether a folder such as ``images`` is around all that its split has."""
        outer = "/".join(parts[:at])
        return is_images_folder(parts[at]) and len(self._children[outer]) == 1

    def _find_spans(self, *, is_named: bool) -> dict[str, tuple[str, int, int]]:
        """Return the split of each folder, and where the folders that say so start and end."""
        spans = dict[str, tuple[str, int, int]]()
        for folder in self._folders:
            found = list[tuple[int, str]]()
            parts, outer = folder.split("/"), ""
            for at, name in enumerate(parts):
                split = self._split_folders.get(outer, {}).get(name)
                if split is not None:
                    found.append((at, split))
                elif found:
                    break
                outer = f"{outer}/{name}" if outer else name
            if found:
                spans[folder] = found[-1][1], found[0][0], found[-1][0] + 1
        splits = {split for split, _, _ in spans.values()}
        folders = self._folders - {""}
        if len(splits) > 1 or (splits and splits != {TRAIN} and len(spans) == len(folders)):
            return spans
        is_flat = not is_named and len(folders) == 1  # no classes: nothing will have a label
        return (
            spans
            if is_flat and all(folder.count("/") < end for folder, (_, _, end) in spans.items())
            else {}
        )

    def _splits_in(self, outer: str) -> Mapping[str, str]:
        """Return the splits that folders in a folder are, by their names."""
        names = self._children[outer]
        splits = {name: split for name in names if (split := split_named(name)) is not None}
        if len(splits) == len(names):
            return splits
        prefix = outer and f"{outer}/"
        training = [f"{prefix}{name}" for name, split in splits.items() if split == TRAIN]
        is_flat = any(folder in self._folders for folder in training)
        return splits if training and not is_flat and len({*splits.values()}) > 1 else {}
