"""Looking into one shard."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import MakeShard
from tests.examples.strategies import UNSET, float32, int64, string, tf_sequence
from tests.records.strategies import offsets_of, shard_of
from tfrtool.errors import ShardError, UsageError
from tfrtool.examples.example import PayloadKind, encode_example
from tfrtool.examples.schema import Schema
from tfrtool.inspection.summary.shard_summary import inspect_shard
from tfrtool.records.compression import Compression
from tfrtool.records.framing import Fault, FaultKind

JPEG = b"\xff\xd8\xff\xe0\x00\x10JFIF"
CAT = encode_example({"image": string(JPEG), "label": int64(0)})
DOG = encode_example({"image": string(JPEG + b"dog"), "label": int64(1)})
CATS_VS_DOGS = Schema.from_notation(["image:string=", "label:int64=-1"])


def places(faults: tuple[Fault, ...]) -> list[tuple[str, int, int | None]]:
    """Return what faults are, and where."""
    return [(fault.kind.value, fault.offset, fault.record) for fault in faults]


def test_whole_shard(make_shard: MakeShard) -> None:
    """A shard of Examples is told with its size, features, and first records parsed."""
    path = make_shard([CAT, DOG, CAT, DOG])
    summary = inspect_shard(path)
    assert summary.shard.path == path
    assert summary.shard.bytes == path.stat().st_size
    assert summary.shard.compression is Compression.NONE
    assert (summary.records, summary.payload) == (4, PayloadKind.EXAMPLE)
    assert summary.payload_bytes == 2 * (len(CAT) + len(DOG))
    assert [feature.name for feature in summary.features] == ["image", "label"]
    assert summary.faults == ()
    assert [sample.record.index for sample in summary.sample] == [0, 1, 2]
    parsed = [sample.parsed.values for sample in summary.sample if sample.parsed is not None]
    assert parsed[1] == {"image": JPEG + b"dog", "label": 1}


@pytest.mark.parametrize("options", [{"limit": -1}, {"record": -1}])
def test_impossible_options(options: dict[str, int], make_shard: MakeShard) -> None:
    """Options that exist can be met."""
    with pytest.raises(UsageError, match="at least 0"):
        inspect_shard(make_shard([CAT]), **options)  # type: ignore[arg-type]


def test_damage_is_told_and_the_rest_is_read(make_shard: MakeShard) -> None:
    """A damaged record is a fault at its place; indexes of the others stay."""
    path = make_shard([CAT, DOG, CAT])
    data = bytearray(path.read_bytes())
    start = offsets_of([CAT, DOG, CAT])[1]
    data[start + 20] ^= 1
    path.write_bytes(data)
    summary = inspect_shard(path)
    assert places(summary.faults) == [("payload-crc", start, 1)]
    assert summary.records == 2
    assert [sample.record.index for sample in summary.sample] == [0, 2]


def test_misfits_of_a_schema(make_shard: MakeShard) -> None:
    """Records that don't fit the schema are faults that say which record and why."""
    wrong = encode_example({"image": string(JPEG), "label": string(b"dog")})
    payloads = [CAT, wrong, DOG]
    summary = inspect_shard(make_shard(payloads), schema=CATS_VS_DOGS)
    assert places(summary.faults) == [("parse", offsets_of(payloads)[1], 1)]
    assert "label" in summary.faults[0].message
    assert summary.records == 3


def test_hidden_defaults(make_shard: MakeShard) -> None:
    """Values that a default would stand in for are told by record; they are no faults."""
    payloads = [
        CAT,
        encode_example({"image": string(JPEG)}),
        encode_example({"label": UNSET, "image": string(JPEG)}),
        encode_example({"label": int64(1)}),
    ]
    summary = inspect_shard(make_shard(payloads), schema=CATS_VS_DOGS)
    assert summary.hidden == {
        "label": (1, 2),
        "image": (3,),
    }
    assert summary.faults == ()


def test_stranger_among_examples(make_shard: MakeShard) -> None:
    """A payload that is no Example, among Examples, is a fault of its own."""
    summary = inspect_shard(make_shard([CAT, b"hello world", DOG]))
    assert summary.payload is PayloadKind.EXAMPLE
    assert places(summary.faults) == [("parse", offsets_of([CAT])[1], 1)]
    shown = [sample.parsed is None for sample in summary.sample]
    assert shown == [False, True, False]


def test_examples_among_strangers(make_shard: MakeShard) -> None:
    """A shard of other payloads has no features, and its payloads are no faults."""
    summary = inspect_shard(make_shard([b"hello world", b"hello world 2", CAT]))
    assert summary.payload is PayloadKind.UNKNOWN
    assert (summary.features, summary.faults, summary.records) == ((), (), 3)


def test_kinds_of_tensorflow(tf: Any, make_shard: MakeShard) -> None:
    """SequenceExamples and events are known."""
    sequence = tf_sequence(tf, {"id": int64(1)}, {"x": [float32(1.0)], "e": []})
    summary = inspect_shard(make_shard([sequence.SerializeToString()] * 2, "s"))
    assert summary.payload is PayloadKind.SEQUENCE_EXAMPLE
    assert [(f.name, f.is_list) for f in summary.features] == [
        ("id", False),
        ("e", True),
        ("x", True),
    ]
    event = tf.compat.v1.Event(wall_time=1.7e9, file_version="brain.Event:2").SerializeToString()
    summary = inspect_shard(make_shard([event] * 3, "e"))
    assert (summary.payload, summary.faults) == (PayloadKind.EVENT, ())


@pytest.mark.parametrize("payloads", [[], [b""], [b"", b""]])
def test_nothing(make_shard: MakeShard, payloads: list[bytes]) -> None:
    """An empty file is a fault, and a shard of empty records is not; both hold nothing."""
    summary = inspect_shard(make_shard(payloads))
    assert summary.payload is PayloadKind.EMPTY
    assert summary.records == len(payloads)
    assert [fault.kind for fault in summary.faults] == ([] if payloads else [FaultKind.EMPTY])


def test_missing_file(tmp_path: Path) -> None:
    """A file that can't be opened is an error that names it."""
    with pytest.raises(ShardError) as caught:
        inspect_shard(tmp_path / "missing.tfrecord")
    assert caught.value.path == str(tmp_path / "missing.tfrecord")


@pytest.fixture(scope="session")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a file that properties write to again and again."""
    return tmp_path_factory.mktemp("shard") / "a.tfrecord"


@given(payloads=st.lists(st.binary(max_size=30) | st.just(CAT), max_size=6), use=st.booleans())
def test_any_payloads(scratch: Path, payloads: list[bytes], use: bool) -> None:
    """Whatever the payloads are, they are counted, and nothing fails."""
    scratch.write_bytes(shard_of(payloads))
    summary = inspect_shard(scratch, limit=10, schema=CATS_VS_DOGS if use else None)
    assert summary.records == len(payloads)
    assert [sample.record.payload for sample in summary.sample] == payloads
