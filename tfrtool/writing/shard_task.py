"""Writing one shard: a pure function of its task, but for the file that it leaves."""

from __future__ import annotations

import hashlib
import io
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tfrtool.errors import WriteError
from tfrtool.records.framing import Fault
from tfrtool.records.reader import ReadOptions, read_records
from tfrtool.storage.appearing import move, temporary_name
from tfrtool.storage.opening import open_descriptor
from tfrtool.writing.record_sink import RecordSink
from tfrtool.writing.records import Prepared, batches, prepare
from tfrtool.writing.scan.findings import BadImage, ShardFindings
from tfrtool.writing.write_plan import ShardResult, ShardTask

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

__all__ = ["UnfinishedShard", "write_shard"]

OnRecords = Callable[[int, int], None]


def write_shard(
    task: ShardTask, on_records: OnRecords = lambda _records, _bytes: None
) -> ShardResult:
    """Write the shard of a task, bring it to the disk, and read it back.

    The same task gives the same bytes, in any thread, process or machine. The file has a temporary
    name until it is whole.

    Args:
        task: what to write, and where.
        on_records: called after some records with their number and their size in bytes; what it
            raises ends the work.

    Raises:
        WriteError: an image can't be read any more, the shard can't be written, or it does not
            read back as it was written.
        BadImage: the task's items are to be looked at on the way, and one can't be written.
    """
    shard = UnfinishedShard(task)
    try:
        for places in batches(task):
            shard.add(prepare(task, places), on_records)
    except BaseException:
        shard.abandon()
        raise
    return shard.finish()


class UnfinishedShard:
    """A shard that grows, under a temporary name.

    Attributes:
        task: what is written.
    """

    def __init__(self, task: ShardTask) -> None:
        self.task = task
        # TFRecordWriter would follow a link, and so the name is one that nobody can guess.
        self._temporary = temporary_name(task.path)
        self._sink = RecordSink(self._temporary, task.compression, shown=task.path)
        self._records = 0
        self._payload_bytes = 0
        self._labels: Counter[str] = Counter()
        self._findings = ShardFindings()

    def add(self, prepared: Sequence[Prepared], on_records: OnRecords) -> None:
        """Write the records of the next items.

        Raises:
            WriteError: the disk is full, or fails otherwise.
            BadImage: one of them has none.
        """
        payloads = []
        for payload, finding in prepared:
            if finding is not None:
                self._findings.add(finding)
            if payload is None:
                raise BadImage(self.task.name, self._findings)
            payloads.append(payload)
        self._sink.write(payloads)
        end = self._records + len(payloads)
        self._labels.update(item.label for item in self.task.items[self._records : end])
        size = sum(map(len, payloads))
        self._records = end
        self._payload_bytes += size
        on_records(len(payloads), size)

    def abandon(self) -> None:
        """Take the file away."""
        self._sink.abandon()

    def finish(self) -> ShardResult:
        """Bring the file to the disk, read it back, and give it its name.

        It needs no more of the interpreter than it must: it mostly waits for the disk, and
        computes digests.

        Raises:
            WriteError: the file is not what was written.
        """
        temporary = self._temporary
        try:
            self._sink.close()
            sha256, size = self._read_back()
            move(temporary, self.task.path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        return ShardResult(
            name=self.task.name,
            records=self._records,
            bytes=size,
            payload_bytes=self._payload_bytes,
            sha256=sha256,
            labels=dict(sorted(self._labels.items())),
            findings=self._findings if self.task.convert is None else None,
        )

    def _read_back(self) -> tuple[str, int]:
        """Return digest and size of the file; a full disk may cut one without any error."""
        found = size = 0
        with io.FileIO(open_descriptor(self._temporary, follow=False)) as file:
            digested = _Digested(file)
            for item in read_records(io.BufferedReader(digested), ReadOptions()):
                if isinstance(item, Fault):
                    raise WriteError(
                        f"does not read back: {item.message}",
                        path=self.task.path,
                        record=item.record,
                        offset=item.offset,
                    )
                found += 1
                size += len(item.payload)
        if (found, size) != (self._records, self._payload_bytes):
            raise WriteError(
                "does not read back",
                path=self.task.path,
                expected=f"{self._records} records of {self._payload_bytes} bytes",
                found=f"{found} records of {size} bytes",
            )
        return digested.sha256.hexdigest(), digested.size


class _Digested(io.RawIOBase):
    """A file whose bytes are digested as they are read, in one pass over them.

    Attributes:
        sha256: the digest of all bytes so far.
        size: how many they are.
    """

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
