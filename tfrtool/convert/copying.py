"""Jobs that copy records unparsed: what resharding and filtering have in common."""

import enum
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from tfrtool.convert.pipeline.carried import CarriedMetadata
from tfrtool.convert.pipeline.copy_task import CopyTask
from tfrtool.convert.pipeline.job import FileTask, JobPlan, run_job
from tfrtool.convert.pipeline.job_report import Faults, JobReport
from tfrtool.convert.pipeline.record_order import OrderedTask, RecordOrder, RecordPool
from tfrtool.convert.pipeline.record_sources import (
    RecordSources,
    SourceShard,
    cut_shards,
    find_sources,
    scan_shards,
)
from tfrtool.convert.pipeline.tally import Tally
from tfrtool.errors import DatasetError, UsageError, WriteError, os_errors_as
from tfrtool.examples.tfds_metadata import DATASET_INFO
from tfrtool.records.compression import Compression
from tfrtool.records.framing import Fault, FaultKind, LocatedFault
from tfrtool.records.shard_sets import ShardName, check_dataset_name, check_version
from tfrtool.storage.locations import as_path
from tfrtool.storage.progress import OnProgress, silent
from tfrtool.storage.words import as_member, as_size
from tfrtool.writing.dataset_folder import Target
from tfrtool.writing.write_options import Existing, check_numbers, dataset_identity

Part = TypeVar("Part")

SHARD_SIZE = "128MiB"
"""Of a shard; see `tfrtool.write`."""

_CHUNK = 1_000_000
_WORTH = {True: 1024**3, False: 64 * 1024**2}
"""Bytes that are copied, or else compressed, in the time that a process takes to start."""


class _OnCorrupt(enum.Enum):
    """What becomes of damaged records."""

    SKIP = "skip"
    """They are named and left out."""
    STOP = "stop"
    """The first one ends the job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which records go into which split, in the order of the sources.

    Attributes:
        orders: those of each split.
        read: all records that were read to tell.
        faults: damage that was met.
        left_out: how many records are in none, by the rule.
    """

    orders: Mapping[str, RecordOrder]
    read: Tally | None = None
    faults: Faults = field(default_factory=Faults)
    left_out: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectionInput:
    """What a selection is made of: the records, those of which splits, and a folder for files."""

    pool: RecordPool
    splits: Mapping[str, range]  # the numbers of the records of each of the sources' splits
    scratch: Path
    stop: bool
    workers: int | None
    on_progress: OnProgress

    def order(self, split: str, mine: NDArray[np.bool_], first: int = 0) -> RecordOrder:
        """Return the records from some number on that are a split's own."""
        path, count = self.scratch / f"{split}.chosen", 0
        with os_errors_as(WriteError, path, "can't be written"), path.open("wb") as file:
            for start in range(0, len(mine), _CHUNK):
                chosen = np.flatnonzero(mine[start : start + _CHUNK]) + (first + start)
                chosen.astype(np.uint64).tofile(file)
                count += len(chosen)
        return RecordOrder(pool=self.pool, count=count, chosen=path)


