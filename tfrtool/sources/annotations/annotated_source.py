"""Images and their annotations, brought together: every object is kept, or listed with a reason."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from unicodedata import normalize

from tfrtool.errors import SourceError, os_reason, printable
from tfrtool.examples.objects.annotation import (
    ExtraFeatures,
    ImageAnnotation,
    ObjectAnnotation,
    Skeleton,
)
from tfrtool.examples.objects.record_features import LabelKind, Masks, RecordFeatures
from tfrtool.images.decoder import RefusedImageError, quiet_pillow
from tfrtool.images.frame import read_frame
from tfrtool.images.masks import outline_points
from tfrtool.sources.annotations.found import AnnotationReader, FoundImage, FoundObject, is_number
from tfrtool.sources.folders.listing import (
    Listing,
    is_image_name,
    size_problem,
    splits_in_order,
)
from tfrtool.sources.items import AnnotationAccount, Item, LeftOut, Source, UnfitError
from tfrtool.sources.label_choice import read_class_list
from tfrtool.sources.manifest import ManifestWriter
from tfrtool.sources.source_options import SourceOptions
from tfrtool.storage.arguments import as_path
from tfrtool.storage.capped_list import CappedList
from tfrtool.storage.limits import (
    MAX_LISTED,
    MAX_MASK_PIXELS,
    MAX_OUTLINE_POINTS,
    MAX_PATH_LENGTH,
)
from tfrtool.storage.scratch.external_sort import ExternalSort
from tfrtool.storage.scratch.packed_rows import PackedRows

_SHOWN = 5

_SLACK = 0.01
"""Pixels that a box may reach over its image by rounding: YOLO's shares have six digits."""

_DEEPEST = 64
"""Parts of a path by which an image is looked for."""

_OPTIONAL = ("id", "area", "crowd", "difficult", "truncated", "pose", "segmentation", "keypoints")

_Row = tuple[str, int, str, int, int, str]
"""An image with its key, the number of its `ExtraFeatures`, annotation, size, place, split."""


def bring_together(
    listing: Listing, reader: AnnotationReader, options: SourceOptions, where: str, scratch: Path
) -> Source:
    """Give the images of a tree, which lies at ``where``, the objects that annotations tell of.

    An object whose box lies partly outside of its image is clipped, and listed; one with an
    impossible box or of an unknown category is listed, and so are those of images that are not
    there. Images without objects are kept.
    """
    return _Together(listing, options, where, scratch).source(reader)


