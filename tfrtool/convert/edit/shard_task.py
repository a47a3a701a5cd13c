"""Shards that come from shards, one from one: with changes to their records, or as they are."""

import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tfrtool.convert.edit.changes import Changes, UneditableError
from tfrtool.convert.pipeline.record_pool import changed
from tfrtool.errors import DatasetError, ShardError, WriteError, os_errors_as
from tfrtool.examples.dataset_files import DatasetFiles
from tfrtool.examples.tfds_metadata import REPORT
from tfrtool.images.decoder import quiet_pillow
from tfrtool.inspection.verify.payload_check import unparseable
from tfrtool.records.compression import detect_compression
from tfrtool.records.count import count_shard
from tfrtool.records.framing import FaultKind, LocatedFault, Record
from tfrtool.records.reader import read_shard
from tfrtool.records.tally import Tally, payload_key
from tfrtool.records.writer import ShardWriter
from tfrtool.storage.atomic_files import linked
from tfrtool.storage.capped_list import CappedList
from tfrtool.storage.opening import open_regular, stamp_of
from tfrtool.storage.progress import RECORDS, count_work
from tfrtool.storage.remote_path import RemotePath
from tfrtool.writing.job import FileTask
from tfrtool.writing.job_report import Faults, FinishedFile, ShardReport, Written
from tfrtool.writing.publish import listed_shards, read_object

_COUNTED = 4096
"""Records that are counted at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardTask(FileTask):
    """A shard that is made of another one: its records changed, in their order; or all as it is.

    Attributes:
        source: the other shard.
        stamp: its size and time of change (ns).
        changes: what becomes of each record; None gives the file a further name.
        stop: whether damage ends the work.
        known: what is noted of a shard of a store that is copied there, unread.
    """

    source: Path
    stamp: tuple[int, int]
    known: FinishedFile | None = None
    changes: Changes | None = None
    stop: bool = True

    @property
    def inputs(self) -> object:
        """What the shard depends on, for the digest of a plan."""
        return str(self.source), self.stamp, self.changes

    def copy_source(self) -> tuple[Path, FinishedFile] | None:
        """Return the shard that this is a copy of, if it need not be read."""
        if self.known is None or self.changes is not None:
            return None
        if _stamp(self.source) != self.stamp:
            raise changed(self.source)
        return self.source, self.known

    def write(self, path: Path) -> Written:
        """Write the shard, or link it: then it is read nevertheless, and damage is an error."""
        faults, read = Faults(stop=self.stop), Tally()
        records = self._records(read, faults)
        if self.changes is None:
            self._link(path)
            for _ in records:
                pass
            count_work(read.records, RECORDS)
            written = read
        else:
            with open_regular(self.source) as file:
                compression = detect_compression(file)
            with quiet_pillow(), ShardWriter(path, compression) as writer:
                writer.write(self._changed(records, self.changes, faults))
            written = writer.tally
        if _stamp(self.source) != self.stamp:
            raise changed(self.source)
        return Written(tally=written, read=read, faults=faults)

    def _link(self, path: Path) -> None:
        """Give the file its name; copy it where the file system has no such names."""
        with os_errors_as(WriteError, path, "can't be written"):
            if not linked(self.source, path):
                with open_regular(self.source) as old, path.open("xb") as new:
                    shutil.copyfileobj(old, new, 1024 * 1024)

    def _records(self, tally: Tally, faults: Faults) -> Iterator[Record]:
        """Yield the records, and count them; an empty shard has none."""
        keys: list[int] = []
        for item in read_shard(self.source):
            if isinstance(item, Record):
                keys.append(payload_key(item.payload_crc, len(item.payload)))
                if len(keys) == _COUNTED:
                    tally.add_keys(keys)
                    keys.clear()
                yield item
                if self.changes is not None:  # else nothing takes long
                    count_work(1, RECORDS)
            elif item.kind is not FaultKind.EMPTY:
                faults.add(LocatedFault(path=self.source, fault=item))
        tally.add_keys(keys)

    def _changed(
        self, records: Iterator[Record], changes: Changes, faults: Faults
    ) -> Iterator[bytes]:
        for record in records:
            try:
                yield changes.apply(record.payload)
            except UneditableError as error:
                if self.stop:
                    raise DatasetError(
                        str(error),
                        path=self.source,
                        record=record.index,
                        offset=record.offset,
                        hint="use --on-error skip to skip such records",
                    ) from error
                fault = unparseable(record, str(error))
                CappedList.add(faults, LocatedFault(path=self.source, fault=fault))


def one_to_one(files: DatasetFiles, **more: Any) -> list[ShardTask]:
    """Return a `ShardTask` for each shard of datasets."""
    changes: Changes | None = more.get("changes")
    # What isn't changed is linked, or copied by the store.
    as_large = changes is not None and changes.keeps_size
    listed = listed_shards(read_object(files.folders[0] / REPORT))
    tasks: list[ShardTask] = []
    for split, some in files.splits.items():
        for path, expected in some.shards.items():
            said, known, records, size = listed.get(path.name), None, expected, path.stat().st_size
            if isinstance(path, RemotePath) and said and said.get("bytes") == size:
                told = str(said.get("payload_digest"))
                digest = int(told, 16) if re.fullmatch("[0-9a-f]{16}", told) else None
                known = FinishedFile(
                    shard=ShardReport(
                        path=path.name,
                        records=records or 0,
                        bytes=size,
                        payload_bytes=said.get("payload_bytes"),
                        sha256=said.get("sha256"),
                        crc32c=said.get("crc32c"),
                        payload_digest=None if digest is None else told,
                    ),
                    split=split,
                    digest=digest,
                    read=records or 0,
                    read_digest=digest,
                )
            if known is None or records is None:
                records, known = count_shard(path).records, None
            tasks.append(
                ShardTask(
                    split=split,
                    source=path,
                    stamp=_stamp(path),
                    size=size,
                    room=size if as_large else 0,
                    records=records,
                    known=known,
                    **more,
                )
            )
    return tasks


def _stamp(path: Path) -> tuple[int, int]:
    with os_errors_as(ShardError, path), open_regular(path) as file:
        return stamp_of(file)
