"""A write on a cluster: parts of the images are looked at, and shards written, on its nodes."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import pairwise

from tfrtool.engines.engine import Engine
from tfrtool.engines.pool import map_shards
from tfrtool.storage.progress import OnProgress, Progress, no_progress
from tfrtool.writing.image_audit import Audit, BadImage, Finding, batches
from tfrtool.writing.job_report import ShardReport
from tfrtool.writing.publish import Staging
from tfrtool.writing.write_plan import PlannedShard

_BATCHES = 16
"""Batches of images that are looked at in a task: some seconds."""


def look_at_parts(audit: Audit, engine: Engine, on_progress: OnProgress) -> None:
    """Look at all images that nobody has looked at yet, as `Audit.look_at_all` does."""
    total, sizes = len(audit.unknown), (item.bytes for item in audit.source.items)
    cuts = [some.start for number, some in enumerate(batches(sizes)) if number % _BATCHES == 0]
    parts = [range(start, end) for start, end in pairwise([*cuts, total])]
    parts = [part for part in parts if any(map(audit.unknown.__getitem__, part))]
    tasks = map(audit.part, parts)  # as they are asked for: each holds items of the source
    done = total - sum(map(len, parts))
    for part, found in zip(parts, map_shards(_look, tasks, engine), strict=True):
        audit.adopt(part, found)
        done += len(part)
        on_progress(Progress(what="checking", done=done, total=total, unit="images"))


def _look(part: Audit) -> list[Finding | None]:
    part.look_at_all(1, no_progress)
    return part.findings()


def write_spread(
    shards: Sequence[PlannedShard], staging: Staging, engine: Engine
) -> Iterator[tuple[PlannedShard, ShardReport]]:
    """Yield shards as nodes have written them, and noted that; `BadImage` as `write_shards`."""
    from tfrtool.writing.shard_writer import noted

    write = partial(_write, staging=staging)
    for at, report, found in map_shards(write, enumerate(shards), engine, in_order=False):
        shards[at].audit.adopt(shards[at].positions, found)
        if report is None:
            raise BadImage
        staging.note(noted(shards[at], report))
        yield shards[at], report


def _write(
    task: tuple[int, PlannedShard], staging: Staging
) -> tuple[int, ShardReport | None, list[Finding | None]]:
    from tfrtool.writing.shard_writer import write_shard

    at, shard = task
    report = None
    with suppress(BadImage), staging.scratch_dir() as folder:
        report = write_shard(shard, folder)
        etag = staging.upload(folder / report.path)
        report = replace(report, etag=etag) if etag else report
    return at, report, shard.audit.findings()
