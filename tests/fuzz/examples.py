"""Fuzzing payloads: telling what they are, decoding them, and inferring their schema.

An input is the payloads of several records with a mark between them.
"""

from __future__ import annotations

import ast
import json
import pickle
import random
import struct
from collections.abc import Iterator

from google.protobuf.message import DecodeError

from tests.examples.strategies import entry, float32, int64, raw_example, string
from tests.fuzz.target import Scramble, Target, fixture_files
from tests.records.strategies import read
from tfrtool.examples.content import decode_text, describe_bytes
from tfrtool.examples.example import (
    DType,
    Example,
    Feature,
    PayloadKind,
    classify_payload,
    decode_example,
    encode_example,
)
from tfrtool.examples.feature_text import python_source
from tfrtool.examples.parsing import fit_example
from tfrtool.examples.proto import example_pb2 as pb
from tfrtool.examples.roles import find_roles
from tfrtool.examples.schema import FeatureSpec, Schema
from tfrtool.examples.schema_fold import SchemaFold
from tfrtool.examples.tfds_features import tfds_features
from tfrtool.inspection.summary.summary_json import value_json
from tfrtool.records import frames
from tfrtool.records.framing import frame

__all__ = ["MARK", "TARGET"]

MARK = b"\xff\xfe--\xfe\xff"
"""Between two payloads; no message has these bytes by chance."""
_PARSED = (PayloadKind.EXAMPLE, PayloadKind.SEQUENCE_EXAMPLE)
_KEYS = (b"a", b"b", b"image", b"label", b"caf\xe9", "ü".encode(), b"a:int64=", b"", b"\\xe9")
_FEATURES = (
    Feature(dtype=None, values=()),
    string(),
    string(b""),
    string(b"text", b"\xff\xd8\xff\xe0"),
    string(raw_example([entry(b"in", int64(1))])),
    string(b"\x08\x04\x12\x04\x12\x02\x08\x02\x22\x02ab"),
    int64(),
    int64(0, -1, 2**63 - 1, -(2**63)),
    float32(),
    float32(1.5, float("nan"), float("inf"), -0.0, 3.4e38),
)


def seeds() -> Iterator[bytes]:
    """Yield the payloads of shards, and messages that are hard to distinguish."""
    for folder in ("golden", "damaged"):
        for data in fixture_files(folder, 2000):
            payloads = read(data).payloads
            if payloads:
                yield MARK.join(payloads)
    rows = [raw_example([entry(key, feature)]) for key in _KEYS for feature in _FEATURES]
    yield MARK.join(rows[:12])
    yield from rows
    yield raw_example(
        [entry(b"a", int64(1))], {b"a": [string(b"x"), Feature(dtype=None, values=())]}
    )
    yield raw_example([], {b"a": []}) + MARK + raw_example([entry(b"a", int64(1))] * 2)


def check(data: bytes) -> None:
    """Everything that looks at a payload agrees on it, and what it says fits the payload."""
    taken: list[bytes] = []
    fold = SchemaFold(values=True)
    halves = SchemaFold(values=True), SchemaFold(values=True)
    for number, payload in enumerate(data.split(MARK)):
        _check_bytes(payload)
        kind = classify_payload(payload)
        _check_form(payload, kind)
        fits = fold.add_payload(payload, index=number)
        assert fits >= (kind in _PARSED or not payload)
        halves[number % 2].add_payload(payload, index=number)
        if kind in _PARSED:
            _check_decoding(payload, kind)
        else:
            _check_refusal(payload)
        if fits:
            taken.append(payload)
    assert fold.records == len(taken)
    merged, other = (pickle.loads(pickle.dumps(half)) for half in halves)
    merged.merge(other)
    assert merged.features() == fold.features()
    _check_schema(fold, taken)


def _check_bytes(value: bytes) -> None:
    name = describe_bytes(value)
    assert (name == "empty") == (not value)
    text = decode_text(value)
    assert (name == "text") <= (text is not None)
    assert text is None or text.encode() == value


def _check_refusal(payload: bytes) -> None:
    for kind in _PARSED:
        try:
            decode_example(payload, kind)
        except ValueError as error:
            assert "\n" not in str(error)


