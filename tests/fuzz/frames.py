"""Fuzzing the functions in C: frames, their CRCs and their payloads are what Python finds.

An input is twelve bytes that choose where to begin and what to believe, and then a shard.
"""

from __future__ import annotations

import io
import random
import struct
import sys
from array import array
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from unittest.mock import patch

from tests.examples.strategies import entry, float32, int64, raw_example, string
from tests.fuzz import examples
from tests.fuzz.shard_bytes import join, mutate_shard, split_records
from tests.fuzz.target import Scramble, Target, fixture_files
from tests.records.strategies import shard_of
from tfrtool.examples.example import Feature, encode_example
from tfrtool.examples.fields import Kind, ListOf, Struct, Values
from tfrtool.examples.proto import example_pb2 as pb
from tfrtool.examples.tf_parser import are_canonical, parser_problem
from tfrtool.features.feature_columns import FeatureColumns
from tfrtool.features.feature_match import FeatureMatch
from tfrtool.records import frames, stream
from tfrtool.records.framing import (
    CRC,
    FOOTER_SIZE,
    FRAME_SIZE,
    HEADER_SIZE,
    MAX_RECORD_BYTES,
    Fault,
    Record,
    frame,
    header,
    masked_crc32c,
)
from tfrtool.records.reader import RecordReader

__all__ = ["TARGET"]

_CHOICES = 12
_LIMITS = (0, 9, 300, MAX_RECORD_BYTES, 2**64 - 1)
_COLUMNS = FeatureColumns.of(
    Struct(
        {
            "label": Values(kind=Kind.LABEL, info={"numClasses": "3"}),
            "title": Values.parse("text"),
            "ok": Values.parse("bool"),
            "box": Values.parse("float32[4]"),
            "free": Values.parse("float32[*,2]"),
            "image": Values(kind=Kind.IMAGE),
            "small": ListOf(item=Values.parse("int8")),
            "three": ListOf(item=Values.parse("text"), length=3),
        }
    )
)
_MATCH = FeatureMatch.of(_COLUMNS.root)
_COMPARED = 0.3
"""Share of the inputs whose features Python compares, too."""
_BLOCKS = (16, 33, 100, 4096)
_READ = 0.25
"""Share of the inputs that the whole reader takes, too, which takes as long as all else."""


def seeds() -> Iterator[bytes]:
    """Yield whole and damaged shards, and Examples in many forms."""
    choices = bytes(_CHOICES)
    for folder in ("golden", "damaged"):
        for number, data in enumerate(fixture_files(folder, 4000)):
            yield bytes([number]) * _CHOICES + data
    yield choices + frame(b"") * 40
    yield choices + shard_of([bytes(size) for size in (1, 7, 8, 255, 256, 767, 768, 769, 2000)])
    rows = [
        raw_example([entry(b"a", int64(1, -1, 2**63 - 1)), entry(b"b", float32(1.5, 2))]),
        raw_example([entry(b"image/object/bbox/xmin", float32(0.5)), entry(b"s", string(b"x"))]),
        raw_example([entry(b"a", int64()), entry(b"a", string())]),
        raw_example([entry(b"a", int64(7))], {b"steps": [int64(1), float32()], b"none": []}),
        raw_example([], {b"/bbox": [string(b"a", b"")]}),
    ]
    rows += [encode_example(_fitting(number)) for number in range(4)]
    yield choices + shard_of(rows)
    yield from (choices + frame(row) for row in rows)


def _fitting(number: int) -> dict[str, Feature]:
    """Return the features of a record of the tree."""
    return {
        "label": int64(number),
        "title": string("Ü\U0001f600".encode()[number:]),
        "ok": int64(number % 2),
        "box": float32(0, 0, 1, 1),
        "free": float32(*range(2 * number)),
        "image": string(bytes(number)),
        "small": int64(*range(-number, number)),
        "three": string(b"a", b"", b"b" * number),
    }


