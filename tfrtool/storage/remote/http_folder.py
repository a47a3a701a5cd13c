"""Folders of a web server, which can't be listed: a dataset's metadata names its files."""

import errno
import json
from collections.abc import Iterator, Mapping
from typing import Any

from tfrtool.storage.limits import MAX_METADATA_BYTES, MAX_SHARDS
from tfrtool.storage.stores import Status, Store

_INFO = "dataset_info.json"
_TEMPLATE = "{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}"


def named_files(store: Store, prefix: str) -> tuple[list[tuple[str, Status]], list[str]]:
    """Return the files and folders that a folder's dataset_info.json names, as `Store.level` does.

    Their sizes are unknown. It is an `OSError` if there is no such file.
    """
    try:
        text = store.read_range(f"{prefix}/{_INFO}".lstrip("/"), 0, MAX_METADATA_BYTES)
        names = [*_names(json.loads(text))]
    except FileNotFoundError:
        what = f"a web server can't list files, and there is no {_INFO} that names them"
        raise FileNotFoundError(errno.ENOENT, what, store.url_of(prefix)) from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        what = f"its {_INFO} lists no shards"
        raise OSError(errno.EINVAL, what, store.url_of(prefix)) from None
    start = f"{prefix}/" if prefix else ""
    files = dict.fromkeys([_INFO, *(name for name in names if "/" not in name)])
    folders = sorted({name.partition("/")[0] for name in names if "/" in name})
    return [(start + name, Status(-1)) for name in files], [start + name for name in folders]


def _names(info: Mapping[str, Any]) -> Iterator[str]:
    left = MAX_SHARDS
    for split in info["splits"]:
        count = len(split["shardLengths"])
        left -= count
        if left < 0:
            raise ValueError
        template = str(split.get("filepathTemplate") or _TEMPLATE).removeprefix("{DIRPATH}/")
        for index in range(count):
            name = template
            for word, value in {
                "{DATASET}": info["name"],
                "{SPLIT}": split["name"],
                "{FILEFORMAT}": info.get("fileFormat") or "tfrecord",
                "{SHARD_COUNT}": f"{count:05d}",
                "{SHARD_X_OF_Y}": f"{index:05d}-of-{count:05d}",
                "{SHARD_INDEX}": f"{index:05d}",
            }.items():
                name = name.replace(word, str(value))
            yield name
