"""Writing datasets, held against TensorFlow."""

from __future__ import annotations

import gzip
import hashlib
import json
import zlib
from pathlib import Path
from typing import Any

import pytest

import tfrtool
from tests.photos import image_bytes, write_class_folders
from tfrtool.errors import SourceError, UsageError, WriteError
from tfrtool.examples.example import decode_example
from tfrtool.records.framing import Record
from tfrtool.records.reader import read_records
from tfrtool.storage.commit import STAGING
from tfrtool.storage.progress import Progress

pytestmark = pytest.mark.tf

TWO_SPLITS = {"train": 0.7, "test": 0.3}


def _shard_bytes(dataset: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in dataset.glob("*.tfrecord-*")}


def _payloads(path: Path) -> list[bytes]:
    with path.open("rb") as file:
        items = list(read_records(file))
    assert all(isinstance(item, Record) for item in items)
    return [item.payload for item in items if isinstance(item, Record)]


def test_every_image_is_written_byte_for_byte(tmp_path: Path) -> None:
    """Each record holds the file's bytes, its path below the source, and its class."""
    source = write_class_folders(tmp_path / "photos")
    tfrtool.write(source, tmp_path / "out", shards=2)
    written = {}
    for path in (tmp_path / "out").glob("*.tfrecord-*"):
        for payload in _payloads(path):
            features = decode_example(payload).features
            assert set(features) == {"image", "image/filename", "label"}
            (name,) = features["image/filename"].values
            assert isinstance(name, bytes)
            written[name.decode()] = (features["image"].values[0], features["label"].values[0])
    assert written == {
        path.relative_to(source).as_posix(): (path.read_bytes(), int(path.parent.name == "dog"))
        for path in source.rglob("*.jpg")
    }


def test_bytes_are_those_of_a_plain_loop(tmp_path: Path, tf: Any) -> None:
    """A shard equals what TFRecordWriter and tf.train.Example make of the same records."""
    source = write_class_folders(tmp_path / "photos", count=10)
    report = tfrtool.write(source, tmp_path / "out")
    (shard,) = report.splits["train"].shards
    plain = tmp_path / "plain.tfrecord"
    with tf.io.TFRecordWriter(str(plain)) as writer:
        for payload in _payloads(tmp_path / "out" / shard.path):
            name = decode_example(payload).features["image/filename"].values[0]
            assert isinstance(name, bytes)
            features = {
                "image": tf.train.Feature(
                    bytes_list=tf.train.BytesList(value=[(source / name.decode()).read_bytes()])
                ),
                "image/filename": tf.train.Feature(bytes_list=tf.train.BytesList(value=[name])),
                "label": tf.train.Feature(
                    int64_list=tf.train.Int64List(value=[int(name.startswith(b"dog"))])
                ),
            }
            example = tf.train.Example(features=tf.train.Features(feature=features))
            writer.write(example.SerializeToString(deterministic=True))
    assert plain.read_bytes() == (tmp_path / "out" / shard.path).read_bytes()


@pytest.mark.parametrize(
    ("compression", "undo"),
    [("gzip", gzip.decompress), ("zlib", zlib.decompress)],
)
def test_compressed_shards_hold_the_same_stream(
    compression: str, undo: Any, tmp_path: Path
) -> None:
    """Uncompressed, a compressed shard is the plain one."""
    source = write_class_folders(tmp_path / "photos")
    tfrtool.write(source, tmp_path / "plain", name="pets")
    tfrtool.write(source, tmp_path / "small", name="pets", compression=compression)  # type: ignore[arg-type]
    packed = _shard_bytes(tmp_path / "small")
    assert {name: undo(data) for name, data in packed.items()} == _shard_bytes(tmp_path / "plain")


def test_report_is_true(tmp_path: Path) -> None:
    """Counts, sizes and digests of the report are those of the files; it is what was saved."""
    source = write_class_folders(tmp_path / "photos", count=10)
    dataset = tmp_path / "out"
    report = tfrtool.write(source, dataset, splits=TWO_SPLITS, shards=2)
    data = json.loads((dataset / "write_report.json").read_text())
    assert data == report.to_json()
    assert list(data["splits"]) == ["train", "test"]
    for split in data["splits"].values():
        assert split["records"] == sum(shard["records"] for shard in split["shards"])
        assert split["records"] == sum(split["labels"].values())
        for shard in split["shards"]:
            content = (dataset / shard["path"]).read_bytes()
            assert shard["bytes"] == len(content)
            assert shard["sha256"] == hashlib.sha256(content).hexdigest()
            assert shard["records"] == len(_payloads(dataset / shard["path"]))
    assert sum(split["records"] for split in data["splits"].values()) == 20


