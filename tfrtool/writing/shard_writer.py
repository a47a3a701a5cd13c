"""Writing shards: images become records, and each shard is read back before it gets its name."""

import contextlib
import os
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from tfrtool.engines.engine import Engine
from tfrtool.engines.pool import run_in_order
from tfrtool.errors import WriteError, reason_of
from tfrtool.examples.example import encode_example
from tfrtool.examples.objects.record_features import RecordFeatures
from tfrtool.images.audit import render_image
from tfrtool.images.decoder import quiet_pillow
from tfrtool.images.recipe import Check, Encode
from tfrtool.records.compression import TF_TYPES
from tfrtool.records.framing import Fault
from tfrtool.records.reader import read_records
from tfrtool.records.shard_sets import ShardName
from tfrtool.records.tally import Tally, digest_text, payload_key
from tfrtool.sources.items import Starting
from tfrtool.storage.atomic_files import move, temporary_name
from tfrtool.storage.opening import file_sha256, open_regular
from tfrtool.storage.progress import OnProgress, Progress
from tfrtool.writing.image_audit import Audit, batches
from tfrtool.writing.job_report import FinishedFile, ShardReport
from tfrtool.writing.publish import Staging
from tfrtool.writing.record_values import payload_of
from tfrtool.writing.spread_write import write_spread
from tfrtool.writing.write_plan import PlannedShard

_UNFINISHED = 2
"""Shards that are on their way to the disk at a time."""

SHARDS_AT_ONCE = _UNFINISHED + 2
"""Shards on the disk of this machine at a time: one grows, and others are being finished."""

_COUNTED = 4096
"""Records that are counted at a time."""


def write_shards(
    shards: Sequence[PlannedShard],
    staging: Staging,
    reports: dict[ShardName, ShardReport],
    workers: int | Engine,
    on_progress: OnProgress,
    starting: Starting,
) -> list[ShardReport]:
    """Write the shards of which there are no reports yet, and return what became of all.

    Where images are decoded or waited for, records are made on all cores. What remains of a shard,
    the disk and the digests, is done beside the next one. The same shard gets the same bytes, on
    any number of workers.

    Raises:
        WriteError: an image can't be read any more, a shard can't be written, or it does not read
            back as it was written.
        BadImage: an image that nobody had looked at can't be written.
    """
    audit = shards[0].audit
    known = not any(audit.unknown)
    rest = [shard for shard in shards if shard.name not in reports]
    if not rest:
        return [*reports.values()]
    total = sum(len(shard.positions) for shard in shards)
    done = total - sum(len(shard.positions) for shard in rest)
    if isinstance(workers, Engine):
        for shard, report in write_spread(rest, staging, workers):
            reports[shard.name] = report
            done += report.records
            on_progress(Progress(what="writing", done=done, total=total, unit="images"))
        return [reports[shard.name] for shard in shards]
    with starting():
        import tensorflow as tf
    items = audit.source.items
    jobs = (
        shard.positions[places.start : places.stop]
        for shard in rest
        for places in batches(items[position].bytes for position in shard.positions)
    )
    looks = not known and audit.recipe.check is Check.DECODE
    decodes = audit.recipe.always or looks or any(True for _ in audit.converted())
    pending: deque[tuple[PlannedShard, Future[ShardReport]]] = deque()
    with quiet_pillow(), ThreadPoolExecutor(_UNFINISHED, "tfrtool-finish") as finishing:
        made = run_in_order(partial(payloads_of, audit), jobs, workers, computes=not decodes)
        for shard in rest:
            growing = _GrowingShard(tf, shard, staging.folder)
            try:
                while growing.records < len(shard.positions):
                    growing.add(payloads := next(made))
                    done += len(payloads)
                    on_progress(Progress(what="writing", done=done, total=total, unit="images"))
                    while pending and (pending[0][1].done() or len(pending) > _UNFINISHED):
                        whole, future = pending.popleft()
                        reports[whole.name] = report = future.result()
                        staging.note(noted(whole, report))
            except BaseException:
                growing.abandon()
                raise
            pending.append((shard, finishing.submit(_finished, growing, staging)))
        for whole, future in pending:
            reports[whole.name] = report = future.result()
            staging.note(noted(whole, report))
    return [reports[shard.name] for shard in shards]


def noted(shard: PlannedShard, report: ShardReport) -> FinishedFile:
    """Return what is noted of a shard."""
    facts = {"task": shard.fingerprint}
    return FinishedFile(shard=report, split=shard.name.split, facts=facts)


