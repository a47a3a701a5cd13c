"""Filtering: some of the records of a dataset."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

import tfrtool
from tests.convert.test_reshard import (
    files_of,
    label_of,
    payloads_of,
    record,
    write_shards,
)
from tests.datasets import flip_bit, image_payload
from tests.photos import image_bytes
from tests.records.strategies import shard_of
from tfrtool.cli import main
from tfrtool.examples.example import encode_example

TRAIN = [record(number) for number in range(600)]
TEST = [record(number) for number in range(2000, 2100)]


@pytest.fixture
def pets(tmp_path: Path) -> Path:
    """Return a dataset of two splits."""
    return write_shards(tmp_path / "pets", {"train": [TRAIN[:250], TRAIN[250:]], "test": [TEST]})


def test_a_condition_keeps_records_in_their_splits(
    pets: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Records for which it holds are copied as they are; the others are counted by the rule."""
    places = "(_record < 100 OR id >= 2000) AND (_offset > 0) = (_record > 0)"
    where = ["--where", f"label = 1 AND {places}"]
    assert main(["filter", str(pets), str(tmp_path / "ones"), *where, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    train = [*TRAIN[:100], *TRAIN[250:350]]
    assert payloads_of(tmp_path / "ones", "train") == [p for p in train if label_of(p) == 1]
    assert payloads_of(tmp_path / "ones", "test") == [p for p in TEST if label_of(p) == 1]
    assert (told["records_in"], told["records_out"]) == (700, 60)
    assert told["skipped"] == {"where": 640}
    assert told["digest_in"] != told["digest_out"]


def test_columns_that_come_late_are_found(tmp_path: Path) -> None:
    """The first records tell the columns, unless a later one has others."""
    late = [encode_example({"label": [n, n], "more": n}) for n in range(3)]
    fill = [
        encode_example({"label": 1, "fill": random.Random(n).randbytes(50_000)}) for n in range(60)
    ]
    source = write_shards(tmp_path / "in", {"train": [[*fill, *late]]})
    report = tfrtool.filter_records(source, tmp_path / "a", where="more = 2")
    assert payloads_of(tmp_path / "a", "train") == [late[2]]
    report = tfrtool.filter_records(source, tmp_path / "b", where="len(label) = 1")
    assert (report.records_out, report.corrupt) == (60, 0)


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("lable = 1", "lable.*did you mean 'label'"),
        ("label =", "incomplete"),
        ("", "empty"),
        ("label = 1; DROP TABLE records", "invalid condition"),
    ],
)
def test_bad_conditions_are_told(pets: Path, tmp_path: Path, where: str, message: str) -> None:
    """Before anything is written."""
    with pytest.raises(tfrtool.UsageError, match=message):
        tfrtool.filter_records(pets, tmp_path / "new", where=where)
    assert not (tmp_path / "new").exists()


def test_lists_keep_and_drop(pets: Path, tmp_path: Path) -> None:
    """A line names a shard by its name or path, and a record; damaged ones don't shift others."""
    first = pets / "pets-train.tfrecord-00000-of-00002"
    (tmp_path / "list").write_text(
        f"# chosen by hand\npets-train.tfrecord-00001-of-00002:5\n\n{first} 7  # blurred #2\n"
        '{"path": "pets-test.tfrecord-00000-of-00001", "record": 99, "label": "a"}\n'
    )
    flip_bit(first, 0)  # the header of the first record
    words = ["filter", str(pets), str(tmp_path / "kept"), "--keep", str(tmp_path / "list")]
    assert main(words) == 3
    assert payloads_of(tmp_path / "kept", "train") == [TRAIN[7], TRAIN[255]]
    assert payloads_of(tmp_path / "kept", "test") == [TEST[99]]
    report = tfrtool.filter_records(
        pets, tmp_path / "rest", drop=tmp_path / "list", where="id < 3000"
    )
    assert report.skipped == {"drop": 3}
    assert (report.corrupt, report.records_out) == (1, 696)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("nosuch.tfrecord 5", "line 2: .*'nosuch.tfrecord'"),
        ("pets-test.tfrecord-00000-of-00001 100", "line 2: .*record 100 in.*than 100"),
        ("pets-test.tfrecord-00000-of-00001", "line 2: .*found .pets-test"),
        ("pets-test.tfrecord-00000-of-00001 -1", "line 2: .*found.* -1"),
        ('{"shard": "a", "label": "a"}', "line 2: .*predictions.jsonl.*found JSON with other keys"),
        ('{"shard": "a", "record": null}', "line 2 has no record number: .*; repair the shard"),
    ],
)
def test_lists_of_what_is_not_there_are_errors(
    pets: Path, tmp_path: Path, line: str, message: str
) -> None:
    """The error names the line."""
    (tmp_path / "list").write_text(f"pets-test.tfrecord-00000-of-00001 1\n{line}\n")
    with pytest.raises(tfrtool.UsageError, match=message):
        tfrtool.filter_records(pets, tmp_path / "new", keep=tmp_path / "list")


