"""Which reader takes what ``--annotations`` names."""

import shlex
from pathlib import Path

from tfrtool.errors import SourceError
from tfrtool.examples.objects.record_features import Masks
from tfrtool.sources.annotations.annotation_folder import AnnotationFolder
from tfrtool.sources.annotations.box_table import CsvBoxReader, is_box_table
from tfrtool.sources.annotations.found import AnnotationReader
from tfrtool.sources.folders.annotated import annotations_at
from tfrtool.sources.source_options import SourceOptions
from tfrtool.storage.locations import as_path
from tfrtool.storage.remote_path import RemotePath

_LOOKS = {"coco": "COCO", "voc": "Pascal VOC", "yolo": "YOLO", "csv": "a table of boxes"}


def open_annotations(
    options: SourceOptions, images: Path | None, scratch: Path
) -> AnnotationReader:
    """Return what reads annotations; their files are opened when images are asked for.

    Args:
        options: which say kind and place.
        images: the folder of images, where it is one.
        scratch: a folder for what is too much for memory.
    """
    kind, _, place = (options.annotations or "").partition(":")
    path = as_path(place)
    if kind == "coco":
        from tfrtool.sources.annotations.coco import CocoReader

        return CocoReader(path, scratch, Masks(options.masks))
    if kind == "voc":
        from tfrtool.sources.annotations.voc import VocReader

        return VocReader(AnnotationFolder(path, images))
    if kind == "yolo":
        from tfrtool.sources.annotations.yolo import YoloReader

        named = path.suffix.lower() in (".yaml", ".yml")
        folder = AnnotationFolder(path.parent if named else path, images)
        return YoloReader(folder, path.name if named else None)
    # The options know no other.
    return CsvBoxReader(path, scratch)


def hint_at_kind(error: SourceError, options: SourceOptions) -> None:
    """Let an error tell what to type where annotations are of another kind than was said."""
    kind, _, place = (options.annotations or "").partition(":")
    path = as_path(place)
    found = None if isinstance(path, RemotePath) else annotations_at(path)
    if found is None and not isinstance(path, RemotePath) and is_box_table(path):
        found = f"csv:{place}"
    if found is not None and not found.startswith(f"{kind}:"):
        looks = _LOOKS[found.partition(":")[0]]
        error.hint = f"what is there looks like {looks}: --annotations {shlex.quote(found)}"
