"""The verb: shards become other shards; records are copied unparsed."""

import os
from collections.abc import Mapping
from functools import partial
from hashlib import blake2b
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfrtool.convert.copying import Select, Selection, all_records, copy_records
from tfrtool.convert.pipeline.job_report import JobReport
from tfrtool.convert.pipeline.job_settings import JobSettings
from tfrtool.convert.pipeline.record_marks import (
    KEPT,
    UNPARSED,
    Marks,
    columns_of,
    mark_records,
    values_of,
)
from tfrtool.convert.pipeline.record_sources import RecordPool
from tfrtool.convert.pipeline.tally import payload_key, seed_word, splitmix64
from tfrtool.errors import UsageError, WriteError
from tfrtool.examples.arrow.columns import Columns
from tfrtool.inspection.rows.batches import Batch
from tfrtool.storage.locations import Paths
from tfrtool.writing.write_options import check_numbers, check_splits

_ROW = [("mark", "u1"), ("draw", "u8"), ("stratum", "u8")]


def reshard(
    sources: Paths,
    dataset: str | os.PathLike[str],
    *,
    shuffle: int | None = None,
    splits: Mapping[str, float] | None = None,
    stratify: str | None = None,
    group_by: str | None = None,
    seed: int = 0,
    **options: Any,
) -> JobReport:
    """Write the records of shards as other shards: more or fewer, shuffled, in other splits.

    Records are copied as they are, and their CRCs checked. What describes the sources goes along.
    Shards become whole beside their final place, and appear together; what a killed process leaves
    can be resumed. The same sources, options and seeds give the same bytes, on any number of
    workers.

    Args:
        sources: a dataset's directory, a shard or a pattern; or several. The same split of several
            is one.
        dataset: the directory to write to.
        shuffle: the seed of a permutation of all records of a split; None keeps their order.
        splits: new splits and their share of all records: ``{"train": 0.8, "test": 0.2}``. None
            keeps those of the sources. Copies of a record go into one split.
        stratify: a feature; of each of its values, each split gets its share, to rounding.
        group_by: a feature; records that have the same value go into one split.
        seed: decides the splits.
        **options: any of these, with what they are without being given.

            shards: how many shards each split gets; else it goes by shard_size.
            shard_size ("128MiB"): of a shard before compression, at most, to one record.
            compression ("none"): of the shards, "gzip" or "zlib". TFDS reads none only.
            name: the dataset's name, as TFDS takes it; else made from the directory's path.
            version: its version, X.Y.Z; else taken from the path, or 1.0.0.
            on_corrupt ("skip"): leave damaged records out and list them; "stop" ends the work.
            workers: how many processes at most; the cores.
            existing ("refuse"): what becomes of a dataset that is there already: "overwrite"
            replaces it if tfrtool wrote it, "resume" goes on with an interrupted job.
            dry_run (False): whether only the plan is reported, and nothing is written.
            on_progress: called now and then, from the thread that called this.

    Raises:
        UsageError: an option makes no sense, or the directory may not be written to.
        DatasetError: a source has no records; or class names of several sources differ.
        ShardError: a source can't be read.
        CorruptShardError: a record is damaged, and damage is to stop the work.
        WriteError: something can't be written.
    """
    rules: dict[str, Any] = {}
    select: Select = all_records
    check_numbers(None, None, seed)
    if stratify is not None and group_by is not None:
        raise UsageError("stratify and group_by exclude each other")
    if splits:
        check_splits(splits, "records")
        shares = [f"{split}={share!r}" for split, share in splits.items()]
        rules = {"splits": shares, "stratify": stratify, "group_by": group_by, "seed": seed}
        select = partial(_split, splits=splits, stratify=stratify, group_by=group_by, seed=seed)
    elif stratify is not None or group_by is not None:
        raise UsageError(
            "stratify and group_by say how records are split",
            hint="--split says which there are to be",
        )
    return copy_records("reshard", sources, dataset, rules, select, shuffle, **options)


def _draw(
    batch: Batch, columns: Columns, stratify: str | None, group_by: str | None, seed: int
) -> Marks:
    """Draw a number for each record; and one for its label, where splits are stratified."""
    rows = np.zeros(len(batch.records), _ROW)
    rows["mark"] = KEPT
    keys = [payload_key(one.payload_crc, len(one.payload)) for one in batch.records]
    rows["draw"] = splitmix64(np.array(keys, np.uint64) ^ seed_word(seed))
    feature = stratify or group_by
    if feature is not None:
        key = seed.to_bytes(8, "little", signed=True)
        for row, value in zip(rows, values_of(batch.table, columns, feature), strict=True):
            digest = blake2b(repr(value).encode(), digest_size=8, key=key).digest()
            if stratify or value is not None:  # else the record is a group of its own
                row["stratum" if stratify else "draw"] = int.from_bytes(digest, "little")
    return rows


def _split(
    pool: RecordPool,
    _: Mapping[str, int],
    settings: JobSettings,
    splits: Mapping[str, float],
    stratify: str | None,
    group_by: str | None,
    seed: int,
) -> Selection:
    """Draw the split of each record."""
    feature = stratify or group_by
    columns = UNPARSED if feature is None else columns_of(pool, settings).select([feature])
    look = partial(_draw, columns=columns, stratify=stratify, group_by=group_by, seed=seed)
    marks, met = mark_records(pool, look, _ROW, columns, settings)
    ends = list(accumulate(list(splits.values())[:-1]))
    if stratify is None:
        bounds = np.array([round(end * 2**64) for end in ends], np.uint64)
        codes = np.searchsorted(bounds, marks["draw"], side="right").astype(np.uint16)
    else:
        codes = _stratified(marks, ends)
    codes += 1
    codes[marks["mark"] != KEPT] = 0
    for split, count in zip(splits, np.bincount(codes, minlength=len(splits) + 1)[1:], strict=True):
        if not count:
            raise WriteError(
                f"split {split!r} would get none of the records",
                hint="give it a larger fraction, or another seed",
            )
    return list(splits), codes, met


def _stratified(marks: Marks, ends: list[float]) -> NDArray[np.uint16]:
    """Return the number of the split of each record: of each stratum, those of the lowest draws.

    Copies of a record, which have the same draw, stay together.
    """
    draws, strata = np.array(marks["draw"]), np.array(marks["stratum"])
    order = np.lexsort((draws, strata))
    draws, strata = draws[order], strata[order]
    codes = np.zeros(len(order), np.uint16)
    starts = np.flatnonzero(np.concatenate([[True], strata[1:] != strata[:-1]])).tolist()
    for start, stop in zip(starts, [*starts[1:], len(order)], strict=True):
        for end in ends:
            at = start + round((stop - start) * end)
            if start < at < stop:
                at = start + int(np.searchsorted(draws[start:stop], draws[at - 1], side="right"))
            codes[at:stop] += 1
    found = np.zeros(len(order), np.uint16)
    found[order] = codes
    return found
