"""Files with other checksums than TensorFlow's: their style is found, and their records saved."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tfrtool
from tests.examples.strategies import int64, string
from tests.records.checksum_styles import FRAMES, file_of
from tests.records.strategies import read_strictly, shard_of
from tfrtool.errors import CorruptShardError, ShardError, UsageError
from tfrtool.records.framing import FaultKind
from tfrtool.records.repair import RepairReport

NAMES = list(FRAMES)
CHECKED = [name for name in NAMES if name not in ("zero", "zero-payload", "missing")]
PAYLOADS = [
    tfrtool.encode_example({"id": int64(number), "name": string(bytes(number) + b"n")})
    for number in range(20)
]


def style_of(name: str) -> str:
    """Return what the option is called for a kind of file."""
    return name.split()[0]


def cause_of(path: Path) -> str | None:
    """Return the likely cause of the first fault, as verify has it."""
    return tfrtool.verify(path).shards[0].faults[0].cause


def repaired(directory: Path, data: bytes, style: str) -> tuple[RepairReport, list[bytes]]:
    """Repair a file, and return the report and the payloads of the new one."""
    source, target = directory / "foreign", directory / "saved"
    source.write_bytes(data)
    target.unlink(missing_ok=True)
    report = tfrtool.repair(source, target, accept_checksums=style)
    assert source.read_bytes() == data
    payloads = read_strictly(target.read_bytes())
    assert payloads is not None
    return report, payloads


@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzip"])
@pytest.mark.parametrize("name", NAMES)
def test_verify_names_the_style(tmp_path: Path, name: str, pack: type[bytes]) -> None:
    """The cause has the option that helps and the number of records, whatever compresses them."""
    path = tmp_path / "a.tfrecord"
    path.write_bytes(pack(file_of(name, PAYLOADS)))
    cause = cause_of(path) or ""
    assert cause.endswith(
        f"run tfrtool repair --accept-checksums {style_of(name)} to recover 20 records"
    )
    shown = tfrtool.inspect_shard(path).faults[0]
    assert shown.cause == cause
    out = tmp_path / "out"
    with pytest.raises(CorruptShardError, match="no intact records") as caught:
        tfrtool.repair(path, out)
    assert caught.value.hint == f"use --accept-checksums {style_of(name)}"
    assert not out.exists()


@pytest.fixture(scope="session")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory that properties write to again and again."""
    return tmp_path_factory.mktemp("styles")


@given(
    name=st.sampled_from(NAMES),
    payloads=st.lists(st.binary(min_size=1, max_size=40), min_size=2, max_size=8),
)
def test_all_payloads_are_saved(scratch: Path, name: str, payloads: list[bytes]) -> None:
    """Payloads that aren't empty are the same in the new file, and nothing is lost."""
    report, saved = repaired(scratch, file_of(name, payloads), style_of(name))
    assert saved == payloads
    assert report.is_whole
    assert report.accepted_checksums is not None
    assert report.accepted_checksums.value == style_of(name)


@pytest.mark.parametrize("name", [*CHECKED, "zero-payload"])
def test_empty_payloads_are_saved_if_a_checksum_proves_them(tmp_path: Path, name: str) -> None:
    """The checksum of a length of 0 isn't 0, so such a record is no gap of zeros."""
    payloads = [b"", PAYLOADS[0], b"", b"", PAYLOADS[1], b""]
    report, saved = repaired(tmp_path, file_of(name, payloads), style_of(name))
    assert (saved, report.is_whole) == (payloads, True)


def test_tensorflow_reads_what_was_saved(tmp_path: Path) -> None:
    """TensorFlow refuses each file, and reads 20 equal records from each repaired one."""
    tf = pytest.importorskip("tensorflow")
    for name in NAMES:
        source, target = tmp_path / f"{name}.tfrecord", tmp_path / f"{name}.saved"
        source.write_bytes(file_of(name, PAYLOADS))
        with pytest.raises((tf.errors.DataLossError, tf.errors.OutOfRangeError)):
            list(tf.data.TFRecordDataset(str(source)).as_numpy_iterator())
        tfrtool.repair(source, target, accept_checksums=style_of(name))
        assert list(tf.data.TFRecordDataset(str(target)).as_numpy_iterator()) == PAYLOADS


