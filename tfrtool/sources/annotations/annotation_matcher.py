"""Images and their annotations: every object is written, or listed with a reason."""

import json
import marshal
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from functools import cached_property
from pathlib import Path
from typing import IO, Any
from unicodedata import normalize

from msgspec.structs import replace

from tfrtool.errors import SourceError, WriteError, os_errors_as, os_reason, printable
from tfrtool.examples.objects.annotation import (
    ExtraFeatures,
    ImageAnnotation,
    ObjectAnnotation,
    Skeleton,
)
from tfrtool.examples.objects.record_features import LabelKind, Masks, RecordFeatures
from tfrtool.images.decoder import RefusedImageError, quiet_pillow, read_frame
from tfrtool.images.masks import outline_points
from tfrtool.sources.annotations.annotation_reader import (
    AnnotationReader,
    ParsedImage,
    ParsedObject,
)
from tfrtool.sources.folders.listing import (
    Listing,
    is_image_name,
    size_problem,
    splits_in_order,
)
from tfrtool.sources.items import AnnotationAccount, Item, ItemTable, LeftOut, Source, UnfitError
from tfrtool.sources.label_choice import read_class_list
from tfrtool.sources.source_options import SourceOptions
from tfrtool.storage.arguments import as_path
from tfrtool.storage.capped_list import CappedList
from tfrtool.storage.limits import (
    MAX_LISTED,
    MAX_MASK_PIXELS,
    MAX_OUTLINE_POINTS,
    MAX_PATH_LENGTH,
)

_SHOWN = 5

_SLACK = 0.01
"""Pixels that a box may reach over its image by rounding: YOLO's shares have six digits."""

_DEEPEST = 64
"""Parts of a path by which an image is looked for."""

_OPTIONAL = ("id", "area", "crowd", "difficult", "truncated", "pose", "segmentation", "keypoints")


_Found = tuple[str, int, int]
"""A matched image: its key, and the offset and size of its annotations in the scratch file."""


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
    return AnnotationMatcher(listing, options, where, scratch).source(reader)


