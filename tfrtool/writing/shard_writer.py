"""Writing one shard: a pure function of its task, but for the file that it leaves."""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import tensorflow as tf

from tfrtool.errors import WriteError
from tfrtool.records.compression import Compression
from tfrtool.records.framing import Fault
from tfrtool.records.reader import read_records
from tfrtool.storage.appearing import move, temporary_name
from tfrtool.storage.opening import open_descriptor
from tfrtool.writing.records import Prepared, batches, prepare
from tfrtool.writing.scan.image_audit import Audit
from tfrtool.writing.write_plan import BadImage, ShardResult, ShardTask

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

_TYPES = {Compression.NONE: "", Compression.GZIP: "GZIP", Compression.ZLIB: "ZLIB"}


def write_shard(task: ShardTask, on_records: Callable[[int], None] = lambda _: None) -> ShardResult:
    """Write the shard of a task, bring it to the disk, and read it back.

    The same task gives the same bytes, in any thread, process or machine. The file has a temporary
    name until it is whole. What ``on_records``, which is given their number, raises ends the work.

    Raises:
        WriteError: an image can't be read any more, the shard can't be written, or it does not
            read back as it was written.
        BadImage: the task's items are to be looked at on the way, and one can't be written.
    """
    shard = ShardWriter(task)
    try:
        for places in batches(task):
            shard.add(prepare(task, places))
            on_records(len(places))
    except BaseException:
        shard.abandon()
        raise
    return shard.finish()


class ShardWriter:
    """A shard that grows, under a temporary name.

    TFRecordWriter closes its file properly whatever happens, and so leaves a valid shard that is
    too short where an exception ended the work.

    Attributes:
        task: what is written.
    """

    def __init__(self, task: ShardTask) -> None:
        self.task = task
        # TFRecordWriter would follow a link, and so the name is one that nobody can guess.
        self._temporary = temporary_name(task.path)
        self._payload_bytes = 0
        self._audit = Audit(len(task.items))
        self._records = 0
        with self._writing():
            self._writer = tf.io.TFRecordWriter(
                os.fspath(self._temporary), _TYPES[task.compression]
            )

    def add(self, prepared: Sequence[Prepared]) -> None:
        """Write the records of the next items; if one has none, it is a BadImage."""
        with self._writing():
            for place, (payload, verdict) in enumerate(prepared, self._records):
                if verdict is not None:
                    self._audit.add(place, verdict)
                if payload is None:
                    raise BadImage(self.task.name, self._audit)
                self._writer.write(payload)
                self._payload_bytes += len(payload)
        self._records += len(prepared)

    def abandon(self) -> None:
        """Close the file and take it away; the error that led here says more than any from this."""
        with contextlib.suppress(tf.errors.OpError, OSError):
            self._writer.close()
        self._temporary.unlink(missing_ok=True)

    def finish(self) -> ShardResult:
        """Bring the file to the disk, read it back, and give it its name.

        It needs little of the interpreter: it mostly waits for the disk, and computes digests.
        """
        try:
            with self._writing():
                self._writer.close()
                with io.FileIO(open_descriptor(self._temporary, follow=False)) as file:
                    os.fsync(file.fileno())
            result = self._read_back()
            move(self._temporary, self.task.path)
        except BaseException:
            self._temporary.unlink(missing_ok=True)
            raise
        return replace(result, audit=self._audit if self.task.digests is None else None)

    def _read_back(self) -> ShardResult:
        """Read the file; a full disk may cut one without any error."""
        found = size = 0
        with io.FileIO(open_descriptor(self._temporary, follow=False)) as file:
            digested = _Digested(file)
            for item in read_records(io.BufferedReader(digested)):
                if isinstance(item, Fault):
                    raise WriteError(
                        f"does not read back: {item.message}",
                        path=self.task.path,
                        record=item.record,
                        offset=item.offset,
                    )
                found += 1
                size += len(item.payload)
        if (found, size) != (len(self.task.items), self._payload_bytes):
            raise WriteError(
                "does not read back",
                path=self.task.path,
                expected=f"{len(self.task.items)} records of {self._payload_bytes} bytes",
                found=f"{found} records of {size} bytes",
            )
        return self.task.result(
            bytes=digested.size, payload_bytes=size, sha256=digested.sha256.hexdigest()
        )

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        """Raise what TensorFlow says as an error of ours, which names the file as it is shown."""
        try:
            yield
        except (tf.errors.OpError, OSError) as error:
            reason = getattr(error, "message", None) or str(error)
            raise WriteError(
                f"can't be written: {reason.rpartition('; ')[2]}", path=self.task.path
            ) from error


class _Digested(io.RawIOBase):
    """A file whose bytes are digested and counted as they are read, in one pass over them."""

    def __init__(self, file: io.FileIO) -> None:
        super().__init__()
        self._file = file
        self.sha256 = hashlib.sha256()
        self.size = 0

    def readable(self) -> bool:
        """Return that it is."""
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        """Read into a buffer, and return how many bytes, none only at the end."""
        count = self._file.readinto(buffer)
        self.sha256.update(memoryview(buffer)[:count])
        self.size += count
        return count
