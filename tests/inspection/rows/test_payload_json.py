"""Payloads of any kind, told field by field."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tfrtool
from tests.examples.strategies import (
    entry,
    feature_maps,
    float32,
    int64,
    raw_example,
    string,
)
from tfrtool.errors import UsageError
from tfrtool.examples.example import Feature, feature_key
from tfrtool.inspection.rows.payload_json import PayloadJson
from tfrtool.records.wire import field_head, varint

JPEG = b"\xff\xd8\xff\xe0\x00\x10JFIF"


def tell(payload: bytes, **how: Any) -> Any:
    """Return what is told, as JSON has it."""
    return json.loads(json.dumps(PayloadJson(**how).describe(payload), allow_nan=False))


def test_features() -> None:
    """One value is told as such, others as a list; what is absent, empty and unset differs."""
    features = {
        "one": int64(2**63 - 1),
        "some": int64(1, 2),
        "none": int64(),
        "unset": Feature(dtype=None, values=()),
        "text": string("größer\n".encode()),
        "image": string(JPEG),
        "floats": float32(0.1, float("nan"), float("inf"), float("-inf")),
    }
    payload = tfrtool.encode_example(features)
    assert tell(payload) == {
        "features": {
            "floats": [0.1, "NaN", "Infinity", "-Infinity"],
            "image": {"bytes": 10, "content": "image/jpeg"},
            "none": [],
            "one": 2**63 - 1,
            "some": [1, 2],
            "text": "größer\n",
            "unset": None,
        }
    }
    assert list(tell(payload, select=["text", "no", "one"])["features"]) == ["text", "one"]
    told = tell(payload, select=["image"], as_base64=True)
    assert told == {"features": {"image": {"base64": "/9j/4AAQSkZJRg=="}}}
    assert tell(b"") == {"features": {}}
    assert tell(b"\xff\xfe") == {"payload": {"bytes": 2, "content": "binary"}}


@given(feature_maps, st.booleans())
def test_anything_is_told(features: dict[str, Feature], as_base64: bool) -> None:
    """Every Example has its features told, under their names."""
    told = tell(tfrtool.encode_example(features), as_base64=as_base64)
    assert set(told["features"]) == set(features)


def test_a_selection_that_is_nowhere() -> None:
    """A feature that no record has is an error with the nearest names, once all were told."""
    payloads = PayloadJson(select=["lable"])
    payloads.check_selection()
    payloads.describe(tfrtool.encode_example({"label": 1}))
    with pytest.raises(UsageError, match="'lable'; did you mean 'label'"):
        payloads.check_selection()


def test_messages_in_bytes() -> None:
    """Examples in features and in lists with a context are told, but not without end."""
    inner = tfrtool.encode_example({"label": 1})
    outer = tfrtool.encode_example({"inner": inner, "label": 2})
    assert tell(outer)["features"]["inner"] == {"example": {"features": {"label": 1}}}
    assert "base64" in tell(outer, as_base64=True)["features"]["inner"]
    listed = b"\n" + bytes([len(inner)]) + inner
    told = {"examples": [{"features": {"label": 1}}] * 2, "context": {"features": {"label": 1}}}
    assert tell(listed * 2 + b"\x12" + bytes([len(inner)]) + inner) == told
    steps = {b"words": [string(b"a"), string(b"b", b"c")]}
    sequence = raw_example([entry(feature_key("id"), int64(3))], steps)
    assert tell(sequence) == {"context": {"id": 3}, "feature_lists": {"words": [["a"], ["b", "c"]]}}
    assert tell(tfrtool.encode_example({"s": sequence}))["features"]["s"] == {
        "sequence_example": tell(sequence)
    }
    deep = inner
    for _ in range(8):
        deep = tfrtool.encode_example({"deep": deep})
    told, depth = tell(deep), 0
    while "features" in told:
        told, depth = told["features"]["deep"], depth + 1
        told = told.get("example", told)
    assert (told["content"], depth) == ("tf.train.Example", 5)


def test_golden_events() -> None:
    """The events of a log have their time, version, and summaries by tag."""
    (path,) = (Path(__file__).parents[3] / "fixtures" / "golden").glob("events.out*.host")
    told = [tell(one.payload)["event"] for one in tfrtool.read(path) if hasattr(one, "payload")]
    assert told[0]["file_version"] == "brain.Event:2"
    assert all(event["wall_time"] > 1.6e9 for event in told)
    tags = [value["tag"] for event in told[1:] for value in event["summary"]["value"]]
    assert tags


def _tensor_proto(dtype: int, count: int, *fields: tuple[int, bytes]) -> bytes:
    """Return a TensorProto of one dimension."""
    dim = b"\x08" + varint(count)
    parts = [(0x12, field_head(0x12, len(dim)) + dim), *fields]
    return bytes([8, dtype]) + b"".join(field_head(tag, len(one)) + one for tag, one in parts)


def test_the_first_values_of_tensors() -> None:
    """A page shows some of many values, and how many more there are, in whatever field they are."""
    for dtype, fields, values in (
        (1, [(0x22, struct.pack("<5f", 1, 2, 3, 4, 5))], [1.0, 2.0, 3.0, 4.0, 5.0]),
        (1, [(0x2A, struct.pack("<2f", 1, 2))], [1.0, 2.0]),
        (9, [(0x52, b"\x01\x02\x83\x01")], [1, 2, 131]),
        (7, [(0x42, b"a"), (0x42, b"b"), (0x42, b"c")], ["a", "b", "c"]),
    ):
        payload = _tensor_proto(dtype, len(values), *fields)
        assert tell(payload)["tensor"]["values"] == values
        shown = [*values[:2], *([f"... {len(values) - 2} more"] if len(values) > 2 else ())]
        assert tell(payload, most=2)["tensor"]["values"] == shown


@pytest.mark.tf
def test_tensors_as_tensorflow_has_them(tf: Any) -> None:
    """A TensorProto's type, shape and values are those that TensorFlow reads from it."""
    for dtype, value in ((tf.int32, -7), (tf.int64, -(2**63)), (tf.bool, True)):
        few = tf.make_tensor_proto(value, dtype)  # not as bytes, but each as a varint
        assert tell(few.SerializeToString())["tensor"]["values"] == [value]
    made = [
        tf.constant([[1.5, -2.25], [0.1, 1e30]]),
        tf.constant(3.5),
        tf.constant([2.5, -1e300], tf.float64),
        tf.constant(-7, tf.int32),
        tf.constant([2**40, -(2**40)], tf.int64),
        tf.constant([[1, 255]], tf.uint8),
        tf.constant(2**63 - 1, tf.int64),
        tf.constant(["a", "größer"]),
        tf.constant([True, False]),
        tf.zeros([0, 3]),
    ]
    for tensor in made:
        told = tell(tf.io.serialize_tensor(tensor).numpy())["tensor"]
        assert told["dtype"] == tensor.dtype.name
        assert told["shape"] == tensor.shape.as_list()
        expected = tensor.numpy().ravel().tolist()
        if tensor.dtype == tf.string:
            expected = [value.decode() for value in expected]
        elif tensor.dtype == tf.float32:
            expected = [pytest.approx(value, rel=1e-6) for value in expected]
        assert told["values"] == expected


