"""The items of a source on the disk."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.storage.test_external_sort import keep_little_in_memory
from tfrtool.sources.items import Item
from tfrtool.sources.manifest import Manifest, ManifestWriter

KEYS = st.text(st.characters(), min_size=1, max_size=9)  # lone surrogates, too
ITEMS = st.lists(
    st.builds(
        Item,
        key=KEYS,
        label=st.sampled_from(["cat", "d\u00f6g", "\U0001f436"]),
        bytes=st.integers(0, 2**40),
        place=st.integers(0, 2**190),
        split=st.sampled_from([None, "train", "cat"]),
    ),
    min_size=17,
    max_size=60,
)


@pytest.fixture(scope="module", autouse=True)
def _little() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        keep_little_in_memory(patch)
        yield


def _written(items: list[Item]) -> Manifest:
    writer = ManifestWriter()
    for item in items:
        writer.add(item)
    found = writer.close()
    assert isinstance(found, Manifest)
    return found


@given(ITEMS)
def test_items_are_what_they_were(items: list[Item]) -> None:
    """Whatever they hold, items are read as they were written, in order or one by one."""
    found = _written(items)
    assert [*found] == items
    assert [found[at] for at in range(len(found))] == items
    assert (found[-1], found[3:9], len(found)) == (items[-1], tuple(items[3:9]), len(items))
    for at in (len(items), -len(items) - 1):
        with pytest.raises(IndexError):
            found[at]


def test_few_items_are_a_tuple() -> None:
    """Nothing of a small source goes to the disk."""
    writer = ManifestWriter()
    writer.add(Item(key="a", label="b", bytes=1))
    assert writer.close() == (Item(key="a", label="b", bytes=1),)


def test_keys_as_bytes_sort_as_keys() -> None:
    """The coding in the file keeps the order, so that other programs can search it."""
    texts = ["\ud7ff", "\udc80", "\udcff", "\ue000", "\uffff", "\U00010000", "a"]
    coded = [text.encode("utf-8", "surrogatepass") for text in sorted(texts)]
    assert all(one < other for one, other in pairwise(coded))
