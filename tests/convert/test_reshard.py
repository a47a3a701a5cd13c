"""Resharding: other shards of the same records."""

from __future__ import annotations

import gzip
import json
import os
import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import tfrtool
from tests.datasets import flip_bit
from tests.examples.strategies import string
from tests.records.strategies import payloads, shard_of
from tfrtool.cli import main
from tfrtool.convert.reshard import permuted
from tfrtool.examples.example import encode_example
from tfrtool.records.framing import masked_crc32c
from tfrtool.storage.progress import Progress
from tfrtool.writing.job_report import JobReport

LABELS = 5


def record(number: int, label: int | None = None) -> bytes:
    """Return an Example that is like no other, of one of five labels."""
    noise = random.Random(number).randbytes(number % 700)
    return encode_example(
        {"label": number % LABELS if label is None else label, "id": number, "noise": noise}
    )


def label_of(payload: bytes) -> int:
    """Return the label of an Example."""
    label = tfrtool.parse_example(payload)["label"]
    assert isinstance(label, int)
    return label


def write_shards(folder: Path, splits: dict[str, Sequence[Sequence[bytes]]]) -> Path:
    """Write payloads as shards with TFDS' names."""
    folder.mkdir()
    for split, shards in splits.items():
        for number, shard in enumerate(shards):
            name = f"pets-{split}.tfrecord-{number:05}-of-{len(shards):05}"
            (folder / name).write_bytes(shard_of(list(shard)))
    return folder


def payloads_of(folder: Path, split: str) -> list[bytes]:
    """Return what the shards of a split hold."""
    return [
        item.payload
        for path in sorted(folder.glob(f"*-{split}.tfrecord-*"))
        for item in tfrtool.read(path)
        if isinstance(item, tfrtool.Record)
    ]


def files_of(folder: Path) -> dict[str, bytes]:
    """Return the shards of a dataset."""
    return {path.name: path.read_bytes() for path in folder.glob("*.tfrecord-*")}


@pytest.fixture
def pets(tmp_path: Path) -> Path:
    """Return a dataset of 1,500 records in two splits, in shards of uneven sizes."""
    train = [record(number) for number in range(1200)]
    test = [record(number) for number in range(2000, 2300)]
    return write_shards(
        tmp_path / "pets", {"train": [train[:100], train[100:1000], train[1000:]], "test": [test]}
    )


