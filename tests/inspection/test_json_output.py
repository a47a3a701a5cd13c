"""Summaries as JSON."""

from __future__ import annotations

import json
import struct
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import MakeShard
from tests.examples.strategies import feature_maps, int64
from tests.records.strategies import shard_of
from tfrtool.examples.example import Feature, encode_example
from tfrtool.inspection.summary.shard_summary import inspect_shard
from tfrtool.inspection.summary.summary_json import (
    shortest_float,
    value_json,
)

JPEG = b"\xff\xd8\xff\xe0"


def test_values() -> None:
    """Bytes are told by number and content, with their text only where they are text."""
    assert value_json(JPEG) == {"bytes": 4, "content": "image/jpeg"}
    assert value_json(b"cat.jpg") == {"bytes": 7, "content": "text", "text": "cat.jpg"}
    assert value_json(b"\0\1") == {"bytes": 2, "content": "binary"}
    assert value_json([1, 2]) == [1, 2]
    assert value_json([[1], []]) == [[1], []]


@given(value=st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_shortest_float_is_the_same_float32(value: float) -> None:
    """The digits are few, and give the same float32."""
    short = shortest_float(value)
    assert struct.pack("<f", short) == struct.pack("<f", value)
    assert float(f"{short:.9g}") == short


def test_float_as_it_was_written() -> None:
    """0.1 as a float32 is 0.1 for people."""
    (stored,) = struct.unpack("<f", struct.pack("<f", 0.1))
    assert stored != 0.1
    assert shortest_float(stored) == 0.1
    assert value_json([stored]) == [0.1]


def test_raw(make_shard: MakeShard) -> None:
    """Raw bytes come as Python prints them, with both CRCs as the file stores them."""
    payload = encode_example({"label": int64(1)})
    summary = inspect_shard(make_shard([payload])).to_json(raw=True)
    (sample,) = summary["sample"]
    framed = shard_of([payload])
    assert sample["raw"] == repr(payload)
    assert bytes.fromhex(sample["length_crc"])[::-1] == framed[8:12]
    assert bytes.fromhex(sample["payload_crc"])[::-1] == framed[-4:]


@given(features=feature_maps)
def test_any_example_is_json(tmp_path_factory: Any, features: dict[str, Feature]) -> None:
    """Whatever an Example holds, its JSON is strict JSON in ASCII, and reads back the same."""
    path = tmp_path_factory.getbasetemp() / "any.tfrecord"
    path.write_bytes(shard_of([encode_example(features)]))
    summary = inspect_shard(path).to_json(raw=True)
    text = json.dumps(summary, allow_nan=False)
    assert text.isascii()
    assert json.loads(text) == summary
