"""A bucket that is listed by many requests at once gives what one listing of it gives."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.emulators import Bucket, Misbehaviour
from tfrtool.errors import SourceError
from tfrtool.sources.folders import store_listing
from tfrtool.sources.folders.class_layout import LabelFrom
from tfrtool.sources.open_source import open_source
from tfrtool.storage.stores import Store

_PART = st.sampled_from(["a", "b", "c", "a.jpg", "a b", "50%", "a%20b", "é", "~", "!"])
_KEYS = st.sets(
    st.builds("{}{}".format, st.lists(_PART, min_size=1, max_size=5).map("/".join), st.just("/")),
    max_size=4,
).flatmap(
    lambda marks: st.sets(st.lists(_PART, min_size=1, max_size=5).map("/".join), max_size=80).map(
        lambda keys: keys | marks
    )
)
_SMALL = {"_PAGE": 4, "_FOLDERS": 3, "_AHEAD": 2}


class Listable:
    """A bucket as obstore gives it: in order, and the mark of a folder under the folder's name."""

    def __init__(self, keys: set[str]) -> None:
        self._keys = sorted(keys, key=str.encode)

    def list(self, prefix: str | None, chunk_size: int, offset: str = "") -> Iterator[Any]:
        """Yield what is below a folder and behind a key."""
        del chunk_size
        found = [key for key in self._below(prefix) if key.encode() > offset.encode()]
        yield from ([*map(_meta, found[at : at + 3])] for at in range(0, len(found), 3))

    def list_with_delimiter(self, prefix: str | None) -> dict[str, Any]:
        """Return what is in a folder."""
        start, files, folders = len(f"{prefix}/") if prefix else 0, [], dict[str, None]()
        for key in self._below(prefix):
            name, slash, _ = key[start:].partition("/")
            if slash:
                folders[key[:start] + name] = None
            else:
                files.append(_meta(key))
        return {"objects": files, "common_prefixes": [*folders]}

    def _below(self, prefix: str | None) -> Sequence[str]:
        return [key for key in self._keys if not prefix or key.startswith(f"{prefix}/")]


def _meta(key: str) -> dict[str, Any]:
    now = datetime.now(UTC)
    return {"path": key.removesuffix("/"), "size": len(key), "e_tag": key, "last_modified": now}


@given(_KEYS, st.sampled_from(["", "a"]))
@example({"a", "a.jpg", "a.png", "a/"}, "")
@example({f"a/{n}/{m}.jpg" for n in range(5) for m in range(9)} | {"a/2", "a/2/", "a/"}, "a")
def test_the_order_is_that_of_one_listing(keys: set[str], prefix: str) -> None:
    """Whatever the names: folders in folders, marks of empty ones, objects called as a folder."""
    store = Store("s3://bucket", Listable(keys))
    whole = [(key, one.size) for key, one in store.list(prefix)]
    with pytest.MonkeyPatch.context() as patch:
        for name, value in _SMALL.items():
            patch.setattr(store_listing, name, value)
        assert [*store_listing.list_by_folders(store, prefix)] == whole


def _items(url: str, scratch: Path) -> Any:
    found = open_source(url, LabelFrom.FOLDER, scratch)
    return [*found.items], found.labels, found.rejected, found.ignored


def test_a_bucket(bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Items, and what is left out, are those of one listing."""
    names = ("a b", "50%", "a%20b", "c+d", "[x]", "e")
    for name in names:
        for number in range(4):
            bucket.put(f"it/{name}/{number}.jpg", b"x" * number)
    for key in ("it/", "it/empty/", "it/e", "it/readme.txt", "it/e/.hidden/1.jpg"):
        bucket.put(key, b"")
    whole = _items(f"{bucket.url}/it", tmp_path)
    monkeypatch.setattr(store_listing, "_PAGE", 3)
    assert _items(f"{bucket.url}/it", tmp_path) == whole
    assert len(whole[0]) == 4 * len(names)


@pytest.mark.usefixtures("hurry")
def test_errors_are_those_of_one_listing(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A key that can't be one, and a store that refuses, are told as they are without tasks."""
    for number in range(9):
        bucket.put(f"it/{number % 3}/{number}.jpg", b"x")
    bucket.put("it/2//x.jpg", b"x")
    told = []
    for page in (1000, 2):
        monkeypatch.setattr(store_listing, "_PAGE", page)
        for status in (0, 403):
            rule = Misbehaviour(matching="list-type", status=status)
            bucket.misbehave(*([rule] if status else []))
            with pytest.raises(SourceError) as error:
                _items(f"{bucket.url}/it", tmp_path)
            told.append(str(error.value))
    assert told[:2] == told[2:]
