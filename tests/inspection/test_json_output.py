"""Summaries as JSON."""

from __future__ import annotations

import json
import math
import struct
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conftest import MakeShard
from tests.examples.strategies import feature_maps, int64, string
from tests.records.strategies import shard_of
from tfrtool.examples.example import Feature, encode_example
from tfrtool.examples.schema import Schema
from tfrtool.inspection.summary.shard_summary import inspect_shard
from tfrtool.inspection.summary.summary_json import (
    shortest_float,
    value_json,
)
from tfrtool.records.framing import Fault, FaultKind
from tfrtool.storage.json_values import to_json_values

JPEG = b"\xff\xd8\xff\xe0"


def test_values() -> None:
    """Bytes are told by number and content, with their text only where they are text."""
    assert value_json(JPEG) == {"bytes": 4, "content": "image/jpeg"}
    assert value_json(b"cat.jpg") == {"bytes": 7, "content": "text", "text": "cat.jpg"}
    assert value_json(b"\0\1") == {"bytes": 2, "content": "binary"}
    assert value_json([1, 2]) == [1, 2]
    assert value_json([[1], []]) == [[1], []]


@pytest.mark.parametrize(
    ("value", "expected"), [(math.nan, "NaN"), (math.inf, "Infinity"), (-math.inf, "-Infinity")]
)
def test_floats_that_json_has_not(value: float, expected: str) -> None:
    """JSON has no number for these."""
    assert value_json(value) == expected


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


def test_fault() -> None:
    """A fault has its keys, with null for a record that can't be known; a cause if one is."""
    fault = Fault(kind=FaultKind.TRUNCATED, offset=7, record=None, message="cut")
    assert to_json_values(fault) == {
        "kind": "truncated",
        "offset": 7,
        "record": None,
        "message": "cut",
    }
    assert to_json_values(replace(fault, cause="a full disk"))["cause"] == "a full disk"


def test_features_and_sample(make_shard: MakeShard) -> None:
    """Features and sample have the contract's keys and values."""
    payload = encode_example({"image": string(JPEG), "label": int64(1)})
    summary = inspect_shard(make_shard([payload, payload]), limit=1).to_json()
    image, label = summary["features"]
    wanted = {"name", "dtype", "present", "min_length", "max_length", "content"}
    assert wanted <= image.keys()
    assert {key: label[key] for key in wanted} == {
        "name": "label",
        "dtype": "int64",
        "present": 2,
        "min_length": 1,
        "max_length": 1,
        "content": None,
    }
    assert (image["dtype"], image["content"]) == ("string", "image/jpeg")
    assert summary["sample"] == [
        {
            "record": 0,
            "offset": 0,
            "length": len(payload),
            "features": {"image": {"bytes": 4, "content": "image/jpeg"}, "label": 1},
        }
    ]


def test_raw(make_shard: MakeShard) -> None:
    """Raw bytes come as Python prints them, with both CRCs as the file stores them."""
    payload = encode_example({"label": int64(1)})
    summary = inspect_shard(make_shard([payload])).to_json(raw=True)
    (sample,) = summary["sample"]
    framed = shard_of([payload])
    assert sample["raw"] == repr(payload)
    assert bytes.fromhex(sample["length_crc"])[::-1] == framed[8:12]
    assert bytes.fromhex(sample["payload_crc"])[::-1] == framed[-4:]


def test_payload_that_is_no_example(make_shard: MakeShard) -> None:
    """A payload of another kind has no features, and is told as bytes."""
    (sample,) = inspect_shard(make_shard([b"hello world"])).to_json()["sample"]
    assert sample["features"] is None
    assert sample["payload"] == {"bytes": 11, "content": "text", "text": "hello world"}


def test_misfits_and_hidden(make_shard: MakeShard) -> None:
    """What doesn't fit stands with its record, and what a default hides with its feature."""
    schema = Schema.from_notation(["a:int64=-1", "b:int64"])
    summary = inspect_shard(make_shard([encode_example({})]), schema=schema).to_json()
    (sample,) = summary["sample"]
    assert sample["features"] == {"a": -1}
    (misfit,) = sample["misfits"]
    assert "'b'" in misfit
    assert summary["hidden_by_default"] == [{"name": "a", "records": [0]}]


@settings(max_examples=30)
@given(features=feature_maps)
def test_any_example_is_json(tmp_path_factory: Any, features: dict[str, Feature]) -> None:
    """Whatever an Example holds, its JSON is strict JSON in ASCII, and reads back the same."""
    path = tmp_path_factory.getbasetemp() / "any.tfrecord"
    path.write_bytes(shard_of([encode_example(features)]))
    summary = inspect_shard(path).to_json(raw=True)
    text = json.dumps(summary, allow_nan=False)
    assert text.isascii()
    assert json.loads(text) == summary
