"""Training shards with damage: which record it is, and all the others."""

from __future__ import annotations

import gzip
import struct
import zlib
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tfrtool
from tests.datasets import flip_bit, image_payload, write_foreign, write_pets
from tests.more import more
from tests.photos import image_bytes, many_scans
from tfrtool.errors import CorruptShardError, DatasetError, TfrtoolError, TrainingError, UsageError
from tfrtool.examples.example import DType, Feature, encode_example
from tfrtool.loading.corrupt import DropReport, naming_damage
from tfrtool.loading.dataset import Dataset
from tfrtool.loading.dataset_facts import Split
from tfrtool.loading.decoding import decoder
from tfrtool.loading.open_dataset import open_dataset
from tfrtool.loading.options import LoadOptions
from tfrtool.records.compression import Compression
from tfrtool.records.framing import HEADER_SIZE, FaultKind, Record, frame, masked_crc32c
from tfrtool.records.reader import read_records

pytestmark = pytest.mark.tf

_TYPES = {Compression.NONE: "", Compression.GZIP: "GZIP", Compression.ZLIB: "ZLIB"}
PACK: dict[Compression, Callable[[bytes], bytes]] = {
    Compression.NONE: bytes,
    Compression.GZIP: gzip.compress,
    Compression.ZLIB: zlib.compress,
}


def _payloads(count: int) -> list[bytes]:
    """Return Examples that differ, of two classes."""
    return [image_payload(n % 2, data=image_bytes("PNG", tint=n)) for n in range(count)]


PAYLOADS = _payloads(9)
STARTS = [sum(16 + len(payload) for payload in PAYLOADS[:number]) for number in range(9)]
CLEAN = b"".join(map(frame, PAYLOADS))
AT = 4
"""The record that is damaged; it starts and ends here:"""
START, END = STARTS[AT], STARTS[AT + 1]


def _flipped(*offsets: int) -> bytes:
    data = bytearray(CLEAN)
    for offset in offsets:
        data[offset] ^= 1
    return bytes(data)


def _instead(payload: bytes) -> bytes:
    return CLEAN[:START] + frame(payload) + CLEAN[END:]


def _huge() -> bytes:
    """Return a shard with a length of 2**40 whose CRC holds: it ends TensorFlow's process."""
    length = struct.pack("<Q", 2**40)
    header = length + struct.pack("<I", masked_crc32c(length))
    return CLEAN[:START] + header + CLEAN[START + HEADER_SIZE :]


def _label(value: bytes | float, dtype: DType) -> bytes:
    image = Feature(dtype=DType.STRING, values=(image_bytes(),))
    return encode_example({"image": image, "label": Feature(dtype=dtype, values=(value,))})


_CUT = image_bytes(size=(64, 64))[:400]

DAMAGE = {
    "payload": (_flipped(START + HEADER_SIZE + 60), FaultKind.PAYLOAD_CRC),
    "payload's CRC": (_flipped(END - 1), FaultKind.PAYLOAD_CRC),
    "length": (_flipped(START), FaultKind.LENGTH_CRC),
    "length's CRC": (_flipped(START + 9), FaultKind.LENGTH_CRC),
    "huge length": (_huge(), FaultKind.OVERSIZED_LENGTH),
    "bytes put in": (CLEAN[: START + 50] + b"more" + CLEAN[START + 50 :], FaultKind.PAYLOAD_CRC),
    "no Example": (_instead(b"\xff" * 30), FaultKind.PARSE),
    "no image": (_instead(image_payload(0, image="picture")), FaultKind.PARSE),
    "label of a wrong type": (_instead(_label(b"cat", DType.STRING)), FaultKind.PARSE),
    "label that is a float": (_instead(_label(1.0, DType.FLOAT32)), FaultKind.PARSE),
    "label too high": (_instead(image_payload(2)), FaultKind.PARSE),
    "label below 0": (_instead(image_payload(-1)), FaultKind.PARSE),
    "image that is none": (_instead(image_payload(0, data=b"none")), FaultKind.PARSE),
    "image without bytes": (_instead(image_payload(0, data=b"")), FaultKind.PARSE),
    "cut image": (_instead(image_payload(0, data=_CUT)), FaultKind.PARSE),
}
CUT = CLEAN[: START + 11]
HEADERS = ("length", "length's CRC", "huge length", "bytes put in")
"""Damage that is found before training starts."""
ALIKE = ("payload's CRC", "label that is a float", "label below 0", "image without bytes")
"""Damage of which there is another of the same kind."""


def _write(directory: Path, data: bytes, compression: Compression = Compression.NONE) -> Path:
    """Write a shard without damage and one with; return the latter. Two classes are named."""
    write_foreign(directory, [PAYLOADS[:3], []])
    (directory / "label.labels.txt").write_text("cat\ndog\n")
    whole, path = sorted(directory.glob("*.tfrecord"))
    pack = PACK[compression]
    whole.write_bytes(pack(whole.read_bytes()))
    path.write_bytes(pack(data))
    return path


