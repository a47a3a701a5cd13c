"""A dataset's directory: nothing half-written is ever in it under a final name."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tfrtool.errors import WriteError, os_reason
from tfrtool.examples.tfds_metadata import DATASET_INFO, FEATURES, LABELS
from tfrtool.examples.written import REPORT
from tfrtool.records.names import ShardName

__all__ = ["REPORT", "STAGING", "is_ours", "publish"]

STAGING = ".tfrtool-incomplete"
"""The folder in a dataset's directory that shards are written in, until all of them are whole."""

_METADATA = (FEATURES, DATASET_INFO, LABELS, REPORT)


def is_ours(name: str) -> bool:
    """Return whether a file of this name is one that a write leaves."""
    return name in _METADATA or ShardName.parse(name) is not None


def publish(
    dataset: Path, staging: Path, shards: list[ShardName], metadata: Mapping[str, str]
) -> None:
    """Give whole shards their final names, drop those of a dataset before, and add the metadata.

    Metadata comes last and the report the very last: where it is new, all the rest is. Where
    nothing was before, an error or Ctrl-C takes back what was published.

    Raises:
        WriteError: the disk is full, or fails otherwise.
    """
    fresh = not (dataset / REPORT).exists()
    published: list[Path] = []
    try:
        for name, text in metadata.items():
            _write_synced(staging / name, text)
        stale = _shards_before(dataset) - {str(shard) for shard in shards}
        for name in (FEATURES, DATASET_INFO, LABELS):
            (dataset / name).unlink(missing_ok=True)
        for name in (*map(str, shards), *sorted(metadata, key=_METADATA.index)):
            published.append(dataset / name)
            os.replace(staging / name, dataset / name)  # noqa: PTH105
        for name in stale:
            (dataset / name).unlink(missing_ok=True)
        _sync_directory(dataset)
    except BaseException as error:
        if fresh:
            for path in published:
                path.unlink(missing_ok=True)
        if not isinstance(error, OSError):
            raise
        raise WriteError(
            f"can't be written: {os_reason(error)}", path=error.filename or dataset
        ) from error


def _shards_before(dataset: Path) -> set[str]:
    """Return the names of the shards that the report of an earlier write lists."""
    try:
        report: Any = json.loads((dataset / REPORT).read_bytes())
        names = {shard["path"] for split in report["splits"].values() for shard in split["shards"]}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return set()
    # The report may have been edited: only what is a shard's name, and so no path, is believed.
    return {name for name in names if isinstance(name, str) and ShardName.parse(name) is not None}


def _write_synced(path: Path, text: str) -> None:
    with path.open("w", encoding="utf-8", newline="\n") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def _sync_directory(directory: Path) -> None:
    if os.name == "nt":
        return  # there, a directory can't be opened
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