def write_shard(shard: PlannedShard, folder: Path) -> ShardReport:
    """Write one shard into a folder, as `write_shards` does with several, and read it back.

    It may be the `part` of a shard in another process, whose `Staging` then notes the report. The
    folder is private: a file of the shard's name is replaced.

    Raises:
        WriteError: as `write_shards` does.
        BadImage: likewise; what was found is in the shard's audit.
    """
    import tensorflow as tf

    items = shard.audit.source.items
    growing = _GrowingShard(tf, shard, folder)
    try:
        with quiet_pillow():
            for places in batches(items[position].bytes for position in shard.positions):
                growing.add(payloads_of(shard.audit, shard.positions[places.start : places.stop]))
    except BaseException:
        growing.abandon()
        raise
    return growing.finish()


def _finished(growing: "_GrowingShard", staging: Staging) -> ShardReport:
    report = growing.finish()
    etag = staging.upload(staging.folder / report.path)
    return replace(report, etag=etag) if etag else report


def payloads_of(audit: Audit, positions: Sequence[int]) -> list[bytes]:
    """Return images as serialized Examples.

    They have ``image``, ``image/filename`` and ``label``; with raw pixels ``image/height``,
    ``image/width`` and ``image/channels``, too; or what the source's features are.
    """
    recipe, payloads = audit.recipe, []
    usual = audit.source.features == RecordFeatures()
    for position in positions:
        item, data = audit.source.items[position], audit.read(position)
        features: dict[str, bytes | int] = {}
        rendered = None
        if recipe.always or position in audit.notable:
            try:
                rendered = render_image(data, recipe)
            except Exception as error:  # codecs raise anything
                reason = getattr(error, "found", None) or reason_of(error)
                where = audit.source.reader.describe(item)
                raise WriteError(f"can't be re-encoded: {reason}", path=where) from error
        if not usual:
            made = payload_of(audit.source, position, audit.numbers, data, rendered, recipe)
            payloads.append(made)
            continue
        if rendered is not None:
            data, *sides = rendered
            if recipe.encode is Encode.RAW:
                names = ("image/height", "image/width", "image/channels")
                features |= zip(names, sides, strict=True)
        features["image"] = data
        features["image/filename"] = item.key.encode("utf-8", "surrogateescape")
        features["label"] = audit.numbers[item.label]
        payloads.append(encode_example(features))
    return payloads


class _GrowingShard:
    """A shard that grows, under a temporary name.

    TFRecordWriter closes its file properly whatever happens, and so leaves a valid shard that is
    too short where an exception ended the work.
    """

    def __init__(self, tf: Any, shard: PlannedShard, folder: Path) -> None:
        self._path = folder / str(shard.name)
        # TFRecordWriter would follow a link, and so the name is one that nobody can guess.
        self._temporary = temporary_name(self._path)
        self.records = self._payload_bytes = 0
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
        self.records += len(payloads)

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
                tally, keys = Tally(), list[int]()
                with open_regular(self._temporary, follow=False) as file:
                    os.fsync(file.fileno())
                    size = os.fstat(file.fileno()).st_size
                    for item in read_records(file):
                        if isinstance(item, Fault):
                            raise WriteError(
                                f"verification of the written shard failed: {item.message}",
                                path=self._path,
                                record=item.record,
                                offset=item.offset,
                            )
                        keys.append(payload_key(item.payload_crc, len(item.payload)))
                        if len(keys) == _COUNTED:
                            tally.add_keys(keys)
                            keys.clear()
                tally.add_keys(keys)
                if (tally.records, tally.payload_bytes) != (self.records, self._payload_bytes):
                    raise WriteError(
                        "verification of the written shard failed",
                        path=self._path,
                        expected=f"{self.records} records of {self._payload_bytes} bytes",
                        found=f"{tally.records} records of {tally.payload_bytes} bytes",
                    )
                sha256 = file_sha256(self._temporary, follow=False)
                move(self._temporary, self._path)
        except BaseException:
            self._temporary.unlink(missing_ok=True)
            raise
        return ShardReport(
            path=self._path.name,
            records=tally.records,
            bytes=size,
            payload_bytes=tally.payload_bytes,
            sha256=sha256,
            payload_digest=digest_text(tally.digest),
        )

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        """Raise what TensorFlow says as an error of ours, which names the file as it is shown."""
        try:
            yield
        except self._errors as error:
            reason = reason_of(error).rpartition("; ")[2]  # TensorFlow's starts with the path
            reason = reason[:1].lower() + reason[1:]
            raise WriteError(f"can't be written: {reason}", path=self._path) from error