@pytest.mark.tf
def test_summaries_as_tensorflow_writes_them(tf: Any, tmp_path: Path) -> None:
    """Scalars, texts and histograms of both writers are told by tag, step and value."""
    with tf.summary.create_file_writer(str(tmp_path)).as_default():
        metadata = tf.compat.v1.SummaryMetadata()
        metadata.plugin_data.plugin_name = "scalars"
        tf.summary.write("loss", tf.constant(0.25), step=3, metadata=metadata)
        tf.summary.write("note", tf.constant(["hello"]), step=4)
    with tf.compat.v1.Graph().as_default():
        old = tf.compat.v1.summary.FileWriter(str(tmp_path / "old"))
        summary = tf.compat.v1.Summary()
        summary.value.add(tag="acc", simple_value=0.5)
        summary.value.add(tag="h").histo.CopyFrom(
            tf.compat.v1.HistogramProto(min=-1, max=2, num=3, bucket_limit=[1, 2], bucket=[2, 1])
        )
        old.add_summary(summary, 5)
        old.close()
    events = [
        tell(one.payload)["event"]
        for path in tfrtool.find_shards([tmp_path, tmp_path / "old"])
        for one in tfrtool.read(path)
        if hasattr(one, "payload")
    ]
    values = {
        value["tag"]: (event.get("step"), value)
        for event in events
        for value in event.get("summary", {}).get("value", ())
    }
    assert values["loss"][0] == 3
    assert values["loss"][1]["tensor"] == {"dtype": "float32", "shape": [], "values": [0.25]}
    assert values["loss"][1]["metadata"]["plugin_data"]["plugin_name"] == "scalars"
    assert values["note"][1]["tensor"]["values"] == ["hello"]
    assert values["acc"][1] == {"tag": "acc", "simple_value": 0.5}
    histogram = {"min": -1, "max": 2, "num": 3, "bucket_limit": [1, 2], "bucket": [2, 1]}
    assert values["h"][1]["histo"] == histogram
