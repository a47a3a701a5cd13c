"""Splits, order and shards."""

from __future__ import annotations

import random
from array import array
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from tfrtool.errors import UsageError, WriteError
from tfrtool.images.recipe import ImageRecipe
from tfrtool.records.compression import Compression
from tfrtool.sources.folders.class_layout import LabelFrom
from tfrtool.sources.items import Item, Source
from tfrtool.storage.scratch import external_sort
from tfrtool.writing.image_audit import Audit
from tfrtool.writing.write_options import Existing, WriteOptions
from tfrtool.writing.write_plan import PlannedShard, plan_digest, plan_shards

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
    """Return options of a write as `tfrtool.write` makes them."""
    given: dict[str, Any] = {
        "source": "s",
        "dataset": Path("d"),
        "name": "d",
        "version": "1.0.0",
        "splits": {},
        "shards": 1,
        "shard_bytes": 1000,
        "seed": 0,
        "shuffle": True,
        "compression": Compression.NONE,
        "skip_bad": True,
        "dedupe": False,
        "recipe": ImageRecipe(),
        "label_from": LabelFrom.FOLDER,
        "root": None,
        "existing": Existing.REFUSE,
        "workers": 1,
    }
    return WriteOptions(**given | changes)


def _plan(
    items: list[Item],
    options: WriteOptions,
    *,
    digests: dict[str, int] | None = None,
    splits: tuple[str, ...] = (),
) -> list[PlannedShard]:
    items = sorted(items, key=lambda item: item.key)
    numbers = [(digests or {}).get(item.key, number) for number, item in enumerate(items)]
    source = Source(
        items=tuple(items),
        labels=tuple(sorted({item.label for item in items})),
        reader=NoReader(),
        splits=splits,
    )
    audit = Audit(source, options.recipe)
    audit.digests = array("Q", numbers)
    return plan_shards(audit, options, None)


def _keys(tasks: list[PlannedShard]) -> list[list[str]]:
    return [[item.key for item in _items_of(task)] for task in tasks]


def _items_of(task: PlannedShard) -> list[Item]:
    return [task.audit.source.items[position] for position in task.positions]


@given(st.integers(1, 60), st.integers(0, 5), st.integers(1, 5))
def test_every_item_is_in_one_shard(count: int, seed: int, shards: int) -> None:
    """No item is lost and none comes twice, whatever the seed and the number of shards."""
    items = _items(count)
    tasks = _plan(items, make_options(seed=seed, shards=min(shards, count)))
    keys = [key for shard in _keys(tasks) for key in shard]
    assert sorted(keys) == sorted(item.key for item in items)


@given(st.integers(0, 2**32), st.integers(0, 2**32))
def test_order_of_listing_does_not_matter(seed: int, order: int) -> None:
    """The plan is the same however the items are listed."""
    items = _items(30)
    listed = items.copy()
    random.Random(order).shuffle(listed)
    options = make_options(seed=seed, splits=HALVES, shards=2)
    assert _keys(_plan(listed, options)) == _keys(_plan(items, options))


def test_order_is_shuffled_by_the_seed() -> None:
    """Two seeds give two orders; without shuffling the order is that of the keys."""
    items = _items(30)
    first, second = (_keys(_plan(items, make_options(seed=seed))) for seed in (1, 2))
    assert first != second
    (plain,) = _keys(_plan(items, make_options(shuffle=False)))
    assert plain == sorted(plain)


@settings(max_examples=20)
@given(st.integers(1, 300), st.integers(1, 50))
def test_boundaries_cover_all_records_evenly(records: int, shards: int) -> None:
    """Shards differ by one record at most, and leave none out."""
    shards = min(shards, records)
    sizes = [len(one.positions) for one in _plan(_items(records), make_options(shards=shards))]
    assert (len(sizes), sum(sizes)) == (shards, records)
    assert max(sizes) - min(sizes) <= 1


def test_too_many_shards_is_a_usage_error() -> None:
    """More shards than images in a split would leave empty ones."""
    with pytest.raises(UsageError):
        _plan(_items(3), make_options(shards=4))


def test_a_split_without_images_is_an_error() -> None:
    """A split that gets nothing is not left out in silence."""
    tiny = {"train": 0.999999, "t": 0.000001}
    with pytest.raises(WriteError, match="'t'"):
        _plan(_items(2), make_options(splits=tiny))


@given(st.data())
def test_exact_copies_share_a_split(data: st.DataObject) -> None:
    """Whatever their names, images with the same bytes are never in two splits."""
    items = _items(40)
    digests = {item.key: data.draw(st.integers(0, 25)) for item in items}
    try:
        tasks = _plan(items, make_options(splits=HALVES), digests=digests)
    except WriteError:  # so many are alike that a split would be empty
        reject()
    where: dict[int, set[str]] = {}
    for task in tasks:
        for item in _items_of(task):
            where.setdefault(digests[item.key], set()).add(task.name.split)
    assert all(len(splits) == 1 for splits in where.values())
    assert sum(len(task.positions) for task in tasks) == 40


def test_the_splits_of_a_source_are_kept() -> None:
    """Where the source has splits, they are not drawn anew, not even for copies."""
    items = [
        replace(item, split="test" if number % 4 == 0 else "train")
        for number, item in enumerate(_items(20))
    ]
    copies = {item.key: 0 for item in items[:5]}
    tasks = _plan(items, make_options(splits=HALVES), splits=("train", "test"), digests=copies)
    assert {task.name.split: {item.split for item in _items_of(task)} for task in tasks} == {
        "train": {"train"},
        "test": {"test"},
    }


def test_a_task_knows_what_its_bytes_depend_on() -> None:
    """Its fingerprint changes with contents, labels, order and recipe, and with nothing else."""
    items = _items(10)
    (task,) = _plan(items, make_options())
    assert _plan(items, make_options(workers=7))[0].fingerprint == task.fingerprint
    others = [
        _plan(items[:-1], make_options()),
        _plan(items, make_options(seed=1)),
        _plan(items, make_options(recipe=ImageRecipe(quality=90))),
        _plan(items, make_options(compression=Compression.GZIP)),
        _plan(items, make_options(), digests={items[0].key: 99}),
        _plan([replace(items[0], label="dog"), *items[1:]], make_options()),
    ]
    prints = {other.fingerprint for (other,) in others}
    assert len(prints) == len(others)
    assert task.fingerprint not in prints


def test_shards_are_told_together_as_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A digest of all shards leaves each the fingerprint that it has by itself."""
    options = make_options(shards=5, splits=HALVES)
    alone = [task.fingerprint for task in _plan(_items(97), options)]
    tasks = _plan(_items(97), options)
    monkeypatch.setattr(external_sort, "RUN", 16)
    plan_digest(tasks, "1.0.0")
    assert [vars(task)["fingerprint"] for task in tasks] == alone
    assert len({*alone}) == 10
