"""Datasets in stores as tests look at them: their objects, and what readers make of them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.emulators import Controlled
from tfrtool.storage.stores import Store

__all__ = ["PREFIX", "digests_of", "local_digests", "steps", "stored_digests"]

PREFIX = "cats/1.0.0"
"""Where tests have their dataset, in a bucket of their own."""

_ASIDE = {"dataset", "seconds", "resumed", "warnings"}
CHANGES = ("put", "upload", "copy", "delete")


def digests_of(objects: dict[str, bytes]) -> dict[str, str]:
    """Return the digest of each object; of the report, without where, when and how long."""
    found = {}
    for name, data in objects.items():
        content = data
        if name.endswith("write_report.json"):
            report = json.loads(data)
            for split in report["splits"].values():
                for shard in split["shards"]:
                    shard.pop("etag", None)
            content = repr([(key, report[key]) for key in report if key not in _ASIDE]).encode()
        found[name] = hashlib.sha256(content).hexdigest()
    return found


def local_digests(folder: Path) -> dict[str, str]:
    """Return the digests of a folder's files."""
    return digests_of({path.name: path.read_bytes() for path in folder.iterdir()})


def stored_digests(bucket: Controlled, prefix: str = PREFIX) -> dict[str, str]:
    """Return the digests of all objects below a prefix, by what stands behind it in their keys."""
    keys = bucket.names(f"{prefix}/")
    return digests_of({key.removeprefix(f"{prefix}/"): bucket.get(key) for key in keys})


@contextmanager
def steps(before: Callable[[int, str, str], Any]) -> Iterator[None]:
    """Have something done before each request that changes the store.

    It is given the number of the request, from 0, and its method and key.
    """
    number = iter(range(10**9))

    def wrapped(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(self: Store, *arguments: Any, **more: Any) -> Any:
            key = arguments[-1] if name == "copy" else arguments[0]
            if name == "delete":
                arguments = ([*key],)
                key = " ".join(arguments[0])
            if key:
                before(next(number), name, str(key))
            return real(self, *arguments, **more)

        return call

    with pytest.MonkeyPatch.context() as patch:
        for name in CHANGES:
            patch.setattr(Store, name, wrapped(name, getattr(Store, name)))
        yield
