"""`extract` takes back out what `write` and TensorFlow have put in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import tfrtool
from tests.inspection.extracting import files_below, lines_beside
from tests.photos import image_bytes
from tfrtool import extract, find_shards
from tfrtool.records.compression import Compression
from tfrtool.writing.write_report import WriteReport

pytestmark = pytest.mark.tf

PETS = Path(__file__).parents[2] / "fixtures" / "pets"


def there_and_back(source: Path, tmp_path: Path, compression: Compression) -> WriteReport:
    """Write a source as shards in two splits, and extract those into the directory "out"."""
    written = tfrtool.write(
        source,
        tmp_path / "shards",
        name="photos",
        splits={"train": 0.8, "validation": 0.2},
        shard_size=100_000,
        compression=compression.value,
    )
    report = extract(find_shards([str(tmp_path / "shards")]), tmp_path / "out")
    assert report.complete
    assert report.renamed == ()
    return written


@pytest.mark.parametrize("compression", [Compression.NONE, Compression.GZIP])
def test_drawings_come_back_byte_for_byte(tmp_path: Path, compression: Compression) -> None:
    """All that `write` kept as it was is back in its place, byte for byte, and nothing else."""
    written = there_and_back(PETS, tmp_path, compression)
    source, out = files_below(PETS), files_below(tmp_path / "out")
    (rejected,) = written.rejected
    (converted,) = written.converted
    del source[rejected.key]
    assert source.pop(converted["key"]) != out.pop(converted["key"])
    assert out == source
    assert len(out) == 198


def test_photographs_come_back_byte_for_byte(shared_data: Path, tmp_path: Path) -> None:
    """Every photograph is back under its path: `diff -r` would find nothing."""
    written = there_and_back(shared_data / "catsdogs_iitis", tmp_path, Compression.NONE)
    source = files_below(shared_data / "catsdogs_iitis")
    for entry in written.ignored:
        del source[entry.key]
    assert files_below(tmp_path / "out") == source
    assert len(source) == 20


def test_awkward_paths_come_back(tmp_path: Path) -> None:
    """Folders above and below the class, spaces, accents, and base names shared by classes."""
    source = tmp_path / "source"
    summer = ["1.JPG", "more/1.jpg"]
    winter = ["1.JPG", "what? 12:30.jpeg", "a.b.c.jpg"]
    names = [*(f"Été/{name}" for name in summer), *(f"Hiver/{name}" for name in winter)]
    for number, name in enumerate(names):
        path = source / "Pet Images" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(image_bytes(tint=number))
    there_and_back(source, tmp_path, Compression.NONE)
    assert files_below(tmp_path / "out") == files_below(source)


def test_what_tensorflow_writes_comes_out(tf: Any, tmp_path: Path) -> None:
    """Names, bytes and values are those that TensorFlow put into the record."""
    feature = tf.train.Feature
    features = {
        "image/encoded": feature(bytes_list=tf.train.BytesList(value=[b"\xff\xd8\xff1"])),
        "image/filename": feature(bytes_list=tf.train.BytesList(value=[b"1.jpg"])),
        "image/class/label": feature(int64_list=tf.train.Int64List(value=[3])),
        "box": feature(float_list=tf.train.FloatList(value=[0.1, 0.7])),
    }
    example = tf.train.Example(features=tf.train.Features(feature=features))
    shard = tmp_path / "a.tfrecord"
    with tf.io.TFRecordWriter(str(shard), "ZLIB") as writer:
        writer.write(example.SerializeToString())
    extract([shard], tmp_path / "out")
    assert files_below(tmp_path / "out") == {"3/1.jpg": b"\xff\xd8\xff1"}
    (line,) = lines_beside(tmp_path / "out")
    assert line["features"] == {
        "image/filename": "1.jpg",
        "image/class/label": 3,
        "box": [0.1, 0.7],
    }
