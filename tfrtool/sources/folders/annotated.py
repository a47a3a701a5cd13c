"""Trees whose folders are not classes: VOC, COCO, YOLO, images next to masks."""

import os
import re
import shlex
from collections.abc import Collection, Iterable
from contextlib import suppress
from itertools import islice
from pathlib import Path

from tfrtool.errors import SourceError, printable, some_of
from tfrtool.records.compression import starts_record
from tfrtool.records.shard_sets import has_other_format, is_shard_name
from tfrtool.sources.folders.listing import list_directory
from tfrtool.storage.opening import open_regular

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
_COCO = "_annotations.coco.json"
_COCO_FILE = re.compile(rf"(?s:.*/)?(?:instances[^/]*\.json|[^/]*{re.escape(_COCO)})")
_COCO_START = re.compile(
    rb"(?:\xef\xbb\xbf)?\s*\{(?s:.*)\"(?:images|annotations|categories)\"\s*:\s*\["
)
_HEAD = 2**14
_FILES_OPENED = 8
"""Files whose names show nothing that are opened to find shards."""

_LABEL_STUDIO = re.compile(r"project-[0-9]+(?:-at-[0-9][^/]*)?(?:-min)?\.json", re.IGNORECASE)
YAML_NAMES = ("data.yaml", "data.yml", "dataset.yaml")
"""What YOLO's description of a dataset is called."""

CLASSES_CSV = "_classes.csv"
"""Roboflow's table of labels, with a column per class; or of the values of masks."""

METADATA_TABLES = ("metadata.jsonl", "metadata.csv", "metadata.parquet", CLASSES_CSV)
"""What tables of the images in a folder are called."""

_SHOWN = 4
_COMPARED = 2**20
"""Names that are looked at for annotations."""


def _role(folder: str) -> str | None:
    match = _ROLE.fullmatch(folder)
    return match.lastgroup if match else None


def is_annotation(folder: str) -> bool:
    """Return whether a folder's name says that it holds annotations."""
    return _role(folder) in ("marks", "split_marks")


def is_images_folder(folder: str) -> bool:
    """Return whether a folder's name says that it holds images, and not which class they are."""
    return _role(folder) == "images"


def without_roles(key: str) -> str:
    """Return a path without suffix, and without folders that say what files are."""
    *folders, name = key.rpartition(".")[0].split("/")
    return "/".join((*(one for one in folders if _role(one) in (None, "split")), name))


def check_masks(folders: Iterable[str], where: str) -> None:
    """Raise a SourceError if masks are in a folder next to those of images."""
    children: dict[str, set[str]] = {}
    for folder in folders:
        while folder:
            folder, _, name = folder.rpartition("/")
            children.setdefault(folder, set()).add(name)
    for names in children.values():
        roles = set(map(_role, names))
        if None not in roles and "images" in roles and roles & {"marks", "split_marks"}:
            raise _refusal(_listed(names), where)


def check_classes(names: Collection[str], others: Iterable[str], where: str) -> bool:
    """Return whether names of folders are classes, and not kinds of files such as masks.

    If they are not, and there are folders of annotations, or among the paths of ``others``, it is a
    SourceError.
    """
    roles = set(map(_role, names))
    kinds = roles & {"images", "release", "split_marks"} or _VOC & {name.lower() for name in names}
    if None in roles:
        return True
    marks = {name for folder in others for name in folder.split("/") if is_annotation(name)}
    if not kinds and not (marks and "split" in roles):
        return True
    if marks or roles - {"images", "split"}:
        raise _refusal(_listed({*names, *marks}), where)
    return False


def _listed(folders: Iterable[str]) -> str:
    return some_of([f"{printable(name)}/" for name in sorted(folders)], _SHOWN)


