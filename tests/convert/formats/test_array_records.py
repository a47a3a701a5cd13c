"""ArrayRecord: payloads to the byte, and datasets that TFDS reads at random."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tfrtool
from tests.conftest import MakeShard
from tests.datasets import flip_bit, write_pets
from tfrtool.convert.formats import array_reader
from tfrtool.convert.formats.conversion import convert
from tfrtool.convert.formats.convert_task import read_rows as read_rows_of
from tfrtool.convert.formats.payload_formats import ArrayRecordFormat
from tfrtool.convert.formats.record_format import Content
from tfrtool.errors import SourceError, UsageError, WriteError
from tfrtool.examples.arrow.columns import Columns
from tfrtool.examples.example import PayloadKind, decode_example
from tfrtool.records.tally import Tally
from tfrtool.writing.job_report import Faults

module = pytest.importorskip("array_record.python.array_record_module")

FORM, CONTENT = ArrayRecordFormat(), Content(columns=Columns(PayloadKind.UNKNOWN))


def write_file(path: Path, payloads: Sequence[bytes]) -> Path:
    """Write payloads as our format does."""
    path.unlink(missing_ok=True)
    with FORM.write(path, CONTENT) as put:
        put(list(payloads))
    return path


def read_rows(path: Path, first: int = 0, rows: int | None = None) -> list[bytes]:
    """Read rows as our format does; all of them, if it isn't said how many."""
    scan = FORM.scan(path)
    piece = scan.piece(first, scan.rows - first if rows is None else rows)
    batches = read_rows_of(FORM, [piece], CONTENT, Tally(), Faults())
    return [payload for batch in batches for payload in batch.column("payload").to_pylist()]


@given(st.lists(st.binary(max_size=300), min_size=1, max_size=20), st.data())
@settings(max_examples=4)
def test_payloads_come_back(payloads: list[bytes], data: st.DataObject) -> None:
    """Any payloads are what they were, and any stretch of them; the library reads the same."""
    first = data.draw(st.integers(0, len(payloads) - 1))
    with tempfile.TemporaryDirectory() as folder:
        path = write_file(Path(folder) / "a.array_record", payloads)
        assert read_rows(path, first) == payloads[first:]
        assert read_rows(path, first, 1) == payloads[first : first + 1]
        reader = module.ArrayRecordReader(str(path))
        assert reader.read_all() == payloads
        assert "group_size:1," in reader.writer_options_string()
        reader.close()


def test_groups_of_others(tmp_path: Path) -> None:
    """Files with many records in a chunk are read, too."""
    payloads = [b"%d" % number for number in range(1000)]
    writer = module.ArrayRecordWriter(str(tmp_path / "a.arrayrecord"), "group_size:64")
    for payload in payloads:
        writer.write(payload)
    writer.close()
    assert read_rows(tmp_path / "a.arrayrecord", 77, 500) == payloads[77:577]


def test_damaged_records_are_skipped(tmp_path: Path) -> None:
    """A flipped bit costs its record and no other; the fault has its number and its place."""
    payloads = [os.urandom(200) for _ in range(100)]
    path = write_file(tmp_path / "a.array_record", payloads)
    for number in (7, 8, 50):
        flip_bit(path, path.read_bytes().index(payloads[number][8:32]))
    scan = FORM.scan(path)
    assert [fault.record for fault in scan.faults] == [7, 8, 50]
    assert all(
        0 <= path.read_bytes().index(payloads[fault.record or 0][40:]) - fault.offset < 150
        for fault in scan.faults
    )
    whole = [one for number, one in enumerate(payloads) if number not in (7, 8, 50)]
    assert read_rows(path) == whole
    for first in (0, 7, 48):
        assert read_rows(path, first, 20) == whole[first : first + 20]
    report = convert(path, tmp_path / "out", to="tfrecord")
    assert (report.job.corrupt, report.job.records_out) == (3, 97)
    with pytest.raises(tfrtool.CorruptShardError, match=":7"):
        convert(path, tmp_path / "none", to="tfrecord", on_error="stop")


