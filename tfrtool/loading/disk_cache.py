"""Decoded images on disk, to be found again by the next epoch and by the next run.

A cache is one file: the pixels of all images, uint8 [images, size, size, 3]; their labels, int64
[images] or float32 [images, classes], little-endian; and an end that says whose images they are,
with a CRC-32C of the pixels, and one of labels and end. The end is written last, so a file without
it isn't whole.

It is read, and not mapped into memory: where a mapped file is cut, or the disk fails, the system
ends the whole process.
"""

import contextlib
import hashlib
import json
import os
import struct
import threading
import time
import weakref
from collections import deque
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from tfrtool.errors import DatasetError, UsageError, WriteError, os_errors_as, os_reason
from tfrtool.loading.dataset import Dataset
from tfrtool.loading.options import LoadOptions
from tfrtool.loading.share import Share
from tfrtool.loading.tensors import Tensor, TfDataset
from tfrtool.records.crc import crc32c, extend_crc32c
from tfrtool.storage.arguments import user_cache
from tfrtool.storage.atomic_files import TEMPORARY, new_file, private_folder
from tfrtool.storage.opening import open_regular
from tfrtool.storage.progress import OnProgress, Progress, no_progress
from tfrtool.storage.remote.shard_cache import look_at
from tfrtool.storage.remote_path import RemotePath

_ALL = Share()

_DECODING = 3
"""The version of how a record becomes pixels, and of the order of images. Raise it when either
changes: caches that older releases wrote are not used any more."""

_CHANNELS = 3
_FAILED = "the cache can't be written"
_MAGIC = b"tfrimgs2"
_END = struct.Struct("<8s16sQQI")
"""The magic, the key's digest, the number of images, their size in pixels, the pixels' CRC."""
_CRC = struct.Struct("<I")

_WRITE_BATCH = 32
_BLOCK = 2**16
_ALIGNED = 64
"""Bytes: memory that starts at a multiple of them TensorFlow takes as it is, without a copy."""
_ABANDONED = 3600
"""Seconds. Writers write every second or so; what none has written to for so long has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheKey:
    """Which images a cache on disk holds, and in which order.

    There is one cache for each part of a split of a dataset; one with another digest is stale.
    """

    images: int
    image_size: int  # in pixels, both ways
    part: str  # 16 hexadecimal digits that differ where the part of a split does
    digest: str  # 32 that differ where anything does
    classes: int | None = None  # float32 numbers that a label is; None for one int64

    @classmethod
    def of(
        cls, dataset: Dataset, options: LoadOptions, images: int, share: Share = _ALL
    ) -> "CacheKey":
        """Return the key of what ``options`` would load in one pipeline of several.

        Contents of shards are known by the files' names, sizes and times of change: reading them
        would take as long as decoding them.
        """
        split, holdout = dataset.split(options.split), options.holdout
        shards = []
        remote = [path for path in split.shards if isinstance(path, RemotePath)]
        with contextlib.suppress(OSError):  # it comes again below
            deque(remote[0].store.ahead(look_at, remote) if remote else (), 0)
        for path in split.shards:
            with os_errors_as(DatasetError, path, "can't be read"):
                if isinstance(path, RemotePath):
                    look_at(path)
                status = path.stat()
            shards.append((path.name, status.st_size, status.st_mtime_ns))
        held_out = None if holdout is None else holdout.held_out
        part = [os.fspath(dataset.directory.resolve()), split.name, held_out]
        if share.count > 1:  # another pipeline's cache is not stale
            part.append(f"{share.number} of {share.count}")
        facts = {
            "shards": shards,
            "images": [images, options.image_size, repr(dataset.image_form)],
            "features": [dataset.image_feature, dataset.label_feature, repr(dataset.label_form)],
            "fraction": None if holdout is None else holdout.fraction,
            "order": [options.cycle_length, options.block_length, (0, 1)],
            "decoding": [_DECODING, options.decode.value, str(tf.__version__)],
        }
        digests = _digest(part)[:16], _digest([part, facts])[:32]
        return cls(
            images=images,
            image_size=options.image_size,
            part=digests[0],
            digest=digests[1],
            classes=dataset.label_width,
        )

    @property
    def no_labels(self) -> Any:
        """An array for labels of all images, little-endian, not filled yet."""
        if self.classes is None:
            return np.empty(self.images, "<i8")
        return np.empty((self.images, self.classes), "<f4")

    @property
    def file_name(self) -> str:
        """The name of the cache's file."""
        return f"{self.part}-{self.digest}.images"


def _digest(facts: object) -> str:
    return hashlib.sha256(json.dumps(facts).encode("ascii")).hexdigest()


def default_cache_directory(environment: Mapping[str, str] = os.environ) -> Path:
    """Return where caches are kept unless told otherwise; `UsageError` if there is no home."""
    path = user_cache("images", environment)
    if path is None:
        raise UsageError("no home directory for the cache", hint="set XDG_CACHE_HOME")
    return path