def annotations_hint(where: str) -> str | None:
    """Return the command that reads the annotations in a local folder; None if there are none.

    Those of a folder of images may be in a folder next to it.
    """
    folder_path = Path(os.path.abspath(where))  # noqa: PTH100 - links stay
    for folder, outer in zip(
        (folder_path, *folder_path.parents), (Path(where), *folder_path.parents), strict=True
    ):
        if (found := annotations_at(outer)) is not None:
            return write_command(str(outer), found)
        if _role(folder.name) not in ("images", "split"):
            break
    return None


def annotations_at(path: Path) -> str | None:
    """Return what ``--annotations`` takes of a local file or folder; None if it is no such."""
    keys = list[str]()
    with suppress(OSError, SourceError):
        if not path.is_dir():
            with open_regular(path) as file:
                return _kind_of(path, file.read(_HEAD))
        keys += islice((entry.key for entry in list_directory(str(path)).entries), _COMPARED)
    coco = [key for key in keys if _COCO_FILE.fullmatch(key)]
    for key in sorted(keys, key=lambda key: (key.count("/"), key)):
        folder, _, name = key.rpartition("/")
        if name in YAML_NAMES:
            return f"yolo:{path / folder}"
        if _LABEL_STUDIO.fullmatch(name):
            return f"labelstudio:{path / key}"
        if name.lower().endswith(".xml"):
            return f"voc:{path}"
        if name == CLASSES_CSV and names_pixels(path / key):
            return f"masks:{path}"
        if key in coco:  # for several, one per split, the folder counts; Roboflow's has folders
            of_folder = path / folder.rpartition("/")[0] if key.endswith(_COCO) else path / folder
            return f"coco:{of_folder if len(coco) > 1 else path / key}"
    return None


def names_pixels(table: Path) -> bool:
    """Return whether Roboflow's ``_classes.csv`` names the values of masks, and not of images."""
    with suppress(OSError, ValueError), open_regular(table) as file:
        return b"pixel value" in file.read(_HEAD).lower()
    return False


def _kind_of(file: Path, head: bytes) -> str | None:
    """Return what ``--annotations`` takes of a file that starts so."""
    if _COCO_START.match(head):
        return f"coco:{file}"
    if file.suffix.lower() == ".xml" and b"<annotation" in head:
        folder = file.parent
        return f"voc:{folder.parent if folder.name == 'Annotations' else folder}"
    is_yolo = file.suffix.lower() in (".yaml", ".yml") and b"names:" in head
    return f"yolo:{file}" if is_yolo else None


def write_command(source: str, annotations: str) -> str:
    """Return what is typed to write images with annotations."""
    return shlex.join(["tfrtool", "write", source, "DATASET", "--annotations", annotations])


def find_shard(keys: Iterable[str], folder: str) -> str | None:
    """Return the first file that is a TFRecord shard, by its name or its content; None without.

    Args:
        keys: paths of files, relative to a folder.
        folder: the folder.
    """
    opened = 0
    for key in keys:
        name = key.rpartition("/")[2]
        is_shard = None if has_other_format(name) else is_shard_name(name)
        if is_shard is None and opened < _FILES_OPENED:
            opened += 1
            with suppress(OSError, ValueError), open_regular(Path(folder) / key) as file:
                is_shard = starts_record(file.read(_HEAD))
        if is_shard:
            return key
    return None


def shards_refusal(shard: str, where: str) -> SourceError:
    """Return the error for a source that is made of shards."""
    kind = "dataset" if Path(where).is_dir() else "shard"
    command = shlex.join(["tfrtool", "inspect", kind, where])
    return SourceError(
        "already a dataset of TFRecord shards, not a source of images",
        path=where,
        found=printable(shard),
        hint=f"run {command} to see what it contains; verify, reshard, edit, convert and train "
        "read it too",
    )


def _refusal(found: str, where: str) -> SourceError:
    command = annotations_hint(where)
    hint = "use --annotations for COCO, Pascal VOC or YOLO boxes, or pass the images alone, in one "
    hint += "folder per class (masks alone are not supported)"
    return SourceError(
        "looks like a dataset with annotations or masks, not class folders",
        path=where,
        found=found,
        hint=f"run {command} to write both" if command else hint,
    )
