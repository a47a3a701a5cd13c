"""What is held out and what is shared out: disjoint and complete, whatever the order of reading."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tfrtool
from tests.datasets import flip_bit, image_payload, write_foreign
from tests.more import more
from tests.photos import image_bytes
from tfrtool import Dataset, Split
from tfrtool.loading.options import Cache, Holdout, LoadOptions, Recipe
from tfrtool.loading.pipeline import load
from tfrtool.loading.reading import part_reader
from tfrtool.loading.share import Share
from tfrtool.records.compression import Compression
from tfrtool.storage.arguments import OnError
from tfrtool.storage.progress import no_progress
from tfrtool.training.run.train_options import TrainOptions
from tfrtool.training.run.training_data import find_training_data

pytestmark = pytest.mark.tf

LENGTHS = (65, 3, 55, 1, 76)
TOTAL = sum(LENGTHS)
HELD = Holdout(fraction=0.25, held_out=True)
REST = Holdout(fraction=0.25, held_out=False)


@pytest.fixture(autouse=True)
def caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep caches on disk out of the user's own directory."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))


def _payloads() -> list[list[bytes]]:
    """Return five shards of records, of very different lengths; a record's label is its number."""
    data = image_bytes(size=(8, 8))
    numbers = iter(range(TOTAL))
    return [
        [image_payload(number, data=data) for number in itertools.islice(numbers, length)]
        for length in LENGTHS
    ]


@pytest.fixture(scope="module")
def numbered(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """Return a dataset in which an image's label is its number."""
    return tfrtool.dataset(write_foreign(tmp_path_factory.mktemp("d"), _payloads()))


def _options(**changes: Any) -> LoadOptions:
    return LoadOptions(
        **{"image_size": 4, "rescale": None, "batch_size": 30, "deterministic": False, **changes}
    )


def _labels(batches: Any) -> list[int]:
    return [int(label) for _, labels in batches for label in labels.numpy()]


def _in_epochs(dataset: Dataset, options: LoadOptions, context: Any = None) -> list[int]:
    """Return what each of several epochs has, which must be the same."""
    batches = load(dataset, options, context)
    first, second = (sorted(_labels(batches)) for _ in range(2))
    assert first == second
    return first


@pytest.mark.parametrize(
    ("cache", "pipelines"), [(Cache.NONE, 1), more(Cache.MEMORY, 3), (Cache.DISK, 2)]
)
def test_held_out_images_are_never_trained_on(
    numbered: Dataset, tf: Any, cache: Cache, pipelines: int
) -> None:
    """In any order of reading, in every epoch and run, the parts are disjoint and complete.

    So are the shares that several pipelines have of a part.
    """
    held = _in_epochs(numbered, _options(holdout=HELD, cache=cache, cycle_length=2))
    assert held == list(range(3, TOTAL, 4))
    options = _options(holdout=REST, cache=cache, cycle_length=5)
    shares = [_in_epochs(numbered, options, one) for one in _contexts(tf, pipelines)]
    assert sorted([*held, *itertools.chain(*shares)]) == list(range(TOTAL))


def _contexts(tf: Any, pipelines: int) -> list[Any]:
    if pipelines == 1:
        return [None]
    return [tf.distribute.InputContext(pipelines, index, pipelines) for index in range(pipelines)]


@pytest.mark.parametrize("recipe", [Recipe.TFRTOOL, more(Recipe.NOTEBOOK), Recipe.NAIVE])
def test_every_recipe_holds_out_the_same_images(numbered: Dataset, recipe: Recipe) -> None:
    """Pipelines that are compared train on the same images, and validate on the same."""
    batches = load(numbered, _options(holdout=HELD, recipe=recipe))
    assert sorted(_labels(batches)) == list(range(3, TOTAL, 4))


def test_pipelines_share_without_overlap(numbered: Dataset, tf: Any) -> None:
    """Where nothing is held out, several pipelines have all images, and none of them twice."""
    shares = [_in_epochs(numbered, _options(), one) for one in _contexts(tf, 2)]
    assert sorted(itertools.chain(*shares)) == list(range(TOTAL))


def test_kept_features_are_of_the_same_parts(numbered: Dataset, tmp_path: Path) -> None:
    """What goes through a frozen base is shared out in the same way."""
    options = TrainOptions(dataset=numbered.directory, validation=0.25, deterministic=False)
    for _run in range(2):
        data = find_training_data(options, tmp_path, no_progress).once(batch_size=32)
        trained, held = (_labels(load(data.dataset, part)) for part in data.parts)
        assert sorted(trained + held) == list(range(TOTAL))
        assert sorted(held) == list(range(3, TOTAL, 4))


def test_parts_of_what_is_left_of_damage(tmp_path: Path, tf: Any) -> None:
    """Where damaged records are left out, the parts share out the others."""
    shards = _payloads()
    directory = write_foreign(tmp_path / "d", shards)
    paths = sorted(directory.iterdir())
    size = len(shards[0][0]) + 16
    for path, record in ((paths[0], 5), (paths[0], 60), (paths[4], 0)):
        flip_bit(path, record * size + 40)
    lost = {5, 60, sum(LENGTHS[:4])}
    dataset, _report = tfrtool.dataset(directory, "skip").drop_corrupt(tmp_path / "scratch")
    held = _in_epochs(dataset, _options(holdout=HELD))
    shares = [_in_epochs(dataset, _options(holdout=REST), one) for one in _contexts(tf, 2)]
    # Classes are the numbers that are left, in their order.
    found = [int(dataset.class_names[number]) for number in (*held, *shares[0], *shares[1])]
    assert sorted(found) == sorted(set(range(TOTAL)) - lost)
    assert tfrtool.dataset(directory, OnError.SKIP).split("train").records == TOTAL


@settings(max_examples=5)
@given(
    lengths=st.lists(st.integers(1, 12), min_size=1, max_size=5),
    fraction=st.floats(0, 1, exclude_min=True, exclude_max=True),
    pipelines=st.integers(1, 3),
)
def test_parts_are_a_partition(
    tf: Any,
    tmp_path_factory: pytest.TempPathFactory,
    lengths: list[int],
    fraction: float,
    pipelines: int,
) -> None:
    """Whatever the shards and the fraction, each record is in one share of one part."""
    numbers = iter(range(sum(lengths)))
    directory = write_foreign(
        tmp_path_factory.mktemp("d"),
        [[b"%d" % number for number in itertools.islice(numbers, length)] for length in lengths],
    )
    split = Split(
        name="train",
        shards=tuple(sorted(directory.iterdir())),
        lengths=tuple(lengths),
        compression=Compression.NONE,
    )
    untuned = tf.data.Options()
    untuned.autotune.enabled = False  # or the end of an iterator waits for the tuner's sleep
    found = []
    for held_out in (True, False):
        holdout = Holdout(fraction=fraction, held_out=held_out)
        part = []
        for index in range(pipelines):
            share = Share(number=index, count=pipelines)
            shards = tf.data.Dataset.range(len(lengths))
            records = shards.flat_map(part_reader(None, split, holdout, share))
            records = records.with_options(untuned)
            part += [int(record) for record in records.as_numpy_iterator()]
        assert len(part) == holdout.count(sum(lengths))
        found += part
    assert sorted(found) == list(range(sum(lengths)))