def test_bad_images_are_skipped_and_listed(tmp_path: Path) -> None:
    """A cut, an empty and a false image are named with reasons; all others are written."""
    source = write_class_folders(tmp_path / "photos", count=4)
    good = (source / "cat" / "cat.0.jpg").read_bytes()
    (source / "cat" / "cut.jpg").write_bytes(good[: len(good) // 2])
    (source / "cat" / "empty.jpg").write_bytes(b"")
    (source / "dog" / "text.jpg").write_text("no image")
    report = tfrtool.write(source, tmp_path / "out")
    assert [entry.key for entry in report.rejected] == [
        "cat/cut.jpg",
        "cat/empty.jpg",
        "dog/text.jpg",
    ]
    assert all(entry.reason for entry in report.rejected)
    assert report.splits["train"].records == 8


def test_an_image_that_no_jpeg_can_hold_is_skipped(tmp_path: Path) -> None:
    """A PNG whose side is longer than a JPEG's may be is named, and stops nothing."""
    source = write_class_folders(tmp_path / "photos", count=2)
    (source / "cat" / "strip.png").write_bytes(image_bytes("PNG", size=(1, 65_501)))
    (source / "dog" / "strip.png").write_bytes(image_bytes("PNG", size=(1, 65_500)))
    report = tfrtool.write(source, tmp_path / "out")
    assert [entry.key for entry in report.rejected] == ["cat/strip.png"]
    assert "65,500" in report.rejected[0].reason
    assert [one["key"] for one in report.converted] == ["dog/strip.png"]
    assert report.splits["train"].records == 5


def test_disguised_images_are_converted_and_listed(tmp_path: Path, tf: Any) -> None:
    """A PNG that is named .jpg becomes a JPEG, and the report says so."""
    source = write_class_folders(tmp_path / "photos", count=2)
    (source / "cat" / "png.jpg").write_bytes(image_bytes("PNG", mode="RGBA"))
    report = tfrtool.write(source, tmp_path / "out")
    assert [(one["key"], one["from"]) for one in report.converted] == [("cat/png.jpg", "PNG")]
    for payload in _payloads(next((tmp_path / "out").glob("*.tfrecord-*"))):
        (image,) = decode_example(payload).features["image"].values
        assert isinstance(image, bytes)
        assert image.startswith(b"\xff\xd8\xff")
        assert tf.io.decode_jpeg(image, channels=3).shape[2] == 3


def test_on_bad_fail_writes_nothing(tmp_path: Path) -> None:
    """Where bad images are not to be skipped, the first is an error, and nothing is left."""
    source = write_class_folders(tmp_path / "photos", count=2)
    (source / "cat" / "bad.jpg").write_text("no image")
    with pytest.raises(SourceError) as caught:
        tfrtool.write(source, tmp_path / "out", on_error="stop")
    assert caught.value.path == str(source / "cat" / "bad.jpg")
    assert not (tmp_path / "out").exists()


def test_what_is_there_is_not_touched(tmp_path: Path) -> None:
    """A directory that isn't empty is refused, and stays as it was."""
    source = write_class_folders(tmp_path / "photos", count=2)
    dataset = tmp_path / "out"
    dataset.mkdir()
    (dataset / "thesis.txt").write_text("dear")
    for existing in ("refuse", "overwrite", "resume"):
        with pytest.raises(UsageError):
            tfrtool.write(source, dataset, existing=existing)
    assert [path.name for path in dataset.iterdir()] == ["thesis.txt"]


def test_overwrite_replaces_our_files_only(tmp_path: Path) -> None:
    """Old shards go, new ones come, and a file that is not ours stays."""
    source = write_class_folders(tmp_path / "photos", count=4)
    dataset = tmp_path / "out"
    tfrtool.write(source, dataset, shards=4)
    (dataset / "notes.txt").write_text("mine")
    tfrtool.write(source, dataset, shards=2, existing="overwrite")
    assert sorted(path.name for path in dataset.iterdir()) == [
        "dataset_info.json",
        "features.json",
        "label.labels.txt",
        "notes.txt",
        "out-train.tfrecord-00000-of-00002",
        "out-train.tfrecord-00001-of-00002",
        "write_report.json",
    ]


def test_two_writers_can_not_meet(tmp_path: Path) -> None:
    """A dataset that is being written is refused to a second writer."""
    source = write_class_folders(tmp_path / "photos", count=2)
    (tmp_path / "out" / STAGING).mkdir(parents=True)
    with pytest.raises(UsageError, match="interrupted"):
        tfrtool.write(source, tmp_path / "out")
    tfrtool.write(source, tmp_path / "out", existing="overwrite")
    assert not (tmp_path / "out" / STAGING).exists()


def test_dataset_inside_its_source_is_refused(tmp_path: Path) -> None:
    """Shards among the photographs would be taken for part of the source the next time."""
    source = write_class_folders(tmp_path / "photos", count=2)
    with pytest.raises(UsageError):
        tfrtool.write(source, source / "out")


def test_progress_counts_every_image_in_both_phases(tmp_path: Path) -> None:
    """Progress ends at the total in each phase, and never goes back."""
    source = write_class_folders(tmp_path / "photos", count=5)
    seen: dict[str, list[Progress]] = {"checking": [], "writing": []}
    told = lambda progress: seen[progress.what].append(progress)  # noqa: E731
    tfrtool.write(source, tmp_path / "out", splits=TWO_SPLITS, on_progress=told)
    for steps in seen.values():
        done = [step.done for step in steps]
        assert done == sorted(done)
        assert (done[-1], {step.total for step in steps}) == (10, {10})
        assert {step.unit for step in steps} == {"images"}


def test_lost_record_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tf: Any) -> None:
    """A record that never reached the file, as on a full disk, is an error, not a short shard."""
    source = write_class_folders(tmp_path / "photos", count=3)
    real = tf.io.TFRecordWriter

    class Forgetful:
        """Writes all records but the first."""

        def __init__(self, path: str, options: str) -> None:
            self._writer = real(path, options)
            self._records = 0

        def write(self, record: bytes) -> None:
            self._records += 1
            if self._records > 1:
                self._writer.write(record)

        def close(self) -> None:
            self._writer.close()

    monkeypatch.setattr(tf.io, "TFRecordWriter", Forgetful)
    with pytest.raises(WriteError, match="verification of the written shard failed"):
        tfrtool.write(source, tmp_path / "out")
    assert not (tmp_path / "out").exists()
