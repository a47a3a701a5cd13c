"""The writer of TFRecord files: frames, checksums, compression, a running count."""

import contextlib
import os
import zlib
from array import array
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Protocol

from tfrtool.errors import WriteError, os_errors_as, reason_of
from tfrtool.records.compression import TF_TYPES, WBITS, Compression
from tfrtool.records.frames import Frames, keys_of
from tfrtool.records.framing import (
    CRC,
    FRAME_SIZE,
    Fault,
    Record,
    extend_crc32c,
    header,
    masked_crc32c,
)
from tfrtool.records.reader import RecordReader
from tfrtool.records.tally import Keys, Tally, payload_key
from tfrtool.storage.opening import open_regular
from tfrtool.storage.remote_path import AnyPath

if TYPE_CHECKING:
    from tfrtool.records.payloads import Payloads  # which loads NumPy

_MEMORY_LEVEL = 9
"""The memLevel of deflate in TensorFlow's ZlibCompressionOptions; the level is zlib's default."""

_BUFFER = 1024 * 1024
"""Bytes of frames that are compressed and written together."""

_LONG = 1024
"""Mean bytes of pieces that are written without joining them. There are three in a record."""

_MOST_PIECES = 1000
"""Pieces that are written by one call; systems take 1,024."""

_LARGE = 16 * _BUFFER
"""Bytes of a payload that is written before the next one is read, to hold only one in memory."""

_SYNC = 8 * _BUFFER
"""Bytes after which a sync starts, so that the last one is short. 2 GB took 1.4 to 2 s, 2.0 to
2.6 s without; 4 and 16 MiB took as long, 32 MiB longer."""

_sync = getattr(os, "fdatasync", os.fsync)  # not all systems have fdatasync


_header = lru_cache(4096)(header)


class Framing(Protocol):
    """The part of ``tf.io.TFRecordWriter`` that `ShardWriter` uses."""

    def write(self, record: bytes) -> None:
        """Write a record."""

    def close(self) -> None:
        """Close the file."""