@pytest.mark.parametrize("name", CHECKED)
def test_damage_costs_only_its_record(tmp_path: Path, name: str) -> None:
    """A changed payload, length or cut is a fault, and all other records are saved."""
    frames = [FRAMES[name](payload) for payload in PAYLOADS]
    starts = [sum(map(len, frames[:number])) for number in range(21)]
    for place, lost in ((starts[3] + 15, 3), (starts[7] + 9, 7), (starts[0] + 15, 0)):
        data = bytearray(b"".join(frames))
        data[place] ^= 1
        report, saved = repaired(tmp_path, bytes(data), style_of(name))
        assert saved == [*PAYLOADS[:lost], *PAYLOADS[lost + 1 :]]
        assert [(part.offset, part.bytes) for part in report.lost] == [
            (starts[lost], len(frames[lost]))
        ]
        assert [(fault.offset, fault.record) for fault in report.faults] == [(starts[lost], lost)]
    report, saved = repaired(tmp_path, b"".join(frames)[:-3], style_of(name))
    assert saved == PAYLOADS[:19]
    assert [fault.kind for fault in report.faults] == [FaultKind.TRUNCATED]


@pytest.mark.parametrize("name", CHECKED)
def test_records_inside_a_damaged_payload_are_not_saved(tmp_path: Path, name: str) -> None:
    """A payload may hold records, which are none of the file's."""
    nested = b"\x0a" + FRAMES[name](PAYLOADS[7]) * 2
    frames = [FRAMES[name](payload) for payload in (PAYLOADS[0], nested, PAYLOADS[1])]
    frames[1] = frames[1].replace(b"\x0a", b"\x0b", 1)
    report, saved = repaired(tmp_path, b"".join(frames), style_of(name))
    assert saved == PAYLOADS[:2]
    assert report.lost_bytes == len(frames[1])


@pytest.mark.parametrize("name", ["zero", "missing"])
def test_unproven_frames_end_at_damage(tmp_path: Path, name: str) -> None:
    """Without a checksum of lengths, records before the damage are saved and the rest reported."""
    data = file_of(name, PAYLOADS[:5])
    tails = [struct.pack("<Q", 2**63), struct.pack("<Q", 2**31 - 1)]
    tails += [FRAMES[name](b"x" * 50)] if name == "zero" else []  # has a checksum that is not zero
    for tail in tails:
        damaged = data + tail[:40] + b"\xff" * 9 + file_of(name, PAYLOADS[5:8])
        report, saved = repaired(tmp_path, damaged, name)
        assert saved == PAYLOADS[:5]
        assert (report.lost[0].offset, report.lost_bytes) == (len(data), len(damaged) - len(data))
        assert report.fault_count == 1


@pytest.mark.parametrize("name", ["zero", "missing"])
def test_zeros_are_no_records(tmp_path: Path, name: str) -> None:
    """Zeros between and after records are one fault each, not thousands of empty records."""
    head, size = file_of(name, PAYLOADS[:5]), 16 * 300
    rest = [b"x" * 256, *PAYLOADS[5:]]  # this length, which follows the zeros, starts with one
    data = head + bytes(size) + file_of(name, rest) + bytes(1001)
    report, saved = repaired(tmp_path, data, name)
    assert saved == [*PAYLOADS[:5], *rest]
    assert [fault.message for fault in report.faults] == [
        f"{size} zero bytes, which are a gap or empty records",
        "1001 zero bytes, which are a gap or empty records",
    ]
    assert report.lost_bytes == size + 1001


