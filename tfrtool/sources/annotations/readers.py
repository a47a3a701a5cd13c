"""Which reader takes what ``--annotations`` names."""

from collections.abc import Iterator, Mapping
from glob import glob
from importlib import import_module
from itertools import chain
from operator import itemgetter
from pathlib import Path

from tfrtool.errors import SourceError, UsageError, os_errors_as
from tfrtool.examples.objects.record_features import Masks
from tfrtool.sources.annotations.annotation_reader import (
    AnnotationFolder,
    AnnotationReader,
    ParsedImage,
    check_splits,
    number_classes,
    split_in_name,
)
from tfrtool.sources.annotations.box_table import CsvBoxReader
from tfrtool.sources.annotations.image_files import ImageFilesReader
from tfrtool.sources.folders.listing import is_pattern
from tfrtool.sources.items import LeftOut
from tfrtool.sources.source_options import SourceOptions
from tfrtool.storage.arguments import as_path
from tfrtool.storage.remote_path import AnyPath, RemotePath

_READERS = {
    "voc": ("voc", "VocReader"),
    "labelme": ("labelme", "LabelmeReader"),
    "via": ("via", "ViaReader"),
    "cvat": ("cvat", "CvatReader"),
    "kitti": ("text_labels", "KittiReader"),
    "dota": ("text_labels", "DotaReader"),
    "masks": ("mask_files", "MaskReader"),
}
"""Modules and classes of readers, imported when they are needed."""


def open_annotations(
    options: SourceOptions, images: Path | None, scratch: Path, root: AnyPath | None = None
) -> AnnotationReader:
    """Return what reads annotations; their files are opened when images are asked for.

    Args:
        options: which have kinds and places.
        images: the folder of images, where it is one.
        scratch: a folder for what is too much for memory.
        root: a second folder for the images and labels of YOLO.
    """
    places = dict[str, list[str]]()
    for one in options.annotations or ():
        kind, _, place = one.partition(":")
        places.setdefault(kind, []).append(place)
    if root is not None and "yolo" not in places:
        raise UsageError("--root requires a table, or --annotations yolo:DIR", path=root)
    readers = dict[AnyPath, AnnotationReader]()
    for kind, some in places.items():
        if kind in ("coco", "csv"):  # files that are merged
            paths = [path for place in some for path in _matches(place)]
            if kind == "coco":
                from tfrtool.sources.annotations.coco import CocoReader

                readers[paths[0]] = CocoReader(
                    paths, scratch, Masks(options.masks), options.group_by
                )
            else:
                readers[paths[0]] = CsvBoxReader(paths, scratch)
            continue
        for path in map(as_path, some):
            if kind != "yolo":
                reader = _reader_of(kind)
                alone = path.suffix.lower() == reader.suffix
                folder = AnnotationFolder(path.parent if alone else path, images)
                readers[path] = reader(folder, path.name if alone else None, scratch)
            else:
                from tfrtool.sources.annotations.yolo import YoloReader

                named = path.suffix.lower() in (".yaml", ".yml")
                folder = AnnotationFolder(path.parent if named else path, images, root)
                readers[path] = YoloReader(folder, path.name if named else None)
    return _SeveralReaders(readers) if len(readers) > 1 else next(iter(readers.values()))


def _reader_of(kind: str) -> type[ImageFilesReader]:
    module, name = _READERS[kind]
    found: type[ImageFilesReader] = getattr(
        import_module(f"tfrtool.sources.annotations.{module}"), name
    )
    return found


def _matches(place: str) -> list[AnyPath]:
    """Return what a place names: itself, or the files that a pattern matches."""
    path = as_path(place)
    if not is_pattern(place) or path.exists():
        return [path]
    if isinstance(path, RemotePath):
        with os_errors_as(SourceError, path):
            found: list[AnyPath] = [*path.matching()]
    else:
        matches = map(Path, glob(place, recursive=True))  # noqa: PTH207 - of any folder
        found = [one for one in matches if one.is_file()]
    if not found:
        raise SourceError("no annotation files match", path=place)
    return sorted(found, key=str)


class _SeveralReaders(AnnotationReader):
    def __init__(self, readers: Mapping[AnyPath, AnnotationReader]) -> None:
        super().__init__()
        self._readers = readers

    def images(self) -> Iterator[ParsedImage | LeftOut]:
        """Yield all images; those of a place without splits have the split in its name."""
        splits = dict[AnyPath, str | None]()
        started = [(path, one, one.images()) for path, one in self._readers.items()]
        firsts = [next(images, None) for *_, images in started]  # now the classes are known
        for (path, reader, images), first in zip(started, firsts, strict=True):
            for image in chain([] if first is None else [first], images):
                if isinstance(image, ParsedImage) and image.problem is None:
                    image = image._replace(split=image.split or split_in_name(path.name))
                    splits[path] = splits.get(path, image.split) and image.split
                yield image
            self.notices += reader.notices
            self.ignored.merge(reader.ignored)
            self.skeletons = reader.skeletons | self.skeletons
            self.optional |= reader.optional
            self.used |= reader.used
        check_splits(splits)

    def classes(self) -> Mapping[str, int]:
        """Return the classes of all places, numbered from 1 where their numbers differ."""
        found = [reader.classes() for reader in self._readers.values()]
        merged = {name: number for classes in found for name, number in classes.items()}
        same = all(merged[name] == number for classes in found for name, number in classes.items())
        if same and len({*merged.values()}) == len(merged):
            return dict(sorted(merged.items(), key=itemgetter(1)))
        self.notices.append(
            "annotations number classes differently; classes are renumbered 1, 2, ..."
        )
        return number_classes(merged, next(iter(self._readers)))
