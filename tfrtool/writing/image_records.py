"""An image becomes a record: it is read, checked, rendered where it must be, and encoded."""

from collections.abc import Callable, Iterable, Iterator
from copy import copy
from typing import Any, NamedTuple, TypeVar

from tfrtool.errors import SourceError, WriteError, os_reason, reason_of
from tfrtool.examples.example import encode_example
from tfrtool.examples.objects.annotation import ExtraFeatures, ImageAnnotation
from tfrtool.examples.objects.record_features import Layout, Masks, RecordFeatures, WrittenImage
from tfrtool.images.audit import UPRIGHTING, RenderedImage, audit_image, render_image
from tfrtool.images.decoder import ImageFrame, RefusedImageError, read_frame
from tfrtool.images.masks import mask_bitmap, mask_png, moved_mask
from tfrtool.images.recipe import Encode, ImageRecipe
from tfrtool.records.crc import crc32c
from tfrtool.sources.items import DamagedItemError, Item, Source

_BATCH = 512 * 1024
"""Bytes of images that are handed to a thread: that costs as much as a small image, and a thread
that is called off ends its batch first."""

_BATCH_ITEMS = 32

_NOTHING = ExtraFeatures()
_INVERSE = {6: 8, 8: 6}
"""The orientation that undoes another; the others undo themselves."""

_Entry = TypeVar("_Entry")


class Finding(NamedTuple):
    """What looking at an image found.

    Attributes:
        digest: 64 bits of its bytes; 0 if it can't be written.
        format: the true one, by Pillow's name.
        problem: why it can't be written; None if it can.
        conversion: why its bytes can't be kept, where they would be.
    """

    digest: int
    format: str | None = None
    problem: str | None = None
    conversion: str | None = None


class RecordMaker:
    """Makes records of the items of a source; picklable, and used by several threads at once."""

    def __init__(self, source: Source, recipe: ImageRecipe, *, skip_bad: bool = True) -> None:
        """Make records with the features of a source; or raise an error for the first bad image."""
        self.reader, self.features, self.labels = source.reader, source.features, source.labels
        self.recipe, self.skip_bad = recipe, skip_bad
        self.numbers = {label: number for number, label in enumerate(source.labels)}
        self.is_plain = source.features == RecordFeatures()

    def skipping(self) -> "RecordMaker":
        """Return the same, but bad images raise no error."""
        other = copy(self)
        other.skip_bad = True
        return other

    def look(self, item: Item) -> tuple[bytes, Finding]:
        """Read an image and check it; return its bytes and what was found.

        What was there and is gone is a `WriteError`, not a bad image: without it, a whole class
        may be missing. So is what is not what was listed any more.

        Raises:
            WriteError: the image can't be read.
            SourceError: the image is bad, and these are not to be skipped.
        """
        try:
            data = self._read(item)
        except DamagedItemError as error:
            data, finding = b"", Finding(0, problem=f"can't be read: {error.what}")
        else:
            verdict = audit_image(data, self.recipe)
            problem = verdict.problem
            if problem is None and self.features.has_objects:
                problem = _mismatch(item, data)
            digest = digest_of(data) if problem is None else 0
            finding = Finding(digest, verdict.format, problem, verdict.conversion)
        if finding.problem is not None and not self.skip_bad:
            raise SourceError(
                finding.problem,
                path=self.reader.describe(item),
                hint="use --on-error skip to skip such images",
            )
        return data, finding

    def read_again(self, item: Item, finding: Finding) -> bytes:
        """Return the bytes of an image that was looked at; `WriteError` if they are others now."""
        data = self._read(item)
        if digest_of(data) != finding.digest:
            raise WriteError("changed after it was checked", path=self.reader.describe(item))
        return data

    def _read(self, item: Item) -> bytes:
        try:
            data = self.reader.read(item)
        except OSError as error:
            raise WriteError(
                f"can't be read: {os_reason(error)}",
                path=self.reader.describe(item),
                hint="run again when it is readable; only images that can't be decoded are skipped",
            ) from error
        if len(data) != item.bytes:
            raise WriteError(
                "changed after the source was listed",
                path=self.reader.describe(item),
                expected=f"{item.bytes:,} bytes",
                found=f"{len(data):,}",
            )
        return data

    def payload(self, item: Item, data: bytes, finding: Finding) -> bytes:
        """Return an image as a serialized Example.

        It has ``image``, ``image/filename`` and ``label``; with raw pixels ``image/height``,
        ``image/width`` and ``image/channels``, too; or what the source's features are.
        """
        rendered = self.render(item, data, finding)
        if not self.is_plain:
            return self._rich_payload(item, data, rendered)
        features: dict[str, Any] = {}
        if rendered is not None:
            data, *sides = rendered
            if self.recipe.encode is Encode.RAW:
                names = ("image/height", "image/width", "image/channels")
                features |= zip(names, sides, strict=True)
        features["image"] = data
        features["image/filename"] = item.key.encode("utf-8", "surrogateescape")
        features["label"] = self.numbers[item.label]
        return encode_example(features)

    def render(self, item: Item, data: bytes, finding: Finding) -> RenderedImage | None:
        """Return the image that is written instead of its file; None where bytes are kept."""
        if not self.recipe.always and finding.conversion is None:
            return None
        try:
            return render_image(data, self.recipe)
        except Exception as error:  # codecs raise anything
            reason = getattr(error, "found", None) or reason_of(error)
            where = self.reader.describe(item)
            raise WriteError(f"can't be re-encoded: {reason}", path=where) from error

    def labels_of(self, item: Item) -> list[str]:
        """Return the names of an item's labels, or of its objects: each as often as it occurs."""
        if self.features.has_objects:
            annotation = extra_of(item).annotation
            objects = annotation.objects if annotation else ()
            return [self.labels[one.label] for one in objects]
        return [*self.features.names(item.label)]

    def _rich_payload(self, item: Item, data: bytes, rendered: RenderedImage | None) -> bytes:
        """Return the record of an image whose features are not just the usual three."""
        features, extra = self.features, extra_of(item)
        masks: list[bytes] = []
        if features.layout is Layout.TFDS and not features.has_objects and rendered is None:
            image = WrittenImage(data, "jpeg", 0, 0)  # whose size is of no interest
        else:
            frame = read_frame(data)
            image = _written(data, frame, rendered, self.recipe)
            if extra.annotation is not None:
                annotation = _moved(extra.annotation, frame, image, rendered, self.recipe)
                extra = extra._replace(annotation=annotation)
                if features.masks is Masks.PNG and "segmentation" in features.optional:
                    masks = [
                        mask_png(mask_bitmap(one.segmentation, image.width, image.height))
                        for one in annotation.objects
                    ]
        values = features.values(image, item.key, item.label, self.numbers, extra, masks)
        return encode_example(values)