def _read(tf: Any, dataset: Dataset) -> Counter[bytes]:
    """Return all payloads as TensorFlow reads them."""
    found: Counter[bytes] = Counter()
    for split in dataset.splits.values():
        records = list(_records(tf, split).as_numpy_iterator())
        assert len(records) == split.records
        found.update(records)
    return found


def _records(tf: Any, split: Split) -> Any:
    return tf.data.TFRecordDataset([str(path) for path in split.shards], _TYPES[split.compression])


def _decode(tf: Any, dataset: Dataset) -> None:
    """Read and decode all records, as training does."""
    for split in dataset.splits.values():
        for _ in _records(tf, split).map(decoder(dataset, LoadOptions(image_size=8))):
            pass


def _dropped(directory: Path, scratch: Path, **how: Any) -> tuple[Dataset, DropReport]:
    return open_dataset(directory, on_error="skip").drop_corrupt(scratch, **how)


def _payloads_of(path: Path) -> list[bytes]:
    with path.open("rb") as file:
        return [item.payload for item in read_records(file) if isinstance(item, Record)]


def _contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


@pytest.mark.parametrize(
    ("name", "compression"),
    [
        *((name, Compression.NONE) for name in DAMAGE if name not in ALIKE),
        *(more(name, Compression.NONE) for name in ALIKE),
        *(more(name, Compression.GZIP) for name in ("payload", "cut image")),
        ("huge length", Compression.GZIP),
        ("length", Compression.ZLIB),
    ],
)
def test_skip_leaves_out_exactly_the_damaged_record(
    name: str, compression: Compression, tmp_path: Path, tf: Any
) -> None:
    """All others are there, byte for byte; the report names the one; the dataset is untouched."""
    data, kind = DAMAGE[name]
    path = _write(tmp_path / "d", data, compression)
    before = _contents(tmp_path / "d")
    dataset, report = _dropped(tmp_path / "d", tmp_path / "scratch")
    expected = Counter(PAYLOADS[:3] + PAYLOADS[:AT] + PAYLOADS[AT + 1 :])
    assert _read(tf, dataset) == expected
    _decode(tf, dataset)
    assert dataset.split("train").records == report.records == 11
    (one,) = report.skipped
    fault = one.fault
    assert (one.path, fault.record, fault.offset, fault.kind) == (path, AT, START, kind)
    assert report.n_skipped == 1
    copies = [path for path in dataset.split("train").shards if path.parent != tmp_path / "d"]
    assert [copy.name for copy in copies] == [path.name]
    assert _contents(tmp_path / "d") == before


@pytest.mark.parametrize("name", [more(name) if name in ALIKE else name for name in DAMAGE])
def test_stop_names_the_damaged_record(name: str, tmp_path: Path, tf: Any) -> None:
    """Opening or reading fails, and the error says which record of which shard it was."""
    data, kind = DAMAGE[name]
    path = _write(tmp_path / "d", data)
    caught: TfrtoolError
    if name in HEADERS:
        with pytest.raises(CorruptShardError) as opening:
            open_dataset(tmp_path / "d")
        caught = opening.value
    else:
        dataset = open_dataset(tmp_path / "d")
        with pytest.raises(TfrtoolError) as reading, naming_damage(dataset, *dataset.splits):
            _decode(tf, dataset)
        caught = reading.value
    wanted = DatasetError if kind is FaultKind.PARSE else CorruptShardError
    assert isinstance(caught, wanted)
    assert (caught.path, caught.record, caught.offset) == (str(path), AT, START)


def test_error_that_no_record_explains_is_passed_on(tmp_path: Path, tf: Any) -> None:
    """Where all records are good, no record is blamed."""
    _write(tmp_path / "d", CLEAN)
    dataset = open_dataset(tmp_path / "d")
    with pytest.raises(DatasetError) as caught, naming_damage(dataset, *dataset.splits):
        tf.reshape(tf.range(3), [2, 2])
    assert caught.value.record is None
    assert "3 values" in caught.value.what


def test_clean_dataset_is_read_where_it_is(tmp_path: Path) -> None:
    """Nothing is copied, and nothing is reported."""
    directory = write_pets(tmp_path)
    dataset, report = _dropped(directory, tmp_path / "scratch")
    assert dataset == open_dataset(directory)
    assert (report.records, report.skipped, report.n_skipped) == (20, (), 0)
    assert not (tmp_path / "scratch").exists()


