"""Payloads: what they are, and what they hold."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.examples.strategies import (
    UNSET,
    entry,
    feature_maps,
    features,
    int64,
    names,
    raw_example,
    string,
    tf_example,
    tf_sequence,
)
from tfrtool.errors import UsageError
from tfrtool.examples import example as example_module
from tfrtool.examples.example import (
    DType,
    Example,
    Feature,
    PayloadKind,
    classify_payload,
    decode_example,
    encode_example,
    feature_key,
    feature_name,
)
from tfrtool.examples.schema_fold import SchemaFold

KINDS = {"bytes_list": "string", "int64_list": "int64", "float_list": "float32", None: None}


def content_of(features: Any) -> dict[str, tuple[str | None, list[Any]]]:
    """Return what a tf.train.Features message holds."""
    found = {}
    for name, feature in features.feature.items():
        kind = feature.WhichOneof("kind")
        found[name] = (KINDS[kind], list(getattr(feature, kind).value) if kind else [])
    return found


def content_of_ours(example: Example) -> dict[str, tuple[str | None, list[Any]]]:
    """Return what our value holds, in the same form."""
    return {
        name: (None if feature.dtype is None else feature.dtype.value, list(feature.values))
        for name, feature in example.features.items()
    }


@given(features=feature_maps)
def test_decode_undoes_encode(features: dict[str, Feature]) -> None:
    """What is encoded is decoded again."""
    assert decode_example(encode_example(features)) == Example(features=features)


@example(features={"image": int64(1), "image/name": int64(2), "é": int64(3), "Z": int64(4)})
@given(features=feature_maps)
def test_encode_is_tensorflows_deterministic_serialization(
    tf: Any, features: dict[str, Feature]
) -> None:
    """The bytes are those of TensorFlow, with keys in order, whatever the order they came in."""
    expected = tf_example(tf, features).SerializeToString(deterministic=True)
    assert encode_example(features) == expected
    assert encode_example(dict(reversed(features.items()))) == expected


@given(first=feature_maps, second=feature_maps)
def test_decode_agrees_with_tensorflow(
    tf: Any, first: dict[str, Feature], second: dict[str, Feature]
) -> None:
    """A payload holds what TensorFlow finds in it, also where keys come twice."""
    payload = b"".join(tf_example(tf, part).SerializeToString() for part in (first, second))
    theirs = tf.train.Example.FromString(payload)
    assert content_of_ours(decode_example(payload)) == content_of(theirs.features)


@given(context=feature_maps, lists=st.dictionaries(names, st.lists(features, max_size=3)))
def test_decode_sequence_agrees_with_tensorflow(
    tf: Any, context: dict[str, Feature], lists: dict[str, list[Feature]]
) -> None:
    """A SequenceExample's context and lists are those that TensorFlow was given."""
    payload = tf_sequence(tf, context, lists).SerializeToString()
    found = decode_example(payload, PayloadKind.SEQUENCE_EXAMPLE)
    assert found.features == context
    assert found.feature_lists == lists


@pytest.mark.parametrize("kind", [PayloadKind.EXAMPLE, PayloadKind.SEQUENCE_EXAMPLE])
def test_decode_refuses_other_bytes(kind: PayloadKind) -> None:
    """Bytes that are no message are an error that tells how many they are, and not which."""
    with pytest.raises(ValueError, match="6 bytes") as caught:
        decode_example(b"secret", kind)
    assert "secret" not in str(caught.value)


@given(key=st.binary(max_size=8))
def test_keys_and_names_are_one_to_one(key: bytes) -> None:
    """Whatever the bytes of a key, its name says which they are."""
    assert feature_key(feature_name(key)) == key


@given(features=feature_maps.filter(bool))
def test_examples_are_classified(tf: Any, features: dict[str, Feature]) -> None:
    """Whatever features an Example has, and whatever their names, it is one."""
    payload = tf_example(tf, features).SerializeToString()
    assert classify_payload(payload) is PayloadKind.EXAMPLE


@given(examples=st.lists(feature_maps, min_size=1, max_size=3), context=feature_maps)
def test_lists_of_examples_are_no_sequences(
    examples: list[dict[str, Feature]], context: dict[str, Feature]
) -> None:
    """An ExampleListWithContext with any feature is unknown, whatever the names are."""
    fields = [(b"\x0a", encode_example(held)) for held in examples]
    fields.append((b"\x12", encode_example(context)))
    payload = b"".join(tag + _varint(len(held)) + held for tag, held in fields)
    if any((*examples, context)):
        assert classify_payload(payload) is PayloadKind.UNKNOWN


def _varint(number: int) -> bytes:
    return bytes([number]) if number < 0x80 else bytes([number & 0x7F | 0x80, number >> 7])


def nested(*fields: bytes) -> bytes:
    """Return a message whose field 1 is each of ``fields``."""
    return b"".join(b"\n" + bytes([len(field)]) + field for field in fields)


