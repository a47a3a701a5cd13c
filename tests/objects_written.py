"""Records of images with objects, in both layouts, as the tests of what shows them want them."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from PIL import Image, ImageDraw

from tfrtool.examples.example import decode_example, encode_example
from tfrtool.examples.objects.annotation import ExtraFeatures, ImageAnnotation, ObjectAnnotation
from tfrtool.examples.objects.label_map import label_map_text
from tfrtool.examples.objects.record_features import (
    LabelKind,
    Layout,
    Masks,
    RecordFeatures,
    WrittenImage,
)

__all__ = ["CLASSES", "Thing", "changed", "name_classes", "object_record"]

CLASSES = ("cat", "dog", "traffic light")
_WIDTH, _HEIGHT = 160, 120

Thing = tuple[float, float, float, float, int]
"""The sides of a box in pixels, xmin, ymin, xmax, ymax, and the number of its class."""


def object_record(
    things: Sequence[Thing],
    *,
    layout: Layout = Layout.TFOD,
    size: tuple[int, int] = (_WIDTH, _HEIGHT),
    classes: Sequence[str] = CLASSES,
    optional: Mapping[str, Any] | None = None,
    masks: Sequence[bytes] = (),
    **more: Any,
) -> bytes:
    """Return a record of a grey image with objects, each filled black.

    Args:
        things: the objects.
        layout: the names of the features.
        size: of the image, width and height.
        classes: the names of all classes.
        optional: further fields that all objects have.
        masks: of the objects, as PNG.
        more: further features, or others instead of those.
    """
    image = Image.new("RGB", size, (200, 200, 200))
    for x0, y0, x1, y1, _ in things:
        ImageDraw.Draw(image).rectangle((x0, y0, x1 - 1, y1 - 1), fill="black")
    output, fields = io.BytesIO(), optional or {}
    image.save(output, "PNG")
    features = RecordFeatures(
        layout=layout,
        label=LabelKind.NONE,
        has_objects=True,
        classes=tuple(classes),
        optional=tuple(fields),
        keypoints=len(fields.get("keypoints", ())) // 3,
        masks=Masks.PNG if masks else Masks.POLYGONS,
    )
    objects = tuple(ObjectAnnotation(*thing, **fields) for thing in things)
    beside = ExtraFeatures(annotation=ImageAnnotation(*size, objects))
    written = WrittenImage(output.getvalue(), "png", size[1], size[0])
    values = features.values(written, "a b.png", "", {}, beside, masks)
    return encode_example(values | more)


def changed(record: bytes, **features: Any) -> bytes:
    """Return a record with other features; in their names is ``__`` for a slash."""
    held = dict(decode_example(record).features)
    return encode_example(held | {name.replace("__", "/"): one for name, one in features.items()})


def name_classes(folder: Path, layout: Layout = Layout.TFOD) -> None:
    """Write the names of classes beside shards."""
    if layout is Layout.TFOD:
        (folder / "label_map.pbtxt").write_text(label_map_text(dict(enumerate(CLASSES, 1))))
    else:
        text = "".join(f"{name}\n" for name in CLASSES)
        (folder / "objects-label.labels.txt").write_text(text)
