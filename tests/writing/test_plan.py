"""Splits, order and shards."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfrtool.errors import UsageError, WriteError
from tfrtool.images.recipe import ImageRecipe
from tfrtool.sources.items import Item, Source
from tfrtool.writing.image_findings import SourceFindings
from tfrtool.writing.image_task import Finding, ImageShard, RecordMaker
from tfrtool.writing.write_options import WriteOptions
from tfrtool.writing.write_plan import plan_shards

HALVES = {"train": 0.5, "test": 0.5}


@dataclass(frozen=True)
class NoReader:
    """A reader of items that are never read."""

    def read(self, item: Item) -> bytes:
        raise NotImplementedError

    def describe(self, item: Item) -> str:
        return item.key


def _items(count: int, label: str = "cat", size: int = 10) -> list[Item]:
    return [
        Item(key=f"{label}/{label}.{number}.jpg", label=label, bytes=size)
        for number in range(count)
    ]


def make_options(**changes: Any) -> WriteOptions:
    """Return options of a write into one shard."""
    return WriteOptions(**{"shards": 1, **changes})


def _plan(items: list[Item], options: WriteOptions) -> list[ImageShard]:
    items = sorted(items, key=lambda item: item.key)
    source = Source(
        items=tuple(items),
        labels=tuple(sorted({item.label for item in items})),
        reader=NoReader(),
    )
    findings = SourceFindings(len(items))
    for number in range(len(items)):
        findings.add(number, Finding(number + 1))
    maker = RecordMaker(source, options.recipe)
    return plan_shards(source, options, maker, findings)[0]


def _keys(tasks: list[ImageShard]) -> list[list[str]]:
    return [[image.item.key for image in task.images] for task in tasks]


@given(st.integers(0, 2**32), st.integers(0, 2**32))
def test_order_of_listing_does_not_matter(seed: int, order: int) -> None:
    """The plan is the same however the items are listed."""
    items = _items(30)
    listed = items.copy()
    random.Random(order).shuffle(listed)
    options = make_options(seed=seed, splits=HALVES, shards=2)
    assert _keys(_plan(listed, options)) == _keys(_plan(items, options))


def test_too_many_shards_is_a_usage_error() -> None:
    """More shards than images in a split would leave empty ones."""
    with pytest.raises(UsageError):
        _plan(_items(3), make_options(shards=4))


def test_a_split_without_images_is_an_error() -> None:
    """A split that gets nothing is not left out in silence."""
    tiny = {"train": 0.999999, "t": 0.000001}
    with pytest.raises(WriteError, match="'t'"):
        _plan(_items(2), make_options(splits=tiny))


def test_a_digest_depends_on_images_and_what_was_found() -> None:
    """It changes with keys, labels, sizes, times and contents of images, and with nothing else."""
    items = [item._replace(locator=5) for item in _items(10)]

    def digest(items: list[Item], contents: int | None = None) -> str:
        findings = None if contents is None else SourceFindings(len(items))
        for number in range(len(items)) if findings else ():
            finding = Finding(number + 1 + (contents or 0))
            findings.add(number, finding)  # type: ignore[union-attr]
        source = Source(items=tuple(items), labels=("cat", "dog"), reader=NoReader())
        maker = RecordMaker(source, ImageRecipe())
        return plan_shards(source, make_options(), maker, findings)[1]

    first, *rest = items
    changes: list[dict[str, Any]] = [{"key": "a"}, {"label": "dog"}, {"bytes": 11}, {"locator": 6}]
    others = [digest(rest), digest(items, 0), digest(items, 1)]
    others += [digest([first._replace(**change), *rest]) for change in changes]
    assert digest(items) == digest([*items])
    assert len({digest(items), *others}) == 8
