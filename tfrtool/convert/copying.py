"""Jobs that copy records unparsed: what resharding and filtering have in common."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfrtool.convert.pipeline.carried import CarriedMetadata
from tfrtool.convert.pipeline.job import JobPlan, run_job
from tfrtool.convert.pipeline.job_report import Faults, JobReport
from tfrtool.convert.pipeline.record_marks import Scanned
from tfrtool.convert.pipeline.record_order import CopyTask, RecordOrder, RecordPool
from tfrtool.convert.pipeline.record_sources import (
    INDEX,
    faults_of,
    find_sources,
    scan_shards,
)
from tfrtool.convert.pipeline.tally import Tally
from tfrtool.errors import DatasetError, UsageError, WriteError, os_errors_as
from tfrtool.loading.dataset.dataset import OnCorrupt
from tfrtool.records.compression import Compression
from tfrtool.records.shard_sets import ShardName, check_dataset_name, check_version
from tfrtool.storage.locations import as_path
from tfrtool.storage.progress import OnProgress
from tfrtool.storage.words import as_member, as_size
from tfrtool.writing.dataset_folder import Target
from tfrtool.writing.write_options import Existing, check_numbers, dataset_identity

SHARD_SIZE = "128MiB"
"""Of a shard; see `tfrtool.write`."""

_CHUNK = 1_000_000
_WORTH = {True: 1024**3, False: 64 * 1024**2}
"""Bytes that are copied, or else compressed, in the time that a process takes to start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which records go into which split, in the order of the sources.

    Attributes:
        splits: the names.
        codes: of each record, 0 if it goes into none, else the split's place among them, from 1.
        read: all records that were read to tell.
        faults: damage that was met.
        left_out: how many records are in none, by the rule.
    """

    splits: Sequence[str]
    codes: NDArray[np.uint16]
    read: Tally
    faults: Faults
    left_out: Mapping[str, int] = field(default_factory=dict)


def copy_records(
    command: str,
    sources: Any,
    dataset: str | os.PathLike[str],
    rules: Mapping[str, Any],
    select: Callable[[Scanned], Selection] | None = None,
    *,
    shuffle: int | None = None,
    shards: int | None,
    shard_size: int | str | None,
    compression: str,
    name: str | None,
    version: str | None,
    on_corrupt: str,
    workers: int | None,
    existing: str,
    dry_run: bool,
    on_progress: OnProgress,
) -> JobReport:
    """Copy the records that ``select`` chooses, all by default, as a job of this ``command``.

    The ``rules`` are the options that decide which records there are, in which splits; the other
    words, and the errors, are those of `tfrtool.reshard`.
    """
    folder = as_path(dataset)
    name, version = dataset_identity(folder, name, version)
    check_dataset_name(name)
    check_version(version)
    check_numbers(shards, workers, shuffle)
    if shards is not None and shard_size is not None:
        raise UsageError("shards and shard_size exclude each other")
    stop = as_member(OnCorrupt, on_corrupt, "on_corrupt") is OnCorrupt.STOP
    packed = as_member(Compression, compression, "compression")
    size = as_size(shard_size or SHARD_SIZE)
    target = Target(
        folder=folder,
        name=name,
        existing=as_member(Existing, existing, "existing"),
        command=command,
        options={
            "name": name,
            "version": version,
            "shards": shards,
            "shard_bytes": size,
            "compression": packed.value,
            "shuffle": shuffle,
            **rules,
        },
    )
    found = find_sources(sources, folder)
    carried = CarriedMetadata(found.folders)

    def plan(scratch: Path) -> JobPlan:
        common: dict[str, Any] = {"workers": workers, "stop": stop, "on_progress": on_progress}
        scanned = scan_shards(found.paths, scratch, **common)
        whole = {shard.path: shard.records for shard in scanned if not shard.faults.count}
        faults = faults_of(found, whole, stop=stop)
        for shard in scanned:
            faults.merge(shard.faults)
        pool = RecordPool(shards=scanned, index=scratch / INDEX)
        records = {shard.path: shard.records for shard in scanned}
        counts = {
            split: sum(map(records.__getitem__, files.shards))
            for split, files in found.splits.items()
        }
        if not any(counts.values()):
            raise DatasetError("no record could be read", path=found.paths[0])
        planned = JobPlan(tasks=(), faults=faults)
        orders = {}
        if select is None:
            first = 0
            for split, count in counts.items():
                orders[split] = RecordOrder(pool=pool, count=count, first=first, seed=shuffle)
                first += count
        else:
            chosen = select(Scanned(shards=scanned, splits=counts, scratch=scratch, **common))
            faults.merge(chosen.faults)
            planned = replace(planned, read=chosen.read, left_out=chosen.left_out)
            for code, split in enumerate(chosen.splits, start=1):
                path = scratch / f"{split}.chosen"
                count = _write_chosen(path, chosen.codes, code)
                orders[split] = RecordOrder(pool=pool, count=count, chosen=path, seed=shuffle)
        facts = (sorted(rules.items()), shuffle, [shard.identity for shard in scanned])
        recipe = blake2b(repr(facts).encode(), digest_size=16).hexdigest()
        empty = [split for split, order in orders.items() if not order.count]
        tasks = []
        for split, order in orders.items():
            if shards is not None and shards > order.count > 0:
                raise UsageError(
                    f"split {split!r} has too few records for its shards",
                    expected=f"at most {order.count} shards",
                    found=shards,
                )
            bounds, total = order.cut(shards, size) if order.count else ([], 0)
            for index, (start, end) in enumerate(pairwise(bounds)):
                file = ShardName(dataset=name, split=split, index=index, count=len(bounds) - 1)
                tasks.append(
                    CopyTask(
                        name=str(file),
                        split=split,
                        records=end - start,
                        size=total * (end - start) // order.count,
                        order=order,
                        start=start,
                        end=end,
                        compression=packed,
                        stop=stop,
                        recipe=recipe,
                    )
                )
        warnings = [f"split {split!r} has no records, and is left out" for split in empty]
        return replace(planned, tasks=tasks, warnings=warnings)

    report = run_job(
        target,
        plan,
        workers=workers,
        on_progress=on_progress,
        metadata=lambda splits: carried.texts(name, version, splits),
        dry_run=dry_run,
        worth=_WORTH[packed is Compression.NONE],
    )
    return replace(report, warnings=(*found.notes, *carried.warnings, *report.warnings))


def _write_chosen(path: Path, codes: NDArray[np.uint16], code: int) -> int:
    """Write the numbers of the records that have a code to a file; return how many there are."""
    count = 0
    with os_errors_as(WriteError, path, "can't be written"), path.open("wb") as file:
        for start in range(0, len(codes), _CHUNK):
            chosen = np.flatnonzero(codes[start : start + _CHUNK] == code) + start
            chosen.astype(np.uint64).tofile(file)
            count += len(chosen)
    return count
