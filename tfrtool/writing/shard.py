"""Writing one shard: a pure function of its task, but for the file that it leaves."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from tfrtool.errors import WriteError, os_reason
from tfrtool.examples.example import DType, Feature, encode_example
from tfrtool.images.audit import to_jpeg
from tfrtool.records.framing import Fault
from tfrtool.records.reader import ReadOptions, read_records
from tfrtool.writing.plan import PlannedItem, ShardResult, ShardTask
from tfrtool.writing.record_sink import RecordSink

__all__ = ["encode_item", "write_shard"]


def write_shard(task: ShardTask, on_record: Callable[[], None] = lambda: None) -> ShardResult:
    """Write the shard of a task, bring it to the disk, and read it back.

    The same task gives the same bytes, in any thread, process or machine.

    Args:
        task: what to write, and where.
        on_record: called after each record; what it raises ends the work.

    Raises:
        WriteError: an image can't be read any more, the shard can't be written, or it does not
            read back as it was written. A file that is not whole may then be left at the path.
    """
    payload_bytes = 0
    labels: Counter[str] = Counter()
    with RecordSink(task.path, task.compression) as sink:
        for planned in task.items:
            payload = encode_item(planned, task.labels[planned.item.label])
            sink.write(payload)
            payload_bytes += len(payload)
            labels[planned.item.label] += 1
            on_record()
    records = len(task.items)
    _check(task.path, records, payload_bytes)
    return ShardResult(
        name=task.name,
        records=records,
        bytes=task.path.stat().st_size,
        payload_bytes=payload_bytes,
        sha256=_sha256(task.path),
        labels=dict(sorted(labels.items())),
    )


def encode_item(planned: PlannedItem, label: int) -> bytes:
    """Return an item as a serialized Example: ``image``, ``image/filename`` and ``label``.

    Raises:
        WriteError: its file can't be read.
    """
    item = planned.item
    try:
        data = item.path.read_bytes()
    except OSError as error:
        raise WriteError(f"can't be read any more: {os_reason(error)}", path=item.path) from error
    if planned.conversion is not None:
        data = to_jpeg(data)
    name = item.key.encode("utf-8", "surrogateescape")
    return encode_example(
        {
            "image": Feature(dtype=DType.STRING, values=(data,)),
            "image/filename": Feature(dtype=DType.STRING, values=(name,)),
            "label": Feature(dtype=DType.INT64, values=(label,)),
        }
    )


def _check(path: Path, records: int, payload_bytes: int) -> None:
    """Read a shard back: a full disk may cut a file without any error."""
    found = size = 0
    with path.open("rb") as file:
        for item in read_records(file, ReadOptions()):
            if isinstance(item, Fault):
                raise WriteError(
                    f"does not read back: {item.message}",
                    path=path,
                    record=item.record,
                    offset=item.offset,
                )
            found += 1
            size += len(item.payload)
    if (found, size) != (records, payload_bytes):
        raise WriteError(
            "does not read back",
            path=path,
            expected=f"{records} records of {payload_bytes} bytes",
            found=f"{found} records of {size} bytes",
        )


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1024 * 1024):
            digest.update(block)
    return digest.hexdigest()
