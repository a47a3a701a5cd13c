"""Decoded images on disk, to be found again by the next epoch and by the next run.

A cache is one file: the pixels of all images, uint8 [images, size, size, 3]; their labels, int64,
little-endian; and an end that says whose images they are, with a CRC-32C over labels and end. The
end is written last, so a file without it isn't whole.

It is mapped into memory, where images are taken at random; what is not in use, the system drops.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from tfrtool.errors import DatasetError, UsageError, WriteError
from tfrtool.loading.cache_files import (
    HeldFile,
    new_file,
    os_errors_as_write_errors,
    remove_file,
    remove_leftovers,
    remove_unless_held,
)
from tfrtool.loading.cache_key import CacheKey
from tfrtool.records.crc import crc32c, extend_crc32c

__all__ = ["DiskCache", "open_disk_cache", "read_disk_cache", "write_disk_cache"]

_CHANNELS = 3
_LABEL = np.dtype("<i8")
_MAGIC = b"tfrimgs1"
_END = struct.Struct("<8s16sQQ")
"""The magic, the key's digest, the number of images, their size in pixels."""
_CRC = struct.Struct("<I")

_WRITE_BATCH = 32


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DiskCache:
    """A whole cache. No other run removes its file as long as this lives.

    Attributes:
        path: its file.
        images: how many there are.
        image_size: in pixels, both ways.
        labels: an array, int64 [images].
        held: what keeps the file from being removed.
    """

    path: Path
    images: int
    image_size: int
    labels: Any
    held: HeldFile


def open_disk_cache(directory: Path, key: CacheKey) -> DiskCache | None:
    """Return the cache that an earlier run has written for a key; None if there is none.

    A file that isn't whole, or isn't what its name says, is removed.

    Args:
        directory: where caches are.
        key: of the images wanted.
    """
    path = directory / key.file_name
    try:
        held = HeldFile(path)
        labels = _read_labels(held, key)
    except OSError:
        return None
    if labels is None:
        remove_file(path)
        return None
    return DiskCache(
        path=path, images=key.images, image_size=key.image_size, labels=labels, held=held
    )


def write_disk_cache(
    directory: Path,
    key: CacheKey,
    decoded: Any,
    on_images: Callable[[int], None] = lambda _: None,
) -> DiskCache:
    """Write all images of a dataset to a cache, and open it.

    What the directory holds for the same purpose with another key is stale, and is removed unless
    another run is reading it; so is what writers that were killed have left there.

    Args:
        directory: where caches are; it is made if it isn't there.
        key: of the images.
        decoded: a ``tf.data.Dataset`` of one epoch in the order of reading: pairs of an image,
            uint8 [image_size, image_size, 3], and a label, int64 []; or of batches of them.
        on_images: called with the number of images written so far, again and again.

    Raises:
        UsageError: the dataset gives something else than such pairs.
        DatasetError: it gives more or fewer images than the key tells.
        WriteError: the file can't be written, or there is no room. Nothing is left of it.
    """
    batches = _batches(decoded, key)
    path = directory / key.file_name
    for stale in directory.glob(f"{key.slot}-*.images"):
        if stale != path:
            remove_unless_held(stale)
    remove_leftovers(directory)
    with new_file(path) as file:
        labels = np.empty(key.images, _LABEL)
        done = 0
        for images, some in batches:
            more = done + len(some)
            if more > key.images:
                raise _miscounted(key, f"at least {more}")
            labels[done:more] = some.numpy()
            with os_errors_as_write_errors(path):
                file.write(np.ascontiguousarray(images.numpy()).data)
            done = more
            on_images(done)
        if done != key.images:
            raise _miscounted(key, str(done))
        with os_errors_as_write_errors(path):
            file.write(_end(key, labels.tobytes()))
    cache = open_disk_cache(directory, key)
    if cache is None:
        raise WriteError("the cache is gone as soon as it was written", path=path)
    return cache


def read_disk_cache(cache: DiskCache) -> tuple[Any, Any]:
    """Return arrays of a cache's images and labels, in the order in which they were written.

    Returns:
        Images, uint8 [images, image_size, image_size, 3], as they are on disk, and not in memory
        before they are used; and labels, int64 [images].

    Raises:
        WriteError: the file can't be mapped.
    """
    shape = (cache.images, cache.image_size, cache.image_size, _CHANNELS)
    with os_errors_as_write_errors(cache.path):
        mapped = cache.held.map(math.prod(shape))
    return np.frombuffer(mapped, np.uint8).reshape(shape), cache.labels


def _batches(decoded: Any, key: CacheKey) -> Any:
    """Return what was decoded in batches; refuse what isn't images and labels."""
    image = [key.image_size, key.image_size, _CHANNELS]
    spec = decoded.element_spec
    for rank, batches in ((0, decoded.batch(_WRITE_BATCH)), (1, decoded)):
        if _is_pair(spec) and _forms(spec) == [("uint8", rank + 3, image), ("int64", rank, [])]:
            options = tf.data.Options()
            # Or leaving the iterator waits for the tuner's sleep, of up to 60 s.
            options.autotune.enabled = False
            return batches.prefetch(2).with_options(options)
    raise UsageError(
        "only decoded images and labels can be cached",
        expected=f"uint8 {image} and int64 [], or batches of them",
        found=spec,
    )


def _is_pair(spec: Any) -> bool:
    return (
        isinstance(spec, tuple)
        and len(spec) == 2
        and all(isinstance(part, tf.TensorSpec) and part.shape.rank is not None for part in spec)
    )


def _forms(spec: Any) -> list[Any]:
    """Return the dtypes, ranks and innermost sizes of pairs of images and labels."""
    images, labels = spec
    return [
        (images.dtype.name, images.shape.rank, images.shape.as_list()[-3:]),
        (labels.dtype.name, labels.shape.rank, []),
    ]


def _miscounted(key: CacheKey, found: str) -> DatasetError:
    return DatasetError(
        "the dataset does not give the images to be cached", expected=key.images, found=found
    )


def _end(key: CacheKey, labels: bytes) -> bytes:
    """Return all that follows the pixels."""
    end = _END.pack(_MAGIC, bytes.fromhex(key.digest), key.images, key.image_size)
    return labels + end + _CRC.pack(extend_crc32c(crc32c(labels), end))


def _after_pixels(images: int) -> int:
    """Return how many bytes follow the pixels."""
    return images * _LABEL.itemsize + _END.size + _CRC.size


def _read_labels(held: HeldFile, key: CacheKey) -> Any:
    """Return the labels of a file if it is the whole cache of a key, and None otherwise."""
    pixels = key.images * key.image_size * key.image_size * _CHANNELS
    behind = _after_pixels(key.images)
    whole, end = held.read_end(behind)
    if whole != pixels + behind or end != _end(key, end[: key.images * _LABEL.itemsize]):
        return None
    return np.frombuffer(end, _LABEL, key.images).astype(np.int64)