@pytest.mark.parametrize("compression", [Compression.NONE, Compression.GZIP])
def test_cut_shard(compression: Compression, tmp_path: Path, tf: Any) -> None:
    """What stands before a cut is kept, also where TensorFlow would be silent about the rest."""
    _write(tmp_path / "d", CUT, compression)
    dataset, report = _dropped(tmp_path / "d", tmp_path / "scratch")
    assert _read(tf, dataset) == Counter(PAYLOADS[:3] + PAYLOADS[:AT])
    assert [one.fault.offset for one in report.skipped] == [START]


def test_metadata_counts_what_is_gone(tmp_path: Path, tf: Any) -> None:
    """A shard that is missing and one that lost whole records are no error, and are counted."""
    directory = write_pets(tmp_path, count=20)
    expected = open_dataset(directory).split("train").records
    train = sorted(directory.glob("*train*"))
    train[0].unlink()
    payloads = _payloads_of(train[1])
    train[1].write_bytes(b"".join(map(frame, payloads[:-2])))
    with pytest.raises(DatasetError):
        open_dataset(directory)
    dataset, report = _dropped(directory, tmp_path / "scratch", splits=["train"])
    assert _read(tf, dataset) == Counter(payloads[:-2])
    assert report.n_skipped == expected - (len(payloads) - 2) > len(payloads) - 2
    kinds = {one.path: one.fault.kind for one in report.skipped}
    assert kinds == {train[0]: FaultKind.MISSING_SHARD, train[1]: FaultKind.COUNT}
    assert list(dataset.splits) == ["train"]


def test_image_over_a_limit_is_skipped(tmp_path: Path) -> None:
    """TensorFlow would decode a JPEG of 501 or more, for as long as that takes."""
    path = _write(tmp_path / "d", _instead(image_payload(0, data=many_scans(501))))
    dataset, report = _dropped(tmp_path / "d", tmp_path / "scratch")
    assert dataset.split("train").records == 11
    (skipped,) = report.skipped
    assert (skipped.path, skipped.fault.record) == (path, AT)
    assert "501 or more" in skipped.fault.message


def test_nothing_left_is_an_error(tmp_path: Path) -> None:
    """A split without a usable record can't be trained on; an unknown one is a usage error."""
    directory = write_foreign(tmp_path / "d", [[image_payload(0, data=_CUT)]])
    (directory / "label.labels.txt").write_text("cat\ndog\n")
    with pytest.raises(DatasetError, match="no usable records"):
        _dropped(directory, tmp_path / "scratch")
    with pytest.raises(UsageError):
        _dropped(directory, tmp_path / "scratch", splits=["validation"])


def test_too_little_memory_is_an_error(tmp_path: Path, tf: Any) -> None:
    """What TensorFlow raises on a GPU that is full names the options that need less."""
    dataset = open_dataset(write_foreign(tmp_path / "d", [[image_payload(0), image_payload(1)]]))
    with pytest.raises(TrainingError, match="--batch-size"), naming_damage(dataset, "train"):
        raise tf.errors.ResourceExhaustedError(None, None, "OOM when allocating tensor")


def test_classes_are_told_from_what_is_whole(tmp_path: Path, tf: Any) -> None:
    """Without metadata, damaged records and impossible labels don't count as classes."""
    payloads = [*PAYLOADS, image_payload(-5), _label(b"cat", DType.STRING)]
    directory = write_foreign(tmp_path / "d", [payloads])
    (path,) = directory.iterdir()
    flip_bit(path, HEADER_SIZE + 40)
    dataset, report = _dropped(directory, tmp_path / "scratch")
    assert dataset.class_names == ("0", "1")
    assert [one.fault.record for one in report.skipped] == [0, 9, 10]
    assert _read(tf, dataset) == Counter(PAYLOADS[1:])


@settings(
    max_examples=5, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)
@given(st.integers(0, len(CLEAN) * 8 - 1))
def test_any_flipped_bit_costs_one_record(tmp_path: Path, tf: Any, bit: int) -> None:
    """Whichever bit of a shard flips, the record that has it is missing, and no other."""
    directory = tmp_path / str(bit)
    path = _write(directory, CLEAN)
    flip_bit(path, bit // 8, bit % 8)
    dataset, report = _dropped(directory, directory / "scratch")
    (one,) = report.skipped
    damaged = max(number for number in range(9) if STARTS[number] <= bit // 8)
    assert (one.fault.record, one.fault.offset) == (damaged, STARTS[damaged])
    rest = PAYLOADS[:3] + PAYLOADS[:damaged] + PAYLOADS[damaged + 1 :]
    assert _read(tf, dataset) == Counter(rest)


def test_verify(tmp_path: Path) -> None:
    """A dataset that is open is verified as its directory is."""
    dataset = tfrtool.dataset(write_pets(tmp_path))
    assert dataset.verify(images=True).is_sound
    flip_bit(Path(dataset.split("train").shards[0]), -6)
    assert [fault.kind.value for fault in dataset.verify().shards[0].faults] == ["payload-crc"]
