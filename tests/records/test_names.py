"""Names of shards, datasets and splits."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfrtool.errors import UsageError
from tfrtool.records.shard_sets import (
    ShardName,
    check_dataset_name,
    check_split_name,
    check_version,
    is_shard_name,
)

words = st.from_regex(r"\A[a-zA-Z0-9_]{1,20}\Z")
datasets = st.from_regex(r"\A[a-zA-Z][a-zA-Z0-9_]{0,20}\Z")


@given(
    dataset=datasets,
    split=words.filter(lambda word: word != "all"),
    count=st.integers(1, 10**7),
    data=st.data(),
)
def test_round_trip(dataset: str, split: str, count: int, data: st.DataObject) -> None:
    """A name that is formatted is parsed again, and is that of a shard."""
    index = data.draw(st.integers(0, count - 1))
    name = ShardName(dataset=dataset, split=split, index=index, count=count)
    assert ShardName.parse(str(name)) == name
    assert is_shard_name(str(name))


def test_name_of_tfds() -> None:
    """The form is TFDS'."""
    name = ShardName(dataset="cats_vs_dogs", split="train", index=3, count=8)
    assert str(name) == "cats_vs_dogs-train.tfrecord-00003-of-00008"


@pytest.mark.parametrize(
    "name",
    [
        "cats-train.tfrecord-00008-of-00008",
        "cats-train.tfrecord-0000-of-0008",
        "cats-vs-dogs-train.tfrecord-00000-of-00008",
        "cats-train.tfrecord",
        "cats-train.tfrecord-00000-of-00008.gz",
        "1cats-train.tfrecord-00000-of-00001",
        "cats-all.tfrecord-00000-of-00001",
        "cats-train.tfrecord-000000-of-00001",
        "cats-train.tfrecord-00000-of-00001\n",
        "",
    ],
)
def test_other_names(name: str) -> None:
    """A name of another form gives None, never an exception."""
    assert ShardName.parse(name) is None


@pytest.mark.parametrize(("index", "count"), [(-1, 1), (1, 1), (0, 0)])
def test_impossible_index(index: int, count: int) -> None:
    """A shard's index is below its count."""
    with pytest.raises(ValueError, match="index"):
        ShardName(dataset="a", split="b", index=index, count=count)


@pytest.mark.parametrize(
    "name",
    [
        "a.tfrecord", "a.tfrecords", "a.tfrecord.gz", "a.tfrecord-00000-of-00001", "p.tfrecords-1",
        "data_tfrecord-00000-of-00012.gz", "events.out.tfevents.1700.host", "x-00000-of-00010",
    ],
)  # fmt: skip
def test_shard_names(name: str) -> None:
    """The usual names of shards are known."""
    assert is_shard_name(name)


@pytest.mark.parametrize(
    "name",
    [
        "features.json", "label.labels.txt", "a.tfrecord.json", "a.tfrecord.idx",
        "write_report.json", ".a.tfrecord.swp", "a.tfrecord.tmp", "x.tfrecord.TXT", "a.tfrecord~",
    ],
)  # fmt: skip
def test_names_of_other_files(name: str) -> None:
    """Metadata, indexes, copies and unfinished files are not shards."""
    assert is_shard_name(name) is False


@pytest.mark.parametrize("name", ["train.record", "data.gz", "tfrecords", "README", "a.jpg"])
def test_other_file_names(name: str) -> None:
    """Files with other names are recognized by their content."""
    assert is_shard_name(name) is None


@pytest.mark.parametrize("name", ["", "cats-vs-dogs", "1cat", "_cat", "katzé", "a b", "a\n"])
def test_bad_dataset_names(name: str) -> None:
    """TFDS would take these for something else; exit code 2."""
    with pytest.raises(UsageError):
        check_dataset_name(name)


@pytest.mark.parametrize("name", ["", "all", "a-b", "a/b", "trän"])
def test_bad_split_names(name: str) -> None:
    """A split's name is letters, digits and underscores, and "all" means every split."""
    with pytest.raises(UsageError):
        check_split_name(name)


@pytest.mark.parametrize("version", ["", "1", "1.0", "1.0.0.0", "v1.0.0", "01.0.0", "1.0.x"])
def test_bad_versions(version: str) -> None:
    """A version is three numbers."""
    with pytest.raises(UsageError):
        check_version(version)