@pytest.mark.parametrize("size", [0, 1, 65_536, 70_000, 131_071])
def test_cut_files_are_errors(tmp_path: Path, size: int) -> None:
    """The library says that a cut file has no records; here it is an error that names the file."""
    path = write_file(tmp_path / "a.array_record", [os.urandom(200) for _ in range(100)])
    data = path.read_bytes()
    assert len(data) == 131_072
    path.write_bytes(data[:size])
    assert module.ArrayRecordReader(str(path)).num_records() == 0
    with pytest.raises(SourceError, match="ArrayRecord file") as error:
        FORM.scan(path)
    assert error.value.path == str(path)
    assert error.value.found


def test_what_is_something_else_is_an_error(tmp_path: Path) -> None:
    """Text by that name, a directory, a pipe, and nothing at all."""
    path = tmp_path / "a.array_record"
    path.write_bytes(b"hello" * 20_000)
    folder, pipe = tmp_path / "b.array_record", tmp_path / "c.array_record"
    folder.mkdir()
    os.mkfifo(pipe)
    for place in (path, folder, pipe, tmp_path / "none"):
        with pytest.raises(SourceError, match=place.name):
            FORM.scan(place)


def _die(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


def test_crash_of_the_library_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If a file ends the process that reads it, the error names the file, and ours goes on."""
    path = write_file(tmp_path / "a.array_record", [b"a"])
    monkeypatch.setattr(array_reader, "_read", _die)
    with pytest.raises(SourceError, match=r"a\.array_record.*too large.*-11"):
        FORM.scan(path)


def test_what_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    """As where the folder is gone."""
    with pytest.raises(WriteError, match="gone"):
        write_file(tmp_path / "gone" / "a.array_record", [b"a"])


def test_library_that_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says how to install it."""
    monkeypatch.setitem(__import__("sys").modules, "array_record.python", None)
    with pytest.raises(UsageError, match="pip install array_record"):
        write_file(tmp_path / "a.array_record", [b"a"])


@pytest.mark.tf
@pytest.mark.slow
def test_tfds_reads_the_directory(tmp_path: Path) -> None:
    """`tfds.data_source` finds splits, images and class names, and any record by its number."""
    import tensorflow_datasets as tfds

    pets = write_pets(tmp_path, count=8)
    convert(pets, tmp_path / "data" / "pets" / "1.0.0", to="arrayrecord", shards=2)
    shards = {path.name for path in (tmp_path / "data" / "pets" / "1.0.0").glob("*.array_record*")}
    assert shards == {
        f"pets-{split}.array_record-0000{n}-of-00002"
        for split in ("train", "validation")
        for n in (0, 1)
    }
    source = tfds.data_source("pets", data_dir=tmp_path / "data", split="train")
    expected = [
        decode_example(payload)
        for path in sorted(pets.glob("pets-train*"))
        for payload in (one.payload for one in tfrtool.open_records(path))
    ]
    assert len(source) == len(expected)
    for number in (len(source) - 1, 0):
        found, features = source[number], expected[number].features
        assert found["label"] == features["label"].values[0]
        assert found["image/filename"] == features["image/filename"].values[0]
        assert found["image"].ndim == 3
    builder = tfds.builder_from_directory(tmp_path / "data" / "pets" / "1.0.0")
    assert builder.info.features["label"].names == ["cat", "dog"]
    assert set(builder.as_data_source()) == {"train", "validation"}


def test_columns_are_written_as_payloads(make_shard: MakeShard, tmp_path: Path) -> None:
    """What isn't copied is encoded: a feature that is selected comes back alone."""
    shard = make_shard([tfrtool.encode_example({"a": n, "b": b"x"}) for n in range(3)])
    convert(shard, tmp_path / "out", to="arrayrecord", select=["a"])
    (path,) = (tmp_path / "out").glob("*.array_record*")
    assert read_rows(path) == [tfrtool.encode_example({"a": n}) for n in range(3)]