Select = Callable[[SelectionInput], Selection]


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyJob:
    """A job that copies records; the words are those of `tfrtool.reshard`.

    Attributes:
        rules: the options that decide which records there are, in which order.
    """

    command: str
    sources: Any
    dataset: str | os.PathLike[str]
    name: str | None
    version: str | None
    shards: int | None
    shard_size: int | str | None
    compression: str
    on_corrupt: str
    workers: int | None
    existing: str
    dry_run: bool
    on_progress: OnProgress = silent
    rules: Mapping[str, Any]

    def run(self, select: Select | None = None, shuffle: int | None = None) -> JobReport:
        """Copy the records that are selected, all by default, in their order or another one.

        Raises:
            UsageError: an option makes no sense, or the target may not be written to.
            DatasetError: a source has no records; or class names of several differ.
            ShardError: a source can't be read. Damage is no error, unless it is to stop the job.
            WriteError: something can't be written.
        """
        dataset = as_path(self.dataset)
        name, version = dataset_identity(dataset, self.name, self.version)
        check_dataset_name(name)
        check_version(version)
        check_numbers(self.shards, self.workers, shuffle)
        if self.shards is not None and self.shard_size is not None:
            raise UsageError("shards and shard_size exclude each other")
        stop = as_member(_OnCorrupt, self.on_corrupt, "on_corrupt") is _OnCorrupt.STOP
        compression = as_member(Compression, self.compression, "compression")
        size = as_size(self.shard_size or SHARD_SIZE)
        found = find_sources(self.sources, dataset)
        carried = CarriedMetadata(found.folders)
        options = {
            "name": name,
            "version": version,
            "shards": self.shards,
            "shard_bytes": size,
            "compression": compression.value,
            "shuffle": shuffle,
            **self.rules,
        }

        def plan(scratch: Path) -> JobPlan:
            return self._plan(found, scratch, name, size, compression, stop, select, shuffle)

        report = run_job(
            Target(
                folder=dataset,
                name=name,
                existing=as_member(Existing, self.existing, "existing"),
                command=self.command,
                options=options,
            ),
            plan,
            workers=self.workers,
            on_progress=self.on_progress,
            metadata=lambda splits: carried.texts(name, version, splits),
            dry_run=self.dry_run,
            worth=_WORTH[compression is Compression.NONE],
        )
        notes = (*found.notes, *carried.warnings, *report.warnings)
        return replace(report, warnings=notes)

    def _plan(
        self,
        found: RecordSources,
        scratch: Path,
        name: str,
        size: int,
        compression: Compression,
        stop: bool,
        select: Select | None,
        shuffle: int | None,
    ) -> JobPlan:
        paths = [path for some in found.splits.values() for path in some]
        index = scratch / "index" if select is not None or shuffle is not None else None
        scanned = scan_shards(
            paths,
            scratch,
            workers=self.workers,
            stop=stop,
            index=index,
            on_progress=self.on_progress,
        )
        faults = _faults(found, scanned, stop)
        by_split: dict[str, list[SourceShard]] = {}
        ranges, done, at = {}, 0, 0
        for split, some in found.splits.items():
            by_split[split] = scanned[at : at + len(some)]
            records = sum(shard.records for shard in by_split[split])
            ranges[split] = range(done, done + records)
            at, done = at + len(some), done + records
        if not done:
            raise DatasetError("no record could be read", path=paths[0] if paths else None)
        tasks: list[FileTask] = []
        if index is None:
            for split, shards in by_split.items():
                records = len(ranges[split])
                files = cut_shards(shards, self._count(split, records), size) if records else []
                for name_of, segments in _named(name, split, files):
                    tasks.append(
                        CopyTask(
                            name=name_of,
                            split=split,
                            records=sum(one.records for one in segments),
                            size=sum(one.size for one in segments),
                            segments=segments,
                            compression=compression,
                            stop=stop,
                        )
                    )
            return JobPlan(tasks=tasks, faults=faults)
        pool = RecordPool(shards=scanned, index=index)
        orders = {
            split: RecordOrder(pool=pool, count=len(some), first=some.start)
            for split, some in ranges.items()
        }
        selected = Selection(orders=orders)
        if select is not None:
            selected = select(
                SelectionInput(
                    pool=pool,
                    splits=ranges,
                    scratch=scratch,
                    stop=stop,
                    workers=self.workers,
                    on_progress=self.on_progress,
                )
            )
        faults.merge(selected.faults)
        facts = (sorted(self.rules.items()), shuffle, [shard.identity for shard in scanned])
        recipe = blake2b(repr(facts).encode(), digest_size=16).hexdigest()
        warnings: list[str] = []
        for split, order in selected.orders.items():
            order = replace(order, seed=shuffle)
            if not order.count:
                warnings.append(f"split {split!r} has no records, and is left out")
                continue
            bounds, total = order.cut(self._count(split, order.count), size)
            for name_of, (start, end) in _named(name, split, list(pairwise(bounds))):
                tasks.append(
                    OrderedTask(
                        name=name_of,
                        split=split,
                        records=end - start,
                        size=total * (end - start) // order.count,
                        order=order,
                        start=start,
                        end=end,
                        compression=compression,
                        stop=stop,
                        recipe=recipe,
                    )
                )
        return JobPlan(
            tasks=tasks,
            read=selected.read,
            faults=faults,
            left_out=selected.left_out,
            warnings=warnings,
        )

    def _count(self, split: str, records: int) -> int | None:
        if self.shards is not None and self.shards > records:
            raise UsageError(
                f"split {split!r} has too few records for its shards",
                expected=f"at most {records} shards",
                found=self.shards,
            )
        return self.shards


def _named(dataset: str, split: str, parts: Sequence[Part]) -> Iterator[tuple[str, Part]]:
    for index, part in enumerate(parts):
        name = ShardName(dataset=dataset, split=split, index=index, count=len(parts))
        yield str(name), part


def _faults(found: RecordSources, scanned: Iterable[SourceShard], stop: bool) -> Faults:
    """Return all damage that has been met by now."""
    faults = Faults(stop=stop)
    for missing in found.faults:
        faults.add(missing)
    for shard in scanned:
        faults.merge(shard.faults)
        expected = found.expected.get(shard.path)
        if expected not in (None, shard.records) and not shard.faults.count:
            message = f"{DATASET_INFO} says {expected:,} records, and it has {shard.records:,}"
            fault = Fault(kind=FaultKind.COUNT, offset=0, record=None, message=message)
            faults.add(LocatedFault(path=shard.path, fault=fault))
    return faults