def test_copies_of_images_are_skipped(tmp_path: Path) -> None:
    """All but the first, whatever else the records say; of records without images, the records."""
    one, two = image_payload(0), image_payload(1)
    relabelled = image_payload(3, data=image_bytes(tint=0))
    source = write_shards(tmp_path / "in", {"train": [[one, two, two], [relabelled, one]]})
    report = tfrtool.filter_records(source, tmp_path / "a", dedupe=True)
    assert payloads_of(tmp_path / "a", "train") == [one, two]
    assert report.skipped == {"dedupe": 3}
    plain = write_shards(tmp_path / "plain", {"train": [[*TRAIN[:5], *TRAIN[3:9]]]})
    tfrtool.filter_records(plain, tmp_path / "b", dedupe=True)
    assert payloads_of(tmp_path / "b", "train") == TRAIN[:9]


def test_a_sample_has_just_as_many(pets: Path, tmp_path: Path) -> None:
    """It is drawn by the seed, from what other rules leave, and keeps the order."""
    results = []
    for number, seed in enumerate((1, 1, 2)):
        report = tfrtool.filter_records(
            pets, tmp_path / str(number), name="pets", where="label < 4", sample=50, seed=seed
        )
        assert report.records_out == 50
        assert report.skipped == {"where": 140, "sample": 510}
        results.append(files_of(tmp_path / str(number)))
    assert results[0] == results[1] != results[2]
    drawn = payloads_of(tmp_path / "0", "train")
    assert drawn == [payload for payload in TRAIN if payload in drawn]
    assert tfrtool.filter_records(pets, tmp_path / "all", sample=9999).records_out == 700


def test_nothing_to_keep_is_an_error(pets: Path, tmp_path: Path) -> None:
    """No rule, and no record that passes."""
    with pytest.raises(tfrtool.UsageError, match="--where, --keep"):
        tfrtool.filter_records(pets, tmp_path / "new")
    for sampling in ({}, {"sample": 5}, {"sample": "5%", "sample_per": "label"}):
        with pytest.raises(tfrtool.WriteError, match="0 of 700"):
            tfrtool.filter_records(pets, tmp_path / "new", where="label > 99", **sampling)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("sample", "count"), [("5%", 2), ("0.05", 2), (".5", 20), ("100%", 40), ("3", 3), ("0.1%", 1)]
)
def test_a_sample_is_a_number_or_a_share(tmp_path: Path, sample: str, count: int) -> None:
    """A share is of the records that the other options leave."""
    path = tmp_path / "a.tfrecord"
    path.write_bytes(shard_of([tfrtool.encode_example({"n": n}) for n in range(80)]))
    words = ["filter", str(path), str(tmp_path / "out"), "--where", "n < 40", "--sample", sample]
    assert main(words) == 0
    (shard,) = (tmp_path / "out").glob("*.tfrecord-*")
    assert tfrtool.count(shard) == count


@pytest.mark.parametrize("sample", ["0", "0%", "101%", "1.0", "1.5", "x", "-1", "0.0", "5 %", ""])
def test_samples_that_are_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], sample: str
) -> None:
    """The error says what a sample may be."""
    path = tmp_path / "a.tfrecord"
    path.write_bytes(shard_of([tfrtool.encode_example({"n": 1})]))
    assert main(["filter", str(path), str(tmp_path / "out"), f"--sample={sample}"]) == 2
    assert "a share of them, such as 5% or 0.05" in capsys.readouterr().err