class DiskCache:
    """A whole cache, whose file is open as long as this lives, and the ``labels`` in it."""

    def __init__(self, directory: Path, key: CacheKey) -> None:
        """Open the file of a key, and see whether it is whole; its pixels are not read.

        ValueError if it is another user's, or not what its name says.
        """
        self.path = directory / key.file_name
        self.image_size = key.image_size
        self._file = open_regular(self.path, follow=False, buffering=0)
        self._lock = threading.Lock()
        weakref.finalize(self, self._file.close)
        status = os.fstat(self._file.fileno())
        empty = key.no_labels
        labels = empty.nbytes
        end = bytearray(labels + _END.size + _CRC.size)
        self._pixels = key.images * key.image_size**2 * _CHANNELS
        if hasattr(os, "geteuid") and status.st_uid != os.geteuid():
            raise ValueError("belongs to another user")
        if status.st_size != self._pixels + len(end):
            raise ValueError("has the wrong size")
        self._fill(memoryview(end), self._pixels)
        self._crc = _END.unpack_from(end, labels)[-1]
        if end != _end(key, bytes(end[:labels]), self._crc):
            raise ValueError("does not match its name")
        held = np.frombuffer(end, empty.dtype, empty.size).reshape(empty.shape)
        self.labels = held.astype(empty.dtype.newbyteorder("="))

    def check_pixels(self) -> None:
        """Read all pixels, before anybody else does; ValueError if they are not as written."""
        crc, left = 0, self._pixels
        self._file.seek(0)
        while left and (block := self._file.read(min(_BLOCK, left))):
            crc, left = extend_crc32c(crc, block), left - len(block)
        if left or crc != self._crc:
            raise ValueError("does not match its checksum")

    def read(self, rows: Tensor) -> Tensor:
        """Return the images of some rows, uint8 [n, image_size, image_size, 3]."""
        size = self.image_size**2 * _CHANNELS
        block = np.empty(len(rows) * size + _ALIGNED, np.uint8)
        memory = block[-block.ctypes.data % _ALIGNED :][: len(rows) * size]
        try:
            for place, row in enumerate(rows.tolist()):
                self._fill(memory[place * size : (place + 1) * size].data, row * size)
        except OSError as error:
            raise ValueError(f"{self.path}: the cache can't be read: {os_reason(error)}") from error
        return memory.reshape(len(rows), self.image_size, self.image_size, _CHANNELS)

    def _fill(self, view: memoryview, offset: int) -> None:
        while view:
            with self._lock:
                self._file.seek(offset)
                count = self._file.readinto(view)  # type: ignore[attr-defined]  # it has no buffer
            if not count:
                raise ValueError(
                    f"{self.path}: the cache was truncated while in use; run again to rebuild it"
                )
            view, offset = view[count:], offset + count


def open_disk_cache(directory: Path, key: CacheKey, *, pixels: bool = True) -> DiskCache | None:
    """Return the cache that an earlier run has written for a key; None if there is none.

    With ``pixels`` they are checked, too. What has its name and is no whole cache of this user's
    is removed, if it can be.
    """
    try:
        cache = DiskCache(directory, key)
        if pixels:
            cache.check_pixels()
    except OSError:
        return None
    except ValueError:
        with contextlib.suppress(OSError):
            (directory / key.file_name).unlink()
        return None
    return cache


def write_disk_cache(
    directory: Path, key: CacheKey, decoded: TfDataset, on_progress: OnProgress = no_progress
) -> DiskCache:
    """Write all images of a dataset to a cache, and open it.

    What the directory holds for the same purpose with another key is stale, and is removed; so is
    what writers that were killed have left there. Who is reading it goes on with it. If the file
    can't be written, it is a `WriteError`, and nothing is left of it.

    Args:
        directory: where caches are, a folder of this user's and no link; it is made if it isn't
            there, and then nobody else can look into it.
        key: of the images.
        decoded: a ``tf.data.Dataset`` of one epoch in the order of reading: pairs of an image,
            uint8 [image_size, image_size, 3], and a label, int64 []. If it gives more or fewer
            images than the key tells, it is a `DatasetError`.
        on_progress: told how many images are written so far.
    """
    options = tf.data.Options()
    # Or leaving the iterator waits for the tuner's sleep, of up to 60 s.
    options.autotune.enabled = False
    batches = decoded.batch(_WRITE_BATCH).prefetch(2).with_options(options)
    path = directory / key.file_name
    with os_errors_as(WriteError, directory, _FAILED):
        directory.parent.mkdir(parents=True, exist_ok=True)
        private_folder(directory)
    abandoned = time.time() - _ABANDONED
    for old in (*directory.glob(f"{key.part}-*.images"), *directory.glob(f"{TEMPORARY}*.images")):
        with contextlib.suppress(OSError):
            left = old.name.startswith(TEMPORARY)
            if old.lstat().st_mtime < abandoned if left else old != path:
                old.unlink()
    with ExitStack() as stack:
        with os_errors_as(WriteError, path, _FAILED):
            file = stack.enter_context(new_file(path))
            Path(file.name).chmod(0o600)
        labels = key.no_labels
        done, crc = 0, 0
        for images, some in batches:
            start, done = done, done + len(some)
            if done > key.images:
                break
            labels[start:done] = some.numpy()
            pixels = images.numpy().tobytes()
            crc = extend_crc32c(crc, pixels)
            with os_errors_as(WriteError, path, _FAILED):
                file.write(pixels)
            told = Progress(what="caching", done=done, total=key.images, unit="images")
            on_progress(told)
        if done != key.images:
            raise DatasetError(
                "the dataset has a different number of images than expected",
                expected=key.images,
                found=done,
            )
        with os_errors_as(WriteError, path, _FAILED):
            file.write(_end(key, labels.tobytes(), crc))
            stack.close()
    cache = open_disk_cache(directory, key, pixels=False)
    if cache is None:
        raise WriteError("the cache was deleted as soon as it was written", path=path)
    return cache


def _end(key: CacheKey, labels: bytes, pixels: int) -> bytes:
    """Return all that follows the pixels, of which the CRC is given."""
    end = _END.pack(_MAGIC, bytes.fromhex(key.digest), key.images, key.image_size, pixels)
    return labels + end + _CRC.pack(extend_crc32c(crc32c(labels), end))
