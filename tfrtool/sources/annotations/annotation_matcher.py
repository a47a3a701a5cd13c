"""Images and their annotations: every object is written, or listed with a reason."""

import json
from collections.abc import Iterator, Set
from functools import cached_property
from pathlib import Path
from typing import Any
from unicodedata import normalize

from tfrtool.errors import SourceError, os_reason, printable
from tfrtool.examples.objects.annotation import ExtraFeatures, ImageAnnotation, ObjectAnnotation
from tfrtool.examples.objects.record_features import LabelKind, Masks, RecordFeatures
from tfrtool.images.decoder import RefusedImageError, quiet_pillow, read_frame
from tfrtool.images.masks import outline_points
from tfrtool.sources.annotations.annotation_reader import (
    AnnotationReader,
    Box,
    ParsedImage,
    ParsedObject,
    masks_problem,
)
from tfrtool.sources.class_map import ClassMap
from tfrtool.sources.folders.listing import Listing, is_image_name, size_problem, splits_in_order
from tfrtool.sources.folders.unread_images import why_unread
from tfrtool.sources.grouping import alone_notice, group_number
from tfrtool.sources.items import AnnotationAccount, Item, ItemTable, LeftOut, Source, UnfitError
from tfrtool.sources.label_choice import read_class_list
from tfrtool.sources.source_options import SourceOptions
from tfrtool.storage.arguments import as_path
from tfrtool.storage.capped_list import CappedList
from tfrtool.storage.limits import (
    MAX_LISTED,
    MAX_OUTLINE_POINTS,
    MAX_PATH_LENGTH,
)

_SHOWN = 5

_SLACK = 0.01
"""Pixels that a box may reach over its image by rounding: YOLO's shares have six digits."""

_DEEPEST = 64
"""Parts of a path by which an image is looked for."""

_OPTIONAL = ObjectAnnotation._fields[5:]
_SEGMENTATION, _KEYPOINTS = (_OPTIONAL.index(name) for name in ("segmentation", "keypoints"))


class _TooSmallError(Exception):
    """A box is smaller than the user wants."""


def match_annotations(
    listing: Listing, reader: AnnotationReader, options: SourceOptions, where: str, scratch: Path
) -> Source:
    """Return the images of a tree with their objects.

    An object whose box lies partly outside of its image is clipped, and listed. Objects with an
    impossible box or an unknown category are listed, as are those without an image. Images without
    objects are kept.

    Args:
        listing: the images.
        reader: the annotations.
        options: those of the source.
        where: the path of the images, for errors.
        scratch: a folder for annotations, which may be too many for memory.
    """
    return _AnnotationMatcher(listing, options, where, scratch).source(reader)


