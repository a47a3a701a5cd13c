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

from tfrtool.convert.copy_records import CopySettings, Select, Selection, copy_records
from tfrtool.convert.source_records import OnFault, Rows, SourceRecords
from tfrtool.errors import UsageError, WriteError
from tfrtool.examples.dataset_files import DatasetFiles
from tfrtool.records.framing import Record
from tfrtool.records.tally import payload_key, seed_word, splitmix64
from tfrtool.storage.arguments import Paths
from tfrtool.writing.job_report import JobReport
from tfrtool.writing.write_options import check_numbers, check_splits

_MARKS = [("draw", "u8"), ("stratum", "u8"), ("known", "u1")]


def reshard(
    sources: Paths,
    dataset: str | os.PathLike[str],
    *,
    shuffle: bool = False,
    splits: Mapping[str, float] | None = None,
    stratify: str | None = None,
    group_by: str | None = None,
    seed: int = 0,
    **options: Any,
) -> JobReport:
    """Rewrite the records of shards into new shards: another number, order or split.

    Records are copied unchanged, their CRCs are checked, and metadata is carried over. Shards are
    written to temporary files and moved into place together; a run whose process was killed can be
    resumed. The same sources, options and seed give the same bytes, with any number of workers.

    Args:
        sources: dataset directory, shard or glob pattern; or several. Splits with the same name are
            merged.
        dataset: directory to write to.
        shuffle: whether to put the records of each split in random order.
        splits: new splits and their fractions of all records, such as
            ``{"train": 0.8, "test": 0.2}``. None keeps the splits of the sources. Exact duplicates
            go into the same split.
        stratify: feature whose values are divided proportionally among the splits, up to rounding.
        group_by: feature that groups records: those with the same value go into the same split.
        seed: random seed for ``shuffle`` and ``splits``.
        **options: any of the following, with defaults in parentheses.

            - ``shards``: number of shards per split; by default ``shard_size`` decides.
            - ``shard_size`` ("128MiB"): maximum size of a shard before compression. A shard exceeds
              it by at most one record, and the shards of a split have about the same size.
            - ``compression`` ("none"): or "gzip", "zlib". TFDS only reads uncompressed shards.
            - ``allow_mixed`` (False): whether to merge sources whose features or feature types
              differ.
            - ``name``: name of the dataset, valid for TFDS; derived from the directory by default.
            - ``version``: version of the dataset, X.Y.Z; taken from the path by default, or 1.0.0.
            - ``on_error`` ("skip"): skip damaged records and list them; "stop" raises an error.
            - ``workers``: maximum number of worker processes; one per core by default.
            - ``engine`` ("local"): or "ray" to run on a Ray cluster.
            - ``engine_address``: address of the cluster, HOST:PORT; RAY_ADDRESS by default.
            - ``existing`` ("refuse"): what to do with an existing dataset: raise an error.
              "overwrite" replaces it if tfrtool wrote it, "resume" continues an interrupted run.
            - ``dry_run`` (False): whether to return the plan without writing anything.
            - ``on_progress``: called regularly, from the calling thread.

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
    check_numbers(None, None, seed)
    if not isinstance(shuffle, bool):
        raise UsageError(f"shuffle must be True or False, got {shuffle!r}; the seed is seed=N")
    if stratify is not None and group_by is not None:
        raise UsageError("--stratify and --group-by cannot be used together")
    check_splits(splits or {}, stratify or group_by)
    if splits:
        shares = [f"{split}={share!r}" for split, share in splits.items()]
        rules = {"splits": shares, "stratify": stratify, "group_by": group_by, "seed": seed}
        select = partial(
            _draw_splits, splits=splits, stratify=stratify, group_by=group_by, seed=seed
        )
    return copy_records(
        "reshard", sources, dataset, rules, select, seed if shuffle else None, **options
    )


def _draw_splits(
    files: DatasetFiles,
    _: CopySettings,
    scan: Callable[..., SourceRecords],
    splits: Mapping[str, float],
    stratify: str | None,
    group_by: str | None,
    seed: int,
) -> Selection:
    """Draw the split of each record, by its bytes or by a feature of it."""
    feature = stratify or group_by
    draw = partial(_draw, feature=feature, group=group_by is not None, seed=seed)
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
