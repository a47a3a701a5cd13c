"""Records with objects in images, and what `extract` makes of them."""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from PIL import Image

from tests.inspection.extracting import write_shard
from tfrtool import extract
from tfrtool.examples.example import encode_example
from tfrtool.examples.objects.annotation import ExtraFeatures, ImageAnnotation, ObjectAnnotation
from tfrtool.examples.objects.label_map import label_map_text
from tfrtool.examples.objects.record_features import (
    FIELDS,
    LabelKind,
    Layout,
    RecordFeatures,
    WrittenImage,
)
from tfrtool.inspection.extract.extract import ExtractReport

__all__ = [
    *("CLASSES", "HIGH", "IDS", "NAMES", "PHOTO", "PLAIN", "SHAPED", "SHARD", "TURNED", "WIDE"),
    *("dataset", "drawn", "record", "take"),
]

WIDE, HIGH = 640, 427
CLASSES = ("cat", 'the "dog"', "лев & <b>")
IDS = (1, 3, 90)
NAMES = dict(zip(IDS, CLASSES, strict=True))
SHARD = "ds-train.tfrecord-00000-of-00001"


def drawn(kind: str = "JPEG", size: tuple[int, int] = (WIDE, HIGH), orientation: int = 1) -> bytes:
    """Return an image of one color."""
    kept, exif = io.BytesIO(), Image.Exif()
    exif[0x0112] = orientation
    Image.new("L", size).save(kept, kind, exif=exif)
    return kept.getvalue()


PHOTO = drawn()
TURNED = drawn(orientation=6)


def record(
    *objects: ObjectAnnotation,
    name: str = "a.jpg",
    source_id: str = "",
    layout: Layout = Layout.TFOD,
    keypoints: int = 0,
    data: bytes = PHOTO,
    optional: Sequence[str] = (*FIELDS, "segmentation", "keypoints"),
) -> bytes:
    """Return a record with objects, as `write` makes it."""
    features = RecordFeatures(
        layout=layout,
        label=LabelKind.NONE,
        has_objects=True,
        classes=CLASSES,
        optional=tuple(optional),
        keypoints=keypoints,
        class_ids=IDS,
    )
    annotation = ImageAnnotation(WIDE, HIGH, objects, source_id)
    image = WrittenImage(data, "jpeg", HIGH, WIDE)
    return encode_example(
        features.values(image, name, "", {}, ExtraFeatures(annotation=annotation))
    )


def dataset(folder: Path, splits: Mapping[str, Iterable[bytes]]) -> Path:
    """Write a shard for each split, and the label map."""
    for split, payloads in splits.items():
        write_shard(folder / f"ds-{split}.tfrecord-00000-of-00001", payloads)
    (folder / "label_map.pbtxt").write_text(label_map_text(NAMES), "utf-8")
    return folder


def take(shards: Path, out: Path, form: Any, **options: Any) -> ExtractReport:
    """Take out the objects, none of which gets lost."""
    report = extract([shards], out, annotations=form, **options)
    objects = report.annotations
    assert objects is not None
    assert objects.objects == objects.written + objects.listed_count
    return report


PLAIN = ObjectAnnotation(10.5, 20, 110.25, 220, 0)
SHAPED = PLAIN._replace(label=1, segmentation="[[10.5, 20, 110.25, 20, 60, 220]]")