class AnnotationMatcher:
    """Finds the image of each annotation, and accounts for every object."""

    def __init__(self, listing: Listing, options: SourceOptions, where: str, scratch: Path) -> None:
        """Take what `match_annotations` takes."""
        self._options, self._where, self._scratch = options, where, scratch
        self._reader = listing.reader
        self._files: dict[str, tuple[int, int]] = {}  # sizes and places by keys
        self._rejected, self._ignored, self._lost, self._clipped = (
            CappedList[LeftOut](MAX_LISTED) for _ in range(4)
        )
        self._stale = CappedList[str](_SHOWN)
        self._read = self._points = 0
        self._optional, self._splits, self._mentioned = set[str](), set[str](), set[str]()
        for key, size, place, problem in listing.entries:
            self._files.pop(key, None)  # of members of an archive with one name, the last counts
            if problem is None and is_image_name(key):
                problem = size_problem(size)
                if problem is None:
                    self._files[key] = size, place
            if problem is not None:
                self._rejected.add(LeftOut(key=key, reason=problem))

    def source(self, reader: AnnotationReader) -> Source:
        """Read the annotations, and return the source."""
        with self._scratch_errors(), tempfile.TemporaryFile(dir=self._scratch) as packed:
            found = sorted(self._match(reader, packed))
            return self._source(reader, found, packed)

    def _source(self, reader: AnnotationReader, found: list[_Found], packed: IO[bytes]) -> Source:
        classes, others = reader.classes(), dict[str, str]()
        if (path := self._options.labels) is not None:
            classes, others = read_class_list(as_path(path))
        labels = tuple(classes)
        numbers = {name: number for number, name in enumerate(labels)}
        numbers |= {other: numbers[name] for other, name in others.items()}
        items = ItemTable(self._scratch)
        for item, features in self._items(found, packed, numbers):
            items.add(item._replace(extra=features))
        for key in sorted(self._files.keys() - self._mentioned):
            self._ignored.add(LeftOut(key=key, reason="not in the annotations"))
        self._ignored.merge(reader.ignored)
        if not items:
            first = next(iter((*self._rejected.kept, *self._ignored.kept)), None)
            why = f" ({printable(first.key)}: {first.reason})" if first else ""
            raise SourceError(
                f"no image has annotations{why}",
                path=self._where,
                expected="the folder that file names in the annotations are relative to",
            )
        return Source(
            items=items,
            labels=labels,
            reader=self._reader,
            splits=splits_in_order(self._splits),
            rejected=tuple(self._rejected.kept),
            ignored=tuple(self._ignored.kept),
            more_rejected=self._rejected.more,
            more_ignored=self._ignored.more,
            notices=(*reader.notices, *self._notices()),
            features=RecordFeatures(
                layout=self._options.names,
                label=LabelKind.NONE,
                has_objects=True,
                classes=labels,
                class_ids=tuple(classes.values()),
                optional=tuple(name for name in _OPTIONAL if name in self._optional),
                keypoints=self._points,
                skeletons=tuple(self._skeletons(reader, others)),
                masks=Masks(self._options.masks),
            ),
            annotations=AnnotationAccount(
                read=self._read,
                rejected=tuple(self._lost.kept),
                clipped=tuple(self._clipped.kept),
                more_rejected=self._lost.more,
                more_clipped=self._clipped.more,
            ),
        )

    def _skeletons(
        self, reader: AnnotationReader, others: Mapping[str, str]
    ) -> Iterator[tuple[str, Skeleton]]:
        """Yield the skeletons of classes, if objects have key points."""
        for name, skeleton in reader.skeletons.items() if self._points else ():
            yield others.get(name, name), skeleton

    def _notices(self) -> Iterator[str]:
        if self._stale.count:
            shown = ", ".join(self._stale.kept)
            if more := self._stale.more:
                shown += f" and {more:,} more"
            what = "<filename> differs from the name of the XML file, which is used instead"
            yield f"{what}: {shown}"

    def _match(self, reader: AnnotationReader, packed: IO[bytes]) -> Iterator[_Found]:
        """Yield the images that are there and can be used, as annotations mention them."""
        size = 0
        for image in reader.images():
            if isinstance(image, LeftOut):
                self._read += 1
                self._lost.add(image)
                continue
            self._read += len(image.objects)
            key = image.name
            try:
                key, name = self._find(image)
                if image.stale_name and name == image.name:
                    stale = printable(image.stale_name)
                    self._stale.add(f"{printable(image.where)} has {stale}")
                    image = replace(image, source_id="")
                data = marshal.dumps(self._row(key, image))
                with self._scratch_errors():
                    packed.write(data)
                yield key, size, len(data)
                size += len(data)
            except UnfitError as error:
                reason = image.problem or str(error)
                self._mentioned.add(key)
                self._rejected.add(LeftOut(key=key, reason=f"{image.where}: {reason}"))
                for one in image.objects:
                    self._lose(key, one.where, f"image skipped: {reason}")

    def _lose(self, key: str, where: str, reason: str) -> None:
        self._lost.add(LeftOut(key=key, reason=f"{where}: {reason}"))

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
            if found := next((end for end in ends if end in self._files), None):
                return found, name
            plain = [normalize("NFC", end) for end in ends]
            alias = next((end for end in plain if end in self._aliases), None)
            if alias is None:
                continue
            if (found := self._aliases[alias]) is not None:
                return found, name
            problem = f"several images are named {printable(alias)}"
        raise UnfitError(problem)

    @cached_property
    def _aliases(self) -> dict[str, str | None]:
        """The keys of images by their other names; None for a name of several."""
        aliases = dict[str, str | None]()
        for key in self._files:
            last = key.rpartition("/")[2]
            names = key, last, key[: key.rfind(".")], last[: last.rfind(".")]
            for name in {normalize("NFC", name) for name in names}:
                aliases[name] = None if name in aliases else key
        return aliases

    def _row(self, key: str, image: ParsedImage) -> tuple[Any, ...]:
        """Return what is kept of an image: its valid objects, classes by their names."""
        if image.problem is not None:
            raise UnfitError(image.problem)
        width, height = image.width, image.height
        if width is None or height is None:
            width, height = self._measured(key, upright=image.upright)
        if min(width, height) < 1:
            raise UnfitError(f"invalid image size {width} x {height}")
        if sum(map(self._is_mask, image.objects)) * width * height > MAX_MASK_PIXELS:
            raise UnfitError(f"masks have more than {MAX_MASK_PIXELS:,} pixels in total")
        objects = []
        for one in image.objects:
            try:
                valid, clipped = self._checked(one, width, height)
                objects.append((one.where, one.category, clipped, tuple(valid)))
            except UnfitError as error:
                self._lose(key, one.where, str(error))
        return image.where, image.split, width, height, image.source_id, image.upright, objects

    def _measured(self, key: str, *, upright: bool) -> tuple[int, int]:
        """Return the width and height of an image whose annotations have none."""
        size, place = self._files[key]
        try:
            data = self._reader.read(Item(key=key, label="", bytes=size, place=place))
            with quiet_pillow():
                frame = read_frame(data)
        except (OSError, SourceError, RefusedImageError) as error:
            reason = os_reason(error) if isinstance(error, OSError) else error
            raise UnfitError(f"image size can't be read: {reason}") from error
        sides = frame.width, frame.height
        return sides[::-1] if upright and frame.orientation >= 5 else sides

    def _checked(self, one: ParsedObject, width: int, height: int) -> tuple[ObjectAnnotation, str]:
        """Return an object in pixels, and how its box is clipped; "" where it isn't."""
        if one.problem is not None:
            raise UnfitError(one.problem)
        if one.mask_size not in (None, (width, height)):
            size = "{} x {}".format(*one.mask_size or ())
            raise UnfitError(f"mask size {size} differs from the image size")
        x0, y0, x1, y1 = inside = box = one.box
        if one.is_relative:
            x0, y0, x1, y1 = inside = box = x0 * width, y0 * height, x1 * width, y1 * height
        if x1 < x0 or y1 < y0:
            raise UnfitError("box is inverted")
        if x1 == x0 or y1 == y0:
            raise UnfitError("box is empty")
        clipped = ""
        if x0 < 0 or y0 < 0 or x1 > width or y1 > height:
            inside = max(x0, 0.0), max(y0, 0.0), min(x1, float(width)), min(y1, float(height))
            if inside[0] >= inside[2] or inside[1] >= inside[3]:
                raise UnfitError(f"box is outside the image ({width} x {height} pixels)")
            if max(abs(a - b) for a, b in zip(box, inside, strict=True)) > _SLACK:
                clipped = f"box {x0:g}, {y0:g}, {x1:g}, {y1:g} is clipped to {width} x {height}"
                outline = str(one.fields.get("segmentation", ""))
                keeps = outline.startswith("[") and self._options.masks is Masks.POLYGONS
                clipped += " pixels, the outline is kept as it is" if keeps else " pixels"
        fields = one.fields
        if None in fields.values():
            fields = {name: value for name, value in fields.items() if value is not None}
        if not fields.keys() <= self._optional:
            self._optional.update(fields)
        valid = ObjectAnnotation(*inside, label=0, **fields)  # type: ignore[arg-type]
        if one.is_relative:
            (moved,) = ImageAnnotation(1, 1, (valid,)).moved(1, width, height).objects
            xmin, ymin, xmax, ymax = inside
            valid = moved._replace(xmin=xmin, ymin=ymin, xmax=xmax, ymax=ymax)
            lines = json.loads(valid.segmentation) if self._is_mask(one) else []
            if sum(map(outline_points, lines)) > MAX_OUTLINE_POINTS:
                raise UnfitError(f"outline has more than {MAX_OUTLINE_POINTS:,} points")
        if len(valid.keypoints) > 3 * self._points:
            self._points = len(valid.keypoints) // 3
        return valid, clipped

    def _is_mask(self, one: ParsedObject) -> bool:
        """Return whether an outline becomes a bitmap, or may have to."""
        is_bitmap = one.mask_size is not None or self._options.masks is Masks.PNG
        return is_bitmap and "segmentation" in one.fields

    def _scratch_errors(self) -> AbstractContextManager[None]:
        return os_errors_as(WriteError, self._scratch, "temporary files can't be written")

    def _items(
        self, found: list[_Found], packed: IO[bytes], numbers: Mapping[str, int]
    ) -> Iterator[tuple[Item, bytes]]:
        """Yield images by key with their objects, whose classes are numbers now."""
        last, first = "", ""
        for key, start, length in found:
            with self._scratch_errors():
                packed.seek(start)
                data = packed.read(length)
            where, split, width, height, source_id, upright, rows = marshal.loads(data)
            if key == last:
                reason = f"{where}: image already annotated in {first}"
                self._rejected.add(LeftOut(key=key, reason=reason))
                for place, *_ in rows:
                    self._lose(key, place, "image annotated twice")
                continue
            last, first = key, where
            objects: list[Any] = []  # plain tuples, which are packed as they are
            for place, category, clipped, fields in rows:
                if (label := numbers.get(category)) is None:
                    self._lose(key, place, f"unknown category {printable(category)!r}")
                    continue
                if clipped:
                    self._clipped.add(LeftOut(key=key, reason=f"{place}: {clipped}"))
                objects.append((*fields[:4], label, *fields[5:]))
            self._mentioned.add(key)
            self._splits.update([split] if split else ())
            size, offset = self._files[key]
            item = Item(key=key, label="", bytes=size, place=offset, split=split)
            annotation = ImageAnnotation(width, height, tuple(objects), source_id, upright)
            yield item, ExtraFeatures(annotation=annotation).pack()
