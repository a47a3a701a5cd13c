"""From serialized records to images of one size, and labels; and to the values that a model takes.

Images are encoded files, or uint8 pixels whose height and width the record or the metadata gives.
Any other form is decoded by a function of the user's.
"""

import math
import os
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from google.protobuf.message import DecodeError

from tfrtool.errors import DatasetError, TfrtoolError, printable
from tfrtool.examples.example import feature_key, feature_name, parse_message
from tfrtool.images.header import limit_problem
from tfrtool.loading.augment import early_recolorer
from tfrtool.loading.dataset_facts import DatasetFacts, Split
from tfrtool.loading.labels import label_tensor
from tfrtool.loading.options import LoadOptions, Rescale
from tfrtool.loading.tensors import Batch, Tensor, TfDataset
from tfrtool.records.compression import TF_TYPES, Compression
from tfrtool.records.framing import Record
from tfrtool.records.reader import read_shard
from tfrtool.storage.limits import MAX_SHARDS
from tfrtool.storage.remote_path import AnyPath

Features = dict[str, Tensor]

_RGB = 3
_WHITE = 255
_JPEG = b"\xff\xd8\xff"
_RATIOS = (2, 4, 8)
"""By which libjpeg can shrink an image while it decodes it."""


def parser(dataset: DatasetFacts, *, batched: bool = False) -> Callable[[Tensor], Features]:
    """Return a function from a serialized record, string [], to its image and label features.

    With ``batched``, it is one from records, string [n], to their features in batches.
    """
    form = dataset.image_form
    specs = {side: tf.io.FixedLenFeature([], tf.int64) for side in form.size_features}
    specs[dataset.image_feature] = tf.io.FixedLenFeature([], tf.string)
    specs |= {name: label.parsing() for name, label in dataset.label_forms.items()}
    keys = {feature_key(name): spec for name, spec in specs.items()}  # a name need not be text
    parse = tf.io.parse_example if batched else tf.io.parse_single_example
    return lambda record: {feature_name(key): value for key, value in parse(record, keys).items()}


def _label(dataset: DatasetFacts, features: Mapping[str, Tensor]) -> Tensor:
    forms = dataset.label_forms
    labels = [label_tensor(form, features[name]) for name, form in forms.items()]
    if len(labels) == 1:
        return labels[0]
    return tf.concat([tf.reshape(label, [-1]) for label in labels], 0)


def reader(
    dataset: DatasetFacts, split: Split, options: LoadOptions, workers: int = 1, worker: int = 0
) -> Callable[[Tensor], TfDataset]:
    """Return a function from the number of a shard to its serialized records.

    Before a shard is first read, its images are checked: TensorFlow's decoders have no limits.
    Whether a record is held out, and which worker it belongs to, depends only on its position among
    all records of the split, or of the slices that were chosen. Each worker has a range of them.
    """
    paths = tf.constant([os.fsencode(path) for path in split.shards])

    def check(number: int) -> int:
        _check_limits(dataset, split.shards[number], split.compression)
        return number

    def records_of(shard: Tensor) -> TfDataset:
        shard = tf.ensure_shape(tf.numpy_function(check, [shard], tf.int64), [])
        return tf.data.TFRecordDataset(paths[shard], TF_TYPES[split.compression])

    if options.holdout is None and options.limit is None and workers == 1 and not split.ranges:
        return records_of
    held_before = np.arange(split.records + 1) * options.count_held(split.records) // split.records
    bounds = np.cumsum((0, *split.lengths))
    wanted = np.zeros(bounds[-1], np.bool_)
    for first, end in split.ranges or [(0, bounds[-1])]:
        wanted[first:end] = True
    wanted[wanted] = (np.diff(held_before) > 0) == options.held_out
    if options.limit is not None:
        wanted = _limited(wanted, bounds, options.limit)
    chosen = np.zeros(bounds[-1], np.bool_)
    chosen[np.array_split(np.flatnonzero(wanted), workers)[worker]] = True
    starts, belongs = tf.constant(bounds), tf.constant(chosen)
    counts = tf.constant(np.diff(np.cumsum((0, *chosen))[bounds]))

    def read(shard: Tensor) -> TfDataset:
        numbered = records_of(shard).enumerate(starts[shard])
        mine = numbered.filter(lambda number, _record: belongs[number])
        if options.limit is not None or split.ranges:  # the rest of a shard is not read
            mine = mine.take(counts[shard])
        return mine.map(lambda _number, record: record)

    return read


