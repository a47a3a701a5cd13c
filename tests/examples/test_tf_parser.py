"""What TensorFlow's own parser refuses, or reads otherwise than protobuf: TensorFlow is asked."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given

import tfrtool
from tests.examples.strategies import int64
from tests.examples.wire import field, mutants, sequence_mutants
from tfrtool.examples.example import decode_example
from tfrtool.examples.proto import example_pb2 as pb
from tfrtool.records.framing import FaultKind, frame

GOOD = tfrtool.encode_example({"id": int64(1), "a": int64(1)})
KINDS = ("bytes_list", "float_list", "int64_list")

Values = dict[bytes, list[Any]]


@pytest.fixture(scope="module")
def shard(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a file that a property writes to again and again."""
    return tmp_path_factory.mktemp("parser") / "a.tfrecord"


def verdict(shard: Path, payload: bytes) -> str | None:
    """Return what verify says of a payload among two good ones."""
    shard.write_bytes(frame(GOOD) + frame(payload) + frame(GOOD))
    faults = tfrtool.verify(shard).shards[0].faults
    assert {(fault.record, fault.kind) for fault in faults} <= {(1, FaultKind.PARSE)}
    return faults[0].message if faults else None


def _values(feature: pb.Feature) -> list[Any]:
    kind = feature.WhichOneof("kind")
    return [] if kind is None else list(getattr(feature, kind).value)


def by_protobuf(message: pb.SequenceExample) -> tuple[Values, Values]:
    """Return what protobuf reads: features and lists of features, by name."""
    return (
        {entry.key: _values(entry.value) for entry in message.context.feature},
        {
            entry.key: [_values(step) for step in entry.value.feature]
            for entry in message.feature_lists.feature_list
        },
    )


def by_tensorflow(tf: Any, payload: bytes, message: pb.SequenceExample) -> tuple[Values, Values]:
    """Return what TensorFlow reads with a description of all features, in any numbers.

    A feature that has no kind must be missing whatever type is asked for.
    """
    dtypes = dict(zip(KINDS, (tf.string, tf.float32, tf.int64), strict=True))
    context = {entry.key: entry.value.WhichOneof("kind") for entry in message.context.feature}
    lists = {
        entry.key: next(
            (kind for step in entry.value.feature if (kind := step.WhichOneof("kind"))), None
        )
        for entry in message.feature_lists.feature_list
    }
    kinds = {kind for kinds in (context, lists) for kind in kinds.values()}
    for other in KINDS if None in kinds else KINDS[:1]:
        described = {
            key: tf.io.VarLenFeature(dtypes[kind or other]) for key, kind in context.items()
        }
        described = described or {b"none": tf.io.VarLenFeature(dtypes[other])}
        if not message.HasField("feature_lists"):
            found, steps = tf.io.parse_single_example(payload, described), {}
        else:
            of_lists = {
                key: tf.io.VarLenFeature(dtypes[kind or other]) for key, kind in lists.items()
            }
            found, steps = tf.io.parse_single_sequence_example(payload, described, of_lists or None)
    return (
        {key: found[key].values.numpy().tolist() for key in context},
        {key: _rows(steps[key]) for key in lists},
    )


def _rows(held: Any) -> list[list[Any]]:
    rows: list[list[Any]] = [[] for _ in range(held.dense_shape[0])]
    for (row, _), value in zip(held.indices.numpy(), held.values.numpy().tolist(), strict=True):
        rows[row].append(value)
    return rows


def check(tf: Any, shard: Path, payload: bytes) -> None:
    """Assert that verify finds fault with all that TensorFlow refuses or reads otherwise.

    What a writer makes has no other fault.
    """
    said = verdict(shard, payload)
    try:
        message = pb.SequenceExample.FromString(payload)
    except DecodeError:
        assert said is not None
        return
    mixed = any(
        len({step.WhichOneof("kind") for step in entry.value.feature} - {None}) > 1
        for entry in message.feature_lists.feature_list
    )
    if mixed:  # no description fits it
        return
    if not (message.context.feature or message.feature_lists.feature_list):
        return  # it is asked for nothing
    try:
        theirs = by_tensorflow(tf, payload, message)
    except (tf.errors.InvalidArgumentError, UnicodeDecodeError):  # that of its own error's text
        assert said is not None
        return
    ours = by_protobuf(message)
    if said is None:
        assert theirs == ours
    elif theirs == ours:
        message.DiscardUnknownFields()
        entries: list[Any] = [*message.context.feature, *message.feature_lists.feature_list]
        keys = {item.key for item in entries if item.HasField("key") and item.HasField("value")}
        assert message.SerializeToString() != payload or len(keys) < len(entries)


