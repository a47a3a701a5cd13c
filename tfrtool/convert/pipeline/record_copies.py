"""Jobs that copy records unparsed: scan the sources, select and order records, copy them."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice, pairwise, product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tfrtool.convert.pipeline.carried import CarriedMetadata
from tfrtool.convert.pipeline.record_pool import (
    Numbers,
    PoolReader,
    RecordPool,
    find_sources,
    first_fault,
    scan_shards,
)
from tfrtool.engines.engine import Workers
from tfrtool.errors import DatasetError, SchemaError, WriteError, os_errors_as, printable, some_of
from tfrtool.examples.dataset_files import DatasetFiles, find_files
from tfrtool.examples.example import PayloadKind, feature_name
from tfrtool.records.compression import Compression
from tfrtool.records.framing import Record
from tfrtool.records.reader import read_shard
from tfrtool.records.tally import Words, seed_word, splitmix64
from tfrtool.records.writer import ShardWriter
from tfrtool.storage.arguments import Paths, as_path, as_paths, make_options, parse_enum_fields
from tfrtool.storage.progress import RECORDS, count_work
from tfrtool.writing.job import FileTask, JobPlan, numbered, run_job
from tfrtool.writing.job_report import Faults, JobReport, Written
from tfrtool.writing.job_settings import JobSettings, SizeSettings, too_many_shards
from tfrtool.writing.write_options import check_shard_count

_ROUNDS = 6
_CHUNK = 65_536

_WINDOW = 8 * 1024 * 1024
"""Bytes of output whose records are read in the order of the sources, if they are shuffled."""

_BLOCK = 1024 * 1024
"""Bytes that are read at once, if records keep their order."""

_FIRST, _SHOWN = 64, 10

_WORTH_A_PROCESS = {True: 1024**3, False: 64 * 1024**2}
"""Bytes that are copied in the time that a process takes to start; False: also compressed."""


class Selection(NamedTuple):
    """The records that a job copies.

    Attributes:
        splits: names of the new splits.
        codes: for each record of the pool, 1 + the position of its split among ``splits``, or 0 if
            it is left out. None keeps all records in the splits of the sources.
        plan: what was read, the damage, and what was left out; without tasks.
    """

    splits: Sequence[str]
    codes: NDArray[np.uint16] | None
    plan: JobPlan


Select = Callable[[RecordPool, Mapping[str, int], JobSettings], Selection]
"""Selects records of a pool, given the number of records in each split of the sources, in order."""


@dataclass(frozen=True, kw_only=True)
class CopySettings(SizeSettings):
    """Settings of jobs that copy records into new shards."""

    compression: Compression = Compression.NONE
    allow_mixed: bool = False

    def __post_init__(self) -> None:
        SizeSettings.__post_init__(self)
        parse_enum_fields(self, compression=Compression)


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyTask(FileTask):
    """Copies the records whose numbers are in some rows of a file, and checks their CRCs.

    Attributes:
        pool: where the records are.
        order: file with numbers of records, 8 bytes each.
        rows: the rows of it.
        compression: of the new shard.
        stop: whether damage ends the job.
    """

    pool: RecordPool
    order: Path
    rows: range
    compression: Compression
    stop: bool

    def write(self, path: Path) -> Written:
        """Copy the records, a window at a time."""
        faults, order = Faults(stop=self.stop), np.memmap(self.order, np.uint64, "r")
        with ShardWriter(path, self.compression) as writer, PoolReader(self.pool) as reader:
            for rows in _chunks(self.rows):
                numbers = np.array(order[rows.start : rows.stop])
                places = self.pool.locate(numbers)
                in_order = bool((numbers[1:] > numbers[:-1]).all())
                windows = np.cumsum(places[2]) // (_BLOCK if in_order else _WINDOW)
                bounds = [0, *(np.flatnonzero(np.diff(windows)) + 1).tolist(), len(numbers)]
                for low, high in pairwise(bounds):
                    window = [column[low:high] for column in places]
                    writer.write_frames(*reader.read(numbers[low:high], window, faults))
                    count_work(high - low, RECORDS)
        tally = writer.tally
        return Written(tally=tally, read=tally, faults=faults, crc32c=writer.crc32c)


def copy_records(
    command: str,
    sources: Paths,
    dataset: str | os.PathLike[str],
    rules: Mapping[str, Any],
    select: Select | None = None,
    shuffle_seed: int | None = None,
    **options: Any,
) -> JobReport:
    """Copy records of sources to a new dataset.

    Args:
        command: name of the command.
        sources: the shards to read.
        dataset: directory to write to.
        rules: the options that select records and their splits, for the report.
        select: selects the records; all of them by default.
        shuffle_seed: puts the records of each split in a random order.
        **options: fields of `CopySettings`.

    Raises:
        TfrtoolError: the errors of `tfrtool.reshard`.
    """
    settings = make_options(CopySettings, folder=as_path(dataset), **options)
    found = find_sources(sources, settings.folder)
    carried = CarriedMetadata(found.folders)
    write_options = carried.written
    if "splits" in rules:
        write_options = {key: value for key, value in write_options.items() if key not in rules}
        write_options |= {key: rules[key] for key in ("splits", "seed")}

    def plan(scratch: Path) -> JobPlan:
        if not settings.allow_mixed:
            _check_features(as_paths(sources), found, settings.workers)
        pool, faults = scan_shards(found, scratch, settings)
        records = {shard.path: shard.records for shard in pool.shards}
        counts = {
            split: sum(map(records.__getitem__, files.shards))
            for split, files in found.splits.items()
        }
        if not any(counts.values()):
            why = first_fault(found.paths[0])
            raise DatasetError(f"no record can be read: {why}", path=found.paths[0])
        selection = Selection([*counts], None, JobPlan())
        if select is not None:
            selection = select(pool, counts, settings)
        faults.merge(selection.plan.faults)
        tasks, warnings = list[CopyTask](), [*found.notes, *carried.warnings]
        order = scratch / "order"
        for split, rows in write_order(order, selection, counts, shuffle_seed):
            if not rows:
                warnings.append(f"split {split!r} has no records, so no shard is written for it")
                continue
            if settings.shards is not None and settings.shards > len(rows):
                raise too_many_shards(settings.shards, split, len(rows))
            for part, size in _cut(pool, order, rows, settings):
                tasks.append(
                    CopyTask(
                        split=split,
                        records=len(part),
                        size=size,
                        room=size if settings.compression is Compression.NONE else 0,
                        pool=pool,
                        order=order,
                        rows=part,
                        compression=settings.compression,
                        stop=settings.stop,
                    )
                )
        return replace(
            selection.plan,
            tasks=numbered(tasks, settings.name),
            inputs=[shard.identity for shard in pool.shards],
            faults=faults,
            warnings=warnings,
        )

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
            "written": write_options,
        },
        plan,
        lambda splits, _: carried.texts(settings.name, settings.version, splits),
        _WORTH_A_PROCESS[settings.compression is Compression.NONE],
    )


def _chunks(rows: range) -> Iterator[range]:
    return (rows[start : start + _CHUNK] for start in range(0, len(rows), _CHUNK))


def write_order(
    path: Path, selection: Selection, counts: Mapping[str, int], seed: int | None
) -> list[tuple[str, range]]:
    """Write the numbers of the selected records in the order of the new dataset.

    Returns:
        The splits, and the rows of each.
    """
    splits, first, row = list[tuple[str, range]](), 0, 0
    with os_errors_as(WriteError, path, "can't be written"), path.open("wb") as file:
        for code, split in enumerate(selection.splits, start=1):
            if selection.codes is None:
                chosen, count = None, counts[split]
            else:
                chosen = np.flatnonzero(selection.codes == code)
                count = len(chosen)
            for rows in _chunks(range(count)):
                at = np.arange(rows.start, rows.stop, dtype=np.uint64)
                if seed is not None:
                    at = permuted(at, count, seed)
                numbers = at + np.uint64(first) if chosen is None else chosen[at.astype(np.int64)]
                numbers.astype(np.uint64).tofile(file)
            splits.append((split, range(row, row + count)))
            first, row = first + count, row + count
    return splits


def permuted(places: Words, count: int, seed: int) -> Words:
    """Return where a random permutation of ``count`` places puts some of them.

    It is not held in memory: a Feistel network over the next power of four, walked until it is
    within the places.
    """
    half = max(1, -(-(count - 1).bit_length() // 2))
    mask, shift = np.uint64((1 << half) - 1), np.uint64(half)
    rounds: Words = np.arange(_ROUNDS, dtype=np.uint64)
    keys = splitmix64(rounds ^ seed_word(seed))
    found = places.copy()
    left = np.arange(len(places))
    while len(left):
        high, low = found[left] >> shift, found[left] & mask
        for key in keys:
            high, low = low, high ^ (splitmix64(low ^ key) & mask)
        found[left] = high << shift | low
        left = left[found[left] >= count]
    return np.asarray(found, np.uint64)


def _cut(
    pool: RecordPool, order: Path, rows: range, settings: CopySettings
) -> list[tuple[range, int]]:
    """Cut rows of an order into files, by number or by bytes before compression.

    Returns:
        The rows of each, and about how many bytes they take.
    """
    numbers = np.memmap(order, np.uint64, "r")

    def sizes_of(part: range) -> Numbers:
        return pool.locate(np.array(numbers[part.start : part.stop]))[2]

    total = sum(int(sizes_of(part).sum()) for part in _chunks(rows))
    files = settings.shards or max(1, -(-total // settings.shard_bytes))
    check_shard_count(min(files, len(rows)))
    bounds, done = [0], 0
    if settings.shards:
        bounds = [round(len(rows) * number / files) for number in range(files)]
    for part in () if settings.shards else _chunks(rows):
        sizes = sizes_of(part)
        ends = done + np.cumsum(sizes)
        while (wanted := total * len(bounds) // files) <= ends[-1] and len(bounds) < files:
            at = int(np.searchsorted(ends, wanted))
            nearer = ends[at] - wanted < wanted - (ends[at] - sizes[at])
            bounds.append(part.start - rows.start + at + int(nearer))
        done = int(ends[-1])
    ranges = pairwise(dict.fromkeys([*bounds, len(rows)]))
    return [(rows[low:high], total * (high - low) // len(rows)) for low, high in ranges]


def _check_features(places: Sequence[Path], found: DatasetFiles, workers: Workers) -> None:
    """Raise a `SchemaError` if the features of several sources differ.

    Of several sources, all records are read. Of several sets of shards in one source, only the
    first records of each are, and only the types of common features must agree.
    """
    if len(places) == 1 and len(found.sets) == 1:
        return
    from tfrtool.examples.arrow.infer import ColumnsFold  # Arrow takes 35 MB
    from tfrtool.inspection.rows.batches import fold_columns

    folds: dict[str, ColumnsFold] = {}
    if len(places) > 1:
        for place in places:
            paths = [path for shards in find_files(place).sets for path in shards.paths]
            folds[str(place)] = fold_columns(paths, workers=workers)
    else:
        for shards in found.sets:
            fold = folds[str(shards.paths[0])] = ColumnsFold()
            items = islice(read_shard(shards.paths[0]), _FIRST)
            fold.add([item.payload for item in items if isinstance(item, Record)])
    columns = {place: fold.columns() for place, fold in folds.items()}
    present = [pair for pair in columns.items() if pair[1].kind is not PayloadKind.EMPTY]
    for (first, before), (other, after) in product(present[:1], present[1:]):
        old, new = ({(c.key, c.is_list): c.dtype for c in of.columns} for of in (before, after))
        common = old.keys() & new.keys()
        differ = {key for key in common if old[key] and new[key] and old[key] is not new[key]}
        if len(places) > 1:
            differ |= old.keys() ^ new.keys()
        if differ or before.kind != after.kind:
            names = [printable(feature_name(key)) for key, _ in sorted(differ)]
            what = (
                f"its features differ from those of {printable(first)}: {some_of(names, _SHOWN)}"
                if differ
                else f"it has {after.kind.title} records, and {printable(first)} "
                f"{before.kind.title}"
            )
            raise SchemaError(what, path=other, hint="use --allow-mixed to merge them anyway")
