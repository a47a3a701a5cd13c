"""Framed shards as they are written: the bytes are those of ``tf.io.TFRecordWriter``."""

import os
import zlib
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import numpy as np

from tfrtool.records.compression import WBITS, Compression
from tfrtool.records.crc import extend_crc32c, masked_crc32c
from tfrtool.records.framing import CRC, FRAME_SIZE, header
from tfrtool.records.tally import Tally, payload_key
from tfrtool.writing.job_report import Faults, Written

_MEMORY_LEVEL = 9
"""Of deflate, as TensorFlow's ZlibCompressionOptions has it; the level is zlib's default."""

_PART = 1024 * 1024

_SYNC = 8 * 1024 * 1024
"""Bytes after which the disk is set to work: at the end there is less to wait for. 2 GB took 1.4
to 2 s, 2.0 to 2.6 without; 4 and 16 MiB the same, 32 more."""

_sync = getattr(os, "fdatasync", os.fsync)  # which not all systems have


class ShardSink:
    """A shard that grows; a context manager.

    Attributes:
        tally: what has been written.
    """

    def __init__(self, path: Path, compression: Compression = Compression.NONE) -> None:
        """Begin a file, which is not there yet; `OSError` if that can't be."""
        self.tally = Tally()
        self._crc = 0
        self._threads = ThreadPoolExecutor(2, "tfrtool-write")
        self._writing: Future[None] = Future()
        self._writing.set_result(None)
        self._syncing = self._writing
        self._unsynced = 0
        self._deflate = None
        if compression is not Compression.NONE:
            self._deflate = zlib.compressobj(
                zlib.Z_DEFAULT_COMPRESSION, zlib.DEFLATED, WBITS[compression], _MEMORY_LEVEL
            )
        self._file = path.open("xb", buffering=0)

    def __enter__(self) -> "ShardSink":
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        """Close the file; what is buffered is written unless an error ended the work."""
        with self._file, self._threads:
            if kind is None:
                self._writing.result()
                self._syncing.result()
            if kind is None and self._deflate is not None:
                self._put(self._deflate.flush())

    def written(self, faults: Faults) -> Written:
        """Return what became of a task that wrote just what it read, once this is closed."""
        crc = None if self._deflate else f"{self._crc:08x}"
        return Written(tally=self.tally, read=self.tally, faults=faults, crc32c=crc)

    def write(self, payloads: Iterable[bytes]) -> None:
        """Append payloads, each in its frame."""
        parts: list[bytes] = []
        keys: list[int] = []
        size = 0
        for payload in payloads:
            crc = masked_crc32c(payload)
            parts += (header(len(payload)), payload, CRC.pack(crc))
            keys.append(payload_key(crc, len(payload)))
            size += len(payload) + FRAME_SIZE
            if size > _PART:
                self.write_frames(b"".join(parts), keys)
                parts, keys, size = [], [], 0
        self.write_frames(b"".join(parts), keys)

    def write_frames(self, frames: bytes | memoryview, keys: Sequence[int]) -> None:
        """Append whole records as they are, which hold the payloads of these `payload_key`.

        They are written while the next are read, and not to be changed before those are given.
        """
        self.tally.add_keys(keys)
        self._writing.result()
        self._writing = self._threads.submit(self._compressed, frames)
        self._unsynced += len(frames)
        if self._unsynced >= _SYNC and self._syncing.done():
            self._syncing.result()
            self._unsynced = 0
            self._syncing = self._threads.submit(_sync, self._file.fileno())

    def _compressed(self, frames: bytes | memoryview) -> None:
        self._put(frames if self._deflate is None else self._deflate.compress(frames))

    def _put(self, data: bytes | memoryview) -> None:
        # The library takes no memoryview, but an array, which is no copy.
        array = np.frombuffer(data, np.uint8) if len(data) else b""
        self._crc = extend_crc32c(self._crc, array)
        left = memoryview(data)
        while left:
            left = left[os.write(self._file.fileno(), left) :]
