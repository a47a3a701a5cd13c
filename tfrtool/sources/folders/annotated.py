"""Trees whose folders are no classes: VOC, COCO, YOLO, images beside masks."""

import functools
import re
import zlib
from collections.abc import Callable, Collection, Iterable

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
_COMPARED = 2**20
"""Names that are held in memory to look for masks."""


@functools.lru_cache(maxsize=4096)
def _role(folder: str) -> str | None:
    match = _ROLE.fullmatch(folder)
    return match.lastgroup if match else None


class MaskCheck:
    """Tells from images, seen one by one, whether masks are among them, beside or in a folder.

    Memory is bounded by the number of folders that hold folders.
    """

    def __init__(self) -> None:
        """Start without images."""
        self._last = ""
        self._folders: dict[str, set[str] | None] = {}  # None where one says nothing of its files
        self._images = self._masks = 0

    def add(self, key: str) -> None:
        """See an image; the next is best one beside it."""
        folder = key.rpartition("/")[0]
        self._images += 1
        self._masks += _MASK.search(key[: key.rfind(".")]) is not None
        if folder == self._last:
            return
        self._last = folder
        while folder:
            folder, _, name = folder.rpartition("/")
            names = self._folders.setdefault(folder, set())
            if names is not None and _role(name) is None:
                self._folders[folder] = None
            elif names is not None:
                names.add(name)

    def end(self, images: Callable[[], Iterable[str]], where: str) -> None:
        """Raise a SourceError if there are masks, once all images, which can be had again, are in.

        Of very many names some are compared, and always those that belong together.
        """
        for names in self._folders.values():
            roles = set(map(_role, names or ()))
            if "images" in roles and roles & {"marks", "split_marks"}:
                raise _refusal(_listed(names or ()), where)
        if 3 * self._masks < self._images:
            return  # they can't be half of the others
        share = 1 + self._images // _COMPARED
        stems = (key.rpartition(".")[0] for key in images())
        masks = {stem for stem in stems if _MASK.search(stem) and _drawn(stem, share)}
        bases = {_MASK.sub("", stem) for stem in masks}
        masked = {stem for key in images() if (stem := key.rpartition(".")[0]) in bases}
        if masked and 2 * len(masked) * share >= self._images - len(masks) * share:
            example = printable(min(masks).rpartition("/")[2])
            raise _refusal(f"{len(masks) * share:,} masks such as {example}", where)


def _drawn(stem: str, share: int) -> bool:
    base = _MASK.sub("", stem).encode("utf-8", "surrogatepass")
    return share == 1 or zlib.crc32(base) % share == 0


def is_annotation(folder: str) -> bool:
    """Return whether a folder's name says that it holds annotations."""
    return _role(folder) in ("marks", "split_marks")


def check_classes(names: Collection[str], marks: Collection[str], where: str) -> bool:
    """Tell whether folders' names are those of classes, and not such as say what files are.

    If they are not, and there are folders of annotations, ``marks``, it is a SourceError.
    """
    roles = set(map(_role, names))
    told = roles & {"images", "release", "split_marks"} or _VOC & {name.lower() for name in names}
    if None in roles or not told:
        return True
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
