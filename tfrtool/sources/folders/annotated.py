"""Trees whose folders are no classes: VOC, COCO, YOLO, images beside masks."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence

from tfrtool.errors import SourceError, printable

_SPLIT = "(?:train(?:ing)?|val(?:id(?:ation)?)?|dev|eval|test(?:ing)?|unlabell?ed)"
_MARKS = (
    "(?:masks?|labels?|annot(?:ation)?s?|trimaps?|segmentations?|segmentation(?:class|object)"
    "|ground[ _-]?truth|gt|gt(?:fine|coarse)|gt_image)"
)
_ROLE = re.compile(
    rf"(?P<split>{_SPLIT})|(?P<release>(?:{_SPLIT}|voc)[ _-]?20[0-9]{{2}})"
    rf"|(?:{_SPLIT})?[ _-]?(?P<images>images?|imgs?|jpe?g|png|jpegimages|leftimg8bit)(?:_[0-9])?"
    rf"|(?P<marks>{_MARKS})(?:_[0-9])?|(?P<split_marks>{_SPLIT}[ _-]?{_MARKS})",
    re.IGNORECASE,
)
"""Names of folders that say what files are, and not what they show."""

_VOC = frozenset({"jpegimages", "segmentationclass", "segmentationobject"})
_MASK = re.compile(r"[ _-]mask(?:[ _-]?[0-9]+)?$", re.IGNORECASE)
_SHOWN = 4

_HINT = "annotations can't be written yet; images alone, in one folder a class, can"


def _role(folder: str) -> str | None:
    match = _ROLE.fullmatch(folder)
    return match.lastgroup if match else None


def check_masks(images: Sequence[str], where: str) -> None:
    """Raise a SourceError if masks lie among images, beside them or in a folder beside theirs."""
    folders: dict[str, set[str]] = {}
    for folder in {key.rpartition("/")[0] for key in images}:
        while folder:
            parent, _, name = folder.rpartition("/")
            folders.setdefault(parent, set()).add(name)
            folder = parent
    for names in folders.values():
        roles = set(map(_role, names))
        if None not in roles and "images" in roles and roles & {"marks", "split_marks"}:
            raise _refusal(names, (), where)
    masks = {stem for key in images if _MASK.search(stem := key.rpartition(".")[0])}
    bases = {_MASK.sub("", stem) for stem in masks}
    masked = {stem for key in images if (stem := key.rpartition(".")[0]) in bases}
    if masked and 2 * len(masked) >= len(images) - len(masks):
        example = min(masks).rpartition("/")[2]
        raise SourceError(
            "looks like images with masks beside them, not like class folders",
            path=where,
            found=f"{len(masks):,} such as {printable(example)}",
            hint=_HINT,
        )


def check_classes(names: Collection[str], others: Collection[str], where: str) -> bool:
    """Tell whether folders' names are those of classes, and not such as say what files are.

    If they are not, and the keys of others than images hold annotations, it is a SourceError.
    """
    roles = set(map(_role, names))
    told = roles & {"images", "release", "split_marks"} or _VOC & {name.lower() for name in names}
    if None in roles or not told:
        return True
    if _marks(others) or roles - {"images", "split"} or _has_json(others):
        raise _refusal(names, others, where)
    return False


def _marks(others: Iterable[str]) -> set[str]:
    """Return the folders of annotations that files lie in."""
    folders = {folder for key in others for folder in key.split("/")[:-1]}
    return {folder for folder in folders if _role(folder) in ("marks", "split_marks")}


def _has_json(others: Iterable[str]) -> bool:
    """Return whether there are annotations as COCO has them."""
    names = (key.rpartition("/")[2].lower() for key in others if key.lower().endswith(".json"))
    return any("instances" in name or "coco" in name for name in names)


def _refusal(names: Collection[str], others: Collection[str], where: str) -> SourceError:
    found = sorted({*names, *_marks(others)})
    known = {name.lower() for name in found}
    if known & _VOC or any(name.startswith("voc") for name in known):
        kind = "a Pascal VOC dataset"
    elif "release" in map(_role, names) or _has_json(others):
        kind = "a COCO dataset"
    elif any(key.endswith(".txt") and "labels/" in key for key in others):
        kind = "a YOLO dataset"
    else:
        kind = "images with masks or other annotations"
    more = ", ..." if len(found) > _SHOWN else ""
    return SourceError(
        f"looks like {kind}, not like class folders",
        path=where,
        found=", ".join(f"{printable(name)}/" for name in found[:_SHOWN]) + more,
        hint=_HINT,
    )
