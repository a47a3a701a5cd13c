"""Shards of images: each image is read, checked, re-encoded if needed, and becomes a record."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import blake2b
from operator import attrgetter
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, TypeVar

import msgspec

from tfrtool.engines.pool import Threads, run_in_order
from tfrtool.errors import SourceError, WriteError, os_reason, reason_of
from tfrtool.examples.example import encode_example
from tfrtool.examples.objects.annotation import ExtraFeatures, ImageAnnotation
from tfrtool.examples.objects.record_features import Layout, Masks, WrittenImage
from tfrtool.images.audit import UPRIGHTING, RenderedImage, audit_image, render_image
from tfrtool.images.decoder import ImageFrame, RefusedImageError, quiet_pillow, read_frame
from tfrtool.images.recipe import Check, Encode, ImageRecipe
from tfrtool.records.compression import Compression
from tfrtool.records.tally import Tally
from tfrtool.records.writer import Framing, ShardWriter
from tfrtool.sources.items import DamagedItemError, Item, Source, Starting
from tfrtool.storage.extras import has_tensorflow
from tfrtool.storage.limits import MAX_LISTED
from tfrtool.storage.progress import count_work
from tfrtool.writing.job import FileTask
from tfrtool.writing.job_report import FinishedFile, ShardReport, Written

IMAGES = "images"
"""Unit of the progress of a write, and key of an `ImageAccount` in the facts of a shard."""

OWN_FRAMING = "own_framing"
"""Key of the fact that a shard was written without TensorFlow."""

_BATCH, _BATCH_ITEMS = 512 * 1024, 32
"""Bytes and number of images that are handed to a thread at a time."""

_AT_ONCE = 2
"""Shards that are written here at a time: one is flushed and read back while the next one grows."""

_INVERSE = {6: 8, 8: 6}
"""The orientation that undoes another; the others undo themselves."""

Result = TypeVar("Result")
Task = TypeVar("Task")


class Finding(NamedTuple):
    """Result of checking an image."""

    digest: int  # 64 bits of its bytes; 0 if it can't be written
    format: str | None = None  # the true one, by Pillow's name
    problem: str | None = None  # why it can't be written
    conversion: str | None = None  # why its bytes can't be kept, where they would be
    depth: str | None = None  # a `Depth`, of an image with more than 8 bits per channel


class PlannedImage(NamedTuple):
    """An image in its shard."""

    position: int  # among the items of the source
    size: int  # approximate bytes of its record, with the frame
    finding: Finding | None  # None where it wasn't checked yet
    item: Item


class RecordMaker:
    """Makes records of the items of a source; picklable, and used by several threads at once."""

    def __init__(
        self,
        source: Source,
        recipe: ImageRecipe,
        *,
        skip_bad: bool = True,
    ) -> None:
        """Make records with the features of a source; bad images are skipped, or raise an error."""
        self.reader, self.features, self.labels = source.reader, source.features, source.labels
        self.recipe, self.skip_bad = recipe, skip_bad
        self.numbers = {label: number for number, label in enumerate(source.labels)}

    def check(self, item: Item) -> tuple[bytes, Finding]:
        """Read an image and check it; return its bytes and the result.

        A missing or changed file is a `WriteError`, not a bad image: without it, a whole class
        might be missing.

        Raises:
            WriteError: the image can't be read.
            SourceError: the image is bad, and bad ones are not to be skipped.
        """
        try:
            data = self._read(item)
        except DamagedItemError as error:
            data, finding = b"", Finding(0, problem=f"can't be read: {error.what}")
        else:
            verdict = audit_image(data, self.recipe)
            problem = verdict.problem
            if problem is None and self.features.has_objects:
                problem = _annotation_problem(item, data)
            digest = digest_of(data) if problem is None else 0
            conversion, depth = verdict.conversion, verdict.depth and verdict.depth.value
            finding = Finding(digest, verdict.format, problem, conversion, depth)
        if finding.problem is not None and not self.skip_bad:
            where, hint = self.reader.describe(item), "use --on-error skip to skip such images"
            raise SourceError(finding.problem, path=where, hint=hint)
        return data, finding

    def read_again(self, item: Item, finding: Finding) -> bytes:
        """Return the bytes of an image that was checked; `WriteError` if they have changed."""
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
        """Return an image as a serialized Example with the features of the source."""
        features, rendered, extra = self.features, self.render(item, data, finding), extra_of(item)
        masks: list[bytes] = []
        if features.layout is Layout.TFDS and not features.has_objects:
            image = WrittenImage(data, "jpeg", 0, 0)  # its size is only written if it is rendered
            if rendered is not None:
                image = _written(rendered, self.recipe)
        else:
            frame = read_frame(data)
            image = WrittenImage(data, frame.format.lower(), frame.height, frame.width)
            if rendered is not None:
                image = _written(rendered, self.recipe)
            if extra.annotation is not None:
                annotation = _moved(extra.annotation, frame, image, rendered, self.recipe)
                extra = extra._replace(annotation=annotation)
                if features.masks is Masks.PNG and "segmentation" in features.optional:
                    from tfrtool.images.masks import mask_bitmap, mask_png  # which loads NumPy

                    masks = [
                        mask_png(mask_bitmap(one.segmentation, image.width, image.height))
                        for one in annotation.objects
                    ]
        values = features.values(image, item.key, item.label, self.numbers, extra, masks)
        if "image/channels" in values and rendered is not None:
            values["image/channels"] = rendered.channels
        return encode_example(values)

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
            return [self.labels[one.label] for one in (annotation.objects if annotation else ())]
        return [*self.features.names(item.label)]


def digest_of(data: bytes) -> int:
    """Return 64 bits of a hash; never 0."""
    return int.from_bytes(blake2b(data, digest_size=8).digest(), "little") or 1


def batches(items: Iterable[Task], size: Callable[[Task], int], times: int = 1) -> Iterator[Any]:
    """Yield entries in lists of about half a megabyte of images, or several times as much."""
    batch, total = list[Task](), 0
    for item in items:
        batch.append(item)
        total += size(item)
        if total >= times * _BATCH or len(batch) == times * _BATCH_ITEMS:
            yield batch
            batch, total = [], 0
    if batch:
        yield batch


def extra_of(item: Item) -> ExtraFeatures:
    """Return what is written of an item beyond its bytes, its name and its label."""
    return ExtraFeatures.unpack(item.extra) if item.extra else ExtraFeatures()


def _annotation_problem(item: Item, data: bytes) -> str | None:
    annotation = extra_of(item).annotation
    if annotation is None:
        return None
    try:
        frame = read_frame(data)
    except RefusedImageError as error:
        return str(error)
    return annotation.problem(frame.width, frame.height, frame.orientation)


def _written(rendered: RenderedImage, recipe: ImageRecipe) -> WrittenImage:
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
            from tfrtool.images.masks import moved_mask  # which loads NumPy

            outline = moved_mask(outline, turn, image.width, image.height)
        objects.append(one._replace(segmentation=outline))
    return moved._replace(objects=tuple(objects))


@dataclass(kw_only=True)
class ImageAccount:
    """The images of a shard: every record, every image that is skipped or converted.

    Attributes:
        rejected: keys and reasons of the skipped ones.
        converted: keys, formats and reasons of those that are re-encoded where bytes would be kept.
        more: number of entries that are not in these lists.
        labels: number of records of each class, or of objects.
        lost: number of objects of skipped images.
        depths: number of images with more than 8 bits per channel, by `Depth`.
        deep: the smallest key of these images, by `Depth`.
        digests: `Finding.digest` of each image, in order, 8 bytes each.
    """

    rejected: list[tuple[str, str]] = field(default_factory=list)
    converted: list[tuple[str, str, str]] = field(default_factory=list)
    more: dict[str, int] = field(default_factory=dict)
    labels: dict[str, int] = field(default_factory=dict)
    lost: int = 0
    depths: dict[str, int] = field(default_factory=dict)
    deep: dict[str, str] = field(default_factory=dict)
    digests: bytearray = field(default_factory=bytearray)

    def add(self, item: Item, finding: Finding, maker: RecordMaker) -> None:
        """Account for an image."""
        self.digests += finding.digest.to_bytes(8, "little")
        labels = maker.labels_of(item)
        if finding.problem is not None:
            self._list("rejected", (item.key, finding.problem))
            self.lost += len(labels) if maker.features.has_objects else 0
            return
        for label in labels:
            self.labels[label] = self.labels.get(label, 0) + 1
        if finding.depth is not None:
            self._add_depths({finding.depth: 1}, {finding.depth: item.key})
        if finding.conversion is not None:
            self._list("converted", (item.key, finding.format or "", finding.conversion))

    def _add_depths(self, counts: Mapping[str, int], keys: Mapping[str, str]) -> None:
        for depth, count in counts.items():
            self.depths[depth] = self.depths.get(depth, 0) + count
            self.deep[depth] = min(self.deep.get(depth, keys[depth]), keys[depth])

    def _list(self, name: str, *entries: Any) -> None:
        known = getattr(self, name)
        known += entries
        if len(known) > 2 * MAX_LISTED:
            self.trim(name)

    def trim(self, name: str) -> None:
        """Keep the entries with the smallest keys."""
        known = getattr(self, name)
        known.sort()
        self.more[name] = self.more.get(name, 0) + len(known[MAX_LISTED:])
        del known[MAX_LISTED:]

    def merge(self, other: "ImageAccount") -> None:
        """Account for other images, but for their digests."""
        for name in ("rejected", "converted"):
            if entries := getattr(other, name):
                self._list(name, *entries)
        self.more = dict(Counter(self.more) + Counter(other.more))
        self.labels = dict(Counter(self.labels) + Counter(other.labels))
        self.lost += other.lost
        if other.depths:
            self._add_depths(other.depths, other.deep)


class ShardResult(NamedTuple):
    """A shard of images, as written or planned."""

    split: str
    shard: ShardReport
    images: ImageAccount

    @classmethod
    def of(cls, file: FinishedFile) -> "ShardResult":
        """Return the result that is noted of a finished shard."""
        account = msgspec.json.decode(file.facts[IMAGES], type=ImageAccount)
        return cls(file.split, file.shard, account)


class EmptyShardError(Exception):
    """All images of a shard are bad: it can't be written, and its number is in other names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageShard(FileTask):
    """A shard of images to write.

    Attributes:
        images: its images, in order.
        maker: what makes records of them.
        compression: the file's.
        threads: number of threads that make records; `ImageThreads` sets it, and it is 0 for a
            task in a process of its own.
    """

    new: ClassVar[bool] = True
    images: Iterable[PlannedImage]
    maker: RecordMaker
    compression: Compression
    threads: int = 0

    def write(self, path: Path) -> Written:
        """Write the shard, and read it back.

        A bad image leaves the shard one record shorter. The same shard gets the same bytes, with
        any number of threads.

        Raises:
            SourceError: an image is bad, and bad ones are not to be skipped.
            WriteError: an image can't be read any more, the shard can't be written, or it does not
                read back as it was written.
            EmptyShardError: no image can be written.
        """
        account, jobs = ImageAccount(), batches(self.images, attrgetter("item.bytes"))
        target, recipe = path.with_name(self.name), self.maker.recipe
        framing: Callable[[str, str], Framing] | None = None
        if has_tensorflow():
            from tensorflow.io import TFRecordWriter

            framing = TFRecordWriter
        with (
            nullcontext() if self.threads else quiet_pillow(),
            ShardWriter(path, self.compression, framing=framing, target=target) as writer,
        ):
            records = partial(_records_of, self.maker)
            computes = not recipe.always and recipe.check is not Check.DECODE
            for batch in run_in_order(records, jobs, self.threads or 1, computes=computes):
                for item, finding, _ in batch:
                    account.add(item, finding, self.maker)
                writer.write(payload for *_, payload in batch if payload is not None)
                count_work(len(batch), IMAGES)
        if not writer.tally.records:
            raise EmptyShardError
        facts = {IMAGES: msgspec.json.encode(account).decode(), OWN_FRAMING: framing is None}
        return Written(tally=writer.verify(), read=Tally(), facts=facts)

    def expected(self) -> ShardResult:
        """Return the result that is to be expected, if all images were checked.

        Raises:
            EmptyShardError: no image can be written.
        """
        account, size = ImageAccount(), 0
        for image in self.images:
            finding = image.finding or Finding(0)
            account.add(image.item, finding, self.maker)
            size += 0 if finding.problem else image.size
        records = self.records - len(account.rejected)
        if not records:
            raise EmptyShardError
        return ShardResult(self.split, ShardReport(self.name, records, size), account)