def _limited(wanted: Any, bounds: Any, limit: int) -> Any:
    """Return which records are loaded of those that are wanted: the first ones of each shard.

    Each shard has a share in proportion to its wanted records.
    """
    before = np.cumsum((0, *wanted))
    total = before[-1]
    quotas = np.diff(before[bounds] * min(limit, total) // max(total, 1))
    shards = np.repeat(np.arange(len(quotas)), np.diff(bounds))
    ranks = before[:-1] - before[bounds[shards]]
    return wanted & (ranks < quotas[shards])


def split_records(dataset: DatasetFacts, options: LoadOptions) -> TfDataset:
    """Return the serialized records of a part of a split, shard after shard."""
    split = dataset.local_split(options.split)
    return tf.data.Dataset.range(len(split.shards)).flat_map(reader(dataset, split, options))


def _check_limits(dataset: DatasetFacts, shard: AnyPath, compression: Compression) -> None:
    """Raise `ValueError` if an image of a shard is over the limits and must not be decoded.

    TensorFlow's decoders have no limits. To ask for each image from the graph takes as long as
    decoding a small one. Checksums are left to TensorFlow.
    """
    if dataset.decode is not None or dataset.image_form.size:
        return
    try:
        state = shard.stat()
        version = state.st_ino, state.st_size, state.st_mtime_ns
        problem = _limits_problem(dataset.image_feature, shard, compression, version)
    except (OSError, TfrtoolError) as error:
        raise ValueError(str(error)) from error
    if problem is not None:
        raise ValueError(f"{printable(shard.name)}, {problem}")


@lru_cache(maxsize=MAX_SHARDS)
def _limits_problem(
    image: str, shard: Path, compression: Compression, _version: tuple[int, ...]
) -> str | None:
    key = feature_key(image)
    for item in read_shard(shard, compression=compression, verify_payload=False):
        if isinstance(item, Record):
            try:  # TensorFlow may find an image even if this is not an Example
                features = parse_message(item.payload).context.feature
            except DecodeError as error:
                return f"record {item.index}: {error}"
            # Every value of the key: this is half the cost of decoding all features.
            values = (
                value for one in features if one.key == key for value in one.value.bytes_list.value
            )
            problem = next(filter(None, map(limit_problem, values)), None)
            if problem is not None:
                return f"record {item.index}: {problem}"
    return None


def full_image(dataset: DatasetFacts, features: Mapping[str, Tensor]) -> Tensor:
    """Decode a record's image at its stored size: uint8 [height, width, channels]."""
    data, form = features[dataset.image_feature], dataset.image_form
    if not form.size:
        # As fast as decode_jpeg for JPEGs, and it takes BMP, WebP and animated GIFs as well.
        image = tf.io.decode_image(data, channels=_RGB, expand_animations=False)
        return tf.ensure_shape(image, [None, None, _RGB])
    size = [features[side] if isinstance(side, str) else side for side in form.size]
    return tf.reshape(tf.io.decode_raw(data, tf.uint8), [*size, form.channels])


def _fast_image(
    dataset: DatasetFacts,
    features: Mapping[str, Tensor],
    least: tuple[int, ...],
    resize: Callable[[Tensor], Any],
) -> Tensor:
    """Decode a large JPEG at 1/2, 1/4 or 1/8 of its size, at least ``least``; resize."""
    data = features[dataset.image_feature]
    is_jpeg = tf.equal(tf.strings.substr(data, 0, len(_JPEG)), _JPEG)
    none = tf.zeros([2], tf.int32)
    shape = tf.cond(is_jpeg, lambda: tf.image.extract_jpeg_shape(data)[:2], lambda: none)
    # libjpeg rounds sides up, so the last row or column may stand for a single pixel of the image.
    # Rounded to the nearest, images are neither stretched nor cut in the mean.
    sides = [(shape + ratio // 2) // ratio for ratio in _RATIOS]

    def shrunk(ratio: int, side: Tensor) -> Tensor:
        image = tf.io.decode_jpeg(data, channels=_RGB, ratio=ratio)
        return resize(image[: side[0], : side[1]])

    choices = [partial(shrunk, ratio, side) for ratio, side in zip(_RATIOS, sides, strict=True)]
    enough = tf.reduce_all(sides >= tf.constant(least), axis=1)
    which = tf.reduce_sum(tf.cast(enough, tf.int32))
    return tf.switch_case(which, [lambda: resize(full_image(dataset, features)), *choices])


def _as_parsed(features: Features) -> Features:
    return features


def record_decoder(dataset: DatasetFacts, *, parsed: bool = False) -> Callable[[Any], Batch]:
    """Return a function from a serialized record, string [], to its image and its label.

    With ``parsed``, it takes the features of a record instead, as those of `parser`.
    The image has its stored size, uint8 [height, width, channels]. The label is int64 [], or
    float32 [classes] of 0 and 1 if images may have several classes, or float32 [] or [targets] if
    it is to be predicted as numbers. An invalid label or image is an ``InvalidArgumentError`` when
    the graph runs.
    """
    if dataset.decode_function is not None:
        function = dataset.decode_function

        def decode_own(record: Tensor) -> Batch:
            image, label = function(record)
            if dataset.label_form.is_class_number:
                label = tf.gather(tf.range(len(dataset.class_names), dtype=tf.int64), label)
            return image, label

        return decode_own
    parse = _as_parsed if parsed else parser(dataset)

    def decode(record: Any) -> Batch:
        features = parse(record)
        return full_image(dataset, features), _label(dataset, features)

    return decode


def rounded(pixels: Tensor) -> Tensor:
    """Return pixels from 0 to 255, float32, as uint8; halves are rounded up."""
    return tf.cast(pixels + 0.5, tf.uint8)


_LUMA = (0.2989, 0.587, 0.114)
"""Shares of red, green and blue in gray, as in ``tf.image.rgb_to_grayscale``."""


def as_channels(image: Tensor, channels: int) -> Tensor:
    """Return an image, uint8 or float32 [..., n], in gray or RGB, without alpha."""
    if image.shape[-1] <= 2:  # gray is repeated
        return tf.repeat(image[..., :1], channels, axis=-1)
    if channels == _RGB:
        return image[..., :_RGB]
    gray = tf.reduce_sum(tf.cast(image[..., :_RGB], tf.float32) * tf.constant(_LUMA), -1)[..., None]
    return rounded(gray) if image.dtype == tf.uint8 else gray


def decoder(
    dataset: DatasetFacts, options: LoadOptions, *, floats: bool = False, parsed: bool = False
) -> Callable[..., Batch]:
    """Return a function from a serialized record, string [], to an image and its label.

    The image is uint8 [height, width, channels], resized as by ``tf.image.resize`` and rounded;
    with ``floats`` it is float32 from 0 to 255, as in published pipelines. Labels and ``parsed``
    are those of `record_decoder`. If images are augmented before they are resized, the function
    also takes a seed, int64 [2].
    """
    early = options.early_augment
    recolor = None if early is None else early_recolorer(early)
    size, decode_full = options.shape[:2], record_decoder(dataset, parsed=parsed)
    parse = _as_parsed if parsed else parser(dataset)

    def resize(image: Tensor) -> Tensor:
        # The kernel for float32 is faster by more than a float copy of a small image takes.
        return rounded(tf.image.resize(tf.cast(image, tf.float32), size))

    def decode(record: Any, seed: Tensor = None) -> Batch:
        if options.decode == "fast" and not (dataset.image_form.size or dataset.decode_function):
            features = parse(record)
            image = _fast_image(dataset, features, size, resize)
            label = _label(dataset, features)
        else:
            image, label = decode_full(record)
            if recolor is not None:
                image = resize(recolor(as_channels(image, options.channels), seed))
            elif floats:
                image = tf.cast(tf.image.resize(image, size), tf.float32)
            elif image.shape[:2] != size:  # no pixel of an image that has the size changes
                image = resize(image)
        return as_channels(image, options.channels), label

    return decode


def rescaler(rescale: Rescale) -> Callable[[Tensor], Tensor]:
    """Return a function from pixels, uint8 or float32, to float32 of the same shape."""
    factor, offset = rescale.scale, rescale.offset

    def apply(images: Tensor) -> Tensor:
        scale: Any = factor
        if rescale.bgr:
            images = tf.reverse(images, [-1])
        if isinstance(scale, float) and isinstance(offset, float):
            end = offset + _WHITE * scale
            if images.dtype == tf.uint8:
                # Dequantizing takes one pass over the batch instead of three, and a float32 batch
                # is larger than the caches of most processors.
                pixels = tf.bitcast(images, tf.quint8)
                return tf.quantization.dequantize(pixels, offset, end, mode="MIN_COMBINED")
            scale = (np.float32(end) - np.float32(offset)) / np.float32(_WHITE)  # as that rounds
        scaled = tf.cast(images, tf.float32) * tf.constant(scale)
        return scaled + tf.constant(offset) if np.any(offset) else scaled

    return apply


def zero_pixel(rescale: Rescale) -> tuple[float, ...]:
    """Return the pixel that becomes 0: a value for all channels, or for each that goes in."""
    values = np.atleast_1d(-np.asarray(rescale.offset) / np.asarray(rescale.scale)).tolist()
    return tuple(values[::-1] if rescale.bgr else values)


def original_pixels(values: Any, rescale: Rescale) -> Any:
    """Return the pixels, uint8 [..., channels], that became some values."""
    pixels = (values - np.asarray(rescale.offset)) / np.asarray(rescale.scale)
    pixels = np.clip(np.rint(pixels), 0, _WHITE).astype(np.uint8)
    return pixels[..., ::-1] if rescale.bgr else pixels


def standard_rescale(batches: TfDataset) -> Rescale:
    """Return ``(x - mean) / deviation`` per channel, over batches of uint8 [n, h, w, channels].

    A channel with a single value is divided by 255. `DatasetError` without images.
    """
    channels = batches.element_spec[0].shape[-1]
    count, total, squares = 0, np.zeros(channels), np.zeros(channels)
    for images, _ in batches:
        pixels = images.numpy().reshape(-1, channels).astype(np.float64)
        count += len(pixels)
        total += pixels.sum(axis=0)  # exact, whatever the order: whole numbers below 2**53
        squares += np.square(pixels).sum(axis=0)
    if count == 0:
        raise DatasetError("no images to compute the mean of")
    means = total / count
    spread = [
        math.sqrt(max(count * int(square) - int(some) ** 2, 0)) / count
        for some, square in zip(total, squares, strict=True)
    ]
    scale = [1 / (deviation or _WHITE) for deviation in spread]
    offset = [float(-mean * factor) for mean, factor in zip(means, scale, strict=True)]
    return Rescale(scale=tuple(scale), offset=tuple(offset))
