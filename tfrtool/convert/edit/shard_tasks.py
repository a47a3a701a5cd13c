"""Shards that come from shards, one from one: with changes to their records, or as they are."""

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tfrtool.convert.edit.changes import Changes, UneditableError
from tfrtool.convert.pipeline.job import FileTask
from tfrtool.convert.pipeline.job_report import Faults, Written
from tfrtool.convert.pipeline.record_sources import changed, stamp_of
from tfrtool.convert.pipeline.shard_sink import ShardSink
from tfrtool.convert.pipeline.tally import Tally, payload_key
from tfrtool.errors import DatasetError, ShardError, WriteError, os_errors_as
from tfrtool.examples.dataset_files import DatasetFiles
from tfrtool.images.decoder import quiet_pillow
from tfrtool.records.compression import detect_compression
from tfrtool.records.count import count_shard
from tfrtool.records.framing import Fault, FaultKind, LocatedFault, Record
from tfrtool.records.reader import read_shard
from tfrtool.records.shard_sets import ShardName
from tfrtool.storage.appearing import linked
from tfrtool.storage.limits import FirstOf
from tfrtool.storage.opening import open_regular

_FORMAT = 1
"""To be counted up when the same changes are to give other bytes than before."""

_COUNTED = 4096
"""Records that are counted at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardTask(FileTask):
    """A shard that is made of another one, which has a size and a time of change (ns)."""

    source: Path
    stamp: tuple[int, int]

    @property
    def fingerprint(self) -> str:
        """All that the shard's bytes depend on."""
        return repr((type(self).__name__, _FORMAT, str(self.source), self.stamp))

    def check_stamp(self) -> None:
        """Raise a `ShardError` if the other shard was changed since it was planned to read it."""
        if _stamp(self.source) != self.stamp:
            raise changed(self.source)


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkTask(ShardTask):
    """A shard that gets a further name; or a copy, where the file system has no such names."""

    def write(self, path: Path) -> Written:
        """Give the shard its name, and read it; `CorruptShardError` if it is damaged."""
        with os_errors_as(WriteError, path, "can't be written"):
            if not linked(self.source, path):
                with open_regular(self.source) as old, path.open("xb") as new:
                    shutil.copyfileobj(old, new, 1024 * 1024)
        tally = Tally()
        for _ in _counted(self.source, tally, Faults(stop=True)):
            pass
        self.check_stamp()
        return Written(tally=tally, read=tally)


@dataclass(frozen=True, slots=True, kw_only=True)
class EditTask(ShardTask):
    """A shard with changed records, in their order."""

    changes: Changes
    skip_bad: bool  # whether records that can't be changed are left out and listed
    stop: bool  # whether damage ends the work

    @property
    def fingerprint(self) -> str:
        """All that the shard's bytes depend on."""
        facts = (self.changes, self.skip_bad)
        return f"{ShardTask.fingerprint.fget(self)} {facts!r}"  # type: ignore[attr-defined]

    def write(self, path: Path) -> Written:
        """Write the shard."""
        faults, read = Faults(stop=self.stop), Tally()
        with open_regular(self.source) as file:
            compression = detect_compression(file)
        with quiet_pillow(), ShardSink(path, compression) as sink:
            sink.write(self._changed(read, faults))
        self.check_stamp()
        return Written(tally=sink.tally, read=read, faults=faults)

    def _changed(self, read: Tally, faults: Faults) -> Iterator[bytes]:
        for record in _counted(self.source, read, faults):
            try:
                payload = self.changes.apply(record.payload)
            except UneditableError as error:
                if not self.skip_bad:
                    raise DatasetError(
                        str(error),
                        path=self.source,
                        record=record.index,
                        offset=record.offset,
                        hint="--on-bad skip leaves such records out",
                    ) from error
                fault = Fault(
                    kind=FaultKind.PARSE,
                    offset=record.offset,
                    record=record.index,
                    message=str(error),
                )
                FirstOf.add(faults, LocatedFault(path=self.source, fault=fault))
            else:
                yield payload


def _counted(path: Path, tally: Tally, faults: Faults) -> Iterator[Record]:
    """Yield the records of a shard, and count them; an empty shard has none."""
    keys: list[int] = []
    for item in read_shard(path):
        if isinstance(item, Record):
            keys.append(payload_key(item.payload_crc, len(item.payload)))
            if len(keys) == _COUNTED:
                tally.add_keys(keys)
                keys.clear()
            yield item
        elif item.kind is not FaultKind.EMPTY:
            faults.add(LocatedFault(path=path, fault=item))
    tally.add_keys(keys)


def one_to_one(files: DatasetFiles) -> Iterator[dict[str, Any]]:
    """Yield what a `ShardTask` knows of each shard of some splits; its name is yet to be given."""
    for split, some in files.splits.items():
        for path in some.shards:
            stamp, records = _stamp(path), count_shard(path).records
            facts = {"name": "", "split": split, "source": path, "stamp": stamp}
            yield {**facts, "size": stamp[0], "records": records}


def _stamp(path: Path) -> tuple[int, int]:
    with os_errors_as(ShardError, path), open_regular(path) as file:
        return stamp_of(file)


def numbered(tasks: Sequence[FileTask], dataset: str) -> list[FileTask]:
    """Name tasks as the shards of their splits, in order."""
    splits: dict[str, list[FileTask]] = {}
    for task in tasks:
        splits.setdefault(task.split, []).append(task)
    return [
        replace(task, name=str(ShardName(dataset=dataset, split=split, index=at, count=len(own))))
        for split, own in splits.items()
        for at, task in enumerate(own)
    ]
