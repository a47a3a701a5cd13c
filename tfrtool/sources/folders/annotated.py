"""Trees whose folders are no classes: VOC, COCO, YOLO, images beside masks."""

import re
from collections.abc import Collection, Iterable, Sequence

from tfrtool.errors import SourceError, printable, some_of

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
            raise _refusal(_listed(names), where)
    masks = {stem for key in images if _MASK.search(stem := key.rpartition(".")[0])}
    bases = {_MASK.sub("", stem) for stem in masks}
    masked = {stem for key in images if (stem := key.rpartition(".")[0]) in bases}
    if masked and 2 * len(masked) >= len(images) - len(masks):
        example = printable(min(masks).rpartition("/")[2])
        raise _refusal(f"{len(masks):,} masks such as {example}", where)


def check_classes(names: Collection[str], others: Collection[str], where: str) -> bool:
    """Tell whether folders' names are those of classes, and not such as say what files are.

    If they are not, and there are folders of annotations, of other files too, it is a SourceError.
    """
    roles = set(map(_role, names))
    told = roles & {"images", "release", "split_marks"} or _VOC & {name.lower() for name in names}
    if None in roles or not told:
        return True
    folders = {folder for key in others for folder in key.split("/")[:-1]}
    marks = {folder for folder in folders if _role(folder) in ("marks", "split_marks")}
    if marks or roles - {"images", "split"}:
        raise _refusal(_listed({*names, *marks}), where)
    return False


def _listed(folders: Iterable[str]) -> str:
    return some_of([f"{printable(name)}/" for name in sorted(folders)], _SHOWN)


def _refusal(found: str, where: str) -> SourceError:
    return SourceError(
        "looks like a dataset with annotations or masks, not like class folders",
        path=where,
        found=found,
        hint="annotations can't be written yet; images alone, in one folder a class, can",
    )
