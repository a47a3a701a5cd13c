"""What is read in C is what is read in Python: the same records, the same faults."""

from __future__ import annotations

import gzip
import io
import random
import shutil
import struct
import sys
from array import array
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tfrtool
from tests.conftest import SHARED_DATA
from tests.examples.strategies import entry, float32, int64, payloads, raw_example, string
from tests.more import thinned
from tests.records.strategies import Reading, offsets_of, payload_lists, read, shard_of
from tfrtool.errors import ShardError
from tfrtool.examples.example import Feature
from tfrtool.examples.proto import example_pb2 as pb
from tfrtool.examples.tf_parser import parser_problem
from tfrtool.records import frames
from tfrtool.records.count import count_shard
from tfrtool.records.framing import Fault, Record, frame, masked_crc32c
from tfrtool.records.random_access import make_index
from tfrtool.records.reader import RecordReader

native = pytest.importorskip("tfrtool.records._frames", reason="no C compiler")

pytestmark = pytest.mark.skipif(frames.native is None, reason="frames are read in Python")

Result = TypeVar("Result")

REAL = sorted(
    path for path in SHARED_DATA.rglob("*tfrec*") if path.is_file() and path.stat().st_size < 2**23
)
MESSAGES = [
    b"",
    raw_example([]),
    raw_example([entry(b"a", int64(1, -1, 2**63 - 1)), entry(b"b", float32(1.5, 2))]),
    raw_example([entry(b"image/object/bbox/xmin", float32(0.5)), entry(b"s", string(b"x" * 200))]),
    raw_example([entry(b"a", int64()), entry(b"a", string())]),
    raw_example([entry(b"a", int64(7))], {b"steps": [int64(1), float32()], b"none": []}),
    raw_example([], {b"/bbox": [string(b"a", b"")]}),
]


def both(run: Callable[[], Result]) -> Result:
    """Return a result that must be the same in Python."""
    found = run()
    with patch.object(frames, "native", None):
        assert run() == found
    return found


def damaged(data: bytes, draw: random.Random) -> bytes:
    """Flip bits, cut out and put in bytes, as often as not."""
    changed = bytearray(data)
    for _ in range(draw.choice([0, 0, 1, 1, 3])):
        at = draw.randrange(len(changed) + 1)
        match draw.randrange(3):
            case 0:
                changed[at : at + 1] = bytes([draw.randrange(256)])
            case 1:
                del changed[at : at + draw.randrange(40)]
            case _:
                changed[at:at] = draw.choice([b"\0", frame(b"in"), draw.randbytes(9)])
    return bytes(changed)


def reading_of(reader: RecordReader) -> tuple[Reading, int | None, int]:
    """Return all that a reader gives out and says of the end."""
    items = [*reader.read()]
    records = [item for item in items if isinstance(item, Record)]
    faults = [item for item in items if isinstance(item, Fault)]
    return Reading(records=records, faults=faults), reader.end, reader.records


