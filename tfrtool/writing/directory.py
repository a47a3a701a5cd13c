"""A dataset's directory: nothing half-written is ever in it under a final name."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tfrtool.errors import WriteError, os_reason
from tfrtool.examples.tfds_metadata import DATASET_INFO, FEATURES, LABELS, REPORT
from tfrtool.records.names import ShardName
from tfrtool.storage.appearing import new_file
from tfrtool.storage.json_files import read_json
from tfrtool.storage.publishing import PUBLISHING, publish_files

__all__ = ["METADATA", "REPORT", "STAGING", "is_ours", "listed_shards", "publish", "read_report"]

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

    Raises:
        WriteError: the disk is full, or fails otherwise; what was there before still is.
    """
    try:
        for name, text in metadata.items():
            with new_file(staging / name) as file:
                file.write(text.encode())
        new = [*map(str, shards), *sorted(metadata, key=METADATA.index)]
        before = {*listed_shards(read_report(dataset)), *new}.difference(METADATA)
        old = [name for name in (*reversed(METADATA), *sorted(before)) if _is_file(dataset / name)]
        publish_files(staging, new, old)
    except OSError as error:
        left = os.path.lexists(dataset / PUBLISHING)
        raise WriteError(
            f"can't be written: {os_reason(error)}",
            path=error.filename or dataset,
            hint="tfrtool write --resume ends what was begun" if left else None,
        ) from error


def read_report(dataset: Path) -> Mapping[str, Any]:
    """Return what an earlier write reported; nothing where that can't be read."""
    try:
        report = read_json(dataset / REPORT)
    except (OSError, ValueError):
        return {}
    return report if isinstance(report, dict) else {}


def listed_shards(report: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Return what a report says of each shard, by its name."""
    try:
        shards = [shard for split in report["splits"].values() for shard in split["shards"]]
        # It may have been edited: only what is a shard's name, and so no path, is believed.
        return {shard["path"]: shard for shard in shards if ShardName.parse(shard["path"])}
    except (KeyError, TypeError, AttributeError):
        return {}


def _is_file(path: Path) -> bool:
    return os.path.lexists(path) and (path.is_symlink() or not path.is_dir())