class ShardWriter:
    """Writes a TFRecord file whose bytes are those of ``tf.io.TFRecordWriter``.

    A context manager: without an error, the file is closed and on the disk at its end. After an
    error the file is incomplete, and the caller removes it. Use temporary names for both reasons.

    Attributes:
        tally: the records so far. With foreign framing, its digest is known after `verify`.
    """

    def __init__(
        self,
        file: Path | BinaryIO,
        compression: Compression = Compression.NONE,
        *,
        framing: Callable[[str, str], Framing] | None = None,
        digests: bool = True,
        target: AnyPath | None = None,
    ) -> None:
        """Create a file.

        Args:
            file: path of the file, which must not exist; or an empty file, open for writing, which
                stays open.
            compression: how to compress the file.
            framing: ``tf.io.TFRecordWriter``, to let TensorFlow frame and compress the records.
                It needs a path.
            digests: whether to compute `crc32c` and the digest of the tally.
            target: path to name in errors, if not that of the file.

        Raises:
            WriteError: the file can't be created.
        """
        self.tally = Tally()
        self.path = file if isinstance(file, Path) else Path(file.name)
        self._target = self.path if target is None else target
        self._buffer: list[bytes] = []
        self._keys = array("Q")
        self._digests = digests
        self._order = 0  # a CRC over the keys of the records, in order
        self._size = self._unsynced = self._crc = 0
        self._compressor = None
        self._foreign: Framing | None = None
        self._file: BinaryIO | None = None
        self._closes = isinstance(file, Path)
        self._written: Future[None] = Future()
        self._written.set_result(None)
        self._synced = self._written
        if framing is not None:
            try:
                self._foreign = framing(os.fspath(self.path), TF_TYPES[compression])
            except Exception as error:
                raise self._foreign_error(error) from error
            return
        if compression is not Compression.NONE:
            self._compressor = zlib.compressobj(
                zlib.Z_DEFAULT_COMPRESSION, zlib.DEFLATED, WBITS[compression], _MEMORY_LEVEL
            )
        with self._os_errors():
            self._file = file.open("xb", buffering=0) if isinstance(file, Path) else file
        self._threads = ThreadPoolExecutor(2, "tfrtool-write")

    def __enter__(self) -> "ShardWriter":
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.close()
        else:
            self.abandon()

    @property
    def crc32c(self) -> str | None:
        """CRC-32C of the bytes of a closed, uncompressed file, in hexadecimal; None if unknown."""
        known = self._digests and self._foreign is None and self._compressor is None
        return f"{self._crc:08x}" if known else None

    def write(self, payloads: Iterable[bytes]) -> None:
        """Append payloads."""
        if self._foreign is not None:
            for payload in payloads:
                try:
                    self._foreign.write(payload)
                except Exception as error:
                    raise self._foreign_error(error) from error
                self.tally.records += 1
                self.tally.payload_bytes += len(payload)
            return
        for payload in payloads:
            self._add(payload, masked_crc32c(payload))

    def write_record(self, record: Record) -> None:
        """Append a record that was read; its checksum isn't computed again."""
        if self._foreign is not None:
            self.write((record.payload,))
        else:
            self._add(record.payload, record.payload_crc)

    def write_piece(self, records: Sequence[Record]) -> None:
        """Append consecutive records that were read; no checksum is computed again."""
        if isinstance(records, Frames) and self._foreign is None:
            self.write_frames(records.stored, records.keys)
        else:
            for record in records:
                self.write_record(record)

    def write_payloads(self, payloads: "Payloads") -> None:
        """Append payloads of one stretch of bytes, whose checksums are computed once."""
        if self._foreign is not None:
            self.write(payloads)
            return
        sizes, keys = payloads.sizes, payloads.keys
        blocks = (sizes + FRAME_SIZE).cumsum() // _BUFFER
        cuts = (blocks[1:] != blocks[:-1]).nonzero()[0] + 1
        for start, end in pairwise(sorted({0, *cuts.tolist(), len(payloads)})):
            part = payloads[start:end]
            if sizes[start:end].max(initial=0) < _LARGE:
                self.write_frames(part.framed(), keys[start:end])
                continue
            for payload, key in zip(part, keys[start:end].tolist(), strict=True):
                self._add(payload, key >> 32)

    def write_frames(self, frames: bytes, keys: Keys) -> None:
        """Append whole records as they are, given with the `payload_key` of each."""
        self._flush()
        self._submit([frames], keys)

    def close(self) -> None:
        """Finish the file, and bring it to the disk; `WriteError` if that fails."""
        try:
            if self._foreign is not None:
                try:
                    self._foreign.close()
                except Exception as error:
                    raise self._foreign_error(error) from error
                with self._os_errors(), open_regular(self.path, follow=False) as file:
                    os.fsync(file.fileno())
            elif self._file is not None:
                self._flush()
                self._finish_writing()
                with self._os_errors():
                    self._synced.result()
                    if self._compressor is not None:
                        self._put([self._compressor.flush()])
                    os.fsync(self._file.fileno())
        except BaseException:
            self.abandon()
            raise
        self._close_file()

    def abandon(self) -> None:
        """Close the file after an error; errors of closing are ignored."""
        if self._foreign is not None:
            with contextlib.suppress(Exception):
                self._foreign.close()
        self._close_file()

    def verify(self) -> Tally:
        """Read the closed file back, and return its `Tally`.

        Raises:
            WriteError: it doesn't hold what was written. A full disk may cut a file silently.
        """
        found, order = Tally(), 0
        with (
            os_errors_as(WriteError, self._target, "can't be read back"),
            open_regular(self.path, follow=False) as file,
        ):
            for piece in RecordReader(file).pieces():
                if isinstance(piece, Fault):
                    raise WriteError(
                        f"verification of the written shard failed: {piece.message}",
                        path=self._target,
                        record=piece.record,
                        offset=piece.offset,
                    )
                order = self._count(found, keys_of(piece), order)
        if self._foreign is not None:
            self.tally.digest, self._order = found.digest, order
        if (found, order) != (self.tally, self._order):
            raise WriteError(
                "verification of the written shard failed",
                path=self._target,
                expected=f"{self.tally.records} records of {self.tally.payload_bytes} bytes",
                found=f"{found.records} records of {found.payload_bytes} bytes",
            )
        return found

    def _add(self, payload: bytes, crc: int) -> None:
        size = len(payload)
        if size >= _LARGE:
            self._flush()
        self._buffer += (_header(size), payload, CRC.pack(crc))
        self._keys.append(payload_key(crc, size))
        self._size += size + FRAME_SIZE
        if self._size > _BUFFER:
            self._flush()
        if size >= _LARGE:
            self._finish_writing()

    def _count(self, tally: Tally, keys: Keys, order: int) -> int:
        """Count records; return a CRC over their keys and those before them."""
        if self._digests:
            tally.add_keys(keys)
        else:
            tally.records += len(keys)
            tally.payload_bytes += sum(key & 0xFFFFFFFF for key in keys.tolist())
        return extend_crc32c(order, keys.tobytes())

    def _flush(self) -> None:
        if self._buffer:
            pieces = self._buffer
            if self._size < _LONG * len(pieces):  # else copying takes longer than more calls
                pieces = [b"".join(pieces)]
            self._submit(pieces, self._keys)
            self._buffer, self._keys, self._size = [], array("Q"), 0

    def _submit(self, pieces: Sequence[bytes], keys: Keys) -> None:
        """Write pieces in a thread while the next ones are read."""
        self._order = self._count(self.tally, keys, self._order)
        self._finish_writing()
        self._written = self._threads.submit(self._compress, pieces)
        self._unsynced += sum(map(len, pieces))
        if self._unsynced >= _SYNC and self._file is not None and self._synced.done():
            self._unsynced = 0
            with self._os_errors():
                self._synced.result()
            self._synced = self._threads.submit(_sync, self._file.fileno())

    def _finish_writing(self) -> None:
        with self._os_errors():
            self._written.result()

    def _compress(self, pieces: Sequence[bytes]) -> None:
        if self._compressor is None:
            self._put(pieces)
            return
        for piece in pieces:
            view = memoryview(piece)
            for start in range(0, len(piece), _BUFFER):  # for a compressor copies what it gets
                self._put([self._compressor.compress(view[start : start + _BUFFER])])

    def _put(self, pieces: Sequence[bytes]) -> None:
        if self._digests and self._compressor is None:
            for piece in pieces:
                self._crc = extend_crc32c(self._crc, piece)
        if self._file is not None:
            for start in range(0, len(pieces), _MOST_PIECES):
                _write_all(self._file.fileno(), pieces[start : start + _MOST_PIECES])

    def _close_file(self) -> None:
        if self._file is not None:
            self._threads.shutdown()
            if self._closes:
                with contextlib.suppress(OSError):
                    self._file.close()

    def _os_errors(self) -> contextlib.AbstractContextManager[None]:
        return os_errors_as(WriteError, self._target, "can't be written")

    def _foreign_error(self, error: Exception) -> WriteError:
        """Return an error of TensorFlow as one that names the target."""
        reason = reason_of(error).rpartition("; ")[2]  # TensorFlow's starts with the path
        reason = reason[:1].lower() + reason[1:]
        return WriteError(f"can't be written: {reason}", path=self._target)


def _write_all(descriptor: int, pieces: Sequence[bytes]) -> None:
    """Write pieces to an open file, however many calls it takes."""
    if hasattr(os, "writev"):
        size = os.writev(descriptor, pieces)
        if size == sum(map(len, pieces)):
            return
    else:
        size = 0
    rest = memoryview(b"".join(pieces))[size:]
    while rest:
        rest = rest[os.write(descriptor, rest) :]
