"""The verb: shards become other shards; records are copied unparsed."""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from itertools import accumulate
from typing import Any

import numpy as np

from tfrtool.convert.copying import CopyJob, Selection, SelectionInput
from tfrtool.convert.pipeline.job_report import Faults, JobReport
from tfrtool.convert.pipeline.record_marks import KEPT, Decoding, Marks, mark_records, with_columns
from tfrtool.convert.pipeline.record_sources import SourceShard
from tfrtool.convert.pipeline.segments import Frames
from tfrtool.convert.pipeline.tally import seed_word, splitmix64
from tfrtool.errors import UsageError, WriteError
from tfrtool.examples.arrow.columns import Columns
from tfrtool.storage.progress import OnProgress, silent
from tfrtool.writing.write_options import check_numbers, check_splits


def reshard(
    sources: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    dataset: str | os.PathLike[str],
    *,
    shards: int | None = None,
    shard_size: int | str | None = None,
    shuffle: int | None = None,
    splits: Mapping[str, float] | None = None,
    stratify: str | None = None,
    group_by: str | None = None,
    seed: int = 0,
    compression: str = "none",
    name: str | None = None,
    version: str | None = None,
    on_corrupt: str = "skip",
    workers: int | None = None,
    existing: str = "refuse",
    dry_run: bool = False,
    on_progress: OnProgress = silent,
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
        shards: how many shards each split gets; None goes by ``shard_size``.
        shard_size: of a shard before compression, at most, to one record; None is 128 MiB.
        shuffle: the seed of a permutation of all records of a split; None keeps their order.
        splits: new splits and their share of all records: ``{"train": 0.8, "test": 0.2}``. None
            keeps those of the sources. Copies of a record go into one split.
        stratify: a feature; of each of its values, each split gets its share, to rounding.
        group_by: a feature; records that have the same value go into one split.
        seed: decides the splits.
        compression: of the shards: "none", "gzip" or "zlib". TFDS reads none only.
        name: the dataset's name, as TFDS takes it; None makes one from the directory's path.
        version: its version, X.Y.Z; None takes it from the path, or 1.0.0.
        on_corrupt: "skip" leaves damaged records out and lists them, "stop" ends the work.
        workers: how many processes at most; None takes the cores.
        existing: what becomes of a dataset that is there already: "refuse" leaves it, "overwrite"
            replaces it if tfrtool wrote it, "resume" goes on with an interrupted job.
        dry_run: whether only the plan is reported, and nothing is written.
        on_progress: called now and then, from the thread that called this.

    Raises:
        UsageError: an option makes no sense, or the directory may not be written to.
        DatasetError: a source has no records; or class names of several sources differ.
        ShardError: a source can't be read.
        CorruptShardError: a record is damaged, and damage is to stop the work.
        WriteError: something can't be written.
    """
    rules: dict[str, Any] = {}
    select = None
    check_numbers(None, None, seed)
    if stratify is not None and group_by is not None:
        raise UsageError("stratify and group_by exclude each other")
    if splits:
        check_splits(splits, "records")
        shares = [f"{split}={share!r}" for split, share in splits.items()]
        rules = {"splits": shares, "stratify": stratify, "group_by": group_by, "seed": seed}
        select = _Splitter(splits=splits, stratify=stratify, group_by=group_by, seed=seed)
    elif stratify is not None or group_by is not None:
        raise UsageError(
            "stratify and group_by say how records are split",
            hint="--split says which there are to be",
        )
    return CopyJob(
        command="reshard",
        sources=sources,
        dataset=dataset,
        name=name,
        version=version,
        shards=shards,
        shard_size=shard_size,
        compression=compression,
        on_corrupt=on_corrupt,
        workers=workers,
        existing=existing,
        dry_run=dry_run,
        on_progress=on_progress,
        rules=rules,
    ).run(select, shuffle)


@dataclass(frozen=True, slots=True, kw_only=True)
class _SplitLens:
    """Draws a number for each record; and one for its label, where splits are stratified."""

    seed: int
    decoding: Decoding | None = None
    grouped: bool = False

    @property
    def dtype(self) -> "np.dtype[Any]":
        """Of a row."""
        return np.dtype([("mark", "u1"), ("draw", "u8"), ("stratum", "u8")])

    def look(self, shard: SourceShard, frames: Frames, faults: Faults) -> Marks:
        """Return a row for each record."""
        rows = np.zeros(len(frames.keys), self.dtype)
        rows["mark"] = KEPT
        rows["draw"] = splitmix64(np.array(frames.keys, np.uint64) ^ seed_word(self.seed))
        if self.decoding is None:
            return rows
        rows["mark"] = 0
        for places, table in self.decoding.rows(shard, frames, faults):
            values = self.decoding.values(table)
            words = [_word(value, self.seed) for value in values]
            rows["mark"][places] = KEPT
            if not self.grouped:
                rows["stratum"][places] = words
                continue
            for place, word, value in zip(places, words, values, strict=True):
                if value is not None:  # else the record is a group of its own
                    rows["draw"][place] = word
        return rows


def _word(value: object, seed: int) -> int:
    """Return 64 bits that stand for a value of a feature, however the table holds it."""
    if isinstance(value, dict):
        value = next((some for some in value.values() if some is not None), None)
    told = value if isinstance(value, list) or value is None else [value]
    key = seed.to_bytes(8, "little", signed=True)
    return int.from_bytes(blake2b(repr(told).encode(), digest_size=8, key=key).digest(), "little")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Splitter:
    """Draws splits."""

    splits: Mapping[str, float]
    stratify: str | None
    group_by: str | None
    seed: int

    def __call__(self, given: SelectionInput) -> Selection:
        """Return the records of each split."""
        feature = self.stratify if self.group_by is None else self.group_by

        def mark(decoding: Decoding | None) -> Any:
            lens = _SplitLens(seed=self.seed, decoding=decoding, grouped=self.group_by is not None)
            return mark_records(
                given.pool.shards,
                lens,
                given.scratch,
                workers=given.workers,
                stop=given.stop,
                on_progress=given.on_progress,
            )

        def decode(columns: Columns, certain: bool) -> Any:
            return mark(Decoding(columns=columns.select([feature or ""]), certain=certain))

        if feature is None:
            marks, read, faults = mark(None)
        else:
            marks, read, faults = with_columns(given.pool.shards, given.workers, decode)
        ends = list(accumulate(list(self.splits.values())[:-1]))
        codes = np.zeros(len(marks), np.uint8)
        if self.stratify is None:
            bounds = np.array([round(end * 2**64) for end in ends], np.uint64)
            codes[:] = np.searchsorted(bounds, marks["draw"], side="right")
        else:
            codes[:] = _stratified(marks, ends)
        orders = {}
        for code, split in enumerate(self.splits):
            mine = codes == code
            mine &= marks["mark"] == KEPT
            orders[split] = given.order(split, mine)
            if not orders[split].count:
                raise WriteError(
                    f"split {split!r} would get none of the records",
                    hint="give it a larger fraction, or another seed",
                )
        return Selection(orders=orders, read=read, faults=faults)


def _stratified(marks: Marks, ends: list[float]) -> Marks:
    """Return the number of the split of each record: of each stratum, those of the lowest draws.

    Copies of a record, which have the same draw, stay together.
    """
    draws, strata = np.array(marks["draw"]), np.array(marks["stratum"])
    order = np.lexsort((draws, strata))
    draws, strata = draws[order], strata[order]
    codes = np.zeros(len(order), np.uint8)
    starts = np.flatnonzero(np.concatenate([[True], strata[1:] != strata[:-1]])).tolist()
    for start, stop in zip(starts, [*starts[1:], len(order)], strict=True):
        for end in ends:
            at = start + round((stop - start) * end)
            if start < at < stop:
                at = start + int(np.searchsorted(draws[start:stop], draws[at - 1], side="right"))
            codes[at:stop] += 1
    found = np.zeros(len(order), np.uint8)
    found[order] = codes
    return found
