"""Folders of a web server, which can't be listed: a dataset's metadata names its files."""

import errno
import json
from collections.abc import Mapping
from typing import Any

from tfrtool.storage.limits import MAX_METADATA_BYTES, MAX_SHARDS
from tfrtool.storage.stores import Store

_INFO = "dataset_info.json"
_TEMPLATE = "{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}"


def named_files(store: Store, prefix: str) -> tuple[dict[str, int], list[str]]:
    """Return what `Store.list_folder` does, of a folder whose dataset_info.json names its shards.

    Sizes are not known. It is an `OSError` if there is no such file.
    """
    url = store.url_of(prefix)
    try:
        text = store.read_range(f"{prefix}/{_INFO}".lstrip("/"), 0, MAX_METADATA_BYTES)
    except FileNotFoundError:
        what = f"web servers give no lists of files, and there is no {_INFO} here that names them"
        raise FileNotFoundError(errno.ENOENT, what, url) from None
    try:
        names = [*_names(json.loads(text))]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise OSError(errno.EINVAL, f"its {_INFO} names no shards", url) from None
    files = dict.fromkeys([_INFO, *(name for name in names if "/" not in name)], -1)
    return files, sorted({name.partition("/")[0] for name in names if "/" in name})


def _names(info: Mapping[str, Any]) -> list[str]:
    names: list[str] = []
    for split in info["splits"]:
        count = len(split["shardLengths"])
        if len(names) + count > MAX_SHARDS:
            raise ValueError
        template = str(split.get("filepathTemplate") or _TEMPLATE).removeprefix("{DIRPATH}/")
        known = {
            "{DATASET}": str(info["name"]),
            "{SPLIT}": str(split["name"]),
            "{FILEFORMAT}": str(info.get("fileFormat") or "tfrecord"),
            "{SHARD_COUNT}": f"{count:05d}",
        }
        for index in range(count):
            name = template
            numbers = {
                "{SHARD_X_OF_Y}": f"{index:05d}-of-{count:05d}",
                "{SHARD_INDEX}": f"{index:05d}",
            }
            for word, value in {**known, **numbers}.items():
                name = name.replace(word, value)
            if name.startswith("/") or ".." in name.split("/"):
                raise ValueError
            names.append(name)
    return names


def is_named(store: Store, prefix: str) -> bool:
    """Return whether there is metadata in a folder, and no page that stands for what is missing."""
    try:
        head = store.read_range(f"{prefix}/{_INFO}".lstrip("/"), 0, 64)
    except FileNotFoundError:
        return False
    return head.lstrip().startswith(b"{")
