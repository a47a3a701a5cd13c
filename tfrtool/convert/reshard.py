"""The verb: shards become other shards; records are copied unparsed."""

import os
from collections.abc import Mapping
from functools import partial
from typing import Any

from tfrtool.convert.pipeline.record_copies import Select, copy_records
from tfrtool.errors import UsageError
from tfrtool.storage.arguments import Paths
from tfrtool.writing.job_report import JobReport
from tfrtool.writing.write_options import check_numbers, check_splits


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
        from tfrtool.convert.pipeline.drawn_splits import draw_splits  # Arrow takes 35 MB

        select = partial(
            draw_splits, splits=splits, stratify=stratify, group_by=group_by, seed=seed
        )
    return copy_records(
        "reshard", sources, dataset, rules, select, seed if shuffle else None, **options
    )
