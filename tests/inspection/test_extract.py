"""Taking images out of shards: names, folders, and nothing lost."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import MakeShard
from tests.datasets import flip_bit, image_payload
from tests.examples.strategies import UNSET, float32, int64, string
from tests.inspection.extracting import (
    JPEG,
    PNG,
    files_below,
    lines_beside,
    photo,
    workshop,
    write_shard,
)
from tests.inspection.test_safe_names import names
from tfrtool import extract
from tfrtool.errors import ShardError, UsageError
from tfrtool.examples.example import encode_example
from tfrtool.inspection.extract.extract import ExtractReport
from tfrtool.storage.progress import Progress


def take(shard: Path, out: Path, **options: object) -> ExtractReport:
    """Take everything out of one shard."""
    return extract([shard], out, **options)  # type: ignore[arg-type]


def test_recorded_paths_are_kept(tmp_path: Path) -> None:
    """A name whose folder is its class is the file's path, whatever the letter case."""
    payloads = [
        photo(JPEG + b"a", b"cat/1.jpg", 0),
        photo(JPEG + b"b", b"PetImages/Dog/1.jpg", 1),
        photo(JPEG + b"c", b"dog/deep/er/1.jpg", 1),
    ]
    report = take(write_shard(tmp_path / "a.tfrecord", payloads, ["cat", "dog"]), tmp_path / "out")
    assert files_below(tmp_path / "out") == {
        "cat/1.jpg": JPEG + b"a",
        "PetImages/Dog/1.jpg": JPEG + b"b",
        "dog/deep/er/1.jpg": JPEG + b"c",
    }
    assert report.classes == {"PetImages/Dog": 1, "cat": 1, "dog/deep/er": 1}
    assert report.complete
    assert report.renamed == ()
    assert report.bytes == 3 * len(JPEG) + 3


def test_names_without_their_class_go_into_its_folder(tmp_path: Path) -> None:
    """Base names that classes share don't meet; other folders stay, below the class."""
    payloads = [
        photo(JPEG + b"a", b"1.jpg", 0),
        photo(JPEG + b"b", b"1.jpg", 1),
        photo(JPEG + b"c", b"train/1.jpg", 1),
    ]
    take(write_shard(tmp_path / "a.tfrecord", payloads, ["cat", "dog"]), tmp_path / "out")
    assert files_below(tmp_path / "out") == {
        "cat/1.jpg": JPEG + b"a",
        "dog/1.jpg": JPEG + b"b",
        "dog/train/1.jpg": JPEG + b"c",
    }


def test_records_without_names_are_named_by_shard_and_number(tmp_path: Path) -> None:
    """Shard and record make the name, the content its suffix, the label's value the folder."""
    payloads = [photo(PNG, label=7), photo(JPEG, label=0), photo(b"\0\1", label=7)]
    shard = write_shard(tmp_path / "mnist-test.tfrecord-00000-of-00001", payloads)
    other = write_shard(tmp_path / "more-train.tfrecord-00002-of-00004", payloads[:1])
    third = write_shard(tmp_path / "x.tfrecords.gz", payloads[:1])
    extract([shard, other, third], tmp_path / "out")
    assert set(files_below(tmp_path / "out")) == {
        "7/test-000000.png",
        "0/test-000001.jpg",
        "7/test-000002.bin",
        "7/train-00002-000000.png",
        "7/x-000000.png",
    }


def test_text_labels_are_folders(tmp_path: Path) -> None:
    """A label that is text is its folder; what is no folder's name is made one, and told once."""
    payloads = [photo(JPEG, b"1.jpg", label) for label in (b"cat", b"a/../b", b"a/../b", b"..")]
    report = take(write_shard(tmp_path / "a.tfrecord", payloads), tmp_path / "out")
    assert set(files_below(tmp_path / "out")) == {
        "cat/1.jpg",
        "a%2F..%2Fb/1.jpg",
        "a%2F..%2Fb/1_2.jpg",
        "1.jpg",
    }
    assert [(entry.file, entry.recorded) for entry in report.renamed] == [
        ("a%2F..%2Fb/1_2.jpg", "1.jpg"),
    ]


def test_folders_by_any_feature(tmp_path: Path) -> None:
    """--by takes numbers, text and floats; a record without a value has no class folder."""
    payloads = [
        photo(JPEG, b"1.jpg", 1, split=string(b"train"), score=float32(0.1)),
        photo(JPEG, b"2.jpg", 1, split=UNSET),
        photo(JPEG, b"cat/3.jpg", 1, split=string(b"test")),
        photo(JPEG, b"4.jpg", 1, split=string(b"a", b"b")),
    ]
    shard = write_shard(tmp_path / "a.tfrecord", payloads)
    report = take(shard, tmp_path / "out", by="split")
    expected = {"train/1.jpg", "2.jpg", "test/cat/3.jpg", "4.jpg"}
    assert set(files_below(tmp_path / "out")) == expected
    assert report.unlabelled == 2
    assert report.classes == {".": 2, "test/cat": 1, "train": 1}
    take(shard, tmp_path / "scores", by="score")
    assert "0.1/1.jpg" in files_below(tmp_path / "scores")