def digest_of(data: bytes) -> int:
    """Return 64 bits that tell whether bytes are the same, if nobody wants to deceive."""
    return crc32c(data) | (len(data) & 0xFFFFFFFF) << 32


def batches(
    entries: Iterable[_Entry], size: Callable[[_Entry], int], times: int = 1
) -> Iterator[list[_Entry]]:
    """Yield entries some at a time, by the bytes of their images: a thread's next task.

    Or so many ``times`` as much, for a node of a cluster.
    """
    batch, total = list[_Entry](), 0
    for entry in entries:
        batch.append(entry)
        total += size(entry)
        if total >= times * _BATCH or len(batch) == times * _BATCH_ITEMS:
            yield batch
            batch, total = [], 0
    if batch:
        yield batch


def extra_of(item: Item) -> ExtraFeatures:
    """Return what is written of an item beyond its bytes, its name and its label."""
    return ExtraFeatures.unpack(item.extra) if item.extra else _NOTHING


def _mismatch(item: Item, data: bytes) -> str | None:
    """Return why an image, given with its bytes, is not the one that its annotations are for."""
    annotation = extra_of(item).annotation
    if annotation is None:
        return None
    try:
        frame = read_frame(data)
    except RefusedImageError as error:
        return str(error)
    return annotation.problem(frame.width, frame.height, frame.orientation)


def _written(
    data: bytes, frame: ImageFrame, rendered: RenderedImage | None, recipe: ImageRecipe
) -> WrittenImage:
    if rendered is None:
        return WrittenImage(data, frame.format.lower(), frame.height, frame.width)
    kind = "jpeg" if recipe.encode is Encode.KEEP else recipe.encode.value
    return WrittenImage(rendered.data, kind, rendered.height, rendered.width)


def _moved(
    annotation: ImageAnnotation,
    frame: ImageFrame,
    image: WrittenImage,
    rendered: RenderedImage | None,
    recipe: ImageRecipe,
) -> ImageAnnotation:
    """Return annotations for the image as it is written."""
    turned = rendered is not None and (recipe.orient or frame.format == "TIFF")
    turned = turned and frame.orientation in UPRIGHTING
    upright = annotation.is_upright(frame.width, frame.height, frame.orientation)
    turn = 1
    if frame.orientation in UPRIGHTING and turned != upright:
        turn = frame.orientation if turned else _INVERSE.get(frame.orientation, frame.orientation)
    moved = annotation.moved(turn, image.width, image.height)
    if moved is annotation:
        return moved
    objects = []
    for one in moved.objects:
        outline = one.segmentation
        if outline.startswith("{"):
            outline = moved_mask(outline, turn, image.width, image.height)
        objects.append(one._replace(segmentation=outline))
    return moved._replace(objects=tuple(objects))