def _records_of(
    maker: RecordMaker, images: Sequence[PlannedImage]
) -> list[tuple[Item, Finding, bytes | None]]:
    """Return records of images; None for those that are bad."""
    records: list[tuple[Item, Finding, bytes | None]] = []
    for _, _, finding, item in images:
        if finding is None:
            data, finding = maker.check(item)
        elif finding.problem is None:
            data = maker.read_again(item, finding)
        payload = None if finding.problem is not None else maker.payload(item, data, finding)
        records.append((item, finding, payload))
    return records


class ImageThreads(Threads):
    """Threads of this process that write shards of images."""

    def __init__(self, workers: int, starting: Starting = nullcontext) -> None:
        """Take the number of threads; TensorFlow is loaded in the context ``starting()``."""
        super().__init__(min(workers, _AT_ONCE))
        self._workers, self._starting = workers, starting

    def map(
        self, function: Callable[[Any], Result], tasks: Iterable[Any], **more: Any
    ) -> Iterator[Result]:
        """Yield the results of shards; TensorFlow, if installed, is loaded before the first."""
        shards: list[ImageShard] = [*tasks]
        if not shards:
            return
        if has_tensorflow():
            with self._starting():
                import tensorflow  # noqa: F401
        threads = -(-self._workers // min(self.count, len(shards)))
        shards = [replace(shard, threads=threads) for shard in shards]
        with quiet_pillow():
            yield from super().map(function, shards, **more)