SMALL = encode_example({"query": int64(1)})

PAYLOADS: list[tuple[str, bytes, PayloadKind]] = [
    ("nothing", b"", PayloadKind.EMPTY),
    ("image and label", encode_example({"image": string(b"\xff\xd8"), "label": int64(1)}),
     PayloadKind.EXAMPLE),
    ("without a kind", encode_example({"image": UNSET}), PayloadKind.EXAMPLE),
    ("no features", nested(b""), PayloadKind.EXAMPLE),
    ("Latin-1 name", nested(nested(b"\n\x02a\xe9\x12\x00")), PayloadKind.EXAMPLE),
    ("name without value", nested(nested(b"\n\x05image")), PayloadKind.UNKNOWN),
    ("binary name", nested(nested(b"\n\x02\x01\x02\x12\x00")), PayloadKind.EXAMPLE),
    ("field 3 beside", SMALL + b"\x1a\x01x", PayloadKind.UNKNOWN),
    ("ExampleListWithContext", nested(SMALL, SMALL), PayloadKind.UNKNOWN),
    ("ExampleListWithContext, context", nested(SMALL) + b"\x12" + bytes([len(SMALL)]) + SMALL,
     PayloadKind.UNKNOWN),
    ("text", b"hello world", PayloadKind.UNKNOWN),
    ("JPEG", b"\xff\xd8\xff\xe0\x00\x10JFIF\x00\x01", PayloadKind.UNKNOWN),
    ("zeros", bytes(20), PayloadKind.UNKNOWN),
]  # fmt: skip


@pytest.mark.parametrize(("payload", "kind"), [pytest.param(*p, id=name) for name, *p in PAYLOADS])
def test_payload_kind(payload: bytes, kind: PayloadKind) -> None:
    """What a payload is, is told from its content."""
    assert classify_payload(payload) is kind


def test_sequences_and_events_of_tensorflow(tf: Any) -> None:
    """SequenceExamples are told from Examples by their lists, and events are known."""
    lists = {"words": [string(b"a"), string(b"b")]}
    assert (
        classify_payload(tf_sequence(tf, {"id": int64(1)}, lists).SerializeToString())
        is PayloadKind.SEQUENCE_EXAMPLE
    )
    summary = tf.compat.v1.Summary(value=[{"tag": "loss", "simple_value": 0.5}])
    for event in (
        tf.compat.v1.Event(wall_time=1.7e9, file_version="brain.Event:2"),
        tf.compat.v1.Event(wall_time=1.7e9, step=7, summary=summary),
        tf.compat.v1.Event(wall_time=1.7e9, graph_def=b"graph"),
    ):
        assert classify_payload(event.SerializeToString()) is PayloadKind.EVENT


@given(payload=st.binary(max_size=100))
def test_classification_never_fails(payload: bytes) -> None:
    """Whatever the bytes, they are something, and empty only if there are none."""
    assert (classify_payload(payload) is PayloadKind.EMPTY) == (payload == b"")


@pytest.mark.parametrize("value", [{"b": 1}, {"b", "c"}, None, [1, "x"], []])
def test_what_is_no_feature(value: Any) -> None:
    """Of a dictionary, the keys were taken for the values; a set has no order."""
    with pytest.raises(UsageError, match="feature 'a': expected"):
        encode_example({"a": value})


@pytest.mark.parametrize(
    "value", [2**70, [1, -(2**63) - 1], [0.5, 10**400], Feature(dtype=DType.INT64, values=(b"x",))]
)
def test_values_that_no_feature_holds(value: Any) -> None:
    """The error is one of ours, and names the feature."""
    with pytest.raises(UsageError, match="feature 'wide': expected "):
        encode_example({"fine": 1, "wide": value})


@pytest.mark.parametrize(
    ("limit", "payload"),
    [
        ("MAX_FEATURES", raw_example([entry(b"%d" % number, int64(1)) for number in range(9)])),
        ("MAX_FIELDS", raw_example([entry(b"a", string(*[b"x"] * 4))])),
        ("MAX_INTEGER_BYTES", raw_example([entry(b"a", int64(*range(7)))])),
    ],
)
def test_limits_of_large_payloads(
    limit: str, payload: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A large payload that would take many times its size in memory is not an Example."""
    monkeypatch.setattr(example_module, "LARGE", -1)
    monkeypatch.setattr(example_module, "_LONG", 0)
    monkeypatch.setattr(example_module, limit, 9)
    assert classify_payload(payload) is PayloadKind.EXAMPLE
    monkeypatch.setattr(example_module, limit, 8)
    assert classify_payload(payload) is PayloadKind.UNKNOWN
    with pytest.raises(ValueError, match="is not a tf"):
        decode_example(payload)
    assert not SchemaFold().add_payload(payload)
