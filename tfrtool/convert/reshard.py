"""The verb: shards become other shards; records are copied unparsed."""

import os
from collections.abc import Mapping
from functools import partial
from typing import Any

from tfrtool.convert.copying import Select, all_records, copy_records
from tfrtool.convert.pipeline.job_report import JobReport
from tfrtool.errors import UsageError
from tfrtool.storage.locations import Paths
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
    """Write the records of shards as other shards: more or fewer, shuffled, in other splits.

    Records are copied as they are, and their CRCs checked. What describes the sources goes along.
    Shards become whole beside their final place, and appear together; what a killed process leaves
    can be resumed. The same sources, options and seeds give the same bytes, on any number of
    workers.

    Args:
        sources: a dataset's directory, a shard or a pattern; or several. The same split of several
            is one.
        dataset: the directory to write to.
        shuffle: whether the records of each split are put in a random order.
        splits: new splits and their share of all records: ``{"train": 0.8, "test": 0.2}``. None
            keeps those of the sources. Copies of a record go into one split.
        stratify: a feature; of each of its values, each split gets its share, to rounding.
        group_by: a feature; records that have the same value go into one split.
        seed: random seed of ``shuffle`` and ``splits``.
        **options: any of these, with what they are without being given.

            shards: how many shards each split gets; else it goes by shard_size.
            shard_size ("128MiB"): the largest size of a shard before compression. No shard is
                larger by more than one record, and the shards of a split are even.
            compression ("none"): of the shards, "gzip" or "zlib". TFDS reads none only.
            allow_mixed (False): whether sources are merged though their records have other
                features, or features of other types.
            name: the dataset's name, as TFDS takes it; else made from the directory's path.
            version: its version, X.Y.Z; else taken from the path, or 1.0.0.
            on_error ("skip"): leave damaged records out and list them; "stop" ends the work.
            workers: how many processes at most; the cores.
            engine ("local"): where they run; "ray" for the nodes of a cluster.
            engine_address: of the cluster, HOST:PORT; else RAY_ADDRESS has it.
            existing ("refuse"): what becomes of a dataset that is there already: "overwrite"
            replaces it if tfrtool wrote it, "resume" goes on with an interrupted job.
            dry_run (False): whether only the plan is reported, and nothing is written.
            on_progress: called now and then, from the thread that called this.

    Raises:
        UsageError: an option makes no sense, or the directory may not be written to.
        DatasetError: a source has no records; or class names of several sources differ.
        SchemaError: records of several sources have other features.
        ShardError: a source can't be read.
        CorruptShardError: a record is damaged, and damage is to stop the work.
        WriteError: something can't be written.
    """
    rules: dict[str, Any] = {}
    select: Select = all_records
    check_numbers(None, None, seed)
    if not isinstance(shuffle, bool):
        raise UsageError(f"shuffle must be True or False, got {shuffle!r}; the seed is seed=N")
    if stratify is not None and group_by is not None:
        raise UsageError("--stratify and --group-by cannot be used together")
    check_splits(splits or {}, "records", stratify or group_by)
    if splits:
        shares = [f"{split}={share!r}" for split, share in splits.items()]
        rules = {"splits": shares, "stratify": stratify, "group_by": group_by, "seed": seed}
        from tfrtool.convert.drawn_splits import draw_splits  # Arrow takes 35 MB

        select = partial(
            draw_splits, splits=splits, stratify=stratify, group_by=group_by, seed=seed
        )
    return copy_records(
        "reshard", sources, dataset, rules, select, seed if shuffle else None, **options
    )
