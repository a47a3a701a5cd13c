"""Names that splits commonly have, in folders and in files."""

import re

SPLIT_NAMES = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("validation", "valid", "val"), "validation"),
    **{"dev": "dev", "eval": "eval"},
    **dict.fromkeys(("test", "testing"), "test"),
}
"""Names of splits in common use, in lower case, and TFDS' own for what means the same."""

SPLIT_ORDER = tuple(dict.fromkeys(SPLIT_NAMES.values()))
"""The order that splits are given in."""

_UNLABELED = {"pred": "pred", **dict.fromkeys(("unlabeled", "unlabelled"), "unlabeled")}
"""Names of folders of images without labels, and of their splits."""

UNLABELED_SPLITS = ("test", *dict.fromkeys(_UNLABELED.values()))
"""Splits whose images may have no labels, as in competitions."""

FOLDER_SPLITS = (*SPLIT_ORDER, *UNLABELED_SPLITS[1:])
"""The order that the splits of folders are given in."""

_FOLDERS = {**SPLIT_NAMES, **_UNLABELED}
_FOLDER = re.compile(
    rf"(?:seg[ _-])?(?P<split>{'|'.join(_FOLDERS)})"
    r"(?:[ _-]?(?:set|data|images|imgs|records|tfrecords?|tfrecs?))?",
    re.IGNORECASE,
)


def split_named(folder: str) -> str | None:
    """Return the split that a folder's name stands for, such as ``seg_train``; None without one."""
    match = _FOLDER.fullmatch(folder)
    return _FOLDERS[match["split"].lower()] if match else None