def test_flat_has_no_folders(tmp_path: Path) -> None:
    """One folder for all takes base names, and numbers those that are taken."""
    payloads = [photo(JPEG + bytes([n]), b"c%d/1.jpg" % n, n) for n in range(3)]
    report = take(write_shard(tmp_path / "a.tfrecord", payloads), tmp_path / "out", flat=True)
    assert files_below(tmp_path / "out") == {
        "1.jpg": JPEG + b"\0",
        "1_2.jpg": JPEG + b"\1",
        "1_3.jpg": JPEG + b"\2",
    }
    assert [entry.recorded for entry in report.renamed] == ["c1/1.jpg", "c2/1.jpg"]


def test_a_list_becomes_several_files(tmp_path: Path) -> None:
    """Each value of a feature is a file; so is each step of a feature list."""
    frames = {"image": string(JPEG, JPEG + b"2"), "image/filename": string(b"x.jpg")}
    take(write_shard(tmp_path / "a.tfrecord", [encode_example(frames)]), tmp_path / "out")
    assert files_below(tmp_path / "out") == {"x-1.jpg": JPEG, "x-2.jpg": JPEG + b"2"}
    assert lines_beside(tmp_path / "out")[0]["file"] == ["x-1.jpg", "x-2.jpg"]
    golden = Path(__file__).parents[2] / "fixtures" / "golden" / "sequence.tfrecord"
    report = take(golden, tmp_path / "tokens", feature="tokens")
    assert report.files == 8
    assert report.skipped[0].record == 0
    assert (tmp_path / "tokens" / "2" / "sequence-000002-1.txt").read_bytes() != b""


def test_a_file_and_a_folder_of_one_name(tmp_path: Path) -> None:
    """Where a file has the name that a folder needs, either gets a number, whichever is second."""
    payloads = [
        photo(JPEG + b"1", b"a.b"),
        photo(JPEG + b"2", b"a.b/c.d"),
        photo(JPEG + b"3", b"a.b/e.f"),
        photo(JPEG + b"4", b"g.h/i.j"),
        photo(JPEG + b"5", b"g.h"),
    ]
    take(write_shard(tmp_path / "a.tfrecord", payloads), tmp_path / "out")
    assert files_below(tmp_path / "out") == {
        "a.b": JPEG + b"1",
        "a_2.b/c.d": JPEG + b"2",
        "a_2.b/e.f": JPEG + b"3",
        "g.h/i.j": JPEG + b"4",
        "g_2.h": JPEG + b"5",
    }


@given(recorded=st.lists(names, min_size=1, max_size=12), flat=st.booleans())
def test_any_names_give_every_record_a_file_inside(recorded: list[bytes], flat: bool) -> None:
    """Whatever names records have, each gets a file of its own, and none lies outside."""
    with workshop() as directory:
        payloads = [photo(JPEG + bytes([n]), name) for n, name in enumerate(recorded)]
        payloads.insert(0, photo(JPEG, b"first.jpg"))
        shard = write_shard(directory / "in" / "a.tfrecord", payloads)
        report = take(shard, directory / "in" / "out", flat=flat)
        assert report.files == len(payloads)
        files = files_below(directory / "in" / "out")
        for number, line in enumerate(lines_beside(directory / "in" / "out")):
            expected = JPEG if number == 0 else JPEG + bytes([number - 1])
            assert files.pop(line["file"]) == expected
        assert files == {}
        beside = {path.name for path in (directory / "in").iterdir()}
        assert beside == {"a.tfrecord", "out", "out.jsonl"}
        assert [path.name for path in directory.iterdir()] == ["in"]


def test_other_features_are_kept_in_full(tmp_path: Path) -> None:
    """The file beside has every other value: numbers, text, small bytes; large ones described."""
    others = {
        "n": int64(-(2**63)),
        "xs": float32(0.1, float("nan"), float("inf")),
        "none": UNSET,
        "empty": int64(),
        "note": string("né\n".encode()),
        "key": string(b"\0\xff"),
        "mask": string(PNG + bytes(2000)),
    }
    shard = write_shard(tmp_path / "a.tfrecord", [photo(JPEG, b"a.jpg", 3, **others)])
    take(shard, tmp_path / "out")
    (line,) = lines_beside(tmp_path / "out")
    assert line == {
        "file": "3/a.jpg",
        "shard": str(shard),
        "record": 0,
        "features": {
            "image/filename": "a.jpg",
            "label": 3,
            "n": -(2**63),
            "xs": [0.1, "NaN", "Infinity"],
            "none": None,
            "empty": [],
            "note": "né\n",
            "key": {"bytes": 2, "content": "binary", "base64": "AP8="},
            "mask": {"bytes": 2008, "content": "image/png"},
        },
    }


