"""Jobs that copy records unparsed: scan the sources, select and order records, copy them."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import blake2b
from itertools import accumulate, islice, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tfrtool.convert.carried import CarriedMetadata
from tfrtool.convert.convert_options import CopyOptions, ReshardOptions
from tfrtool.convert.frame_reader import FrameReader
from tfrtool.convert.source_records import (
    OnFault,
    PickedRecords,
    Rows,
    SourceRecords,
    find_sources,
    no_readable_record,
    scan_records,
)
from tfrtool.declare import takes
from tfrtool.engines.engine import Workers
from tfrtool.engines.local_copies import local_copies
from tfrtool.errors import SchemaError, WriteError, printable, some_of
from tfrtool.examples.dataset_files import DatasetFiles, find_files
from tfrtool.examples.example import PayloadKind, feature_name
from tfrtool.records.compression import Compression
from tfrtool.records.frames import keys_of
from tfrtool.records.framing import Record
from tfrtool.records.reader import read_shard
from tfrtool.records.tally import Words, seed_word, splitmix64
from tfrtool.records.writer import ShardWriter
from tfrtool.storage.arguments import Paths, as_path, as_paths
from tfrtool.storage.progress import RECORDS, count_work
from tfrtool.storage.remote_path import AnyPath
from tfrtool.writing.job import FileTask, Job, JobPlan, numbered, publish_records
from tfrtool.writing.job_report import (
    Faults,
    JobReport,
    Written,
)
from tfrtool.writing.run_options import JobSettings, check_shard_count, too_many_shards
from tfrtool.writing.write_plan import cut_by_size

if TYPE_CHECKING:
    from tfrtool.examples.arrow.columns import Columns
    from tfrtool.examples.arrow.infer import ColumnsFold

Numbers = NDArray[Any]
"""Numbers of records in a table: uint32, where that is enough."""

_ROUNDS, _CHUNK = 6, 65_536

_WINDOW = 8 * 1024 * 1024
"""Bytes of output whose records are read in the order of the sources, if they are shuffled."""

_BLOCK = 1024 * 1024
"""Bytes that are read at once, if records keep their order."""

_FIRST, _SHOWN = 64, 10

_MARKS = [("draw", "u8"), ("stratum", "u8"), ("known", "u1")]

_MIN_BYTES_PER_PROCESS = {True: 1024**3, False: 64 * 1024**2}
"""Bytes that are copied in the time that a process takes to start; False: also compressed."""


class Selection(NamedTuple):
    """The records that a job copies.

    Attributes:
        table: all records.
        splits: names of the new splits.
        codes: for each record 1 + the number of its split, or 0 if it is skipped.
        skipped: number of skipped records, by rule.
    """

    table: SourceRecords
    splits: Sequence[str]
    codes: NDArray[np.uint16]
    skipped: Mapping[str, int] = {}


Select = Callable[[DatasetFiles, JobSettings, Callable[..., SourceRecords]], Selection]
"""Selects records of files, which the function scans with a marker (see `scan_records`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyTask(FileTask):
    """Copies records of a table, and checks their CRCs."""

    picked: PickedRecords = field(repr=False)
    compression: Compression
    stop: bool  # whether damage ends the job

    @classmethod
    def of(
        cls,
        picked: PickedRecords,
        split: str,
        compression: Compression,
        *,
        stop: bool,
    ) -> "CopyTask":
        """Return the task that copies some records into a file of a split."""
        size = int(picked.sizes.sum(dtype=np.int64))
        return cls(
            split=split,
            records=len(picked),
            size=size,
            picked=picked,
            compression=compression,
            stop=stop,
        )

    def write(self, path: Path) -> Written:
        """Copy the records, a window at a time."""
        faults, picked = Faults(stop=self.stop), self.picked
        shards = picked.table.shards
        with ShardWriter(path, self.compression) as writer, FrameReader(shards) as reader:
            for start in range(0, len(picked), _CHUNK):
                chunk = picked.rows(start, start + _CHUNK)
                places = chunk["shard"].astype(np.int64) << 40 | chunk["offset"]
                window = _BLOCK if (places[1:] > places[:-1]).all() else _WINDOW
                windows = np.cumsum(chunk["size"], dtype=np.int64) // window
                bounds = [0, *(np.flatnonzero(np.diff(windows)) + 1).tolist(), len(chunk)]
                for low, high in pairwise(bounds):
                    found = reader.read(chunk[low:high], faults)
                    writer.write_frames(*found)
                    count_work(high - low, RECORDS)
        tally = writer.tally
        return Written(tally=tally, read=tally, faults=faults, crc32c=writer.crc32c)


@takes(ReshardOptions)
def reshard(sources: Paths, dataset: str | os.PathLike[str], options: ReshardOptions) -> JobReport:
    """Rewrite the records of shards into new shards: another number, order or split.

    Records are copied unchanged, their CRCs are checked, and metadata is carried over. Shards are
    written to temporary files and moved into place together; a run whose process was killed can be
    resumed. The same sources, options and seed give the same bytes, with any number of workers.

    Args:
        sources: dataset directory, shard or glob pattern; or several. Splits with the same name are
            merged.
        dataset: directory to write to.

    Raises:
        UsageError: an option is invalid, or the directory can't be written to.
        DatasetError: a source has no records, or the class names of the sources differ.
        SchemaError: the features of the sources differ.
        ShardError: a source can't be read.
        CorruptShardError: a record is damaged and ``on_error`` is "stop".
        WriteError: a file can't be written.
    """
    rules: dict[str, Any] = {}
    select: Select | None = None
    if options.splits:
        rules = {
            "splits": [f"{split}={share!r}" for split, share in options.splits.items()],
            "stratify": options.stratify,
            "group_by": options.group_by,
            "seed": options.seed,
        }
        select = partial(_draw_splits, options=options, splits=options.splits)
    seed = options.seed if options.shuffle else None
    return copy_records("reshard", sources, dataset, options, rules, select, seed)


def copy_records(
    command: str,
    sources: Paths,
    dataset: str | os.PathLike[str],
    options: CopyOptions,
    rules: Mapping[str, Any],
    select: Select | None = None,
    shuffle_seed: int | None = None,
) -> JobReport:
    """Copy records of sources to a new dataset.

    Args:
        command: name of the command.
        sources: the shards to read.
        dataset: directory to write to.
        options: those of all such jobs.
        rules: the options that select records and their splits, for the report.
        select: selects the records; all of them by default.
        shuffle_seed: puts the records of each split in a random order.

    Raises:
        TfrtoolError: the errors of `tfrtool.reshard`.
    """
    settings = replace(options.settings(as_path(dataset)), workers=options.pool)
    found = find_sources(sources, settings.folder)
    carried = CarriedMetadata(found.folders, found.paths)
    workers, on_progress = settings.workers, settings.on_progress
    needed_for = None if shuffle_seed is None else "--shuffle"
    copies = local_copies(found.paths, workers, on_progress, needed_for=needed_for)
    worth = _MIN_BYTES_PER_PROCESS[options.compression == "none"]
    with Job(settings, command, worth=worth) as job, copies:
        if not options.allow_mixed:
            _check_features(as_paths(sources), found, workers)
        selection = _selection(found, settings, job.scratch, select)
        tasks, empty = _copy_tasks(selection, options, settings, shuffle_seed)
        plan = JobPlan(
            tasks=tasks,
            inputs=[shard.identity for shard in selection.table.shards],
            options={**settings.identity, **_written_as(options, shuffle_seed), **rules},
            read=None if select is None else selection.table.read,
            faults=selection.table.faults,
            skipped=selection.skipped,
            warnings=[*found.notes, *carried.warnings, *empty],
        )
        job.begin(plan)
        files = job.write(tasks)
        return publish_records(job, files, carried.texts(settings, files))


def _written_as(options: CopyOptions, shuffle_seed: int | None) -> dict[str, Any]:
    """Return how records are written, for the report."""
    facts = {
        "shards": options.shards,
        "shard_bytes": options.shard_bytes,
        "compression": options.compression,
        "shuffle": shuffle_seed is not None,
    }
    return facts if shuffle_seed is None else {**facts, "seed": shuffle_seed}


def _selection(
    found: DatasetFiles, settings: JobSettings, scratch: Path, select: Select | None
) -> Selection:
    """Return the records to copy; `DatasetError` if no record can be read."""
    scan = partial(
        scan_records,
        found,
        scratch,
        workers=settings.workers,
        on_progress=settings.on_progress,
        stop=settings.stop,
    )
    if select is None:
        table = scan()
        selection = Selection(table, [*table.split_sizes], table.split_codes)
    else:
        selection = select(found, settings, scan)
    if not len(selection.table):
        raise no_readable_record(found.paths)
    return selection


def _copy_tasks(
    selection: Selection,
    options: CopyOptions,
    settings: JobSettings,
    shuffle_seed: int | None,
) -> tuple[list[CopyTask], list[str]]:
    """Return the files to write, split by split, and a warning for each split without records."""
    table, compression = selection.table, Compression(options.compression)
    tasks, warnings = list[CopyTask](), list[str]()
    for code, split in enumerate(selection.splits, start=1):
        numbers = as_numbers(selection.codes == code)
        if not len(numbers):
            warnings.append(f"split {split!r} has no records, so no shard is written for it")
            continue
        if options.shards is not None and options.shards > len(numbers):
            raise too_many_shards(options.shards, split, len(numbers))
        if shuffle_seed is not None:
            numbers = shuffled(numbers, shuffle_seed)
        for low, high in pairwise(_cut(table.sizes[numbers], options)):
            picked = PickedRecords(table, numbers[low:high])
            tasks.append(CopyTask.of(picked, split, compression, stop=settings.stop))
    return numbered(tasks, settings.name), warnings


def _cut(sizes: NDArray[Any], options: CopyOptions) -> list[int]:
    """Return where each file starts, and the end: by number, or by bytes before compression."""
    totals = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])
    count = options.shards or max(1, -(-int(totals[-1]) // options.shard_bytes))
    check_shard_count(min(count, len(sizes)))
    if options.shards:
        return [round(len(sizes) * number / count) for number in range(count + 1)]
    return cut_by_size(totals.data, options.shard_bytes)


def as_numbers(chosen: NDArray[np.bool_]) -> Numbers:
    """Return the numbers of the records for which something is true: 4 bytes for each."""
    parts = range(0, len(chosen), _CHUNK)
    dtype = np.uint32 if len(chosen) < 2**32 else np.int64
    found = (np.flatnonzero(chosen[start : start + _CHUNK]) + start for start in parts)
    return np.concatenate([np.zeros(0, dtype), *(some.astype(dtype) for some in found)])


def shuffled(numbers: Numbers, seed: int) -> Numbers:
    """Return numbers in a random order, the same on every machine; the first are a sample.

    A Feistel network over the next power of four, walked until it is within the places.
    """
    mixed, count = np.empty_like(numbers), len(numbers)
    for start in range(0, count, _CHUNK):
        places = np.arange(start, min(start + _CHUNK, count), dtype=np.uint64)
        mixed[start : start + _CHUNK] = numbers[permuted(places, count, seed).view(np.int64)]
    return mixed


def permuted(places: Words, count: int, seed: int) -> Words:
    """Return where a random permutation of ``count`` places puts some of them."""
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


def _draw_splits(
    files: DatasetFiles,
    _: JobSettings,
    scan: Callable[..., SourceRecords],
    options: ReshardOptions,
    splits: Mapping[str, float],
) -> Selection:
    """Draw the split of each record, by its bytes or by a feature of it."""
    stratify, group_by = options.stratify, options.group_by
    feature = stratify or group_by
    if feature is None:
        table = scan(key_marker=partial(_draw_by_key, seed=options.seed), dtype=_MARKS)
    else:
        draw = partial(_draw, feature=feature, group=group_by is not None, seed=options.seed)
        table = scan(marker=draw, dtype=_MARKS)
    marks = table.marks
    if feature and len(marks) and not marks["known"].any():
        from tfrtool.convert.feature_values import no_feature

        raise no_feature(feature, files.paths, "--group-by" if group_by else "--stratify")
    ends = list(accumulate(list(splits.values())[:-1]))
    if stratify is None:
        bounds = np.array([round(end * 2**64) for end in ends], np.uint64)
        codes = np.searchsorted(bounds, marks["draw"], side="right").astype(np.uint16)
    else:
        codes = _stratify(marks, ends)
    counts = np.bincount(codes, minlength=len(splits)).tolist()
    for split, count in zip(splits, counts, strict=True):
        if not count and len(marks):
            raise WriteError(
                f"split {split!r} would be empty",
                hint="give it a larger fraction, or use another --seed",
            )
    return Selection(table, list(splits), codes + np.uint16(1))


def _draw_by_key(keys: Words, seed: int) -> Rows:
    """Draw a number for each record."""
    rows = np.zeros(len(keys), _MARKS)
    rows["draw"] = splitmix64(keys ^ seed_word(seed))
    return rows


def _draw(
    path: Path,  # noqa: ARG001
    records: list[Record],
    report: OnFault,  # noqa: ARG001
    feature: str,
    group: bool,
    seed: int,
) -> Iterator[tuple[list[Record], Rows]]:
    """Draw a number for each record or group; and one for its value, if splits are stratified."""
    from tfrtool.convert.feature_values import feature_values  # Arrow takes 35 MB

    rows = _draw_by_key(np.asarray(keys_of(records), np.uint64), seed)
    key = seed.to_bytes(8, "little", signed=True)
    values = feature_values([record.payload for record in records], feature)
    for row, value in zip(rows, values, strict=True):
        row["known"] = value is not None
        digest = blake2b(repr(value).encode(), digest_size=8, key=key).digest()
        if not group or value is not None:  # a record without a value is its own group
            row["draw" if group else "stratum"] = int.from_bytes(digest, "little")
    yield records, rows


def _stratify(marks: Rows, ends: list[float]) -> NDArray[np.uint16]:
    """Return the number of the split of each record: in each stratum, the lowest draws come first.

    Copies of a record have the same draw, and stay together.
    """
    order = np.lexsort((marks["draw"], marks["stratum"]))
    draws, strata = marks["draw"][order], marks["stratum"][order]
    codes = np.zeros(len(order), np.uint16)
    starts = np.flatnonzero(np.concatenate([[True], strata[1:] != strata[:-1]])).tolist()
    for start, stop in zip(starts, [*starts[1:], len(order)], strict=True):
        for end in ends:
            at = start + round((stop - start) * end)
            if start < at < stop:
                at = start + int(np.searchsorted(draws[start:stop], draws[at - 1], side="right"))
            codes[order[at:stop]] += 1
    return codes


def fold_first(paths: Sequence[AnyPath]) -> "ColumnsFold":
    """Fold the columns of the first records of each of these shards."""
    from tfrtool.examples.arrow.infer import ColumnsFold  # Arrow takes 35 MB

    fold = ColumnsFold()
    for path in paths:
        items = islice(read_shard(path), _FIRST)
        fold.add([item.payload for item in items if isinstance(item, Record)])
    return fold


def _check_features(places: Sequence[AnyPath], found: DatasetFiles, workers: Workers) -> None:
    """Raise a `SchemaError` if the features of sources differ.

    Of several sources, all records are read. Of several sets of shards in one source, only the
    first records of each are, and only the types of common features must agree.
    """
    several = len(places) > 1
    if not several and len(found.sets) == 1:
        return
    from tfrtool.inspection.rows.batches import fold_columns

    if several:
        local_paths = {path: path for path in found.paths}  # which may have local copies
        shards = {
            source: [
                local_paths.get(path, path) for one in find_files(source).sets for path in one.paths
            ]
            for source in places
        }
        columns = {
            source: fold_columns(paths, workers=workers).columns()
            for source, paths in shards.items()
        }
    else:
        columns = {one.paths[0]: fold_first(one.paths[:1]).columns() for one in found.sets}
    present = {path: one for path, one in columns.items() if one.kind is not PayloadKind.EMPTY}
    _check_alike(present, strict=several)


def _check_alike(columns: "Mapping[AnyPath, Columns]", *, strict: bool) -> None:
    """Raise a `SchemaError` that names all features that sources don't share."""
    parts, first, missing = list[tuple[AnyPath, str]](), next(iter(columns), None), False
    for source, source_columns in columns.items():
        reference = columns[first] if first is not None else source_columns
        if source_columns.kind != reference.kind:
            what = f"it has {source_columns.kind.title} records, and {printable(str(first))} "
            hint = "use --allow-mixed to merge them anyway"
            raise SchemaError(f"{what}{reference.kind.title}", path=source, hint=hint)
        old, new = (
            {(c.key, c.is_list): c.dtype for c in of.columns} for of in (reference, source_columns)
        )
        names = []
        for key in sorted(old.keys() | new.keys()):
            name = printable(feature_name(key[0]))
            if key in old and key in new:
                was, now = old[key], new[key]
                if was is not None and now is not None and was is not now:
                    names.append(f"{name} ({now.value}, not {was.value})")
            elif strict:
                names.append(f"{name} ({'missing' if key in old else 'only here'})")
                missing = True
        if names:
            parts.append((source, some_of(names, _SHOWN)))
    if parts:
        (source, names_of), *others = parts
        what = f"its features differ from the features of {printable(str(first))}: {names_of}"
        what += "".join(f"; {printable(str(at))}: {more}" for at, more in others)
        hint = "use --allow-mixed to merge them anyway"
        if missing:
            what_is_missing = "add what is missing with tfrtool edit --add NAME=VALUE"
            hint = f"{what_is_missing}, or {hint}"
        raise SchemaError(what, path=source, hint=hint)
