"""Options of a write."""

from __future__ import annotations

from pathlib import Path

import pytest

from tfrtool.errors import UsageError
from tfrtool.writing.write_options import WriteOptions, dataset_identity, parse_splits


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("data/cats_vs_dogs/4.0.1", ("cats_vs_dogs", "4.0.1")),
        ("data/cats-vs-dogs", ("cats_vs_dogs", "1.0.0")),
        ("data/2024 pets", ("dataset_2024_pets", "1.0.0")),
        ("data/photos d'été", ("photos_d_ete", "1.0.0")),
        ("data/猫", ("dataset", "1.0.0")),
        ("data/1.02.3", ("dataset_1_02_3", "1.0.0")),
    ],
)
def test_identity_from_the_path(path: str, expected: tuple[str, str]) -> None:
    """A path that ends in NAME/X.Y.Z says both; else the last folder is made a valid name."""
    assert dataset_identity(Path(path)) == expected
    WriteOptions(source=Path("s"), dataset=Path(path), name=expected[0], version=expected[1])


def test_what_is_given_wins() -> None:
    """A name and a version that are given are taken."""
    assert dataset_identity(Path("a/b/2.0.0"), "pets", "3.1.4") == ("pets", "3.1.4")


@pytest.mark.parametrize(
    "notations", [["train"], ["train=x"], ["=1"], ["train=0"], ["train=1.5"], ["a b=1"], ["all=1"]]
)
def test_malformed_split_is_a_usage_error(notations: list[str]) -> None:
    """What is no NAME=FRACTION is refused."""
    with pytest.raises(UsageError):
        parse_splits(notations)


@pytest.mark.parametrize("notations", [["a=0.5"], ["a=0.5", "b=0.6"], ["a=0.5", "a=0.5"]])
def test_splits_must_share_everything_once(notations: list[str]) -> None:
    """Fractions add up to 1, and no split comes twice: no image is lost or used twice."""
    with pytest.raises(UsageError):
        WriteOptions(source=Path("s"), dataset=Path("d"), splits=parse_splits(notations))


@pytest.mark.parametrize("name", ["cats-vs-dogs", "1cat", "", "été", "a/b"])
def test_names_that_tfds_refuses_are_refused(name: str) -> None:
    """A hyphen would end the name when TFDS reads it back."""
    with pytest.raises(UsageError):
        WriteOptions(source=Path("s"), dataset=Path("d"), name=name)
