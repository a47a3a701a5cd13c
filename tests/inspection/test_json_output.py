"""Summaries as JSON."""

from __future__ import annotations

import json
import random
import struct
from array import array
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


def shortest_by_trial(value: float) -> float:
    """Return the first decimal of one digit more each time that is the same float32."""
    for digits in range(1, 9):
        candidate = float(f"{value:.{digits}g}")
        if struct.pack("<f", candidate) == struct.pack("<f", value):
            return candidate
    return float(f"{value:.9g}")


def test_shortest_float_has_the_fewest_digits() -> None:
    """No shorter decimal is the same float32, for any exponent, and beside powers of 2 and 10."""
    draw = random.Random(3)
    bits = [draw.getrandbits(31) for _ in range(3000)]
    bits += [(exponent << 23) + step for exponent in range(255) for step in (-1, 0, 1, 2)][1:]
    values = [*array("f", struct.pack(f"<{len(bits)}I", *bits))]
    near = [10.0**power for power in range(-12, 12)] + [n / 8 for n in range(200)]
    near += [draw.random() for _ in range(3000)] + [draw.gauss(0, 100) for _ in range(2000)]
    near += [2.0**25 + 4 * n for n in range(300)] + [2.0**24 + n for n in range(-100, 100)]
    near += [round(draw.uniform(0, 10**power), power) for power in range(8) for _ in range(100)]
    values += array("f", near)
    finite = [value for value in values if abs(value) < float("inf")]
    for value in finite:
        assert repr(shortest_float(-value)) == repr(-shortest_by_trial(value))


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