def test_damaged_records_are_passed_and_told(tmp_path: Path) -> None:
    """A damaged record is a fault with its offset; all others come out."""
    payloads = [photo(JPEG + bytes([n]), b"%d.jpg" % n, 0) for n in range(5)]
    shard = write_shard(tmp_path / "a.tfrecord", payloads)
    flip_bit(shard, 2 * (len(payloads[0]) + 16) + 40)
    report = take(shard, tmp_path / "out")
    (entry,) = report.faults
    assert (entry.path, entry.fault.record) == (shard, 2)
    assert entry.fault.offset == 2 * (len(payloads[0]) + 16)
    assert set(files_below(tmp_path / "out")) == {f"0/{n}.jpg" for n in (0, 1, 3, 4)}
    assert not report.complete


def test_records_with_nothing_to_take_are_told(tmp_path: Path) -> None:
    """A record without the image, with another type or no value is listed, and has a line."""
    payloads = [
        photo(JPEG, b"0.jpg", 0),
        encode_example({"label": int64(1), "image/filename": string(b"1.jpg")}),
        encode_example({"image": int64(1)}),
        encode_example({"image": string()}),
        b"",
        b"\xff no message",
    ]
    report = take(write_shard(tmp_path / "a.tfrecord", payloads), tmp_path / "out")
    assert report.files == 1
    assert [entry.record for entry in report.skipped] == [1, 2, 3, 4]
    assert "int64" in report.skipped[1].reason
    assert [entry.fault.kind.value for entry in report.faults] == ["parse"]
    lines = lines_beside(tmp_path / "out")
    assert [line["file"] for line in lines] == ["0/0.jpg", None, None, None, None]
    assert lines[1]["features"] == {"label": 1, "image/filename": "1.jpg"}
    assert lines[2]["features"] == {"image": 1}
    assert all(line["skipped"] for line in lines[1:])


def test_label_and_name_may_be_missing_at_first(tmp_path: Path) -> None:
    """Parts that features play are found in the first records, not in the very first alone."""
    payloads = [photo(JPEG + b"0"), photo(JPEG + b"1", b"1.jpg", 5)]
    report = take(write_shard(tmp_path / "a.tfrecord", payloads), tmp_path / "out")
    assert (report.by, report.name) == ("label", "image/filename")
    assert set(files_below(tmp_path / "out")) == {"a-000000.jpg", "5/1.jpg"}


def test_a_rare_feature_can_be_taken_out(tmp_path: Path) -> None:
    """A feature that few records have is found, and the others are left out."""
    payloads = [photo(JPEG, b"%d.jpg" % n, 0) for n in range(200)]
    payloads.append(photo(JPEG, b"200.jpg", 0, mask=string(PNG)))
    report = take(write_shard(tmp_path / "a.tfrecord", payloads), tmp_path / "out", feature="mask")
    assert files_below(tmp_path / "out") == {"0/200.jpg": PNG}
    assert report.skipped_count == 200


def test_compressed_shards_and_limit(make_shard: MakeShard, tmp_path: Path) -> None:
    """A gzip shard is read as any other; the limit counts records over all shards."""
    plain = make_shard([photo(JPEG + bytes([n]), b"%d.jpg" % n, 0) for n in range(3)])
    packed = tmp_path / "b.tfrecord"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    seen: list[Progress] = []
    extract([packed, plain], tmp_path / "out", limit=4, on_progress=seen.append)
    assert set(files_below(tmp_path / "out")) == {"0/0.jpg", "0/0_2.jpg", "0/1.jpg", "0/2.jpg"}
    assert len(seen) == 4
    assert all(one.total is not None and 0 < one.done <= one.total for one in seen)


def test_refusals_come_before_anything_is_written(make_shard: MakeShard, tmp_path: Path) -> None:
    """What makes no sense, or finds nothing, leaves no directory and no metadata."""
    shard = make_shard([photo(JPEG, b"0.jpg", 0)])
    table = make_shard([encode_example({"x": int64(1)})], "table.tfrecord")
    out = tmp_path / "new" / "out"
    for options in ({"feature": "imagee"}, {"by": "x"}, {"name": "x"}, {"feature": "label"}):
        with pytest.raises(UsageError):
            take(shard, out, **options)
    with pytest.raises(UsageError):
        take(shard, out, by="label", flat=True)
    with pytest.raises(UsageError):
        extract([], out)
    with pytest.raises(ShardError) as caught:
        take(table, out)
    assert caught.value.found == "x (int64)"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.tfrecord", "table.tfrecord"]


@pytest.mark.parametrize("name", ["label", "image"])
def test_a_feature_that_can_not_name_files_is_refused(
    name: str, make_shard: MakeShard, tmp_path: Path
) -> None:
    """Numbers name no files, nor does what is taken out itself; neither is passed over."""
    shard = make_shard([image_payload(1)])
    with pytest.raises(UsageError, match="can't name the files"):
        extract([shard], tmp_path / "out", name=name)
    assert not (tmp_path / "out").exists()