@given(payloads=payload_lists, draw=st.randoms(use_true_random=False), verify=st.booleans())
def test_damaged_shards(payloads: list[bytes], draw: random.Random, verify: bool) -> None:
    """Wherever damage is, in blocks of any size, from a position on and up to one."""
    for _ in range(10):
        data = damaged(shard_of(payloads * 3), draw)
        limit, start = draw.choice([9, 2**31 - 1]), draw.randrange(len(data) + 1)
        both(lambda: read(data, verify_payload=verify, max_record_bytes=limit))  # noqa: B023
        first, block = draw.choice([16, 64, 512 * 1024]), draw.choice([32, 100, 512 * 1024])
        window = "tfrtool.records.stream."
        with patch(f"{window}_FIRST_BLOCK", first), patch(f"{window}BLOCK_SIZE", block):

            def from_position() -> tuple[Reading, int | None, int]:
                file, stop = io.BytesIO(data), draw.choice([sys.maxsize, len(data) // 2])  # noqa: B023
                file.seek(start)  # noqa: B023
                position = 7, start  # noqa: B023
                return reading_of(RecordReader(file, None, verify, limit, position, stop))  # noqa: B023

            state = draw.getstate()
            found = from_position()
            draw.setstate(state)
            with patch.object(frames, "native", None):
                assert from_position() == found


@given(payloads=payload_lists, draw=st.randoms(use_true_random=False))
def test_counts_and_indices(
    tmp_path_factory: pytest.TempPathFactory, payloads: list[bytes], draw: random.Random
) -> None:
    """Counting and the index hop over the same records, and name the same damage."""
    path = tmp_path_factory.mktemp("counted") / "shard"
    for repeats in (1, 40, 900):
        path.write_bytes(damaged(shard_of(payloads * repeats), draw))
        both(lambda: count_shard(path))

        def index() -> object:
            try:
                return [*make_index(path)]
            except ShardError as error:
                return str(error)

        both(index)


@given(payload=payloads, draw=st.randoms(use_true_random=False))
def test_canonical_examples(payload: bytes, draw: random.Random) -> None:
    """What C takes for an Example as writers write them, protobuf would write to the byte."""
    for original in (payload, *MESSAGES):
        for _ in range(8):
            changed = damaged(original, draw)
            (odd, *_), flags = examples_in([changed])
            if not odd:
                message = pb.SequenceExample.FromString(changed)
                assert message.SerializeToString() == changed
                has_lists = message.HasField("feature_lists")
                assert bool(flags & frames.HAS_LISTS) == has_lists
                assert parser_problem(changed, sequence=has_lists) is None


def examples_in(payloads: Iterable[bytes]) -> tuple[bytes, int]:
    """Return what C says of payloads."""
    data = shard_of([*payloads])
    starts, _ = native.scan(data, 0, len(data), 2**31, True)
    found: tuple[bytes, int] = native.check_examples(data, starts)
    return found


def test_examples_of_writers() -> None:
    """They are recognized, with their boxes and feature lists, and none goes to Python."""
    found = [examples_in([payload]) for payload in MESSAGES]
    assert found == [(b"\0", flags) for flags in (0, 0, 0, 1, 0, 2, 3)]


def of_numbers(data: bytes) -> bytes:
    """Return an Example of one feature with a list of integers, whose values are these bytes."""
    for tag in b"\x0a\x1a":
        data = bytes([tag, len(data)]) + data
    for before, tag in ((b"\x0a\x01a", 0x12), (b"", 0x0A), (b"", 0x0A)):
        data = before + bytes([tag, len(data)]) + data
    return data


@pytest.mark.parametrize(
    "payload",
    [
        of_numbers(b"\xff" * 9 + b"\x02"),  # more than 64 bits
        of_numbers(b"\xff" * 10 + b"\x01"),
        of_numbers(b"\x81\x00"),  # longer than it must be
        of_numbers(b"\x81"),
        of_numbers(b""),
        b"\x0a\x80\x00",
        raw_example([entry(b"a", Feature(dtype=None, values=()))]),
        b"\x0a\x05\x0a\x03\x0a\x01a",  # no value
        b"\x0a\x04\x0a\x02\x12\x00",  # no key
        b"\x0a\x0b\x0a\x09\x0a\x01a\x12\x04\x12\x02\x0a\x00",  # a packed list of nothing
        b"\x0a\x0d\x0a\x0b\x0a\x01a\x12\x06\x12\x04\x0a\x02\0\0",  # half a float
        b"\x0a\x0b\x0a\x09\x0a\x01a\x12\x04\x1a\x02\x08\x01",  # not packed
        b"\x12\x00\x0a\x00",
        b"\x0a\x00\x0a\x00",
        b"\x1a\x00",
    ],
)
def test_messages_of_other_forms(payload: bytes) -> None:
    """They are left to Python, though protobuf may take them."""
    assert examples_in([of_numbers(b"\xff" * 9 + b"\x01"), payload]) == (b"\0\1", 0)


@given(payloads=st.lists(payloads, min_size=1), draw=st.randoms(use_true_random=False))
def test_verdicts(
    tmp_path_factory: pytest.TempPathFactory, payloads: list[bytes], draw: random.Random
) -> None:
    """Verify and inspect report the same of the same shard, whoever reads it."""
    path = tmp_path_factory.mktemp("verified") / "shard.tfrecord"
    payloads = [damaged(payload, draw) for payload in [*payloads, *MESSAGES] * 5]
    path.write_bytes(damaged(shard_of(payloads), draw))
    both(lambda: reports(path))


def reports(path: Path) -> object:
    """Return what is printed of a shard."""
    report = tfrtool.verify(path, workers=1)
    summary: object
    try:
        summary = tfrtool.inspect_shard(path).to_json()
    except ShardError as error:
        summary = str(error)
    return report.to_json(), [shard.to_json() for shard in report.shards], summary


@pytest.mark.parametrize("path", thinned(REAL, every=12), ids=lambda path: path.name[:40])
def test_files_of_others(path: Path) -> None:
    """The same for what other software wrote."""
    both(lambda: reports(path))


def test_no_byte_behind_the_end() -> None:
    """Numbers that don't fit the data are refused, and lengths that would wrap are not added."""
    data = frame(b"payload")
    with pytest.raises(ValueError, match="position"):
        native.scan(data, len(data) + 1, 100, 100, True)
    with pytest.raises(ValueError, match="position"):
        native.scan(data, -1, 100, 100, True)
    for starts in [(0, len(data) + 1), (8, 2), (0, 2**64 - 1), (2**64 - 4, 12), (0, 15)]:
        with pytest.raises(ValueError, match="frame"):
            native.check_examples(data, struct.pack("=QQ", *starts))
    assert native.check_examples(data, b"") == (b"", 0)
    for length in (2**64 - 1, 2**64 - 16, 2**63, 2**32):
        head = struct.pack("<Q", length)
        stored = struct.pack("<I", masked_crc32c(head))
        assert native.scan(head + stored + data, 0, 99, 2**64 - 1, True)[1] == b""


def test_picked_frames() -> None:
    """They come in any order with their keys, if all are intact and within the data."""
    payloads = [b"one", b"", b"three" * 400]
    data, starts = shard_of(payloads), offsets_of(payloads)

    def pick(numbers: list[int], shard: bytes = data) -> object:
        firsts = array("Q", [starts[number] for number in numbers])
        sizes = array("Q", [starts[number + 1] - starts[number] for number in numbers])
        return frames.picked(shard, firsts, sizes)

    for numbers in ([0, 1, 2], [2, 0], [1, 1, 2], []):
        chosen = [payloads[number] for number in numbers]
        keys = [masked_crc32c(payload) << 32 | len(payload) for payload in chosen]
        found = pick(numbers)
        assert isinstance(found, tuple)
        assert (found[0], found[1].tolist()) == (shard_of(chosen), keys)
    for position in (3, 9, 14, starts[1] - 1):  # the length, its CRC, the payload, and its CRC
        changed = bytearray(data)
        changed[position] ^= 1
        assert pick([2, 0], bytes(changed)) is None
    for start, size in [(len(data), 16), (0, 15), (2**64 - 8, 16), (4, 2**64 - 4), (0, 2**64 - 1)]:
        with pytest.raises(ValueError, match="frame"):
            frames.picked(data, array("Q", [0, start]), array("Q", [19, size]))
    with pytest.raises(ValueError, match="frame"):
        frames.picked(data, array("Q", [0]), array("Q"))
    assert frames.picked(data, array("Q", [0]), array("Q", [16])) is None


@given(payloads=payload_lists, draw=st.randoms(use_true_random=False))
def test_copied_records(
    tmp_path_factory: pytest.TempPathFactory, payloads: list[bytes], draw: random.Random
) -> None:
    """Jobs that copy records write the same files, and report the same damage."""
    folder = tmp_path_factory.mktemp("copied")
    data = shard_of(payloads * 30 + [b"%d" % number for number in range(40)])
    is_intact = draw.random() < 0.5
    first, second, third = (data if is_intact else damaged(data, draw) for _ in range(3))
    (folder / "a.tfrecord").write_bytes(first)
    (folder / "b.tfrecord").write_bytes(second)
    (folder / "c.tfrecord.gz").write_bytes(gzip.compress(third))
    jobs: list[Callable[[Path], object]] = [
        lambda out: tfrtool.reshard(folder, out, shards=2, workers=1),
        lambda out: tfrtool.reshard(folder, out, shards=1, shuffle=True, workers=1),
        lambda out: tfrtool.reshard(folder, out, splits={"x": 0.4, "y": 0.6}, workers=1),
        lambda out: tfrtool.filter(folder, out, sample="50%", workers=1),
        lambda out: tfrtool.filter(folder, out, dedupe=True, workers=1),
        lambda out: tfrtool.repair(folder / "a.tfrecord", out),
    ]
    for job in draw.sample(jobs, 2):
        both(partial(_written, job, folder.parent / "copies"))


def _written(job: Callable[[Any], Any], out: Path) -> object:
    """Return all that a job writes and reports, or its error."""
    try:
        report = job(out)
        lost = getattr(report, "lost", None)
        files = sorted(out.glob("*tfrecord*")) if out.is_dir() else [out]
        found = getattr(report, "skipped", None), str(report.faults), lost
        return found, [(path.name, path.read_bytes()) for path in files]
    except tfrtool.TfrtoolError as error:
        return str(error)
    finally:
        shutil.rmtree(out) if out.is_dir() else out.unlink(missing_ok=True)


def test_version_says_how_frames_are_read(capsys: pytest.CaptureFixture[str]) -> None:
    """It is the first question about speed."""
    from tfrtool.cli import main

    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"tfrtool, version {tfrtool.__version__} (reads in C)\n"
    with patch.object(frames, "native", None):
        assert main(["--version"]) == 0
    assert "(reads in Python: no C compiler)" in capsys.readouterr().out


def test_slices_of_a_piece() -> None:
    """Records are made when they are asked for: each, or those of a slice."""
    data = shard_of([bytes([number]) * number for number in range(20)])
    (piece,) = RecordReader(io.BytesIO(data)).pieces()
    assert not isinstance(piece, Fault)
    records = [*piece]
    assert [*piece[3:7]] == records[3:7]
    assert piece[5] == records[5]
    assert piece[-1] == records[-1]
    assert [*piece[9:3]] == []
    with pytest.raises(IndexError):
        piece[20]