class _Together:
    def __init__(self, listing: Listing, options: SourceOptions, where: str, scratch: Path) -> None:
        self._options, self._where, self._scratch = options, where, scratch
        self._reader, self._told = listing.reader, PackedRows(scratch)
        self._files: dict[str, tuple[int, int]] = {}
        self._rejected, self._ignored = (
            CappedList[LeftOut](MAX_LISTED),
            CappedList[LeftOut](MAX_LISTED),
        )
        self._lost, self._clipped = CappedList[LeftOut](MAX_LISTED), CappedList[LeftOut](MAX_LISTED)
        self._stale = CappedList[str](_SHOWN)
        self._read = self._points = 0
        self._optional, self._splits, self._mentioned = set[str](), set[str](), set[str]()
        for key, size, place, problem in listing.entries:
            if problem is None and is_image_name(key):
                problem = size_problem(size)
                if problem is None:
                    self._files[key] = size, place
            if problem is not None:
                self._rejected.add(LeftOut(key=key, reason=problem))

    def source(self, reader: AnnotationReader) -> Source:
        rows = ExternalSort[_Row](self._scratch)
        for image in reader.images():
            if isinstance(image, LeftOut):
                self._read += 1
                self._lost.add(image)
                continue
            self._read += len(image.objects)
            key = image.name
            try:
                key, name = self._find(image)
                if image.stale and name == image.name:
                    self._stale.add(f"{printable(image.where)} has {printable(image.stale)}")
                    image = replace(image, source_id="")
                rows.add(self._row(key, image))
            except UnfitError as error:
                reason = image.problem or str(error)
                self._mentioned.add(key)
                self._rejected.add(LeftOut(key=key, reason=f"{image.where}: {reason}"))
                for one in image.objects:
                    said = f"{one.what}: image skipped: {reason}"
                    self._lost.add(LeftOut(key=key, reason=said))
        named = self._options.labels
        classes, others = reader.classes(), dict[str, str]()
        if named is not None:
            classes, others = read_class_list(as_path(named))
        labels = tuple(classes)
        numbers = {name: number for number, name in enumerate(labels)}
        numbers |= {other: numbers[name] for other, name in others.items()}
        items, beside = ManifestWriter(self._scratch), PackedRows(self._scratch)
        for item, packed in self._merged(rows, numbers):
            items.add(item)
            beside.add(packed)
        for key in sorted(self._files.keys() - self._mentioned):
            self._ignored.add(LeftOut(key=key, reason="not in the annotations"))
        self._ignored.merge(reader.ignored)
        if not items.count:
            first = next(iter((*self._rejected.kept, *self._ignored.kept)), None)
            why = f" ({printable(first.key)}: {first.reason})" if first else ""
            raise SourceError(
                f"no image has annotations{why}",
                path=self._where,
                expected="the folder that file names in the annotations are relative to",
            )
        return Source(
            items=items.close(),
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
            beside=beside,
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

    def _row(self, key: str, image: FoundImage) -> _Row:
        """Return an image with those of its objects that can be used, classes by their names."""
        if image.problem is not None:
            raise UnfitError(image.problem)
        size, place = self._files[key]
        width, height = image.width, image.height
        if width is None or height is None:
            width, height = self._measured(key, size, place, upright=image.upright)
        if min(width, height) < 1:
            raise UnfitError(f"invalid image size {width} x {height}")
        if sum(map(self._is_mask, image.objects)) * width * height > MAX_MASK_PIXELS:
            raise UnfitError(f"masks have more than {MAX_MASK_PIXELS:,} pixels in total")
        objects = []
        for one in image.objects:
            try:
                objects.append(self._checked(one, key, width, height))
            except UnfitError as error:
                self._lost.add(LeftOut(key=key, reason=f"{one.what}: {error}"))
        told = ImageAnnotation(width, height, tuple(objects), image.source_id, image.upright)
        self._told.add(ExtraFeatures(annotation=told).pack())
        return key, len(self._told) - 1, image.where, size, place, image.split or ""

    def _find(self, image: FoundImage) -> tuple[str, str]:
        """Return the key of the file that annotations name, and the name by which it was found.

        It is the file's path, or the end of it.
        """
        problem = "no such image"
        for name in filter(None, (image.name, image.other)):
            if name in self._files:
                return name, name
            parts = name[-MAX_PATH_LENGTH:].replace("\\", "/").split("/")[-_DEEPEST:]
            ends = ["/".join(parts[at:]) for at in range(len(parts))]
            if found := next((end for end in ends if end in self._files), None):
                return found, name
            plain = [normalize("NFC", end) for end in ends]
            if (called := next((end for end in plain if end in self._called), None)) is None:
                continue
            if (found := self._called[called]) is not None:
                return found, name
            problem = f"several images are named {printable(called)}"
        raise UnfitError(problem)

    @cached_property
    def _called(self) -> dict[str, str | None]:
        """The keys of the images by what else they are called; None for what several are."""
        called = dict[str, str | None]()
        for key in self._files:
            last = key.rpartition("/")[2]
            names = key, last, key[: key.rfind(".")], last[: last.rfind(".")]
            for name in {normalize("NFC", name) for name in names}:
                called[name] = None if name in called else key
        return called

    def _measured(self, key: str, size: int, place: int, *, upright: bool) -> tuple[int, int]:
        """Return the width and height of an image of which the annotations say none."""
        try:
            data = self._reader.read(Item(key=key, label="", bytes=size, place=place))
            with quiet_pillow():
                frame = read_frame(data)
        except (OSError, SourceError, RefusedImageError) as error:
            reason = os_reason(error) if isinstance(error, OSError) else error
            raise UnfitError(f"image size can't be read: {reason}") from error
        sides = frame.width, frame.height
        return sides[::-1] if upright and frame.orientation >= 5 else sides

    def _checked(self, one: FoundObject, key: str, width: int, height: int) -> ObjectAnnotation:
        """Return an object in pixels, its class by name for the time being."""
        if one.problem is not None:
            raise UnfitError(one.problem)
        sides = one.box
        if len(sides) != 4 or not all(map(is_number, sides)):
            raise UnfitError("box is not four numbers")
        scale = (width, height) * 2 if one.relative else (1, 1, 1, 1)
        x0, y0, x1, y1 = box = [float(v) * by for v, by in zip(sides, scale, strict=True)]  # type: ignore[arg-type]
        if x1 < x0 or y1 < y0:
            raise UnfitError("box is inverted")
        if x1 == x0 or y1 == y0:
            raise UnfitError("box is empty")
        inside = max(x0, 0.0), max(y0, 0.0), min(x1, float(width)), min(y1, float(height))
        if inside[0] >= inside[2] or inside[1] >= inside[3]:
            raise UnfitError(f"box is outside the image ({width} x {height} pixels)")
        if max(abs(a - b) for a, b in zip(box, inside, strict=True)) > _SLACK:
            shown = ", ".join(f"{side:g}" for side in box)
            reason = f"{one.what}: box {shown} is clipped to {width} x {height} pixels"
            outline = str(one.more.get("segmentation", ""))
            if outline.startswith("[") and self._options.masks is Masks.POLYGONS:
                reason += ", the outline is kept as it is"
            self._clipped.add(LeftOut(key=key, reason=reason))
        more = {name: value for name, value in one.more.items() if value is not None}
        self._optional.update(more)
        made = ObjectAnnotation(*inside, label=0, **more)  # type: ignore[arg-type]
        if one.relative:
            (moved,) = ImageAnnotation(1, 1, (made,)).moved(1, width, height).objects
            xmin, ymin, xmax, ymax = inside
            made = moved._replace(xmin=xmin, ymin=ymin, xmax=xmax, ymax=ymax)
            lines = json.loads(made.segmentation) if self._is_mask(one) else []
            if sum(map(outline_points, lines)) > MAX_OUTLINE_POINTS:
                raise UnfitError(f"outline has more than {MAX_OUTLINE_POINTS:,} points")
        self._points = max(self._points, len(made.keypoints) // 3)
        return made._replace(label=one.category)  # type: ignore[arg-type]

    def _is_mask(self, one: FoundObject) -> bool:
        """Return whether an outline becomes a bitmap, or may have to."""
        outline = str(one.more.get("segmentation", ""))
        return bool(outline) and (self._options.masks is Masks.PNG or outline.startswith("{"))

    def _merged(
        self, rows: ExternalSort[_Row], numbers: Mapping[str, int]
    ) -> Iterator[tuple[Item, bytes]]:
        """Yield images by key with all that is known of each; its class numbers are final."""
        last, told = "", ""
        for key, at, where, size, place, split in rows:
            beside = ExtraFeatures.unpack(self._told[at])
            annotation = beside.annotation
            if annotation is None:
                continue
            if key == last:
                reason = f"{where}: image already annotated in {told}"
                self._rejected.add(LeftOut(key=key, reason=reason))
                for one in annotation.objects:
                    self._lost.add(LeftOut(key=key, reason=f"{_what(one)}: image annotated twice"))
                continue
            last, told = key, where
            objects = []
            for one in annotation.objects:
                if (number := numbers.get(str(one.label))) is None:
                    name = printable(str(one.label))
                    reason = f"{_what(one)}: unknown category {name!r}"
                    self._lost.add(LeftOut(key=key, reason=reason))
                else:
                    objects.append(one._replace(label=number))
            self._files.pop(key, None)
            self._splits.update([split] if split else ())
            made = beside._replace(annotation=annotation._replace(objects=tuple(objects)))
            yield Item(key=key, label="", bytes=size, place=place, split=split or None), made.pack()


def _what(one: ObjectAnnotation) -> str:
    return f"annotation {one.id}" if one.id is not None else f"a {one.label}"
