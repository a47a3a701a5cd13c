"""Splits that `reshard` draws: for each record by its bytes, or by a feature of it."""

from collections.abc import Mapping
from functools import partial
from hashlib import blake2b
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from tfrtool.convert.pipeline.record_copies import Selection
from tfrtool.convert.pipeline.record_marks import (
    KEPT,
    UNPARSED,
    RecordFlags,
    columns_of,
    mark_records,
    values_of,
)
from tfrtool.convert.pipeline.record_pool import RecordPool
from tfrtool.errors import WriteError
from tfrtool.examples.arrow.columns import Columns
from tfrtool.inspection.rows.batches import Batch
from tfrtool.records.tally import payload_key, seed_word, splitmix64
from tfrtool.writing.job_settings import JobSettings

_ROW = [("mark", "u1"), ("draw", "u8"), ("stratum", "u8")]


def draw_splits(
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
    draw = partial(_draw, columns=columns, stratify=stratify, group_by=group_by, seed=seed)
    marks, plan = mark_records(pool, draw, _ROW, columns, settings)
    ends = list(accumulate(list(splits.values())[:-1]))
    if stratify is None:
        bounds = np.array([round(end * 2**64) for end in ends], np.uint64)
        codes = np.searchsorted(bounds, marks["draw"], side="right").astype(np.uint16)
    else:
        codes = _stratify(marks, ends)
    codes += 1
    codes[marks["mark"] != KEPT] = 0
    for split, count in zip(splits, np.bincount(codes, minlength=len(splits) + 1)[1:], strict=True):
        if not count:
            raise WriteError(
                f"split {split!r} would be empty",
                hint="give it a larger fraction, or use another --seed",
            )
    return Selection(list(splits), codes, plan)


def _draw(
    batch: Batch, columns: Columns, stratify: str | None, group_by: str | None, seed: int
) -> RecordFlags:
    """Draw a number for each record; and one for its value, if splits are stratified."""
    rows = np.zeros(len(batch.records), _ROW)
    rows["mark"] = KEPT
    keys = [payload_key(one.payload_crc, len(one.payload)) for one in batch.records]
    rows["draw"] = splitmix64(np.array(keys, np.uint64) ^ seed_word(seed))
    feature = stratify or group_by
    if feature is not None:
        key = seed.to_bytes(8, "little", signed=True)
        for row, value in zip(rows, values_of(batch.table, columns, feature), strict=True):
            digest = blake2b(repr(value).encode(), digest_size=8, key=key).digest()
            if stratify or value is not None:  # a record without a value is its own group
                row["stratum" if stratify else "draw"] = int.from_bytes(digest, "little")
    return rows


def _stratify(marks: RecordFlags, ends: list[float]) -> NDArray[np.uint16]:
    """Return the number of the split of each record: in each stratum, the lowest draws come first.

    Copies of a record have the same draw, and stay together.
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
    by_record = np.zeros(len(order), np.uint16)
    by_record[order] = codes
    return by_record