@given(payload=mutants())
def test_examples(tf: Any, shard: Path, payload: bytes) -> None:
    """Verify tells a fault where tf.io.parse_single_example fails, or reads other values."""
    check(tf, shard, payload)


@given(payload=sequence_mutants())
def test_sequences(tf: Any, shard: Path, payload: bytes) -> None:
    """The same of SequenceExamples, and tf.io.parse_single_sequence_example."""
    check(tf, shard, payload)


INT = field(3, field(1, b"\x01"))  # int64_list {value: 1}
A = field(1, b"a")


def features(*parts: bytes) -> bytes:
    """Return an Example whose features have one map entry, of these parts."""
    return field(1, field(1, *parts))


REFUSED = [
    ("no key", features(field(2, INT)), "one key and one value"),
    ("no value", field(1, field(1, A, field(2, INT)), field(1, A)), "one key and one value"),
    ("value twice", features(A, field(2, INT), field(2, INT)), "one key and one value"),
    ("field 3 in an entry", features(A, field(2, INT), b"\x1a\x00"), "one key and one value"),
    ("unpacked, then packed", features(A, field(2, field(3, b"\x08\x01", field(1, b"\x02")))),
     "packed and unpacked"),
    ("field 2 in a list of strings", features(A, field(2, field(1, field(1, b"x"), b"\x12\x00"))),
     "other than strings"),
    ("field 2 of the features", field(1, field(1, A, field(2, INT)), b"\x12\x00"),
     "other than a map entry"),
    ("a group", features(A, field(2, INT)) + b"\x3b\x3c", "group"),
    ("an unknown kind", features(A, field(2, b"\x22\x00" + INT)), "a list of values"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("payload", "reason"), [pytest.param(*rest, id=name) for name, *rest in REFUSED]
)
def test_what_it_refuses(tf: Any, shard: Path, payload: bytes, reason: str) -> None:
    """Protobuf takes these, and training would fail: verify names the record and the reason."""
    tf.train.Example.FromString(payload)
    with pytest.raises(tf.errors.InvalidArgumentError):
        tf.io.parse_single_example(payload, {"a": tf.io.VarLenFeature(tf.int64)})
    said = verdict(shard, payload)
    assert said is not None
    assert said.startswith("TensorFlow's parser rejects it: ")
    assert reason in said


TAKEN = [
    ("the value first", features(field(2, INT), A)),
    ("not packed", features(A, field(2, field(3, b"\x08\x01")))),
    ("twice", field(1, *[field(1, A, field(2, INT))] * 2)),
    ("in two parts", field(1, field(1, A, field(2, INT))) + field(1, b"")),
    ("an unknown field", features(A, field(2, INT)) + b"\x38\x01" + field(9, b"x")),
]


@pytest.mark.parametrize("payload", [pytest.param(held, id=name) for name, held in TAKEN])
def test_what_it_takes(tf: Any, shard: Path, payload: bytes) -> None:
    """Unusual payloads that TensorFlow reads as protobuf does are no fault."""
    read = tf.io.parse_single_example(payload, {"a": tf.io.FixedLenFeature([], tf.int64)})
    assert read["a"].numpy() == 1
    assert verdict(shard, payload) is None


HALVES = [
    ("packed twice", field(3, field(1, b"\x01"), field(1, b"\x02"))),
    ("packed, then unpacked", field(3, field(1, b"\x01"), b"\x08\x02")),
    ("two lists", INT + field(3, field(1, b"\x02"))),
]


@pytest.mark.parametrize("feature", [pytest.param(held, id=name) for name, held in HALVES])
def test_what_it_reads_by_half(tf: Any, shard: Path, feature: bytes) -> None:
    """Of these TensorFlow reads the first value of two, without a word."""
    payload = features(A, field(2, feature))
    read = tf.io.parse_single_example(payload, {"a": tf.io.VarLenFeature(tf.int64)})
    assert read["a"].values.numpy().tolist() == [1]
    assert decode_example(payload).features["a"].values == (1, 2)
    assert "different values for 'a' than protobuf" in str(verdict(shard, payload))


def test_long_records_are_judged_alike(shard: Path) -> None:
    """A payload whose long values are not parsed gets the verdict of a short one."""
    image = field(1, field(1, b"image"), field(2, field(1, field(1, bytes(300_000)))))

    def judged(*entries: bytes) -> Sequence[str | None]:
        return [verdict(shard, field(1, *some, *entries)) for some in ((), (image,))]

    assert judged(field(1, A, field(2, INT))) == [None, None]
    short, long = judged(field(1, A, field(2, INT)), field(1, A))
    assert short is not None
    assert short == long