def _check_decoding(payload: bytes, kind: PayloadKind) -> None:
    example = decode_example(payload, kind)
    assert bool(example.feature_lists) <= (kind is PayloadKind.SEQUENCE_EXAMPLE)
    encoded = encode_example(example.features)
    again = decode_example(encoded)
    assert _bits(again) == _bits(Example(features=example.features))
    assert encode_example(again.features) == encoded
    json.dumps(
        [value_json(feature.values) for feature in example.features.values()], allow_nan=False
    )
    roles = find_roles(example.features)
    assert {roles.image, roles.label} <= {None, *example.features}


def _bits(example: Example) -> dict[str, tuple[DType | None, bytes | tuple[object, ...]]]:
    """Return features in a form in which NaN equals itself."""
    return {
        name: (
            feature.dtype,
            struct.pack(f"<{len(feature.values)}f", *feature.values)
            if feature.dtype is DType.FLOAT32
            else tuple(feature.values),
        )
        for name, feature in example.features.items()
    }


def _check_schema(fold: SchemaFold, payloads: list[bytes]) -> None:
    features = fold.features()
    schema = fold.schema()
    assert all(
        feature.present + feature.unset <= fold.records or feature.is_list for feature in features
    )
    # Two keys may look alike as text, where one is no UTF-8 and escaped.
    names = [(feature.name, feature.is_list) for feature in features]
    doubtful = {feature.name for feature in features if feature.conflict}
    doubtful |= {name for name, is_list in names if names.count((name, is_list)) > 1}
    for payload in payloads:
        example = decode_example(payload, PayloadKind.SEQUENCE_EXAMPLE)
        parsed = fit_example(example, schema)
        for misfit in parsed.misfits:
            assert misfit.name in doubtful or misfit.name.rpartition("[")[0] in doubtful, misfit
        assert parsed.defaulted == ()
    text = json.dumps(schema.to_json())
    assert set(Schema.from_json(text)) == set(schema)
    for spec in schema:
        if spec.name and not spec.is_list and "=" not in spec.name:
            assert FeatureSpec.parse(str(spec)) == spec
    ast.parse(python_source(features, fold.records, notes=["a note"]))
    json.dumps(tfds_features(features, fold.records).content)


def _check_form(payload: bytes, kind: PayloadKind) -> None:
    """What C takes for canonical is what protobuf would write."""
    if frames.native is not None:
        shard = frame(payload)
        (odd, *_), flags = frames.native.check_examples(shard, struct.pack("=QQ", 0, len(shard)))
        if not odd:
            assert pb.SequenceExample.FromString(payload).SerializeToString() == payload
            assert bool(flags & frames.HAS_LISTS) == (kind is PayloadKind.SEQUENCE_EXAMPLE)


def mutate(data: bytes, rng: random.Random, scramble: Scramble) -> bytes:
    """Change one of the payloads: its features, their values, or its bytes."""
    payloads = data.split(MARK)
    at = rng.randrange(len(payloads))
    match rng.randrange(6):
        case 0:
            payloads.insert(at, payloads[rng.randrange(len(payloads))])
        case 1 if len(payloads) > 1:
            del payloads[at]
        case 2:
            payloads[at] = scramble(payloads[at])
        case _:
            payloads[at] = _mutated(payloads[at], rng, scramble)
    return MARK.join(payloads)


def _mutated(payload: bytes, rng: random.Random, scramble: Scramble) -> bytes:
    try:
        message = pb.SequenceExample.FromString(payload)
    except DecodeError:
        return scramble(payload)
    entries = list(message.context.feature)
    match rng.randrange(5):
        case 0:
            entries.append(entry(rng.choice(_KEYS), rng.choice(_FEATURES)))
        case 1 if entries:
            del entries[rng.randrange(len(entries))]
        case 2 if entries:
            chosen = rng.choice(entries)
            chosen.key = rng.choice((rng.choice(_KEYS), scramble(chosen.key)))
        case 3:
            key = rng.choice(_KEYS)
            steps = message.feature_lists.feature_list.add(key=key).value
            steps.feature.extend(
                entry(b"", rng.choice(_FEATURES)).value for _ in range(rng.randrange(3))
            )
        case _ if entries:
            values = rng.choice(entries).value.bytes_list.value
            if values:
                values[0] = scramble(values[0])
            else:
                values.append(scramble(rng.choice(_KEYS)))
    del message.context.feature[:]
    message.context.feature.extend(entries)
    return message.SerializeToString()


TARGET = Target(check=check, seeds=seeds, mutate=mutate)
