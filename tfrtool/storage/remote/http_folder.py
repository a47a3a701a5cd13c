"""Folders of a web server, which can't be listed: a dataset's metadata names its files."""

import errno
import json
from collections.abc import Iterator, Mapping
from typing import Any

from tfrtool.storage.limits import MAX_METADATA_BYTES, MAX_SHARDS
from tfrtool.storage.stores import Status, Store

_INFO = "dataset_info.json"
_TEMPLATE = "{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}"


def named_files(store: Store, prefix: str) -> tuple[dict[str, Status], list[str]]:
    """Return what `Store.list_folder` does, of a folder whose dataset_info.json names its shards.

    Sizes are not known. It is an `OSError` if there is no such file.
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
    files = dict.fromkeys([_INFO, *(name for name in names if "/" not in name)], Status(-1))
    return files, sorted({name.partition("/")[0] for name in names if "/" in name})


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
