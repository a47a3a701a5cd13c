"""Which files belong together, and which are missing, by their names alone."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfrtool.records.shard_sets import MISSING_NAMED, ShardSet, find_conflicts, group_shards

FORMS = [
    ("cats-train.tfrecord-", "-of-", 5, ""),
    ("train-", "-of-", 5, ".tfrecord.gz"),
    ("data_", "_of_", 3, ".tfrecord"),
    ("", "-of-", 5, ""),
    ("a-00001-of-00002-", "-of-", 5, ".gz"),
]
"""What stands before the number, between the numbers, how many digits, what stands behind."""


def paths(*names: str) -> list[Path]:
    """Return the names as paths."""
    return [Path(name) for name in names]


def one(*names: str) -> ShardSet:
    """Return the set of files that belong together."""
    (found,) = group_shards(paths(*names))
    return found


@st.composite
def broken_sets(draw: st.DrawFn) -> tuple[list[str], set[int]]:
    """Names of a whole set, and the indices of those to remove; at least one file stays."""
    prefix, of, digits, suffix = draw(st.sampled_from(FORMS))
    count = draw(st.integers(1, 40))
    names = [f"{prefix}{i:0{digits}}{of}{count:0{digits}}{suffix}" for i in range(count)]
    removed = draw(st.sets(st.integers(0, count - 1), max_size=count - 1))
    return names, removed


@given(broken_sets(), st.randoms())
def test_what_is_removed_is_what_is_missing(
    broken: tuple[list[str], set[int]], random: Random
) -> None:
    """Missing files of a set are named, in whatever order the others come."""
    names, removed = broken
    left = [name for index, name in enumerate(names) if index not in removed]
    random.shuffle(left)
    found = one(*left)
    assert found.missing == tuple(names[index] for index in sorted(removed))
    assert found.n_missing == len(removed)
    assert [path.name for path in found.shards.values()] == sorted(left)
    assert found.extra == ()
    assert found.duplicates == {}


@pytest.mark.parametrize(
    ("name", "split"),
    [
        ("cats-train.tfrecord-00000-of-00001", "train"),
        ("cats-my_split.tfrecord-00000-of-00001", "my_split"),
        ("cats-a_b.array_record-00000-of-00001", "a_b"),
        ("Split-eval/data_tfrecord-00000-of-00012.gz", "eval"),
        ("Split-train/data.tfrecord", "train"),
        ("train-00000-of-00001.tfrecord.gz", "train"),
        ("imagenet_validation_000_of_128.tfrecord", "validation"),
        ("cats-train.tfrecord", "train"),
        ("data/test/part-00000-of-00004", "test"),
        ("train00-40.tfrec", "train"),
        ("seg_train/valid/part-00000-of-00004", "validation"),
        ("part-00000-of-00004", None),
        ("train-test-00000-of-00004", None),
        ("training_data/part-00000-of-00004", None),
        ("a.tfrecord", None),
        ("Split-/a.tfrecord", None),
    ],
)
def test_split(name: str, split: str | None) -> None:
    """A split is what TFDS' names, TFX' folders and the usual words say, and nothing else."""
    assert one(name).split == split


def test_file_without_a_number() -> None:
    """It is a set of its own, and complete."""
    first, second = group_shards(paths("a.tfrecord", "b.tfrecord"))
    assert first.prefix == first.name == "a.tfrecord"
    assert (first.count, first.n_missing, first.missing) == (None, 0, ())
    assert first.shards == {0: Path("a.tfrecord")}
    assert second.paths == (Path("b.tfrecord"),)


def test_sets_are_apart_by_folder_prefix_and_what_the_names_end_in() -> None:
    """Only the number may differ; sets come in the order of their first file."""
    names = [
        "b/x-00000-of-00002",
        "a/x-00000-of-00002",
        "a/y-00001-of-00002",
        "a/x-00001-of-00002",
        "a/x-00001-of-00002.other",
    ]
    found = group_shards(paths(*names))
    assert [[str(path) for path in one.paths] for one in found] == [
        ["b/x-00000-of-00002"],
        ["a/x-00000-of-00002", "a/x-00001-of-00002"],
        ["a/y-00001-of-00002"],
        ["a/x-00001-of-00002.other"],
    ]
    assert [one.name for one in found][1:3] == ["x-*-of-00002", "y-*-of-00002"]


def test_compressed_twin_is_a_duplicate() -> None:
    """Two files for one number: none is lost, and none is missing."""
    found = one("x-00001-of-00002", "x-00000-of-00002.gz", "x-00000-of-00002")
    assert found.shards == {0: Path("x-00000-of-00002"), 1: Path("x-00001-of-00002")}
    assert found.duplicates == {0: (Path("x-00000-of-00002.gz"),)}
    assert [path.name for path in found.paths] == [
        "x-00000-of-00002",
        "x-00000-of-00002.gz",
        "x-00001-of-00002",
    ]
    assert found.n_missing == 0


def test_number_beyond_the_count() -> None:
    """It is reported as extra, and does not stand in for one that is missing."""
    found = one("x-00000-of-00002", "x-00002-of-00002")
    assert found.extra == (Path("x-00002-of-00002"),)
    assert found.missing == ("x-00001-of-00002",)


def test_leftovers_of_another_count_are_rivals() -> None:
    """Sets that differ in their count alone can't all be meant; others have nothing to do."""
    found = group_shards(
        paths(
            "train-00000-of-00002",
            "train-00000-of-00004.gz",
            "test-00000-of-00003",
            "other/train-00000-of-00005",
            "a.tfrecord",
        )
    )
    (rivals,) = find_conflicts(found)
    assert [one.count for one in rivals] == [2, 4]


@pytest.mark.parametrize("count", ["99999999999", "9" * 18])
def test_absurd_counts_cost_nothing(count: str) -> None:
    """A count is whatever somebody wrote: of what is missing, the first are named, all counted."""
    found = one(f"-00000-of-{count}")
    assert found.n_missing == int(count) - 1
    assert len(found.missing) == MISSING_NAMED
    assert found.missing[0] == f"-00001-of-{count}"


@pytest.mark.parametrize(
    "name", ["x-00000-of-" + "9" * 200, "x-" + "1" * 30 + "-of-00002", "\u0663-of-\u0665"]
)
def test_numbers_that_are_none(name: str) -> None:
    """Numbers that fit no machine, and digits that are not ASCII, are letters of a name."""
    assert one(name).count is None
