"""What an earlier write has done, held against what is to be done now."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tfrtool.errors import UsageError
from tfrtool.records.names import ShardName
from tfrtool.storage.opening import file_sha256
from tfrtool.writing.cuts import Cut, cut_as_before
from tfrtool.writing.directory import METADATA, REPORT, listed_shards, read_report
from tfrtool.writing.write_options import WriteOptions
from tfrtool.writing.write_plan import ShardResult, ShardTask

__all__ = ["complete_results", "differences", "noted_result"]


def complete_results(
    planned: Callable[[Cut], Sequence[ShardTask]], plan: str, options: WriteOptions, *, begun: bool
) -> list[ShardResult] | None:
    """Return the results of a write that is complete, and of just these tasks.

    Args:
        planned: gives the shards that are to be in the dataset's directory, cut as they are there.
        plan: the digest of those that were planned first, as `plan_digest` has it.
        options: what they are of.
        begun: whether an interrupted write is there to go on with.

    Returns:
        The shards as they are; None if a write is yet to be begun, or to be gone on with.

    Raises:
        UsageError: another dataset is complete.
    """
    dataset = options.dataset
    if not os.path.lexists(dataset / REPORT):
        return None
    report = read_report(dataset)
    listed = listed_shards(report) if report.get("plan") == plan else {}
    names = sorted(filter(None, map(ShardName.parse, listed)), key=lambda name: name.index)
    records: dict[str, list[Any]] = {name.split: [] for name in names}
    for name in names:
        records[name.split].append(listed[str(name)].get("records"))
    tasks = planned(cut_as_before(records))
    results = {
        str(task.name): noted_result(
            task, listed.get(str(task.name), {}), dataset / str(task.name), follow=True
        )
        for task in tasks
    }
    amiss = [name for name in METADATA if not (dataset / name).is_file()]
    amiss += [name for name, result in results.items() if result is None]
    if not amiss:
        return [result for result in results.values() if result is not None]
    if begun:
        return None
    if listed:
        raise UsageError(
            "is gone, or not what was written",
            path=dataset / amiss[0],
            hint="--overwrite writes the dataset anew",
        )
    raise UsageError(
        f"is complete, and was written with {differences(report.get('options'), options)}",
        path=dataset,
        hint="--overwrite replaces it",
    )


def differences(before: object, options: WriteOptions) -> str:
    """Return what an earlier write was given that is not what a write is given now.

    Args:
        before: its options, as `WriteOptions.to_json` tells them.
        options: those of now.
    """
    if not isinstance(before, dict) or not before:
        return "options that are not known, or other images"
    now = options.to_json()
    changed = [
        f"{key.replace('_', ' ')} {json.dumps(before[key])}, not {json.dumps(now[key])}"
        for key in now
        if key in before and before[key] != now[key]
    ]
    return "; ".join(changed) or "other images"


def noted_result(
    task: ShardTask, noted: Mapping[str, Any], path: Path, *, follow: bool
) -> ShardResult | None:
    """Return what was noted of a task's shard; None if that is not the file that is there.

    Args:
        task: what the shard was to be.
        noted: its sizes and its digest.
        path: where it is.
        follow: whether that may be a link.
    """
    try:
        result = ShardResult(
            name=task.name,
            records=int(noted["records"]),
            bytes=int(noted["bytes"]),
            payload_bytes=int(noted["payload_bytes"]),
            sha256=str(noted["sha256"]),
            labels=dict(sorted(Counter(item.label for item in task.items).items())),
        )
        if path.stat(follow_symlinks=follow).st_size != result.bytes:
            return None
        digest = file_sha256(path, follow=follow)
    except (OSError, ValueError, KeyError, TypeError, OverflowError):
        return None
    return result if digest == result.sha256 else None
