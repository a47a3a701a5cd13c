"""Where records go: ``tf.io.TFRecordWriter``, with errors of ours and the disk behind it."""

from __future__ import annotations

import os
from pathlib import Path
from types import TracebackType

import tensorflow as tf

from tfrtool.errors import WriteError
from tfrtool.records.compression import Compression

__all__ = ["RecordSink"]

_TYPES = {Compression.NONE: "", Compression.GZIP: "GZIP", Compression.ZLIB: "ZLIB"}


class RecordSink:
    """A shard that is being written; a context manager.

    TFRecordWriter closes its file properly even when an exception leaves its ``with`` block, and
    so leaves a valid shard that is too short: the caller must write to a temporary name.
    """

    def __init__(self, path: Path, compression: Compression) -> None:
        self._path = path
        try:
            self._writer = tf.io.TFRecordWriter(os.fspath(path), _TYPES[compression])
        except (tf.errors.OpError, OSError) as error:
            raise self._failed(error) from error

    def __enter__(self) -> RecordSink:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self._writer.close()
            if kind is None:
                descriptor = os.open(self._path, os.O_RDONLY)
                try:
                    os.fsync(descriptor)
                finally:
                    os.close(descriptor)
        except (tf.errors.OpError, OSError) as problem:
            # An error that is on its way already says more than one from closing.
            if kind is None:
                raise self._failed(problem) from problem

    def write(self, payload: bytes) -> None:
        """Append a record.

        Raises:
            WriteError: the disk is full, or fails otherwise.
        """
        try:
            self._writer.write(payload)
        except (tf.errors.OpError, OSError) as error:
            raise self._failed(error) from error

    def _failed(self, error: Exception) -> WriteError:
        reason = getattr(error, "message", None) or str(error)
        return WriteError(f"can't be written: {reason.rpartition('; ')[2]}", path=self._path)
