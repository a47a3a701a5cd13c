"""The verb: shards become other shards; records are copied unparsed."""

import os
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from hashlib import blake2b
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfrtool.convert.convert_options import ReshardOptions
from tfrtool.convert.copy_records import Select, Selection, copy_records
from tfrtool.convert.source_records import OnFault, Rows, SourceRecords
from tfrtool.declare import takes
from tfrtool.errors import WriteError
from tfrtool.examples.dataset_files import DatasetFiles
from tfrtool.records.framing import Record
from tfrtool.records.tally import payload_key, seed_word, splitmix64
from tfrtool.storage.arguments import Paths
from tfrtool.writing.job_report import JobReport
from tfrtool.writing.run_options import JobSettings

_MARKS = [("draw", "u8"), ("stratum", "u8"), ("known", "u1")]


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


def _draw(
    path: Path,  # noqa: ARG001
    records: list[Record],
    report: OnFault,  # noqa: ARG001
    feature: str | None,
    group: bool,
    seed: int,
) -> Iterator[tuple[list[Record], Rows]]:
    """Draw a number for each record or group; and one for its value, if splits are stratified."""
    rows = np.zeros(len(records), _MARKS)
    keys = [payload_key(one.payload_crc, len(one.payload)) for one in records]
    rows["draw"] = splitmix64(np.array(keys, np.uint64) ^ seed_word(seed))
    if feature is not None:
        from tfrtool.convert.feature_values import feature_values  # Arrow takes 35 MB

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