def check(data: bytes) -> None:
    """Compare what each function in C finds with the format, in its simplest form."""
    choose, shard = random.Random(data[:_CHOICES]), data[_CHOICES:]
    if frames.native is None:
        return
    _check_starts(shard)
    position = choose.choice((0, choose.randrange(len(shard) + 1)))
    stop = choose.choice((len(shard), choose.randrange(-1, len(shard) + 40), 2**63 - 1))
    limit, verify = choose.choice(_LIMITS), choose.random() < 0.8
    wanted = walk(shard, position, stop, limit, verify=verify)
    scan = frames.FrameScan(limit, verify=verify)
    found, end = scan.find(shard, position, stop, 3, 1000)
    _check_piece(found, wanted, choose)
    assert end == (wanted[-1].offset + FRAME_SIZE + len(wanted[-1].payload) if wanted else position)
    _check_picks(shard, walk(shard, 0, len(shard), MAX_RECORD_BYTES, verify=False), choose)
    _check_examples(shard, found)
    _check_features(found, choose)
    if choose.random() < _READ:
        _check_reader(shard, choose)


def walk(data: bytes, position: int, stop: int, limit: int, *, verify: bool = True) -> list[Record]:
    """Return the intact records one behind the other, numbered from 0."""
    records = list[Record]()
    while position < stop and len(data) - position >= FRAME_SIZE:
        length = int.from_bytes(data[position : position + 8], "little")
        body = position + HEADER_SIZE
        end = body + length
        if data[position:body] != header(length) or length > limit or end + FOOTER_SIZE > len(data):
            break
        (crc,) = CRC.unpack_from(data, end)
        if verify and masked_crc32c(data[body:end]) != crc:
            break
        records.append(Record(len(records), position, data[body:end], crc))
        position = end + FOOTER_SIZE
    return records


def _check_starts(shard: bytes) -> None:
    starts = frames.frame_starts(shard)
    assert starts is not None
    wanted = walk(shard, 0, len(shard), MAX_RECORD_BYTES, verify=False)
    ends = [one.offset + FRAME_SIZE + len(one.payload) for one in wanted]
    assert starts.tolist() == [0, *ends]


def _check_piece(found: Sequence[Record], wanted: Sequence[Record], choose: random.Random) -> None:
    """The records of a piece, those of its slices, their sizes and their CRCs."""
    expected = [one._replace(index=one.index + 3, offset=one.offset + 1000) for one in wanted]
    assert [*found] == expected
    first, end = choose.randrange(-2, 5), choose.randrange(-2, 40)
    part = found[first:end]
    assert [*part] == expected[first:end]
    assert frames.bytes_of(found) == sum(len(one.payload) for one in wanted)
    assert bytes(frames.crcs_of(found)) == bytes(frames.crcs_of(expected))
    assert bytes(frames.crcs_of(part)) == bytes(frames.crcs_of(expected[first:end]))


def _check_picks(shard: bytes, records: Sequence[Record], choose: random.Random) -> None:
    """Frames in any order, some of them twice; none of them if a CRC or a place is wrong."""
    chosen = [choose.choice(records) for _ in range(choose.randrange(6)) if records]
    spans = [(one.offset, FRAME_SIZE + len(one.payload)) for one in chosen]
    intact = all(masked_crc32c(one.payload) == one.payload_crc for one in chosen)
    if choose.random() < 0.3:
        start, size = choose.choice([0, 2**64 - 4, len(shard)]), choose.choice([16, 15, 2**64 - 1])
        start, size = choose.choice([(start, size), (choose.randrange(len(shard) + 1), 16)])
        spans.append((start, size))
        intact &= shard[start : start + size] == frame(b"")
    starts, sizes = (
        array("Q", [start for start, _ in spans]),
        array("Q", [size for _, size in spans]),
    )
    try:
        found = frames.picked(shard, starts, sizes)
    except ValueError:
        assert any(size < FRAME_SIZE or start + size > len(shard) for start, size in spans)
        return
    assert (found is not None) == intact
    if found is not None:
        copied, keys = found
        assert copied == b"".join(shard[start : start + size] for start, size in spans)
        assert keys.tolist() == frames.keys_of(walk(copied, 0, len(copied), 2**31)).tolist()


