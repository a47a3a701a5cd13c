"""Writing shards: images become records, and each shard is read back before it gets its name."""

import contextlib
import os
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tfrtool.engines.threads import run_in_order
from tfrtool.errors import WriteError, reason_of
from tfrtool.examples.example import DType, Feature, encode_example
from tfrtool.images.audit import render_image
from tfrtool.images.decoder import quiet_pillow
from tfrtool.images.recipe import Check, Encode
from tfrtool.records.compression import TF_TYPES
from tfrtool.records.framing import Fault
from tfrtool.records.reader import read_records
from tfrtool.sources.items import Starting
from tfrtool.storage.appearing import move, temporary_name
from tfrtool.storage.opening import file_sha256, open_regular
from tfrtool.writing.image_audit import Audit, batches
from tfrtool.writing.write_plan import PlannedShard
from tfrtool.writing.write_report import ShardReport

_UNFINISHED = 2
"""Shards that are on their way to the disk at a time."""


def write_shards(
    shards: Sequence[PlannedShard],
    folder: Path,
    workers: int,
    on_records: Callable[[int], None],
    starting: Starting,
) -> Generator[tuple[PlannedShard, ShardReport]]:
    """Yield each shard with what became of it, when it is whole and on the disk.

    Where images are decoded or waited for, records are made on all cores. What remains of a shard,
    the disk and the digests, is done beside the next one. The same shard gets the same bytes, on
    any number of workers. ``on_records`` is given how many more were written.

    Raises:
        WriteError: an image can't be read any more, a shard can't be written, or it does not read
            back as it was written.
        BadImage: an image that nobody had looked at can't be written.
    """
    if not shards:
        return
    with starting():
        import tensorflow as tf
    audit = shards[0].audit
    labels = {label: number for number, label in enumerate(audit.source.labels)}

    def payloads(job: tuple[PlannedShard, range]) -> tuple[PlannedShard, range, list[bytes]]:
        shard, places = job
        return (
            shard,
            places,
            [payload_of(audit, shard.positions[place], labels) for place in places],
        )

    items = audit.source.items
    jobs = (
        (shard, places)
        for shard in shards
        for places in batches(items[position].bytes for position in shard.positions)
    )
    looks = any(audit.unknown) and audit.recipe.check is Check.DECODE
    decodes = audit.recipe.always or looks or bool(audit.converted)
    pending: deque[tuple[PlannedShard, Future[ShardReport]]] = deque()
    growing: _GrowingShard | None = None
    with quiet_pillow(), ThreadPoolExecutor(_UNFINISHED, "tfrtool-finish") as finishing:
        try:
            made = run_in_order(payloads, jobs, workers, computes=not decodes)
            for shard, places, records in made:
                growing = growing or _GrowingShard(tf, shard, folder)
                growing.add(records)
                on_records(len(records))
                if places.stop == len(shard.positions):
                    pending.append((shard, finishing.submit(growing.finish)))
                    growing = None
                while pending and (pending[0][1].done() or len(pending) > _UNFINISHED):
                    done, future = pending.popleft()
                    yield done, future.result()
        finally:
            if growing is not None:
                growing.abandon()
        for done, future in pending:
            yield done, future.result()


def payload_of(audit: Audit, position: int, labels: Mapping[str, int]) -> bytes:
    """Return an image as a serialized Example.

    It has ``image``, ``image/filename`` and ``label``; with raw pixels ``image/height``,
    ``image/width`` and ``image/channels``, too.
    """
    item, recipe = audit.source.items[position], audit.recipe
    data, size = audit.read(position), {}
    if recipe.always or position in audit.notable:
        try:
            image = render_image(data, recipe)
        except Exception as error:  # codecs raise anything
            raise WriteError(
                "decodes, but can't be encoded anew",
                path=audit.source.reader.describe(item),
                found=reason_of(error),
            ) from error
        data = image.data
        if recipe.encode is Encode.RAW:
            sides = {"height": image.height, "width": image.width, "channels": image.channels}
            size = {f"image/{name}": _int64(value) for name, value in sides.items()}
    return encode_example(
        {
            "image": _string(data),
            "image/filename": _string(item.key.encode("utf-8", "surrogateescape")),
            **size,
            "label": _int64(labels[item.label]),
        }
    )


def _string(value: bytes) -> Feature:
    return Feature(dtype=DType.STRING, values=(value,))


def _int64(value: int) -> Feature:
    return Feature(dtype=DType.INT64, values=(value,))


class _GrowingShard:
    """A shard that grows, under a temporary name.

    TFRecordWriter closes its file properly whatever happens, and so leaves a valid shard that is
    too short where an exception ended the work.
    """

    def __init__(self, tf: Any, shard: PlannedShard, folder: Path) -> None:
        self._path = folder / str(shard.name)
        # TFRecordWriter would follow a link, and so the name is one that nobody can guess.
        self._temporary = temporary_name(self._path)
        self._records = self._payload_bytes = 0
        self._errors: Any = (tf.errors.OpError, OSError)
        with self._writing():
            self._writer = tf.io.TFRecordWriter(
                os.fspath(self._temporary), TF_TYPES[shard.compression]
            )

    def add(self, payloads: Sequence[bytes]) -> None:
        with self._writing():
            for payload in payloads:
                self._writer.write(payload)
                self._payload_bytes += len(payload)
        self._records += len(payloads)

    def abandon(self) -> None:
        """Close the file and take it away; the error that led here says more than any from this."""
        with contextlib.suppress(*self._errors):
            self._writer.close()
        self._temporary.unlink(missing_ok=True)

    def finish(self) -> ShardReport:
        """Bring the file to the disk, read it back, and give it its name.

        A full disk may cut a file without any error. This needs little of the interpreter: it
        mostly waits for the disk, and computes digests.
        """
        try:
            with self._writing():
                self._writer.close()
                found = payload_bytes = 0
                with open_regular(self._temporary, follow=False) as file:
                    os.fsync(file.fileno())
                    size = os.fstat(file.fileno()).st_size
                    for item in read_records(file):
                        if isinstance(item, Fault):
                            raise WriteError(
                                f"does not read back: {item.message}",
                                path=self._path,
                                record=item.record,
                                offset=item.offset,
                            )
                        found += 1
                        payload_bytes += len(item.payload)
                if (found, payload_bytes) != (self._records, self._payload_bytes):
                    raise WriteError(
                        "does not read back",
                        path=self._path,
                        expected=f"{self._records} records of {self._payload_bytes} bytes",
                        found=f"{found} records of {payload_bytes} bytes",
                    )
                digest = file_sha256(self._temporary, follow=False)
                move(self._temporary, self._path)
        except BaseException:
            self._temporary.unlink(missing_ok=True)
            raise
        return ShardReport(self._path.name, found, size, payload_bytes, digest)

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        """Raise what TensorFlow says as an error of ours, which names the file as it is shown."""
        try:
            yield
        except self._errors as error:
            reason = getattr(error, "message", None) or str(error)
            raise WriteError(
                f"can't be written: {reason.rpartition('; ')[2]}", path=self._path
            ) from error
