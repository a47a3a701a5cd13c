"""A dataset's directory: nothing half-written is ever in it under a final name."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tfrtool.errors import UsageError, WriteError, os_reason
from tfrtool.examples.tfds_metadata import DATASET_INFO, FEATURES, LABELS, REPORT
from tfrtool.records.shard_sets import ShardName
from tfrtool.storage.appearing import new_file
from tfrtool.storage.json_files import read_json
from tfrtool.storage.opening import file_sha256
from tfrtool.storage.publishing import PUBLISHING, publish_files
from tfrtool.writing.cuts import Cut, cut_as_before
from tfrtool.writing.write_options import WriteOptions
from tfrtool.writing.write_plan import ShardResult, ShardTask

STAGING = ".tfrtool-incomplete"
"""The folder in a dataset's directory that shards are written in, until all of them are whole."""

METADATA = (LABELS, FEATURES, DATASET_INFO, REPORT)
"""In the order in which they appear: TFDS takes a dataset without LABELS for one without names."""


def is_ours(name: str) -> bool:
    """Return whether a file of this name is one that a write leaves."""
    return name in METADATA or ShardName.parse(name) is not None


def publish(
    dataset: Path, staging: Path, shards: Iterable[ShardName], metadata: Mapping[str, str]
) -> None:
    """Give whole shards their final names, with their metadata, in place of what was there.

    If it is a WriteError, what was there before still is.
    """
    try:
        for name, text in metadata.items():
            with new_file(staging / name) as file:
                file.write(text.encode())
        new = [*map(str, shards), *sorted(metadata, key=METADATA.index)]
        before = {*listed_shards(read_object(dataset / REPORT)), *new}.difference(METADATA)
        old = [name for name in (*reversed(METADATA), *sorted(before)) if _is_file(dataset / name)]
        publish_files(staging, new, old)
    except OSError as error:
        left = os.path.lexists(dataset / PUBLISHING)
        raise WriteError(
            f"can't be written: {os_reason(error)}",
            path=error.filename or dataset,
            hint="tfrtool write --resume ends what was begun" if left else None,
        ) from error


def _is_file(path: Path) -> bool:
    return os.path.lexists(path) and (path.is_symlink() or not path.is_dir())


def read_object(path: Path, *, follow: bool = True) -> Mapping[str, Any]:
    """Return the object that an earlier write left as JSON; nothing where that can't be read."""
    try:
        data = read_json(path, follow=follow)
    except (OSError, ValueError):
        return {}
    return data if isinstance(data, dict) else {}


def listed_shards(report: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Return what a report says of each shard, by its name."""
    try:
        shards = [shard for split in report["splits"].values() for shard in split["shards"]]
        # It may have been edited: only what is a shard's name, and so no path, is believed.
        return {shard["path"]: shard for shard in shards if ShardName.parse(shard["path"])}
    except (KeyError, TypeError, AttributeError):
        return {}


def complete_results(
    planned: Callable[[Cut], Sequence[ShardTask]], plan: str, options: WriteOptions, *, begun: bool
) -> list[ShardResult] | None:
    """Return the results of a write that is complete, and of just these tasks.

    ``planned`` gives the tasks, cut as the shards are that are there; ``plan`` is the digest of
    those that were planned first. None if the write is yet to be begun, or to be resumed.

    Raises:
        UsageError: another dataset is complete.
    """
    dataset = options.dataset
    if not os.path.lexists(dataset / REPORT):
        return None
    report = read_object(dataset / REPORT)
    listed = listed_shards(report) if report.get("plan") == plan else {}
    records: dict[str, list[Any]] = {}
    for shard in sorted(filter(None, map(ShardName.parse, listed)), key=lambda one: one.index):
        records.setdefault(shard.split, []).append(listed[str(shard)].get("records"))
    results = []
    amiss = [name for name in METADATA if not (dataset / name).is_file()]
    for task in planned(cut_as_before(records)):
        name = str(task.name)
        result = noted_result(task, listed.get(name, {}), dataset / name, follow=True)
        if result is None:
            amiss.append(name)
        else:
            results.append(result)
    if not amiss:
        return results
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
    """Return what an earlier write was given, as `WriteOptions.to_json` tells it, and not now."""
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
    """Return what was noted of a task's shard; None if that is not the file at ``path``."""
    try:
        result = task.result(
            bytes=int(noted["bytes"]),
            payload_bytes=int(noted["payload_bytes"]),
            sha256=str(noted["sha256"]),
        )
        if path.stat(follow_symlinks=follow).st_size != result.bytes:
            return None
        digest = file_sha256(path, follow=follow)
    except (OSError, ValueError, KeyError, TypeError, OverflowError):
        return None
    return result if digest == result.sha256 else None
