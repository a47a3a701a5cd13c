"""Where records go: ``tf.io.TFRecordWriter``, with errors of ours and the disk behind it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path

import tensorflow as tf

from tfrtool.errors import WriteError
from tfrtool.records.compression import Compression
from tfrtool.storage.opening import open_descriptor

__all__ = ["RecordSink"]

_TYPES = {Compression.NONE: "", Compression.GZIP: "GZIP", Compression.ZLIB: "ZLIB"}


class RecordSink:
    """A shard that is being written.

    TFRecordWriter closes its file properly whatever happens, and so leaves a valid shard that is
    too short where an exception ended the work: the caller must write to a temporary name. Errors
    name the file as it is shown.
    """

    def __init__(self, path: Path, compression: Compression, *, shown: Path) -> None:
        self._path = path
        self._shown = shown
        try:
            self._writer = tf.io.TFRecordWriter(os.fspath(path), _TYPES[compression])
        except (tf.errors.OpError, OSError) as error:
            raise self._failed(error) from error

    def close(self) -> None:
        """Close the file, and bring it to the disk.

        Raises:
            WriteError: the disk is full, or fails otherwise.
        """
        try:
            self._writer.close()
            descriptor = open_descriptor(self._path, follow=False)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        except (tf.errors.OpError, OSError) as error:
            raise self._failed(error) from error

    def abandon(self) -> None:
        """Close the file and take it away; the error that led here says more than any from this."""
        with contextlib.suppress(tf.errors.OpError, OSError):
            self._writer.close()
        self._path.unlink(missing_ok=True)

    def write(self, payloads: Iterable[bytes]) -> None:
        """Append records. TFRecordWriter lets go of the interpreter for each.

        Raises:
            WriteError: the disk is full, or fails otherwise.
        """
        write = self._writer.write
        try:
            for payload in payloads:
                write(payload)
        except (tf.errors.OpError, OSError) as error:
            raise self._failed(error) from error

    def _failed(self, error: Exception) -> WriteError:
        reason = getattr(error, "message", None) or str(error)
        return WriteError(f"can't be written: {reason.rpartition('; ')[2]}", path=self._shown)
