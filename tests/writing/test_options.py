"""Options of a write."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

import tfrtool
from tests.photos import write_class_folders
from tests.writing.test_plan import make_options
from tfrtool.errors import UsageError
from tfrtool.storage.progress import Progress
from tfrtool.writing.run_options import dataset_identity


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
    make_options(name=expected[0], version=expected[1])


def test_what_is_given_wins() -> None:
    """A name and a version that are given are taken."""
    assert dataset_identity(Path("a/b/2.0.0"), "pets", "3.1.4") == ("pets", "3.1.4")


@pytest.mark.parametrize(
    "splits", [{"": 1}, {"train": 0}, {"train": 1.5}, {"a b": 1}, {"all": 1}, {"train": math.nan}]
)
def test_malformed_split_is_a_usage_error(splits: dict[str, float]) -> None:
    """Names and fractions that can't be are refused."""
    with pytest.raises(UsageError):
        make_options(splits=splits)


@pytest.mark.parametrize("splits", [{"a": 0.5}, {"a": 0.5, "b": 0.6}])
def test_splits_must_share_everything_once(splits: dict[str, float]) -> None:
    """Fractions add up to 1: no image is lost or used twice."""
    with pytest.raises(UsageError):
        make_options(splits=splits)


@pytest.mark.parametrize("name", ["cats-vs-dogs", "1cat", "", "été", "a/b"])
def test_names_that_tfds_refuses_are_refused(name: str) -> None:
    """A hyphen would end the name when TFDS reads it back."""
    with pytest.raises(UsageError):
        make_options(name=name).settings(Path("d"))


CHOICES = {
    "label_from": "folder, filename",
    "compression": "none, gzip, zlib",
    "check": "decode, header, tfds",
    "on_error": "skip, stop",
    "encode": "keep, jpeg, png, raw",
    "existing": "refuse, overwrite, resume",
}


@pytest.mark.parametrize("choice", CHOICES)
def test_unknown_words_are_refused_with_the_known_ones(choice: str, tmp_path: Path) -> None:
    """Every known word is taken; another one is an error that lists them, and writes nothing."""
    source = write_class_folders(tmp_path / "photos", count=2)
    for number, word in enumerate(CHOICES[choice].split(", ")):
        label = {"label_from": "filename"} if choice != "label_from" else {}
        given = {choice: word, **label}
        report = tfrtool.write(source, tmp_path / f"d{number}", dry_run=True, **given)  # type: ignore[arg-type]
        assert (report.dry_run, sum(split.records for split in report.splits.values())) == (True, 4)
    for wrong in ("nonsense", "", None, 7):
        with pytest.raises(UsageError) as caught:
            tfrtool.write(source, tmp_path / "d", **{choice: wrong})  # type: ignore[arg-type]
        assert CHOICES[choice] in str(caught.value.expected)  # or a pattern, for labels
    assert [path.name for path in tmp_path.iterdir()] == ["photos"]


def test_arguments_mean_what_the_options_of_the_command_mean(tmp_path: Path) -> None:
    """Splits are a dictionary, sizes are numbers or words, the name is taken from the path."""
    source = write_class_folders(tmp_path / "photos", count=40)
    seen: list[Progress] = []
    report = tfrtool.write(
        str(source),
        tmp_path / "pets" / "2.0.0",
        splits={"train": 0.8, "validation": 0.2},
        shard_size="10KiB",
        resize=(20, 16),
        on_progress=seen.append,
        dry_run=True,
    )
    assert (report.name, report.version) == ("pets", "2.0.0")
    assert list(report.splits) == ["train", "validation"]
    assert report.options["shard_bytes"] == 10 * 1024
    assert report.options["splits"] == ["train=0.8", "validation=0.2"]
    assert report.options["resize"] == {"width": 20, "height": 16, "shorter": None}
    assert {progress.what for progress in seen} == {"checking"}
    for wrong in (
        {"shard_size": "large"},
        {"shard_size": "9" * 400 + "TB"},
        {"shard_size": 0},
        {"splits": {"train": 0.5}},
        {"resize": 0},
        {"quality": 101},
        {"workers": 0},
        {"shards": 0},
        {"shards": 2, "shard_size": "10KiB"},
        {"seed": 2**63},
    ):
        with pytest.raises(UsageError):
            tfrtool.write(source, tmp_path / "d", **wrong)
