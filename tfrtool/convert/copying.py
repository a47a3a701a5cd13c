"""Jobs that copy records unparsed: what resharding and filtering have in common."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfrtool.convert.pipeline.carried import CarriedMetadata
from tfrtool.convert.pipeline.job import JobPlan, numbered, run_job
from tfrtool.convert.pipeline.job_report import Faults, JobReport
from tfrtool.convert.pipeline.job_settings import JobSettings
from tfrtool.convert.pipeline.record_order import CopyTask, RecordOrder
from tfrtool.convert.pipeline.record_sources import (
    RecordPool,
    find_sources,
    scan_shards,
)
from tfrtool.convert.pipeline.tally import Tally
from tfrtool.errors import DatasetError, UsageError, WriteError, os_errors_as
from tfrtool.records.compression import Compression
from tfrtool.storage.locations import Paths, as_path
from tfrtool.storage.words import as_size, make_options, take_words
from tfrtool.writing.write_options import check_numbers

SHARD_SIZE = "128MiB"
"""Of a shard; see `tfrtool.write`."""

_CHUNK = 1_000_000
_WORTH = {True: 1024**3, False: 64 * 1024**2}
"""Bytes that are copied, or else compressed, in the time that a process takes to start."""


@dataclass(frozen=True, kw_only=True)
class CopySettings(JobSettings):
    """What those are given that write records into new shards."""

    shards: int | None = None
    shard_size: int | str | None = None
    compression: Compression = Compression.NONE

    def __post_init__(self) -> None:
        JobSettings.__post_init__(self)
        take_words(self, compression=Compression)
        check_numbers(self.shards, None)
        if self.shards is not None and self.shard_size is not None:
            raise UsageError("shards and shard_size exclude each other")

    @property
    def shard_bytes(self) -> int:
        """How large a shard is at most, to within one record."""
        return as_size(self.shard_size or SHARD_SIZE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which records go into which split, in the order of the sources.

    Attributes:
        splits: the names.
        codes: of each record, 0 if it goes into none, else the split's place among them, from 1;
            None where all stay in the splits of the sources.
        read: all records that were read to tell; None if none were.
        faults: damage that was met.
        left_out: how many records are in none, by the rule.
    """

    splits: Sequence[str]
    codes: NDArray[np.uint16] | None = None
    read: Tally | None = None
    faults: Faults = field(default_factory=Faults)
    left_out: Mapping[str, int] = field(default_factory=dict)


Select = Callable[[RecordPool, Mapping[str, int], JobSettings], Selection]
"""What looks at records, of which each split of the sources has so many, one after the other."""


def all_records(_: RecordPool, splits: Mapping[str, int], __: JobSettings) -> Selection:
    """Select all records, and leave each in its split."""
    return Selection(splits=list(splits))


def copy_records(
    command: str,
    sources: Paths,
    dataset: str | os.PathLike[str],
    rules: Mapping[str, Any],
    select: Select,
    shuffle: int | None = None,
    **options: Any,
) -> JobReport:
    """Copy the records that ``select`` chooses, all by default, as a job of this ``command``.

    The ``rules`` are the options that decide which records there are, in which splits; the other
    words, and the errors, are those of `tfrtool.reshard`.
    """
    settings = make_options(CopySettings, folder=as_path(dataset), **options)
    check_numbers(None, None, shuffle)
    found = find_sources(sources, settings.folder)
    carried = CarriedMetadata(found.folders)
    written = carried.written | {key: rules[key] for key in ("splits", "seed") if "splits" in rules}

    def plan(scratch: Path) -> JobPlan:
        pool, faults = scan_shards(found, scratch, settings)
        records = {shard.path: shard.records for shard in pool.shards}
        counts = {
            split: sum(map(records.__getitem__, files.shards))
            for split, files in found.splits.items()
        }
        if not any(counts.values()):
            raise DatasetError("no record could be read", path=found.paths[0])
        chosen = select(pool, counts, settings)
        faults.merge(chosen.faults)
        facts = (sorted(rules.items()), shuffle, [shard.identity for shard in pool.shards])
        recipe = blake2b(repr(facts).encode(), digest_size=16).hexdigest()
        tasks, warnings, first = list[CopyTask](), [*found.notes, *carried.warnings], 0
        for code, split in enumerate(chosen.splits, start=1):
            path, count = None, counts.get(split, 0)
            if chosen.codes is not None:
                path = scratch / f"{split}.chosen"
                count = _write_chosen(path, chosen.codes, code)
            order = RecordOrder(pool=pool, count=count, first=first, chosen=path, seed=shuffle)
            first += count
            if not count:
                warnings.append(f"split {split!r} has no records, and is left out")
            elif settings.shards is not None and settings.shards > count:
                raise UsageError(
                    f"split {split!r} has too few records for its shards",
                    expected=f"at most {count} shards",
                    found=settings.shards,
                )
            tasks += [
                CopyTask(
                    split=split,
                    records=end - start,
                    size=size,
                    order=order,
                    start=start,
                    end=end,
                    compression=settings.compression,
                    stop=settings.stop,
                    recipe=recipe,
                )
                for start, end, size in order.cut(settings.shards, settings.shard_bytes)
            ]
        return JobPlan(
            tasks=numbered(tasks, settings.name),
            read=chosen.read,
            faults=faults,
            left_out=chosen.left_out,
            warnings=warnings,
        )

    return run_job(
        settings,
        command,
        {
            "shards": settings.shards,
            "shard_bytes": settings.shard_bytes,
            "compression": settings.compression.value,
            "shuffle": shuffle,
            **rules,
            "written": written,
        },
        plan,
        lambda splits: carried.texts(settings.name, settings.version, splits),
        _WORTH[settings.compression is Compression.NONE],
    )


def _write_chosen(path: Path, codes: NDArray[np.uint16], code: int) -> int:
    """Write the numbers of the records that have a code to a file; return how many there are."""
    count = 0
    with os_errors_as(WriteError, path, "can't be written"), path.open("wb") as file:
        for start in range(0, len(codes), _CHUNK):
            chosen = np.flatnonzero(codes[start : start + _CHUNK] == code) + start
            chosen.astype(np.uint64).tofile(file)
            count += len(chosen)
    return count
