"""Writing one shard: a pure function of its task, but for the file that it leaves."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor, Future, wait
from dataclasses import dataclass
from pathlib import Path

from tfrtool.errors import SourceError, WriteError, os_reason
from tfrtool.examples.example import DType, Feature, encode_example
from tfrtool.images.encode import render_image
from tfrtool.images.recipe import Encode
from tfrtool.records.framing import Fault
from tfrtool.records.reader import ReadOptions, read_records
from tfrtool.sources.items import Item
from tfrtool.writing.plan import ShardResult, ShardTask
from tfrtool.writing.record_sink import RecordSink
from tfrtool.writing.staging import file_sha256

__all__ = ["FilledShard", "encode_item", "fill_shard", "finish_shard", "write_shard"]

_BATCH = 512 * 1024
"""Bytes of records that are handed over at a time: a hand-over costs as much as a record."""

_BATCHES_WAITING = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class FilledShard:
    """A shard that has all its records, and is not known to be whole.

    Attributes:
        task: what was written.
        sink: the file, still open, under a temporary name.
        payload_bytes: the payloads' size.
        labels: how many records of each class.
    """

    task: ShardTask
    sink: RecordSink
    payload_bytes: int
    labels: Mapping[str, int]


def write_shard(
    task: ShardTask, on_record: Callable[[int], None] = lambda _bytes: None
) -> ShardResult:
    """Write the shard of a task, bring it to the disk, and read it back.

    The same task gives the same bytes, in any thread, process or machine. The file has a temporary
    name until it is whole.

    Args:
        task: what to write, and where.
        on_record: called after each record with its size in bytes; what it raises ends the work.

    Raises:
        WriteError: an image can't be read any more, the shard can't be written, or it does not
            read back as it was written.
    """
    return finish_shard(fill_shard(task, on_record))


def fill_shard(
    task: ShardTask, on_record: Callable[[int], None], beside: Executor | None = None
) -> FilledShard:
    """Do the first half of `write_shard`: all that needs the interpreter.

    Args:
        task: what to write, and where.
        on_record: called for each record.
        beside: where TFRecordWriter, which lets go of the interpreter, does its part meanwhile;
            of one thread, or else records would change places.
    """
    payload_bytes = 0
    labels: Counter[str] = Counter()
    sink = RecordSink(_temporary(task), task.compression)
    writing: deque[Future[None]] = deque()
    try:
        for batch in _batches(_payloads(task)):
            if beside is None:
                _write_batch(sink, batch)
            else:
                writing.append(beside.submit(_write_batch, sink, batch))
                if len(writing) == _BATCHES_WAITING:
                    writing.popleft().result()
            for item, payload in batch:
                payload_bytes += len(payload)
                labels[item.label] += 1
                on_record(len(payload))
        while writing:
            writing.popleft().result()
    except BaseException:
        wait(writing)
        sink.abandon()
        raise
    return FilledShard(
        task=task, sink=sink, payload_bytes=payload_bytes, labels=dict(sorted(labels.items()))
    )


_Batch = list[tuple[Item, bytes]]


def _batches(payloads: Iterator[tuple[Item, bytes]]) -> Iterator[_Batch]:
    batch: _Batch = []
    size = 0
    for item, payload in payloads:
        batch.append((item, payload))
        size += len(payload)
        if size >= _BATCH:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _write_batch(sink: RecordSink, batch: _Batch) -> None:
    for _, payload in batch:
        sink.write(payload)


def finish_shard(filled: FilledShard) -> ShardResult:
    """Do the second half of `write_shard`: it mostly waits for the disk, and computes digests."""
    task, temporary = filled.task, _temporary(filled.task)
    try:
        filled.sink.close()
        _check(temporary, len(task.items), filled.payload_bytes)
        sha256, size = file_sha256(temporary), temporary.stat().st_size
        temporary.replace(task.path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return ShardResult(
        name=task.name,
        records=len(task.items),
        bytes=size,
        payload_bytes=filled.payload_bytes,
        sha256=sha256,
        labels=filled.labels,
    )


def _temporary(task: ShardTask) -> Path:
    return task.path.with_name(f"{task.path.name}.part")


def _payloads(task: ShardTask) -> Iterator[tuple[Item, bytes]]:
    for position, item in enumerate(task.items):
        yield item, encode_item(task, item, convert=position in task.convert)


def encode_item(task: ShardTask, item: Item, *, convert: bool) -> bytes:
    """Return an item as a serialized Example.

    It has ``image``, ``image/filename`` and ``label``; with raw pixels ``image/height``,
    ``image/width`` and ``image/channels``, too.

    Args:
        task: the shard's task.
        item: one of its items.
        convert: whether the item's bytes can't be kept as they are.

    Raises:
        WriteError: its bytes can't be read any more, or are not those that were checked.
    """
    try:
        data = task.reader.read(item)
    except OSError as error:
        raise _gone(task, item, os_reason(error)) from error
    except SourceError as error:
        raise _gone(task, item, error.what) from error
    size: dict[str, Feature] = {}
    if convert or task.recipe.always:
        try:
            image = render_image(data, task.recipe)
        except Exception as error:  # decoders raise anything on bytes that have changed
            raise _gone(task, item, f"it was changed since it was checked ({error})") from error
        data = image.data
        if task.recipe.encode is Encode.RAW:
            sides = {"height": image.height, "width": image.width, "channels": image.channels}
            size = {f"image/{name}": _int64(value) for name, value in sides.items()}
    elif len(data) != item.bytes:
        raise _gone(task, item, "its size has changed since it was checked")
    return encode_example(
        {
            "image": _string(data),
            "image/filename": _string(item.key.encode("utf-8", "surrogateescape")),
            **size,
            "label": _int64(task.labels[item.label]),
        }
    )


def _string(value: bytes) -> Feature:
    return Feature(dtype=DType.STRING, values=(value,))


def _int64(value: int) -> Feature:
    return Feature(dtype=DType.INT64, values=(value,))


def _gone(task: ShardTask, item: Item, reason: str) -> WriteError:
    return WriteError(f"can't be read any more: {reason}", path=task.reader.describe(item))


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
