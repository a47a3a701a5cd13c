"""Jobs that copy records unparsed: what resharding and filtering have in common."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice, product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfrtool.convert.pipeline.carried import CarriedMetadata
from tfrtool.convert.pipeline.record_order import CopyTask, RecordOrder
from tfrtool.convert.pipeline.record_sources import (
    RecordPool,
    find_sources,
    first_fault,
    scan_shards,
)
from tfrtool.engines.engine import Workers
from tfrtool.errors import (
    DatasetError,
    SchemaError,
    WriteError,
    os_errors_as,
    printable,
    some_of,
)
from tfrtool.examples.dataset_files import DatasetFiles, find_files
from tfrtool.examples.example import PayloadKind, feature_name
from tfrtool.records.compression import Compression
from tfrtool.records.framing import Record
from tfrtool.records.reader import read_shard
from tfrtool.storage.arguments import Paths, as_path, as_paths, make_options, parse_enum_fields
from tfrtool.writing.job import JobPlan, numbered, run_job
from tfrtool.writing.job_report import JobReport
from tfrtool.writing.job_settings import JobSettings, SizeSettings, too_many_shards

_CHUNK = 1_000_000
_FIRST, _SHOWN = 64, 10
_WORTH = {True: 1024**3, False: 64 * 1024**2}
"""Bytes that are copied, or else compressed, in the time that a process takes to start."""


Selection = tuple[Sequence[str], NDArray[np.uint16] | None, JobPlan]
"""Names of splits; of each record in the order of the sources 0 if it goes into none, else the
split's place among them, from 1, or None where all stay where they are; and what was met on the
way: records that were read, damage, and what was left out, but no tasks yet."""

Select = Callable[[RecordPool, Mapping[str, int], JobSettings], Selection]
"""What looks at records, of which each split of the sources has so many, one after the other."""


@dataclass(frozen=True, kw_only=True)
class CopySettings(SizeSettings):
    """What those are given that copy records into new shards."""

    compression: Compression = Compression.NONE
    allow_mixed: bool = False

    def __post_init__(self) -> None:
        SizeSettings.__post_init__(self)
        parse_enum_fields(self, compression=Compression)


def all_records(_: RecordPool, splits: Mapping[str, int], __: JobSettings) -> Selection:
    """Select all records, and leave each in its split."""
    return list(splits), None, JobPlan()


def copy_records(
    command: str,
    sources: Paths,
    dataset: str | os.PathLike[str],
    rules: Mapping[str, Any],
    select: Select,
    shuffle_seed: int | None = None,
    **options: Any,
) -> JobReport:
    """Copy the records that ``select`` chooses, all by default, as a job of this ``command``.

    ``shuffle_seed`` puts the records of each split in a random order. The ``rules`` are the
    options that decide which records there are, in which splits; the other words, and the errors,
    are those of `tfrtool.reshard`.
    """
    settings = make_options(CopySettings, folder=as_path(dataset), **options)
    found = find_sources(sources, settings.folder)
    carried = CarriedMetadata(found.folders)
    written = carried.written
    if "splits" in rules:
        written = {key: said for key, said in written.items() if key not in rules}
        written |= {key: rules[key] for key in ("splits", "seed")}

    def plan(scratch: Path) -> JobPlan:
        if not settings.allow_mixed:
            _check_alike(as_paths(sources), found, settings.workers)
        pool, faults = scan_shards(found, scratch, settings)
        records = {shard.path: shard.records for shard in pool.shards}
        counts = {
            split: sum(map(records.__getitem__, files.shards))
            for split, files in found.splits.items()
        }
        if not any(counts.values()):
            why = first_fault(found.paths[0])
            raise DatasetError(f"no record can be read: {why}", path=found.paths[0])
        splits, codes, met = select(pool, counts, settings)
        faults.merge(met.faults)
        inputs = [shard.identity for shard in pool.shards]
        tasks, warnings, first = list[CopyTask](), [*found.notes, *carried.warnings], 0
        for code, split in enumerate(splits, start=1):
            path, count = None, counts.get(split, 0)
            if codes is not None:
                path = scratch / f"{split}.chosen"
                count = _write_chosen(path, codes, code)
            order = RecordOrder(pool=pool, count=count, first=first, chosen=path, seed=shuffle_seed)
            first += count
            if not count:
                warnings.append(f"split {split!r} has no records, so no shard is written for it")
            elif settings.shards is not None and settings.shards > count:
                raise too_many_shards(settings.shards, split, count)
            tasks += [
                CopyTask(
                    split=split,
                    records=end - start,
                    size=size,
                    room=size if settings.compression is Compression.NONE else 0,
                    order=order,
                    start=start,
                    end=end,
                    compression=settings.compression,
                    stop=settings.stop,
                )
                for start, end, size in order.cut(settings.shards, settings.shard_bytes)
            ]
        named = numbered(tasks, settings.name)
        return replace(met, tasks=named, inputs=inputs, faults=faults, warnings=warnings)

    return run_job(
        settings,
        command,
        {
            "shards": settings.shards,
            "shard_bytes": settings.shard_bytes,
            "compression": settings.compression.value,
            "shuffle": shuffle_seed is not None,
            **({} if shuffle_seed is None else {"seed": shuffle_seed}),
            **rules,
            "written": written,
        },
        plan,
        lambda splits, _: carried.texts(settings.name, settings.version, splits),
        _WORTH[settings.compression is Compression.NONE],
    )


def _check_alike(places: Sequence[Path], found: DatasetFiles, workers: Workers) -> None:
    """Raise a `SchemaError` if records of several sources have other features.

    All records of several sources are looked at, and of each set of shards in a single one the
    first: there, only the types of features must agree.
    """
    if len(places) == 1 and len(found.sets) == 1:
        return
    from tfrtool.examples.arrow.infer import ColumnsFold  # Arrow takes 35 MB
    from tfrtool.inspection.rows.batches import fold_columns

    folds: dict[str, ColumnsFold] = {}
    if len(places) > 1:
        for place in places:
            paths = [path for one in find_files(place).sets for path in one.paths]
            folds[str(place)] = fold_columns(paths, workers=workers)
    else:
        for one in found.sets:
            fold = folds[str(one.paths[0])] = ColumnsFold()
            items = islice(read_shard(one.paths[0]), _FIRST)
            fold.add([item.payload for item in items if isinstance(item, Record)])
    columns = {place: fold.columns() for place, fold in folds.items()}
    held = [(k, one) for k, one in columns.items() if one.kind is not PayloadKind.EMPTY]
    for (first, some), (other, more) in product(held[:1], held[1:]):
        before, after = ({(c.key, c.is_list): c.dtype for c in one.columns} for one in (some, more))
        differ = {
            key
            for key in before.keys() & after.keys()
            if before[key] and after[key] and before[key] is not after[key]
        }
        differ |= before.keys() ^ after.keys() if len(places) > 1 else set()
        if differ or some.kind != more.kind:
            names = [printable(feature_name(key)) for key, _ in sorted(differ)]
            what = (
                f"its features differ from those of {printable(first)}: {some_of(names, _SHOWN)}"
                if differ
                else f"it has {more.kind.title} records, and {printable(first)} {some.kind.title}"
            )
            raise SchemaError(what, path=other, hint="use --allow-mixed to merge them anyway")


def _write_chosen(path: Path, codes: NDArray[np.uint16], code: int) -> int:
    """Write the numbers of the records that have a code to a file; return how many there are."""
    count = 0
    with os_errors_as(WriteError, path, "can't be written"), path.open("wb") as file:
        for start in range(0, len(codes), _CHUNK):
            chosen = np.flatnonzero(codes[start : start + _CHUNK] == code) + start
            chosen.astype(np.uint64).tofile(file)
            count += len(chosen)
    return count
