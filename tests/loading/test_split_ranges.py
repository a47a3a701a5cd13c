"""Slices of splits, such as ``train[:80%]+test[10:20]``, judged by TFDS."""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tfrtool
from tests.more import more
from tests.photos import write_class_folders
from tfrtool import Dataset, UsageError

pytestmark = pytest.mark.tf

SLICES = (
    "test[:10%]+train[-80%:]",
    more("train[33.3%:] , test"),
    *map(more, ("train+test", "train[:7]", "train[:20%]", "train[80%:90%]", "train[-10%:]")),
    *map(more, ("train[-9:-2]", "train[:20%]+train[40%:]", "train[0:50%] + test")),
)


@pytest.fixture(scope="module")
def pets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a dataset of two splits, three shards each, in which each image has its own label."""
    root = tmp_path_factory.mktemp("slices")
    names = tuple(f"{number:02}" for number in range(50))
    source = write_class_folders(root / "photos", names, count=1)
    directory = root / "pets" / "1.0.0"
    tfrtool.write(source, directory, splits={"train": 0.7, "test": 0.3}, shards=3)
    return directory


@pytest.fixture(scope="module")
def dataset(pets: Path) -> Dataset:
    """Return it, opened."""
    return tfrtool.dataset(pets)


@pytest.fixture(scope="module")
def builder(pets: Path) -> Any:
    """Return it as TFDS opens it."""
    import tensorflow_datasets as tfds

    return tfds.builder_from_directory(str(pets))


def labels_of(dataset: Dataset, split: str, **options: Any) -> list[int]:
    """Return the label of each image, sorted."""
    batches = dataset.load(split, image_size=8, rescale=None, **options)
    return sorted(int(label) for _, labels in batches for label in labels.numpy())


@pytest.mark.parametrize("split", SLICES)
def test_slices_are_those_of_tfds(dataset: Dataset, builder: Any, split: str) -> None:
    """Any recipe loads the records that ``tfds.load`` has for the same text."""
    theirs = builder.as_dataset(split.replace(",", "+")).map(lambda example: example["label"])
    expected = sorted(theirs.as_numpy_iterator())
    assert dataset.split(split).records == len(expected)
    assert labels_of(dataset, split) == expected
    assert labels_of(dataset, split, recipe="naive") == expected


_BOUNDS = st.none() | st.integers(-40, 40)


@given(st.sampled_from(["train", "test"]), _BOUNDS, _BOUNDS, st.booleans())
def test_counts_are_those_of_tfds(
    dataset: Dataset, builder: Any, name: str, first: int | None, end: int | None, percent: bool
) -> None:
    """For any bounds the number of records is that of TFDS, or both refuse them."""
    unit = "%" if percent else ""
    ends = ["" if bound is None else f"{bound}{unit}" for bound in (first, end)]
    split = f"{name}[{ends[0]}:{ends[1]}]"
    try:
        expected = builder.info.splits[split].num_examples
    except ValueError:
        expected = 0
    if expected > 0:
        assert dataset.split(split).records == expected
    else:
        with pytest.raises(UsageError):
            dataset.split(split)


@pytest.mark.more
def test_folds_are_a_partition(dataset: Dataset) -> None:
    """In cross-validation, each image is validated on once, and trained on in all other folds."""
    everything = labels_of(dataset, "train")
    folds = [labels_of(dataset, f"train[{start}%:{start + 20}%]") for start in range(0, 100, 20)]
    assert sorted(chain.from_iterable(folds)) == everything
    for start, fold in ((0, folds[0]), (80, folds[4])):
        rest = labels_of(dataset, f"train[:{start}%]+train[{start + 20}%:]")
        assert rest == sorted({*everything} - {*fold})


def test_parts_of_a_slice(dataset: Dataset) -> None:
    """Images that are held out, and a limit, are parts of the slice; a cache has no others."""
    split = "train[20%:80%]"
    whole = labels_of(dataset, split, cache="memory")
    train = labels_of(dataset, split, holdout=0.25)
    held_out = labels_of(dataset, split, holdout=0.25, held_out=True)
    assert sorted(train + held_out) == whole
    assert len(held_out) == len(whole) // 4
    few = labels_of(dataset, split, limit=6)
    assert len(few) == 6
    assert {*few} < {*whole}


@pytest.mark.parametrize(
    ("split", "problem"),
    [
        ("train[:50]", "out of range"),
        ("train[-105%:]", "out of range"),
        ("train[5:5]", "has no records"),
        ("train[9:5]+test[:0%]", "has no records"),
        ("train[:80%", "no split"),
        ("train[:]", "invalid split"),
        ("train[3]", "invalid split"),
        ("train[1:2:3]", "invalid split"),
        ("train[a:]", "invalid split"),
        ("train[:50%]+train[40%:]", "twice"),
        ("train,train", "twice"),
        ("dogs[:50%]", "no split 'dogs'"),
    ],
)
def test_other_slices_are_refused(dataset: Dataset, split: str, problem: str) -> None:
    """Each is a usage error that says what is wrong."""
    with pytest.raises(UsageError, match=problem):
        dataset.load(split, image_size=8)