class _AnnotationMatcher:
    """Finds the image of each annotation, and accounts for every object."""

    def __init__(self, listing: Listing, options: SourceOptions, where: str, scratch: Path) -> None:
        self._options, self._where = options, where
        self._items, self._reader = ItemTable(scratch), listing.reader
        self._files: dict[str, tuple[int, int]] = {}  # sizes and places by keys
        self._rejected, self._ignored, self._lost, self._clipped = (
            CappedList[LeftOut](MAX_LISTED) for _ in range(4)
        )
        self._stale = CappedList[str](_SHOWN)
        self._read = self._points = self._alone = 0
        self._splits, self._first = set[str](), dict[str, str]()  # where keys are annotated, or ""
        self._numbers: dict[str, int] = {}
        self._used: Set[str] = frozenset()
        self._dropped, self._dropped_names = 0, set[str]()  # classes that are dropped
        for key, size, locator, problem in listing.entries:
            self._files.pop(key, None)  # of members of an archive with one name, the last counts
            if problem is None and is_image_name(key):
                problem = size_problem(size)
                if problem is None:
                    self._files[key] = size, locator
            elif problem is None:
                problem = why_unread(key, listing.reader)
            if problem is not None:
                self._rejected.add(LeftOut(key=key, reason=problem))

    def _choose_classes(
        self, reader: AnnotationReader
    ) -> tuple[dict[str, int], dict[str, str], dict[str, str]]:
        """Choose the classes of objects, and give them numbers.

        Returns their ids by name, their names by other names, and by those in the annotations.
        """
        classes, others, new = {**reader.classes()}, dict[str, str](), dict[str, str]()
        if chosen := ClassMap.parse(self._options.class_map, self._options.only_classes):
            chosen.check_files(classes)
            new = chosen.new_names(classes)
            self._dropped_names = {old for old, name in new.items() if not name}
            renamed = dict[str, int]()
            for old, number in classes.items():
                if name := new[old]:
                    renamed.setdefault(name, number)
            classes = renamed
        if (path := self._options.labels) is not None:
            classes, others = read_class_list(as_path(path))
        self._numbers = {name: number for number, name in enumerate(classes)}
        self._numbers |= {other: self._numbers[name] for other, name in others.items()}
        self._numbers |= {old: self._numbers.get(name, -1) for old, name in new.items()}
        return classes, others, new

    def source(self, reader: AnnotationReader) -> Source:
        """Read the annotations, and return the source."""
        images = reader.images()
        self._used = reader.used
        first = next(images, None)
        classes, others, new = self._choose_classes(reader)
        labels = tuple(classes)
        if first is not None:
            self._match(first)
        for image in images:
            self._match(image)
        for key in sorted(self._files.keys() - self._first.keys() - reader.used):
            self._ignored.add(LeftOut(key=key, reason="not in the annotations"))
        self._ignored.merge(reader.ignored)
        if not self._items:
            listed = next(iter((*self._rejected.entries, *self._ignored.entries)), None)
            why = f" ({printable(listed.key)}: {listed.reason})" if listed else ""
            raise SourceError(
                f"no image has annotations{why}",
                path=self._where,
                expected="the folder that file names in the annotations are relative to",
            )
        pairs = reader.skeletons.items() if self._points else ()
        grouped, notice = self._alone < len(self._items), None
        if grouped:
            shown = self._options.group_by or ""
            notice = alone_notice(self._alone, len(self._items), shown)
        skeletons = [(new.get(name, name), one) for name, one in pairs]
        return Source(
            items=self._items,
            labels=labels,
            reader=self._reader,
            splits=splits_in_order(self._splits),
            rejected=tuple(self._rejected.entries),
            ignored=tuple(self._ignored.entries),
            more_rejected=self._rejected.more,
            more_ignored=self._ignored.more,
            notices=(*reader.notices, *self._notices(), *filter(None, (notice,))),
            grouped=grouped,
            features=RecordFeatures(
                layout=self._options.names,
                label=LabelKind.NONE,
                has_objects=True,
                classes=labels,
                class_ids=tuple(classes.values()),
                optional=tuple(name for name in _OPTIONAL if name in reader.optional),
                keypoints=self._points,
                skeletons=tuple((others.get(name, name), one) for name, one in skeletons),
                masks=Masks(self._options.masks),
            ),
            annotations=AnnotationAccount(
                read=self._read,
                rejected=tuple(self._lost.entries),
                clipped=tuple(self._clipped.entries),
                more_rejected=self._lost.more,
                more_clipped=self._clipped.more,
                dropped=self._dropped,
            ),
        )

    def _notices(self) -> Iterator[str]:
        if self._stale.count:
            shown = ", ".join(self._stale.entries)
            if more := self._stale.more:
                shown += f" and {more:,} more"
            what = "<filename> differs from the name of the XML file, which is used instead"
            yield f"{what}: {shown}"

    def _match(self, image: ParsedImage | LeftOut) -> None:
        """Add an image that is there and can be used; list it, or its objects, otherwise."""
        if isinstance(image, LeftOut):
            self._read += 1
            self._lost.add(image)
            return
        self._read += len(image.objects)
        if self._dropped_names:
            objects = [one for one in image.objects if one.category not in self._dropped_names]
            self._dropped += len(image.objects) - len(objects)
            image = image._replace(objects=objects)
        key = image.name
        try:
            key, name = self._find(image)
            if key in self._used:
                raise UnfitError("is read as a mask, and not an image; pass the folder of masks")
            if image.problem is not None:
                raise UnfitError(image.problem)
            size = self._size(key, image)
        except UnfitError as error:
            reason = image.problem or str(error)
            self._first.setdefault(key, "")
            self._reject(key, image, reason)
            for one in image.objects:
                self._lose(key, one.where, f"image skipped: {reason}")
            return
        first = self._first.get(key)
        rows: list[Any] = []  # plain tuples, which are packed as they are
        for one in image.objects:
            try:
                fields = self._checked(key, one, *size, is_twice=bool(first))
            except _TooSmallError:
                self._dropped += 1
            except UnfitError as error:
                self._lose(key, one.where, str(error))
            else:
                rows.append(fields)
        if first:
            self._reject(key, image, f"image already annotated in {first}")
            return
        self._first[key], source_id = image.where, image.source_id
        if image.stale_name and name == image.name:
            self._stale.add(f"{printable(image.where)} has {printable(image.stale_name)}")
            source_id = ""
        if not rows and self._options.skip_empty:
            self._ignored.add(LeftOut(key=key, reason="no objects (--skip-empty)"))
            return
        if image.split:
            self._splits.add(image.split)
        self._alone += not image.group
        annotation = ImageAnnotation(*size, tuple(rows), source_id, image.upright)
        extra = ExtraFeatures(annotation=annotation).pack()
        file_size, locator = self._files[key]
        group = group_number(image.group)
        self._items.add(Item(key, "", file_size, locator, image.split, group, extra))

    def _lose(self, key: str, where: str, reason: str) -> None:
        self._lost.add(LeftOut(key=key, reason=f"{where}: {reason}"))

    def _reject(self, key: str, image: ParsedImage, reason: str) -> None:
        self._rejected.add(LeftOut(key=key, reason=f"{image.where}: {reason}"))

    def _find(self, image: ParsedImage) -> tuple[str, str]:
        """Return the key of the file that annotations name, and the name by which it was found.

        It is the file's path, or the end of it.
        """
        problem = "no such image"
        for name in filter(None, (image.name, image.other_name)):
            if name in self._files:
                return name, name
            parts = name[-MAX_PATH_LENGTH:].replace("\\", "/").split("/")[-_DEEPEST:]
            ends = ["/".join(parts[at:]) for at in range(len(parts))]
            for end in ends:
                if end in self._files:
                    return end, name
            for end in map(_composed, ends):
                if end in self._aliases:
                    first, *others = self._aliases[end]
                    if not others:
                        return first, name
                    problem = (
                        f"several images are named {printable(end)}: {printable(first)} and "
                        f"{printable(others[0])}; name the folder, too, or write each folder "
                        "with its own annotations"
                    )
                    break
        raise UnfitError(problem)

    @cached_property
    def _aliases(self) -> dict[str, tuple[str, ...]]:
        """The keys of images by their other names; the first two for a name of several."""
        aliases = dict[str, tuple[str, ...]]()
        for key in self._files:
            last = key.rpartition("/")[2]
            names = key, last, key[: key.rfind(".")], last[: last.rfind(".")]
            for name in set(map(_composed, names)):
                keys = aliases.get(name, ())
                aliases[name] = tuple(sorted((*keys, key))[:2]) if keys else (key,)
        return aliases

    def _size(self, key: str, image: ParsedImage) -> tuple[int, int]:
        """Return the width and height that annotations are for; of the image if they have none."""
        width, height = image.width, image.height
        if width is None or height is None:
            size, locator = self._files[key]
            try:
                data = self._reader.read(Item(key=key, label="", bytes=size, locator=locator))
                with quiet_pillow():
                    frame = read_frame(data)
            except (OSError, SourceError, RefusedImageError) as error:
                reason = os_reason(error) if isinstance(error, OSError) else error
                raise UnfitError(f"image size can't be read: {reason}") from error
            width, height = frame.width, frame.height
            if image.upright and frame.orientation >= 5:
                width, height = height, width
        if min(width, height) < 1:
            raise UnfitError(f"invalid image size {width} x {height}")
        if self._options.masks is Masks.PNG:
            masks = sum(map(self._is_mask, image.objects))
        else:
            masks = sum(one.mask_size is not None for one in image.objects)
        if problem := masks_problem(masks, width, height):
            raise UnfitError(problem)
        return width, height

    def _checked(
        self, key: str, parsed: ParsedObject, width: int, height: int, *, is_twice: bool
    ) -> tuple[Any, ...]:
        """Return the fields of an object in pixels, with its box inside of the image."""
        where, category, box, fields, problem, is_relative, mask_size = parsed
        if problem is not None:
            raise UnfitError(problem)
        if mask_size is not None and mask_size != (width, height):
            size = "{} x {}".format(*mask_size)
            raise UnfitError(f"mask size {size} differs from the image size")
        x0, y0, x1, y1 = box
        if is_relative:
            x0, y0, x1, y1 = box = x0 * width, y0 * height, x1 * width, y1 * height
        clipped = None
        if not (0 <= x0 < x1 <= width and 0 <= y0 < y1 <= height):
            box, clipped = _clipped(box, width, height)
            outline = clipped and str(fields[_SEGMENTATION])
            if outline and outline.startswith("[") and self._options.masks is Masks.POLYGONS:
                clipped = f"{clipped}, the outline is kept as it is"
        if min(box[2] - box[0], box[3] - box[1]) < self._options.min_box:
            raise _TooSmallError
        if is_relative:
            moved = ImageAnnotation(1, 1, (ObjectAnnotation(*parsed.box, 0, *fields),))
            fields = tuple[Any, ...](moved.moved(1, width, height).objects[0][5:])
            lines = json.loads(fields[_SEGMENTATION]) if self._is_mask(parsed) else []
            if sum(map(outline_points, lines)) > MAX_OUTLINE_POINTS:
                raise UnfitError(f"outline has more than {MAX_OUTLINE_POINTS:,} points")
        if is_twice:
            raise UnfitError("image annotated twice")
        if (label := self._numbers.get(category, -1)) < 0:
            raise UnfitError(f"unknown category {printable(category)!r}")
        if len(fields[_KEYPOINTS]) > 3 * self._points:
            self._points = len(fields[_KEYPOINTS]) // 3
        if clipped:
            self._clipped.add(LeftOut(key=key, reason=f"{where}: {clipped}"))
        return (*box, label, *fields)

    def _is_mask(self, parsed: ParsedObject) -> bool:
        """Return whether an outline becomes a bitmap, or may have to."""
        is_bitmap = parsed.mask_size is not None or self._options.masks is Masks.PNG
        return is_bitmap and bool(parsed.fields[_SEGMENTATION])


def _composed(name: str) -> str:
    return name if name.isascii() else normalize("NFC", name)


def _clipped(box: Box, width: int, height: int) -> tuple[Box, str | None]:
    """Return the part of a box inside of an image, and how it is clipped; None for rounding."""
    x0, y0, x1, y1 = box
    if x1 < x0 or y1 < y0:
        raise UnfitError("box is inverted")
    if x1 == x0 or y1 == y0:
        raise UnfitError("box is empty")
    clipped = max(x0, 0.0), max(y0, 0.0), min(x1, float(width)), min(y1, float(height))
    if clipped[0] >= clipped[2] or clipped[1] >= clipped[3]:
        raise UnfitError(f"box is outside the image ({width} x {height} pixels)")
    if max(abs(a - b) for a, b in zip(box, clipped, strict=True)) <= _SLACK:
        return clipped, None
    return clipped, f"box {x0:g}, {y0:g}, {x1:g}, {y1:g} is clipped to {width} x {height} pixels"