@pytest.mark.parametrize(
    "data",
    [
        bytes(4096),
        b"\x08" + bytes(4095),
        struct.pack("<QI", 2**31 - 1, 0) + bytes(500),
        struct.pack("<200Q", *[8] * 200),
        struct.pack("<Q", 100) + b"{" + b" " * 98 + b"}",
        FRAMES["missing"](b"\xff\xd8\xff" * 9) * 3,
        FRAMES["zero-payload"](b"\xff" * 40 + bytes(60)),
        shard_of(PAYLOADS[:1])[:-8] + bytes(8),
    ],
    ids=[
        "zeros",
        "sparse",
        "hostile length",
        "int64",
        "one length",
        "no messages",
        "zeroed end",
        "zeroed end of an Example",
    ],
)
def test_other_files_have_no_style(tmp_path: Path, data: bytes) -> None:
    """A file that only resembles a style is what it was before: no style is named."""
    path = tmp_path / "a.tfrecord"
    path.write_bytes(data)
    assert "--accept-checksums" not in (cause_of(path) or "")
    with pytest.raises(CorruptShardError) as caught:
        tfrtool.repair(path, tmp_path / "out")
    assert caught.value.hint is None


@pytest.mark.parametrize("accepted", [*map(style_of, CHECKED), "zero", "zero-payload", "missing"])
def test_no_style_takes_zeros_for_records(tmp_path: Path, accepted: str) -> None:
    """A file of zeros has no records in any style."""
    source = tmp_path / "zeros"
    source.write_bytes(bytes(64_000))
    with pytest.raises(ShardError):
        tfrtool.repair(source, tmp_path / "out", accept_checksums=accepted)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", NAMES)
def test_a_wrong_style_is_refused(tmp_path: Path, name: str) -> None:
    """Each other style is an error that has the right one; valid files need none."""
    source, whole = tmp_path / "foreign", tmp_path / "whole"
    source.write_bytes(file_of(name, PAYLOADS))
    whole.write_bytes(shard_of(PAYLOADS))
    for other in {style_of(other) for other in NAMES} - {style_of(name)}:
        with pytest.raises(ShardError, match="does not fit this file") as caught:
            tfrtool.repair(source, tmp_path / "out", accept_checksums=other)
        assert caught.value.hint == f"use --accept-checksums {style_of(name)}"
    with pytest.raises(ShardError, match="its checksums are valid"):
        tfrtool.repair(whole, tmp_path / "out", accept_checksums=style_of(name))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", [name for name in NAMES if name != "missing"])
def test_a_single_record_is_saved(tmp_path: Path, name: str) -> None:
    """A style that is named is accepted for a file with one record."""
    _, saved = repaired(tmp_path, file_of(name, PAYLOADS[:1]), style_of(name))
    assert saved == PAYLOADS[:1]


def test_unknown_style(tmp_path: Path) -> None:
    """A style that doesn't exist is an error with those that do."""
    with pytest.raises(UsageError, match="zero-payload, unmasked, zlib"):
        tfrtool.repair(tmp_path / "a", tmp_path / "b", accept_checksums="crc64")


@pytest.mark.parametrize("name", NAMES)
def test_compressed_and_cut(tmp_path: Path, name: str) -> None:
    """Of a gzip file that was cut, all records up to the cut are saved, and the cut reported."""
    packed = gzip.compress(file_of(name, PAYLOADS), compresslevel=0)
    source, target = tmp_path / "a", tmp_path / "b"
    source.write_bytes(packed[: len(packed) * 3 // 4])
    report = tfrtool.repair(source, target, accept_checksums=style_of(name))
    saved = read_strictly(gzip.decompress(target.read_bytes()))
    assert saved is not None
    assert 5 < len(saved) < 20
    assert saved == PAYLOADS[: len(saved)]
    assert FaultKind.DECOMPRESSION in [fault.kind for fault in report.faults]


def test_long_files_are_not_read_twice(tmp_path: Path) -> None:
    """The number of records is left out if the first megabyte shows the style."""
    path = tmp_path / "a"
    path.write_bytes(file_of("zero", [b"\x0a\x64" + b"x" * 100_000] * 20))
    cause = cause_of(path) or ""
    assert cause.endswith("--accept-checksums zero to recover its records")