@settings(deadline=None)
@example(shards=[[b"a", b"a" * 1000]], count="100B")
@given(
    shards=st.lists(st.lists(payloads, max_size=12), min_size=1, max_size=4).filter(any),
    count=st.one_of(st.integers(1, 4), st.sampled_from(["40B", "100B", "1KB"])),
)
def test_all_records_are_kept_in_their_order(
    shards: list[list[bytes]], count: int | str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Whatever the numbers and sizes: what goes in comes out, and shards are as asked for."""
    folder = tmp_path_factory.mktemp("any")
    source = write_shards(folder / "in", {"train": shards})
    records = [payload for shard in shards for payload in shard]
    if isinstance(count, int):
        count = min(count, len(records))
        report = tfrtool.reshard(source, folder / "out", shards=count)
        sizes = [shard.records for shard in report.splits["train"].shards]
        assert len(sizes) == count
        assert max(sizes) - min(sizes) <= 1
    else:
        report = tfrtool.reshard(source, folder / "out", shard_size=count)
        limit = int(count.rstrip("KB")) * (1000 if "K" in count else 1)
        longest = max(map(len, records)) + 16
        written = report.splits["train"].shards
        assert all(one.records and one.bytes <= limit + longest for one in written)
    assert payloads_of(folder / "out", "train") == records
    assert report.digest_in == report.digest_out
    assert report.records_in == report.records_out == len(records)


@pytest.mark.parametrize("count", [1, 2, 3, 100, 65_537])
def test_a_permutation_has_each_place_once(count: int) -> None:
    """Whatever the number of places, and whatever the seed, any part of it can be asked for."""
    whole = permuted(np.arange(count, dtype=np.uint64), count, -7)
    assert sorted(whole.tolist()) == list(range(count))
    part = permuted(np.arange(count // 2, count, dtype=np.uint64), count, -7)
    assert part.tolist() == whole.tolist()[count // 2 :]


def test_a_seed_in_place_of_shuffle_is_refused(pets: Path, tmp_path: Path) -> None:
    """`shuffle=7` would shuffle by the seed 0: the error names the argument for the seed."""
    with pytest.raises(tfrtool.UsageError, match="seed"):
        tfrtool.reshard(pets, tmp_path / "no", shuffle=7)  # type: ignore[arg-type]
    assert not (tmp_path / "no").exists()


@pytest.mark.slow
def test_a_shuffle_is_the_same_on_any_number_of_workers(pets: Path, tmp_path: Path) -> None:
    """The seed decides the order, and all records of a split take part in it."""
    results = []
    for number, (seed, workers) in enumerate([(1, 1), (1, 2), (2, 1)]):
        report = tfrtool.reshard(
            pets,
            tmp_path / str(number),
            name="pets",
            shards=3,
            shuffle=True,
            seed=seed,
            workers=workers,
        )
        assert report.digest_in == report.digest_out
        results.append(files_of(tmp_path / str(number)))
        found = payloads_of(tmp_path / str(number), "train")
        assert Counter(found) == Counter(payloads_of(pets, "train"))
        assert found != payloads_of(pets, "train")
    assert results[0] == results[1] != results[2]


def test_splits_are_stratified_to_rounding(pets: Path, tmp_path: Path) -> None:
    """Each split has its share of each label, and no record is in two."""
    report = tfrtool.reshard(
        pets, tmp_path / "new", splits={"a": 0.7, "b": 0.2, "c": 0.1}, stratify="label", seed=3
    )
    shares = {"a": 210, "b": 60, "c": 30}
    for split, share in shares.items():
        labels = Counter(map(label_of, payloads_of(tmp_path / "new", split)))
        assert labels == dict.fromkeys(range(LABELS), share)
    assert report.digest_in == report.digest_out
    assert report.records_in == 1500


def test_groups_and_copies_stay_together(tmp_path: Path) -> None:
    """Records of one group, and records that are the same, are in one split."""
    some = [record(number, number % 50) for number in range(400)]
    source = write_shards(tmp_path / "in", {"train": [some, some]})
    halves = {"a": 0.5, "b": 0.5}
    tfrtool.reshard(source, tmp_path / "groups", splits=halves, group_by="label")
    a, b = ({label_of(p) for p in payloads_of(tmp_path / "groups", s)} for s in halves)
    assert a.isdisjoint(b)
    assert len(a | b) == 50
    empty = [encode_example({"k": string(), "id": number}) for number in range(40)]
    grouped = [encode_example({"k": "x"}), *empty]
    without = write_shards(tmp_path / "without", {"train": [grouped]})
    tfrtool.reshard(without, tmp_path / "apart", splits=halves, group_by="k")
    assert all(2 < len(payloads_of(tmp_path / "apart", s)) < 38 for s in halves)
    tfrtool.reshard(source, tmp_path / "copies", splits=halves)
    a_records, b_records = (set(payloads_of(tmp_path / "copies", s)) for s in halves)
    assert a_records.isdisjoint(b_records)
    assert 140 < len(a_records) < 260
    with pytest.raises(tfrtool.UsageError, match="no feature 'lable'"):
        tfrtool.reshard(source, tmp_path / "no", splits=halves, group_by="lable")


def test_damage_is_named_and_skipped(pets: Path, tmp_path: Path) -> None:
    """Of damaged payloads and headers, and in compressed shards; or it stops the job."""
    first = pets / "pets-train.tfrecord-00001-of-00003"
    flip_bit(first, 40)
    records = payloads_of(pets, "train")
    assert len(records) == 1199
    for number, words in enumerate(({}, {"shuffle": True}, {"splits": {"train": 0.5, "b": 0.5}})):
        out = tmp_path / str(number)
        report = tfrtool.reshard(pets, out, **words)  # type: ignore[arg-type]
        assert (report.corrupt, report.records_in, report.records_out) == (1, 1499, 1499)
        assert [(one.path, one.fault.record) for one in report.faults] == [(first, 0)]
        with pytest.raises(tfrtool.CorruptShardError, match=":0, offset"):
            tfrtool.reshard(pets, tmp_path / "no", on_error="stop", **words)  # type: ignore[arg-type]
    assert payloads_of(tmp_path / "0", "train") == records
    flip_bit(first, 0)  # its header
    first.write_bytes(gzip.compress(first.read_bytes()))
    assert main(["reshard", str(pets), str(tmp_path / "gzip"), "--compression", "zlib"]) == 3
    assert payloads_of(tmp_path / "gzip", "train") == records
    told = json.loads((tmp_path / "gzip" / "write_report.json").read_text())
    assert [fault["kind"] for fault in told["faults"]] == ["length-crc"]
    assert told["digest_in"] == told["digest_out"]


def test_class_names_go_along_and_must_agree(pets: Path, tmp_path: Path) -> None:
    """Labels of merged datasets mean the same; the new metadata has the new numbers."""
    (pets / "label.labels.txt").write_text("a\nb\nc\nd\ne\n")
    (pets / "features.json").write_text('{"some": "features"}')
    more = write_shards(tmp_path / "more", {"train": [[record(9000)]]})
    report = tfrtool.reshard([pets, more], tmp_path / "both", shards=1)
    assert report.splits["train"].records == 1201
    assert (tmp_path / "both" / "label.labels.txt").read_text() == "a\nb\nc\nd\ne\n"
    assert json.loads((tmp_path / "both" / "features.json").read_text()) == {"some": "features"}
    info = json.loads((tmp_path / "both" / "dataset_info.json").read_text())
    lengths = {one["name"]: one["shardLengths"] for one in info["splits"]}
    assert lengths == {"train": ["1201"], "test": ["300"]}
    (more / "label.labels.txt").write_text("b\na\n")
    with pytest.raises(tfrtool.DatasetError, match="class names") as raised:
        tfrtool.reshard([pets, more], tmp_path / "no")
    assert str(pets / "label.labels.txt") in str(raised.value)
    for folder in (pets, pets / "in"):
        with pytest.raises(tfrtool.UsageError, match="inside its source"):
            tfrtool.reshard(pets, folder, existing="overwrite")


def test_missing_shards_and_records_are_told(pets: Path, tmp_path: Path) -> None:
    """What the names or the metadata say that there is, and there isn't, is damage."""
    tfrtool.reshard(pets, tmp_path / "a", shards=2)
    shards = sorted((tmp_path / "a").glob("*.tfrecord-*"))
    data = shards[2].read_bytes()
    shards[2].write_bytes(data[: len(data) - len(record(599)) - 16])
    shards[0].unlink()
    report = tfrtool.reshard(tmp_path / "a", tmp_path / "b")
    kinds = sorted(one.fault.kind.value for one in report.faults)
    assert kinds == ["count", "missing-shard"]


def test_a_dry_run_says_what_would_be_written(
    pets: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The plan has the shards' names and records; the run has the same; nothing is left of it."""
    assert main(["reshard", str(pets), str(tmp_path / "new"), "--shards", "2", "--dry-run"]) == 0
    printed = capsys.readouterr().out
    assert "1,500 records in, 1,500 out" in printed
    assert "new-train.tfrecord-00001-of-00002  600 records" in printed
    assert not (tmp_path / "new").exists()
    with pytest.raises(tfrtool.UsageError, match=r"--shards 301.*300 records"):
        tfrtool.reshard(pets, tmp_path / "new", shards=301)
    assert os.listdir(tmp_path) == ["pets"]  # noqa: PTH208


@pytest.mark.tf
@pytest.mark.parametrize("compression", ["none", "gzip", "zlib"])
def test_bytes_are_those_of_tensorflow(pets: Path, tmp_path: Path, compression: str) -> None:
    """A shard is what TFRecordWriter makes of its records; and TensorFlow reads it."""
    import tensorflow as tf

    tfrtool.reshard(pets, tmp_path / "new", shards=1, compression=compression)  # type: ignore[arg-type]
    kind = "" if compression == "none" else compression.upper()
    with tf.io.TFRecordWriter(str(tmp_path / "theirs"), kind) as writer:
        for payload in payloads_of(pets, "test"):
            writer.write(payload)
    ours = tmp_path / "new" / "new-test.tfrecord-00000-of-00001"
    assert ours.read_bytes() == (tmp_path / "theirs").read_bytes()


def test_the_digest_is_as_documented(pets: Path, tmp_path: Path) -> None:
    """The sum of splitmix64 of CRC and length, by another implementation."""

    def splitmix64(word: int) -> int:
        mixed = (word + 0x9E3779B97F4A7C15) % 2**64
        mixed = (mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9 % 2**64
        mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EB % 2**64
        return mixed ^ mixed >> 31

    assert splitmix64(0) == 0xE220A8397B1DCDAF  # the reference's first output for the seed 0
    records = payloads_of(pets, "train") + payloads_of(pets, "test")
    total = sum(splitmix64(masked_crc32c(one) << 32 | len(one)) for one in records)
    report = tfrtool.reshard(pets, tmp_path / "new")
    assert report.digest_out == f"{total % 2**64:016x}"


def test_sources_with_other_features(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A feature of two types, or in one source alone, is refused by name unless it is wanted."""
    held: dict[str, dict[str, Any]] = {
        "a": {"id": 1, "x": b"text"},
        "b": {"id": 2, "x": 3},
        "c": {"id": 3, "x": b"text", "more": 1.5},
    }
    for name, features in held.items():
        write_shards(tmp_path / name, {"train": [[encode_example(features)]]})
    sources = [str(tmp_path / name) for name in held]
    for other, feature in ((1, "x (int64, not string)"), (2, "more (only here)")):
        words = ["reshard", sources[0], sources[other], str(tmp_path / "out")]
        assert main(words) != 0
        error = capsys.readouterr().err
        assert f"{sources[other]}: " in error
        assert f"{sources[0]}: {feature};" in error
        assert "--allow-mixed" in error
        assert not (tmp_path / "out").exists()
    assert main([*words, "--dry-run"]) != 0
    assert main(["reshard", *sources, str(tmp_path / "out"), "--allow-mixed"]) == 0
    assert len(payloads_of(tmp_path / "out", "train")) == 3


def test_shards_of_one_pattern_with_other_types(tmp_path: Path) -> None:
    """A pattern may mean several datasets; optional features of one dataset are no conflict."""
    for name, value in (("a", b"text"), ("b", 3)):
        (tmp_path / f"{name}.tfrecord").write_bytes(shard_of([encode_example({"x": value})]))
    with pytest.raises(tfrtool.SchemaError, match=r": x \(int64, not string\);"):
        tfrtool.reshard(str(tmp_path / "*.tfrecord"), tmp_path / "out")
    train, test = [encode_example({"x": 1, "y": 2})], [encode_example({"x": 1})]
    write_shards(tmp_path / "whole", {"train": [train], "test": [test]})
    assert tfrtool.reshard(tmp_path / "whole", tmp_path / "out").records_out == 2
    write_shards(tmp_path / "raw", {"train": [[b"\xff raw"]], "test": [[b"\xff more"]]})
    assert tfrtool.reshard(tmp_path / "raw", tmp_path / "rawer").records_out == 2


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("change", ["rewritten", "payload", "header"])
def test_a_source_that_changes(tmp_path: Path, shuffle: bool, change: str) -> None:
    """Records are copied as long as their file is what it was; damage in it is left out."""
    source = tmp_path / "s.tfrecord"
    source.write_bytes(shard_of([b"%d" % number for number in range(10)]))
    status = source.stat()

    def interfere(progress: Progress) -> None:
        if progress.what == "scanning" and progress.done == progress.total:
            data = bytearray(shard_of([b"%d" % number for number in range(10)]))
            data[17 * 4 + (0 if change == "header" else 12)] ^= 1
            source.write_bytes(data)
            if change != "rewritten":
                os.utime(source, ns=(status.st_mtime_ns, status.st_mtime_ns))

    def job() -> JobReport:
        return tfrtool.reshard(
            source, tmp_path / "out", shuffle=shuffle, workers=1, on_progress=interfere
        )

    if change != "payload":
        with pytest.raises(tfrtool.ShardError, match="changed while"):
            job()
        assert not (tmp_path / "out").exists()
        return
    report = job()
    assert [(one.fault.record, one.fault.offset) for one in report.faults] == [(4, 68)]
    assert sorted(payloads_of(tmp_path / "out", "train")) == [
        b"%d" % n for n in range(10) if n != 4
    ]
