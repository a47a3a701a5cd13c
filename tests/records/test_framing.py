"""The frame around a payload."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hypothesis import given

from tests.records.strategies import payload_lists, shard_of
from tfrtool.records.framing import FaultKind, Record, frame

KINDS = {
    "length-crc",
    "payload-crc",
    "truncated",
    "trailing-bytes",
    "oversized-length",
    "decompression",
    "not-tfrecord",
    "empty",
    "parse",
    "schema",
    "count",
    "missing-shard",
}


def test_frame_of_hello() -> None:
    """The record of "hello" is the one that TensorFlow 2.21 writes."""
    assert frame(b"hello") == bytes.fromhex("0500000000000000 eab2043e 68656c6c6f bb1f1c19")


def test_frame_is_what_tensorflow_writes(tf: Any, tmp_path: Path) -> None:
    """Our frames in a row are the file that TFRecordWriter writes."""
    payloads = [b"", b"hello", bytes(100), bytes(range(256)) * 300]
    path = tmp_path / "tf.tfrecord"
    with tf.io.TFRecordWriter(str(path)) as writer:
        for payload in payloads:
            writer.write(payload)
    assert path.read_bytes() == shard_of(payloads)


@given(payloads=payload_lists)
def test_record_has_crcs_as_stored(payloads: list[bytes]) -> None:
    """A record's two CRCs are those that stand in its frame."""
    for payload in payloads:
        framed = frame(payload)
        stored = int.from_bytes(framed[-4:], "little")
        record = Record(index=0, offset=0, payload=payload, payload_crc=stored)
        assert framed[8:12] == record.length_crc.to_bytes(4, "little")


def test_fault_kinds_are_those_of_the_contract() -> None:
    """The names of the kinds of fault are part of the JSON output, and fixed."""
    assert {kind.value for kind in FaultKind} == KINDS