def _check_examples(shard: bytes, found: Sequence[Record]) -> None:
    """What is taken for canonical is what protobuf writes, and what writers write is taken."""
    checked = found.check_examples() if isinstance(found, frames.Frames) else None
    if checked is None:
        return
    odd, flags = checked
    assert len(odd) == len(found)
    known = 0
    for record, is_odd in zip(found, odd, strict=True):
        payload = record.payload
        if is_odd:
            assert not are_canonical([payload], sequences=True) or _has_unset(payload)
            continue
        message = pb.SequenceExample.FromString(payload)
        assert message.SerializeToString() == payload
        has_lists = message.HasField("feature_lists")
        assert parser_problem(payload, sequence=has_lists) is None
        keys = [one.key for one in message.context.feature]
        keys += [one.key for one in message.feature_lists.feature_list]
        known |= frames.HAS_LISTS * has_lists
        known |= frames.HAS_BOXES * any(b"/bbox" in key for key in keys)
    assert flags == known
    starts = struct.pack("=QQ", len(shard), len(shard) + FRAME_SIZE)
    try:
        frames.native.check_examples(shard, starts)
    except ValueError:
        return
    raise AssertionError("a frame behind the end was looked at")


def _check_features(found: Sequence[Record], choose: random.Random) -> None:
    """What has the features of a tree in C has no misfit in Python."""
    if not isinstance(found, frames.Frames) or _MATCH is None:
        return
    differing = _MATCH.differing(found)
    assert len(differing) == len(found)
    fitting = [one.payload for one, is_odd in zip(found, differing, strict=True) if not is_odd]
    if fitting and choose.random() < _COMPARED:
        compared = _COLUMNS.compare(fitting)
        assert (compared.misfits, compared.damaged, compared.other_keys) == ({}, {}, {})
    size = len(_MATCH.keys)
    for wrong in ([-1, 1], [0, size + 1], [2, 1], [2**63 - 1, 2**63 - 1]):
        features = array("q", [*wrong, 26, -1, 1, 0, 0, 0])
        try:
            found.match_features(features, _MATCH.keys)
        except ValueError:
            continue
        raise AssertionError("a key behind the end was looked at")


def _has_unset(payload: bytes) -> bool:
    """Return whether a feature has no kind, which C leaves to Python wherever it is."""
    message = pb.SequenceExample.FromString(payload)
    features = [one.value for one in message.context.feature]
    for steps in message.feature_lists.feature_list:
        features += steps.value.feature
    return any(feature.WhichOneof("kind") is None for feature in features)


def _check_reader(shard: bytes, choose: random.Random) -> None:
    """The reader finds the same records and faults in blocks of any size as in Python."""
    block = choose.choice(_BLOCKS)
    with patch.object(stream, "_FIRST_BLOCK", block), patch.object(stream, "BLOCK_SIZE", block):
        read = _items(shard)
        with patch.object(frames, "native", None):
            assert _items(shard) == read


def _items(shard: bytes) -> tuple[list[Record | Fault], int | None]:
    reader = RecordReader(io.BytesIO(shard))
    return [*reader.read()], reader.end


def mutate(data: bytes, rng: random.Random, scramble: Scramble) -> bytes:
    """Change the choices, the records, or a payload as an Example."""
    choices, shard = data[:_CHOICES].ljust(_CHOICES, b"\0"), data[_CHOICES:]
    if rng.random() < 0.3:
        choices = rng.randbytes(_CHOICES)
    if rng.random() < 0.5:
        return choices + mutate_shard(shard, rng, scramble)
    pieces = split_records(shard) or [frame(b"")]
    at = rng.randrange(len(pieces))
    change: Callable[[bytes], bytes] = scramble
    if rng.random() < 0.7:
        change = lambda payload: examples.mutate(payload, rng, scramble)  # noqa: E731
    pieces[at] = frame(change(pieces[at][HEADER_SIZE:-FOOTER_SIZE]))
    return choices + join(pieces)


def write_payloads(path: Path) -> None:
    """Write a shard of short payloads, some with the features that frames_main.c looks for."""
    rows = [one.payload for data in seeds() for one in walk(data[_CHOICES:], 0, 2**20, 3000)]
    few = {"label": int64(1), "title": string("Ü".encode()), "image": string(b"", b"x")}
    few[""] = float32(1, 2, 3)
    rows += [encode_example(dict([*few.items()][:size])) for size in (1, 2, 3, 4)] * 10
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(shard_of(rows[-256:]))


TARGET = Target(check=check, seeds=seeds, mutate=mutate)

if __name__ == "__main__":
    write_payloads(Path(sys.argv[1]))
