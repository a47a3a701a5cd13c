"""Whether a record can be trained on, as far as that can be told without decoding its image."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from pathlib import Path

from tfrtool.examples.example import DType, Value
from tfrtool.images.header import limit_problem
from tfrtool.loading.dataset.classes import label_problem, read_items, single_values
from tfrtool.loading.dataset.dataset import Dataset
from tfrtool.loading.dataset.forms import ImageEncoding
from tfrtool.records.compression import Compression
from tfrtool.records.framing import Record

__all__ = ["RecordCheck", "limits_problem"]


class RecordCheck:
    """A function of payloads that knows what the decoder of a dataset will ask of them."""

    def __init__(self, dataset: Dataset, *, images: bool = True) -> None:
        """Prepare for a dataset; with ``images``, encoded ones are held to the limits."""
        self._dataset = dataset
        self._images = images
        self._image = _key(dataset.image_feature)
        self._label = _key(dataset.label_feature)
        form = dataset.image_form
        self._sides = [_key(name) for name in (form.height_feature, form.width_feature) if name]
        self._names = frozenset(name.encode() for name in dataset.class_names)

    def problem(self, payload: bytes) -> str | None:
        """Return why a record can't be used; None if all is well but, perhaps, the image itself."""
        values = single_values(payload, (self._image, self._label, *self._sides))
        if values is None:
            return f"its {len(payload)} bytes are no tf.train.Example"
        dataset = self._dataset
        image = values.get(self._image)
        if not isinstance(image, bytes):
            return f"the feature {dataset.image_feature!r} is no image: expected one string value"
        return self._pixels(image, values) or self._class(values.get(self._label))

    def _pixels(self, image: bytes, values: Mapping[bytes, Value | None]) -> str | None:
        form = self._dataset.image_form
        if form.encoding is ImageEncoding.ENCODED:
            problem = limit_problem(image) if self._images else None
            name = self._dataset.image_feature
            return None if problem is None else f"the feature {name!r} does not decode: {problem}"
        sides = [values.get(key) for key in self._sides] or [form.height, form.width]
        height, width = (side if isinstance(side, int) else 0 for side in sides)
        if height < 1 or width < 1:
            return "it doesn't say how high and wide its image is"
        # Four characters of base64 stand for three bytes; padding may be there or not.
        packed = form.encoding is ImageEncoding.BASE64
        held = len(image.rstrip(b"=")) * 3 // 4 if packed else len(image)
        size = prod((height, width, form.channels or 0))
        if held == size:
            return None
        return (
            f"the feature {self._dataset.image_feature!r} has a wrong size: expected {height} x "
            f"{width} x {form.channels} = {size} bytes of pixels, found {held}"
        )

    def _class(self, value: Value | None) -> str | None:
        dataset = self._dataset
        name, classes = dataset.label_feature, len(dataset.class_names)
        problem = label_problem(name, value, dataset.label_dtype, classes)
        if problem is None and dataset.label_dtype is DType.STRING and value not in self._names:
            return f"the feature {name!r} is no class: expected one of {classes} names"
        return problem


def limits_problem(dataset: Dataset, shard: Path, compression: Compression) -> str | None:
    """Return which image of a shard is over the limits and must not get to a decoder, if one is.

    TensorFlow has no limit on what a decoder may cost. Told shard by shard, since to ask from the
    graph for each image takes as long as decoding a small one. CRCs are left to TensorFlow.
    """
    if dataset.image_form.encoding is not ImageEncoding.ENCODED:
        return None
    key = _key(dataset.image_feature)
    for item in read_items(shard, compression, verify=False):
        if isinstance(item, Record):
            values = single_values(item.payload, (key,))
            if values is None:  # TensorFlow may find an image in it all the same
                return f"{shard.name}, record {item.index}: it is no tf.train.Example"
            image = values.get(key)
            problem = limit_problem(image) if isinstance(image, bytes) else None
            if problem is not None:
                return f"{shard.name}, record {item.index}: {problem}"
    return None


def _key(name: str) -> bytes:
    return name.encode("utf-8", "surrogateescape")
